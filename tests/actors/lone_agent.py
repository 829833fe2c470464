"""An agent beside a Scheduler, on a channel by hand: what waits there, when it looked, what it answered."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from random import Random

from makegood.agent.agents import Agents
from makegood.agent.slots import Slots
from makegood.base.clock import Clock, SystemClock
from makegood.model.messages import Request, TaskMessage
from makegood.model.policy import Retry
from makegood.store.records import Identity, Offer, Taken
from makegood.workflow.app import App
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
        self.notes: list[str] = []
        self.wake: Callable[[], None] = lambda: None
        self.again: list[float] = []

    async def take(self, node: int, offers: Sequence[Offer], *, alone: bool = False) -> Taken:
        """Give what waits."""
        self.looks += 1
        if node != self.alive:
            return Taken()
        if self.again:
            return Taken(again={BANK: self.again.pop()})
        free = sum(offer.slots for offer in offers)
        batch, self.waiting = self.waiting[:free], self.waiting[free:]
        return Taken(batch)

    async def answer(self, node: int, replies: Sequence[tuple[int, TaskMessage]]) -> list[bool]:
        """Note who has answered."""
        self.answered += [task for task, _ in replies]
        return [True] * len(replies)

    async def note(self, notes: Sequence[tuple[int, TaskMessage]]) -> None:
        """Keep what is noted."""
        self.notes += [message.note.text for _, message in notes if message.note is not None]

    async def extend(self, node: int, task: int, idx: int, attempt: int, seconds: float) -> bool:
        """Nothing is extended here."""
        raise NotImplementedError

    async def turn(self, agent: str, rate: float, most: float) -> float | None:
        """No agent has a rate here."""
        raise NotImplementedError

    async def give_back(self, node: int, requests: Sequence[tuple[int, int, int]]) -> None:
        """Nothing is given back here."""
        raise NotImplementedError

    async def excuse(self, node: int, requests: Sequence[tuple[int, int, int]]) -> None:
        """Nothing is excused here."""
        raise NotImplementedError

    async def cancels(self, node: int) -> list[tuple[int, int, int]]:
        """Nothing is cancelled here."""
        return []

    def subscribe_to_cancels(self, node: int, wake: Callable[[], None]) -> Callable[[], None]:
        """Nothing is cancelled here."""
        return lambda: None

    def subscribe(self, agent: str, wake: Callable[[], None]) -> Callable[[], None]:
        """Keep the callback."""
        self.wake = wake
        return lambda: None


async def nothing() -> None:
    """Charge nothing."""


@asynccontextmanager
async def running(
    channel: Waiting,
    charge: Callable[[], object] = nothing,
    slots: int = 2,
    clock: Clock | None = None,
    retry: Retry | None = None,
) -> AsyncIterator[Agents]:
    """Run the agent whose one action is ``charge`` beside a Scheduler, without a poll; it has looked once."""
    app = App("shop")
    app.agent("bank").action(complete_within="1m", no_return=True, retry=retry, name="charge")(charge)
    agents = Agents(
        channel,
        {BANK: Slots(BANK, dict(app.agents["bank"].actions), slots)},
        lambda: Identity("0" * 16, 1),
        clock=clock or SystemClock(),
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
