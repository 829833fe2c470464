"""What the leading Supervisor finds and writes, under its term's epoch: written once for every store.

On PostgreSQL, tasks are locked first and in order, as in a Scheduler's commit. The Supervisor waits for a
task that a commit has locked. If that takes longer than the lock timeout, it skips locked tasks and finds
them in the next pass, so a stuck transaction does not hold it up.
"""

from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from msgspec.structs import replace

from makegood.base.clock import Clock
from makegood.base.stored_values import seconds, whole
from makegood.election.protocol import Grant
from makegood.model.messages import Alert, TaskMessage
from makegood.model.states import TaskReason
from makegood.store import rows
from makegood.store.alerts import living, raise_, watch
from makegood.store.records import Judged
from makegood.store.requests import KEY, leave
from makegood.store.scan_floors import Floors
from makegood.store.transaction import ReadTx, SharedDatabase, Sql, Tx, Verbs, binder, for_each

T = TypeVar("T")
P = ParamSpec("P")

REQUESTS, TASKS = "requests past complete-by", "tasks past complete-by"
HOLD, RUN, WAIT = "tasks of the dead", "attempts of the dead", "what nobody takes"
"""What the Supervisor reads all the time.

The first two are found by their time, from floors. The others rest when they become expensive.
"""


def _locking(text: str) -> tuple[Sql, Sql]:
    """Return a statement that locks what it finds, and one that skips what is locked."""
    return Sql(text), Sql(f"{text} skip locked")


_DUE = "complete_by > $2::float8 and complete_by < (select {now})"
_REQUEST_IS_DUE = f"{_DUE} - $3::float8 and kind <> 'timer' and not answered"
_TASK_IS_DUE = f"{_DUE} and goal = 'forward' and not task_expired and ended_at is null"
# Both return at least one row, which says how far it has read.
OVERDUE = Sql(f"""
select task, idx, attempt, complete_by, clock.now - $3::float8 from (select {{now}} as now) clock left join (
    select task, idx, attempt, complete_by from makegood.request where {_REQUEST_IS_DUE} order by complete_by limit $1
) oldest on true
""")  # noqa: S608 - our own text
PAST = Sql(f"""
select id, complete_by, clock.now from (select {{now}} as now) clock left join (
    select id, complete_by from makegood.task where {_TASK_IS_DUE} order by complete_by limit $1
) oldest on true
""")  # noqa: S608 - our own text
_THESE = "select id, state from makegood.task where id = any ($1::bigint[])"
_IN_ORDER = "order by id for no key update"
LOCK = _locking(f"{_THESE} {_IN_ORDER}")
SILENT = _locking("""
select r.task, r.idx, r.attempt, r.kind, r.excused, r.taken_by, r.taken_at, r.complete_by,
    (select s.failure_count from makegood.step s where s.task = r.task and s.idx = r.idx),
    coalesce((select n.dead or n.alive_until <= {now} from makegood.node n where n.id = r.taken_by), true),
    coalesce((select n.stopped_at is null from makegood.node n where n.id = r.taken_by), true)
from makegood.request r
where r.task = any ($1::bigint[]) and r.kind <> 'timer' and not r.answered
    and coalesce(r.complete_by, 'infinity') < (select {now}) - $2::float8
order by r.task, r.idx for update of r
""")
"""The requests of these tasks that are to be judged; an agent's transaction may hold its own."""
_RESUMES = """
from makegood.request r
where {which} and r.complete_by is not null and r.kind <> 'timer' and r.kind = 'do' and not r.answered
    and (select n.id from makegood.node n where n.id = r.taken_by and n.dead and n.stopped_at is null) is not null
    and (select @resumes from makegood.step s where s.task = r.task and s.idx = r.idx) > 0
"""
# In JSON a text cannot contain this: its quotes have backslashes there.
_ON_POSTGRES = """position(convert_to('"resumes":true', 'UTF8') in s.spec)"""
_ON_SQLITE = """instr(cast(s.spec as text), '"resumes":true')"""


def _resumes(columns: str, which: str, ending: str) -> Sql:
    """Return a statement that finds actions to resume: their process is marked as dead, was not stopped, and
    their services honour keys.
    """
    text = f"select {columns} {_RESUMES.format(which=which)} {ending}"
    return Sql(text.replace("@resumes", _ON_POSTGRES), text.replace("@resumes", _ON_SQLITE))


