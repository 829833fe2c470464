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
from typing import Protocol

from makegood import saga
from makegood.actor.setbacks import ENDING, Setbacks
from makegood.base.clock import Clock
from makegood.base.ids import address, show
from makegood.base.sizes import MIB, shown
from makegood.base.text import words
from makegood.errors import StoreUnavailableError
from makegood.model.decision import Decision
from makegood.model.messages import Message
from makegood.model.shape import Held
from makegood.scheduler.eager_submission import Births, Lender, give_back
from makegood.scheduler.review import Review
from makegood.scheduler.task_memory import SMALL, Weights, weigh, weigh_added
from makegood.scheduler.turn import Doubts, Turn, guilty, restored
from makegood.store.protocol import Alerts, Queues, Tasks
from makegood.store.records import Batch, Claim, Committed, Draft, Loaded
from makegood.telemetry.hooks import Watch

log = logging.getLogger("makegood.scheduler")

_REPLIES = frozenset({"done", "permanent", "refused", "later", "gave_up", "happened", "not_happened"})
_AT_REST = frozenset({"processed", "undone", "error"})

_MOST_ABREAST = 4  # turns

_IN_VAIN = 8
"""Turns in a row that may fail, each after a longer rest: then the process ends, so that others get what it holds."""

_LAST_COMMITS = 5.0  # seconds that a drain may last beyond its limit, for giving back what is left


class LocalAgents(Lender, Protocol):
    """What a Scheduler needs of the agents in its own process, to hand requests over in memory."""

    def budget(self) -> dict[str, int]:
        """Set free slots aside, by agent address, for the length of a commit."""
        ...

    def tasks(self) -> set[int]:
        """Return the tasks of which an attempt runs in this process."""
        ...

    def resend(self, node: int, task: int, message: Message) -> None:
        """Send through the store a reply that could not be used in memory."""
        ...


class _Store(Tasks, Queues, Alerts, Protocol):
    abreast: int | None

    def subscribe(self, topic: str, ring: Callable[[], None]) -> Callable[[], None]: ...


