"""Mutants of the store's fences, of commits, of time, and of what is handed over in memory."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from makegood.actor import slot_pool
from makegood.saga import first_decision, rules
from makegood.scheduler import eager_submission
from makegood.store import rows, supervision
from makegood.store.records import Judged
from makegood.store.scan_floors import Floors
from makegood.store.sqlite import commit, decision_rows, requests, slices, store_threads
from makegood.store.sqlite.transaction import WriteTransaction
from makegood.store.transaction import Sql, for_each
from makegood.testing.simulator.clocks import SimulatedClock
from tests.simulation.mutants_making import mutant
from tests.simulation.mutants_worlds import (
    APART,
    EAGER,
    FAULTS_OF_ALL_KINDS,
    SCHEDULERS,
    SUPERVISORS,
    aimed,
    called_after_complete_by,
    impatient,
)

# -- the store's fences ----------------------------------------------------------------------------------------------------


@mutant(
    replace(
        FAULTS_OF_ALL_KINDS, tasks=8, layout=APART, messages={"delay": 0.5, "duplicate": 0.5}, engine=EAGER
    ),
    "place_order",
    within=16,
)
def store_fence(m: pytest.MonkeyPatch) -> None:
    """The store takes late and superseded replies, and the rules believe them."""

    def taken(tx: Any, replies: Any) -> list[Any]:
        return [(r.task, r.message.kind, tx.now, rows.message(r.message)) for r in replies]

    m.setattr(requests, "_record_late", taken)
    m.setattr(rules, "current", lambda step, message: step.doing == message.doing)
    m.setitem(
        decision_rows.CHANGES, "consumed", decision_rows.CHANGES["consumed"].replace("attempt = ?4", "?4")
    )


@mutant(
    replace(
        FAULTS_OF_ALL_KINDS,
        layout=SCHEDULERS,
        points={},
        rates={"operator": 2.0},
        services={"service fails": 0.6, "service late": 0.2},
    ),
    twist=aimed("stop", "commit asked", 0.1),
)
def task_epoch(m: pytest.MonkeyPatch) -> None:
    """A Scheduler whose lock has moved writes all the same: neither holder nor epoch are compared."""
    fences = commit._Commit._fences
    m.setattr(
        commit._Commit, "_fences", lambda c, *of: [fence for fence in fences(c, *of) if fence[0] != "held"]
    )
    m.setattr(commit._Commit, "_under_lock", lambda _commit, decisions: decisions)


@mutant(
    replace(
        FAULTS_OF_ALL_KINDS,
        layout=SUPERVISORS,
        points={},
        messages={"drop": 0.4},
        rates={"kill": 0.3},
        storm=30.0,
    ),
    twist=aimed("stop", "release_dead asked", 0.5),
)
def supervisor_epoch(m: pytest.MonkeyPatch) -> None:
    """The Supervisor's writes do not carry the epoch of its term."""
    m.setattr(WriteTransaction, "fence", lambda _tx, _term: None)


@mutant(replace(FAULTS_OF_ALL_KINDS, layout=SUPERVISORS, engine=EAGER), "place_order", within=20)
def supervisor_cas(m: pytest.MonkeyPatch) -> None:
    """The Supervisor reads which requests are overdue, and writes its verdict later, whatever has become of them."""
    memory: dict[Floors, dict[Sql, Sequence[Any]]] = {}
    true = supervision.judge

    async def blind(tx: Any, floors: Floors, grace: float, limit: int) -> Judged:
        overdue = await tx.rows(supervision.OVERDUE, limit, -1.0, grace)
        silent = await tx.rows(supervision.SILENT[0], [row[0] for row in overdue], grace)
        before = memory.get(floors)
        memory[floors] = {supervision.OVERDUE: overdue, supervision.SILENT[0]: silent}
        return Judged([]) if before is None else await true(_Remembering(tx, before), floors, grace, limit)

    m.setattr(supervision.SupervisionVerbs, "judge", supervision._under_term(blind))
    m.setattr(supervision, "JUDGED", JUDGED_WHATEVER_THE_ATTEMPT)


JUDGED_WHATEVER_THE_ATTEMPT = for_each(
    "delete from makegood.request where task = x.task and idx = x.idx and attempt >= x.attempt",
    task="bigint", idx="int", attempt="int",
)  # fmt: skip


class _Remembering:
    """A transaction that answers some questions with what was true a while ago."""

    def __init__(self, tx: Any, answers: Mapping[Sql, Sequence[Any]]) -> None:
        self._tx, self._answers = tx, answers

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tx, name)

    async def rows(self, sql: Sql, *values: Any) -> Sequence[Any]:
        return self._answers[sql] if sql in self._answers else await self._tx.rows(sql, *values)


