"""What the leading Supervisor finds and writes, under its term's epoch.

Each function is an explicit transaction. Its last statement locks the lease row FOR SHARE, so that no other
term can begin before the commit. Tasks are locked first and in order, as in a Scheduler's commit. The
Supervisor waits for a task that a commit has locked. If that takes longer than the lock timeout, it skips
locked tasks and finds them in the next pass, so a stuck transaction does not hold it up.
"""

import logging
from collections.abc import Collection, Sequence
from typing import Any

from makegood.base.ids import show
from makegood.model.messages import Alert, TaskMessage
from makegood.model.states import TaskReason
from makegood.store import rows
from makegood.store.alerts import living, raise_, watch
from makegood.store.postgres.connection import Connection
from makegood.store.postgres.decision_rows import columns
from makegood.store.postgres.errors import is_data
from makegood.store.postgres.requests import leave
from makegood.store.postgres.scan_floors import Floors
from makegood.store.postgres.transaction import Row, WriteTransaction
from makegood.store.records import Judged

log = logging.getLogger("makegood.store")

REQUESTS, TASKS = "requests past complete-by", "tasks past complete-by"
HOLD, WAIT = "tasks of the dead", "what nobody takes"
"""What the Supervisor reads all the time.

The first two are found by their time, from floors. The other two rest when they become expensive.
"""

_CLOCK = "(select extract(epoch from clock_timestamp())::float8)"

# Returns at least one row, which says how far it has read.
OVERDUE = f"""
select r.task, r.idx, r.attempt, r.complete_by, c.now - $1::float8 as until from {_CLOCK} as c (now) left join lateral (
    select task, idx, attempt, complete_by from makegood.request
    where complete_by > $3::float8 and complete_by < c.now - $1::float8 and kind <> 'timer' and not answered
    order by complete_by limit $2
) r on true
"""  # noqa: S608 - our own text
_THESE = "select id, state from makegood.task where id = any ($1::bigint[])"
_IN_ORDER = "order by id for no key update"
_LOCK = f"{_THESE} {_IN_ORDER}"
# An agent's transaction may hold its own request.
_UNLOCKED = """
select r.task, r.idx, r.attempt from unnest($1::bigint[], $2::int[], $3::int[]) as x (task, idx, attempt)
    join makegood.request r on (r.task, r.idx, r.attempt) between (x.task, x.idx, x.attempt) and (x.task, x.idx, x.attempt)
for update of r skip locked
"""
# An excused silence does not count as a failure, unless the process died (and was not stopped cleanly).
JUDGE = """
with gone as (
    delete from makegood.request r using unnest($1::bigint[], $2::int[], $3::int[]) as x (task, idx, attempt)
    where (r.task, r.idx, r.attempt) between (x.task, x.idx, x.attempt) and (x.task, x.idx, x.attempt)
        and r.kind <> 'timer' and not r.answered
        and coalesce(r.complete_by, 'infinity') < extract(epoch from clock_timestamp())::float8 - $4::float8
    returning r.task, r.idx, r.attempt, r.kind, r.excused, r.taken_by, r.taken_at
),
seen as (
    select gone.*, coalesce(n.died, true) as died, not gone.excused or coalesce(n.died and n.stopped_at is null, true) as counts
    from gone left join lateral (
        select n.dead or n.alive_until <= extract(epoch from clock_timestamp())::float8 as died, n.stopped_at
        from makegood.node n where n.id = gone.taken_by
    ) n on true
),
failed as (
    update makegood.task t set failure_count = t.failure_count + g.n
    from (select task, count(*) as n from seen where counts group by task) g where t.id between g.task and g.task
)
update makegood.step s set failure_count = s.failure_count + seen.counts::int, attempt = seen.attempt,
    state = case when s.attempt < seen.attempt then 'running' else s.state end
from seen where (s.task, s.idx) between (seen.task, seen.idx) and (seen.task, seen.idx)
returning s.task, s.idx, seen.attempt, seen.kind, s.failure_count as failures, seen.died, not seen.counts, seen.taken_by, seen.taken_at
"""