DEATHS = _resumes("r.task", "true", "limit $1")
LOCK_FORWARD = _locking(f"{_THESE} and goal = 'forward' and ended_at is null {_IN_ORDER}")
_CUT_SHORT = """r.task, r.idx, r.attempt, r.taken_by, r.taken_at, r.complete_by,
    (select s.failure_count from makegood.step s where s.task = r.task and s.idx = r.idx)"""
CUT_SHORT = _resumes(_CUT_SHORT, "r.task = any ($1::bigint[])", "order by r.task, r.idx for update of r")
JUDGED = for_each(
    """
delete from makegood.request as r {rows}
where (r.task, r.idx, r.attempt) between (x.task, x.idx, x.attempt) and (x.task, x.idx, x.attempt)
""",
    **KEY,
)
STEP_FAILED = for_each(
    """
update makegood.step as s set failure_count = s.failure_count + x.failures, attempt = greatest(s.attempt, x.attempt),
    state = case when s.attempt < x.attempt then 'running' else s.state end
{rows} where (s.task, s.idx) between (x.task, x.idx) and (x.task, x.idx) and (x.failures > 0 or s.attempt < x.attempt)
""",
    **KEY, failures="int",
)  # fmt: skip
TASK_FAILED = for_each(
    "update makegood.task as t set failure_count = t.failure_count + x.failures {rows} where t.id between x.id and x.id",
    id="bigint", failures="int",
)  # fmt: skip

# Who may write its own row must not hold up the others.
DEAD = Sql("""
update makegood.node set dead = true where id in (
    select id from makegood.node where not dead and stopped_at is null and alive_until <= {now} for no key update skip locked
)
returning id
""")
# Finds the holders of locks, one step through the index for each.
HOLDERS = Sql("""
with recursive holder (id) as (
    select min(locked_by) from makegood.task where locked_by is not null
    union all
    select (select min(t.locked_by) from makegood.task t where t.locked_by > holder.id) from holder where holder.id is not null
)
select holder.id from holder where holder.id is not null
""")
ALIVE = Sql("""
select id from makegood.node where id = any ($1::bigint[]) and not dead and stopped_at is null and alive_until > {now}
""")
HELD_BY = Sql("select id from makegood.task where locked_by = any ($1::bigint[]) limit $2")
DEAD_HOLDERS = Sql("select id from makegood.node where id = any ($1::bigint[]) and dead")
LOCK_HELD = _locking(f"{_THESE} and coalesce(locked_by, 0) = any ($2::bigint[]) {_IN_ORDER}")
UNRESPONSIVE = Sql("""
select oldest.task from (
    select task from makegood.inbox where kind = 'expired' and at < (select {now}) - $1::float8 order by at limit 10 * $2::int
) oldest
where (select t.locked_by from makegood.task t where t.id = oldest.task) is not null limit $2
""")
LOCK_LOCKED = _locking(f"{_THESE} and coalesce(locked_by, 0) <> 0 {_IN_ORDER}")
# A task can have killed its Scheduler only if the dead process was running an attempt of it. The request
# shows this or, if its silence was judged before, the message that nobody has read. ("exists" might be
# answered by a hash of all requests: PostgreSQL 18 does so. || '': not by inbox_expired, which would read all
# that have expired.)
_FREE = """
update makegood.task as t set locked_by = null, failure_count = t.failure_count + x.failures, ready_seq = x.ready,
    state = case when t.state in ('processing', 'undoing') then 'pending' else t.state end,
    lost = t.lost + case when x.failures = 0 then 0 when x.suspect or (
        select 1 from makegood.request r where r.task = t.id and r.taken_by = t.locked_by limit 1
    ) = 1 or (
        select 1 from makegood.inbox i where i.task = t.id and i.kind || '' = 'expired' and @node > 0 limit 1
    ) = 1 then 1 else 0 end
{rows} where t.id between x.id and x.id
"""
FREE = for_each(
    _FREE.replace("@node", """instr(cast(i.body as text), '"node":' || t.locked_by || '}')"""),
    _FREE.replace("@node", """position(convert_to('"node":' || t.locked_by || '}', 'UTF8') in i.body)"""),
    id="bigint", ready="bigint", failures="int", suspect="boolean",
)  # fmt: skip

LOCK_PAST = _locking(f"""{_THESE}
    and coalesce(complete_by, 'infinity') < {{now}} and goal = 'forward' and not task_expired and ended_at is null
{_IN_ORDER}""")
_NOTE_EXPIRY = Sql("update makegood.task set task_expired = true where id = any ($1::bigint[])")
LATE_UNDO = Sql("select id from makegood.task where undo_by < (select {now}) order by undo_by limit $1")
LOCK_LATE = _locking(f"{_THESE} and coalesce(undo_by, 'infinity') < {{now}} {_IN_ORDER}")
_NOTE_LATE_UNDO = Sql("update makegood.task set undo_by = null where id = any ($1::bigint[])")