# -- commits ---------------------------------------------------------------------------------------------------------------


@mutant(replace(FAULTS_OF_ALL_KINDS, layout=APART, points={"kill": 0.03}), "place_order")
def half_a_batch(m: pytest.MonkeyPatch) -> None:
    """A batch is two transactions: the states of the steps first, their requests and the history after them."""
    true = decision_rows.Writing.write

    def halved(w: Any, first: Any = ()) -> None:
        rest = [change for change in first if change[0] in ("handed", "moved")]
        first = [change for change in first if change not in rest]
        groups = {key: w.groups.pop(key) for key in [*w.groups] if key[0] in ("handed", "moved")}
        rows = {kind: w.rows.pop(kind) for kind in ("request", "noted", "timer", "alert") if kind in w.rows}
        true(w, first)
        connection = w.tx.connection
        for sql in (*["release makegood"] * w.tx.careful, "commit", "begin immediate"):
            connection.execute(sql)
        if w.tx.careful:
            connection.execute("savepoint makegood")
        for collection in (w.groups, w.pairs, w.rows, w.withdraw, w.rests, w.read):
            collection.clear()
        w.groups.update(groups)
        w.rows.update(rows)
        true(w, rest)

    m.setattr(decision_rows.Writing, "write", halved)


@mutant(replace(FAULTS_OF_ALL_KINDS, layout=APART, points={"kill": 0.03}), "place_order")
def acknowledged_before_the_commit(m: pytest.MonkeyPatch) -> None:
    """A message is taken out of the inbox when it is read, before what follows from it is committed."""
    true = slices.TaskSlice.inbox

    async def emptied(store: slices.TaskSlice, node: int, limit: int, room: int, *, at_rest: bool) -> Any:
        inbox = await true(store, node, limit, room, at_rest=at_rest)
        read = [(m.seq, task) for task, messages in inbox.messages.items() for m in messages]
        await store._db.write(partial(_throw_away, read=read))
        return inbox

    m.setattr(slices.TaskSlice, "inbox", emptied)


def _throw_away(tx: Any, *, read: Sequence[tuple[int, int]]) -> None:
    tx.many("delete from makegood_inbox where seq = ? and task = ?", read)


@mutant(replace(FAULTS_OF_ALL_KINDS, points={"ambiguous committed": 0.05}))
def retried_without_looking(m: pytest.MonkeyPatch) -> None:
    """A commit whose answer was lost is taken for undone, and not looked up."""
    m.setattr(store_threads.StoreThread, "_was_written", lambda _line, _failure: False)


# -- time --------------------------------------------------------------------------------------------------------------------


@mutant(
    replace(FAULTS_OF_ALL_KINDS, rates={"clock jump": 4.0}, skew=30.0, messages={}, tasks=6),
    "held",
    twist=aimed("stop", "do before call", 0.3),
    look=called_after_complete_by,
)
def wall_clock(m: pytest.MonkeyPatch) -> None:
    """An agent counts the seconds to its deadline on its wall clock."""
    m.setattr(SimulatedClock, "monotonic", SimulatedClock.wall)


# -- born held ---------------------------------------------------------------------------------------------------------------


@mutant(replace(FAULTS_OF_ALL_KINDS, tasks=12), "place_order", twist=impatient, within=36)
def born_held_not_adopted(m: pytest.MonkeyPatch) -> None:
    """A task that was submitted beside a Scheduler is not taken over when its caller was cancelled meanwhile."""
    true = eager_submission.EagerSubmissions._hold

    def forgets(eager: Any, submission: Any, slots: Any) -> None:
        if submission.answered.done():
            eager._tasks.weights.drop(submission.draft.id)
        else:
            true(eager, submission, slots)

    m.setattr(eager_submission.EagerSubmissions, "_hold", forgets)
    m.setattr(
        first_decision, "opening_decision", lambda _memory: None
    )  # what has begun is found again by its first reply


@mutant(replace(FAULTS_OF_ALL_KINDS, tasks=12, points={}, rates={"outage": 1.0}, pace=1.0), "place_order")
def slots_of_lost_decisions(m: pytest.MonkeyPatch) -> None:
    """A slot that was set aside for a request is not released when the Decision is not written."""
    true = slot_pool.Reservation.__exit__

    def keeps(slots: Any, *error: Any) -> None:
        slots._lent = dict(slots._spare)
        true(slots, *error)

    m.setattr(slot_pool.Reservation, "__exit__", keeps)