_DEAD = """
update makegood.node set dead = true where id in (
    select id from makegood.node
    where not dead and stopped_at is null and alive_until <= extract(epoch from clock_timestamp())::float8
    for no key update skip locked -- whoever may write its own row must not hold up the others
)
returning id
"""
_LIVES = """coalesce((
    select not n.dead and n.stopped_at is null and n.alive_until > extract(epoch from clock_timestamp())::float8
    from makegood.node n where n.id = holder.id
), false)"""
# Finds the holders of locks, one step through the index for each, and which of them are dead.
HOLDERS = f"""
with recursive holder (id) as (
    (select locked_by from makegood.task where locked_by is not null order by locked_by limit 1)
    union all
    select (select t.locked_by from makegood.task t where t.locked_by > holder.id order by t.locked_by limit 1)
    from holder where holder.id is not null
)
select holder.id from holder
where holder.id is not null and not {_LIVES}
"""  # noqa: S608 - our own text
_GONE = f"select holder.id from unnest($1::bigint[]) as holder (id) where not {_LIVES} order by id"  # noqa: S608 - our own text
HELD_BY = "select id from makegood.task where locked_by = any ($1::bigint[]) limit $2"
_LOCK_HELD = f"{_THESE} and coalesce(locked_by, 0) = any ($2::bigint[]) {_IN_ORDER}"
DEAF = f"""
select distinct task from (
    select task from makegood.inbox where kind = 'expired' and at < {_CLOCK} - $1::float8 order by at limit 10 * $2::int
) i
where (select t.locked_by from makegood.task t where t.id = i.task) is not null limit $2
"""  # noqa: S608 - our own text
_LOCK_LOCKED = f"{_THESE} and coalesce(locked_by, 0) <> 0 {_IN_ORDER}"
# A task can have killed its Scheduler only if the dead process was running an attempt of it. The request
# shows this or, if its silence was judged before, the message that nobody has read.
_FREE = """
update makegood.task t set locked_by = null, state = 'pending', failure_count = failure_count + 1,
    ready_seq = (extract(epoch from clock_timestamp()) * 1000000)::bigint,
    lost = lost + case when $2 or ( -- "exists" might be answered by a hash of all requests: PostgreSQL 18 does so
        select 1 from makegood.request r where r.task = t.id and r.taken_by = t.locked_by limit 1
    ) = 1 or (
        select 1 from makegood.inbox i where i.task = t.id and i.kind || '' = 'expired' -- || '': not by inbox_expired, which would read all that have expired
            and position(convert_to('"node":' || t.locked_by || '}', 'UTF8') in i.body) > 0 limit 1
    ) = 1 then 1 else 0 end
where id = any ($1::bigint[])
"""
_EVENT = """
insert into makegood.event (task, at, node, moves, note)
select x.task, extract(epoch from clock_timestamp())::float8, null, x.moves, ''
from unnest($1::bigint[], $2::bytea[]) as x (task, moves)
"""

PAST = f"""
select t.id, t.complete_by, c.now as until from {_CLOCK} as c (now) left join lateral (
    select id, complete_by from makegood.task
    where complete_by > $2::float8 and complete_by < c.now and goal = 'forward' and not task_expired and ended_at is null
    order by complete_by limit $1
) t on true
"""  # noqa: S608 - our own text
_LOCK_PAST = f"""{_THESE}
    and coalesce(complete_by, 'infinity') < extract(epoch from clock_timestamp())::float8 and goal = 'forward'
    and not task_expired and ended_at is null
{_IN_ORDER}"""
_TOLD = "update makegood.task set task_expired = true where id = any ($1::bigint[])"
LATE_UNDO = f"select id from makegood.task where undo_by < {_CLOCK} order by undo_by limit $1"  # noqa: S608 - our own text
_LOCK_LATE = (
    f"{_THESE} and coalesce(undo_by, 'infinity') < extract(epoch from clock_timestamp())::float8 {_IN_ORDER}"
)
_UNDO_TOLD = "update makegood.task set undo_by = null where id = any ($1::bigint[])"

