"""Lists and counts of tasks whose cost does not grow with the tasks that have ended.

``find`` reads until it has enough, be it the whole table; a search looks at a limited number of tasks. It
takes them by the index that fits: those of an id or key; those in error, or asleep; those that have not
ended; or else the newest. The answer says where the search stopped.
"""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, get_args

from makegood.base import stored_values
from makegood.base.stored_values import record_of, text, whole
from makegood.base.text import first_line
from makegood.model.states import TaskState
from makegood.store.search import FAILING, IN_DOUBT, LISTED, matching, resolve_word, task_view
from makegood.store.transaction import ReadTx, Sql
from makegood.store.views import (
    Filter,
    Found,
    SignalWait,
    StepBrief,
    Tally,
    TaskGroup,
    TaskGroups,
    UnendedTally,
)

LOOKED: Final = 10_000
"""Tasks that a search looks at, at most."""
SAMPLED: Final = 10
"""Tasks of a group that a list knows, at most."""
WAITS_LISTED: Final = 100
"""The most different texts of waits that are counted."""
STEPS_LISTED: Final = 100
"""Steps of a task that a list knows, at most."""

UNENDED = Sql("""
select id from (select id from makegood.task where state = 'pending' and locked_by is null limit $1) a
union select id from (select id from makegood.task where locked_by is not null limit $1) b
union select id from (select id from makegood.task where state = 'error' limit $1) c
union select id from (select id from makegood.task where state = 'queued' limit $1) d
""")
"""Tasks that have not ended, and neither sleep nor are queued: each part uses an index that holds nothing
else.
"""
SLEEPING, QUEUED = (
    Sql(f"select id from makegood.task where state = '{state}' and locked_by is null limit $1")  # noqa: S608 - our own states
    for state in ("sleeping", "queued")
)
UNENDED_TALLY = Sql(f"""
select state, count(*), sum(case when {FAILING} then 1 else 0 end), sum(case when {IN_DOUBT} then 1 else 0 end)
from makegood.task where id = any ($1::bigint[]) group by state
union all
select 'sleeping', count(*), 0, 0 from (select 1 from makegood.task where state = 'sleeping' and locked_by is null limit $2) s
union all
select 'queued', count(*), 0, 0 from (select 1 from makegood.task where state = 'queued' and locked_by is null limit $2) q
""")  # noqa: S608 - our own conditions
LATELY = Sql("""
select state, count(*) from (select state, created_at from makegood.task order by id desc limit $2) t
where created_at >= (select {now}) - $1::float8 group by state
""")
STEPS = Sql("""
select task, idx, kind, name, agent, state, attempt, round, failure_count, error from makegood.step
where task = any ($1::bigint[]) and idx < $2 order by task, idx
""")
REQUESTS = Sql("""
select task, idx, kind, attempt, taken_by, complete_by - {now}, {now} - sent_at from makegood.request
where task = any ($1::bigint[]) and idx < $2
""")
WAITS = Sql("""
select s.error, count(*) from (select task, idx from makegood.request where kind = 'timer' limit $1) r
    join makegood.step s on s.task = r.task and s.idx = r.idx
where s.state = 'ready' and s.error is not null and s.kind <> 'wait_for' group by 1 order by 2 desc, 1 limit $2
""")
"""Steps that a service has asked to send later, by what it said: nothing of them can have happened."""
SIGNAL_WAITS = Sql("""
select w.action, count(distinct w.task), min(w.since) from (
    select s.action, s.task, coalesce(
        (select r.sent_at from makegood.request r where r.task = s.task and r.idx = s.idx and r.kind = 'timer' limit 1),
        (select e.at from makegood.event e where e.task = s.task order by e.seq desc limit 1), 0.0
    ) as since
    from (
        select id from (select id from makegood.task where state = 'sleeping' and locked_by is null limit $1) a
        union all select id from (select id from makegood.task where locked_by is not null limit $1) b
        union all select id from (select id from makegood.task where state = 'pending' and locked_by is null limit $1) c
    ) t join makegood.step s on s.task = t.id
    where s.kind = 'wait_for' and s.state = 'ready'
) w group by 1 order by 2 desc, 1 limit $2
""")
"""Tasks that wait for a signal, by its name. A wait without a timeout has no row of its own and no index,
which would cost every step of every task: it is found among the steps of tasks that sleep, are held or are
pending, by their keys. Such a wait began when its task last moved, or a little before.
"""
PROGRESS = Sql("""
select task, sum(case when state = 'done' then 1 else 0 end), sum(case when state = 'undone' then 1 else 0 end), count(*)
from makegood.step where task = any ($1::bigint[]) and kind = 'action' and state <> 'skipped' group by task
""")
WAITING = Sql("""
select agent, count(*), {now} - min(sent_at) from (
    select agent, sent_at from makegood.request where taken_by is null and kind <> 'timer' limit $1
) r group by agent
""")
KEYED = Sql("""
select key, id from makegood.task where app = $1 and workflow = $2 and key = any ($3::text[])
""")
ATTRIBUTE_NAMES = Sql("""
select name, count(*) from makegood.attribute where task = any ($1::bigint[]) group by name order by 2 desc, 1 limit $2
""")
_TABLES = (
    "task", "attribute", "lane", "schedule", "step", "request", "inbox", "signal", "event", "alert", "audit", "message", "listener", "notice", "node", "lease_term",
)  # fmt: skip
SIZES = Sql(
    " union all ".join(
        f"select '{table}', count(*) from (select 1 from makegood.{table} limit $1) {table}"  # noqa: S608 - our own tables
        for table in _TABLES
    )
)
# Ids rise with the time of submission, by the clock of the submitter: an hour is allowed for its error.
_DRAWN = "id < ((((select {now}) - ?::float8 - 1704063600) * 1000)::bigint << 22)"
_INDEXED = (("error",), ("sleeping",), ("queued",))
"""States whose tasks an index finds by their ids: a search looks at such tasks alone, newest first."""
_STATES: Final[Sequence[TaskState]] = get_args(TaskState)
_ALIVE = frozenset({"pending", "sleeping", "queued", "processing", "undoing", "error"})


