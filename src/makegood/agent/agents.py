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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from msgspec.structs import replace

from makegood.actor.setbacks import Setbacks
from makegood.agent.attempt import Trying, gave_up
from makegood.agent.slots import Slots, excused, judge
from makegood.base import ids
from makegood.base.clock import Clock
from makegood.base.daemon_threads import DaemonThreads
from makegood.base.deadline_timer import Alarm
from makegood.base.ids import show
from makegood.base.sizes import MIB
from makegood.channels.protocol import Channel
from makegood.declare.call import Call, enter
from makegood.errors import StoreUnavailableError
from makegood.model.attempt import Running
from makegood.model.breaker import SHUT
from makegood.model.messages import Message, Request
from makegood.store.protocol import Alerts
from makegood.store.records import Identity, Offer, Taken
from makegood.store.views import AgentInfo
from makegood.telemetry.hooks import Answering

log = logging.getLogger("makegood.agent")

_PATIENCE = 1.0
"""Seconds, at least, that a function may run beyond its complete-by before that is logged: it may be about to return."""

_PATIENT = 0.05
"""The same as a share of its complete_within: a timeout of thirty seconds ends less sharply than one of two."""

_MOST_REPLIES, _MOST_BYTES = 1000, 4 * MIB
"""Replies, and their bytes, that are sent together."""

EXTEND_MOST = 10
"""``call.extend()`` may stretch an attempt to at most this many times its complete-by."""


@dataclass(slots=True)
class _Replies:
    waiting: list[tuple[int, int, Message]] = field(default_factory=list)
    ring: asyncio.Event = field(default_factory=asyncio.Event)


