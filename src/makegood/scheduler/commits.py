"""One turn of a Scheduler: decide messages, commit the Decisions, bring memory up to the store, dispatch."""

import logging
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from makegood import saga
from makegood.actor.setbacks import ENDING
from makegood.actor.slot_pool import Reservation, SlotPool, resend
from makegood.base.ids import show
from makegood.errors import StoreUnavailableError
from makegood.model.decision import Decision
from makegood.model.messages import TaskMessage
from makegood.model.shape import HeldTask
from makegood.model.states import AT_REST
from makegood.scheduler.doubts import rejection, unfit
from makegood.scheduler.eager_signals import EagerSignals
from makegood.scheduler.store_reader import restore
from makegood.scheduler.tallies import Tallies
from makegood.scheduler.task_memory import weigh, weigh_added
from makegood.scheduler.turns import Turns
from makegood.store.oversight import OversightVerbs
from makegood.store.protocol import Tasks
from makegood.store.records import Batch, Claim, Committed, Loaded

log = logging.getLogger("makegood.scheduler")


@dataclass(slots=True)
class _Turn:
    """One commit in the making."""

    batch: Batch
    slots: Reservation
    """Slots of this process's agents for the requests of the commit."""
    at: saga.At
    """When it is decided."""
    claims: Sequence[int] = ()
    """The tasks that were claimed."""
    dues: dict[int, dict[int, float]] = field(default_factory=dict)
    """Their timers."""
    messages: dict[int, list[TaskMessage]] = field(default_factory=dict)
    """The messages that were decided for them, if somebody watches."""
    wakes: float = math.inf
    """In how many seconds the first of the tasks is due that were let go."""


