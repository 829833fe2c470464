"""RabbitMQ: orders from a queue, classic or quorum; notices through the default exchange to a queue.

The client is aiormq, on which aio-pika is built: what aio-pika adds costs as much again for each message, and
hides what matters here, such as the broker's cancelling of a consumer. Of aiormq only single calls are used,
each with a time limit. Nothing is done in its callbacks but to append to a list, because it cancels them when
a connection breaks.

One connection consumes and acknowledges, another publishes: under a memory or disk alarm RabbitMQ stops a
connection that publishes as a whole, acknowledgements included.
"""

import asyncio
import re
from collections import deque
from collections.abc import Awaitable, Coroutine, Sequence
from typing import Any, Final
from weakref import WeakValueDictionary

from aiormq import exceptions as failed
from aiormq.abc import DeliveredMessage
from pamqp import commands
from pamqp.common import FieldValue

from makegood.base.pacing import event_within
from makegood.brokers.address import BrokerAddress
from makegood.brokers.kinds import Target, check_each
from makegood.brokers.protocol import (
    Answers,
    Backlog,
    Delivery,
    MissingPlaceError,
    OutgoingEvent,
    Reader,
    RefusedTargetError,
    Requirement,
    Sender,
    Source,
    UnsentError,
    failed_send,
    next_batch,
    raise_first_error,
)
from makegood.brokers.rabbitmq_link import (
    FAULT_HEADER,
    AmqpLink,
    AmqpPlace,
    connect,
    deadline,
    is_away,
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

_MOST_NAME: Final = 255
"""Bytes of a text property."""
_TOO_LARGE: Final = re.compile(r"message size (\d+) is larger")

DEAD_LETTERS: Final = "dead-letters"
"""The parameter by which an address says who keeps refused messages."""


def open_source(target: Target, address: BrokerAddress, reader: Reader) -> Source:
    """Return the queue at an address as a source."""
    return _Queue(place_of(target), address, reader)


def open_sender(target: Target) -> Sender:
    """Return what sends to the queues of a broker. Raises ``ConfigError`` for a URL that cannot be used."""
    place = place_of(target)
    if place.tls:
        _ = place.context  # an unusable file is found now, and not at the first notice
    return _Publisher(place)


async def check(
    target: Target,
    sources: Sequence[BrokerAddress],
    places: Sequence[str],
    reader: Reader,  # noqa: ARG001 - there are no groups
) -> Answers:
    """Look at each queue, and see whether this user may read it, or publish."""
    place = place_of(target)
    async with deadline(place, target.where, _OPEN):
        link = await connect(place, "makegood check")

    async def read(address: BrokerAddress) -> list[Requirement]:
        await link.see_whether_it_may_be_read(address.place)
        setup = await setup_of(place, address.place)
        return requirements(setup, link.version, keeper_of(address))

    async def check_place(queue: str) -> list[Requirement]:
        is_there = await link.exists(queue)
        if is_there is False:
            return [Requirement("error", "there is no such queue", "declare it, or correct its name")]
        await link.see_whether_this_user_may_publish()
        setup = await setup_of(place, queue)
        if setup.queue is not None and not setup.queue.get("durable", True):
            what = "the queue is not durable: a restart of RabbitMQ loses its notices"
            return [Requirement("warning", what, "declare it durable")]
        queue_text = "the queue is there" if is_there else "RabbitMQ does not say whether the queue is there"
        return [Requirement("ok", f"{queue_text}, and this user may publish")]

    async def check_in_time(where: str, look: Awaitable[list[Requirement]]) -> list[Requirement]:
        async with deadline(place, where, _OPEN):
            try:
                return await look
            except failed.ChannelNotFoundEntity as fault:
                if not is_away(fault):
                    raise  # there is no such queue
                what = f"{fault}: nothing is lost, and nothing is taken or sent until it is back"
                return [Requirement("error", what, "start that node; a quorum queue has replicas on others")]

    try:
        return await check_each(
            target, sources, lambda address: check_in_time(str(address), read(address)),
            places, lambda queue: check_in_time(f"{target.where}/{queue}", check_place(queue)),
        )  # fmt: skip
    finally:
        await link.close()


def keeper_of(address: BrokerAddress) -> str:
    """Return who keeps refused messages, as an address says; "" for whoever can. Raises ``ConfigError``."""
    keeper = address.parameters.get(DEAD_LETTERS, "")
    if keeper not in ("", "broker", "store"):
        raise ConfigError(
            f"{address}: {DEAD_LETTERS}={keeper!r:.60} must be broker, if the queue has a dead-letter exchange, or store"
        )
    return keeper


def permissions(target: Target, sources: Sequence[str], places: Sequence[str]) -> str:
    """Return the commands that give the user of the URL its rights: to read these queues, and to publish."""
    place = place_of(target)
    user, vhost = _quote(place.user), _quote(place.vhost)
    read = f"^({'|'.join(map(re.escape, sources))})$" if sources else "^$"
    write = r"^amq\.default$" if places else "^$"
    lines = [
        "# This replaces all rights of the user in this virtual host: do not run it for guest or an administrator.",
        f"rabbitmqctl set_permissions -p {vhost} {user} '^$' {_quote(write)} {_quote(read)}",
    ]
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


def _quote(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


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
        self._keeper = keeper_of(address)
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
                self._requirements = requirements(setup, link.version, self._keeper)
                raise_first_error(self._requirements, self.where)
                self.keeps_refusals = self._keeper == "broker" or (not self._keeper and setup.keeps_refusals)
                link.watch(self.where, self._bell.set)
                self._link = link
                await self._consume(link)
            except BaseException:
                link.abort()
                self._drop()
                raise
        return self._requirements

    async def _setup(self, link: AmqpLink) -> QueueSetup:
        await link.declare_passively(self._address.place)
        return await setup_of(self._place, self._address.place)

    async def take(self, limit: int, wait: float) -> Sequence[Delivery]:
        link = await self._ready()
        # Behind a pause the next consumer is given a whole prefetch more: none begins while this one is full.
        if self._consumer is None and len(self._tags) < self._reader.batch:
            await self._finish(self._consume(link))
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
            await self._finish(link.acknowledge(last, sorted(tag for tag in tags if tag > last)))

    async def refuse(self, delivery: Delivery, why: str) -> None:  # noqa: ARG002 - AMQP takes no reason
        link = await self._ready()
        tag = delivery.receipt.tag
        if delivery.receipt.link is link and tag in self._tags:
            del self._tags[tag]
            await self._finish(link.reject(tag))

    async def pause(self) -> None:
        link = await self._ready()
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await self._finish(link.cancel(consumer))

    async def backlog(self) -> Backlog:
        if self._link is not None:
            link = await self._ready()
            answer = await self._finish(link.declare_passively(self._address.place))
            return Backlog(waiting=answer.message_count + len(self._tags))
        async with deadline(self._place, self.where, _OPEN):
            link = await connect(self._place, "makegood backlog")
            try:
                return Backlog(waiting=(await link.declare_passively(self._address.place)).message_count)
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
            limit = min(left, max(0.1, self._last_sign + _QUIET - loop.time()))
            if not await event_within(self._bell, limit) and loop.time() - self._last_sign >= _QUIET:
                await self._finish(self._renew(link))

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
            await self._finish(None)
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

    async def _finish(self, call: Coroutine[Any, Any, Any] | None) -> Any:
        """Return what a call answers. It outlives a cancelled caller, or aiormq would close the channel."""
        if call is not None:
            self._call = asyncio.create_task(self._within_limit(call))
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

    async def _within_limit(self, call: Coroutine[Any, Any, Any]) -> Any:
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
        where, link, began, outcome_known = f"{self.where}/{place}", None, False, False
        try:
            # aiormq knows a returned message by its id alone, so no id is under way twice.
            async with (
                deadline(self._place, where, timeout),
                self._ids.setdefault(event.id, asyncio.Lock()),
            ):
                link = await self._connect()
                self._uses[link] = self._uses.get(link, 0) + 1
                await link.ready()
                began = True
                await _publish(link, where, place, event)
                outcome_known = True
        except DeliveryError:
            outcome_known = True
            raise
        except (BrokerUnavailableError, ConfigError) as fault:
            if link is not None and link.is_open and await link.is_blocked():
                outcome_known = True  # nothing more goes out on this link until RabbitMQ lets it
                text = "RabbitMQ has stopped all publishers: it lacks memory or disk space"
                raise failed_send(where, BrokerUnavailableError(text), began=began) from None
            raise failed_send(where, fault, began=began) from fault
        finally:
            if link is not None:
                self._release(link, is_good=outcome_known)

    async def _connect(self) -> AmqpLink:
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

    async def close(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            await link.close()


async def _publish(link: AmqpLink, where: str, place: str, event: OutgoingEvent) -> None:
    properties = commands.Basic.Properties(
        content_type=event.content_type,
        delivery_mode=2,
        message_id=event.id,
        correlation_id=event.correlation(_MOST_NAME),
        app_id="makegood",
    )
    try:
        await link.publish(place, event.body, properties)
    except failed.PublishError:
        raise await _no_route_error(link, where, place) from None
    except failed.DeliveryError:
        raise DeliveryError(
            f"{where}: RabbitMQ has not taken it (basic.nack): the queue is full, or most of its replicas are away"
        ) from None
    except failed.ChannelPreconditionFailed as fault:
        size = _TOO_LARGE.search(str(fault))
        if size is not None and int(size[1]) == len(event.body):  # and not that of another one on this link
            raise RefusedTargetError(f"{where}: {fault}") from None
        raise


async def _no_route_error(link: AmqpLink, where: str, queue: str) -> DeliveryError:
    """Return the error for an event that no queue got: it does not exist, or its node is away."""
    try:
        if not await link.exists(queue):
            return MissingPlaceError(f"{where}: there is no such queue: declare it, or correct its name")
    except failed.ChannelNotFoundEntity as fault:
        return UnsentError(f"{where}: {fault}")
    return UnsentError(f"{where}: RabbitMQ has found no way to the queue, which is there")
