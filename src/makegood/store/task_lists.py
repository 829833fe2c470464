"""Lists and counts of tasks whose cost does not grow with the tasks that have ended.

``find`` reads until it has enough, be it the whole table; a search looks at a limited number of tasks. It
takes them by the index that fits: those of an id or key; those in error; those that have not ended; or else
the newest. The answer says where the search stopped.
"""

from collections.abc import Sequence
from typing import Any, Final

from makegood.store.search import COLUMNS, FAILING, IN_DOUBT, matching, task_view
from makegood.store.transaction import ReadTx, Sql
from makegood.store.views import Filter, Found, StepBrief, Tally, UnendedTally

LOOKED: Final = 10_000
"""Tasks that a search looks at, at most."""
STEPS_LISTED: Final = 100
"""Steps of a task that a list knows, at most."""

UNENDED = Sql("""
select id from (select id from makegood.task where state = 'pending' and locked_by is null limit $1) a
union select id from (select id from makegood.task where locked_by is not null limit $1) b
union select id from (select id from makegood.task where state = 'error' limit $1) c
""")
"""Tasks that have not ended: each part uses an index that holds nothing else."""
UNENDED_TALLY = Sql(f"""
select state, count(*), sum(case when {FAILING} then 1 else 0 end), sum(case when {IN_DOUBT} then 1 else 0 end)
from makegood.task where id = any ($1::bigint[]) group by state
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
WAITING = Sql("""
select agent, count(*), {now} - min(sent_at) from (
    select agent, sent_at from makegood.request where taken_by is null and kind <> 'timer' limit $1
) r group by agent
""")
_TABLES = (
    "task", "step", "request", "inbox", "event", "alert", "audit", "message", "listener", "notice", "node", "lease_term",
)  # fmt: skip
SIZES = Sql(
    " union all ".join(
        f"select '{table}', count(*) from (select 1 from makegood.{table} limit $1) {table}"  # noqa: S608 - our own tables
        for table in _TABLES
    )
)
# Ids rise with the time of submission, by the clock of the submitter: an hour is allowed for its error.
_DRAWN = "id < ((((select {now}) - ?::float8 - 1704063600) * 1000)::bigint << 22)"
_ALIVE = frozenset({"pending", "processing", "undoing", "error"})


class _Source:
    """Where a search takes its tasks from: a table or subquery, conditions on its rows, and their values."""

    def __init__(self, wanted: Filter, looked: int, unended: list[int] | None) -> None:
        self.whole = unended is not None or _by_index(wanted)
        """Whether an index finds every task that may match; else the newest tasks are the source."""
        values: list[Any] = []
        clauses = ["state = 'error'"] if wanted.states == ("error",) else []
        for clause, value in (
            ("id = any (?::bigint[])", unended),
            ("id < ?", wanted.before),
            (_DRAWN, None if self.whole else wanted.older),
        ):
            if value is not None:
                values.append(value)
                clauses.append(clause.replace("?", f"${len(values)}"))
        where = " and ".join(clauses) or "true"
        if self.whole:
            self.table = "makegood.task"
        else:
            values.append(looked)
            self.table = (
                f"(select {COLUMNS} from makegood.task where {where} order by id desc limit ${len(values)}) t"  # noqa: S608 - our own clauses
            )
            where = "true"
        self.inner = list(values)
        """The values of the subquery."""
        matching_, self.values = matching(wanted, values)
        self.where = f"{where} and {matching_}"

    @classmethod
    async def of(cls, tx: ReadTx, wanted: Filter, looked: int) -> "_Source":
        """Return the source for a filter; read which tasks have not ended, if only such may match."""
        unended: list[int] | None = None
        only = _ALIVE.issuperset(wanted.states) if wanted.states else wanted.failing is True
        if only and wanted.states != ("error",) and not _by_index(wanted):
            unended = [task for (task,) in await tx.rows(UNENDED, looked + 1)]
        return cls(wanted, looked, unended if unended is None or len(unended) <= looked else None)


def _by_index(wanted: Filter) -> bool:
    return bool(wanted.ids) or wanted.word is not None or wanted.key is not None


async def search(tx: ReadTx, wanted: Filter, looked: int = LOOKED) -> Found:
    """Return a page of matching tasks, newest first, and where the next page begins.

    A page may be short although more tasks match: then the next one looks further back.
    """
    source = await _Source.of(tx, wanted, looked)
    values = [*source.values, wanted.limit + 1]
    sql = f"select {COLUMNS} from {source.table} where {source.where} order by id desc limit ${len(values)}"  # noqa: S608 - our own clauses
    found = [task_view(row) for row in await tx.rows(Sql(sql), *values)]
    page = found[: wanted.limit]
    if len(found) > wanted.limit:
        return Found(page, page[-1].id)
    if source.whole:
        return Found(page)
    last, count = (await tx.rows(Sql(f"select min(id), count(*) from {source.table}"), *source.inner))[0]  # noqa: S608 - our own clauses
    return Found(page, last if count >= looked else None)


async def tally(tx: ReadTx, wanted: Filter, looked: int = LOOKED) -> Tally:
    """Return how many tasks match, as far as ``looked`` tasks show it."""
    source = await _Source.of(tx, wanted, looked)
    sql = f"select count(*), sum(case when {source.where} then 1 else 0 end) from {source.table}"  # noqa: S608 - our own clauses
    if source.whole:
        sql = f"select 0, count(*) from makegood.task where {source.where}"  # noqa: S608 - our own clauses
    seen, count = (await tx.rows(Sql(sql), *source.values))[0]
    return Tally(count or 0, seen >= looked)


async def unended(tx: ReadTx, looked: int = LOOKED) -> UnendedTally:
    """Return how many tasks have not ended, by state."""
    tasks = [task for (task,) in await tx.rows(UNENDED, looked + 1)]
    states: dict[Any, int] = {}
    failing = doubt = 0
    for state, count, failed, doubted in await tx.rows(UNENDED_TALLY, tasks[:looked]):
        states[state] = count
        failing, doubt = failing + failed, doubt + doubted
    return UnendedTally(states, failing, doubt, len(tasks) > looked)


async def lately(tx: ReadTx, seconds: float, looked: int = LOOKED) -> tuple[dict[str, int], bool]:
    """Return how many tasks were submitted within ``seconds``, by state, and whether there may be more."""
    found = {state: count for state, count in await tx.rows(LATELY, seconds, looked)}  # noqa: C416 - records, not pairs
    return found, sum(found.values()) >= looked


async def briefs(tx: ReadTx, tasks: Sequence[int]) -> dict[int, list[StepBrief]]:
    """Return the first steps of each task, with what is in flight."""
    wanted = list(tasks)
    asked: dict[tuple[int, int], Sequence[Any]] = {}
    for task, idx, *request in await tx.rows(REQUESTS, wanted, STEPS_LISTED):
        asked[task, idx] = request
    found: dict[int, list[StepBrief]] = {task: [] for task in wanted}
    for task, *step in await tx.rows(STEPS, wanted, STEPS_LISTED):
        doing, attempt, taken_by, due, waited = asked.get((task, step[0]), (None, 0, None, None, None))
        if doing is not None and isinstance(attempt, int) and attempt > step[5]:  # its first dispatch
            step[4], step[5] = "running", attempt
        found[task].append(StepBrief(*step, doing, taken_by, due, waited))  # type: ignore[call-arg]  # a row's columns
    return found


async def waiting(tx: ReadTx, looked: int = LOOKED) -> dict[str, tuple[int, float]]:
    """Return how many requests wait for each agent, and for how many seconds the oldest has waited."""
    return {agent: (count, max(0.0, oldest)) for agent, count, oldest in await tx.rows(WAITING, looked)}


async def sizes(tx: ReadTx, looked: int = LOOKED) -> dict[str, Tally]:
    """Return how many rows each table holds, as far as ``looked`` rows of it show."""
    counted = await tx.rows(SIZES, looked + 1)
    return {table: Tally(min(count, looked), count > looked) for table, count in counted}