# On PostgreSQL, one step through the index of waiting requests for each agent, then the oldest request of
# each priority.
STARVED = Sql(
    """
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
            and r.sent_at < (select {now}) - $1::float8 and not r.starved
        order by r.sent_at limit $2 for no key update skip locked
    ) r
where waiting.agent is not null limit $2
""",
    """
select r.task, r.idx, r.attempt, (select s.name from makegood.step s where s.task = r.task and s.idx = r.idx), r.agent, r.action
from makegood.request r
where r.sent_at < {now} - $1 and r.taken_by is null and r.starved = 0 and r.kind <> 'timer' order by r.sent_at limit $2
""",
)
NOTE_STARVATION = for_each(
    """
update makegood.request as r set starved = true {rows}
where (r.task, r.idx, r.attempt) between (x.task, x.idx, x.attempt) and (x.task, x.idx, x.attempt)
""",
    **KEY,
)
# Reads no times beyond the requested horizon: most of that work is done long before its deadline.
HORIZON = Sql("""
select {now},
    (select complete_by from makegood.request
        where complete_by > $3::float8 and complete_by < (select {now}) - $1::float8 + $2::float8 and kind <> 'timer' and not answered
        order by complete_by limit 1) + $1::float8,
    (select complete_by from makegood.task
        where complete_by > $4::float8 and complete_by < (select {now}) + $2::float8 and goal = 'forward' and not task_expired
            and ended_at is null
        order by complete_by limit 1),
    (select alive_until from makegood.node where not dead and stopped_at is null order by alive_until limit 1)
""")
READY = Sql(
    "select ({now} * 1000000)::bigint + $1::bigint",
    "update makegood.ready set last = max(last + $1, cast(round({now} * 1000000) as integer)) returning last",
)


async def free(
    tx: Tx,
    task_rows: Sequence[Sequence[Any]],
    reason: TaskReason,
    *,
    failures: int = 1,
    suspect: bool = False,
) -> list[int]:
    """Free tasks (id, state).

    ``failures``: 1 if it counts as a failure of each, else 0. ``suspect``: each may be what hinders its
    Scheduler.
    """
    if not task_rows:
        return []
    ids = sorted(id_ for id_, _ in task_rows)
    ((last,),) = await tx.rows(READY, len(ids))
    await tx.many(FREE, [(id_, last - n, failures, suspect) for n, id_ in enumerate(reversed(ids))])
    await tx.record([(id_, rows.release_moves(state, reason)) for id_, state in task_rows])
    tx.topics.add("pending")
    return ids


async def _lock(tx: Tx, sql: tuple[Sql, Sql], tasks: Collection[int], *values: Any) -> list[Sequence[Any]]:
    """Return what ``sql`` locks, in order; if an earlier try gave way to a lock, only what is free now."""
    return list(await tx.rows(sql[tx.again], sorted(tasks), *values)) if tasks else []


async def _overdue(
    tx: Tx, group: str, floors: Floors, sql: Sql, limit: int, *values: float
) -> list[tuple[int, ...]]:
    """Return keys of rows whose ``complete_by`` has passed, from the floor or, while that is cheap, from the
    bottom.

    The floor does not pass a row that was found: it may be locked now, and stay.
    """
    swept = floors.affordable(group)
    overdue_rows = await tx.rows(sql, limit, -1.0 if swept else floors.floor(group), *values)
    if swept:
        floors.end_sweep(group)
    *_, complete_by, until = overdue_rows[0]
    floors.advance(group, until if complete_by is None else complete_by)
    return [tuple(key) for *key, complete_by, _ in overdue_rows if complete_by is not None]


async def judge(tx: Tx, floors: Floors, grace: float, limit: int) -> Judged:
    """Judge at most ``limit`` unanswered requests, ``grace`` seconds after their deadlines.

    Each request is judged by compare-and-set on attempt and deadline. Judging adds 1 to the failure counts of
    step and task, deletes the request row, and puts ``expired`` (with the count, and whether its node is
    dead) in the task's inbox.
    """
    overdue = await _overdue(tx, REQUESTS, floors, OVERDUE, limit, grace)
    tasks = [task for task, _ in await _lock(tx, LOCK, {key[0] for key in overdue})]
    verdicts = _Verdicts()
    keys = set(overdue)
    for *key, kind, is_excused, node, taken_at, complete_by, failures, is_dead, has_crashed in await _lock(
        tx, SILENT, tasks, grace
    ):
        if tuple(key) not in keys:
            continue
        # An excused silence counts as a failure only if the process died and was not stopped cleanly.
        counts = not is_excused or bool(is_dead and has_crashed)
        total, dead = whole(failures) + counts, bool(is_dead)
        message = rows.silent(
            key, kind, total, taken_at, due=complete_by, is_dead=dead, is_excused=not counts, node=node
        )
        verdicts.add((key[0], key[1], key[2]), int(counts), message)
    judgements = await verdicts.write(tx)
    return Judged([judgements[key] for key in overdue if key in judgements], full=len(overdue) >= limit)


