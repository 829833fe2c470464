"""RabbitMQ: orders from a queue, classic or quorum; notices through the default exchange to a queue.

The client is aiormq, on which aio-pika is built: what aio-pika adds costs as much again for each message, and
hides what matters here, such as the broker's cancelling of a consumer. Of aiormq only single calls are used,
each with a time limit. Nothing is done in its callbacks but to append to a list, because it cancels them when
a connection breaks.

One connection consumes and acknowledges, another publishes: under a memory or disk alarm RabbitMQ stops a
connection that publishes as a whole, acknowledgements included.
"""

import asyncio
import contextlib
import re
from collections import deque
from collections.abc import Coroutine, Sequence
from typing import Any, Final
from weakref import WeakValueDictionary

from aiormq import exceptions as failed
from aiormq.abc import DeliveredMessage
from pamqp import commands
from pamqp.common import FieldValue

from makegood.brokers.address import BrokerAddress
from makegood.brokers.kinds import Target
from makegood.brokers.protocol import (
    Backlog,
    Delivery,
    OutgoingEvent,
    Reader,
    RefusedTargetError,
    Requirement,
    Sender,
    Source,
    next_batch,
)
from makegood.brokers.rabbitmq_link import (
    FAULT_HEADER,
    AmqpLink,
    AmqpPlace,
    connect,
    deadline,
    place_of,
    problem,
)
from makegood.brokers.rabbitmq_queue import QueueSetup, requirements, setup_of
from makegood.errors import BrokerUnavailableError, ConfigError, DeliveryError

_CALL: Final = 4.0
"""Seconds for one call to the broker."""
_OPEN: Final = 9.0
"""Seconds to connect and to begin to consume."""
_QUIET: Final = 10.0
"""Seconds without a message after which a waiting ``take`` consumes again: that shows whether all is well."""

_TOO_LARGE: Final = re.compile(r"message size (\d+) is larger")
_NOWHERE: Final = "makegood.no-such-queue"
"""Where a message goes that asks whether this user may publish."""

DEAD_LETTERS: Final = "dead-letters"
"""The parameter by which an address says who keeps refused messages."""


def open_source(target: Target, address: BrokerAddress, reader: Reader) -> Source:
    """Return the queue at an address as a source."""
    keeper = address.parameters.get(DEAD_LETTERS, "")
    if keeper not in ("", "broker", "store"):
        raise ConfigError(
            f"{address}: {DEAD_LETTERS}={keeper!r:.60} must be broker, if the queue has a dead-letter exchange, or store"
        )
    return _Queue(place_of(target), address, reader)


def open_sender(target: Target) -> Sender:
    """Return what sends to the queues of a broker."""
    return _Publisher(place_of(target))


def permissions(target: Target, sources: Sequence[str], places: Sequence[str]) -> str:
    """Return the commands that give the user of the URL its rights: to read these queues, and to publish."""
    place = place_of(target)
    user, vhost = _quoted(place.user), _quoted(place.vhost)
    read = f"^({'|'.join(map(re.escape, sources))})$" if sources else "^$"
    write = r"^amq\.default$" if places else "^$"
    lines = [f"rabbitmqctl set_permissions -p {vhost} {user} '^$' {_quoted(write)} {_quoted(read)}"]
    if places:
        lines.insert(
            0,
            "# RabbitMQ has no finer right to publish than the default exchange, which leads to all queues of the virtual host.",
        )
    if place.management:
        lines += [
            "# To see how the queues are set up, by the management API. This replaces other tags of the user.",
            f"rabbitmqctl set_user_tags {user} management",
        ]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _refuse_errors(requirements: Sequence[Requirement]) -> None:
    for item in requirements:
        if item.severity == "error":
            raise ConfigError(f"{item.what}: {item.remedy}")


class _Receipt:
    """What a delivery is acknowledged by: a number that only its own channel knows."""

    __slots__ = ("link", "tag")

    def __init__(self, link: AmqpLink, tag: int) -> None:
        self.link = link
        self.tag = tag


