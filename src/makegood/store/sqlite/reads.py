"""Reads a task with its steps, for people and handles."""

from makegood.store import rows
from makegood.store.search import COLUMNS, task_view
from makegood.store.sqlite.transaction import Row, WriteTransaction, are_numbers
from makegood.store.views import StepView, TaskDetail

_TASK = f"select {COLUMNS}, static from makegood_task where id = ?"  # noqa: S608 - our own columns
_STEPS = """
select s.idx, s.kind, s.name, s.agent, s.action, s.state, s.attempt, s.round, s.failure_count, s.flags, s.spec, s.result, s.error
from makegood_step s where s.task = ? order by s.idx
"""
_REQUESTS = "select idx, kind, taken_by, complete_by from makegood_request where task = ?"
_ASKED = f"""
select at, body from makegood_inbox where task = ? and kind in ({rows.KINDS_OF_ACTS}) order by seq
"""  # noqa: S608 - our own kinds


def detail(tx: WriteTransaction, task: int, *, asked: bool = False) -> TaskDetail | None:
    """Return one task with its steps and its requests in flight; None if it does not exist.

    ``asked``: also return the operators' acts that are not yet decided.
    """
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
    return TaskDetail(task_view(columns), steps, inputs, to, tuple(unreadable), acts, returns)
