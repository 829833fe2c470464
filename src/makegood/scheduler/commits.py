"""One turn of a Scheduler: decide messages, commit the Decisions, bring memory up to the store, dispatch."""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from makegood import saga
from makegood.actor.setbacks import ENDING
from makegood.actor.slot_pool import Reservation, SlotPool, resend
from makegood.base.ids import show
from makegood.errors import StoreUnavailableError
from makegood.model.decision import Decision
from makegood.model.messages import TaskMessage
from makegood.model.shape import HeldTask
from makegood.model.states import AT_REST
from makegood.scheduler.doubts import guilty, unfit
from makegood.scheduler.store_reader import restored
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
    loaded: Sequence[int] = ()
    """The tasks that were claimed."""
    dues: dict[int, dict[int, float]] = field(default_factory=dict)
    """Their timers."""
    heard: dict[int, list[TaskMessage]] = field(default_factory=dict)
    """The messages that were decided for them, if somebody watches."""


class Commits:
    """Carries turns out."""

    def __init__(self, store: Tasks, oversight: OversightVerbs, agents: SlotPool, turns: Turns) -> None:
        self.writing: dict[Reservation, Collection[int]] = {}
        """The tasks of each turn that is not committed yet: their next steps may be about to run here."""
        self.tallies = Tallies(turns.tasks.clock)
        """What was done."""
        self._store = store
        self._oversight = oversight
        self._agents = agents
        self._turns = turns
        self._tasks = turns.tasks

    async def carry_out(self, taken: dict[int, list[TaskMessage]], claim: Claim | None) -> None:
        """Decide, commit, settle, dispatch."""
        doubts = self._turns.doubts
        with self._agents.reserve() as slots:
            turn = _Turn(Batch(self._tasks.node, claim=claim), slots)
            self.writing[slots] = taken
            try:
                decided = self._decided(taken, turn)
                slots.set_aside()
                slots.place(turn.batch.decisions)
                slots.give_back_spare()
                if claim is not None:
                    slots.set_aside()
                    turn.batch.decide = lambda loaded: self._firsts(loaded, turn)
                committed = await self._store.commit(turn.batch)
            except Exception as fault:
                self._tasks.put_back(taken)
                self._tasks.wakeups.pending = True
                if isinstance(fault, (StoreUnavailableError, *ENDING)):
                    raise
                self._tasks.wakeups.inbox = True
                self._turns.listeners.defect(fault)
                log.exception("a turn of %d tasks has failed; they are tried in parts", len(taken))
                if taken:
                    doubts.met(list(taken), fault, apart=claim is None)
                if claim is not None:
                    doubts.claimed_badly(turn.loaded, fault)
                return
            finally:
                del self.writing[slots]
                self._tasks.wakeups.ring()
                turn.batch.decide = None  # it refers to the turn: both would wait for the garbage collector
            doubts.well(claimed=claim is not None, most=self._turns.claims.most)
            if self._turns.listeners.watch is not None:
                self._turns.listeners.watch.decided(taken | turn.heard, decided, committed)
            self._settle(decided, committed, turn)
            resend(self._agents, self._tasks.node, {task: taken.get(task, ()) for task in committed.lost})
        if committed.lost:
            await self._report(turn.batch, committed.lost)

    async def _report(self, batch: Batch, lost: Collection[int]) -> None:
        """Record for people that Decisions were refused."""
        refused = [(d.task.id, d.before.epoch) for d in batch.decisions if d.task.id in lost]
        try:
            await self._oversight.overtaken(batch.node, refused)
        except StoreUnavailableError as away:
            log.info("the store is away, and does not know of %d refused decisions: %s", len(refused), away)

    # -- deciding --------------------------------------------------------------------------------------------

    def _decided(
        self, taken: Mapping[int, Sequence[TaskMessage]], turn: _Turn
    ) -> list[tuple[HeldTask, Decision]]:
        """Decide on tasks that are held. What the rules cannot even put to error, the store will."""
        found: list[tuple[HeldTask, Decision]] = []
        tasks = self._tasks.held
        for task, messages in taken.items():
            held = tasks.get(task)
            if held is None:
                continue
            try:
                found.append((held, _decide(held, messages)))
            except Exception as defect:  # noqa: BLE001 - one task's trouble must not stop the others
                self._turns.listeners.defect(defect)
                self._turns.doubts.condemn(task, defect)
        turn.batch.decisions = [decision for _, decision in found]
        return found

    def _firsts(self, loaded: Sequence[Loaded], turn: _Turn) -> list[tuple[HeldTask, Decision]]:
        """Decide on the tasks of a claim, those that can be decided.

        It runs inside the store's transaction, perhaps on the store's thread, and again when the store tries
        again.
        """
        turn.slots.rollback()
        turn.loaded, refused = [each.task.id for each in loaded], turn.batch.unfit
        refused.clear()
        found: list[tuple[HeldTask, Decision]] = []
        for each in loaded:
            task = each.task.id
            if task in self._turns.doubts.unclaimable:
                refused[task] = self._turns.doubts.unclaimable[task]
                continue
            try:
                held, waiting = restored(each)
                turn.dues[task] = each.due
                if self._turns.listeners.watch is not None:
                    turn.heard[task] = waiting
                found.append((held, _decide(held, waiting)))
            except Exception as defect:  # noqa: BLE001 - one task's trouble must not stop the others
                self._turns.listeners.defect(defect)
                refused[task] = unfit(task, defect)
        turn.slots.place(decision for _, decision in found)
        return found

    # -- after the commit ------------------------------------------------------------------------------------

    def _settle(
        self, decided: Sequence[tuple[HeldTask, Decision]], committed: Committed, turn: _Turn
    ) -> None:
        """Make memory what the store now is, and dispatch."""
        tasks = self._tasks
        if committed.lost:
            log.info("%d decisions were overtaken; their tasks are read again", len(committed.lost))
            tasks.mistrust(committed.lost)
        for task, reason in committed.guilty:
            shown = show(task)
            log.error("task %s: the store refuses its data: %s", shown, reason, extra={"task": shown})
            tasks.forget(task)
            self._turns.doubts.unclaimable.pop(task, None)
        self.tallies.add(committed.claimed)
        if gone := committed.lost | {task for task, _ in committed.guilty}:
            decided = [each for each in decided if each[0].task.id not in gone]
        self.tallies.add(decided)
        begun: list[Decision] = []
        for held, decision in decided:
            try:
                self._accept(held, decision, turn)
                begun.append(decision)
            except Exception as fault:  # noqa: BLE001 - it is committed, and must not stop the others
                self._misled(held, fault)
        for held, decision in committed.claimed:
            # Otherwise declared dead meanwhile: they are freed with all that the old node held.
            if turn.batch.node == tasks.node:
                tasks.claimed(held, turn.dues[held.task.id])
            try:
                self._accept(held, decision, turn)
                begun.append(decision)
            except Exception as fault:  # noqa: BLE001 - as above
                self._misled(held, fault)
            if held.task.id in tasks.held:
                tasks.weights.put(held.task.id, weigh(held))
        turn.slots.run(begun)
        for task, idx, attempt in committed.withdrawn:
            known = tasks.held.get(task)
            if known is not None:
                tasks.hear(task, TaskMessage("withdrawn", idx, known.steps[idx].doing or "do", attempt))
        if turn.batch.claim is not None:
            self._turns.claims.made(turn.batch.claim, more=committed.more)
        # of those at rest only the inbox tells
        self._tasks.wakeups.inbox = self._tasks.wakeups.inbox or committed.left

    def _misled(self, held: HeldTask, fault: Exception) -> None:
        """Read a task again: its Decision is committed, and memory could not be made like it."""
        self._turns.listeners.defect(fault)
        log.error("task %s is read again, this is a defect", show(held.task.id), exc_info=fault)
        self._tasks.mistrust([held.task.id])

    def _accept(self, held: HeldTask, decision: Decision, turn: _Turn) -> None:
        saga.apply(held, decision)
        task = held.task
        if decision.timers and turn.batch.node == self._tasks.node:
            self._tasks.arm(task.id, decision.timers)
        if decision.added:
            self._tasks.weights.grow(task.id, weigh_added(decision.added))
        if task.state in AT_REST:
            self._turns.listeners.ended(held)
        if decision.release:
            self._tasks.forget(task.id)


def _decide(held: HeldTask, messages: Sequence[TaskMessage]) -> Decision:
    """Return what the rules make of messages."""
    try:
        decision = saga.decide(held, messages)
    except Exception as defect:  # noqa: BLE001 - one task's trouble must not stop the others
        decision = guilty(held, messages, defect)
    if held.task.lost and decision.consumed:
        decision.task = saga.progressed(decision.task)
    return decision
