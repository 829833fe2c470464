"""A connection to RabbitMQ with one channel, on which every wait has an end, and what its faults mean.

aiormq reads its frames from a stream of our own: one message whose properties pamqp cannot decode, such as a
timestamp in microseconds, would end each connection that it is delivered to, for ever.
"""

import asyncio
import contextlib
import itertools
import ssl
import struct
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final
from urllib.parse import unquote

import aiormq
from aiormq.abc import ConsumerCallback
from aiormq.connection import TransportFactory
from pamqp import commands, decode
from pamqp import frame as frames
from pamqp.exceptions import PAMQPException
from pamqp.header import ContentHeader
from yarl import URL

from makegood.base.urls import parts_of, scheme_of, scrub
from makegood.brokers.kinds import Target
from makegood.errors import BrokerUnavailableError, ConfigError, MakegoodError

FAULT_HEADER: Final = "x-makegood-undecodable"
"""The header that names the properties of a message which cannot be decoded; in place of their values."""

_HEARTBEAT: Final = 10
_CONNECT: Final = 4.0
"""Seconds for one host of the URL."""
_CLOSE: Final = 2.0
_PORTS: Final = {"amqp": 5672, "amqps": 5671}
_PARAMETERS: Final = {
    "cafile": "the authority that signed the server's certificate",
    "certfile": "this client's certificate",
    "keyfile": "its key",
    "management": "URL of the management API, such as https://host:15671 or https://host:15671,host2:15671, to see how queues are set up",
}
_NOWHERE: Final = "makegood.no-such-queue"
"""Where a message goes that asks whether this user may publish."""
_HEADER_FRAME: Final = 2
_NOT_ALLOWED: Final = (402, 403, 530)
"""Reply codes of a connection that is refused for its virtual host or rights."""
_AWAY: Final = ("down or inaccessible", "stopped by supervisor", "has crashed", "due to timeout")
"""What RabbitMQ says, with the code of a missing queue, of one that it knows."""


@dataclass(frozen=True)
class AmqpPlace:
    """A RabbitMQ, as the URL of the settings names it."""

    target: Target
    hosts: Sequence[tuple[str, int]]
    user: str
    password: str
    vhost: str
    tls: bool
    files: dict[str, str]
    management: Sequence[str]
    """URLs of the management API: one for each host that has it."""

    @cached_property
    def context(self) -> ssl.SSLContext:
        """What checks the server's certificate. Raises ``ConfigError`` for a file that cannot be used."""
        return self.target.tls(self.files, ("cafile", "certfile", "keyfile"))


def place_of(target: Target) -> AmqpPlace:
    """Return what a URL names. Raises ``ConfigError``."""
    parts, parameters = target.settings(_PARAMETERS)
    login, _, netloc = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    return AmqpPlace(
        target=target,
        hosts=[_host(place, _PORTS[parts.scheme]) for place in netloc.split(",")],
        user=unquote(user) or "guest",
        password=unquote(password) if user else "guest",
        vhost=unquote(parts.path[1:]) or "/",
        tls=parts.scheme == "amqps",
        files={name: value for name, value in parameters.items() if name.endswith("file")},
        management=_management(parameters.get("management", ""), target.subject),
    )


def _management(url: str, subject: str) -> list[str]:
    """Return a URL for each of the hosts of one. Raises ``ConfigError`` for one that is not http or https."""
    if not url:
        return []
    subject = f"{subject}: its parameter management"
    parts = parts_of(url, subject) if scheme_of(url) in ("http", "https") else None
    hosts = parts.netloc.rpartition("@")[2].split(",") if parts is not None else []
    if parts is None or not all(hosts):
        raise ConfigError(f"{subject}: write http://host:15672 or https://host:15671")
    return [f"{parts.scheme}://{host}{parts.path.rstrip('/')}" for host in hosts]


def _host(place: str, port: int) -> tuple[str, int]:
    host, colon, digits = ("", "", "") if place.endswith("]") else place.rpartition(":")
    return (host if colon else place).strip("[]") or "localhost", int(digits) if colon and digits else port