# One step through the index of waiting requests for each agent, then the oldest request of each priority.
STARVED = """
with recursive waiting (agent) as (
    (select agent from makegood.request where taken_by is null and kind <> 'timer' order by agent limit 1)
    union all
    select (select r.agent from makegood.request r
        where r.taken_by is null and r.kind <> 'timer' and r.agent > waiting.agent order by r.agent limit 1)
    from waiting where waiting.agent is not null
)
select r.task, r.idx, r.attempt, (select s.name from makegood.step s where s.task = r.task and s.idx = r.idx) as name,
    r.agent, r.action
from waiting cross join generate_series(0, 9) as p cross join lateral (
        select * from makegood.request r
        where r.taken_by is null and r.kind <> 'timer' and r.agent = waiting.agent and r.priority = p
            and r.sent_at < (select extract(epoch from clock_timestamp())::float8) - $1::float8 and not r.starved
        order by r.sent_at limit $2 for no key update skip locked
    ) r
where waiting.agent is not null limit $2
"""
_STARVED_TOLD = """
update makegood.request r set starved = true from unnest($1::bigint[], $2::int[], $3::int[]) as x (task, idx, attempt)
where (r.task, r.idx, r.attempt) between (x.task, x.idx, x.attempt) and (x.task, x.idx, x.attempt)
"""
# Reads no times beyond the requested horizon: most of that work is done long before its deadline.
HORIZON = f"""
select least(
    (select r.complete_by + $1::float8 from makegood.request r
        where r.complete_by > $3::float8 and r.complete_by < {_CLOCK} - $1::float8 + $2::float8 and r.kind <> 'timer' and not r.answered
        order by r.complete_by limit 1),
    (select complete_by from makegood.task
        where complete_by > $4::float8 and complete_by < {_CLOCK} + $2::float8 and goal = 'forward' and not task_expired and ended_at is null
        order by complete_by limit 1),
    (select alive_until from makegood.node where not dead and stopped_at is null order by alive_until limit 1)
) - extract(epoch from clock_timestamp())::float8
"""  # noqa: S608 - our own text


async def _locked(tx: WriteTransaction, sql: str, tasks: Collection[int], *values: Any) -> list[Row]:
    """Return tasks locked by ``sql``, in order; if an earlier try gave way to a lock, only those free now."""
    return await tx.rows(sql + " skip locked" if tx.again else sql, sorted(tasks), *values) if tasks else []


async def _overdue(tx: WriteTransaction, group: str, floors: Floors, sql: str, *values: float) -> list[Row]:
    """Return rows whose ``complete_by`` has passed, from the floor or, while that is cheap, from the bottom.

    The floor does not pass a row that was found: it may be locked now, and stay.
    """
    swept = floors.affordable(group)
    overdue_rows = await tx.rows(sql, *values, -1.0 if swept else floors.floor(group))
    if swept:
        floors.swept(group)
    floors.passed(
        group,
        overdue_rows[0]["until"]
        if overdue_rows[0]["complete_by"] is None
        else overdue_rows[0]["complete_by"],
    )
    return [row for row in overdue_rows if row["complete_by"] is not None]


async def judge(tx: WriteTransaction, floors: Floors, grace: float, limit: int) -> Judged:
    """Judge requests whose deadline passed more than ``grace`` seconds ago without an answer."""
    overdue = await _overdue(tx, REQUESTS, floors, OVERDUE, grace, limit)
    if not overdue:
        tx.idle = True
        return Judged([])
    locked_ids = {row["id"] for row in await _locked(tx, _LOCK, {row["task"] for row in overdue})}
    keys = sorted(tuple(row)[:3] for row in overdue if row["task"] in locked_ids)
    if keys and tx.again:
        keys = [tuple(row) for row in await tx.rows(_UNLOCKED, *columns(keys, 3))]
    silent_rows: list[Row] = await tx.rows(JUDGE, *columns(keys, 3), grace) if keys else []
    silent = [
        rows.silent(key, kind, failures, taken_at, is_dead=has_died, is_excused=is_excused, node=node)
        for *key, kind, failures, has_died, is_excused, node, taken_at in map(tuple, silent_rows)
    ]
    await leave(tx, silent)
    tx.idle = not silent_rows
    order = {tuple(row)[:3]: n for n, row in enumerate(overdue)}
    judgements = [(row["task"], row["idx"], row["attempt"], row["failures"]) for row in silent_rows]
    judgements.sort(key=lambda judgement: order[judgement[:3]])
    return Judged(judgements, full=len(overdue) >= limit)


async def release_dead(tx: WriteTransaction, floors: Floors, limit: int) -> list[int]:
    """Free tasks held by nodes whose heartbeat has run out, and mark these nodes."""
    dead_nodes = await tx.rows(_DEAD)
    floors.left |= {row["id"] for row in dead_nodes}
    if floors.affordable(HOLD):
        floors.left = {row["id"] for row in await tx.rows(HOLDERS)}
        floors.swept(HOLD)
    # A mark that was rolled back stays in ``left``, and its node may still be alive.
    holders = [row["id"] for row in await tx.rows(_GONE, sorted(floors.left))] if floors.left else []
    held_tasks = await tx.rows(HELD_BY, holders, limit) if holders else []
    locked_tasks = await _locked(tx, _LOCK_HELD, [row["id"] for row in held_tasks], holders)
    tx.idle = not (dead_nodes or locked_tasks)
    return await _free(tx, locked_tasks, "scheduler_dead", suspect=False)