class Commits:
    """Carries turns out."""

    def __init__(
        self, store: Tasks, oversight: OversightVerbs, agents: SlotPool, turns: Turns, signals: EagerSignals
    ) -> None:
        self.writing: dict[Reservation, Collection[int]] = {}
        """The tasks of each turn that is not committed yet: their next steps may be about to run here."""
        self.tallies = Tallies(turns.tasks.clock)
        """What was done."""
        self._store = store
        self._oversight = oversight
        self._agents = agents
        self._turns = turns
        self._tasks = turns.tasks
        self._signals = signals

    async def carry_out(self, inbox: dict[int, list[TaskMessage]], claim: Claim | None) -> None:
        """Decide, commit, settle, dispatch."""
        doubts, waking = self._turns.doubts, self._signals.waking
        if waking.draft is not None:
            if doubts.most is not None:
                waking.leave()  # if a claim fails now, its task is at fault, and not a signal
            claim = waking.expand(claim)
        with self._agents.reserve(self._store.clock()) as slots:
            at = saga.At(slots.now, self._store.calendar(), self._turns.claims.linger)
            turn = _Turn(Batch(self._tasks.node, claim=claim), slots, at)
            self.writing[slots] = inbox
            try:
                decisions = self._decide_held(inbox, turn)
                if self._signals.drafts:
                    self._signals.join(inbox, decisions)
                slots.set_aside()
                slots.place(turn.batch.decisions)
                slots.give_back_spare()
                if claim is not None:
                    slots.set_aside()
                    turn.batch.decide = lambda tasks: self._decide_claimed(tasks, turn)
                outcome = await self._store.commit(turn.batch)
            except Exception as fault:
                is_denied = self._signals.leave_failed(inbox, turn.batch, fault)
                self._tasks.put_back(inbox)
                self._tasks.wakeups.pending = self._tasks.wakeups.sleepers = self._tasks.wakeups.lanes = True
                if is_denied:
                    return
                if isinstance(fault, (StoreUnavailableError, *ENDING)):
                    raise
                self._tasks.wakeups.inbox = True
                self._turns.listeners.defect(fault)
                log.exception("a turn of %d tasks has failed; they are tried in parts", len(inbox))
                if inbox:
                    doubts.note_fault(list(inbox), fault, apart=claim is None)
                if claim is not None:
                    doubts.note_failed_claim(turn.claims, fault)
                return
            finally:
                del self.writing[slots]
                self._tasks.wakeups.wake()
                turn.batch.decide = None  # it refers to the turn: both would wait for the garbage collector
            doubts.well(with_claim=claim is not None, most=self._turns.claims.most)
            if self._turns.listeners.watch is not None:
                self._turns.listeners.watch.decided(inbox | turn.messages, decisions, outcome)
            self._settle(decisions, outcome, turn)
            resend(self._agents, self._tasks.node, {task: inbox.get(task, ()) for task in outcome.losses})
            has_signals = self._signals.drafts or self._signals.waking.draft is not None
            signal_losses = self._signals.settle(inbox, claim, outcome) if has_signals else set()
        if overtaken := outcome.losses - outcome.lock_conflicts - signal_losses:
            await self._report(turn.batch, overtaken)

    async def _report(self, batch: Batch, tasks: Collection[int]) -> None:
        """Record for people that Decisions were refused."""
        fenced_off = [(d.task.id, d.before.epoch) for d in batch.decisions if d.task.id in tasks]
        try:
            await self._oversight.overtaken(batch.node, fenced_off)
        except StoreUnavailableError as away:
            log.info(
                "the store is away, and does not know of %d refused decisions: %s", len(fenced_off), away
            )
        except Exception as fault:  # noqa: BLE001 - a note for people: the tasks continue without it
            log.warning("%d refused decisions could not be noted: %s", len(fenced_off), fault)

    # -- deciding --------------------------------------------------------------------------------------------

    def _decide_held(
        self, inbox: Mapping[int, Sequence[TaskMessage]], turn: _Turn
    ) -> list[tuple[HeldTask, Decision]]:
        """Decide on tasks that are held. What the rules cannot even put to error, the store will."""
        decisions: list[tuple[HeldTask, Decision]] = []
        tasks, timers = self._tasks.in_memory, self._tasks.timers
        monotonic = self._tasks.clock.monotonic()
        at, no_timers = turn.at, timers.first is None
        for task, messages in inbox.items():
            held_task = tasks.get(task)
            if held_task is None:
                continue
            try:
                due = saga.NOTHING_DUE if no_timers else timers.seconds_left(task, monotonic)
                decisions.append((held_task, _decide(held_task, messages, at, due)))
            except Exception as defect:  # noqa: BLE001 - one task's trouble must not stop the others
                self._turns.listeners.defect(defect)
                self._turns.doubts.condemn(task, defect)
        turn.batch.decisions = [decision for _, decision in decisions]
        return decisions

    def _decide_claimed(self, tasks: Sequence[Loaded], turn: _Turn) -> list[tuple[HeldTask, Decision]]:
        """Decide on the tasks of a claim, those that can be decided.

        It runs inside the store's transaction, perhaps on the store's thread, and again when the store tries
        again.
        """
        turn.slots.rollback()
        # Reading them took time, by which a sleep until a moment would end late.
        at = msgspec.structs.replace(turn.at, calendar=self._store.calendar())
        turn.claims, faults = [each.task.id for each in tasks], turn.batch.unfit
        faults.clear()
        decisions: list[tuple[HeldTask, Decision]] = []
        waking, eager = self._signals.waking, turn.batch.claim and turn.batch.claim.eager
        for each in tasks:
            task = each.task.id
            if task in self._turns.doubts.unclaimable:
                faults[task] = self._turns.doubts.unclaimable[task]
                continue
            try:
                held_task, waiting = restore(each)
                is_woken = task == eager and not each.messages
                if is_woken:
                    message = waking.message(each, held_task)
                    if message is None:
                        continue  # it is not claimed: nothing is to be decided
                    waiting.append(message)
                turn.dues[task] = each.due
                if self._turns.listeners.watch is not None:
                    turn.messages[task] = waiting
                decision = _decide(held_task, waiting, at, each.due)
                if task == eager:
                    waking.join(decision, is_used=is_woken)
                decisions.append((held_task, decision))
            except Exception as defect:  # noqa: BLE001 - one task's trouble must not stop the others
                self._turns.listeners.defect(defect)
                faults[task] = unfit(task, defect)
        turn.slots.place(decision for _, decision in decisions)
        return decisions

    # -- after the commit ------------------------------------------------------------------------------------

    def _settle(
        self, decisions: Sequence[tuple[HeldTask, Decision]], outcome: Committed, turn: _Turn
    ) -> None:
        """Make memory what the store now is, and dispatch."""
        tasks = self._tasks
        if outcome.losses:
            log.info("%d decisions were overtaken; their tasks are read again", len(outcome.losses))
            tasks.mistrust(outcome.losses)
        for task, reason in outcome.rejections:
            task_id = show(task)
            log.error("task %s: the store refuses its data: %s", task_id, reason, extra={"task": task_id})
            tasks.forget(task)
            self._turns.doubts.unclaimable.pop(task, None)
        self.tallies.add(outcome.claims)
        if not_written := outcome.losses | {task for task, _ in outcome.rejections}:
            decisions = [each for each in decisions if each[0].task.id not in not_written]
        self.tallies.add(decisions)
        beginnings: list[Decision] = []
        for held_task, decision in decisions:
            try:
                self._accept(held_task, decision, turn)
                beginnings.append(decision)
            except Exception as fault:  # noqa: BLE001 - it is committed, and must not stop the others
                self._mistrust(held_task, fault)
        for held_task, decision in outcome.claims:
            # Otherwise declared dead meanwhile: they are freed with all that the old node held.
            if turn.batch.node == tasks.node:
                tasks.hold(held_task, turn.dues[held_task.task.id])
            try:
                self._accept(held_task, decision, turn)
                beginnings.append(decision)
            except Exception as fault:  # noqa: BLE001 - as above
                self._mistrust(held_task, fault)
            if held_task.task.id in tasks.in_memory:
                tasks.weights.put(held_task.task.id, weigh(held_task))
        turn.slots.run(beginnings)
        for task, idx, attempt in outcome.withdrawals:
            earlier = tasks.in_memory.get(task)
            if earlier is not None:
                tasks.hear(task, TaskMessage("withdrawn", idx, earlier.steps[idx].doing or "do", attempt))
        if turn.batch.claim is not None:
            claims = {decision.task.id for _, decision in outcome.claims}
            next_start = outcome.seconds_to_start(self._store.clock())
            self._turns.claims.settle(turn.batch.claim, claims, more=outcome.more, next_start=next_start)
            if outcome.more_queued:
                self._tasks.wakeups.wake_for_lanes()
            elif outcome.lanes_busy:
                self._tasks.wakeups.wake_soon_for_lanes()
        self._turns.claims.sleeps(turn.wakes)
        # of those at rest only the inbox tells
        self._tasks.wakeups.inbox = self._tasks.wakeups.inbox or outcome.left

    def _mistrust(self, held_task: HeldTask, fault: Exception) -> None:
        """Read a task again: its Decision is committed, and memory could not be made like it."""
        self._turns.listeners.defect(fault)
        log.error("task %s is read again, this is a defect", show(held_task.task.id), exc_info=fault)
        self._tasks.mistrust([held_task.task.id])

    def _accept(self, held_task: HeldTask, decision: Decision, turn: _Turn) -> None:
        saga.apply(held_task, decision)
        if decision.seqs:
            self._turns.last_used = max(self._turns.last_used, *decision.seqs)
        task = held_task.task
        if decision.timers and decision.wakes is None and turn.batch.node == self._tasks.node:
            self._tasks.arm(task.id, decision.timers)
        if decision.new_steps:
            self._tasks.weights.grow(task.id, weigh_added(decision.new_steps))
        if task.state in AT_REST:
            self._turns.listeners.on_end(held_task)
        if decision.release:
            if decision.wakes is not None or task.id in self._tasks.messages:
                self._let_go(task.id, decision.wakes, turn)
            self._tasks.forget(task.id)

    def _let_go(self, task: int, wakes: float | None, turn: _Turn) -> None:
        """Leave to the next claim what has come for a task since the Decision that let it sleep or ended it.

        Messages of the inbox were read here, and no Scheduler reads them a second time by itself.
        """
        messages = self._tasks.messages.get(task, ())
        if wakes is not None:
            turn.wakes = min(turn.wakes, wakes)
            resend(self._agents, turn.batch.node, {task: messages})
        if any(message.seq for message in messages):
            self._turns.claims.call([task])


def _decide(held_task: HeldTask, messages: Sequence[TaskMessage], at: saga.At, due: saga.Due) -> Decision:
    """Return what the rules make of messages."""
    try:
        decision = saga.decide(held_task, messages, at, due)
    except Exception as defect:  # noqa: BLE001 - one task's trouble must not stop the others
        decision = rejection(held_task, messages, defect)
    if held_task.task.lost and decision.used_requests:
        decision.task = saga.without_losses(decision.task)
    return decision