class _Source:
    """Where a search takes its tasks from: a table or subquery, conditions on its rows, and their values."""

    def __init__(self, condition: Filter, scan_limit: int | None, alive: list[int] | None) -> None:
        self.whole = scan_limit is None or alive is not None or _by_index(condition)
        """Whether an index finds every task that may match; else the newest tasks are the source."""
        self.columns = f"{LISTED}, result" if condition.results else LISTED
        values: list[Any] = []
        clauses = [f"state = '{condition.states[0]}'"] if condition.states in _INDEXED else []
        for clause, value in (
            ("id = any (?::bigint[])", alive),
            ("id < ?", condition.before),
            (_DRAWN, None if self.whole else condition.older),
        ):
            if value is not None:
                values.append(value)
                clauses.append(clause.replace("?", f"${len(values)}"))
        where_sql = " and ".join(clauses) or "true"
        if self.whole:
            self.table = "makegood.task"
        else:
            values.append(scan_limit)
            self.table = f"(select {self.columns} from makegood.task where {where_sql} order by id desc limit ${len(values)}) t"  # noqa: S608 - our own clauses
            where_sql = "true"
        self.inner = list(values)
        """The values of the subquery."""
        matching_, self.values = matching(condition, values)
        self.where = f"{where_sql} and {matching_}"

    @classmethod
    async def of(cls, tx: ReadTx, condition: Filter, scan_limit: int | None) -> "_Source":
        """Return the source for a filter; read which tasks have not ended, if only such may match."""
        condition = await resolve_word(tx, condition)
        alive: list[int] | None = None
        if condition.waits is not None and not condition.states:  # none has ended
            condition = dataclasses.replace(condition, states=("pending", "sleeping", "queued", "processing"))
        only = _ALIVE.issuperset(condition.states) if condition.states else condition.failing is True
        if scan_limit is not None and only and condition.states not in _INDEXED and not _by_index(condition):
            alive = [task for (task,) in await tx.rows(UNENDED, scan_limit + 1)]
            for state, sql in (("sleeping", SLEEPING), ("queued", QUEUED)):
                if state in condition.states:
                    alive += [task for (task,) in await tx.rows(sql, scan_limit + 1)]
            alive = alive if len(alive) <= scan_limit else None
        return cls(condition, scan_limit, alive)


def _by_index(condition: Filter) -> bool:
    texts = (
        condition.word,
        condition.key,
        condition.correlation_id,
        condition.lane,
        condition.attributes,
    )
    return bool(condition.ids) or any(text is not None for text in texts)


