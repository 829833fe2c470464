"""A broker in memory that can do its worst: away, deaf, forgetful of acknowledgements, doubling, reordering.

It keeps a message until it is acknowledged, and delivers it again when the connection breaks, as every broker
does that is used with acknowledgements. Whatever else it does is drawn, or told by its fields.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from makegood.base.clock import Clock, SystemClock
from makegood.base.sizes import GIB
from makegood.brokers import (
    Backlog,
    BrokerAddress,
    Delivery,
    MissingPlaceError,
    OutgoingEvent,
    Reader,
    Requirement,
    Source,
    Target,
    UnsentError,
)
from makegood.brokers.protocol import Answers
from makegood.errors import BrokerUnavailableError, ConfigError, DeliveryError
from makegood.messaging.source_messages import SourceMessages
from makegood.messaging.source_relay import SourceRelay
from makegood.messaging.source_report import SourceReport
from makegood.store.protocol import Store


@dataclass(slots=True)
class Stored:
    """A message at the broker."""

    body: bytes
    id: str | None
    headers: dict[str, str] = field(default_factory=dict)
    deliveries: int = 0
    reader: object | None = None
    """The connection that has it."""


@dataclass
class MemoryBroker:
    """A broker with one place to read from, and any number to send to."""

    rng: random.Random = field(default_factory=lambda: random.Random(1))
    waiting: list[Stored] = field(default_factory=list)
    dead: list[tuple[Stored, str]] = field(default_factory=list)
    events: dict[str, list[OutgoingEvent]] = field(default_factory=dict)
    """What was sent, by place, with every repetition."""
    keeps_refusals: bool = False
    away: bool = False
    refuses_us: bool = False
    """It refuses the password."""
    losing_acks: float = 0.0
    """The share of acknowledgements that never arrive, although the reader hears no error."""
    doubling: float = 0.0
    """The share of deliveries that come twice."""
    unconfirmed: float = 0.0
    """The share of sends that arrive although the sender hears that they may not have."""
    missing: set[str] = field(default_factory=lambda: {"missing"})
    """Places that do not exist."""
    room: int | None = None
    """How many events it takes yet; None: any number."""
    full: set[str] = field(default_factory=set)
    """Places that take none."""
    checks: int = 0
    """How often somebody asked whether it can be sent to."""
    defect: Exception | None = None
    """What a client raises that asks whether it can be sent to."""
    before_acknowledge: Callable[[], None] | None = None
    sources: list["MemorySource"] = field(default_factory=list)
    takes: int = 0
    pauses: int = 0

    def put(self, body: bytes, name: str | None = None, **headers: str) -> None:
        """Publish a message."""
        self.waiting.append(Stored(body, name, headers))

    def break_connections(self) -> None:
        """Let every connection fail at its next call; what they have comes again."""
        for source in self.sources:
            source.let_go()

    def source(self, _: Reader | None = None) -> "MemorySource":
        """Return a source on it."""
        return MemorySource(self)

    def backlog(self) -> int:
        """Return how many messages nobody has acknowledged."""
        return len(self.waiting)

    def sender(self) -> "MemorySender":
        """Return a sender to it."""
        return MemorySender(self)

    async def checked(
        self, _: Target, __: Sequence[BrokerAddress], places: Sequence[str], ___: Reader
    ) -> Answers:
        """Return whether each place exists. See ``makegood.brokers.check``."""
        self.checks += 1
        if self.defect is not None:
            raise self.defect
        self.check()
        missing = Requirement("error", "there is no such place", "declare it")
        ok = Requirement("ok", "it can be sent to")
        return [(place, missing if place in self.missing else ok) for place in places]

    def check(self) -> None:
        """Raise what a client hears of a broker in this state."""
        if self.away:
            raise BrokerUnavailableError("the broker does not answer")
        if self.refuses_us:
            raise ConfigError("the broker refuses the password: correct [brokers]")


class MemorySource:
    """A source on a ``MemoryBroker``."""

    where = "memory"

    def __init__(self, broker: MemoryBroker) -> None:
        self.keeps_refusals = broker.keeps_refusals
        self._broker = broker
        self._connection: object | None = None
        broker.sources.append(self)

    async def open(self) -> Sequence[Requirement]:
        """Connect."""
        self._broker.check()
        if self._connection is None:
            self._connection = object()
        return ()

    async def check(self) -> Sequence[Requirement]:
        """Return that all is well."""
        self._broker.check()
        return [Requirement("ok", "it can be read")]

    async def take(self, limit: int, wait: float) -> Sequence[Delivery]:
        """Return what nobody has."""
        broker = self._broker
        broker.takes += 1
        if not any(message.reader is None for message in broker.waiting):
            await asyncio.sleep(wait)
        await self._checked()
        batch = [message for message in broker.waiting if message.reader is None][:limit]
        deliveries: list[Delivery] = []
        for message in batch:
            message.reader = self._connection
            message.deliveries += 1
            delivery = Delivery(
                receipt=message, body=message.body, id=message.id, correlation_id=message.id, headers=dict(message.headers), count=message.deliveries
            )  # fmt: skip
            deliveries.append(delivery)
            if broker.rng.random() < broker.doubling:
                deliveries.append(delivery)
        return deliveries

    async def acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        """Forget what is acknowledged over the connection that has it."""
        if self._broker.before_acknowledge is not None:
            self._broker.before_acknowledge()
        await self._checked()
        broker = self._broker
        for delivery in deliveries:
            stored: Stored = delivery.receipt
            if broker.rng.random() >= broker.losing_acks and stored in broker.waiting:
                broker.waiting.remove(stored)

    async def refuse(self, delivery: Delivery, why: str) -> None:
        """Put it to the broker's dead letters."""
        await self._checked()
        if delivery.receipt in self._broker.waiting:
            self._broker.waiting.remove(delivery.receipt)
            self._broker.dead.append((delivery.receipt, why))

    async def pause(self) -> None:
        """Count it."""
        self._broker.pauses += 1

    async def backlog(self) -> Backlog:
        """Return how many wait."""
        await self._checked()
        return Backlog(len(self._broker.waiting))

    async def close(self) -> None:
        """Give everything back."""
        self.let_go()

    def let_go(self) -> None:
        """Break the connection: what it has goes back."""
        for message in self._broker.waiting:
            if message.reader is self._connection:
                message.reader = None
        self._connection = None

    async def _checked(self) -> None:
        try:
            self._broker.check()
        except BrokerUnavailableError:
            self.let_go()
            raise
        if self._connection is None:
            raise BrokerUnavailableError("the connection is gone")


