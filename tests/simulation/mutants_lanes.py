"""Mutants of lanes."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from makegood.model.messages import TaskMessage
from makegood.model.states import ENDED
from makegood.saga import acts, undo
from makegood.store import lanes
from makegood.store.transaction import Sql
from tests.simulation.mutants_making import mutant
from tests.simulation.mutants_worlds import FAULTS_OF_ALL_KINDS, UNDOING

LANED = replace(FAULTS_OF_ALL_KINDS, tasks=10, laned=1.0)
"""A little of everything, and every task has lanes."""
IN_ERROR = replace(
    UNDOING,
    tasks=10,
    laned=1.0,
    rates={"operator": 1.0},
    services={"service refuses": 0.3, "service fails": 0.5},
)
"""Tasks with lanes end in error, and an operator acts on them."""

CROWDED = replace(LANED, tasks=20, pace=0.5, storm=20.0, services={"service refuses": 0.5})
"""Tasks of all kinds of lanes come to rest in error, and nobody acts on them."""


def rewrite(m: pytest.MonkeyPatch, name: str, old: str, new: str) -> None:
    """Change the text of a statement."""
    sql: Sql = getattr(lanes, name)
    assert old in sql.sqlite
    other = Sql(sql.postgres, sql.sqlite.replace(old, new))
    other.needs_now, other.sqlite = sql.needs_now, sql.sqlite.replace(old, new)
    m.setattr(lanes, name, other)


@mutant(LANED)
def lane_holders_ignored(m: pytest.MonkeyPatch) -> None:
    """A claim does not count the tasks that have the lane."""
    rewrite(m, "LAST", "h.state = 'held'", "h.state = '?'")


@mutant(LANED)
def lane_order_ignored(m: pytest.MonkeyPatch) -> None:
    """A claim does not count the tasks that wait before another one."""
    rewrite(m, "LAST", "w.state = 'waiting'", "w.state = '?'")


@mutant(LANED)
def lane_holders_overlooked(m: pytest.MonkeyPatch) -> None:
    """A claim takes a lane for free that somebody holds."""
    rewrite(m, "TAKEN", "h.state = 'held'", "h.state = '?'")


@mutant(LANED)
def lane_order_overlooked(m: pytest.MonkeyPatch) -> None:
    """A claim takes a lane for free in which others wait before the task."""
    rewrite(m, "TAKEN", "w.state = 'waiting'", "w.state = '?'")


@mutant(LANED)
def lane_read_too_early(m: pytest.MonkeyPatch) -> None:
    """A claim takes lanes for free that were so the time before."""
    true = lanes.admit
    earlier: set[tuple[str, str]] = set()

    class Early:
        """A transaction that reads lanes as they were."""

        def __init__(self, tx: Any) -> None:
            self._tx = tx

        def __getattr__(self, name: str) -> Any:
            return getattr(self._tx, name)

        async def rows(self, sql: Sql, *values: Any) -> Any:
            rows_now = await self._tx.rows(sql, *values)
            if sql is not lanes.TAKEN:
                return rows_now
            stale = [row for row in rows_now if (row[1], row[2]) in earlier]
            earlier.clear()
            earlier.update((row[1], row[2]) for row in rows_now)
            return stale

    async def admit(tx: Any, tasks: Sequence[int]) -> lanes.Admitted:
        return await true(Early(tx), tasks)

    m.setattr(lanes, "admit", admit)


@mutant(LANED)
def lane_kept_by_the_ended(m: pytest.MonkeyPatch) -> None:
    """A task that has ended keeps its lanes."""
    true = lanes.place_of
    m.setattr(
        lanes,
        "place_of",
        lambda state, place: place if state in ("processed", "undone") else true(state, place),
    )


@mutant(IN_ERROR)
def error_releases_its_lanes(m: pytest.MonkeyPatch) -> None:
    """A task in error gives up its lanes."""
    m.setattr(lanes, "ENDED", {*ENDED, "error"})


@mutant(LANED)
def nobody_unparked(m: pytest.MonkeyPatch) -> None:
    """The end of a task makes no other one look again."""
    rewrite(m, "UNPARK", "= 'queued'", "= '?'")


@mutant(LANED)
def lanes_one_by_one(m: pytest.MonkeyPatch) -> None:
    """A task takes the first of its lanes, and the others later."""
    first = "and l.name = (select min(o.name) from makegood.lane o where o.task = l.task) order by"
    m.setattr(lanes, "TAKEN", Sql(lanes.TAKEN.postgres.replace("order by", first)))


@mutant(IN_ERROR)
def resubmit_passes_the_queue(m: pytest.MonkeyPatch) -> None:
    """A task without lanes that is resubmitted, or undone again, goes at once."""
    for module in (acts, undo):
        m.setattr(module.rules, "waits_for_lanes", lambda _task: False)


@mutant(CROWDED)
def lane_overrides_the_operator(m: pytest.MonkeyPatch) -> None:
    """A task that cancels for its lane has a task in error undone too."""
    m.setattr(lanes, "TaskMessage", lambda kind, *, act, automatic: TaskMessage(kind, act=act))  # noqa: ARG005


@mutant(IN_ERROR)
def release_keeps_its_lanes(m: pytest.MonkeyPatch) -> None:
    """A release leaves the task its places."""
    true = lanes.movers
    m.setattr(lanes, "movers", lambda decisions: [d for d in true(decisions) if not d.frees_lanes])
