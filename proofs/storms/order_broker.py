"""A broker in some storms, from which orders come: relays take them, and it does its worst.

Its connections break, its acknowledgements get lost, it delivers twice and out of order, and it is away for a
while. The relays are killed and stopped around their commit like every other process.
"""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from makegood.brokers import BrokerAddress, Delivery
from makegood.errors import BrokerUnavailableError
from makegood.store import Store
from proofs.memory_broker import MemoryBroker, MemorySource, relay_of
from proofs.storms.members import StormHome, StormMember
from proofs.storms.surroundings import ORDERS, Around

ADDRESS: Final = BrokerAddress("amqp", "main", "orders")

TAKING: Final = ("kill", "stop", "connection lost", "broker away", "delivered twice", "out of order")
SETTLING: Final = ("kill", "stop", "connection lost", "acknowledgement lost")
BROKERING: Final = tuple(sorted({*TAKING, *SETTLING} - {"kill", "stop"}))
"""What the broker does by itself."""

_LIMIT: Final = 3
"""Messages that may wait in the queue: so it is full now and then."""


def around(seed: int) -> Around:
    """Draw surroundings with a broker for a seed."""
    rng = random.Random(f"{seed} broker")
    surroundings = Around(
        told=0.5, consumers=1, sent=1.0, brokered=rng.uniform(0.5, 1.0), inboxes=rng.choice((1, 2)), relays=rng.choice((1, 2)),
        faults={"handler fails": 0.1, "sent twice": 0.3, **{kind: rng.choice((0.05, 0.2)) for kind in BROKERING}},
    )  # fmt: skip
    # In half of the storms notices go to the broker, too: of the orders that do not come from it.
    return surroundings if rng.random() < 0.5 else replace(surroundings, told=1.0, sent=0.5, posted=1.0)


class StormBroker(MemoryBroker):
    """The broker of a storm."""

    def __init__(self, seed: int) -> None:
        super().__init__(rng=random.Random(f"{seed} deliveries"))

    async def leave(self, seconds: float) -> None:
        """Be away for a while; every connection breaks."""
        self.away = True
        self.break_connections()
        await asyncio.sleep(seconds)
        self.away = False


class _StormSource(MemorySource):
    """What a relay of a storm reads from."""

    def __init__(self, world: StormHome, broker: StormBroker) -> None:
        super().__init__(broker)
        self._world = world
        self._storm = broker

    async def take(self, limit: int, wait: float) -> Sequence[Delivery]:
        """Take at most a few, so that a relay commits often."""
        trouble = await self._world.point("take from the broker", *TAKING)
        self._break(trouble)
        deliveries = list(await super().take(min(limit, 4), wait))
        if trouble == "delivered twice":
            deliveries += deliveries
        elif trouble == "out of order":
            deliveries.reverse()
        return deliveries

    async def acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        """Acknowledge them, if that arrives."""
        trouble = await self._world.point("between commit and acknowledgement", *SETTLING)
        self._break(trouble)
        if trouble != "acknowledgement lost":
            await super().acknowledge(deliveries)
            await self._world.point("after the acknowledgement", "kill", "stop")

    def _break(self, trouble: str | None) -> None:
        if trouble == "broker away":
            self._world.loop.create_task(self._storm.leave(self._storm.rng.uniform(0.5, 3.0)))
        if trouble in ("connection lost", "broker away"):
            self.let_go()
            raise BrokerUnavailableError(f"the {trouble}")


@dataclass(slots=True, eq=False)
class RelayMember(StormMember):
    """A process that relays orders from the broker."""

    sources: list[MemorySource] = field(default_factory=list)

    def bury(self) -> None:
        """Let the broker notice that its connections are gone, too."""
        for source in self.sources:
            source.let_go()
        self.sources.clear()
        StormMember.bury(self)  # super() does not know a class with slots

    async def _serve(self, store: Store, rng: random.Random) -> None:
        world: Any = self.world

        def source() -> MemorySource:
            self.sources.append(_StormSource(world, world.broker))
            return self.sources[-1]

        relay = relay_of(
            store, world.broker, ADDRESS, ORDERS, most=_LIMIT, rng=rng, clock=self.clock, source=source
        )
        await relay.run()
