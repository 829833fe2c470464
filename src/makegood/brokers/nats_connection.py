"""A connection to NATS that never reconnects: its first fault is its last, and its user opens another one.

A client that reconnects by itself buffers what is published while the server is away and delivers it later,
and its iterators end without an error. Every call has a timeout here. A call without an answer gives the
connection up: nats-py's reader ends without a word when the answer to an abandoned ping comes late.
"""

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from nats import errors as failed
from nats.aio.msg import Msg

from makegood.base.nats_client import NatsClient, NoTLSError, credentials_of, split_login
from makegood.base.pacing import event_within
from makegood.base.urls import scrub
from makegood.brokers.connection import BrokerConnection
from makegood.brokers.kinds import Target, rights_command
from makegood.errors import BrokerUnavailableError, ConfigError, MakegoodError

INBOX: Final = "_INBOX.makegood"
"""What all subjects begin with on which answers and messages arrive."""

_CONNECT: Final = 4
_CLOSE: Final = 1.0
_PING: Final = 2
_BUFFER: Final = 64 << 20  # with more than that to be sent, nats-py waits without limit
_FILES: Final = {
    "creds": "the file with the user's credentials",
    "sslrootcert": "the file with the authority's certificate",
    "sslcert": "the file with this process's certificate",
    "sslkey": "the file with its key",
}
_BARRED: Final = ("authorization", "authentication")
_ACK: Final = "$JS.ACK."
_VIOLATION: Final = "permissions violation"

E = TypeVar("E", bound=MakegoodError)


class NatsConnection(BrokerConnection):
    """See ``BrokerConnection``. Raises ``ConfigError`` for a URL that cannot be used."""

    def __init__(self, target: Target, where: str) -> None:
        super().__init__(target, where)
        self._servers, self._options = servers_of(target)
        self._client = NatsClient()
        self._gates: dict[asyncio.Future[None], str] = {}
        """Requests under way, each with its subject."""
        self._barred_subjects: set[str] = set()
        self._grants: dict[str, str] = {}
        """What to allow for what was published without an answer, by its name in small letters."""
        self._change_event = asyncio.Event()
        self._reason: Exception | None = None
        self.answered_at = 0.0
        """When it last answered, on the event loop's clock."""

    @property
    def max_payload(self) -> int:
        """Bytes of the longest message that the server takes."""
        return int(self._client.max_payload)

    async def open(self) -> None:
        """Connect. Raises ``ConfigError``, ``BrokerUnavailableError``."""
        self._client.must_encrypt = self._target.url.startswith("tls://")
        try:
            async with asyncio.timeout(_CONNECT):
                await self._client.connect(
                    self._servers, name="makegood", allow_reconnect=False, max_reconnect_attempts=1, reconnect_time_wait=0,
                    connect_timeout=_CONNECT, ping_interval=_PING, max_outstanding_pings=2,
                    pending_size=_BUFFER, inbox_prefix=INBOX, error_cb=self._hear,
                    disconnected_cb=self._leave, closed_cb=self._leave, **self._options,
                )  # fmt: skip
        except TimeoutError as silent:
            error = BrokerUnavailableError(f"{self.where}: no answer within {_CONNECT} s")
            raise self.lose(error) from silent
        except failed.NoServersError as fault:
            raise self.lose(self._meaning(self._reason or fault)) from fault
        except (OSError, ValueError, failed.Error) as fault:
            raise self.lose(self._meaning(fault)) from fault

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
        if not await event_within(self._change_event, timeout):
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
        self._grants[_grant_for(subject).lower()] = _grant_for(subject)
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
        self._gates[gate] = subject
        call = asyncio.ensure_future(
            self._client.request(subject, body, timeout=timeout + _CLOSE, headers=headers)
        )
        try:
            either: tuple[asyncio.Future[Any], ...] = (call, gate)
            await asyncio.wait(either, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if gate.done():
                gate.result()
            if not call.done():
                raise self.lose(BrokerUnavailableError(f"{self.where}: no answer within {timeout:g} s"))
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
        self.lose(BrokerUnavailableError(f"{self.where}: it is closed"))
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
            f"{self.where}: NATS refuses it ({scrub(str(fault), self._target.url)}): {self._grant(text)}; "
            f"{rights_command(self._target, self.where)} prints all rights that makegood needs"
        )
        gates = [
            gate
            for gate, subject in self._gates.items()
            if f'"{subject.lower()}"' in text and not gate.done()
        ]
        for gate in gates:
            self._barred_subjects.add(self._gates[gate].lower())
            gate.set_exception(ConfigError(*error.args))
        # One comes for each message, also after the first one has ended all calls of that subject.
        if not gates and not any(f'"{subject}"' in text for subject in self._barred_subjects):
            self.lose(error)

    def _grant(self, violation: str) -> str:
        """Return what to allow, by what the server says in small letters."""
        if "subscription" in violation:
            return f'allow its user to subscribe to "{INBOX}.>"'
        grants = self._grants | {_grant_for(each).lower(): _grant_for(each) for each in self._gates.values()}
        grant = _grant_for(violation.partition('"')[2].partition('"')[0])
        return f'allow its user to publish to "{grants.get(grant, grant)}"'

    async def _leave(self) -> None:
        self.lose(self._meaning(self._client.last_error or failed.ConnectionClosedError()))

    def _meaning(self, fault: Exception) -> ConfigError | BrokerUnavailableError:
        """Separate what can never work from what may pass."""
        text = scrub(str(fault) or type(fault).__name__, self._target.url)
        if any(word in text.lower() for word in _BARRED):
            return ConfigError(
                f"{self.where}: NATS refuses the login ({text}): correct user and password in the settings"
            )
        if isinstance(fault, ssl.SSLCertVerificationError | NoTLSError):
            return ConfigError(
                f"{self.where}: {text}; name the authority's certificate (?sslrootcert=FILE), or correct the URL"
            )
        return BrokerUnavailableError(f"{self.where}: {text}")


def _grant_for(subject: str) -> str:
    """Return what to allow for a subject: of acknowledgements, each of which has its own, those of a stream.

    >>> _grant_for("$JS.ACK.orders.shop.1.7.7.0.0"), _grant_for("orders.new")
    ('$JS.ACK.orders.>', 'orders.new')
    """
    is_ack = subject.upper().startswith(_ACK)
    return f"{'.'.join(subject.split('.')[:3])}.>" if is_ack else subject


def servers_of(target: Target) -> tuple[list[str], dict[str, Any]]:
    """Return the servers of a URL, and what nats-py takes beside them.

    Raises ``ConfigError`` for a form that NATS does not have, or a file that cannot be read.
    """
    subject = target.subject
    parts, parameters = target.settings(_FILES)
    servers = [f"{parts.scheme}://{place}" for place in parts.netloc.split(",")]
    servers, options = split_login(servers, subject)
    if not all(urlsplit(server).hostname for server in servers):
        raise ConfigError(f"{subject}: a host is missing: write nats://host:4222")
    if parts.path.strip("/"):
        raise ConfigError(f"{subject} has a path, which NATS does not take: the stream is named in addresses")
    if creds := parameters.pop("creds", None):
        options["user_credentials"] = credentials_of(creds, subject)
    if parts.scheme == "tls" or parameters:
        options["tls"] = target.tls(parameters, ("sslrootcert", "sslcert", "sslkey"))
    return servers, options