async def search(tx: ReadTx, condition: Filter, scan_limit: int | None = LOOKED) -> Found:
    """Return a page of matching tasks, newest first, and where the next page begins.

    The tasks have their results if the filter says so. It looks at no more than ``scan_limit`` tasks, so a
    page may be short although more tasks match: then the next one looks further back. None: it looks at all
    tasks.
    """
    source = await _Source.of(tx, condition, scan_limit)
    values = [*source.values, condition.limit + 1]
    sql = f"select {source.columns} from {source.table} where {source.where} order by id desc limit ${len(values)}"  # noqa: S608 - our own clauses
    views = [task_view(row) for row in await tx.rows(Sql(sql), *values)]
    page = views[: condition.limit]
    if len(views) > condition.limit:
        return Found(page, page[-1].id)
    if source.whole or scan_limit is None:
        return Found(page)
    last, count = (await tx.rows(Sql(f"select min(id), count(*) from {source.table}"), *source.inner))[0]  # noqa: S608 - our own clauses
    return Found(page, last if count >= scan_limit else None)


async def groups(
    tx: ReadTx,
    condition: Filter,
    below: int | None = None,
    scan_limit: int = LOOKED,
    sample_limit: int = SAMPLED,
    *,
    attribute: str | None = None,
) -> TaskGroups:
    """Return a page of matching tasks by their correlation ids, or by their values of an ``attribute``, and
    where the next page begins.

    Looks at no more than ``scan_limit`` tasks, in the same number of statements whatever the groups hold.
    ``below``: a page that begins there, as the one before says. Each group names at most ``sample_limit``
    tasks. The number of groups is the filter's limit.
    """
    source = await _Source.of(tx, condition, scan_limit)
    values, name_sql = [*source.values], "correlation_id"
    if attribute is not None:
        values.append(attribute)
        name_sql = f"(select value from makegood.attribute a where a.task = id and a.name = ${len(values)})"  # noqa: S608 - our own columns
    values.append(scan_limit)
    window = f"(select id, {name_sql} as name, state from {source.table} where {source.where} order by id desc limit ${len(values)}) w"  # noqa: S608 - our own clauses
    counts = ", ".join(f"sum(case when state = '{state}' then 1 else 0 end) as {state}" for state in _STATES)
    last = len(values)
    sql = f"""
select {", ".join(_STATES)}, name, newest, total, oldest from (
    select {counts}, name, max(id) as newest, (sum(count(*)) over ())::bigint as total, min(min(id)) over () as oldest
    from {window} group by name, case when name is null then id end
) g where newest < ${last + 1}::bigint order by newest desc limit ${last + 2}
"""  # noqa: S608 - our own clauses
    records = await tx.rows(Sql(sql), *values, 2**63 - 1 if below is None else below, condition.limit + 1)
    page = records[: condition.limit]
    many = [name for *_, name, _, _, _ in page if name is not None]
    sql = f"""
select id, name from (
    select id, name,
        row_number() over (partition by name order by case when state = 'error' then 0 else 1 end, id desc) as place
    from {window} where name = any (${last + 1}::text[])
) s where place <= ${last + 2}
"""  # noqa: S608 - our own clauses
    samples: dict[str, list[int]] = {}
    for task, name in await tx.rows(Sql(sql), *values, many, sample_limit) if many else ():
        samples.setdefault(text(name), []).append(task)
    result = [
        TaskGroup(
            newest,
            None if name is None else text(name),
            {state: whole(count) for state, count in zip(_STATES, record, strict=False) if count},
            tuple(samples.get(name, [newest])),
        )
        for record in page
        for name, newest in [record[len(_STATES) : len(_STATES) + 2]]
    ]
    if source.whole:
        older = records[0][-1] if records and records[0][-2] >= scan_limit else None
    else:
        sql = f"select min(id), count(*) from {source.table}"  # noqa: S608 - our own clauses
        ((oldest, count),) = await tx.rows(Sql(sql), *source.inner)
        older = oldest if count >= scan_limit else None
    return TaskGroups(result, result[-1].newest if len(records) > len(page) else None, older)


async def attribute_names(tx: ReadTx, tasks: Sequence[int], limit: int = 5) -> list[str]:
    """Return the names of attributes that tasks have, those of the most tasks first."""
    return [text(name) for name, _ in await tx.rows(ATTRIBUTE_NAMES, list(tasks), limit)]


async def ids_by_key(tx: ReadTx, app: str, workflow: str, keys: Sequence[str]) -> dict[str, int]:
    """Return the tasks of a workflow that have these keys."""
    return {text(key): task for key, task in await tx.rows(KEYED, app, workflow, list(keys))}


async def tally(tx: ReadTx, condition: Filter, scan_limit: int | None = LOOKED) -> Tally:
    """Return how many tasks match, as far as ``scan_limit`` tasks show it; None: exactly."""
    source = await _Source.of(tx, condition, scan_limit)
    sql = f"select count(*), sum(case when {source.where} then 1 else 0 end) from {source.table}"  # noqa: S608 - our own clauses
    if source.whole:
        sql = f"select 0, count(*) from makegood.task where {source.where}"  # noqa: S608 - our own clauses
    scan_count, count = (await tx.rows(Sql(sql), *source.values))[0]
    return Tally(count or 0, scan_limit is not None and scan_count >= scan_limit)


