"""Webhooks: JSON posted to an address, signed after Standard Webhooks.

One call is one try; the caller decides when to try again.

A post is one connection: resolve the name, connect, TLS, write, read the status. All of it together has one
time limit, and the socket is closed whatever happens, so a receiver that drips its answer holds up nothing.
Of the answer only the status and ``Retry-After`` are read. No HTTP library takes part, because those log
addresses, whose path may be secret.
"""

import asyncio
import re
import ssl
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from makegood.base.clock import Clock
from makegood.base.name_lookups import Lookups
from makegood.base.webhook_signature import TIMEOUT, WebhookAddress, address, key_of, signature
from makegood.errors import DeliveryError

MOST_HEAD: Final = 16_384
"""Bytes of the head of an answer at most."""

MOST_INTERIM: Final = 10
"""Interim answers (100 Continue, 103 Early Hints) accepted before the final one."""

LOOKUP: Final = 0.8
"""Part of a post's time that looking the name up may take."""

_STATUS: Final = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})[ \r]")
_RETRY_AFTER: Final = re.compile(rb"\r\nretry-after:[ \t]*([^\r\n]*)", re.IGNORECASE)
_INTERIM: Final = range(100, 200)


Find = Callable[[], Awaitable[Sequence[str]]]
"""Returns the addresses of a receiver, best first. Raises ``DeliveryError``."""


class WebhookMessage(NamedTuple):
    """What is posted."""

    kind: str
    """The content's type."""
    id: str
    """The same at every try."""
    at: int
    """Seconds since 1970."""
    secrets: Sequence[str]
    """Those that sign it."""
    body: bytes


async def post(
    to: WebhookAddress, find: Find, message: WebhookMessage, *, timeout: float, tls: ssl.SSLContext | None
) -> None:
    """Post a message once. Raises ``DeliveryError`` unless the receiver answers 2xx in time.

    The message goes to the first of the addresses that ``find`` returns and that accepts a connection.
    ``timeout``: seconds for all of it. ``tls``: which certificates to trust.
    """
    try:
        async with asyncio.timeout(timeout):
            answer = await _exchange(await _connect(to, await find(), tls), _request_bytes(to, message))
    except TimeoutError:
        raise DeliveryError(f"{to.origin} did not answer within {timeout:g} s", status=0) from None
    except OSError as fault:
        raise DeliveryError(
            f"{to.origin} cannot be reached: {type(fault).__name__}: {fault}", status=0
        ) from fault
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, _OddAnswerError) as odd:
        raise DeliveryError(
            f"{to.origin} cannot be reached: its answer is not one of HTTP/1.1", status=0
        ) from odd
    if not 200 <= answer.status < 300:
        raise DeliveryError(
            f"{to.origin} answered {answer.status}", status=answer.status, retry_after=answer.retry_after
        )


class _OddAnswerError(Exception):
    pass


class _Answer(NamedTuple):
    status: int
    retry_after: str | None


_Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def _request_bytes(to: WebhookAddress, message: WebhookMessage) -> bytes:
    headers = {
        "host": to.netloc,
        "content-type": message.kind,
        "content-length": str(len(message.body)),
        "user-agent": "makegood",
        "connection": "close",
        "webhook-id": message.id,
        "webhook-timestamp": str(message.at),
    }
    if message.secrets:
        headers["webhook-signature"] = signature(message.secrets, message.id, message.at, message.body)
    lines = [f"POST {to.path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    if not all(line.isascii() and line.isprintable() for line in lines):
        raise DeliveryError(
            f"{to.origin}: the message's id is not printable ASCII: {message.id!r:.60}", status=0
        )
    return "\r\n".join([*lines, "", ""]).encode() + message.body


async def _connect(to: WebhookAddress, addresses: Sequence[str], tls: ssl.SSLContext | None) -> _Connection:
    name = None if tls is None else to.host.removesuffix(".")
    last_fault: OSError | None = None
    for at in addresses:
        try:
            return await asyncio.open_connection(at, to.port, ssl=tls, server_hostname=name, limit=MOST_HEAD)
        except OSError as fault:
            last_fault = fault
    raise last_fault or DeliveryError(f"{to.origin} has no address", status=0)


async def _exchange(connection: _Connection, request: bytes) -> _Answer:
    reader, writer = connection
    try:
        writer.write(request)
        await writer.drain()
        for _ in range(MOST_INTERIM):
            head = await reader.readuntil(b"\r\n\r\n")
            status_line = _STATUS.match(head)
            if status_line is None:
                break
            if int(status_line[1]) not in _INTERIM:
                delay = _RETRY_AFTER.search(head)
                return _Answer(
                    int(status_line[1]), None if delay is None else delay[1].decode("latin-1").strip()
                )
        raise _OddAnswerError
    finally:
        writer.transport.abort()


class Webhook:
    """Posts signed messages to one address, that of an operator's own receiver.

    ``secrets``: signs with each of them. ``clock``: its wall clock goes into the message. ``timeout``:
    seconds for one post, from resolving the name to the answer. Redirects are not followed: a message signed
    for one host is not sent to another.
    """

    def __init__(
        self, url: str, secrets: Sequence[str] = (), *, clock: Clock, timeout: float = TIMEOUT
    ) -> None:
        self.address = address(url)
        for secret in secrets:
            key_of(secret)
        self._secrets = tuple(secrets)
        self._clock = clock
        self._timeout = timeout
        self._lookups = Lookups(limit=LOOKUP * timeout)
        self._tls: ssl.SSLContext | None = None

    async def post(self, message_id: str, body: bytes, *, kind: str = "application/json") -> None:
        """Send a message once. Raises ``DeliveryError`` unless the receiver answers 2xx in time."""
        to = self.address
        if to.scheme == "https" and self._tls is None:
            self._tls = ssl.create_default_context()  # reads the system's certificates: once
        message = WebhookMessage(kind, message_id, int(self._clock.wall()), self._secrets, body)
        find = partial(self._lookups.resolve, to.host, to.port)
        await post(to, find, message, timeout=self._timeout, tls=self._tls)
