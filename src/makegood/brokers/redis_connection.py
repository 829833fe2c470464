"""A connection to Redis or Valkey on which commands are sent without waiting for the answers to those before.

Of redis-py only its connection and its parser are used. Its clients repeat a command whose answer was lost,
and an answer that nobody waits for any more goes to the next command. Here nothing is repeated, an answer
always goes to its own command, and the first fault gives the connection up.
"""

import asyncio
import contextlib
import ssl
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl, unquote

from redis import exceptions as failed
from redis.asyncio.connection import Connection, SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from makegood.base.urls import parts_of, scrubbed
from makegood.brokers.kinds import Target
from makegood.errors import BrokerUnavailableError, ConfigError, MakegoodError

Word = str | bytes | int
"""A part of a command."""

ANSWER: Final = 4.0
"""Seconds for which an answer is waited for, beyond what a command itself may wait."""

_PORT: Final = 6379
_TLS_FILES: Final = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
_BARRED: Final = (failed.AuthenticationError, failed.AuthorizationError, failed.NoPermissionError)
_PASSING: Final = ("LOADING", "BUSY ", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "READONLY", "MISCONF", "OOM")

E = TypeVar("E", bound=MakegoodError)


class CommandError(Exception):
    """Redis refused a command. ``code``: the first word of its answer, such as NOGROUP."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.code = text.partition(" ")[0]


class RedisConnection:
    """One connection. ``where`` begins its messages."""

    def __init__(self, target: Target, where: str) -> None:
        self._target = target
        self._where = where
        self._connection = _connection(target)
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._reading: asyncio.Task[None] | None = None
        self.fault: MakegoodError | None = None
        """Why it cannot be used any more."""

    async def open(self) -> None:
        """Connect. Raises ``ConfigError``, ``BrokerUnavailableError``."""
        try:
            async with asyncio.timeout(ANSWER):
                await self._connection.connect()  # type: ignore[no-untyped-call]  # redis-py has no types there
        except (failed.RedisError, OSError) as fault:  # a TimeoutError is an OSError
            raise self.lose(self._meaning(fault)) from fault
        except BaseException:
            self.lose(BrokerUnavailableError(f"{self._where}: it is closed"))
            raise
        self._reading = asyncio.get_running_loop().create_task(self._read())

    def check(self) -> None:
        """Raise the fault of the connection, if it has one."""
        if self.fault is not None:
            raise type(self.fault)(*self.fault.args)

    def lose(self, error: E) -> E:
        """Give the connection up, and return the error. Whoever waits for an answer gets that error, too."""
        if self.fault is None:
            self.fault = error
            for answer in self._waiting:
                if not answer.done():
                    answer.set_exception(type(error)(*error.args))
            self._waiting.clear()
            writer = self._connection._writer  # noqa: SLF001 - disconnect() waits until all has been sent
            if writer is not None:
                writer.transport.abort()
            if self._reading is not None:
                self._reading.cancel()
        return error

    async def call(self, *words: Word, timeout: float = ANSWER) -> Any:
        """Send a command, and return the answer: texts are bytes.

        Raises ``CommandError`` if Redis refuses it, ``ConfigError`` for missing rights, and
        ``BrokerUnavailableError`` when no answer comes: the connection is then given up.
        """
        (answer,) = await self.calls([words], timeout)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def calls(self, commands: Sequence[Sequence[Word]], timeout: float = ANSWER) -> list[Any]:
        """Send commands at once, and return the answers; a ``CommandError`` is among them, not raised."""
        self.check()
        loop = asyncio.get_running_loop()
        answers: list[asyncio.Future[Any]] = [loop.create_future() for _ in commands]
        self._waiting.extend(answers)
        try:
            async with asyncio.timeout(timeout):
                # What is sent keeps the order of what waits: nothing runs between the two.
                await self._connection.send_packed_command(
                    self._connection.pack_commands(commands), check_health=False
                )
                return [self._refusal(answer) for answer in [await one for one in answers]]
        except TimeoutError as silent:
            error = BrokerUnavailableError(f"{self._where}: no answer within {timeout:g} s")
            raise self.lose(error) from silent
        except (failed.RedisError, OSError) as fault:
            raise self.lose(self._meaning(fault)) from fault
        finally:
            for answer in answers:
                answer.cancel()

    async def close(self) -> None:
        """Leave at once."""
        self.lose(BrokerUnavailableError(f"{self._where}: it is closed"))
        if self._reading is not None:
            with contextlib.suppress(asyncio.CancelledError):
                await self._reading
        await self._connection.disconnect(nowait=True)

    async def _read(self) -> None:
        while True:
            try:
                answer = await self._connection.read_response(disable_decoding=True)
            except failed.ResponseError as refusal:
                answer = refusal
            except (failed.RedisError, OSError) as fault:
                self.lose(self._meaning(fault))
                return
            if not self._waiting:
                self.lose(BrokerUnavailableError(f"{self._where}: it answered what nobody had asked"))
                return
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(answer)

    def _refusal(self, answer: Any) -> Any:
        """Return an answer; a refusal as our error. Raises ``ConfigError`` for missing rights."""
        if not isinstance(answer, failed.ResponseError):
            return answer
        if isinstance(answer, _BARRED):
            raise self._meaning(answer)
        return CommandError(_text(answer, self._target))

    def _meaning(self, fault: Exception) -> ConfigError | BrokerUnavailableError:
        """Separate what can never work from what may pass."""
        text = _text(fault, self._target)
        if isinstance(fault, failed.NoPermissionError):
            return ConfigError(
                f"{self._where}: Redis refuses it ({text}): grant the rights that `makegood broker permissions` prints"
            )
        if isinstance(fault, _BARRED):
            return ConfigError(
                f"{self._where}: Redis refuses the login ({text}): correct user and password in the settings"
            )
        if isinstance(fault.__context__, ssl.SSLCertVerificationError) or "CERTIFICATE_VERIFY_FAILED" in text:
            return ConfigError(
                f"{self._where}: {text}; name the authority's certificate (?ssl_ca_certs=FILE), or correct the URL"
            )
        return BrokerUnavailableError(f"{self._where}: {text}")


def is_passing(refusal: CommandError) -> bool:
    """Return whether the same command may be taken later: the server loads, fails over, or has no room."""
    return str(refusal).startswith(_PASSING)


def _text(fault: Exception, target: Target) -> str:
    text = str(fault) or ("no answer" if isinstance(fault, TimeoutError) else type(fault).__name__)
    codes: dict[type[Exception], str] = {
        failed.NoPermissionError: "NOPERM ",
        failed.ReadOnlyError: "READONLY ",
        failed.OutOfMemoryError: "OOM ",
    }
    code = codes.get(type(fault), "")
    return scrubbed(code + text.removeprefix(code), target.url)


def trim_of(target: Target) -> int:
    """Return to about how many entries a sender trims its streams; 0: it trims nothing."""
    text = dict(parse_qsl(parts_of(target.url, f"brokers: the URL of {target.name!r}").query)).get(
        "maxlen", "0"
    )
    if not text.isdecimal():
        raise ConfigError(f"brokers: the URL of {target.name!r}: maxlen is a number of entries")
    return int(text)


def _connection(target: Target) -> Connection:
    """Return a connection that is not open yet.

    Raises ``ConfigError`` for a form that Redis does not have, or a file that cannot be read.
    """
    subject = f"brokers: the URL of {target.name!r}"
    parts = parts_of(target.url, subject)
    parameters = dict(parse_qsl(parts.query, keep_blank_values=True))
    parameter_names = ("maxlen", *_TLS_FILES)
    database = parts.path.strip("/")
    if unknown := sorted(parameters.keys() - set(parameter_names)):
        raise ConfigError(
            f"{subject} has the parameter {unknown[0]!r}: Redis takes {', '.join(parameter_names)}"
        )
    if "," in parts.netloc:
        raise ConfigError(f"{subject} names more than one server: name the one that is written to")
    if database and not database.isdecimal():
        raise ConfigError(
            f"{subject}: its path is not the number of a database: write redis://user@host:6379/0"
        )
    options: dict[str, Any] = {
        "host": parts.hostname or "localhost", "port": parts.port or _PORT, "db": int(database or 0),
        "username": unquote(parts.username or "") or None, "password": unquote(parts.password or "") or None,
        # Nothing of its own that could repeat a command, or take the answer to another one.
        "retry": Retry(NoBackoff(), 0), "retry_on_timeout": False, "health_check_interval": 0,
        "socket_timeout": None, "socket_connect_timeout": ANSWER,
        "protocol": 2, "legacy_responses": True, "decode_responses": False,
        "client_name": "makegood", "driver_info": None,
    }  # fmt: skip
    files: dict[str, Any] = {name: parameters[name] for name in _TLS_FILES if name in parameters}
    for name, file in files.items():
        if not Path(file).is_file():
            raise ConfigError(f"{subject}: {name} names a file that cannot be read: correct the path")
    if parts.scheme == "rediss":
        return SSLConnection(**options, **files, ssl_cert_reqs="required", ssl_check_hostname=True)
    if files:
        raise ConfigError(f"{subject} names files of TLS: write rediss:// then")
    return Connection(**options)
