"""Reads for people and handles: one task, its steps, what is in flight."""

from makegood.store import rows
from makegood.store.postgres.connection import Connection
from makegood.store.postgres.transaction import Row
from makegood.store.rows import Interner
from makegood.store.search import COLUMNS, task_view
from makegood.store.views import StepView, TaskDetail

_NOW = "extract(epoch from clock_timestamp())::float8"
_TASK = f"select {COLUMNS}, static from makegood.task where id = $1"  # noqa: S608 - our own columns
_STEPS = """
select idx, kind, name, agent, action, state, attempt, round, failure_count, flags, spec, result, error
from makegood.step where task = $1 order by idx
"""
_REQUESTS = """
select idx, kind, attempt, taken_by, complete_by - extract(epoch from clock_timestamp())::float8 as due from makegood.request where task = $1
"""
_ASKED = f"""
select at, body from makegood.inbox where task = $1 and kind in ({rows.KINDS_OF_ACTS}) order by seq
"""  # noqa: S608 - our own kinds


async def detail(
    connection: Connection, plans: Interner, task: int, *, asked: bool = False
) -> TaskDetail | None:
    """Return one task with its steps and requests in flight, as of one moment; ``asked``: and
    undecided operator commands.
    """
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        found = await connection.fetchrow(_TASK, task)
        if found is None:
            return None
        requests: dict[int, Row] = {}
        timers: dict[int, Row] = {}
        for row in await connection.fetch(_REQUESTS, task):
            (timers if row["kind"] == "timer" else requests)[row["idx"]] = row
        unreadable: list[str] = []
        steps = [
            _step(plans, row, requests.get(row["idx"]), timers.get(row["idx"]), unreadable)
            for row in await connection.fetch(_STEPS, task)
        ]
        acts = rows.asked(await connection.fetch(_ASKED, task), unreadable) if asked else ()
    *columns, static = found
    inputs, returns, reply = rows.seen(rows.read_static, static, rows.INPUTS, unreadable) or ((), None, None)
    to = None if reply is None else reply.to
    return TaskDetail(task_view(columns), steps, inputs, to, tuple(unreadable), acts, returns)


def _step(
    plans: Interner, row: Row, request: Row | None, timer: Row | None, unreadable: list[str]
) -> StepView:
    idx, kind, name, agent, action, state, attempt, round_, failures, flags, spec, result, error = row
    plan = rows.seen(plans.plan, spec, f"what step {name} declares (column spec of its row)", unreadable)
    due = None
    if request is not None:
        due = request["due"]
        if request["attempt"] > attempt:  # its first dispatch
            state, attempt = "running", request["attempt"]
    if due is None and timer is not None:
        due = timer["due"]
    return StepView(
        idx, kind, name, agent, action, state, attempt, round_, failures, bool(flags & rows.DOUBT),
        plan is None or (plan.policy is not None and plan.policy.undoable), result, error,
        request["kind"] if request is not None else None, timer is not None,
        request["taken_by"] if request is not None else None, due, plan, bool(flags & rows.STOOD),
    )  # fmt: skip
