"""A connection to NATS that never reconnects: its first fault is its last, and its user opens another one.

A client that reconnects by itself buffers what is published while the server is away and delivers it later,
and its iterators end without an error. Every call has a timeout here. A call without an answer gives the
connection up: nats-py's reader ends without a word when the answer to an abandoned ping comes late.
"""

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl

from nats import errors as failed
from nats.aio.msg import Msg

from makegood.base.nats_client import NatsClient, NoTLSError, split_login
from makegood.base.urls import parts_of, scrubbed
from makegood.brokers.kinds import Target
from makegood.errors import BrokerUnavailableError, ConfigError, MakegoodError

INBOX: Final = "_INBOX.makegood"
"""What all subjects begin with on which answers and messages arrive."""

_CONNECT: Final = 4
_CLOSE: Final = 1.0
_PING: Final = 2
_BUFFER: Final = 64 << 20  # with more than that to be sent, nats-py waits without limit
_FILES: Final = ("creds", "sslrootcert", "sslcert", "sslkey")
_BARRED: Final = ("authorization", "authentication")
_VIOLATION: Final = "permissions violation"

E = TypeVar("E", bound=MakegoodError)


class NatsConnection:
    """One connection. ``where`` begins its messages."""

    def __init__(self, target: Target, where: str) -> None:
        self._target = target
        self._where = where
        self._client = NatsClient()
        self._gates: dict[asyncio.Future[None], str] = {}
        self._barred_subjects: set[str] = set()
        self._change_event = asyncio.Event()
        self._reason: Exception | None = None
        self.answered_at = 0.0
        """When it last answered, on the event loop's clock."""
        self.fault: MakegoodError | None = None
        """Why it cannot be used any more."""

    @property
    def max_payload(self) -> int:
        """Bytes of the longest message that the server takes."""
        return int(self._client.max_payload)

    async def open(self) -> None:
        """Connect. Raises ``ConfigError``, ``BrokerUnavailableError``."""
        servers, options = servers_of(self._target)
        self._client.must_encrypt = self._target.url.startswith("tls://")
        try:
            async with asyncio.timeout(_CONNECT):
                await self._client.connect(
                    servers, name="makegood", allow_reconnect=False, max_reconnect_attempts=1, reconnect_time_wait=0,
                    connect_timeout=_CONNECT, ping_interval=_PING, max_outstanding_pings=2,
                    pending_size=_BUFFER, inbox_prefix=INBOX, error_cb=self._hear,
                    disconnected_cb=self._leave, closed_cb=self._leave, **options,
                )  # fmt: skip
        except TimeoutError as silent:
            error = BrokerUnavailableError(f"{self._where}: no answer within {_CONNECT} s")
            raise self.lose(error) from silent
        except failed.NoServersError as fault:
            raise self.lose(self._meaning(self._reason or fault)) from fault
        except (OSError, ValueError, failed.Error) as fault:
            raise self.lose(self._meaning(fault)) from fault

    def check(self) -> None:
        """Raise the fault of the connection, if it has one."""
        if self.fault is not None:
            raise type(self.fault)(*self.fault.args)

    def lose(self, error: E) -> E:
        """Give the connection up, and return the error. Whoever waits on it gets that error, too."""
        if self.fault is None:
            self.fault = error
            for gate in self._gates:
                if not gate.done():
                    gate.set_exception(type(error)(*error.args))
            self._change_event.set()
            self._abort()
        return error

    async def change(self, timeout: float) -> bool:
        """Wait for a message that is listened to, or for a fault; False: neither came."""
        try:
            async with asyncio.timeout(timeout):
                await self._change_event.wait()
        except TimeoutError:
            return False
        self._change_event.clear()
        return True

    async def listen(self, hear: Callable[[Msg], None]) -> str:
        """Call ``hear`` with what arrives on an inbox, and return that: a word more is to be added to it."""
        inbox = self._client.new_inbox()

        async def note(message: Msg) -> None:
            hear(message)
            self._change_event.set()

        # Without limits: past one, nats-py drops messages. What may come is bounded by what is asked for.
        await self._client.subscribe(f"{inbox}.*", cb=note, pending_bytes_limit=0, pending_msgs_limit=0)
        return str(inbox)

    async def publish(self, subject: str, body: bytes, reply: str = "") -> None:
        """Send without an answer. Raises ``BrokerUnavailableError`` once the connection is gone."""
        self.check()
        try:
            await self._client.publish(subject, body, reply=reply)
        except failed.Error as fault:
            raise self.lose(self._meaning(fault)) from fault

    async def request(
        self, subject: str, body: bytes, *, timeout: float, headers: dict[str, str] | None = None
    ) -> Msg:
        """Send, and return the answer.

        Raises ``NoRespondersError``, ``ConfigError`` if the right to send it is missing, and
        ``BrokerUnavailableError`` when the connection breaks, or no answer comes: it is then given up.
        """
        self.check()
        gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._gates[gate] = subject.lower()
        call = asyncio.ensure_future(
            self._client.request(subject, body, timeout=timeout + _CLOSE, headers=headers)
        )
        try:
            either: tuple[asyncio.Future[Any], ...] = (call, gate)
            await asyncio.wait(either, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if gate.done():
                gate.result()
            if not call.done():
                raise self.lose(BrokerUnavailableError(f"{self._where}: no answer within {timeout:g} s"))
            self.answered_at = asyncio.get_running_loop().time()
            try:
                return call.result()
            except failed.NoRespondersError:
                raise
            except (failed.Error, OSError) as fault:
                raise self.lose(self._meaning(fault)) from fault
        finally:
            del self._gates[gate]
            gate.cancel()
            call.cancel()
            if call.done() and not call.cancelled():
                call.exception()

    async def close(self) -> None:
        """Leave at once; what was published before a request that was answered has arrived."""
        self.lose(BrokerUnavailableError(f"{self._where}: it is closed"))
        with contextlib.suppress(failed.Error, OSError, TimeoutError):
            async with asyncio.timeout(_CLOSE):
                await self._client.close()
        for subscription in list(self._client._subs.values()):  # noqa: SLF001 - a close that fails forgets them
            if subscription._wait_for_msgs_task is not None:  # noqa: SLF001
                subscription._wait_for_msgs_task.cancel()  # noqa: SLF001

    def _abort(self) -> None:
        """Let go of the socket: nats-py's own way first waits until all has been sent."""
        writer = getattr(self._client._transport, "_io_writer", None)  # noqa: SLF001 - it has no other way
        if writer is not None:
            writer.transport.abort()

    async def _hear(self, fault: Exception) -> None:
        """Note an error that belongs to no call, or find the call."""
        text = str(fault).lower()
        self._reason = fault
        if _VIOLATION not in text:
            return
        error = ConfigError(
            f"{self._where}: NATS refuses it ({scrubbed(str(fault), self._target.url)}): grant the rights that `makegood broker permissions` prints"
        )
        gates = [gate for gate, subject in self._gates.items() if f'"{subject}"' in text and not gate.done()]
        for gate in gates:
            self._barred_subjects.add(self._gates[gate])
            gate.set_exception(ConfigError(*error.args))
        # One comes for each message, also after the first one has ended all calls of that subject.
        if not gates and not any(f'"{subject}"' in text for subject in self._barred_subjects):
            self.lose(error)

    async def _leave(self) -> None:
        self.lose(self._meaning(self._client.last_error or failed.ConnectionClosedError()))

    def _meaning(self, fault: Exception) -> ConfigError | BrokerUnavailableError:
        """Separate what can never work from what may pass."""
        text = scrubbed(str(fault) or type(fault).__name__, self._target.url)
        if any(word in text.lower() for word in _BARRED):
            return ConfigError(
                f"{self._where}: NATS refuses the login ({text}): correct user and password in the settings"
            )
        if isinstance(fault, ssl.SSLCertVerificationError | NoTLSError):
            return ConfigError(
                f"{self._where}: {text}; name the authority's certificate (?sslrootcert=FILE), or correct the URL"
            )
        return BrokerUnavailableError(f"{self._where}: {text}")


def servers_of(target: Target) -> tuple[list[str], dict[str, Any]]:
    """Return the servers of a URL, and what nats-py takes beside them.

    Raises ``ConfigError`` for a form that NATS does not have, or a file that cannot be read.
    """
    subject = f"brokers: the URL of {target.name!r}"
    parts = parts_of(target.url, subject)
    servers = [f"{parts.scheme}://{place}" for place in parts.netloc.split(",")]
    servers, options = split_login(servers, subject)
    parameters = dict(parse_qsl(parts.query, keep_blank_values=True))
    if parts.path.strip("/"):
        raise ConfigError(f"{subject} has a path, which NATS does not take: the stream is named in addresses")
    if unknown := sorted(parameters.keys() - set(_FILES)):
        raise ConfigError(f"{subject} has the parameter {unknown[0]!r}: NATS takes {', '.join(_FILES)}")
    for name, file in parameters.items():
        if not Path(file).is_file():
            raise ConfigError(f"{subject}: {name} names a file that cannot be read: correct the path")
    if creds := parameters.pop("creds", None):
        options["user_credentials"] = creds
    if parts.scheme == "tls" or parameters:
        try:
            context = ssl.create_default_context(cafile=parameters.get("sslrootcert"))
            if certificate := parameters.get("sslcert"):
                context.load_cert_chain(certificate, parameters.get("sslkey"))
        except (ssl.SSLError, OSError) as fault:
            raise ConfigError(f"{subject}: a file of its TLS is not usable: {fault}") from fault
        options["tls"] = context
    return servers, options