async def release_deaf(tx: WriteTransaction, _: Floors, older: float, limit: int) -> list[int]:
    """Free tasks whose Scheduler left an ``expired`` message undecided for more than ``older`` seconds."""
    deaf = await tx.rows(DEAF, older, limit)
    locked_tasks = await _locked(tx, _LOCK_LOCKED, [row["task"] for row in deaf])
    tx.idle = not locked_tasks
    return await _free(tx, locked_tasks, "scheduler_silent", suspect=True)


async def _free(
    tx: WriteTransaction, task_rows: Sequence[Row], reason: TaskReason, *, suspect: bool
) -> list[int]:
    """Free tasks; ``suspect``: each may be what hinders its Scheduler."""
    if not task_rows:
        return []
    ids: list[int] = sorted(row["id"] for row in task_rows)
    await tx.run(_FREE, ids, suspect)
    events = [(row["id"], rows.freed(row["state"], reason)) for row in task_rows]
    await _record(tx, events)
    tx.topics.add("pending")
    return ids


async def _record(tx: WriteTransaction, events: Sequence[tuple[int, bytes]]) -> None:
    """Add events. If the database refuses that of one task, it takes those of the others."""
    await tx.connection.execute("SAVEPOINT recording")
    try:
        await tx.run(_EVENT, *columns(events, 2))
    except Exception as fault:
        if not is_data(fault):
            raise
        await tx.connection.execute("ROLLBACK TO SAVEPOINT recording")
        if len(events) == 1:
            log.warning("an event of task %s could not be added: %s", show(events[0][0]), fault)
            return
        middle = len(events) // 2
        await _record(tx, events[:middle])
        await _record(tx, events[middle:])


async def expire_tasks(tx: WriteTransaction, floors: Floors, limit: int) -> list[int]:
    """Put ``task_expired`` in the inbox of forward tasks past their deadline; raise alerts for
    slow undos. Once each.
    """
    overdue = [row["id"] for row in await _overdue(tx, TASKS, floors, PAST, limit)]
    past: list[int] = [row["id"] for row in await _locked(tx, _LOCK_PAST, overdue)]
    if past:
        await tx.run(_TOLD, past)
        await leave(tx, [(task, TaskMessage("task_expired")) for task in past])
    slow = [row["id"] for row in await tx.rows(LATE_UNDO, limit)]
    late: list[int] = [row["id"] for row in await _locked(tx, _LOCK_LATE, slow)]
    if late:
        await tx.run(_UNDO_TOLD, late)
        text = "the undo has not finished within undo_within; it continues"
        await raise_(tx, rows.alerts([Alert("late_undo", task, "", text) for task in late]))
    tx.idle = not (past or late)
    return past


async def starved(
    tx: WriteTransaction, floors: Floors, after: float, limit: int, outage: float = 300.0
) -> list[int]:
    """Find requests that no agent has claimed for ``after`` seconds.

    Raises an alert per action that nobody claims, and keeps the other alerts about waiting tasks current.
    """
    if not floors.affordable(WAIT):
        tx.idle = True
        return []
    starving_requests = await tx.rows(STARVED, after, limit)
    if starving_requests:
        await tx.run(_STARVED_TOLD, *columns([tuple(row)[:3] for row in starving_requests], 3))
        starving = [(row["task"], row["name"], row["agent"], row["action"]) for row in starving_requests]
        await raise_(tx, rows.starved_alerts(starving, after, await living(tx)))
    await watch(tx, after, limit, outage)
    tx.idle = not (tx.wrote or starving_requests)
    floors.swept(WAIT)
    return [row["task"] for row in starving_requests]


async def horizon(connection: Connection, grace: float, most: float, floors: Floors) -> float:
    """Return seconds until something may have to be judged, between 0 and ``most``."""
    begin = floors.floor(REQUESTS), floors.floor(TASKS)
    left: float | None = await connection.fetchval(HORIZON, grace, most, *begin)
    return most if left is None else min(most, max(0.0, left))
