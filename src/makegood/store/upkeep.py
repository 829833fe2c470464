"""What runs in the store and how much work there is; the removal of tasks that ended long ago."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from makegood.base.stored_values import record_of, seconds, text, whole
from makegood.store import rows, task_lists
from makegood.store.alerts import audit, living
from makegood.store.records import NO_MOMENT, Pruned
from makegood.store.step_down import LEADER
from makegood.store.transaction import ReadTx, Sql, Tx, Verbs, asking, reading, writing
from makegood.store.views import NodeInfo, NodeView, TaskFigures

_STOPPED_SHOWN = 3600.0

_REGISTER = Sql("""
insert into makegood.node (name, roles, host, pid, started_at, alive_until, dead, info)
values ($1, $2, $3, $4, {now}, {now} + $5::float8, false, $6)
returning id, (select generation from makegood.generation), started_at
""")
_BEAT = """
update makegood.node set alive_until = {now} + $2::float8, info = $3 where id = $1 and not dead and stopped_at is null
returning {now}"""
HEARTBEAT = Sql(_BEAT)
HEARTBEAT_OF_AGENTS = Sql(f"""{_BEAT}, exists (
    select 1 from makegood.request r where r.taken_by = $1 and r.cancelled and not r.answered
)""")  # noqa: S608 - our own text
_UNREGISTER = Sql(
    "update makegood.node set stopped_at = {now}, alive_until = {now} where id = $1 and stopped_at is null"
)
_PROCESSES = Sql("""
select id, info from makegood.node where not dead and stopped_at is null order by id
""")
# Who may write its own row must not hold up the others.
_MARK_DEAD = Sql("""
update makegood.node set dead = true where id in (
    select id from makegood.node where id = any ($1::bigint[]) and not dead and stopped_at is null for no key update skip locked
)
returning id, name
""")
_END_LEASE = Sql(
    "update makegood.lease set expires_at = {now} where name = $1 and holder = $2 and expires_at > {now}"
)
_NODES = Sql("""
select id, info, started_at, alive_until - {now}, stopped_at is not null, dead from makegood.node
where coalesce(stopped_at, alive_until) > {now} - $1::float8 order by id
""")
DEPTHS = Sql(
    "select agent, count(*) from makegood.request where taken_by is null and kind <> 'timer' group by agent"
)
UNENDED = Sql("""
select app, workflow, state, count(*) from makegood.task where state = 'pending' and locked_by is null group by app, workflow, state
union all
select app, workflow, state, count(*) from makegood.task where locked_by is not null group by app, workflow, state
union all
select app, workflow, state, count(*) from makegood.task where state = 'error' and locked_by is null group by app, workflow, state
union all
select app, workflow, 'queued', count(*) from (
    select app, workflow from makegood.task where state = 'queued' order by id limit 100000
) q group by app, workflow
""")
"""Tasks waiting to be claimed, held, in error, and (100,000 at most) queued: each part uses an index that
holds nothing else.
"""
_SLEEPERS = """
select app, workflow, count(*) from (
    select app, workflow from makegood.task where state = 'sleeping' and locked_by is null order by {} limit $1
) sleepers group by app, workflow
"""
# The index of the claim has the app and the workflow, too; its order makes sure that it is read.
SLEEPERS = Sql(
    _SLEEPERS.format("priority, ready_seq"), _SLEEPERS.format("(start_wall is null), priority, ready_seq")
)
_ALL: Final = 2**62
COUNT_LIMIT: Final = 10_000
"""Sleeping tasks up to which they are counted at each look."""
_QUEUES = Sql("""
select agent, count(*), greatest(0, {now} - min(sent_at))
from makegood.request where taken_by is null and kind <> 'timer' group by agent
""")
STANDING = Sql("select kind, count(*) from makegood.alert where ended_at is null group by kind")

_ORPHANS = Sql(f"""
select t.id from makegood.task t left join makegood.node n on n.id = t.locked_by
where (
        (t.state in ('processing', 'undoing') and (n.id is null or n.dead or n.stopped_at is not null or n.alive_until <= {{now}}))
        or (t.state = 'sleeping' and t.ready_seq = {NO_MOMENT}
            and not exists (select 1 from makegood.step s where s.task = t.id and s.kind = 'wait_for' and s.state = 'ready')
            and not exists (select 1 from makegood.inbox i where i.task = t.id))
    )
    and not exists (select 1 from makegood.request r where r.task = t.id)
