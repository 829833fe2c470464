"""No call begins after its complete-by: the store may have been away while a request was taken, or the process stood still."""

import asyncio
from collections.abc import Sequence
from random import Random

from msgspec.structs import replace

from makegood.agent import Agents
from makegood.clock import SystemClock
from makegood.slots import Slots
from makegood.store.records import Identity, Offer, Taken
from makegood.workflow import App
from tests.actors.test_agent_looks import BANK, Waiting, request
from tests.conformance.worlds import eventually


class Jumping(SystemClock):
    """A clock that goes on by itself, and may jump ahead."""

    ahead = 0.0

    def monotonic(self) -> float:
        """Return seconds."""
        return super().monotonic() + self.ahead


class Slow(Waiting):
    """A channel whose gifts with little time take longer than that."""

    def __init__(self, clock: Jumping) -> None:
        super().__init__()
        self.clock = clock

    async def take(self, node: int, offers: Sequence[Offer], *, alone: bool = False) -> Taken:
        """Give what waits, after a while."""
        self.clock.ahead += max(
            (waiting.within for waiting in self.waiting if waiting.within < 1.0), default=0
        )
        return await super().take(node, offers, alone=alone)


async def test_what_was_taken_too_long_ago_is_not_begun_and_its_slot_is_free_again() -> None:
    """A ``def`` action could not be stopped any more, and an undo may have begun meanwhile."""
    app, called = App("shop"), list[int]()
    bank = app.agent("bank")

    @bank.action(complete_within="1m", no_return=True)
    def charge() -> None:
        called.append(1)

    slots = Slots(BANK, dict(app.agents["bank"].actions), 1)
    clock = Jumping()
    channel = Slow(clock)
    agents = Agents(
        channel,
        {BANK: slots},
        lambda: Identity("0" * 16, 1),
        clock=clock,
        rng=Random(1),
        poll=None,
        beside_scheduler=True,
    )
    agents.node = 1
    life = asyncio.ensure_future(agents.run())
    try:
        await eventually(lambda: channel.looks == 1, "the first look")
        channel.waiting = [replace(request(1), within=0.05)]
        channel.ring()
        await eventually(lambda: channel.looks > 1 and slots.calls == 1, "the late one")
        assert (called, slots.free, slots.running) == ([], 1, 0)
        channel.waiting = [request(2)]
        channel.ring()
        await eventually(lambda: channel.answered == [2], "the answer")
        assert called == [1]
    finally:
        life.cancel()
        await asyncio.gather(life, return_exceptions=True)