class _Queue:
    """A queue that is read."""

    def __init__(self, place: AmqpPlace, address: BrokerAddress, reader: Reader) -> None:
        self.where = str(address)
        self.keeps_refusals = False
        self._place = place
        self._address = address
        self._reader = reader
        self._link: AmqpLink | None = None
        self._requirements: Sequence[Requirement] = ()
        self._buffer: deque[Delivery] = deque()
        self._tags: dict[int, None] = {}
        """Tags of all that was delivered and not settled, in the broker's order."""
        self._consumer: str | None = None
        self._last_sign = 0.0
        """When the consumer last showed that it consumes."""
        self._bell = asyncio.Event()
        self._call: asyncio.Task[Any] | None = None

    async def open(self) -> Sequence[Requirement]:
        if self._link is not None and self._link.is_open:
            return self._requirements
        self._drop()
        async with deadline(self._place, self.where, _OPEN):
            link = await connect(self._place, "makegood " + self._reader.name)
            try:
                setup = await self._setup(link)
                self._requirements = requirements(self.where, setup, link.version)
                _refuse_errors(self._requirements)
                self.keeps_refusals = self._keeps(setup)
                link.watch(self.where, self._bell.set)
                self._link = link
                await self._consume(link)
            except BaseException:
                link.abort()
                self._drop()
                raise
        return self._requirements

    async def check(self) -> Sequence[Requirement]:
        async with deadline(self._place, self.where, _OPEN):
            link = await connect(self._place, "makegood check")
            try:
                return requirements(self.where, await self._setup(link), link.version)
            finally:
                link.abort()

    async def _setup(self, link: AmqpLink) -> QueueSetup:
        await link.declared(self._address.place)
        return await setup_of(self._place, self._address.place)

    def _keeps(self, setup: QueueSetup) -> bool:
        keeper = self._address.parameters.get(DEAD_LETTERS)
        if keeper == "broker" and setup.queue is not None and not setup.keeps_refusals:
            raise ConfigError(
                f"{self.where}: its address says {DEAD_LETTERS}=broker, but no queue receives its dead letters, so RabbitMQ would lose messages "
                f"that makegood refuses. Bind a queue to its dead-letter exchange, or leave the parameter out: then the store keeps them"
            )
        return keeper == "broker" or (keeper is None and setup.keeps_refusals)

    async def take(self, limit: int, wait: float) -> Sequence[Delivery]:
        link = await self._ready()
        # Behind a pause the next consumer is given a whole prefetch more: none begins while this one is full.
        if self._consumer is None and len(self._tags) < self._reader.batch:
            await self._finished(self._consume(link))
        if not self._buffer and wait > 0:
            await self._arrival(link, wait)
        self._raise_if_broken(link)
        return next_batch(self._buffer, limit)

    async def acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        link = await self._ready()
        tags = {d.receipt.tag for d in deliveries if d.receipt.link is link} & self._tags.keys()
        last = 0
        for tag in self._tags:
            if tag not in tags:
                break
            last = tag
        for tag in tags:
            del self._tags[tag]
        if tags:
            await self._finished(link.acknowledge(last, sorted(tag for tag in tags if tag > last)))

    async def refuse(self, delivery: Delivery, why: str) -> None:  # noqa: ARG002 - AMQP takes no reason
        link = await self._ready()
        tag = delivery.receipt.tag
        if delivery.receipt.link is link and tag in self._tags:
            del self._tags[tag]
            await self._finished(link.reject(tag))

    async def pause(self) -> None:
        link = await self._ready()
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await self._finished(link.cancel(consumer))

    async def backlog(self) -> Backlog:
        if self._link is not None:
            link = await self._ready()
            answer = await self._finished(link.declared(self._address.place))
            return Backlog(waiting=answer.message_count + len(self._tags))
        async with deadline(self._place, self.where, _OPEN):
            link = await connect(self._place, "makegood backlog")
            try:
                return Backlog(waiting=(await link.declared(self._address.place)).message_count)
            finally:
                link.abort()

    async def close(self) -> None:
        link, self._link = self._link, None
        self._drop()
        if link is not None:
            await link.close()

    def _drop(self) -> None:
        """Let go of everything: RabbitMQ gives it back to the queue when the connection ends."""
        if self._link is not None:
            self._link.abort()
        if self._call is not None:
            self._call.cancel()
        self._link = self._consumer = self._call = None
        self._buffer.clear()
        self._tags.clear()

    async def _consume(self, link: AmqpLink) -> None:
        loop = asyncio.get_running_loop()

        async def arrive(message: DeliveredMessage) -> None:
            if self._link is link:
                self._last_sign = loop.time()
                delivery = _delivery(link, message)
                self._tags[delivery.receipt.tag] = None
                self._buffer.append(delivery)
                self._bell.set()

        self._consumer = await link.consume(self._address.place, arrive, self._reader.batch)
        self._last_sign = loop.time()

    async def _arrival(self, link: AmqpLink, wait: float) -> None:
        """Wait until something has arrived, the link has broken, or so many seconds are over."""
        loop = asyncio.get_running_loop()
        end = loop.time() + wait
        while link.is_open and not self._buffer and (left := end - loop.time()) > 0:
            self._bell.clear()
            try:
                async with asyncio.timeout(min(left, max(0.1, self._last_sign + _QUIET - loop.time()))):
                    await self._bell.wait()
            except TimeoutError:
                if loop.time() - self._last_sign >= _QUIET:
                    await self._finished(self._renew(link))

    async def _renew(self, link: AmqpLink) -> None:
        """Consume again on another channel, unless something arrives meanwhile.

        A quorum queue that was deleted and declared again at once goes on counting its old consumer, without
        a word, and gives it nothing that arrives here.
        """
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await link.cancel(consumer)
        if not self._tags:
            await link.change_channel()
        await self._consume(link)

    async def _ready(self) -> AmqpLink:
        """Return the link, once the call that a cancelled method left behind has ended."""
        if self._call is not None:
            await self._finished(None)
        link = self._link
        if link is None:
            raise BrokerUnavailableError(f"{self.where}: the connection is not open")
        self._raise_if_broken(link)
        return link

    def _raise_if_broken(self, link: AmqpLink) -> None:
        if not link.is_open:
            error = problem(self._place, self.where, link.reason)
            self._drop()
            raise error

    async def _finished(self, call: Coroutine[Any, Any, Any] | None) -> Any:
        """Return what a call answers. It outlives a cancelled caller, or aiormq would close the channel."""
        if call is not None:
            self._call = asyncio.create_task(self._limited(call))
        task = self._call
        assert task is not None
        try:
            result = await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():  # by `_drop`, not by the caller
                self._call = None
            raise
        except Exception:
            self._drop()
            raise
        self._call = None
        return result

    async def _limited(self, call: Coroutine[Any, Any, Any]) -> Any:
        async with deadline(self._place, self.where, _CALL):
            return await call