order by t.id limit $1
""")  # noqa: S608 - our own number

_LATE_STARTS = """
select id, {{now}} - ready_seq / 1000000.0{real} from makegood.task
where state = 'sleeping' and locked_by is null and {clocks}priority in (0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
    and ready_seq <= ((least({{now}}, $1::float8) - $2::float8) * 1000000){integer}
order by ready_seq limit $3
"""
LATE_STARTS = Sql(
    _LATE_STARTS.format(clocks="", real="::float8", integer="::bigint"),
    _LATE_STARTS.format(clocks="(start_wall is null) in (0, 1) and ", real="", integer=""),
)
"""Sleeping tasks that should have begun: by the store's clock, and by the calendar as the caller knows it."""
_LAG = (
    "select {clock} - (select min(ready_seq) from makegood.task where state = 'sleeping' and locked_by is null and {kind}"
    "priority = {n}) / 1000000.0 as lag"
)
_LAGS = (
    "select coalesce(max(lag), 0) from (select $1::float8 - (select min(next_at) from makegood.schedule where next_at is not null) as lag "
    "union all {}) lags"
)
_PRIORITIES = range(10)
DUE_LAG = Sql(
    _LAGS.format(" union all ".join(_LAG.format(clock="{now}", kind="", n=n) for n in _PRIORITIES)),
    _LAGS.format(
        " union all ".join(
            _LAG.format(clock=clock, kind=f"(start_wall is null) = {is_delay} and ", n=n)
            for clock, is_delay in (("{now}", 1), ("$1::float8", 0))
            for n in _PRIORITIES
        )
    ),
)
"""For how long the first sleeping task, or schedule, has been due: one step through an index for each
priority. It is below 0 if none is.
"""

# Ids rise with the time of submission, so a window of ids is a window of time. No other rows are read to find
# old tasks.
_WINDOW = Sql("""
select id, created_at <= {now} - $1::float8, state in ('processed', 'undone') and ended_at < {now} - $1::float8
from makegood.task where id > $2 order by id limit $3
""")
# An ended task is kept while it has a message, a request or an unsent notice, or an open or unlogged alert.
# ("between" keeps PostgreSQL from reading whole indexes into a hash.)
_KEEPS = """
    exists (select 1 from makegood.inbox i where i.task between x.task and x.task)
    or exists (select 1 from makegood.request r where r.task between x.task and x.task)
    or exists (select 1 from makegood.listener l where l.task between x.task and x.task)
    or exists (select 1 from makegood.alert a where a.task between x.task and x.task and (a.ended_at is null or a.logged < 2))
"""
KEPT = Sql(
    f"select x.task from unnest($1::bigint[]) as x (task) where {_KEEPS}",  # noqa: S608 - our own text
    f"select x.task from (select value as task from json_each($1)) x where {_KEEPS}",  # noqa: S608 - our own text
)
# A task that somebody has claimed meanwhile stays, with all its rows.
REMOVE = Sql("""
delete from makegood.task where id = any ($1::bigint[]) and state in ('processed', 'undone') and locked_by is null
returning id
""")
REST = tuple(
    Sql(f"delete from makegood.{table} where task = any ($1::bigint[])")  # noqa: S608 - our own tables
    for table in ("step", "event", "audit", "alert", "attribute", "signal", "lane")
)
# Rows that belong to no task: alerts that have ended and were logged, operator commands on messages etc.
_OTHERS = (
    Sql("""
delete from makegood.alert where id in (
    select id from makegood.alert where task is null and ended_at < (select {now} - $1::float8) and logged = 2 order by id limit $2
)"""),
    Sql("""
delete from makegood.audit where act in (
    select act from makegood.audit where task = 0 and at < (select {now} - $1::float8) order by at limit $2
)"""),
)


async def register(tx: Tx, info: NodeInfo) -> tuple[int, int, float]:
    """Insert a node with its first heartbeat; return its number, the generation under which it was
    registered, and the time.
    """
    roles = f" {' '.join(info.roles)} "
    values = (info.name, roles, info.host, info.pid, info.ttl, msgspec.json.encode(info))
    ((number, generation, now),) = await tx.rows(_REGISTER, *values)
    tx.topics.add("nodes")
    return number, generation, now


async def heartbeat(tx: Tx, node: int, info: NodeInfo) -> float | None:
    """Extend a node's life and return the time; None if it was declared dead or has stopped.

    Only agents have requests, and a right to read them.
    """
    sql = HEARTBEAT_OF_AGENTS if "agent" in info.roles else HEARTBEAT
    beats = await tx.rows(sql, node, info.ttl, msgspec.json.encode(info))
    if beats and any(beats[0][1:]):
        tx.topics.add(f"cancel:{node}")
    return beats[0][0] if beats else None


async def unregister(tx: Tx, node: int) -> None:
    """Mark a node as stopped cleanly."""
    await tx.run(_UNREGISTER, node)
    tx.topics.add("nodes")


async def processes(tx: ReadTx) -> list[tuple[int, NodeInfo]]:
    """Return the numbers of the nodes that have not stopped and are not marked as dead, in order, and what
    they publish. The heartbeat of one that is dead may have run out while nobody led.
    """
    return [(number, rows.node_info(info)) for number, info in await tx.rows(_PROCESSES)]


async def mark_dead(tx: Tx, nodes: Sequence[int]) -> list[int]:
    """Mark nodes as dead, whose processes are known to be gone, and end the Supervisor's lease if it is
    theirs.

    Returns those marked now. One that lives all the same registers again under another number.
    """
    dead = [(whole(number), name) for number, name in await tx.rows(_MARK_DEAD, sorted(nodes))]
    for _, name in dead:
        await tx.run(_END_LEASE, LEADER, name)
    if dead:
        tx.topics.add("nodes")
    return [number for number, _ in dead]


async def nodes(tx: ReadTx) -> list[NodeView]:
    """Return nodes that are alive or stopped within the last hour, with the queue depth of their agents."""
    waits = await depths(tx)
    views: list[NodeView] = []
    for number, data, started_at, remaining, is_stopped, dead in await tx.rows(_NODES, _STOPPED_SHOWN):
        info = rows.node_info(data)
        waiting = {a.agent: waits.get(a.agent, 0) for a in info.agents}
        views.append(record_of(NodeView, (number, info, started_at, remaining, is_stopped, dead, waiting)))
    return views


async def depths(tx: ReadTx) -> dict[str, int]:
    """Return how many requests wait for each agent ("APP/AGENT"), including agents that no process runs."""
    return {text(agent): count for agent, count in await tx.rows(DEPTHS)}


async def figures(
    tx: ReadTx,
    sleepers: Mapping[tuple[str, str], int] | None = None,
    count_limit: int = COUNT_LIMIT,
    calendar: float = 0.0,
) -> TaskFigures:
    """Return how much work there is and what is wrong. The cost grows with unended tasks, never with ended
    ones. ``calendar``: the caller's wall clock, for what is due by the calendar.

    If more than ``count_limit`` tasks sleep, ``sleepers``, the field of that name of earlier figures, spares
    the count of them all.
    """
    tasks: dict[tuple[str, str, str], int] = {}
    for app, workflow, state, count in await tx.rows(UNENDED):
        kind = (text(app), text(workflow), text(state))
        tasks[kind] = tasks.get(kind, 0) + count
    few, many = await _sleepers(tx, count_limit + 1), None
    if sum(few.values()) > count_limit:
        many = sleepers if sleepers is not None else await _sleepers(tx, _ALL)
    for (app, workflow), count in (few if many is None else many).items():
        kind = (app, workflow, "sleeping")
        tasks[kind] = tasks.get(kind, 0) + count
    queues = {text(agent): (count, seconds(oldest)) for agent, count, oldest in await tx.rows(_QUEUES)}
    alerts = {text(kind): count for kind, count in await tx.rows(STANDING)}
    ((due_lag,),) = await tx.rows(DUE_LAG, calendar)
    return TaskFigures(tasks, queues, alerts, many, max(0.0, seconds(due_lag)))


async def _sleepers(tx: ReadTx, limit: int) -> dict[tuple[str, str], int]:
    """Return how many tasks sleep by app and workflow, as far as ``limit`` of them show."""
    return {(text(app), text(workflow)): count for app, workflow, count in await tx.rows(SLEEPERS, limit)}


async def orphans(tx: ReadTx, limit: int) -> list[int]:
    """Return tasks under way that nothing will continue: they have no request, and no living Scheduler holds
    them, or they sleep until a message comes that no step waits for.
    """
    return [task for (task,) in await tx.rows(_ORPHANS, limit)]


async def late_starts(tx: ReadTx, calendar: float, grace: float, limit: int) -> list[tuple[int, float]]:
    """Return tasks that sleep although their moment passed more than ``grace`` seconds ago, the latest first,
    and by how many seconds each is late. ``calendar``: the caller's wall clock.
    """
    records = await tx.rows(LATE_STARTS, calendar, grace, limit)
    return [(whole(task), seconds(late)) for task, late in records]


async def _window(tx: ReadTx, older: float, after: int, limit: int) -> tuple[list[int], Pruned]:
    """Return the tasks to remove from a window of ids, and what that would amount to."""
    window = await tx.rows(_WINDOW, older, after, limit)
    if not window:
        return [], Pruned()
    ids = [task for task, _, is_ended in window if is_ended]
    exempt = {task for (task,) in await tx.rows(KEPT, ids)} if ids else set()
    going = [task for task in ids if task not in exempt]
    last, is_old, _ = window[-1]
    return going, Pruned(len(going), len(exempt), last if is_old and len(window) == limit else None)


async def prunable(tx: ReadTx, older: float, after: int, limit: int) -> Pruned:
    """Return what ``prune`` would remove."""
    return (await _window(tx, older, after, limit))[1]


async def prune(tx: Tx, older: float, after: int, limit: int) -> Pruned:
    """Remove the old ended tasks in a window of ids, with all rows about them."""
    if after == 0:
        for sql in _OTHERS:
            await tx.run(sql, older, limit)
    going, pruning = await _window(tx, older, after, limit)
    if not going:
        return pruning
    removals = [task for (task,) in await tx.rows(REMOVE, going)]
    for sql in REST:
        await tx.run(sql, removals)
    return Pruned(len(removals), pruning.survivors, pruning.next)


_prunable, _prune = reading(prunable), writing(prune)


class NodeVerbs(Verbs):
    """What processes run, and how much waits for them."""

    unregister = asking(unregister)
    processes = reading(processes)
    mark_dead = writing(mark_dead)
    views = reading(nodes)
    living = reading(living)
    depths = reading(depths)
    waiting = reading(task_lists.waiting)


class UpkeepVerbs(Verbs):
    """Removal of what ended long ago, stuck tasks, figures, and the audit."""

    orphans = reading(orphans)
    late_starts = reading(late_starts)
    figures = reading(figures)
    audit = reading(audit)
    sizes = reading(task_lists.sizes)

    async def prune(self, older: float, after: int, limit: int, *, dry: bool = False) -> Pruned:
        """Remove tasks that were processed or undone more than ``older`` seconds ago, with all rows about
        them.

        Reads ``limit`` tasks with an id above ``after``; ids follow the order of submission. Never removed:
        tasks in error, tasks with a waiting message, tasks with an unsent notice, and tasks with an open or
        unreported alert. The first window (``after`` = 0) also removes at most ``limit`` alerts and operator
        commands of that age that belong to no task. ``dry``: count only.
        """
        return await (_prunable if dry else _prune)(self, older, after, limit)