def problem(place: AmqpPlace, where: str, fault: BaseException | None) -> MakegoodError:
    """Return what a fault means: ``ConfigError`` for what no retry mends, else ``BrokerUnavailableError``."""
    text = scrub(_text(fault), place.target.url).rstrip(".")
    match fault:
        case MakegoodError():
            return fault
        case TimeoutError():
            return BrokerUnavailableError(f"{where}: {place.target.safe_url} does not answer")
        case aiormq.exceptions.ProbableAuthenticationError() | aiormq.exceptions.AuthenticationError():
            return ConfigError(
                f"{where}: RabbitMQ refuses the login of {place.user!r}: {text}. Correct user and password in [brokers]"
            )
        case _RefusedError(code=code) if code in _NOT_ALLOWED:
            return ConfigError(
                f"{where}: RabbitMQ refuses {place.user!r} the virtual host {place.vhost!r}: {text}. Correct the URL in [brokers], or grant "
                f"its rights: `makegood broker permissions {place.target.name} --from PLACE --to PLACE`"
            )
        case aiormq.exceptions.ChannelNotFoundEntity() if not is_away(fault):
            return ConfigError(f"{where}: {text}. Declare the queue, or correct the address")
        case aiormq.exceptions.ChannelAccessRefused() | aiormq.exceptions.ChannelLockedResource():
            return ConfigError(
                f"{where}: RabbitMQ refuses {place.user!r}: {text}. {_grant(place, where, text)}"
            )
        case ssl.SSLCertVerificationError() | ssl.SSLError(reason="WRONG_VERSION_NUMBER"):
            return ConfigError(f"{where}: {_tls_remedy(place, fault)}")
        case _:
            return BrokerUnavailableError(f"{where}: {place.target.safe_url}: {text}")


def _tls_remedy(place: AmqpPlace, fault: ssl.SSLError) -> str:
    if isinstance(fault, ssl.SSLCertVerificationError):
        return (
            f"the certificate of {place.target.safe_url} does not hold: {fault.verify_message}. Name its authority with ?cafile= in "
            f"the URL, or the host that it is for"
        )
    host, port = place.hosts[0]
    return f"{host}:{port} does not speak TLS: write amqp://, or the port for TLS (5671)"


def is_away(fault: BaseException) -> bool:
    """Return whether RabbitMQ knows a queue that it does not find: its process, or its node, is away.

    >>> text = "NOT_FOUND - home node 'b@host' of durable queue 'orders' in vhost '/' is down or inaccessible"
    >>> is_away(aiormq.exceptions.ChannelNotFoundEntity(text))
    True
    """
    is_not_found = isinstance(fault, aiormq.exceptions.ChannelNotFoundEntity)
    return is_not_found and any(words in str(fault) for words in _AWAY)


def _grant(place: AmqpPlace, where: str, text: str) -> str:
    """Return what to grant for a place. ``text``: what RabbitMQ says, which names the kind of thing."""
    if "access to exchange" in text:
        right, how = "write to exchange amq.default", f"{place.target.name} --to PLACE"
    else:
        right, how = f"read queue {where.partition('/')[2]}", where
    return (
        f"Grant the right to {right}: `makegood broker permissions {how}` prints the command. As it sets all rights, name every place that "
        "this user needs (--from, --to)"
    )


def _text(fault: BaseException | None) -> str:
    match fault:
        case None | asyncio.CancelledError():
            return "the connection was lost"
        case aiormq.exceptions.ConnectionClosed() | aiormq.exceptions.ChannelClosed():
            return ": ".join(str(part) for part in fault.args if part) or "the connection was closed"
        case _:
            return str(fault.args[-1]) if fault.args else type(fault).__name__