class Agents:
    """Runs the agents of one process.

    ``slots``: the agents by address. ``deliver``: offered each reply in time first; returns True when a Scheduler of this
    process takes it in memory. ``poll``: seconds between looks at the store behind the wake-ups, None = never.
    ``beside_scheduler``: a Scheduler runs in this process, so isolated requests are taken only when nothing else runs.
    ``changed``: told when a circuit opens, is released, or closes again. ``watched``: puts in the place of what runs attempts another that watches.
    ``alerts``: where it alerts of exceptions that nobody expected.
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
        watched: Callable[[Answering], Answering] | None = None,
        alerts: Alerts | None = None,
    ) -> None:
        self.node = 0
        self.slots = slots
        self.deliver: Callable[[int, Message, int], bool] = lambda _task, _message, _node: False
        self.changed: Callable[[], None] = lambda: None
        self._channel = channel
        self._identity = identity
        self._clock = clock
        self._rng = rng
        self._alerts = alerts
        self._poll = poll
        self._beside = beside_scheduler
        self._running: dict[Running, None] = {}  # in the order in which they began
        self._wake = asyncio.Event()
        self._replies = _Replies()
        self._draining = False
        self._alone = False
        self._taking = False
        self._alarm = Alarm(clock, self._halt)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._again: asyncio.TimerHandle | None = None
        self._excused: list[Running] = []
        self._threads = DaemonThreads(max(1, sum(s.size for s in slots.values())), "action")
        trying = Trying(clock, rng, self._threads, self._alarm.set)
        self._extending = self._extend  # one for all attempts
        self._trying: Answering = trying if watched is None else watched(trying)
        for each in slots.values():
            each.free = each.size

    # -- what a Scheduler of the same process uses ------------------------------------------------------------------

    def budget(self) -> dict[str, int]:
        """Set all free slots aside for a Scheduler's commit and return them; agents with a backlog in the store give none, nor those
        whose circuit is not closed or whose rate the store keeps.

        What is not used must come back through ``restore``: requests waiting in the store may be of higher priority.
        """
        if self._draining or self._alone:
            return {}
        given = {}
        for address, slots in self.slots.items():
            if lendable := slots.lendable:
                given[address] = lendable
                slots.free -= lendable
        return given

    def lend(self, address: str) -> bool:
        """Set one slot aside for a task that is being submitted, under the conditions of ``budget``; ``restore`` takes it back."""
        slots = self.slots.get(address)
        if slots is None or not slots.lendable or self._draining or self._alone:
            return False
        slots.free -= 1
        return True

    def restore(self, unused: Mapping[str, int]) -> None:
        """Take back slots that ``budget`` gave and the commit did not use."""
        for address, n in unused.items():
            self.slots[address].free += n
            self._freed(self.slots[address])

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
        self._loop = asyncio.get_running_loop()  # to ask for it costs a call of the system each time
        stops = [
            self._channel.subscribe(address, partial(self._rung, slots))
            for address, slots in self.slots.items()
        ]
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pull(), name="agents pull")
                group.create_task(self._answer(), name="agents answer")
        finally:
            for stop in stops:
                stop()
            self._alarm.stop()
            if self._again is not None:
                self._again.cancel()
            for attempt in list(self._running):
                if attempt.work is not None:
                    attempt.work.set_name(_named(attempt.request))
                    attempt.work.cancel()
            self._threads.shutdown(wait=False, cancel_futures=True)

    def renamed(self, node: int) -> None:
        """Go on as ``node``, and look at once: as a process declared dead it was given nothing, whatever there was."""
        self.node = node
        for slots in self.slots.values():
            self._rung(slots)

    async def drain(self, limit: float) -> None:
        """Take nothing more; wait up to ``limit`` seconds for what runs and for the replies to be accepted."""
        self._draining = True
        end = self._clock.monotonic() + limit
        while (self._running or self._replies.waiting or self._taking) and self._clock.monotonic() < end:  # noqa: ASYNC110 - a drain looks seldom, and once
            await asyncio.sleep(0.02)
        self._say_what_is_left(limit)

    def _say_what_is_left(self, limit: float) -> None:
        """Tell the operator what an orderly end did not wait for: nobody else here will ever speak of it."""
        for attempt in self._running:
            request = attempt.request
            about = {"task": show(request.task), "step": request.step, "attempt": request.attempt}
            log.warning(
                "step %s of task %s: still running after the drain's %g s, so nobody will hear its answer: "
                "it is in doubt once its complete-by has passed (setting `drain`)",
                request.step, about["task"], limit, extra=about,
            )  # fmt: skip
        if self._replies.waiting:
            log.warning(
                "%d answers could not be given to the store within the drain's %g s: their steps are in doubt once their "
                "complete-by has passed",
                len(self._replies.waiting), limit,
            )  # fmt: skip

    def infos(self) -> tuple[AgentInfo, ...]:
        """Return what this process publishes of its agents."""
        now = self._clock.monotonic()
        return tuple(slots.info(now) for slots in self.slots.values())

    # -- taking ----------------------------------------------------------------------------------------------------------

    def _rung(self, slots: Slots) -> None:
        slots.rung = True
        self._wake.set()

    def _freed(self, slots: Slots) -> None:
        """Look at the store again if something may wait there for this slot."""
        if slots.backlog or slots.rung:
            self._wake.set()

    async def _pull(self) -> None:
        pause, setbacks = 0.05, Setbacks("agents (taking)", self._alerts, self._rng)
        while True:
            self._wake.clear()
            took = False
            if (not self._draining and not self._alone) or self._excused:
                try:
                    if self._excused:
                        await self._excuse()
                    took = not self._draining and not self._alone and await self._take()
                    pause = 0.05
                    if setbacks.count:
                        await setbacks.over()
                except StoreUnavailableError as away:
                    log.warning("requests cannot be taken now: %s", away)
                    pause = min(pause * 2, 2.0)
                    await asyncio.sleep(pause * self._rng.uniform(0.5, 1.5))
                    continue
                except Exception as defect:  # noqa: BLE001 - a request must not end the others
                    await asyncio.sleep(await setbacks.met(defect))
                    continue
            if not took:
                await _wait(self._wake, self._poll, self._rng)

    async def _take(self) -> bool:
        offers = self._offers()
        self._look_when_due()
        if not offers:
            return False
        # Alone: nothing runs, and no slot is lent to the Scheduler for a commit under way.
        alone = self._beside and all(s.free == s.size for s in self.slots.values())
        aside = {offer.agent: self.slots[offer.agent].free for offer in offers}
        for offer in offers:
            self.slots[offer.agent].free = 0
            self.slots[offer.agent].rung = False
        node, began = self.node, self._clock.monotonic()
        taken = Taken()
        self._taking = True
        used: dict[str, int] = {}
        try:
            taken = await self._channel.take(node, offers, alone=alone)
            kept = await self._kept(node, self._ours(taken))
            for request in kept:
                address = ids.address(request.app, request.agent)
                used[address] = used.get(address, 0) + 1
            now = self._clock.monotonic()
            for offer in offers:
                self.slots[offer.agent].took(
                    offer, used.get(offer.agent, 0), taken.again.get(offer.agent), now
                )
        finally:
            self._taking = False
            for address, free in aside.items():
                self.slots[address].free += free - used.get(address, 0)
        for request in kept:
            if self._beside and request.isolate:
                self._alone = True
            self._begin(request, node, began)
        if not kept and taken.again:
            self._look_when_due()  # a rate lets nothing begin yet
        return bool(kept)

    def _offers(self) -> list[Offer]:
        """Return what may be taken now."""
        now = self._clock.monotonic()
        return [offer for slots in self.slots.values() if (offer := slots.offer(now)) is not None]

    def _look_when_due(self) -> None:
        """See to it that what time alone allows is offered when its time has come."""
        now = self._clock.monotonic()
        waits = [wait for slots in self.slots.values() if (wait := slots.waits(now))]
        if waits:
            if self._again is not None:
                self._again.cancel()
            self._again = asyncio.get_running_loop().call_later(min(waits), self._wake.set)

    def _ours(self, taken: Sequence[Request]) -> Sequence[Request]:
        """Return the requests that are for agents of this process; of others, which somebody's SQL has made, nobody hears."""
        ours = [r for r in taken if ids.address(r.app, r.agent) in self.slots]
        if len(ours) < len(taken):
            log.error("%d requests are not for the agent under which they lay", len(taken) - len(ours))
        return ours

    async def _kept(self, node: int, taken: Sequence[Request]) -> Sequence[Request]:
        """Give back what must not begin any more: this process was told to stop meanwhile, or a circuit has opened."""
        kept = [] if self._draining else [r for r in taken if not self._shut(ids.address(r.app, r.agent))]
        if len(kept) < len(taken):
            here = {id(request) for request in kept}
            given = [(r.task, r.idx, r.attempt) for r in taken if id(r) not in here]
            await self._channel.give_back(node, given)
        return kept

    def _shut(self, address: str) -> bool:
        circuit = self.slots[address].circuit
        return circuit is not None and circuit.remaining(self._clock.monotonic()) > 0

    # -- one attempt -----------------------------------------------------------------------------------------------------

    def _begin(self, request: Request, node: int, began: float) -> None:
        within = request.within
        deadline, last = began + within, began + within * EXTEND_MOST
        attempt = Running(request, node, deadline, last, began, self._extending)
        self._running[attempt] = None
        slots = self.slots[ids.address(request.app, request.agent)]
        slots.running += 1
        if slots.circuit is not None:
            now = self._clock.monotonic()
            attempt.ticket, attempt.since = slots.circuit.began(now), slots.failed_before(request, now)
            self._alarm.set(deadline)
        loop = self._loop or asyncio.get_running_loop()
        attempt.work = loop.create_task(self._attempt(attempt, slots, loop))

    async def _attempt(self, attempt: Running, slots: Slots, loop: asyncio.AbstractEventLoop) -> None:
        request = attempt.request
        message: Message | None = None
        try:
            if request.delay:
                await asyncio.sleep(request.delay)
                attempt.began = self._clock.monotonic()
            if self._clock.monotonic() >= attempt.deadline:  # the process stood still, or the store was away
                log.info("step %s of task %s is not begun any more", request.step, show(request.task))
                return
            action = slots.actions[request.action]
            identity = self._identity()
            enter(
                Call(
                    request,
                    identity.store_id,
                    identity.generation,
                    attempt,
                    self._clock,
                    loop,
                    action.decoded,
                )
            )
            message = await self._trying.answer(attempt, action)
        except asyncio.CancelledError:
            task = show(request.task)
            about = {"task": task, "step": request.step, "attempt": request.attempt}
            log.debug("step %s of task %s: halted at complete-by", request.step, task, extra=about)
        except Exception as defect:
            message = gave_up(request, defect)
            log.exception("this is a defect, please report it")
        finally:
            self._running.pop(attempt, None)
            attempt.work = None  # its context knows the call, which knows the attempt: no circle
            now = self._clock.monotonic()
            slots.ended(attempt, message, now)
            if (
                attempt.ticket is not None
                and not self._judged(slots, attempt, message)
                and message is not None
            ):
                message = replace(message, excused=True)
            if self._alone and not self._running:
                self._alone = False
            self._freed(slots)
        if message is not None:
            in_time = now <= attempt.deadline and attempt.node == self.node
            if not (in_time and self.deliver(request.task, message, attempt.node)):
                self.resend(attempt.node, request.task, message)

    def _halt(self) -> None:
        """Cancel the attempts whose complete-by has passed; a ``def`` action cannot be stopped and keeps its slot, which is told."""
        now = self._clock.monotonic()
        for attempt in list(self._running):
            if attempt.deadline > now:
                continue
            if attempt.ticket is not None:  # silence tells at once, also of a call that cannot be stopped
                self._judged(
                    self.slots[ids.address(attempt.request.app, attempt.request.agent)], attempt, None
                )
            if not attempt.patience:
                attempt.patience = max(_PATIENCE, _PATIENT * attempt.request.within)
                if attempt.halts and attempt.work is not None:
                    attempt.work.cancel()
            elif attempt.reached and not attempt.overdue and now >= attempt.deadline + attempt.patience:
                self._overdue(attempt, now)
        waiting = [a.deadline + a.patience for a in self._running if not a.overdue]
        if waiting:
            self._alarm.set(min(waiting))

    def _overdue(self, attempt: Running, now: float) -> None:
        """Tell, once, of a function that holds its slot although nobody will hear what it says: an operator sees nothing else of it."""
        request = attempt.request
        attempt.overdue = True
        self.slots[ids.address(request.app, request.agent)].overdue += 1
        about = {"task": show(request.task), "step": request.step, "attempt": request.attempt}
        log.warning(
            "%s still runs %.1f s after its complete-by%s: it keeps its slot until it returns; "
            "give what it waits for a timeout (mg.current_call().remaining())",
            _named(request), now - attempt.deadline,
            ", and has not heeded its cancellation" if attempt.halts else "", extra=about,
        )  # fmt: skip

    def _judged(self, slots: Slots, attempt: Running, message: Message | None) -> bool:
        """Tell the agent's circuit how a call ended; returns whether a failure counts for the step as well. Silence that does not is
        excused.
        """
        assert slots.circuit is not None
        before = slots.circuit.state
        counts = judge(slots, attempt, message, self._clock, self._rng)
        after = slots.circuit.state
        if not counts and (message is None or self._clock.monotonic() > attempt.deadline):
            self._excused.append(attempt)  # nobody will hear what it says: its silence is what may be counted
            self._wake.set()
        if before != "closed" or after != "closed":
            self._wake.set()  # there may be room now, or a moment to wait for
        if after == "open" and before != "open":
            self._excused += excused(slots, self._running)
            self.changed()
        if (before == "closed", before in SHUT) != (after == "closed", after in SHUT):
            log.warning(
                "the circuit of %s is %s", slots.address, slots.circuit.shown(self._clock.monotonic())
            )
            self.changed()
        return counts

    async def _excuse(self) -> None:
        """Say that the silence of calls under way when their circuit opened is not to be counted."""
        said, self._excused = self._excused, []
        try:
            await self._channel.excuse(
                self.node,
                [(a.request.task, a.request.idx, a.request.attempt) for a in said if a.node == self.node],
            )
        except StoreUnavailableError:
            self._excused = said + self._excused
            raise

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
        pause, setbacks = 0.05, Setbacks("agents (answering)", self._alerts, self._rng)
        alone = False
        while True:
            await self._replies.ring.wait()
            self._replies.ring.clear()
            while self._replies.waiting:
                batch = _batch(self._replies.waiting)
                node = batch[0][0]
                batch = batch[:1] if alone else [entry for entry in batch if entry[0] == node]
                try:
                    accepted = await self._channel.answer(
                        node, [(task, message) for _, task, message in batch]
                    )
                except StoreUnavailableError as away:
                    log.warning("%d replies wait for the store: %s", len(self._replies.waiting), away)
                    pause = min(pause * 2, 2.0)
                    await asyncio.sleep(pause * self._rng.uniform(0.5, 1.5))
                    continue
                except Exception as defect:
                    rest = await setbacks.met(defect)
                    if alone:  # its step is in doubt once its complete-by has passed
                        log.exception("a reply of task %s could not be given to the store", show(batch[0][1]))
                        self._replies.waiting.remove(batch[0])
                    alone = not alone
                    await asyncio.sleep(rest)
                    continue
                if setbacks.count:
                    alone = alone and bool(self._replies.waiting[1:])
                    await setbacks.over()
                pause = 0.05
                sent = {id(entry) for entry in batch}
                self._replies.waiting = [entry for entry in self._replies.waiting if id(entry) not in sent]
                if late := accepted.count(False):
                    log.info("%d of %d replies came too late and were refused", late, len(batch))


def _batch(waiting: Sequence[tuple[int, int, Message]]) -> Sequence[tuple[int, int, Message]]:
    """Return the replies of one node that are sent together: at least one."""
    node, found, size = waiting[0][0], list[tuple[int, int, Message]](), 0
    for entry in waiting[:_MOST_REPLIES]:
        size += len(entry[2].value or b"")
        if size > _MOST_BYTES and found:
            break
        if entry[0] == node:
            found.append(entry)
    return found


def _named(request: Request) -> str:
    """Return what an attempt does, for people."""
    address = ids.address(request.app, request.agent)
    return f"the {request.doing} of {address}.{request.action} for step {request.step} of task {show(request.task)}"


async def _wait(ring: asyncio.Event, most: float | None, rng: random.Random) -> None:
    if most is None:
        await ring.wait()
        return
    try:
        async with asyncio.timeout(most * rng.uniform(0.8, 1.2)):
            await ring.wait()
    except TimeoutError:
        return


def offers(slots: Iterable[Slots]) -> list[Offer]:
    """Return what a process with these agents can run when nothing runs: for ``makegood check`` and tests."""
    return [Offer(s.address, tuple(s.actions), s.size) for s in slots]