@dataclass(slots=True)
class _Verdicts:
    """Requests that are judged in one transaction."""

    steps: list[tuple[int, int, int, int]] = field(default_factory=list)
    """(task, idx, attempt, failures to be counted) of each."""
    messages: list[tuple[int, TaskMessage]] = field(default_factory=list)

    def add(self, key: tuple[int, int, int], counts: int, message: tuple[int, TaskMessage]) -> None:
        """Add a verdict, and the message about it."""
        self.steps.append((*key, counts))
        self.messages.append(message)

    async def write(self, tx: Tx) -> dict[tuple[int, ...], tuple[int, int, int, int]]:
        """Delete the requests, count the failures, and leave the messages; return (task, idx, attempt,
        failures) of each by its key.
        """
        judgements: dict[tuple[int, ...], tuple[int, int, int, int]] = {
            (task, idx, attempt): (task, idx, attempt, message.failures)
            for (task, idx, attempt, _), (_, message) in zip(self.steps, self.messages, strict=True)
        }
        await tx.many(JUDGED, list(judgements))
        await tx.many(STEP_FAILED, self.steps)
        failures_of = Counter(task for task, _, _, counts in self.steps if counts)
        await tx.many(TASK_FAILED, sorted(failures_of.items()))
        await leave(tx, self.messages)
        return judgements


async def judge_dead(tx: Tx, floors: Floors, grace: float, limit: int) -> Judged:
    """Judge, before their deadlines, at most ``limit`` attempts of nodes marked as dead: those of actions
    whose services honour keys (``Policy.resumes``), in tasks that go forward.

    As ``judge``, and ``expired`` says until when the attempt would have been awaited, ``grace`` included: it
    may still run if its process was only slow.

    The mark is final: a process that was only slow continues under another number.
    """
    if not floors.affordable(RUN):
        return Judged([])
    dead = [task for (task,) in await tx.rows(DEATHS, limit)]
    verdicts = _Verdicts()
    tasks = [task for task, _ in await _lock(tx, LOCK_FORWARD, set(dead))]
    records = await tx.rows(CUT_SHORT, tasks) if tasks else ()
    for task, idx, attempt, node, taken_at, complete_by, failures in records:
        key = whole(task), whole(idx), whole(attempt)
        of, message = rows.silent(
            key, "do", whole(failures) + 1, taken_at, due=complete_by, is_dead=True, node=node
        )
        verdicts.add(key, 1, (of, replace(message, runs_until=seconds(complete_by) + grace)))
    judgements = await verdicts.write(tx)
    floors.end_sweep(RUN)
    return Judged(list(judgements.values()), full=len(dead) >= limit)


async def release_dead(tx: Tx, floors: Floors, limit: int, *, marks: bool = True) -> list[int]:
    """Free tasks held by nodes whose heartbeat has run out; without ``marks``, only by marked nodes.

    A freed task gets locked_by null, state pending and failure_count + 1. ``lost`` + 1 only for tasks of
    which the dead process was running an attempt, even one judged as silent since: only these tasks may have
    killed it. A dead node's row is marked, so the node learns of its death when it returns. Returns the tasks
    freed.
    """
    if marks:
        floors.left |= {id_ for (id_,) in await tx.rows(DEAD)}
    if floors.affordable(HOLD):
        floors.left = {id_ for (id_,) in await tx.rows(HOLDERS)}
        floors.end_sweep(HOLD)
    # A mark that was rolled back stays in ``left``, and its node may still be alive.
    left = sorted(floors.left)
    if not marks:
        holders = [id_ for (id_,) in await tx.rows(DEAD_HOLDERS, left)] if left else []
    else:
        alive = {id_ for (id_,) in await tx.rows(ALIVE, left)} if left else set()
        holders = sorted(floors.left - alive)
    held_ids = [id_ for (id_,) in await tx.rows(HELD_BY, holders, limit)] if holders else []
    return await free(tx, await _lock(tx, LOCK_HELD, held_ids, holders), "scheduler_dead")


