"""When agents look into the store without a poll: whenever something that waits there may be for them now, and else not."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from random import Random

from makegood.agent import Agents
from makegood.clock import SystemClock
from makegood.messages import Message, Request
from makegood.slots import Slots
from makegood.store.records import Identity, Offer, Taken
from makegood.workflow import App
from tests.conformance.worlds import eventually

BANK = "shop/bank"


def request(task: int) -> Request:
    """Return a request for the agent of these tests."""
    return Request(task, 0, "do", 1, "shop", "bank", "charge", "charge", 1, 60.0, b"{}")


class Waiting:
    """A channel by hand: ``waiting`` in the store, the ``looks`` made there, the ``alive`` node that is given something."""

    def __init__(self) -> None:
        self.waiting: list[Request] = []
        self.looks = 0
        self.alive = 1
        self.answered: list[int] = []
        self.ring: Callable[[], None] = lambda: None
        self.again: list[float] = []

    async def take(self, node: int, offers: Sequence[Offer], *, alone: bool = False) -> Taken:
        """Give what waits."""
        self.looks += 1
        if node != self.alive:
            return Taken()
        if self.again:
            return Taken(again={BANK: self.again.pop()})
        free = sum(offer.slots for offer in offers)
        given, self.waiting = self.waiting[:free], self.waiting[free:]
        return Taken(given)

    async def answer(self, node: int, replies: Sequence[tuple[int, Message]]) -> list[bool]:
        """Note who has answered."""
        self.answered += [task for task, _ in replies]
        return [True] * len(replies)

    async def extend(self, node: int, task: int, idx: int, attempt: int, seconds: float) -> bool:
        """Nothing is extended here."""
        raise NotImplementedError

    async def give_back(self, node: int, requests: Sequence[tuple[int, int, int]]) -> None:
        """Nothing is given back here."""
        raise NotImplementedError

    async def excuse(self, node: int, requests: Sequence[tuple[int, int, int]]) -> None:
        """Nothing is excused here."""
        raise NotImplementedError

    def subscribe(self, agent: str, ring: Callable[[], None]) -> Callable[[], None]:
        """Keep the ring."""
        self.ring = ring
        return lambda: None


@asynccontextmanager
async def running(channel: Waiting) -> AsyncIterator[Agents]:
    """Run an agent with two slots beside a Scheduler, without a poll."""
    app = App("shop")
    bank = app.agent("bank")

    @bank.action(complete_within="1m", no_return=True)
    async def charge() -> None:
        pass

    agents = Agents(
        channel,
        {BANK: Slots(BANK, dict(app.agents["bank"].actions), 2)},
        lambda: Identity("0" * 16, 1),
        clock=SystemClock(),
        rng=Random(1),
        poll=None,
        beside_scheduler=True,
    )
    agents.node = 1
    life = asyncio.ensure_future(agents.run())
    try:
        await eventually(lambda: channel.looks > 0, "the first look")
        yield agents
    finally:
        life.cancel()
        await asyncio.gather(life, return_exceptions=True)


async def test_an_agent_that_was_declared_dead_looks_again_under_its_new_number() -> None:
    """What it was not given as a dead process, no ring tells it of."""
    channel = Waiting()
    async with running(channel) as agents:
        channel.alive, looks = 2, channel.looks
        channel.waiting = [request(7)]
        channel.ring()
        await eventually(lambda: channel.looks > looks, "a look as a dead process")
        agents.renamed(2)
        await eventually(lambda: channel.answered == [7], "the answer")


async def test_a_slot_that_a_commit_did_not_use_is_offered_to_what_was_rung_for_meanwhile() -> None:
    channel = Waiting()
    async with running(channel) as agents:
        lent = agents.budget()
        assert lent == {BANK: 2}
        channel.waiting = [request(7)]
        channel.ring()
        await eventually(
            lambda: not agents._wake.is_set(), "the ring to be heard"
        )  # it has heard, and has nothing to offer
        agents.restore(lent)
        await eventually(lambda: channel.answered == [7], "the answer")


async def test_a_rate_that_lets_nothing_begin_yet_is_asked_again_when_it_does() -> None:
    """Nothing was given, so nothing ends: without a timer of its own nobody would look again. Seed 17935 found it."""
    channel = Waiting()
    async with running(channel):
        channel.waiting, channel.again = [request(1)], [0.02]
        channel.ring()
        await eventually(lambda: channel.answered == [1], "the answer")
