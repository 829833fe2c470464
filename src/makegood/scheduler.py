"""The Scheduler: puts the steps of tasks in order and records their state. The only actor that advances a task.

(In the sense of the Scheduler-Agent-Supervisor pattern; it starts nothing at fixed times.) It never runs user code and
never imports any: the rules in ``saga`` decide over data alone.

One loop: take what has arrived (replies in memory, messages in the store, due timers, pending tasks), let the rules
decide it all, commit once, then dispatch. So "step n done" and "step n + 1 running" are one commit, claim and first
dispatch are one commit, and n sequential steps cost n + 1 commits, however many tasks share each. No timer delays a
lone task. A task has at most one uncommitted Decision; several messages for it are folded.

A Decision may be *lost*: the task's lock has moved (a Supervisor held this process for dead), or a request that its
reply was about has been judged. Then nothing of it is written, and the task is read again: what was committed first wins.
"""

import asyncio
import heapq
import logging
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from makegood import saga
from makegood.clock import Clock
from makegood.decision import Decision
from makegood.errors import MakegoodError, StoreUnavailableError
from makegood.ids import show
from makegood.messages import Alert, Message, Request
from makegood.store.protocol import Queues, Tasks
from makegood.store.records import Batch, Claim, Committed, Draft, Inbox, Loaded
from makegood.store.rows import address
from makegood.task import Held, Step, Task

log = logging.getLogger("makegood.scheduler")

_REPLIES = frozenset({"done", "permanent", "refused", "later", "gave_up", "happened", "not_happened"})
_AT_REST = frozenset({"processed", "undone", "error"})

_LAST_COMMITS = 5.0  # seconds that a drain may last beyond its limit, for giving back what is left

LOST_MOST = 3
"""A task that lost its Scheduler this often in a row may be what kills them."""


class LocalAgents(Protocol):
    """What a Scheduler needs of the agents in its own process, to hand requests over in memory."""

    def budget(self) -> dict[str, int]:
        """Set free slots aside, by agent address, for the length of a commit."""
        ...

    def restore(self, unused: Mapping[str, int]) -> None:
        """Take back slots that were set aside and not used."""
        ...

    def knows(self, address: str, action: str) -> bool:
        """Return whether this process runs that action."""
        ...

    def tasks(self) -> set[int]:
        """Return the tasks of which an attempt runs in this process."""
        ...

    def backlogged(self, address: str) -> None:
        """Note that a request for this agent went to the store."""
        ...

    def hand(self, request: Request, began: float) -> None:
        """Begin a request in a slot set aside."""
        ...

    def resend(self, node: int, task: int, message: Message) -> None:
        """Send through the store a reply that could not be used in memory."""
        ...


class _Store(Tasks, Queues, Protocol):
    def subscribe(self, topic: str, ring: Callable[[], None]) -> Callable[[], None]: ...


@dataclass(slots=True)
class _Turn:
    """One commit in the making. ``budget``: slots set aside and not yet used; ``placed``: requests that use one, with their agent."""

    batch: Batch
    budget: dict[str, int]
    began: float
    placed: dict[tuple[int, int, int], str] = field(default_factory=dict)
    dues: dict[int, dict[int, float]] = field(default_factory=dict)


