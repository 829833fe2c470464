"""What the leading Supervisor finds and writes, under its term's epoch.

``begin immediate`` lets nobody else write until the commit, so the lease is checked once, at the beginning.
"""

from collections.abc import Sequence

from makegood.election.protocol import Grant
from makegood.errors import FencedOffError
from makegood.model.messages import Alert, TaskMessage
from makegood.model.states import TaskReason
from makegood.store import alerts, rows
from makegood.store.records import Judged
from makegood.store.sqlite.decision_rows import EVENT, draw_ready
from makegood.store.sqlite.requests import leave
from makegood.store.sqlite.transaction import Row, WriteTransaction, are_numbers

_TERM = """
select 1 from makegood_lease where name = ? and nonce = ? and epoch = ? and holder is not null and expires_at > ?
"""

# An excused silence is not counted as a failure, unless the process died rather than stopped in good order.
OVERDUE = """
select r.task, r.idx, r.attempt, r.kind, coalesce(n.dead or n.alive_until <= ?1, 1), s.failure_count,
    not r.excused or coalesce((n.dead or n.alive_until <= ?1) and n.stopped_at is null, 1), r.taken_by, r.taken_at
from makegood_request r
    cross join makegood_step s on s.task = r.task and s.idx = r.idx
    left join makegood_node n on n.id = r.taken_by
where r.complete_by < ?2 and r.answered = 0 and r.kind <> 'timer'
order by r.complete_by limit ?3
"""
_JUDGED = "delete from makegood_request where task = ? and idx = ? and attempt = ?"
_STEP_FAILED = "update makegood_step set failure_count = failure_count + 1 where task = ? and idx = ?"
_TASK_FAILED = "update makegood_task set failure_count = failure_count + 1 where id = ?"

DEAD = """
update makegood_node set dead = 1 where dead = 0 and stopped_at is null and alive_until <= ?
"""
# Holders of locks that are not alive. All holders are listed, with one index lookup for each.
HOLDERS = """
with recursive holder (id) as (
    select min(locked_by) from makegood_task where locked_by is not null
    union all
    select (select min(locked_by) from makegood_task where locked_by > holder.id) from holder where holder.id is not null
)
select holder.id from holder left join makegood_node n on n.id = holder.id
where holder.id is not null and (n.id is null or n.dead or n.stopped_at is not null or n.alive_until <= ?)
"""
HELD_BY = "select id, state from makegood_task where locked_by = ? limit ?"
DEAF = """
select t.id, t.state from makegood_inbox i cross join makegood_task t on t.id = i.task
where i.kind = 'expired' and i.at < ? and t.locked_by is not null
order by i.at limit ?
"""
# A task may have killed its Scheduler only if the dead process was running an attempt of it. Then the request
# still exists or, if its silence was already judged, the message that nobody has read.
_FREE = """
update makegood_task set locked_by = null, failure_count = failure_count + 1, ready_seq = ?,
    lost = lost + (? or exists (
        select 1 from makegood_request r where r.task = makegood_task.id and r.taken_by = makegood_task.locked_by
    ) or exists (
        select 1 from makegood_inbox i where i.task = makegood_task.id and i.kind = 'expired'
            and instr(cast(i.body as text), '"node":' || makegood_task.locked_by || '}')
    )),
    state = case when state in ('processing', 'undoing') then 'pending' else state end
where id = ?
"""

PAST = """
select id from makegood_task
where complete_by < ? and goal = 'forward' and task_expired = 0 and ended_at is null
order by complete_by limit ?
"""
_TOLD = "update makegood_task set task_expired = 1 where id = ?"
LATE_UNDO = "select id from makegood_task where undo_by < ? order by undo_by limit ?"
_UNDO_TOLD = "update makegood_task set undo_by = null where id = ?"

STARVED = """
select r.task, r.idx, r.attempt, s.name, r.agent, r.action
from makegood_request r cross join makegood_step s on s.task = r.task and s.idx = r.idx
where r.sent_at < ? and r.taken_by is null and r.starved = 0 and r.kind <> 'timer'
order by r.sent_at limit ?
"""
_STARVED_TOLD = "update makegood_request set starved = 1 where task = ? and idx = ? and attempt = ?"

NEXT_REQUEST = """
select complete_by from makegood_request
where complete_by is not null and answered = 0 and kind <> 'timer' order by complete_by limit 1
"""
NEXT_TASK = """
select complete_by from makegood_task
where complete_by is not null and goal = 'forward' and task_expired = 0 and ended_at is null
order by complete_by limit 1
"""
NEXT_NODE = """
select alive_until from makegood_node where dead = 0 and stopped_at is null order by alive_until limit 1
"""


def fence(tx: WriteTransaction, term: Grant) -> None:
    """Verify that the term is not over. Raises ``FencedOffError``."""
    if not tx.rows(_TERM, (term.name, term.nonce, term.epoch, tx.now)):
        raise FencedOffError(
            f"the term {term.epoch} of {term.holder} over {term.name!r} is over: nothing was written",
            epoch=term.epoch,
        )


