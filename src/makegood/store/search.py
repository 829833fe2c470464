"""Finding tasks by a filter, and reading one task: its steps, what is in flight, its history."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, get_args

from makegood.base import ids
from makegood.base.service_keys import SHORTEST, task_of
from makegood.base.stored_values import record_of, text
from makegood.errors import TaskNotFoundError
from makegood.model.attributes import LONGEST_INDEXED, LONGEST_NAME, LONGEST_VALUE, MOST, Attribute, text_of
from makegood.model.states import TaskState
from makegood.store import lane_lists, rows, signals
from makegood.store.transaction import ReadTx, Sql
from makegood.store.views import EventView, Exact, Filter, Prefix, StepView, TaskDetail, TaskView

LISTED = """
id, app, workflow, key, state, goal, submission, priority, cause, failure_count, locked_by, epoch, correlation_id, created_at,
ended_at, complete_by, start_at, start_wall
"""
"""The columns of a ``TaskView`` in a list: without the result, which may be large."""
STEP_COLUMNS = "idx, kind, name, agent, action, state, attempt, round, failure_count, flags, spec, result, error, first_sent"
HAS_ATTRIBUTES = "exists (select 1 from makegood.attribute where task = $1)"
HAS_SIGNALS = "exists (select 1 from makegood.signal where task = $1)"
_ATTRIBUTES = Sql(f"""
select substr(name, 1, {LONGEST_NAME}), substr(value, 1, {LONGEST_VALUE}) from makegood.attribute where task = $1 order by 1 limit {MOST}
""")  # noqa: S608 - our own numbers
# literals, so that the index on tasks in error is used
_STATES = {state: f"state = '{state}'" for state in get_args(TaskState)}
_TASK = Sql(f"""
select {LISTED}, result, trace, static, (select store_id from makegood.generation), {{now}}, {HAS_ATTRIBUTES}, {HAS_SIGNALS}
from makegood.task where id = $1
""")  # noqa: S608 - our own columns
_STORE = Sql("select store_id from makegood.generation")
_STEPS = Sql(f"select {STEP_COLUMNS} from makegood.step where task = $1 order by idx")  # noqa: S608 - our own columns
_REQUESTS = Sql(
    "select idx, kind, attempt, taken_by, complete_by - {now}, taken_at from makegood.request where task = $1"
)
ASKED = Sql(f"""
select at, body from makegood.inbox where task = $1 and kind in ({rows.KINDS_OF_ACTS}) order by seq
""")  # noqa: S608 - our own kinds
_HISTORY = Sql(f"select {rows.EVENT_COLUMNS} from makegood.event where task = $1 and seq > $2 order by seq")  # noqa: S608 - our own columns


_STEP = "exists (select 1 from makegood.step s where s.task = id and ...)"
_ERROR = (
    f"(strpos(lower(cause), lower(?)) > 0 or {_STEP.replace('...', 'strpos(lower(s.error), lower(?)) > 0')})"
)
# "between" is a prefix: these columns compare byte by byte, and nothing follows the highest character.
_HIGHEST = "\U0010ffff" * LONGEST_INDEXED
_WORD = "select id from makegood.task where id = ?1 union all select id from makegood.task where key = ?2"
FAILING = (
    "(goal = 'forward' and failure_count > 0 and state in ('pending', 'sleeping', 'queued', 'processing') and "
    + _STEP.replace("...", "s.failure_count > 0 and s.state in ('ready', 'running', 'in_doubt')")
    + ")"
)
"""A task with a step that has failed and is retried: failures of steps that are done by now do not count."""
IN_DOUBT = _STEP.replace("...", "s.state = 'in_doubt'")


def task_view(row: Sequence[Any]) -> TaskView:
    """Return a task as people see it."""
    return record_of(TaskView, row)


def unknown_values(view: TaskView) -> list[str]:
    """Return, in words, which of a task's states this version does not know."""
    return [
        f"the task has a {field} that this version does not know: {value!r:.40}"
        for field, value, domain in (("state", view.state, _STATES), ("goal", view.goal, rows.GOALS))
        if value not in domain
    ]


