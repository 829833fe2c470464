"""A Scheduler's batch: fences, claims, and the search for a Decision whose values the database refuses.

Without a claim the batch is one statement and one round trip. If a request that a reply has used is missing,
a second statement finds the losers and a third writes the rest. With a claim the batch is an explicit
transaction: find and lock the tasks, read them, decide, write everything with the same one statement, COMMIT.
A single task that a message wakes is read without a lock, and locked by the statement that writes, if its row
is still the same version; otherwise the explicit transaction follows.

If the database refuses a value, the whole batch is repeated with savepoints, and bisection finds the task.
That task is put to error, since the same Decision would be refused forever. If somebody else's transaction
holds a row of the batch for long, the same bisection finds whose row it is: that task's Decision is lost for
now, and the others are written.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from makegood.base.ids import show
from makegood.base.text import storable_text
from makegood.model.decision import Decision
from makegood.model.shape import HeldTask
from makegood.store import lanes, notice_operations
from makegood.store import put_to_error as shared
from makegood.store.postgres import claim, lane_locks, notices
from makegood.store.postgres.decision_rows import Writing
from makegood.store.postgres.errors import LOCKED, MISSING, is_data, is_lost
from makegood.store.postgres.transaction import WriteTransaction, within
from makegood.store.records import Batch, Committed

log = logging.getLogger("makegood.store")

_IMPATIENT = "set local lock_timeout = '100ms'"
BLOCKED_FOR = 10.0
"""Seconds for which batches are written with savepoints, and short waits, after one that met a locked row."""
_TRACES: Sequence[Sequence[shared.Trace]] = (("alert", "event"), ("alert",), ("event",), ())


@dataclass(slots=True)
class Commit:
    """One batch, which may be tried several times."""

    batch: Batch
    scan: claim.ClaimScan
    is_outlived: Callable[[], bool] = bool
    """Whether the batch's node is of an earlier generation.

    Such a node claims nothing more: what it remembers of tasks may differ from the store.
    """
    careful: bool = False
    """Whether to use savepoints, because a value was refused or a row is locked."""
    outcome: Committed = field(default_factory=Committed)
    writing: Writing | None = None
    last_seqs: dict[tuple[str, int], int] = field(default_factory=dict)

    async def work(self, tx: WriteTransaction) -> Committed:
        """Write the batch. May be called again if it has certainly done nothing."""
        self.outcome = Committed()
        try:
            if not self.careful and not lanes.movers(self.batch.decisions):
                if self.batch.claim is None:
                    return await self._at_once(tx)
                if await self._wake(tx):
                    return self.outcome
            return await within(tx, self._explicit)
        except Exception as fault:
            if self.careful or not (is_data(fault) or isinstance(fault, LOCKED)):
                raise
        self.careful = True
        tx.is_sent = False
        return await self.work(tx)

    async def recover(self, _: WriteTransaction, outcome: Sequence[int] | None) -> Committed:
        """Return the answer of a batch that was committed but whose answer was lost."""
        if self.writing is not None:
            self.outcome.withdrawals += self.writing.withdrawals_at(outcome)
        return self.outcome

    def note_commit(self) -> None:
        """Remember how far the claim read. Call it only after the commit."""
        for key, seq in self.last_seqs.items():
            self.scan.floors.advance(key, seq)

    async def _at_once(self, tx: WriteTransaction) -> Committed:
        decisions: Sequence[Decision] = self.batch.decisions
        looks = False
        while decisions:
            self.writing = writing = Writing(self.batch.node, {})
            writing.collect(decisions)
            tx.is_sent = True
            try:
                outcome = await writing.write(tx, mark=True, looks=looks)
            except MISSING:
                if looks:  # judged at this very moment
                    raise
                looks, tx.is_sent = True, False
                continue
            if not outcome.losers:
                self.outcome.withdrawals = outcome.withdrawals
                break
            tx.is_sent = False
            self.outcome.losses |= outcome.losers
            decisions = [d for d in decisions if d.task.id not in outcome.losers]
        return self.outcome

    async def _wake(self, tx: WriteTransaction) -> bool:
        """Claim one task at rest and write everything in one statement, if nothing comes between its read and
        that; return whether that was done. If not, nothing was done.
        """
        batch = self.batch
        if batch.claim is None or batch.claim.limit > 0 or len(batch.claim.at_rest) > 1 or self.is_outlived():
            return False
        claims = await claim.find_unlocked(tx, batch.claim)
        if claims is None:
            return False
        loads, versions = claims
        claim_decisions = batch.decided(loads)
        if batch.unfit or claim_decisions.keys() & {d.task.id for d in batch.decisions}:
            return False
        decisions = [*batch.decisions, *(decision for _, decision in claim_decisions.values())]
        if not decisions:
            tx.idle = True
            return True
        self.writing = writing = Writing(batch.node, dict.fromkeys(claim_decisions, False))
        writing.versions = {task: versions[task] for task in claim_decisions}
        writing.collect(decisions)
        self.outcome.settle(claim_decisions, set())
        tx.is_sent = True
        try:
            answer = await writing.write(tx, mark=True, looks=False)
        except MISSING:
            answer = None
        if answer is None or answer.losers:
            tx.is_sent, self.outcome = False, Committed()
            return False
        self.outcome.withdrawals = answer.withdrawals
        return True

    async def _explicit(self, tx: WriteTransaction) -> Committed:
        batch, outcome = self.batch, self.outcome
        self.writing = None
        if room := [d.task for d in batch.decisions if lanes.makes_room(d)]:
            await lane_locks.wait(tx, [f"{task.app}/{name}" for task in room for name in task.lanes])
        if self.careful:
            await tx.connection.execute(_IMPATIENT)
        claim_decisions: dict[int, tuple[HeldTask, Decision]] = {}
        begins: dict[int, bool] = {}
        if batch.claim is not None and not self.is_outlived():
            claims = await claim.find(tx, batch.claim, self.scan, batch.node)
            outcome.more, outcome.left, self.last_seqs = claims.more, claims.left, claims.last_seqs
            outcome.next_start, outcome.looked_at = claims.next_start, claims.looked_at
            outcome.more_queued, outcome.lanes_busy = claims.more_queued, claims.lanes_busy
            for task, reason in claims.unreadable:
                await put_to_error(tx, batch.node, task, reason)
                outcome.rejections.append((task, reason))
            if claims.tasks:
                claim_decisions = batch.decided(claims.tasks)
                begins = {task: claims.begins[task] for task in claim_decisions}
            for task, reason in batch.unfit.items():
                await put_to_error(tx, batch.node, task, reason)
                outcome.rejections.append((task, reason))
        # A node that can claim a task does not hold it: its earlier Decision, under an older epoch, is lost.
        stale = {d.task.id for d in batch.decisions if d.task.id in claim_decisions}
        decisions = [d for d in batch.decisions if d.task.id not in stale]
        decisions += [decision for _, decision in claim_decisions.values()]
        await self._apply(tx, decisions, begins)
        tx.idle = not decisions and not outcome.rejections
        outcome.settle(claim_decisions, stale)
        return outcome

    async def _apply(
        self, tx: WriteTransaction, decisions: Sequence[Decision], begins: dict[int, bool]
    ) -> None:
        """Write Decisions without the losers; with ``careful``, put tasks with refused values to error."""
        while decisions:
            if self.careful:
                await tx.connection.execute("SAVEPOINT apart")
            try:
                writing = Writing(self.batch.node, begins)
                writing.collect(decisions)
                last = not self.careful and not self.outcome.rejections
                outcome = await writing.write(tx, mark=last, looks=self.careful)
            except MISSING:
                if not self.careful:
                    raise
                await tx.connection.execute("ROLLBACK TO SAVEPOINT apart")  # judged at this very moment
                continue
            except Exception as fault:
                if not self.careful or not (is_data(fault) or isinstance(fault, LOCKED)):
                    raise
                await tx.connection.execute("ROLLBACK TO SAVEPOINT apart")
                await self._part(tx, decisions, begins, fault)
                return
            if not outcome.losers:
                self.outcome.withdrawals += outcome.withdrawals
                await lanes.settle(tx, lanes.movers(decisions))
                return
            self.outcome.losses |= outcome.losers
            decisions = [d for d in decisions if d.task.id not in outcome.losers]

    async def _part(
        self, tx: WriteTransaction, decisions: Sequence[Decision], begins: dict[int, bool], fault: Exception
    ) -> None:
        if len(decisions) > 1:
            middle = len(decisions) // 2
            await self._apply(tx, decisions[:middle], begins)
            await self._apply(tx, decisions[middle:], begins)
            return
        (decision,) = decisions
        if isinstance(fault, LOCKED):
            log.warning("task %s: another transaction holds a row of it: %s", show(decision.task.id), fault)
            self.outcome.losses.add(decision.task.id)
            self.outcome.lock_conflicts.add(decision.task.id)
            return
        reason = f"the database refuses a value of its Decision: {type(fault).__name__}: {fault}"
        if decision.task.id not in begins and not await _holds(tx, self.batch.node, decision):
            self.outcome.losses.add(decision.task.id)
            return
        await put_to_error(tx, self.batch.node, decision.task.id, reason, seqs=decision.seqs)
        self.outcome.rejections.append((decision.task.id, reason))


async def _holds(tx: WriteTransaction, node: int, decision: Decision) -> bool:
    query = "select 1 from makegood.task where id = $1 and locked_by = $2 and epoch = $3 for no key update"
    return await tx.row(query, decision.task.id, node, decision.before.epoch) is not None


async def put_to_error(
    tx: WriteTransaction,
    node: int | None,
    task: int,
    reason: str,
    *,
    seqs: Sequence[int] | None = None,
    check_lock: bool = False,
) -> None:
    """Put a task that cannot be decided to error; see ``put_to_error``."""
    reason = storable_text(reason)
    if not await _put(tx, node, task, reason, seqs, check_lock=check_lock):
        tx.idle = True
        return
    await tx.connection.execute("SAVEPOINT telling")
    try:
        notice = await notice_operations.rejection_notice(tx, task, reason)
        if notice is not None:
            await notices.write(tx, [notice])
    except Exception as fault:
        if is_lost(fault) or tx.connection.is_closed():
            raise
        await tx.connection.execute("ROLLBACK TO SAVEPOINT telling")
        log.warning("task %s is put to error, and its submitter is not notified: %s", show(task), fault)


async def _put(
    tx: WriteTransaction,
    node: int | None,
    task: int,
    reason: str,
    seqs: Sequence[int] | None,
    *,
    check_lock: bool,
) -> bool:
    """Put a task to error with an alert and an event, or without what the database refuses of these: the
    other tasks of the batch do not wait for that.
    """
    for traces in _TRACES:
        await tx.connection.execute("SAVEPOINT tracing")
        try:
            return await shared.put_to_error(
                tx, node, task, reason, seqs, check_lock=check_lock, traces=traces
            )
        except Exception as fault:
            if not is_data(fault) or not traces:
                raise
            await tx.connection.execute("ROLLBACK TO SAVEPOINT tracing")
            log.warning(
                "task %s cannot be put to error with its %s: %s", show(task), " and ".join(traces), fault
            )
    raise AssertionError("the last try is without traces")
