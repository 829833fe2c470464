"""What people and handles read: tasks, their steps, their history."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from makegood.store import rows
from makegood.store.sqlite.transaction import Row, Transaction, are_numbers
from makegood.store.views import EventView, Filter, StepView, TaskDetail, TaskView

_COLUMNS = """
id, app, workflow, key, state, goal, submission, priority, cause, failure_count, locked_by, epoch, correlation_id, created_at,
ended_at, complete_by, result
"""
_STATES = {
    "pending": "state = 'pending'",
    "processing": "state = 'processing'",
    "processed": "state = 'processed'",
    "undoing": "state = 'undoing'",
    "undone": "state = 'undone'",
    "error": "state = 'error'",  # written out, so that the index on tasks in error is used
}
_TASK = f"select {_COLUMNS}, static from makegood_task where id = ?"  # noqa: S608 - our own columns
_STEPS = """
select s.idx, s.kind, s.name, s.agent, s.action, s.state, s.attempt, s.round, s.failure_count, s.flags, s.spec, s.result, s.error
from makegood_step s where s.task = ? order by s.idx
"""
_REQUESTS = "select idx, kind, taken_by, complete_by from makegood_request where task = ?"
_ASKED = f"""
select at, body from makegood_inbox where task = ? and kind in ({rows.KINDS_OF_ACTS}) order by seq
"""  # noqa: S608 - our own kinds
_HISTORY = (
    "select seq, task, at, node, moves, note from makegood_event where task = ? and seq > ? order by seq"
)


def find(tx: Transaction, wanted: Filter) -> list[TaskView]:
    """Return tasks that match, newest first."""
    where, values = _matching(tx, wanted)
    sql = f"select {_COLUMNS} from makegood_task where {where} order by id desc limit ?"  # noqa: S608 - our own clauses
    return [_view(row) for row in tx.rows(sql, (*values, wanted.limit))]


def _view(row: Sequence[Any]) -> TaskView:
    """Return a task as people see it; a moment that is not a number, which only SQL of somebody can have written, is left out."""
    view = TaskView(*row)
    return replace(
        view,
        created=_moment(view.created) or 0.0,
        ended=_moment(view.ended),
        complete_by=_moment(view.complete_by),
    )


def _moment(value: object) -> float | None:
    return value if isinstance(value, int | float) else None


def count(tx: Transaction, wanted: Filter) -> int:
    """Return how many tasks match."""
    where, values = _matching(tx, wanted)
    found: int = tx.rows(f"select count(*) from makegood_task where {where}", values)[0][0]  # noqa: S608 - our own clauses
    return found


def _matching(tx: Transaction, wanted: Filter) -> tuple[str, list[object]]:
    clauses: list[str] = ["1 = 1"]
    values: list[object] = []
    if wanted.ids:
        marks = ",".join("?" * len(wanted.ids))
        clauses.append(f"id in ({marks})")
        values += wanted.ids
    if wanted.states:
        clauses.append("(" + " or ".join(_STATES[state] for state in wanted.states) + ")")
    for column, value in (("app", wanted.app), ("workflow", wanted.workflow), ("key", wanted.key)):
        if value is not None:
            clauses.append(f"{column} = ?")
            values.append(value)
    for compared, number in (
        ("id < ?", wanted.before),
        ("created_at <= ?", None if wanted.older is None else tx.now - wanted.older),
        ("created_at >= ?", None if wanted.younger is None else tx.now - wanted.younger),
    ):
        if number is not None:
            clauses.append(compared)
            values.append(number)
    return " and ".join(clauses), values


def detail(tx: Transaction, task: int, *, asked: bool = False) -> TaskDetail | None:
    """Return one task with its steps and what is in flight of it; ``asked``: and the acts that are not decided."""
    found = tx.rows(_TASK, (task,))
    if not found:
        return None
    *columns, static = found[0]
    requests: dict[int, Row] = {}
    timers: dict[int, float] = {}
    for idx, kind, taken_by, complete_by in tx.rows(_REQUESTS, (task,)):
        if kind == "timer":
            timers[idx] = complete_by
        else:
            requests[idx] = (kind, taken_by, complete_by)
    steps: list[StepView] = []
    unreadable: list[str] = []
    for (
        idx, kind, name, agent, action, state, attempt, round_, failures, flags, spec, result, error,
    ) in tx.rows(_STEPS, (task,)):  # fmt: skip
        if not are_numbers(flags):
            unreadable.append(f"the row of step {name} does not read: its flags are no number")
        known = flags if are_numbers(flags) else 0
        doing, taken_by, complete_by = requests.get(idx, (None, None, None))
        until = timers.get(idx) if complete_by is None else complete_by
        plan = rows.seen(
            tx.plans.plan, spec, f"what step {name} declares (column spec of its row)", unreadable
        )
        steps.append(
            StepView(
                idx, kind, name, agent, action, state, attempt, round_, failures, bool(known & rows.DOUBT),
                plan is None or (plan.policy is not None and plan.policy.undoable), result, error, doing, idx in timers, taken_by,
                until - tx.now if until is not None and are_numbers(until) else None, plan, bool(known & rows.STOOD),
            )
        )  # fmt: skip
    inputs, returns, reply = rows.seen(rows.read_static, static, rows.INPUTS, unreadable) or ((), None, None)
    to = None if reply is None else reply.to
    acts = rows.asked(tx.rows(_ASKED, (task,)), unreadable) if asked else ()
    return TaskDetail(_view(columns), steps, inputs, to, tuple(unreadable), acts, returns)


def history(tx: Transaction, task: int, after: int) -> list[EventView]:
    """Return the events of a task in order."""
    return [rows.event(row) for row in tx.rows(_HISTORY, (task, after))]