def _delivery(link: AmqpLink, message: DeliveredMessage) -> Delivery:
    properties, header = message.header.properties, message.delivery
    assert isinstance(header, commands.Basic.Deliver)
    table = properties.headers or {}
    headers = {name: text for name, value in table.items() if (text := _text(value)) is not None}
    gaps = str(headers.pop(FAULT_HEADER, "")).split(",")
    repeats = table.get("x-delivery-count")  # of a quorum queue
    return Delivery(
        receipt=_Receipt(link, int(header.delivery_tag or 0)),
        body=message.body,
        id=properties.message_id or None,
        headers=headers,
        kind=properties.message_type or headers.get("ce_type", ""),
        correlation_id=properties.correlation_id or None,
        reply_to=properties.reply_to or None,
        sent_at=_sent_at(properties, table.get("timestamp_in_ms")),
        count=1 + (repeats if isinstance(repeats, int) else int(bool(header.redelivered))),
        fault="; ".join(f"its {name} cannot be decoded" for name in gaps if name in _NEEDED),
    )


_NEEDED: Final = ("message_id", "headers")
"""Without these a message may be another than it seems; others that cannot be decoded are left out."""


def _text(value: FieldValue) -> str | None:
    if isinstance(value, bytes | bytearray):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return None
    return value if isinstance(value, str) else None