async def states(tx: ReadTx, condition: Filter) -> dict[str, int]:
    """Return how many tasks match, by state: all of them, however many."""
    where_sql, values = matching(await resolve_word(tx, condition))
    sql = f"select state, count(*) from makegood.task where {where_sql} group by state"  # noqa: S608 - our own clauses
    return {text(state): whole(count) for state, count in await tx.rows(Sql(sql), *values)}


async def tally_unended(tx: ReadTx, scan_limit: int = LOOKED) -> UnendedTally:
    """Return the number of tasks not ended, by state, as far as ``scan_limit`` tasks show it."""
    tasks = [task for (task,) in await tx.rows(UNENDED, scan_limit + 1)]
    states: dict[Any, int] = {}
    failing = doubt = 0
    for state, count, failing_count, doubt_count in await tx.rows(
        UNENDED_TALLY, tasks[:scan_limit], scan_limit
    ):
        if count:
            states[text(state)] = count
        failing, doubt = failing + failing_count, doubt + doubt_count
    return UnendedTally(states, failing, doubt, len(tasks) > scan_limit)


async def lately(tx: ReadTx, seconds: float, scan_limit: int = LOOKED) -> tuple[dict[str, int], bool]:
    """Return how many tasks were submitted within ``seconds``, by state, and whether there may be more."""
    states = {text(state): count for state, count in await tx.rows(LATELY, seconds, scan_limit)}
    return states, sum(states.values()) >= scan_limit


async def briefs(tx: ReadTx, tasks: Sequence[int]) -> dict[int, list[StepBrief]]:
    """Return the first steps of each task, for lists, with what is in flight."""
    task_ids = list(tasks)
    requests: dict[tuple[int, int], Sequence[Any]] = {}
    for task, idx, *request in await tx.rows(REQUESTS, task_ids, STEPS_LISTED):
        requests[task, idx] = request
    by_task: dict[int, list[StepBrief]] = {task: [] for task in task_ids}
    for task, *step in await tx.rows(STEPS, task_ids, STEPS_LISTED):
        doing, attempt, taken_by, due, wait = requests.get((task, step[0]), (None, 0, None, None, None))
        if doing is not None and whole(attempt) > whole(step[5]):  # its first dispatch
            step[4], step[5] = "running", attempt
        by_task[task].append(record_of(StepBrief, (*step, doing, taken_by, due, wait)))
    return by_task


async def progress(tx: ReadTx, tasks: Sequence[int]) -> dict[int, tuple[int, int, int]]:
    """Return how many actions of each task are done, are undone, and there are; skipped ones do not count."""
    counts = await tx.rows(PROGRESS, list(tasks)) if tasks else ()
    return {task: (whole(n), whole(undone_count), whole(total)) for task, n, undone_count, total in counts}


async def waits(tx: ReadTx, scan_limit: int = LOOKED) -> dict[str, int]:
    """Return how many steps wait because their service asked for it, by the first line of what it said."""
    counts: Counter[str] = Counter()
    for error, count in await tx.rows(WAITS, scan_limit, WAITS_LISTED):
        counts[first_line(text(error))] += whole(count)
    return dict(counts.most_common())


async def signal_waits(tx: ReadTx, scan_limit: int = LOOKED) -> list[SignalWait]:
    """Return how many tasks wait for each signal, the most first, as far as ``scan_limit`` tasks that sleep,
    as many that are held and as many that are pending show it.
    """
    return [record_of(SignalWait, row) for row in await tx.rows(SIGNAL_WAITS, scan_limit, WAITS_LISTED)]


async def waiting(tx: ReadTx, scan_limit: int = LOOKED) -> dict[str, tuple[int, float]]:
    """Return ``depths`` as far as ``scan_limit`` requests show them, each with the seconds that the oldest
    request has waited.
    """
    return {
        text(agent): (count, max(0.0, stored_values.seconds(oldest)))
        for agent, count, oldest in await tx.rows(WAITING, scan_limit)
    }


async def sizes(tx: ReadTx, scan_limit: int = LOOKED) -> dict[str, Tally]:
    """Return how many rows each table holds, as far as ``scan_limit`` rows of it show."""
    counts = await tx.rows(SIZES, scan_limit + 1)
    return {table: Tally(min(count, scan_limit), count > scan_limit) for table, count in counts}