class MemorySender:
    """A sender to a ``MemoryBroker``."""

    def __init__(self, broker: MemoryBroker) -> None:
        self.where = "memory"
        self._broker = broker

    async def send(self, place: str, event: OutgoingEvent, timeout: float) -> None:
        """Keep an event, and perhaps deny it."""
        try:
            self._broker.check()
        except (BrokerUnavailableError, ConfigError) as fault:
            raise UnsentError(f"{fault} within {timeout} s") from fault
        if place in self._broker.missing:
            raise MissingPlaceError("there is no such place")
        if self._broker.room == 0 or place in self._broker.full:
            raise UnsentError("the queue is full")
        if self._broker.room is not None:
            self._broker.room -= 1
        self._broker.events.setdefault(place, []).append(event)
        if self._broker.rng.random() < self._broker.unconfirmed:
            raise DeliveryError("the confirmation did not arrive")

    async def close(self) -> None:
        """Do nothing."""


def relay_of(
    store: Store, broker: MemoryBroker, address: BrokerAddress, queue: str, *, most: int, rng: random.Random, clock: Clock | None = None,
    source: Callable[[], Source] | None = None, **options: Any,
) -> SourceRelay:  # fmt: skip
    """Return a relay from a broker, which nobody runs. ``options``: those of ``SourceMessages``."""
    return SourceRelay(
        store, lambda _: broker.source() if source is None else source(), SourceMessages(address, queue, rng, **options),
        SourceReport(store, address, queue, clock or SystemClock()), most=most, most_bytes=GIB, rng=rng,
    )  # fmt: skip