def _sent_at(properties: commands.Basic.Properties, broker: FieldValue) -> float | None:
    if isinstance(broker, int):  # from RabbitMQ's own interceptor
        return broker / 1000
    return properties.timestamp.timestamp() if properties.timestamp is not None else None


class _Publisher:
    """Publishes to the queues of a broker, and waits for each confirmation."""

    def __init__(self, place: AmqpPlace) -> None:
        self.where = place.target.where
        self._place = place
        self._link: AmqpLink | None = None
        self._connecting = asyncio.Lock()
        self._uses: dict[AmqpLink, int] = {}
        self._ids: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def send(self, place: str, event: OutgoingEvent, timeout: float) -> None:
        where, link, outcome_known = f"{self.where}/{place}", None, False
        try:
            # aiormq knows a returned message by its id alone, so no id is under way twice.
            async with (
                deadline(self._place, where, timeout),
                self._ids.setdefault(event.id, asyncio.Lock()),
            ):
                link = await self._connected()
                self._uses[link] = self._uses.get(link, 0) + 1
                await _publish(link, where, place, event)
                outcome_known = True
        except DeliveryError:
            outcome_known = True
            raise
        except (BrokerUnavailableError, ConfigError) as fault:
            if link is not None and link.is_open and await link.is_blocked():
                outcome_known = True  # nothing more goes out on this link until RabbitMQ lets it
                raise DeliveryError(
                    f"{where}: RabbitMQ has stopped all publishers: it lacks memory or disk space"
                ) from None
            raise DeliveryError(f"{fault}; the event may have arrived") from None
        finally:
            if link is not None:
                self._release(link, is_good=outcome_known)

    async def _connected(self) -> AmqpLink:
        async with self._connecting:
            if self._link is None or not self._link.is_open:
                self._link = await connect(self._place, "makegood notices")
            return self._link

    def _release(self, link: AmqpLink, *, is_good: bool) -> None:
        """End a use.

        A link on which an answer is missing gets no further events; those on it may still be confirmed.
        """
        self._uses[link] -= 1
        if self._link is link and not (is_good and link.is_open):
            self._link = None
        if self._link is not link and not self._uses[link]:
            del self._uses[link]
            link.abort()

    async def check(self, places: Sequence[str]) -> Sequence[Requirement]:
        result = list[Requirement]()
        async with deadline(self._place, self.where, _OPEN):
            link = await connect(self._place, "makegood check")
            try:
                with contextlib.suppress(failed.PublishError):  # it came back, so it may be published
                    await link.publish(_NOWHERE, b"", commands.Basic.Properties(message_id=_NOWHERE))
                for place in places:
                    result.append(await self._checked(link, place))
            finally:
                link.abort()
        return result

    async def _checked(self, link: AmqpLink, place: str) -> Requirement:
        where = f"{self.where}/{place}"
        if not await link.exists(place):
            return Requirement("error", f"{where}: there is no such queue", "declare it")
        setup = await setup_of(self._place, place)
        if setup.queue is not None and not setup.queue.get("durable", True):
            return Requirement(
                "warning",
                f"{where}: the queue is not durable: a restart of RabbitMQ loses its notices",
                "declare it durable",
            )
        return Requirement("ok", f"{where}: the queue is there, and this user may publish")

    async def close(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            await link.close()


async def _publish(link: AmqpLink, where: str, place: str, event: OutgoingEvent) -> None:
    properties = commands.Basic.Properties(
        content_type=event.content_type,
        delivery_mode=2,
        message_id=event.id,
        correlation_id=event.task,
        app_id="makegood",
    )
    try:
        await link.publish(place, event.body, properties)
    except failed.PublishError:
        raise RefusedTargetError(f"{where}: there is no such queue") from None
    except failed.DeliveryError:
        raise DeliveryError(
            f"{where}: RabbitMQ has not taken it (basic.nack): the queue is full, or most of its replicas are away"
        ) from None
    except failed.ChannelPreconditionFailed as fault:
        size = _TOO_LARGE.search(str(fault))
        if size is not None and int(size[1]) == len(event.body):  # and not that of another one on this link
            raise RefusedTargetError(f"{where}: {fault}") from None
        raise
