"""Finding tasks by a filter, and reading one task: its steps, what is in flight, its history."""

from collections.abc import Sequence
from typing import Any, get_args

from msgspec.structs import replace

from makegood.base import ids
from makegood.errors import TaskNotFoundError
from makegood.model.states import TaskState
from makegood.store import rows
from makegood.store.transaction import ReadTx, Sql
from makegood.store.views import EventView, Filter, StepView, TaskDetail, TaskView

COLUMNS = """
id, app, workflow, key, state, goal, submission, priority, cause, failure_count, locked_by, epoch, correlation_id, created_at,
ended_at, complete_by, result
"""
"""The columns of a ``TaskView``."""
# literals, so that the index on tasks in error is used
_STATES = {state: f"state = '{state}'" for state in get_args(TaskState)}
_TASK = Sql(f"select {COLUMNS}, trace, static from makegood.task where id = $1")  # noqa: S608 - our own columns
_STEPS = Sql("""
select idx, kind, name, agent, action, state, attempt, round, failure_count, flags, spec, result, error
from makegood.step where task = $1 order by idx
""")
_REQUESTS = Sql(
    "select idx, kind, attempt, taken_by, complete_by - {now} from makegood.request where task = $1"
)
_ASKED = Sql(f"""
select at, body from makegood.inbox where task = $1 and kind in ({rows.KINDS_OF_ACTS}) order by seq
""")  # noqa: S608 - our own kinds
_HISTORY = Sql(
    "select seq, task, at, node, moves, note, attempts from makegood.event where task = $1 and seq > $2 order by seq"
)


_STEP = "exists (select 1 from makegood.step s where s.task = id and ...)"
_ERROR = (
    f"(strpos(lower(cause), lower(?)) > 0 or {_STEP.replace('...', 'strpos(lower(s.error), lower(?)) > 0')})"
)
_WORD = "select id from makegood.task where id = ?1 union all select id from makegood.task where key = ?2"
FAILING = (
    "(goal = 'forward' and failure_count > 0 and state in ('pending', 'processing') and "
    + _STEP.replace("...", "s.failure_count > 0 and s.state in ('ready', 'running', 'in_doubt')")
    + ")"
)
"""A task with a step that has failed and is retried: failures of steps that are done by now do not count."""
IN_DOUBT = _STEP.replace("...", "s.state = 'in_doubt'")


async def find(tx: ReadTx, wanted: Filter) -> list[TaskView]:
    """Return matching tasks, newest first."""
    where, values = matching(wanted)
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
    where, values = matching(wanted)
    found: int = (await tx.rows(Sql(f"select count(*) from makegood.task where {where}"), *values))[0][0]  # noqa: S608 - our own clauses
    return found


def matching(wanted: Filter, first: Sequence[Any] = ()) -> tuple[str, list[Any]]:
    """Return the conditions of a filter, and their values, which follow the ``first``."""
    clauses = ["true"]
    values = list(first)
    if wanted.states:
        clauses.append("(" + " or ".join(_STATES[state] for state in wanted.states) + ")")
    for compared, value in (
        ("id = any (?::bigint[])", list(wanted.ids) or None),
        ("app = ?", wanted.app),
        ("workflow = ?", wanted.workflow),
        ("key = ?", wanted.key),
        ("id < ?", wanted.before),
        ("created_at <= (select {now}) - ?::float8", wanted.older),
        ("created_at >= (select {now}) - ?::float8", wanted.younger),
        (_STEP.replace("...", "s.name = ?"), wanted.step),
        (_STEP.replace("...", "s.agent = ?"), wanted.agent),
        (_ERROR, wanted.error),
    ):
        if value is not None:
            values.append(value)
            clauses.append(compared.replace("?", f"${len(values)}"))
    if wanted.word is not None:
        values += [_id_of(wanted.word), wanted.word]
        clauses.append(
            f"id in ({_WORD})".replace("?1", f"${len(values) - 1}").replace("?2", f"${len(values)}")
        )
    for column, between in (("failure_count", wanted.failures), ("priority", wanted.priority)):
        if between is not None:
            values += between
            clauses.append(f"{column} between ${len(values) - 1} and ${len(values)}")
    for true, flag in ((FAILING, wanted.failing), (IN_DOUBT, wanted.doubt)):
        if flag is not None:
            clauses.append(true if flag else f"not ({true})")
    return " and ".join(clauses), values


def _id_of(word: str) -> int:
    """Return the task id that a word is, 0 (which no task has) if it is none."""
    try:
        return ids.parse(word)
    except TaskNotFoundError:
        return 0


async def history(tx: ReadTx, task: int, after: int = 0) -> list[EventView]:
    """Return the events of a task in order."""
    return [rows.event(row) for row in await tx.rows(_HISTORY, task, after)]


async def detail(tx: ReadTx, plans: rows.Interner, task: int, *, asked: bool = False) -> TaskDetail | None:
    """Return one task with its steps and its requests in flight; None if it does not exist.

    ``tx`` must see one moment. ``asked``: also return the operator commands that are not yet decided.
    """
    found = await tx.rows(_TASK, task)
    if not found:
        return None
    *columns, trace, static = found[0]
    requests: dict[int, Sequence[Any]] = {}
    timers: dict[int, Sequence[Any]] = {}
    for idx, *request in await tx.rows(_REQUESTS, task):
        (timers if request[0] == "timer" else requests)[idx] = request
    unreadable: list[str] = []
    steps = [
        _step(plans, row, requests.get(row[0]), timers.get(row[0]), unreadable)
        for row in await tx.rows(_STEPS, task)
    ]
    inputs, returns, reply = rows.seen(rows.read_static, static, rows.INPUTS, unreadable) or ((), None, None)
    to = None if reply is None else reply.to
    acts = rows.asked(await tx.rows(_ASKED, task), unreadable) if asked else ()
    return TaskDetail(task_view(columns), steps, inputs, to, tuple(unreadable), acts, returns, trace)


def _step(
    plans: rows.Interner,
    row: Sequence[Any],
    request: Sequence[Any] | None,
    timer: Sequence[Any] | None,
    unreadable: list[str],
) -> StepView:
    idx, kind, name, agent, action, state, attempt, round_, failures, flags, spec, result, error = row
    if not isinstance(flags, int):  # SQLite also stores texts in number columns, if somebody writes one
        unreadable.append(f"the row of step {name} is unreadable: its flags are not a number")
        flags = 0
    plan = rows.seen(plans.plan, spec, f"what step {name} declares (column spec of its row)", unreadable)
    doing, sent, taken_by, due = request or (None, None, None, None)
    if isinstance(sent, int) and isinstance(attempt, int) and sent > attempt:  # its first dispatch
        state, attempt = "running", sent
    if due is None and timer is not None:
        due = timer[-1]
    return StepView(
        idx, kind, name, agent, action, state, attempt, round_, failures, bool(flags & rows.DOUBT),
        plan is None or (plan.policy is not None and plan.policy.undoable), result, error, doing, timer is not None, taken_by,
        due, plan, bool(flags & rows.STOOD),
    )  # fmt: skip