async def release_unresponsive(tx: Tx, _: Floors, older: float, limit: int) -> list[int]:
    """Free tasks whose Scheduler left an ``expired`` message undecided for more than ``older`` seconds;
    ``lost`` + 1.
    """
    tasks = {task for (task,) in await tx.rows(UNRESPONSIVE, older, limit)}
    return await free(tx, await _lock(tx, LOCK_LOCKED, tasks), "scheduler_silent", suspect=True)


async def expire_tasks(tx: Tx, floors: Floors, limit: int) -> list[int]:
    """Put ``task_expired`` in the inbox of forward tasks past their deadline, once each.

    Raises an alert for undos past undo_within.
    """
    overdue = [id_ for (id_,) in await _overdue(tx, TASKS, floors, PAST, limit)]
    past: list[int] = [id_ for id_, _ in await _lock(tx, LOCK_PAST, overdue)]
    if past:
        await tx.run(_NOTE_EXPIRY, past)
        await leave(tx, [(task, TaskMessage("task_expired")) for task in past])
    slow = [id_ for (id_,) in await tx.rows(LATE_UNDO, limit)]
    late: list[int] = [id_ for id_, _ in await _lock(tx, LOCK_LATE, slow)]
    if late:
        await tx.run(_NOTE_LATE_UNDO, late)
        text = "the undo has not finished within undo_within; it continues"
        await raise_(tx, rows.alerts([Alert("late_undo", task, "", text) for task in late]))
    return past


async def alert_starved(tx: Tx, floors: Floors, after: float, limit: int, outage: float = 300.0) -> list[int]:
    """Find requests that no agent has claimed for ``after`` seconds, each once, and keep the alerts about
    them current.

    Raises one alert per action that nobody claims; counts no failure. An agent whose circuit is open has an
    alert of its own, and after ``outage`` seconds a second one, which names the waiting tasks. Raises one
    alert if tasks have waited for ``after`` seconds and no Scheduler was alive in that time. Ends these
    alerts when actions are claimed again, circuits are no longer open, or a Scheduler or leader is back.
    """
    if not floors.affordable(WAIT):
        return []
    starving = [tuple(row) for row in await tx.rows(STARVED, after, limit)]
    if starving:
        await tx.many(NOTE_STARVATION, [row[:3] for row in starving])
        waits = [(row[0], *row[3:]) for row in starving]
        await raise_(tx, rows.starvation_alerts(waits, after, await living(tx)))
    await watch(tx, after, limit, outage)
    floors.end_sweep(WAIT)
    return [row[0] for row in starving]


async def horizon(tx: ReadTx, floors: Floors, grace: float, most: float) -> float:
    """Return seconds until the earliest deadline (+ grace), task deadline or heartbeat end: 0 to ``most``."""
    begin = floors.floor(REQUESTS), floors.floor(TASKS)
    ((now, *times),) = await tx.rows(HORIZON, grace, most, *begin)
    next_time: float = min((at for at in times if isinstance(at, int | float)), default=now + most)
    return min(most, max(0.0, next_time - float(now)))


def _under_term(
    verb: Callable[Concatenate[Tx, Floors, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate["SupervisionVerbs", Grant, P], Coroutine[Any, Any, T]]:
    """Make a method of a verb that writes under a term."""
    bind = binder(verb)

    @wraps(verb)
    async def method(self: "SupervisionVerbs", term: Grant, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._db.run_write(bind(self.floors, *args, **kwargs), term)

    return method


class SupervisionVerbs(Verbs):
    """What the leading Supervisor finds and changes.

    Every write carries the term's epoch. It raises ``FencedOffError`` when the lease has moved on or expired:
    the last statement locks the lease row FOR SHARE.

    ``floors``: how far it has read.
    """

    def __init__(self, database: SharedDatabase, clock: Clock) -> None:
        super().__init__(database)
        self.floors = Floors(clock, 5.0)

    async def horizon(self, grace: float, most: float) -> float:
        """Return seconds until the earliest deadline (+ grace), task deadline or heartbeat end: 0 to
        ``most``.
        """
        return await self._db.run_read(partial(horizon, floors=self.floors, grace=grace, most=most))

    judge = _under_term(judge)
    judge_dead = _under_term(judge_dead)
    release_dead = _under_term(release_dead)
    release_unresponsive = _under_term(release_unresponsive)
    expire_tasks = _under_term(expire_tasks)
    alert_starved = _under_term(alert_starved)
