"""Finding tasks by a filter, and reading a task's history."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from makegood.store import rows
from makegood.store.transaction import ReadTx, Sql
from makegood.store.views import EventView, Filter, TaskView

COLUMNS = """
id, app, workflow, key, state, goal, submission, priority, cause, failure_count, locked_by, epoch, correlation_id, created_at,
ended_at, complete_by, result
"""
"""The columns of a ``TaskView``."""
_STATES = {
    "pending": "state = 'pending'",
    "processing": "state = 'processing'",
    "processed": "state = 'processed'",
    "undoing": "state = 'undoing'",
    "undone": "state = 'undone'",
    "error": "state = 'error'",  # a literal, so that the index on tasks in error is used
}
_HISTORY = Sql(
    "select seq, task, at, node, moves, note from makegood.event where task = $1 and seq > $2 order by seq"
)


async def find(tx: ReadTx, wanted: Filter) -> list[TaskView]:
    """Return matching tasks, newest first."""
    where, values = _matching(wanted)
    values.append(wanted.limit)
    sql = Sql(f"select {COLUMNS} from makegood.task where {where} order by id desc limit ${len(values)}")  # noqa: S608 - our own clauses
    return [task_view(row) for row in await tx.rows(sql, *values)]


def task_view(row: Sequence[Any]) -> TaskView:
    """Return a task as people see it; omit a time that is not a number, which only
    foreign SQL can have written.
    """
    view = TaskView(*row)
    moments = (view.created, view.ended, view.complete_by)
    if all(moment is None or isinstance(moment, int | float) for moment in moments):
        return view
    created, ended, complete_by = (moment if isinstance(moment, int | float) else None for moment in moments)
    return replace(view, created=created or 0.0, ended=ended, complete_by=complete_by)


async def count(tx: ReadTx, wanted: Filter) -> int:
    """Return the number of matching tasks."""
    where, values = _matching(wanted)
    found: int = (await tx.rows(Sql(f"select count(*) from makegood.task where {where}"), *values))[0][0]  # noqa: S608 - our own clauses
    return found


def _matching(wanted: Filter) -> tuple[str, list[Any]]:
    clauses = ["true"]
    values: list[Any] = []
    if wanted.states:
        clauses.append("(" + " or ".join(_STATES[state] for state in wanted.states) + ")")
    for compared, value in (
        ("id = any (?::bigint[])", list(wanted.ids) or None),
        ("app = ?", wanted.app),
        ("workflow = ?", wanted.workflow),
        ("key = ?", wanted.key),
        ("id < ?", wanted.before),
        ("created_at <= {now} - ?::float8", wanted.older),
        ("created_at >= {now} - ?::float8", wanted.younger),
    ):
        if value is not None:
            values.append(value)
            clauses.append(compared.replace("?", f"${len(values)}"))
    return " and ".join(clauses), values


async def history(tx: ReadTx, task: int, after: int = 0) -> list[EventView]:
    """Return the events of a task in order."""
    return [rows.event(row) for row in await tx.rows(_HISTORY, task, after)]
