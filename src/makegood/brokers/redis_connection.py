"""A connection to Redis or Valkey on which commands are sent without waiting for the answers to those before.

Of redis-py only its connection and its parser are used. Its clients repeat a command whose answer was lost,
and an answer that nobody waits for any more goes to the next command. Here nothing is repeated, an answer
always goes to its own command, and the first fault gives the connection up.
"""

import asyncio
import contextlib
import re
import ssl
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import SplitResult, unquote

from redis import exceptions as failed
from redis.asyncio.connection import Connection, SSLConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from makegood.base.urls import parts_of, scrub
from makegood.brokers.connection import BrokerConnection
from makegood.brokers.kinds import Target, rights_command
from makegood.errors import BrokerUnavailableError, ConfigError, MakegoodError

Word = str | bytes | int
"""A part of a command."""

ANSWER: Final = 4.0
"""Seconds for which an answer is waited for, beyond what a command itself may wait."""

_PORT: Final = 6379
_COMMAND: Final = re.compile(r"run the '([^']+)' command")
_TLS_FILES: Final = {
    "ssl_ca_certs": "the file with the authority's certificate",
    "ssl_certfile": "the file with this process's certificate",
    "ssl_keyfile": "the file with its key",
}
_PARAMETERS: Final = {"maxlen": "about how many entries a stream keeps", **_TLS_FILES}
_BARRED: Final = (failed.AuthenticationError, failed.AuthorizationError, failed.NoPermissionError)
_PASSING: Final = frozenset(
    {"LOADING", "BUSY", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "READONLY", "MISCONF", "OOM", "NOREPLICAS"}
)
_CODES: Final[dict[type[Exception], str]] = {
    failed.NoPermissionError: "NOPERM ",
    failed.ReadOnlyError: "READONLY ",
    failed.OutOfMemoryError: "OOM ",
    failed.ClusterDownError: "CLUSTERDOWN ",
    failed.MasterDownError: "MASTERDOWN ",
    failed.TryAgainError: "TRYAGAIN ",
    failed.MovedError: "MOVED ",
    failed.AskError: "ASK ",
}
"""The first words of answers that redis-py leaves out of the texts of its errors."""

E = TypeVar("E", bound=MakegoodError)


class CommandError(Exception):
    """Redis refused a command. ``code``: the first word of its answer, such as NOGROUP."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.code = text.partition(" ")[0]


class RedisConnection(BrokerConnection):
    """See ``BrokerConnection``."""

    def __init__(self, target: Target, where: str) -> None:
        super().__init__(target, where)
        self._connection = _connection(target)
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._reading: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Connect. Raises ``ConfigError``, ``BrokerUnavailableError``."""
        try:
            async with asyncio.timeout(ANSWER):
                await self._connection.connect()  # type: ignore[no-untyped-call]  # redis-py has no types there
        except (failed.RedisError, OSError) as fault:  # a TimeoutError is an OSError
            error = self._meaning(fault)
            hint = self._target.tls_hint(fault, "redis") if isinstance(error, BrokerUnavailableError) else ""
            raise self.lose(type(error)(str(error).rstrip(".") + hint)) from fault
        except BaseException:
            self.lose(BrokerUnavailableError(f"{self.where}: it is closed"))
            raise
        self._reading = asyncio.get_running_loop().create_task(self._read())

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
            error = BrokerUnavailableError(f"{self.where}: no answer within {timeout:g} s")
            raise self.lose(error) from silent
        except (failed.RedisError, OSError) as fault:
            raise self.lose(self._meaning(fault)) from fault
        finally:
            for answer in answers:
                answer.cancel()

    async def close(self) -> None:
        """Leave at once."""
        self.lose(BrokerUnavailableError(f"{self.where}: it is closed"))
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
                self.lose(BrokerUnavailableError(f"{self.where}: it answered what nobody had asked"))
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
                f"{self.where}: Redis refuses it ({text}): {grant(self._target, [_right(text, self.where)])}; "
                f"{rights_command(self._target, self.where)} prints all rights that makegood needs"
            )
        if isinstance(fault, _BARRED):
            return ConfigError(
                f"{self.where}: Redis refuses the login ({text}): correct user and password in the settings"
            )
        if isinstance(fault.__context__, ssl.SSLCertVerificationError) or "CERTIFICATE_VERIFY_FAILED" in text:
            return ConfigError(
                f"{self.where}: {text}; name the authority's certificate (?ssl_ca_certs=FILE), or correct the URL"
            )
        if (remedy := _correction(fault, text, parts_of(self._target.url))) is not None:
            return ConfigError(f"{self.where}: {remedy}")
        return BrokerUnavailableError(f"{self.where}: {text}")


def _correction(fault: Exception, text: str, parts: SplitResult) -> str | None:
    """Return what to correct in a URL that leads to a server of another kind, port or database."""
    if isinstance(fault, failed.InvalidResponse):
        return "what answers there is not Redis: correct host and port"
    if "DB index is out of range" in text:
        return f"the server has no database {parts.path.strip('/')}: correct the path of the URL"
    if "WRONG_VERSION_NUMBER" in text:
        return (
            f"{parts.hostname}:{parts.port or _PORT} does not speak TLS: write redis://, or the port for TLS"
        )
    return None


def grant(target: Target, rights: Sequence[str]) -> str:
    """Return the command that gives the user of a URL rights, such as "+xadd"."""
    user = unquote(parts_of(target.url).username or "") or "default"
    return f"ACL SETUSER {user} {' '.join(rights)}, and ACL SAVE"


def _right(text: str, where: str) -> str:
    command = _COMMAND.search(text)
    return f"+{command[1].lower()}" if command else f"~{where.partition('/')[2] or 'KEY'}"


def is_passing(refusal: CommandError) -> bool:
    """Return whether the same command may be taken later: the server loads, fails over, or has no room."""
    return refusal.code in _PASSING


def _text(fault: Exception, target: Target) -> str:
    text = str(fault) or ("no answer" if isinstance(fault, TimeoutError) else type(fault).__name__)
    code = _CODES.get(type(fault), "")
    return scrub(code + text.removeprefix(code), target.url)


def trim_of(target: Target) -> int:
    """Return to about how many entries a sender trims its streams; 0: it trims nothing."""
    text = target.settings(_PARAMETERS)[1].get("maxlen", "0")
    if not text.isdecimal():
        raise ConfigError(f"{target.subject}: maxlen is a number of entries")
    return int(text)


def _connection(target: Target) -> Connection:
    """Return a connection that is not open yet.

    Raises ``ConfigError`` for a form that Redis does not have, or a file that cannot be read.
    """
    subject = target.subject
    parts, parameters = target.settings(_PARAMETERS)
    database = parts.path.strip("/")
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
