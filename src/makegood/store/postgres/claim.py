"""Claiming: which tasks a Scheduler gets.

Tasks are locked here. The lock in the row is written with the task's first Decision.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from makegood.store.postgres.load import COLUMNS, read
from makegood.store.postgres.transaction import Row, WriteTransaction
from makegood.store.priority_ageing import Ageing
from makegood.store.records import MOST_LOST, Claim, Loaded
from makegood.store.scan_floors import Floors
from makegood.store.task_rows import Raw

PRIORITIES = list(range(9, -1, -1))

# Nothing is given to a process that was declared dead: it would be freed once more, and counted.
PENDING = f"""
select {COLUMNS} from unnest($1::int[], $2::bigint[]) as p (priority, floor)
    cross join lateral (
        select * from makegood.task t
        where t.state = 'pending' and t.locked_by is null and t.priority = p.priority and t.ready_seq > p.floor
        order by t.ready_seq limit $3 for no key update skip locked
    ) t
where not exists (select from makegood.node n where n.id = $4::bigint and n.dead) limit $3
"""  # noqa: S608 - our own columns
PENDING_AGED = f"""
select {COLUMNS}, extract(epoch from clock_timestamp())::float8 - t.ready_seq / 1e6::float8 as waited
from unnest($1::int[], $2::bigint[]) as p (priority, floor) cross join lateral (
        select * from makegood.task t
        where t.state = 'pending' and t.locked_by is null and t.priority = p.priority and t.ready_seq > p.floor
        order by t.ready_seq limit $3 for no key update skip locked
    ) t
where not exists (select from makegood.node n where n.id = $5::bigint and n.dead)
order by t.ready_seq - p.priority * $4::float8 limit $3
"""  # noqa: S608 - our own columns
_AT_REST = f"""
select {COLUMNS} from makegood.task t
where t.id = any ($1::bigint[]) and t.locked_by is null and t.state in ('error', 'undone', 'processed')
    and (select i.seq from makegood.inbox i where i.task = t.id limit 1) is not null
for no key update of t skip locked
"""  # noqa: S608 - our own columns


@dataclass(slots=True)
class Claimed:
    """The tasks found to claim."""

    tasks: list[Loaded] = field(default_factory=list)
    begins: dict[int, bool] = field(default_factory=dict)
    """For each task, whether its time begins now."""
    unreadable: list[tuple[int, str]] = field(default_factory=list)
    """(task, reason) of tasks that could not be read."""
    more: bool = False
    """Whether more pending tasks wait."""
    left: bool = False
    """Whether tasks were left out for lack of room."""
    last_seqs: dict[int, int] = field(default_factory=dict)
    """By priority, the ready_seq of the last task found."""


async def find(tx: WriteTransaction, claim: Claim, floors: Floors, ageing: Ageing, node: int) -> Claimed:
    """Lock and return the tasks that ``claim`` gets for ``node``, with their epoch already raised."""
    rest: list[Row] = []
    if claim.at_rest:
        rest = await tx.rows(_AT_REST, list(claim.at_rest))
    pending = await _pending(tx, max(0, claim.limit) + 1, floors, ageing, node)
    candidates = _alone(pending[: max(0, claim.limit)], others=bool(rest))
    claims = Claimed(more=len(candidates) < len(pending))
    raws: list[Raw] = []
    for row in (*rest, *candidates):
        has_deadline = row["complete_by"] is not None
        fresh = row["state"] == "pending" and row["goal"] == "forward"
        begins = not has_deadline and row["within"] is not None and fresh
        claims.begins[row["id"]] = begins
        raws.append(Raw(row, row["epoch"] + 1, has_deadline or begins))
    if raws:
        result = await read(tx.connection, tx.plans, raws, claim.room)
        claims.tasks, claims.unreadable = result.tasks, result.unreadable
        claims.left = bool(result.left)
        claims.more = claims.more or claims.left
        left = set(result.left)
        candidates = [row for row in candidates if row["id"] not in left]
    for row in candidates:
        claims.last_seqs[row["priority"]] = row["ready_seq"]
    return claims


def _alone(pending: Sequence[Row], *, others: bool) -> Sequence[Row]:
    """Return the tasks that may be claimed together: a task that may kill its Schedulers is claimed alone."""
    doubtful = next((n for n, row in enumerate(pending) if row["lost"] >= MOST_LOST), None)
    if doubtful is None:
        return pending
    if doubtful == 0:
        return () if others else pending[:1]
    return pending[:doubtful]


async def _pending(tx: WriteTransaction, limit: int, floors: Floors, ageing: Ageing, node: int) -> list[Row]:
    now = floors.clock.monotonic()
    step = ageing.step if ageing.due("pending", now) else None

    async def look(bottom: bool) -> list[Row]:  # noqa: FBT001 - as ``looked`` calls it
        begin = [-1 if bottom else int(floors.floor(("pending", priority))) for priority in PRIORITIES]
        return await (
            _best(tx, limit, begin, node) if step is None else _aged(tx, limit, begin, step * 1e6, node)
        )

    rows = await floors.looked("pending", look)
    oldest = None if step is None else max((row["waited"] for row in rows), default=0.0)
    ageing.found("pending", full=len(rows) >= limit, oldest=oldest, now=now)
    return rows


async def _aged(tx: WriteTransaction, limit: int, begin: list[int], step: float, node: int) -> list[Row]:
    """Return pending tasks in order of priority with age included."""
    return await tx.rows(PENDING_AGED, PRIORITIES, begin, limit, step, node)


async def _best(tx: WriteTransaction, limit: int, begin: list[int], node: int) -> list[Row]:
    rows = await tx.rows(PENDING, PRIORITIES, begin, limit, node)
    rows.sort(key=lambda row: (-row["priority"], row["ready_seq"]))
    return rows