@contextlib.asynccontextmanager
async def deadline(place: AmqpPlace, where: str, seconds: float) -> AsyncIterator[None]:
    """Give what is inside so many seconds, and translate what it raises.

    aiormq ends what waits on a lost connection by CancelledError: one that nobody asked of this task.
    """
    task = asyncio.current_task()
    assert task is not None
    cancels = task.cancelling()
    try:
        async with asyncio.timeout(seconds):
            yield
    except asyncio.CancelledError as fault:
        if task.cancelling() > cancels:
            raise
        raise problem(place, where, fault) from None
    except (
        TimeoutError,
        _RefusedError,
        aiormq.exceptions.AMQPError,
        PAMQPException,
        OSError,
        RuntimeError,
    ) as fault:
        raise problem(place, where, fault) from None


class _RefusedError(Exception):
    """RabbitMQ closed the connection while it was opened."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class _Frames(asyncio.StreamReader):
    """Yields what RabbitMQ sends, frame by frame; without the properties that pamqp cannot decode."""

    def __init__(self) -> None:
        super().__init__(limit=2**18)
        self._rest = b""
        self.refusal: _RefusedError | None = None

    def at_eof(self) -> bool:
        return not self._rest and super().at_eof()

    async def readexactly(self, n: int) -> bytes:
        """Return the next bytes: aiormq asks for 1, 6 and the rest of a frame."""
        if not self._rest:
            self._rest = await self._frame()
        part, self._rest = self._rest[:n], self._rest[n:]
        return part

    async def _frame(self) -> bytes:
        start = await super().readexactly(7)
        if start.startswith(b"AMQP"):  # another version of the protocol
            return start + await super().readexactly(1)
        kind, channel, size = struct.unpack(">BHI", start)
        whole = start + await super().readexactly(size + 1)
        if kind == _HEADER_FRAME:
            try:
                frames.unmarshal(whole)
            except PAMQPException:
                return frames.marshal(_readable(whole[7:-1]), channel)
        elif channel == 0 and kind == 1 and whole[7:11] == b"\0\x0a\0\x32":
            closing = frames.unmarshal(whole)[2]
            if isinstance(closing, commands.Connection.Close):
                self.refusal = _RefusedError(closing.reply_code or 0, closing.reply_text or "")
        return whole


def _readable(payload: bytes) -> ContentHeader:
    """Return the header of a message with those of its properties that can be decoded."""
    header = ContentHeader(body_size=struct.unpack(">HHQ", payload[:12])[2])
    properties = header.properties
    flags, rest, gaps = struct.unpack(">H", payload[12:14])[0], payload[14:], list[str]()
    for name in properties.__slots__:
        if not flags & properties.flags[name]:
            continue
        kind = properties.amqp_type(name)
        size = {"shortstr": 1 + rest[0], "octet": 1, "timestamp": 8}.get(kind)
        if size is None:
            size = 4 + struct.unpack(">I", rest[:4])[0]
        try:
            setattr(properties, name, decode.by_type(rest[:size], kind)[1])
        except (ValueError, OverflowError):
            gaps.append(name)
        rest = rest[size:]
    properties.headers = {**(properties.headers or {}), FAULT_HEADER: ",".join(gaps)}
    return header


class _Transport(TransportFactory):
    """Hands on a stream that is open."""

    def __init__(self, reader: _Frames, writer: asyncio.StreamWriter) -> None:
        self._streams = reader, writer

    async def create(self, *_: object, **__: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return self._streams


async def _stream(place: AmqpPlace, host: str, port: int) -> tuple[_Frames, asyncio.StreamWriter]:
    loop = asyncio.get_running_loop()
    reader = _Frames()
    protocol = asyncio.StreamReaderProtocol(reader)
    context = place.context if place.tls else None
    async with asyncio.timeout(_CONNECT):
        transport, _ = await loop.create_connection(lambda: protocol, host, port, ssl=context)
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


async def connect(place: AmqpPlace, name: str) -> "AmqpLink":
    """Return a link to the first host of the URL that takes one. Called inside ``deadline``."""
    faults = list[str]()
    for host, port in place.hosts:
        try:
            return await _connect_to(place, host, port, name)
        except (aiormq.exceptions.ProbableAuthenticationError, ssl.SSLCertVerificationError):
            raise
        except (TimeoutError, OSError) as error:
            if len(place.hosts) == 1:
                raise
            why = f"no answer within {_CONNECT:g} s" if isinstance(error, TimeoutError) else _text(error)
            faults.append(f"{host}:{port}: {why}")
    raise OSError(f"no host answers: {'; '.join(faults)}")


async def _connect_to(place: AmqpPlace, host: str, port: int, name: str) -> "AmqpLink":
    reader, writer = await _stream(place, host, port)
    try:
        login = URL.build(
            scheme="amqp",
            user=place.user,
            password=place.password,
            host=host,
            port=port,
            query={"heartbeat": str(_HEARTBEAT), "name": name},
        )
        connection = aiormq.Connection(login, transport_factory=_Transport(reader, writer))
        connection.vhost = place.vhost
        async with asyncio.timeout(_CONNECT):
            try:
                await connection.connect()
            except aiormq.exceptions.InvalidFrameError:
                if reader.refusal is not None:
                    raise reader.refusal from None
                raise
            channel = await _channel(connection)
    except BaseException:
        writer.transport.abort()
        raise
    return AmqpLink(connection, channel, writer)


class _Declare(commands.Queue.Declare):
    """Asks for a queue by any name: RabbitMQ takes more characters than AMQP, by which pamqp checks."""

    def validate(self) -> None: ...


class _Consume(commands.Basic.Consume):
    """Consumes from a queue of any name, as ``_Declare`` asks for it."""

    def validate(self) -> None: ...


async def _channel(connection: aiormq.Connection, *, publisher_confirms: bool = True) -> aiormq.Channel:
    channel = await connection.channel(publisher_confirms=publisher_confirms, on_return_raises=True)
    assert isinstance(channel, aiormq.Channel)
    return channel


class AmqpLink:
    """An open connection with one channel. Its calls are made inside ``deadline``."""

    def __init__(
        self,
        connection: aiormq.Connection,
        channel: aiormq.Channel,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._connection = connection
        self._channel = channel
        self._writer = writer
        self._cancellation: BrokerUnavailableError | None = None
        self._on_cancel: Callable[[object], None] = lambda _: None
        self._bell: Callable[[], None] = lambda: None
        self._numbers = itertools.count(1)
        """Of its consumers."""

    @property
    def version(self) -> tuple[int, ...]:
        """The server's version; (0,) if it does not say."""
        text = str(self._connection.server_properties.get("version") or "0")
        return tuple(int(part) for part in text.split(".")[:3] if part.isdecimal())

    @property
    def is_open(self) -> bool:
        """Whether it can be used, and its consumer consumes."""
        return self._cancellation is None and not self._channel.is_closed and not self._connection.is_closed

    @property
    def reason(self) -> BaseException | None:
        """Why it is not open."""
        end = self._channel.closing
        is_over = end.done() and not end.cancelled()
        return self._cancellation or (end.exception() if is_over else None)

    def watch(self, where: str, bell: Callable[[], None]) -> None:
        """Call ``bell`` when the link is no longer open.

        RabbitMQ cancels a consumer also where connection and channel stay open.
        """

        def note_cancellation(_: object) -> None:
            self._cancellation = BrokerUnavailableError(
                f"{where}: RabbitMQ has cancelled this consumer: the queue was deleted or moved, or an acknowledgement took too long"
            )
            bell()

        self._on_cancel, self._bell = note_cancellation, bell
        self._watch_channel()

    def _watch_channel(self) -> None:
        self._channel.on_consumer_cancel_callbacks.add(self._on_cancel)
        self._channel.closing.add_done_callback(lambda _: self._bell())

    async def change_channel(self) -> None:
        """Go on with another channel."""
        old = self._channel
        self._channel = await _channel(self._connection)
        self._watch_channel()
        await old.close()

    async def declare_passively(self, queue: str) -> commands.Queue.DeclareOk:
        """Return how many messages are ready in a queue, and how many consumers it has. Takes no rights."""
        return await self._channel.rpc(_Declare(queue=queue, passive=True))

    async def exists(self, queue: str) -> bool | None:
        """Return whether there is a queue. RabbitMQ closes the channel that asks if there is none.

        None: unknown. RabbitMQ 4.3 does not say it to a user without any right on the queue; 3.10 does.
        Raises ``ChannelNotFoundEntity`` if there is one, and it ``is_away``.
        """
        channel = await _channel(self._connection, publisher_confirms=False)
        try:
            await channel.rpc(_Declare(queue=queue, passive=True))
        except aiormq.exceptions.ChannelNotFoundEntity as fault:
            if is_away(fault):
                raise
            return False
        except aiormq.exceptions.ChannelAccessRefused:
            return None
        await channel.close()
        return True

    async def see_whether_it_may_be_read(self, queue: str) -> None:
        """Raise what RabbitMQ says against reading a queue; nothing is consumed.

        RabbitMQ looks at rights before it looks at the priority of a consumer, which must be a number.
        """
        if await self.exists(queue) is False:
            raise aiormq.exceptions.ChannelNotFoundEntity(f"there is no queue {queue!r}")
        channel = await _channel(self._connection, publisher_confirms=False)
        with contextlib.suppress(aiormq.exceptions.ChannelPreconditionFailed):
            await channel.rpc(_Consume(queue=queue, arguments={"x-priority": "none"}))

    async def see_whether_this_user_may_publish(self) -> None:
        """Raise what RabbitMQ says against publishing to the default exchange.

        What is published for that has no queue, and comes back.
        """
        channel = await _channel(self._connection)
        with contextlib.suppress(aiormq.exceptions.PublishError):
            properties = commands.Basic.Properties(message_id=_NOWHERE)
            await channel.basic_publish(b"", routing_key=_NOWHERE, mandatory=True, properties=properties)

    async def consume(self, queue: str, arrive: ConsumerCallback, prefetch: int) -> str:
        """Begin to consume; return the consumer's name.

        Each time it is another one: the server may still know the last one by its name.
        """
        await self._channel.basic_qos(prefetch_count=prefetch)
        consumer = f"makegood-{next(self._numbers)}"
        self._channel.consumers[consumer] = arrive
        await self._channel.rpc(_Consume(queue=queue, consumer_tag=consumer))
        return consumer

    async def cancel(self, consumer: str) -> None:
        """Consume no more. What was delivered stays unacknowledged, which RabbitMQ does not count."""
        await self._channel.basic_cancel(consumer)

    async def acknowledge(self, up_to: int, alone: Sequence[int]) -> None:
        """Acknowledge all deliveries up to one, 0 for none, and single ones behind it."""
        tags = [(up_to, True)] if up_to else []
        tags += [(tag, False) for tag in alone]
        for tag, multiple in tags:
            await self._channel.basic_ack(tag, multiple=multiple, wait=tag == tags[-1][0])

    async def reject(self, tag: int) -> None:
        """Give a delivery to the queue's dead-letter exchange."""
        await self._channel.basic_reject(tag, requeue=False)

    async def ready(self) -> None:
        """Wait until RabbitMQ lets this connection publish."""
        await self._connection.ready()

    async def publish(self, queue: str, body: bytes, properties: commands.Basic.Properties) -> None:
        """Publish to a queue, and return once RabbitMQ has confirmed it.

        Raises ``PublishError`` if there is none.
        """
        await self._channel.basic_publish(body, routing_key=queue, mandatory=True, properties=properties)

    async def is_blocked(self) -> bool:
        """Whether RabbitMQ has stopped this connection from publishing, for want of memory or disk space."""
        try:
            async with asyncio.timeout(0):
                await self._connection.ready()
        except TimeoutError:
            return True
        return False

    async def close(self) -> None:
        """Close the connection in good order, or at least close it."""
        with contextlib.suppress(Exception, asyncio.CancelledError):
            async with asyncio.timeout(_CLOSE):
                await self._connection.close()
        self.abort()

    def abort(self) -> None:
        """Break the connection."""
        self._writer.transport.abort()