class Scheduler:
    """Claims tasks, decides, commits, dispatches.

    ``agents``: those of the same process, if any, for handing over in memory. ``hold``: at most so many tasks in memory.
    ``memory``: bytes of tasks in memory from which on nothing more is claimed; what is held may be more by one task, and by what the
    replies to it bring. ``claim``: at most so many claimed in one commit. ``poll``: seconds between looks at the store behind the wake-ups, None =
    never. ``defect``: told of each exception that nobody expected; the Scheduler goes on. ``ended``: told of each task that came to rest
    here. ``watch``: told of each commit.
    """

    def __init__(
        self,
        store: _Store,
        agents: LocalAgents | None,
        *,
        clock: Clock,
        rng: random.Random,
        hold: int = 10_000,
        memory: int = 256 * MIB,
        claim: int = 500,
        poll: float | None = 1.0,
        ended: Callable[[Held], None] | None = None,
        watch: Watch | None = None,
    ) -> None:
        self.node = 0
        self._store = store
        self._agents = agents
        self._clock = clock
        self._rng = rng
        self._hold = hold
        self._claim = claim
        self._abreast = store.abreast
        self._poll = poll
        self._ended = ended or (lambda _held: None)
        self._watch = watch
        self._held: dict[int, Held] = {}
        self._weights = Weights(memory)
        self._full = False
        self._called: set[int] = set()
        self._messages: dict[int, list[Message]] = {}
        self._timers: list[tuple[float, int, int]] = []
        self._due: dict[tuple[int, int], float] = {}
        self._wake = asyncio.Event()
        self._look_pending = True
        self._look_inbox = True
        self._claiming = True
        self._reload: set[int] = set()
        self._review = Review(clock.monotonic())
        self._births = Births(agents, clock)
        self._shapes = saga.Shapes()
        self._committing = 0
        self._under_way: dict[asyncio.Task[None], dict[int, list[Message]]] = {}
        self._at_rest: list[int] = []
        self.defect: Callable[[Exception], None] = lambda _fault: None
        self._doubts = Doubts()
        self._setbacks = Setbacks("scheduler", store, rng, most=_IN_VAIN)

    # -- what others of the same process use -------------------------------------------------------------------------

    def deliver(self, task: int, message: Message, node: int) -> bool:
        """Take a reply in memory; False when this Scheduler does not hold the task (any more), so the store must carry it."""
        if task not in self._held or node != self.node:
            return False
        value = message.value
        if value is not None and len(value) > SMALL:
            self._weights.grow(task, len(value))
        self._messages.setdefault(task, []).append(message)
        self._wake.set()
        return True

    def held(self) -> int:
        """Return the number of tasks in memory."""
        return len(self._held)

    def weight(self) -> int:
        """Return the bytes that the tasks in memory count, as ``weights`` says."""
        return self._weights.total

    def holds(self, task: int) -> bool:
        """Return whether this Scheduler holds a task, and so tells of its end."""
        return task in self._held

    def expect(self, draft: Draft) -> Draft | None:
        """Return a draft as it may be submitted for this Scheduler to hold from the beginning; ``adopt`` must follow.

        None when it must wait to be claimed: the Scheduler is full or drains, or others may be waiting already.
        """
        if (
            not self._claiming
            or self._look_pending
            or len(self._held) + len(self._births) >= self._hold
            or self._weights.total >= self._weights.most
        ):
            return None
        expected = self._births.expect(draft, self.node)
        self._weights.put(draft.id, weigh(self._births.held(draft.id)))
        return expected

    def adopt(self, draft: Draft, *, created: bool) -> None:
        """Take a task that was submitted as ``expect`` said, once it is committed; ``created``: whether it was."""
        held = self._births.born(draft, created=created)
        if held is None or draft.holder != self.node:
            self._weights.drop(draft.id)
        if held is None:
            return
        if draft.holder != self.node:  # declared dead meanwhile: it is freed with all that the old node held
            self._births.lose(draft)
            return
        self._held.setdefault(draft.id, held)  # a message for it may have come first, so that it was read
        self._births.dispatch(draft)
        if draft.first is None:
            self._messages.setdefault(draft.id, []).insert(0, Message("claim"))
            self._wake.set()

    def renamed(self, node: int) -> None:
        """Begin anew as ``node``: this process was declared dead, what it held belongs to others now."""
        if self.node:
            log.warning(
                "declared dead as node %d: letting go of %d tasks, going on as node %d", self.node, len(self._held), node,
            )  # fmt: skip
        self._resend(self._messages)
        self.node = node
        for task in self._held:
            self._weights.drop(task)
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
                    if self._setbacks.count and self._doubts.fine:
                        await self._setbacks.over()
                except StoreUnavailableError as away:
                    log.warning("the store is away, %d tasks wait in memory: %s", len(self._held), away)
                    pause = min(pause * 2, 2.0)
                    await asyncio.sleep(pause * self._rng.uniform(0.5, 1.5))
                    self._look_pending = self._look_inbox = True
                except Exception as defect:  # noqa: BLE001 - of one row, or of all: see ``Doubts``
                    self.defect(defect)
                    await asyncio.sleep(await self._setbacks.met(defect))
                    self._look_pending = self._look_inbox = True
        finally:
            for stop in stops:
                stop()
            for turn in self._under_way:
                turn.cancel()
            await asyncio.gather(*self._under_way, return_exceptions=True)
            self._under_way.clear()

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
        return bool(self._held) or self._committing > 0 or len(self._births) > 0

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
        if self._doubts.unfit:
            await self._put_to_error()
        if self._poll is not None:
            self._reload.update(self._review.some(self._held, self._messages, self._clock.monotonic()))
        for turn in [turn for turn in self._under_way if turn.done()]:
            del self._under_way[turn]
            turn.result()
        if self._look_inbox and len(self._under_way) < _MOST_ABREAST:
            await self._read_inbox()
        if self._under_way and not await self._may_begin():
            return True
        if self._reload:
            await self._read_again()
        self._fire()
        apart = bool(self._doubts)  # and nothing is under way then
        claim = None if apart else self._wanted()
        alone = claim is not None and self._doubts.most is not None
        taken = {} if alone else self._take(plain=claim is None)
        if not taken and claim is None:
            return apart
        working = self._carry_out(taken, claim)
        if self._abreast is not None and claim is None and not apart and len(taken) >= self._abreast:
            self._under_way[asyncio.get_running_loop().create_task(working)] = taken
        else:
            await working
        return True

    async def _may_begin(self) -> bool:
        """Return whether a turn may begin now; waits a moment when it may not, as others are under way.

        Some may be at work abreast, each on tasks of its own, so that one is decided while the store writes others. What reads tasks
        from the store or claims is done when nothing is under way: else it would find what is just being changed.
        """
        due = bool(self._timers) and self._timers[0][0] <= self._clock.monotonic()
        most = len(self._under_way) >= _MOST_ABREAST
        if not (due or self._reload or self._at_rest or self._look_pending or most or self._doubts):
            busy = sum(len(self._messages.keys() & turn.keys()) for turn in self._under_way.values())
            if self._abreast is not None and len(self._messages) - busy >= self._abreast:
                return True
        await self._wake.wait()
        return False

    def _take(self, *, plain: bool) -> dict[int, list[Message]]:
        """Take what is to be decided now: everything, of much or of large tasks a part, and never what is under way."""
        if self._doubts:
            return {task: self._messages.pop(task) for task in self._doubts.next() if task in self._messages}
        taken, self._messages = self._messages, {}
        for busy in self._under_way.values():
            self._messages |= {task: taken.pop(task) for task in [*taken] if task in busy}
        if plain and self._abreast is not None and len(taken) >= 3 * self._abreast:
            self._messages |= {task: taken.pop(task) for task in [*taken][2 * self._abreast :]}
            self._wake.set()
        portion = len(self._weights.portioned(tasks := [*taken]))
        if portion < len(tasks):
            self._messages |= {task: taken.pop(task) for task in tasks[portion:]}
            self._wake.set()
        return taken

    async def _carry_out(self, taken: dict[int, list[Message]], claim: Claim | None) -> None:
        """Decide, commit, dispatch."""
        granted = self._agents.budget() if self._agents is not None else {}
        turn = Turn(Batch(self.node, claim=claim), granted, self._clock.monotonic())
        self._committing += 1
        try:
            decided = self._decided(taken, turn)
            if claim is not None:
                turn.batch.decide = lambda loaded: self._firsts(loaded, turn)
            elif self._agents is not None:  # what is left may be wanted by tasks that are submitted meanwhile
                self._agents.restore(turn.budget)
                turn.budget = {}
            committed = await self._store.commit(turn.batch)
        except Exception as fault:
            self._give_back_slots(turn)
            for decision in turn.batch.decisions:
                give_back(self._agents, turn.placed(decision))
            for task, messages in taken.items():
                self._messages[task] = messages + self._messages.get(task, [])
            self._look_pending = True
            if not isinstance(fault, (StoreUnavailableError, *ENDING)):
                self._look_inbox = True
                self.defect(fault)
                log.exception("a turn of %d tasks has failed; they are tried in parts", len(taken))
                if taken:
                    self._doubts.met(list(taken), fault, apart=claim is None)
                if claim is not None:
                    self._doubts.claimed_badly(turn.loaded, fault)
                return
            raise
        finally:
            self._committing -= 1
            self._wake.set()
            turn.batch.decide = None  # it refers to the turn: both would wait for the garbage collector
        self._doubts.well(claimed=claim is not None, most=self._claim)
        if self._watch is not None:
            self._watch.decided(taken | turn.heard, decided, committed)
        self._settle(decided, committed, turn)
        self._resend({task: taken.get(task, ()) for task in committed.lost})
        self._give_back_slots(turn)

    def _wanted(self) -> Claim | None:
        """Return what to claim now: no more than there is room for, as far as one can know before it is read."""
        if not self._claiming:
            self._at_rest = []
            return None
        room = self._weights.room
        self._tell_full(full=room == 0)
        if room == 0 and not (self._at_rest and self._heeds_operators()):
            return None
        at_rest, self._at_rest = self._at_rest, []
        most = self._claim
        if self._doubts.most is not None:
            most = self._doubts.most
            if at_rest:
                at_rest, self._at_rest, most = at_rest[:1], at_rest[1:], 0
        limit = min(most, self._hold - len(self._held), room // self._weights.mean + 1) if room else 0
        if limit <= 0 or not self._look_pending:
            return Claim(0, tuple(at_rest), room) if at_rest else None
        self._look_pending = False
        return Claim(limit, tuple(at_rest), room)

    def _heeds_operators(self) -> bool:
        """Return whether, though there is no room, tasks at rest may come of which an operator wants something: they have a limit of
        their own, as large.
        """
        self._called &= self._held.keys()
        return sum(map(self._weights.of, self._called)) < self._weights.most

    def _tell_full(self, *, full: bool) -> None:
        """Log, once, that what is held leaves no room for more."""
        if full and not self._full:
            log.info(
                "holding %d tasks of %s: nothing more is claimed until some of them end (max_task_memory is %s)",
                len(self._held), shown(self._weights.total), shown(self._weights.most),
            )  # fmt: skip
        self._full = full

    async def _read_inbox(self) -> None:
        """Read what has come, also while turns are under way: what they have taken is there until they are committed."""
        self._look_inbox = False
        taken = {m.seq for turn in self._under_way.values() for messages in turn.values() for m in messages}
        inbox = await self._store.inbox(self.node, 10_000, self._weights.portion)
        for task, messages in inbox.messages.items():
            fresh = [m for m in messages if m.seq not in taken]
            if task in self._held:
                known = {m.seq for m in self._messages.get(task, ())}
                if fresh := [m for m in fresh if m.seq not in known]:
                    self._messages.setdefault(task, []).extend(fresh)
                    self._weights.grow(task, sum([len(m.value) for m in fresh if m.value is not None]))
            elif fresh:  # the store says that it is ours, memory does not: read it
                self._reload.add(task)
        self._at_rest = inbox.at_rest
        self._look_inbox = self._look_inbox or inbox.more

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

    def _decided(self, taken: Mapping[int, Sequence[Message]], turn: Turn) -> list[tuple[Held, Decision]]:
        """Decide on tasks that are held; one that cannot even be put to error by the rules is put there by the store."""
        found: list[tuple[Held, Decision]] = []
        turn.batch.decisions = decisions = list[Decision]()
        for task, messages in taken.items():
            held = self._held.get(task)
            if held is None:
                continue
            try:
                decision = self._decide(held, messages, turn)
            except Exception as defect:  # noqa: BLE001 - one task's trouble must not stop the others
                self.defect(defect)
                self._doubts.condemn(task, defect)
                continue
            found.append((held, decision))
            decisions.append(decision)
        return found

    def _decide(self, held: Held, messages: Sequence[Message], turn: Turn) -> Decision:
        try:
            decision = saga.decide(held, messages)
        except Exception as defect:  # noqa: BLE001 - one task's trouble must not stop the others
            decision = guilty(held, messages, defect)
        if held.task.lost and decision.consumed:
            decision.task = saga.progressed(decision.task)
        if decision.requests and turn.budget and self._agents is not None:
            turn.place(decision, self._agents.knows)
        return decision

    def _firsts(self, loaded: Sequence[Loaded], turn: Turn) -> list[tuple[Held, Decision]]:
        """Decide what a claim leads to, for each task that can be decided; runs inside the store's transaction, perhaps on its thread."""
        turn.loaded, unfit = [each.task.id for each in loaded], turn.batch.unfit
        unfit.clear()
        found: list[tuple[Held, Decision]] = []
        for each in loaded:
            task = each.task.id
            if task in self._doubts.unclaimable:
                unfit[task] = self._doubts.unclaimable[task]
                continue
            try:
                found.append(self._first(each, turn))
            except Exception as defect:  # noqa: BLE001 - one task's trouble must not stop the others
                self.defect(defect)
                turn.forget(task)
                unfit[task] = _unfit(task, defect)
        return found

    def _first(self, loaded: Loaded, turn: Turn) -> tuple[Held, Decision]:
        """Decide what the claim of a task leads to."""
        held, waiting = restored(loaded)
        turn.dues[loaded.task.id] = loaded.due
        if self._watch is not None:
            turn.heard[loaded.task.id] = waiting
        turn.forget(loaded.task.id)
        decision = turn.claimed[loaded.task.id] = self._decide(held, waiting, turn)
        return held, decision

    async def _read_again(self) -> None:
        """Read tasks again whose Decision was lost, or that were quiet for long; those that are no longer ours are let go."""
        wanted = set(self._weights.portioned(sorted(self._reload)))
        self._reload -= wanted
        if self._reload:
            self._wake.set()
        node = self.node
        try:
            found = await self._loaded(node, sorted(wanted))
        except Exception:
            self._reload |= wanted
            raise
        heard = {task: self._messages.pop(task, []) for task in wanted}
        for task in wanted:
            self._forget(task)
        for loaded in found if node == self.node else ():  # declared dead meanwhile: no longer ours
            try:
                held, waiting = restored(loaded)
            except Exception as defect:  # noqa: BLE001 - one task's trouble must not stop the others
                self.defect(defect)
                self._doubts.unfit[loaded.task.id] = _unfit(loaded.task.id, defect)
                self._wake.set()
                continue
            self._held[loaded.task.id] = held
            waiting += [m for m in heard.pop(loaded.task.id) if m.seq == 0 and m.kind in _REPLIES]
            self._weights.put(loaded.task.id, weigh(held, waiting))
            if waiting:
                self._messages[loaded.task.id] = waiting
            self._arm(held.task.id, loaded.due)
        self._resend(heard)

    async def _loaded(self, node: int, tasks: list[int]) -> list[Loaded]:
        """Read tasks; one that cannot even be read alone is to be put to error."""
        try:
            return await self._store.load(node, tasks)
        except StoreUnavailableError:
            raise
        except Exception as defect:  # noqa: BLE001 - one task's trouble must not stop the others
            if len(tasks) > 1:
                middle = len(tasks) // 2
                return await self._loaded(node, tasks[:middle]) + await self._loaded(node, tasks[middle:])
            self._doubts.condemn(tasks[0], defect)
            return []

    async def _put_to_error(self) -> None:
        """Put tasks to error that are ours and cannot be decided."""
        for task, reason in list(self._doubts.unfit.items()):
            del self._doubts.unfit[task]
            try:
                await self._store.put_to_error(self.node, task, reason)
            except StoreUnavailableError:
                self._doubts.unfit[task] = reason
                raise
            self._forget(task)

    # -- after the commit --------------------------------------------------------------------------------------------------

    def _settle(self, decided: Sequence[tuple[Held, Decision]], committed: Committed, turn: Turn) -> None:
        """Make memory what the store now is, and dispatch."""
        if committed.lost:
            log.info("%d decisions were overtaken; their tasks are read again", len(committed.lost))
            self._reload |= committed.lost
            self._wake.set()
        for task, reason in committed.guilty:
            shown = show(task)
            log.error("task %s: the store refuses its data: %s", shown, reason, extra={"task": shown})
            self._forget(task)
            self._doubts.unclaimable.pop(task, None)
        gone = committed.lost | {task for task, _ in committed.guilty}
        for held, decision in decided:
            if held.task.id not in gone:
                self._accepted(held, decision, turn)
            else:
                give_back(self._agents, turn.placed(decision))
        for held, decision in committed.claimed:
            turn.claimed.pop(held.task.id, None)
            # Otherwise declared dead meanwhile: they are freed with all that the old node held.
            if turn.batch.node == self.node:
                self._shapes.share(held)
                self._held[held.task.id] = held
                self._arm(held.task.id, turn.dues[held.task.id])
            self._accepted(held, decision, turn)
            if held.task.id in self._held:
                self._weights.put(held.task.id, weigh(held))
        for task, idx, attempt in committed.withdrawn:
            known = self._held.get(task)
            if known is not None:
                message = Message("withdrawn", idx, known.steps[idx].doing or "do", attempt)
                self._messages.setdefault(task, []).append(message)
                self._wake.set()
        if turn.batch.claim is not None and turn.batch.claim.at_rest:
            self._called.update(turn.batch.claim.at_rest)
            self._called &= self._held.keys()
        if committed.more:
            self._ring_pending()
        self._look_inbox = self._look_inbox or committed.left  # of those at rest only the inbox tells

    def _give_back_slots(self, turn: Turn) -> None:
        """Give slots back that were set aside and not used, or by Decisions on claimed tasks that were lost."""
        if self._agents is not None:
            self._agents.restore(turn.budget)
        for decision in turn.claimed.values():
            give_back(self._agents, turn.placed(decision))

    def _resend(self, taken: Mapping[int, Sequence[Message]]) -> None:
        """Leave replies from memory in the store: the task's next owner finds them there, or they are recorded as late."""
        if self._agents is None:
            return
        for task, messages in taken.items():
            for message in messages:
                if message.seq == 0 and message.kind in _REPLIES:
                    self._agents.resend(self.node, task, message)

    def _accepted(self, held: Held, decision: Decision, turn: Turn) -> None:
        try:
            self._accept(held, decision, turn)
        except Exception as fault:  # it is committed: what memory makes of it must not stop the others
            self.defect(fault)
            log.exception("task %s is read again, this is a defect", show(held.task.id))
            self._reload.add(held.task.id)
            self._wake.set()

    def _accept(self, held: Held, decision: Decision, turn: Turn) -> None:
        saga.apply(held, decision)
        task = held.task
        if decision.requests and self._agents is not None:
            placed = turn.placed(decision)
            for request in placed:
                self._agents.hand(request, turn.began)
            if len(placed) < len(decision.requests):
                here = set(map(id, placed))
                for request in decision.requests:
                    if id(request) not in here:
                        self._agents.backlogged(address(request.app, request.agent))
        if decision.timers and turn.batch.node == self.node:
            self._arm(task.id, decision.timers)
        if decision.added:
            self._weights.grow(task.id, weigh_added(decision.added))
        if task.state in _AT_REST:
            self._ended(held)
        if decision.release:
            self._forget(task.id)

    def _arm(self, task: int, waits: Mapping[int, float]) -> None:
        now = self._clock.monotonic()
        for idx, wait in waits.items():
            self._due[task, idx] = now + wait
            heapq.heappush(self._timers, (now + wait, task, idx))

    def _forget(self, task: int) -> None:
        held = self._held.pop(task, None)
        self._weights.drop(task)
        self._messages.pop(task, None)
        if held is not None and self._due:
            for step in held.steps:
                self._due.pop((task, step.idx), None)


def _unfit(task: int, defect: Exception) -> str:
    """Log that a task goes to error whose rows do not fit together; returns why."""
    log.error("task %s goes to error, it cannot be decided", show(task), exc_info=defect)
    return f"its rows do not fit together: {words(defect, named=True)}"
