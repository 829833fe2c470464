"""Commits a Scheduler's batch: fences, claims, and the search for a Decision whose values the database
refuses.

The whole batch is one transaction. One statement for each step and attempt deletes the consumed request rows,
and the number of rows deleted is checked. Only if it is too small does the store search for the Decisions
that lost, and write the rest without them. A refused value is found by bisection under savepoints. Its task
is put to error, since the same Decision would be refused forever.
"""

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from makegood.base.ids import show
from makegood.base.text import storable_text
from makegood.model.decision import Decision
from makegood.model.shape import HeldTask
from makegood.store import lanes, notice_operations
from makegood.store import put_to_error as shared
from makegood.store.changes import by_shape
from makegood.store.priority_ageing import Ageing
from makegood.store.records import Batch, Committed
from makegood.store.sqlite import claim, notices
from makegood.store.sqlite.bulk_change import UNUSED, Change, OvertakenError, tasks
from makegood.store.sqlite.decision_rows import Writing, is_new
from makegood.store.sqlite.shape_rows import ShapeRows
from makegood.store.sqlite.transaction import DATA_FAULTS, CarefullyError, WriteTransaction, is_environment

log = logging.getLogger("makegood.store")

# The plus keeps SQLite from using the index on holders, which is slower.
_EPOCHS = "select id, epoch from makegood_task where +locked_by = ? and id in ({marks})"
_THERE = "select task, idx, attempt from makegood_request where kind <> 'timer' and task in ({marks})"


def commit(tx: WriteTransaction, batch: Batch, ageing: Ageing) -> Committed:
    """Write Decisions, claim tasks, and write the Decisions that ``batch.decide`` makes on these."""
    return _Commit(tx, batch, ageing, Committed()).run()


@dataclass(slots=True)
class _Commit:
    tx: WriteTransaction
    batch: Batch
    ageing: Ageing
    outcome: Committed
    claims: claim.Claimed | None = None
    claim_ids: frozenset[int] = frozenset()

    def run(self) -> Committed:
        tx, batch, outcome = self.tx, self.batch, self.outcome
        decisions = list(batch.decisions)
        claim_decisions: dict[int, tuple[HeldTask, Decision]] = {}
        if batch.claim is not None:
            decisions = self._under_lock(decisions)
            self.claims = claims = claim.find(tx, batch.claim, self.ageing, batch.node)
            outcome.more, outcome.left = claims.more, claims.left
            outcome.next_start, outcome.looked_at = claims.next_start, tx.now
            outcome.more_queued = claims.more_queued
            for task, reason in claims.unreadable:
                put_to_error(tx, batch.node, task, reason)
                outcome.rejections.append((task, reason))
            if claims.tasks:
                claim_decisions = batch.decided(claims.tasks)
            for task, reason in batch.unfit.items():
                put_to_error(tx, batch.node, task, reason)
                outcome.rejections.append((task, reason))
        self.claim_ids = frozenset(claim_decisions)
        stale = outcome.losses & self.claim_ids  # decided before, under an older epoch, and now claimed again
        outcome.losses -= stale
        self.apply([*decisions, *(decision for _, decision in claim_decisions.values())])
        outcome.settle(claim_decisions, stale)
        return outcome

    def _under_lock(self, decisions: list[Decision]) -> list[Decision]:
        """Return the Decisions whose task this node has locked under their epoch; record the others as
        lost.
        """
        if not decisions:
            return decisions
        epochs: dict[int, int] = dict(self.tx.among(_EPOCHS, [d.task.id for d in decisions], self.batch.node))
        current = [d for d in decisions if epochs.get(d.task.id) == d.before.epoch]
        if len(current) != len(decisions):
            self.outcome.losses.update(
                d.task.id for d in decisions if epochs.get(d.task.id) != d.before.epoch
            )
        return current

    def apply(self, decisions: Sequence[Decision]) -> None:
        """Write Decisions whose locks hold.

        Those that lost are recorded, those with a refused value end in error.
        """
        if not decisions:
            return
        try:
            with self.tx.savepoint():
                withdrawals = self._write(decisions)
        except OvertakenError:
            self._under_lock([d for d in decisions if d.task.id not in self.claim_ids])
            self.outcome.losses |= self._losers(decisions)
            self.apply([d for d in decisions if d.task.id not in self.outcome.losses])
        except DATA_FAULTS as fault:
            if len(decisions) > 1:
                middle = len(decisions) // 2
                self.apply(decisions[:middle])
                self.apply(decisions[middle:])
            else:
                self._reject(decisions[0], fault)
        else:
            self.outcome.withdrawals += withdrawals

    def _write(self, decisions: Sequence[Decision]) -> list[tuple[int, int, int]]:
        begins = self.claims.complete_by if self.claims is not None else ()
        writing = Writing(self.tx, self.batch.node, self.claim_ids, begins, len(decisions))
        shape_groups, single_decisions = by_shape(decisions, self.claim_ids)
        alike = ShapeRows(self.tx, self.batch.node, shape_groups)
        for decision in single_decisions:
            writing.collect(decision)
        writing.write([*self._fences(single_decisions, alike.tasks_by_epoch()), *alike.changes()])
        if movers := lanes.movers(decisions):
            self.tx.do(lanes.settle, movers)
        return writing.withdrawals

    def _fences(self, decisions: Sequence[Decision], held_tasks: Mapping[int, Sequence[int]]) -> list[Change]:
        """Return the fences of the batch.

        This node must hold the tasks of ``decisions`` and those in ``held_tasks``, listed there by epoch. The
        Supervisor must not have judged the requests that replies have consumed.
        """
        under: defaultdict[int, list[int]] = defaultdict(list)
        for epoch, of in held_tasks.items():
            under[epoch] += of
        tasks_by_place: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        for d in decisions:
            if d.task.id not in self.claim_ids:
                under[d.before.epoch].append(d.task.id)
            for place in d.used_requests:
                tasks_by_place[place].append(d.task.id)
        fences: list[Change] = [
            ("held", tasks(of), UNUSED, self.batch.node, epoch, len(of)) for epoch, of in under.items()
        ]
        return fences + [
            ("consumed", tasks(of), UNUSED, *place, len(of)) for place, of in tasks_by_place.items()
        ]

    def _losers(self, decisions: Sequence[Decision]) -> set[int]:
        existing_keys = set(self.tx.among(_THERE, [d.task.id for d in decisions]))
        return {
            d.task.id
            for d in decisions
            if any((d.task.id, idx, attempt) not in existing_keys for idx, attempt in d.used_requests)
            or not is_new(self.tx, d)
        }

    def _reject(self, decision: Decision, fault: Exception) -> None:
        reason = f"the database refuses a value of its Decision: {type(fault).__name__}: {fault}"
        put_to_error(self.tx, self.batch.node, decision.task.id, reason, seqs=decision.seqs)
        self.outcome.rejections.append((decision.task.id, reason))


def put_to_error(
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
    if not tx.do(shared.put_to_error, node, task, reason, seqs, check_lock=check_lock):
        return
    try:
        with tx.savepoint():
            notice = tx.do(notice_operations.rejection_notice, task, reason)
            if notice is not None:
                notices.write(tx, [notice])
    except Exception as fault:
        if isinstance(fault, CarefullyError) or is_environment(fault):
            raise
        log.warning("task %s is put to error, and its submitter is not notified: %s", show(task), fault)
