"""Agents: each wraps one remote service and runs its actions, probes and undos.

One ``Agents`` object runs all the agents of a process. It has slots, and takes at most as many requests as it has free
ones: from the store (``_pull``), or handed over in memory by a Scheduler of the same process (``hand``). An attempt is
bounded by its complete-by, counted here on a clock that runs through suspend: transient errors are tried again within it
under the same key; at complete-by an ``async def`` action is cancelled and *nothing is said* (the Supervisor finds
silence); a ``def`` action cannot be stopped, so its slot stays taken until it returns, and what it then says is refused
by the store and kept in the history. A process that dies says nothing either.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from makegood.call import Call, enter
from makegood.channels.protocol import Channel
from makegood.clock import Clock
from makegood.declaration import Action
from makegood.errors import StoreUnavailableError
from makegood.ids import show
from makegood.messages import Message, Request
from makegood.store.records import AgentInfo, Identity, Offer
from makegood.threads import DaemonThreads
from makegood.trying import Running, Trying

log = logging.getLogger("makegood.agent")

EXTEND_MOST = 10
"""``call.extend()`` may stretch an attempt to at most this many times its complete-by."""


@dataclass(slots=True)
class Slots:
    """One agent of this process: its actions by every name they go or went by, its slots, and what it has seen."""

    address: str
    actions: Mapping[str, Action[..., Any]]
    size: int
    free: int = 0
    calls: int = 0
    failed: int = 0
    seconds: float = 0.0
    backlog: bool = False

    def info(self) -> AgentInfo:
        """Return what the process publishes of this agent."""
        mean = self.seconds / self.calls if self.calls else 0.0
        return AgentInfo(self.address, self.size, self.size - self.free, self.calls, self.failed, mean)


@dataclass(slots=True)
class _Replies:
    waiting: list[tuple[int, int, Message]] = field(default_factory=list)
    ring: asyncio.Event = field(default_factory=asyncio.Event)


class Agents:
    """Runs the agents of one process.

    ``slots``: the agents by address. ``deliver``: offered each reply in time first; returns True when a Scheduler of this
    process takes it in memory. ``poll``: seconds between looks at the store behind the wake-ups, None = never.
    ``beside_scheduler``: a Scheduler runs in this process, so isolated requests are taken only when nothing else runs.
    """

    def __init__(
        self,
        channel: Channel,
        slots: Mapping[str, Slots],
        identity: Callable[[], Identity],
        *,
        clock: Clock,
        rng: random.Random,
        poll: float | None = 1.0,
        beside_scheduler: bool = False,
    ) -> None:
        self.node = 0
        self.slots = slots
        self.deliver: Callable[[int, Message, int], bool] = lambda _task, _message, _node: False
        self._channel = channel
        self._identity = identity
        self._clock = clock
        self._rng = rng
        self._poll = poll
        self._beside = beside_scheduler
        self._running: dict[Running, None] = {}  # in the order in which they began
        self._wake = asyncio.Event()
        self._replies = _Replies()
        self._draining = False
        self._alone = False
        self._taking = False
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = 0.0
        self._threads = DaemonThreads(max(1, sum(s.size for s in slots.values())), "action")
        self._trying = Trying(clock, rng, self._threads, self._arm)
        for each in slots.values():
            each.free = each.size

    # -- what a Scheduler of the same process uses ------------------------------------------------------------------

    def budget(self) -> dict[str, int]:
        """Set all free slots aside for a Scheduler's commit and return them; agents with a backlog in the store give none.

        What is not used must come back through ``restore``: requests waiting in the store may be of higher priority.
        """
        if self._draining or self._alone:
            return {}
        given = {}
        for address, slots in self.slots.items():
            if slots.free > 0 and not slots.backlog:
                given[address] = slots.free
                slots.free = 0
        return given

    def restore(self, unused: Mapping[str, int]) -> None:
        """Take back slots that ``budget`` gave and the commit did not use."""
        for address, n in unused.items():
            self.slots[address].free += n

    def knows(self, address: str, action: str) -> bool:
        """Return whether this process runs that action."""
        slots = self.slots.get(address)
        return slots is not None and action in slots.actions

    def tasks(self) -> set[int]:
        """Return the tasks of which an attempt runs here."""
        return {attempt.request.task for attempt in self._running}

    def backlogged(self, address: str) -> None:
        """Note that a request for this agent went to the store: later ones queue behind it, until it is drained."""
        if (slots := self.slots.get(address)) is not None:
            slots.backlog = True

    def hand(self, request: Request, began: float) -> None:
        """Begin a request whose slot was set aside by ``budget``. ``began``: local clock before its row was written."""
        self._begin(request, self.node, began)

    def resend(self, node: int, task: int, message: Message) -> None:
        """Send through the store a reply that a Scheduler of this process could not use."""
        self._replies.waiting.append((node, task, message))
        self._replies.ring.set()

    # -- life ----------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Take requests and answer them until cancelled; call ``drain`` first for an orderly end."""
        stops = [self._channel.subscribe(address, self._wake.set) for address in self.slots]
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pull(), name="agents pull")
                group.create_task(self._answer(), name="agents answer")
        finally:
            for stop in stops:
                stop()
            if self._alarm is not None:
                self._alarm.cancel()
            for attempt in list(self._running):
                if attempt.work is not None:
                    attempt.work.cancel()
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def drain(self, limit: float) -> None:
        """Take nothing more; wait up to ``limit`` seconds for what runs and for the replies to be accepted."""
        self._draining = True
        end = self._clock.monotonic() + limit
        while (self._running or self._replies.waiting or self._taking) and self._clock.monotonic() < end:  # noqa: ASYNC110 - a drain looks seldom, and once
            await asyncio.sleep(0.02)

    def infos(self) -> tuple[AgentInfo, ...]:
        """Return what this process publishes of its agents."""
        return tuple(slots.info() for slots in self.slots.values())

    # -- taking ----------------------------------------------------------------------------------------------------------

    async def _pull(self) -> None:
        pause = 0.05
        while True:
            self._wake.clear()
            took = False
            if not self._draining and not self._alone:
                try:
                    took = await self._take()
                    pause = 0.05
                except StoreUnavailableError as away:
                    log.warning("requests cannot be taken now: %s", away)
                    pause = min(pause * 2, 2.0)
                    await asyncio.sleep(pause * self._rng.uniform(0.5, 1.5))
                    continue
            if not took:
                await _wait(self._wake, self._poll, self._rng)

    async def _take(self) -> bool:
        offers = [Offer(s.address, tuple(s.actions), s.free) for s in self.slots.values() if s.free > 0]
        if not offers:
            return False
        # Alone: nothing runs, and no slot is lent to the Scheduler for a commit under way.
        alone = self._beside and all(s.free == s.size for s in self.slots.values())
        for offer in offers:
            self.slots[offer.agent].free = 0
        node, began = self.node, self._clock.monotonic()
        taken: list[Request] = []
        self._taking = True
        try:
            taken = await self._channel.take(node, offers, alone=alone)
            if self._draining and taken:  # told to stop meanwhile: others shall have them at once
                given, taken = taken, []
                await self._channel.give_back(node, [(r.task, r.idx, r.attempt) for r in given])
        finally:
            self._taking = False
            used: dict[str, int] = {}
            for request in taken:
                address = f"{request.app}/{request.agent}"
                used[address] = used.get(address, 0) + 1
            for offer in offers:
                slots = self.slots[offer.agent]
                slots.free += offer.slots - used.get(offer.agent, 0)
                slots.backlog = used.get(offer.agent, 0) >= offer.slots
        for request in taken:
            if self._beside and request.isolate:
                self._alone = True
            self._begin(request, node, began)
        return bool(taken)

    # -- one attempt -----------------------------------------------------------------------------------------------------

    def _begin(self, request: Request, node: int, began: float) -> None:
        within = request.within
        attempt = Running(request, node, began + within, began + within * EXTEND_MOST, began, self._extend)
        self._running[attempt] = None
        loop = asyncio.get_running_loop()
        attempt.work = loop.create_task(self._attempt(attempt, loop))

    async def _attempt(self, attempt: Running, loop: asyncio.AbstractEventLoop) -> None:
        request = attempt.request
        slots = self.slots[f"{request.app}/{request.agent}"]
        message: Message | None = None
        try:
            action = slots.actions[request.action]
            identity = self._identity()
            enter(
                Call(
                    request,
                    identity.store_id,
                    identity.generation,
                    attempt,
                    self._clock,
                    loop=loop,
                    decoded=action.decoded,
                )
            )
            message = await self._trying.answer(attempt, action)
        except asyncio.CancelledError:
            log.debug("step %s of task %s: halted at complete-by", request.step, show(request.task))
        finally:
            self._running.pop(attempt, None)
            attempt.work = (
                None  # its context knows the call, which knows the attempt: no circle for the collector
            )
            slots.free += 1
            slots.calls += 1
            slots.seconds += self._clock.monotonic() - attempt.began
            if message is None or message.kind == "gave_up":
                slots.failed += 1
            if self._alone and not self._running:
                self._alone = False
            if slots.backlog:
                self._wake.set()
        if message is not None:
            self._reply(attempt, message)

    def _reply(self, attempt: Running, message: Message) -> None:
        in_time = self._clock.monotonic() <= attempt.deadline and attempt.node == self.node
        if in_time and self.deliver(attempt.request.task, message, attempt.node):
            return
        self.resend(attempt.node, attempt.request.task, message)

    def _arm(self, deadline: float) -> None:
        """See to it that ``_halt`` runs at the earliest deadline: one timer for all attempts, as most end long before theirs."""
        if self._alarm is None or deadline < self._alarm_at:
            if self._alarm is not None:
                self._alarm.cancel()
            self._alarm_at = deadline
            left = max(0.0, deadline - self._clock.monotonic())
            self._alarm = asyncio.get_running_loop().call_later(left, self._halt)

    def _halt(self) -> None:
        """Cancel the attempts whose complete-by has passed; a ``def`` action cannot be stopped and keeps its slot."""
        self._alarm = None
        now = self._clock.monotonic()
        for attempt in list(self._running):
            if attempt.halts and attempt.deadline <= now:
                attempt.halts = False
                if attempt.work is not None:
                    attempt.work.cancel()
        waiting = [attempt.deadline for attempt in self._running if attempt.halts]
        if waiting:
            self._arm(min(waiting))

    async def _extend(self, attempt: Running, more: float) -> bool:
        request = attempt.request
        wanted = min(self._clock.monotonic() + more, attempt.last)
        left = wanted - self._clock.monotonic()
        if left <= 0 or not await self._channel.extend(
            attempt.node, request.task, request.idx, request.attempt, left
        ):
            return False
        attempt.deadline = max(attempt.deadline, wanted)
        return True

    # -- answering -------------------------------------------------------------------------------------------------------

    async def _answer(self) -> None:
        """Send replies in batches; one that the store cannot take now is kept until it is accepted or late."""
        pause = 0.05
        while True:
            await self._replies.ring.wait()
            self._replies.ring.clear()
            while self._replies.waiting:
                batch = self._replies.waiting[:1000]
                node = batch[0][0]
                batch = [entry for entry in batch if entry[0] == node]
                try:
                    accepted = await self._channel.answer(
                        node, [(task, message) for _, task, message in batch]
                    )
                except StoreUnavailableError as away:
                    log.warning("%d replies wait for the store: %s", len(self._replies.waiting), away)
                    pause = min(pause * 2, 2.0)
                    await asyncio.sleep(pause * self._rng.uniform(0.5, 1.5))
                    continue
                pause = 0.05
                sent = {id(entry) for entry in batch}
                self._replies.waiting = [entry for entry in self._replies.waiting if id(entry) not in sent]
                if late := accepted.count(False):
                    log.info("%d of %d replies came too late and were refused", late, len(batch))


async def _wait(ring: asyncio.Event, most: float | None, rng: random.Random) -> None:
    if most is None:
        await ring.wait()
        return
    try:
        async with asyncio.timeout(most * rng.uniform(0.8, 1.2)):
            await ring.wait()
    except TimeoutError:
        return


def offers(slots: Sequence[Slots]) -> list[Offer]:
    """Return what a process with these agents can run when nothing runs: for ``makegood check`` and tests."""
    return [Offer(s.address, tuple(s.actions), s.size) for s in slots]