def judge(tx: WriteTransaction, term: Grant, grace: float, limit: int) -> Judged:
    """Judge requests whose deadline passed more than ``grace`` seconds ago without an answer."""
    fence(tx, term)
    overdue_rows = [
        row if are_numbers(row[5]) else (*row[:5], 0, *row[6:])
        for row in tx.rows(OVERDUE, (tx.now, tx.now - grace, limit))
    ]
    keys: list[Row] = [row[:3] for row in overdue_rows]
    failure_keys = [row[:2] for row in overdue_rows if row[6]]
    tx.many(_JUDGED, keys)
    tx.many(_STEP_FAILED, failure_keys)
    tx.many(_TASK_FAILED, [key[:1] for key in failure_keys])
    sums = [(*row[:3], row[5] + row[6]) for row in overdue_rows]
    silent = [
        rows.silent(
            row[:3], row[3], failures, row[8], is_dead=bool(row[4]), is_excused=not row[6], node=row[7]
        )
        for row, (*_, failures) in zip(overdue_rows, sums, strict=True)
    ]
    leave(tx, silent)
    return Judged(sums, full=len(overdue_rows) >= limit)


def release_dead(tx: WriteTransaction, term: Grant, limit: int) -> list[int]:
    """Mark nodes whose heartbeat has expired as dead, and free the tasks of all nodes that are not alive."""
    fence(tx, term)
    tx.run(DEAD, (tx.now,))
    task_rows: list[Row] = []
    for (holder,) in tx.rows(HOLDERS, (tx.now,)):
        task_rows += tx.rows(HELD_BY, (holder, limit - len(task_rows)))
        if len(task_rows) >= limit:
            break
    return _free(tx, task_rows, "scheduler_dead", suspect=False)


def release_deaf(tx: WriteTransaction, term: Grant, older: float, limit: int) -> list[int]:
    """Free tasks whose Scheduler has not processed an ``expired`` message for more than ``older`` seconds."""
    fence(tx, term)
    task_rows = tx.rows(DEAF, (tx.now - older, limit))
    return _free(tx, list(dict.fromkeys(task_rows)), "scheduler_silent", suspect=True)


def _free(tx: WriteTransaction, task_rows: Sequence[Row], reason: TaskReason, *, suspect: bool) -> list[int]:
    """Free tasks; ``suspect``: each of them may be what blocks its Scheduler."""
    if not task_rows:
        return []
    first = draw_ready(tx, len(task_rows))
    tx.many(_FREE, [(first + n, suspect, task) for n, (task, _) in enumerate(task_rows)])
    tx.many(EVENT, [(task, tx.now, None, rows.freed(state, reason), b"") for task, state in task_rows])
    tx.topics.add("pending")
    return [task for task, _ in task_rows]


def expire_tasks(tx: WriteTransaction, term: Grant, limit: int) -> list[int]:
    """Send ``task_expired`` to forward tasks past their deadline, and raise alerts for late undos.

    Once each.
    """
    fence(tx, term)
    past = tx.rows(PAST, (tx.now, limit))
    tx.many(_TOLD, past)
    leave(tx, [(task, TaskMessage("task_expired")) for (task,) in past])
    late = tx.rows(LATE_UNDO, (tx.now, limit))
    tx.many(_UNDO_TOLD, late)
    text = "the undo has not finished within undo_within; it continues"
    undo_alerts = rows.alerts([Alert("late_undo", task, "", text) for (task,) in late])
    tx.do(alerts.raise_, undo_alerts)
    return [task for (task,) in past]


def starved(tx: WriteTransaction, term: Grant, after: float, limit: int, outage: float = 300.0) -> list[int]:
    """Return the tasks of requests that no agent has taken for ``after`` seconds, each request once.

    Raises the alerts for these, and updates the alerts that it watches.
    """
    fence(tx, term)
    starving_requests = tx.rows(STARVED, (tx.now - after, limit))
    tx.many(_STARVED_TOLD, [row[:3] for row in starving_requests])
    living = tx.do(alerts.living) if starving_requests else ()
    starving = rows.starved_alerts([(row[0], *row[3:]) for row in starving_requests], after, living)
    tx.do(alerts.raise_, starving)
    tx.do(alerts.watch, after, limit, outage)
    return [row[0] for row in starving_requests]


def horizon(tx: WriteTransaction, grace: float, most: float) -> float:
    """Return the seconds until something may have to be judged, between 0 and ``most``."""
    times: list[float] = [at + grace for (at,) in tx.rows(NEXT_REQUEST) if are_numbers(at)]
    times += [at for (at,) in tx.rows(NEXT_TASK)]
    times += [at for (at,) in tx.rows(NEXT_NODE)]
    times = [at for at in times if are_numbers(at)]
    return min(most, max(0.0, min(times, default=tx.now + most) - tx.now))