async def resolve_word(tx: ReadTx, condition: Filter) -> Filter:
    """Return a filter whose word is the id of a task, if it was an idempotency key of one."""
    word = condition.word
    if word is None or len(word) < SHORTEST:
        return condition
    ((store_id,),) = await tx.rows(_STORE)
    task = task_of(store_id, word)
    return condition if task is None else dataclasses.replace(condition, word=ids.show(task))


def _span(pattern: Attribute | Prefix | Exact) -> tuple[str, str]:
    """Return the first and the last text that a pattern means."""
    match pattern:
        case Prefix(text=text):
            return text, text + _HIGHEST
        case Exact(text=text):
            return text, text
        case _:
            return text_of(pattern), text_of(pattern)


def _texts(condition: Filter) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the conditions of a filter that have an index of their own, and their values.

    Each is a subquery that is read first, of a range, in the order of its index: so no other index ever
    seems better to a database, be it because the tables were small when it made its plan.
    """
    for column, pattern in (("key", condition.key), ("correlation_id", condition.correlation_id)):
        if pattern is not None:
            sql = f"select id from makegood.task where {column} between ? and ? order by {column}"  # noqa: S608 - our own columns
            yield f"id = any (array({sql}))", _span(pattern)
    if condition.lane is not None:
        sql = "select task from makegood.lane where name between ? and ? order by name"
        yield f"id = any (array({sql}))", _span(condition.lane)
    for name, value in (condition.attributes or {}).items():
        sql = "select task from makegood.attribute where name = ? and value between ? and ? order by value"
        yield f"id = any (array({sql}))", (name, *_span(value))


def matching(condition: Filter, first: Sequence[Any] = ()) -> tuple[str, list[Any]]:
    """Return the conditions of a filter, and their values, which follow the ``first``."""
    clauses = ["true"]
    values = list(first)
    if condition.states:
        clauses.append("(" + " or ".join(_STATES[state] for state in condition.states) + ")")
    for clause, value in (
        ("id = any (?::bigint[])", list(condition.ids) or None),
        ("app = ?", condition.app),
        ("workflow = ?", condition.workflow),
        ("id < ?", condition.before),
        ("created_at <= (select {now}) - ?::float8", condition.older),
        ("created_at >= (select {now}) - ?::float8", condition.younger),
        (_STEP.replace("...", "s.name = ?"), condition.step),
        (_STEP.replace("...", "s.agent = ?"), condition.agent),
        (_STEP.replace("...", "s.kind = 'wait_for' and s.state = 'ready' and s.action = ?"), condition.waits),
        (_ERROR, condition.error),
    ):
        if value is not None:
            values.append(value)
            clauses.append(clause.replace("?", f"${len(values)}"))
    for clause, texts in _texts(condition):
        for value_text in texts:
            values.append(value_text)
            clause = clause.replace("?", f"${len(values)}", 1)  # noqa: PLW2901 - one by one
        clauses.append(clause)
    if condition.word is not None:
        values += [_id_of(condition.word), condition.word]
        clauses.append(
            f"id in ({_WORD})".replace("?1", f"${len(values) - 1}").replace("?2", f"${len(values)}")
        )
    for column, between in (("failure_count", condition.failures), ("priority", condition.priority)):
        if between is not None:
            values += between
            clauses.append(f"{column} between ${len(values) - 1} and ${len(values)}")
    for true, flag in ((FAILING, condition.failing), (IN_DOUBT, condition.doubt)):
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
    """Return the events of a task with a sequence above ``after``, in order."""
    return [rows.event(row) for row in await tx.rows(_HISTORY, task, after)]


async def detail(
    tx: ReadTx, plans: rows.Interner, task: int, *, with_asked: bool = False
) -> TaskDetail | None:
    """Return one task with its steps and its requests in flight; None if it does not exist.

    ``tx`` must see one moment. ``with_asked``: also return the operator commands that are not yet decided.
    """
    records = await tx.rows(_TASK, task)
    if not records:
        return None
    *columns, trace, static, store_id, now, has_attributes, has_signals = records[0]
    requests = await tx.rows(_REQUESTS, task)
    unreadable: list[str] = []
    steps = step_views(plans, await tx.rows(_STEPS, task), requests, unreadable)
    inputs, returns, reply, names = rows.try_read_static(static, unreadable)
    to = None if reply is None else reply.to
    view = task_view(columns)
    unreadable += unknown_values(view)
    acts = rows.operator_commands(await tx.rows(ASKED, task), unreadable) if with_asked else ()
    labels = await attributes(tx, task) if has_attributes else {}
    signal_views = await signals.views(tx, task) if has_signals else ()
    lanes = await lane_lists.of_task(tx, task) if rows.may_have_lanes(static) else ()
    return TaskDetail(
        view, steps, inputs, to, tuple(unreadable), acts, returns, trace, store_id, now, names, labels, None, signal_views, rows.signals_of(static) or {}, lanes,
    )  # fmt: skip


async def attributes(tx: ReadTx, task: int) -> dict[str, str]:
    """Return the attributes of a task, by name."""
    return {text(name): text(value) for name, value in await tx.rows(_ATTRIBUTES, task)}


def step_views(
    plans: rows.Interner, steps: Iterable[Sequence[Any]], requests: Iterable[Any], unreadable: list[str]
) -> list[StepView]:
    """Return steps as people see them: rows of ``STEP_COLUMNS``, with the requests that are in flight."""
    dispatches: dict[int, Sequence[Any]] = {}
    timers: dict[int, Sequence[Any]] = {}
    for idx, *request in requests:
        (timers if request[0] == "timer" else dispatches)[idx] = request
    return [_step_view(plans, row, dispatches.get(row[0]), timers.get(row[0]), unreadable) for row in steps]


def _step_view(
    plans: rows.Interner,
    row: Sequence[Any],
    request: Sequence[Any] | None,
    timer: Sequence[Any] | None,
    unreadable: list[str],
) -> StepView:
    (
        idx,
        kind,
        name,
        agent,
        action,
        state,
        attempt,
        round_,
        failures,
        flags,
        spec,
        result,
        error,
        first_sent,
    ) = row
    if not isinstance(flags, int):  # SQLite also stores texts in number columns, if somebody writes one
        unreadable.append(f"the row of step {name} is unreadable: its flags are not a number")
        flags = 0
    subject = f"what step {name} declares (column spec of its row)"
    plan = None if spec is None else rows.try_read(plans.plan, spec, subject, unreadable)
    if plan is not None and not (plan.idx == idx and max(plan.of, plan.item_of) < idx):
        unreadable.append(f"step {name} declares to be another step, or a part of a later one")
        plan = None
    if state not in rows.STEP_STATES:
        unreadable.append(f"step {name} is in a state that this version does not know: {state!r:.40}")
    doing, dispatch, taken_by, due, taken_at = request or (None, None, None, None, None)
    if isinstance(dispatch, int) and isinstance(attempt, int) and dispatch > attempt:  # its first dispatch
        state, attempt = "running", dispatch
    if due is None and timer is not None:
        due = timer[3]
    return record_of(StepView, (
        idx, kind, name, agent, action, state, attempt, round_, failures, bool(flags & rows.DOUBT),
        plan is None or (plan.policy is not None and plan.policy.undoable), result, error, doing, timer is not None, taken_by,
        due, plan, bool(flags & rows.STOOD), taken_at if first_sent is None and doing != "probe" else first_sent,
        bool(flags & rows.LOSER), taken_at,
    ))  # fmt: skip