class Scheduler:
    """Claims tasks, decides, commits, dispatches.

    ``agents``: those of the same process, if any, for handing over in memory. ``hold``: at most so many tasks in memory.
    ``claim``: at most so many claimed in one commit. ``poll``: seconds between looks at the store behind the wake-ups, None =
    never. ``ended``: told of each task that came to rest here.
    """

    def __init__(
        self,
        store: _Store,
        agents: LocalAgents | None,
        *,
        clock: Clock,
        rng: random.Random,
        hold: int = 10_000,
        claim: int = 500,
        poll: float | None = 1.0,
        ended: Callable[[Task], None] | None = None,
    ) -> None:
        self.node = 0
        self._store = store
        self._agents = agents
        self._clock = clock
        self._rng = rng
        self._hold = hold
        self._claim = claim
        self._poll = poll
        self._ended = ended or (lambda _task: None)
        self._held: dict[int, Held] = {}
        self._messages: dict[int, list[Message]] = {}
        self._timers: list[tuple[float, int, int]] = []
        self._due: dict[tuple[int, int], float] = {}
        self._wake = asyncio.Event()
        self._look_pending = True
        self._look_inbox = True
        self._claiming = True
        self._reload: set[int] = set()
        self._expected = 0
        self._committing = False

    # -- what others of the same process use -------------------------------------------------------------------------

    def deliver(self, task: int, message: Message, node: int) -> bool:
        """Take a reply in memory; False when this Scheduler does not hold the task (any more), so the store must carry it."""
        if task not in self._held or node != self.node:
            return False
        self._messages.setdefault(task, []).append(message)
        self._wake.set()
        return True

    def held(self) -> int:
        """Return the number of tasks in memory."""
        return len(self._held)

    def holds(self, task: int) -> bool:
        """Return whether this Scheduler holds a task, and so tells of its end."""
        return task in self._held

    def expects(self) -> int | None:
        """Return the node under which a task may be submitted that this Scheduler holds from the beginning; ``adopt`` must
        follow. None when it must wait to be claimed: the Scheduler is full or drains, or others may be waiting already.
        """
        if not self._claiming or self._look_pending or len(self._held) + self._expected >= self._hold:
            return None
        self._expected += 1
        return self.node

    def adopt(self, draft: Draft, *, created: bool) -> None:
        """Take a task that was submitted under ``expects``, once it is committed; ``created``: whether it was."""
        self._expected -= 1
        if (
            not created or draft.holder != self.node
        ):  # declared dead meanwhile: it is freed with all that the old node held
            return
        if draft.id not in self._held:  # a message for it may have come first, so that it was read
            task = Task(
                draft.id, draft.app, draft.workflow, draft.key, on_failure=draft.on_failure, priority=draft.priority, epoch=1,
                within=draft.within, undo_within=draft.undo_within, inputs=draft.inputs, returns=draft.returns, trace=draft.trace,
            )  # fmt: skip
            self._held[draft.id] = saga.hold(task, map(Step, draft.steps))
        self._messages.setdefault(draft.id, []).insert(0, Message("claim"))
        self._wake.set()

    def renamed(self, node: int) -> None:
        """Begin anew as ``node``: this process was declared dead, what it held belongs to others now."""
        if self.node:
            log.warning(
                "declared dead as node %d: letting go of %d tasks, going on as node %d",
                self.node,
                len(self._held),
                node,
            )
        self._resend(self._messages)
        self.node = node
        self._held.clear()
        self._messages.clear()
        self._timers.clear()
        self._due.clear()
        self._reload.clear()
        self._look_pending = self._look_inbox = True
        self._wake.set()

    # -- life ----------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Advance tasks until cancelled; call ``drain`` first for an orderly end."""
        stops = [
            self._store.subscribe("pending", self._ring_pending),
            self._store.subscribe("inbox", self._ring_inbox),
        ]
        pause = 0.05
        try:
            while True:
                try:
                    if not await self._turn():
                        await self._rest()
                    pause = 0.05
                except StoreUnavailableError as away:
                    log.warning("the store is away, %d tasks wait in memory: %s", len(self._held), away)
                    pause = min(pause * 2, 2.0)
                    await asyncio.sleep(pause * self._rng.uniform(0.5, 1.5))
                    self._look_pending = self._look_inbox = True
        finally:
            for stop in stops:
                stop()

    async def drain(self, limit: float) -> None:
        """Claim nothing more and give tasks back: at once those of which nothing runs in this process, the others when
        their attempt has been answered, or after ``limit`` seconds.
        """
        self._claiming = False
        end = self._clock.monotonic() + limit
        while self._more_to_give_back() and (now := self._clock.monotonic()) < end + _LAST_COMMITS:
            busy = self._agents.tasks() if self._agents is not None and now < end else frozenset()
            for task in self._held:
                if task not in busy and not self._messages.get(task):
                    self._messages[task] = [Message("dead")]
                    self._wake.set()
            await asyncio.sleep(0.02)

    def _more_to_give_back(self) -> bool:
        """Return whether there are tasks here, or may be once what is under way has been answered."""
        return bool(self._held) or self._committing or self._expected > 0

    def _ring_pending(self) -> None:
        self._look_pending = True
        self._wake.set()

    def _ring_inbox(self) -> None:
        self._look_inbox = True
        self._wake.set()

    async def _rest(self) -> None:
        """Wait for a wake-up, the next timer, or the slow poll."""
        if self._wake.is_set():
            return
        limits = [self._poll * self._rng.uniform(0.8, 1.2)] if self._poll is not None else []
        if self._timers:
            limits.append(max(0.0, self._timers[0][0] - self._clock.monotonic()))
        try:
            async with asyncio.timeout(min(limits) if limits else None):
                await self._wake.wait()
        except TimeoutError:
            if self._poll is not None:
                self._look_pending = self._look_inbox = True

    # -- one turn ----------------------------------------------------------------------------------------------------------

    async def _turn(self) -> bool:
        """Take, decide, commit, dispatch. Returns whether there was anything to do."""
        self._wake.clear()
        if self._reload:
            await self._read_again()
        at_rest: list[int] = []
        if self._look_inbox:
            self._look_inbox = False
            at_rest = self._merge(await self._store.inbox(self.node, 10_000))
        self._fire()
        claim = self._wanted(at_rest)
        taken, self._messages = self._messages, {}
        if not taken and claim is None:
            return False
        granted = self._agents.budget() if self._agents is not None else {}
        turn = _Turn(Batch(self.node, claim=claim), dict(granted), self._clock.monotonic())
        try:
            decided = [
                (held, self._decide(held, messages, turn))
                for task, messages in taken.items()
                if (held := self._held.get(task)) is not None
            ]
            turn.batch.decisions = [decision for _, decision in decided]
            if claim is not None:
                turn.batch.decide = lambda loaded: [self._first(each, turn) for each in loaded]
            self._committing = True
            committed = await self._store.commit(turn.batch)
        except StoreUnavailableError:
            if self._agents is not None:
                self._agents.restore(granted)
            for task, messages in taken.items():
                self._messages[task] = messages + self._messages.get(task, [])
            self._look_pending = True
            raise
        finally:
            self._committing = False
            turn.batch.decide = None  # it refers to the turn: both would wait for the garbage collector
        self._settle(decided, committed, turn)
        self._leave(taken, committed)
        if self._agents is not None:
            self._agents.restore(turn.budget)
        return True

    def _wanted(self, at_rest: Sequence[int]) -> Claim | None:
        if not self._claiming:
            return None
        room = min(self._claim, self._hold - len(self._held)) if self._look_pending else 0
        if room > 0:
            self._look_pending = False
        return Claim(max(0, room), tuple(at_rest)) if room > 0 or at_rest else None

    def _merge(self, inbox: Inbox) -> list[int]:
        for task, messages in inbox.messages.items():
            if task in self._held:
                known = {m.seq for m in self._messages.get(task, ())}
                self._messages.setdefault(task, []).extend(m for m in messages if m.seq not in known)
            else:  # the store says that it is ours, memory does not: read it
                self._reload.add(task)
        if self._reload:
            self._wake.set()
        return inbox.at_rest

    def _fire(self) -> None:
        now = self._clock.monotonic()
        while self._timers and self._timers[0][0] <= now:
            due, task, idx = heapq.heappop(self._timers)
            if self._due.get((task, idx)) != due:
                continue
            del self._due[task, idx]
            held = self._held.get(task)
            if held is not None and held.steps[idx].waiting:
                self._messages.setdefault(task, []).append(Message("retry", idx))

    # -- deciding ----------------------------------------------------------------------------------------------------------

    def _decide(self, held: Held, messages: Sequence[Message], turn: _Turn) -> Decision:
        try:
            decision = saga.decide(held, messages)
        except Exception as defect:  # noqa: BLE001 - one task's trouble must not stop the others
            decision = _guilty(held, messages, defect)
        if held.task.lost and decision.consumed:
            decision.task = saga.progressed(decision.task)
        if turn.budget:
            for request in decision.requests:
                self._place(request, turn)
        return decision

    def _place(self, request: Request, turn: _Turn) -> None:
        """Mark a request for handing over in memory if a slot was set aside for its agent."""
        where, row = address(request.app, request.agent), (request.task, request.idx, request.attempt)
        assert self._agents is not None
        if row in turn.placed:  # the store tried its transaction again
            return
        if (
            turn.budget.get(where, 0) > 0
            and not request.isolate
            and self._agents.knows(where, request.action)
        ):
            turn.budget[where] -= 1
            turn.placed[row] = where
            turn.batch.local.add(row)

    def _first(self, loaded: Loaded, turn: _Turn) -> tuple[Held, Decision]:
        """Decide what a claim leads to; runs inside the store's transaction, perhaps on its thread."""
        held, waiting = _restored(loaded)
        turn.dues[loaded.task.id] = loaded.due
        return held, self._decide(held, waiting, turn)

    async def _read_again(self) -> None:
        """Read tasks again whose Decision was lost; those that are no longer ours are let go."""
        wanted, self._reload = self._reload, set()
        try:
            found = await self._store.load(self.node, sorted(wanted))
        except StoreUnavailableError:
            self._reload |= wanted
            raise
        heard = {task: self._messages.pop(task, []) for task in wanted}
        for task in wanted:
            self._forget(task)
        for loaded in found:
            held, waiting = _restored(loaded)
            self._held[loaded.task.id] = held
            waiting += [m for m in heard.pop(loaded.task.id) if m.seq == 0 and m.kind in _REPLIES]
            if waiting:
                self._messages[loaded.task.id] = waiting
            self._arm(held.task.id, loaded.due)
        self._resend(heard)

    # -- after the commit --------------------------------------------------------------------------------------------------

    def _settle(self, decided: Sequence[tuple[Held, Decision]], committed: Committed, turn: _Turn) -> None:
        """Make memory what the store now is, and dispatch."""
        if committed.lost:
            log.info("%d decisions were overtaken; their tasks are read again", len(committed.lost))
            self._reload |= committed.lost
            self._wake.set()
        for task, reason in committed.guilty:
            log.error("task %s was put to error, the store refuses its data: %s", show(task), reason)
            self._forget(task)
        gone = committed.lost | {task for task, _ in committed.guilty}
        for held, decision in decided:
            if held.task.id not in gone:
                self._accept(held, decision, turn)
        for held, decision in committed.claimed:
            self._held[held.task.id] = held
            self._arm(held.task.id, turn.dues[held.task.id])
            self._accept(held, decision, turn)
        for task, idx, attempt in committed.withdrawn:
            known = self._held.get(task)
            if known is not None:
                message = Message("withdrawn", idx, known.steps[idx].doing or "do", attempt)
                self._messages.setdefault(task, []).append(message)
                self._wake.set()
        for where in turn.placed.values():  # placed by a Decision that was lost
            turn.budget[where] = turn.budget.get(where, 0) + 1
        if committed.more:
            self._ring_pending()

    def _leave(self, taken: Mapping[int, Sequence[Message]], committed: Committed) -> None:
        """Leave in the store the replies from memory whose Decision was lost: the task's next owner finds them there, or
        they are recorded as late.
        """
        self._resend({task: taken.get(task, ()) for task in committed.lost})

    def _resend(self, taken: Mapping[int, Sequence[Message]]) -> None:
        """Send replies from memory through the store."""
        if self._agents is None:
            return
        for task, messages in taken.items():
            for message in messages:
                if message.seq == 0 and message.kind in _REPLIES:
                    self._agents.resend(self.node, task, message)

    def _accept(self, held: Held, decision: Decision, turn: _Turn) -> None:
        saga.apply(held, decision)
        task = held.task
        if self._agents is not None:
            for request in decision.requests:
                where = turn.placed.pop((request.task, request.idx, request.attempt), None)
                if where is not None:
                    self._agents.hand(request, turn.began)
                else:
                    self._agents.backlogged(address(request.app, request.agent))
        if decision.timers:
            self._arm(task.id, decision.timers)
        if task.state in _AT_REST:
            self._ended(task)
        if decision.release:
            self._forget(task.id)

    def _arm(self, task: int, waits: Mapping[int, float]) -> None:
        now = self._clock.monotonic()
        for idx, wait in waits.items():
            self._due[task, idx] = now + wait
            heapq.heappush(self._timers, (now + wait, task, idx))

    def _forget(self, task: int) -> None:
        held = self._held.pop(task, None)
        self._messages.pop(task, None)
        for step in held.steps if held is not None else ():
            self._due.pop((task, step.idx), None)


def _restored(loaded: Loaded) -> tuple[Held, list[Message]]:
    """Return a task read from the store as it can be held, and the messages that wait for it, in the order to fold them."""
    held = saga.hold(loaded.task, loaded.steps)
    missed = saga.repair(held, loaded.messages)
    due = [Message("retry", idx) for idx, wait in loaded.due.items() if wait <= 0 and held.steps[idx].waiting]
    claim: list[Message] = []
    if loaded.task.state == "pending":
        claim.append(Message("claim"))
        if loaded.task.lost >= LOST_MOST:
            claim.append(Message("poison"))
    return held, claim + missed + loaded.messages + due


def _guilty(held: Held, messages: Sequence[Message], defect: Exception) -> Decision:
    """Put a task to error that the rules could not decide: a defect, or data that no longer reads."""
    log.error("task %s cannot be decided and goes to error", show(held.task.id), exc_info=defect)
    known = str(defect) if isinstance(defect, MakegoodError) else repr(defect)
    text = f"the rules could not decide: {known}"[:1000]
    return saga.put_to_error(held, messages, Alert("guilty", held.task.id, "", text))
