"""Claiming: which tasks a Scheduler gets.

Tasks are locked here. The lock in the row is written with the task's first Decision.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from makegood.model.states import UNBEGUN
from makegood.store import lanes
from makegood.store.postgres import lane_locks
from makegood.store.postgres.load import AT_REST, COLUMNS, read, read_unlocked
from makegood.store.postgres.server_clock import ServerClock
from makegood.store.postgres.transaction import Row, WriteTransaction
from makegood.store.priority_ageing import Ageing, rank
from makegood.store.records import MOST_LOST, NO_MOMENT, Claim, Loaded
from makegood.store.rows import may_have_lanes, present_start
from makegood.store.scan_floors import Floors
from makegood.store.task_rows import Raw

PRIORITIES = list(range(9, -1, -1))

_WHERE_PENDING = (
    "t.state = 'pending' and t.locked_by is null and t.priority = p.priority and t.ready_seq > p.floor"
)

# Nothing is given to a process that was declared dead: it would be freed once more, and counted.
PENDING = f"""
select {COLUMNS} from unnest($1::int[], $2::bigint[]) as p (priority, floor)
    cross join lateral (
        select * from makegood.task t
        where {_WHERE_PENDING}
        order by t.ready_seq limit $3 for no key update skip locked
    ) t
where not exists (select from makegood.node n where n.id = $4::bigint and n.dead) limit $3
"""  # noqa: S608 - our own columns
PENDING_AGED = f"""
select {COLUMNS}, extract(epoch from clock_timestamp())::float8 - t.ready_seq / 1e6::float8 as waited
from unnest($1::int[], $2::bigint[]) as p (priority, floor) cross join lateral (
        select * from makegood.task t
        where {_WHERE_PENDING}
        order by t.ready_seq limit $3 for no key update skip locked
    ) t
where not exists (select from makegood.node n where n.id = $5::bigint and n.dead)
order by t.ready_seq - p.priority * $4::float8 limit $3
"""  # noqa: S608 - our own columns

# The moment is compared as a row, of which the index uses the first column. Of two plain bounds of one column
# the planner believes that hardly any row is between them. So it would read and sort all that are due, which
# may be a million, for the first few.
_WHERE_DUE = """t.state = 'sleeping' and t.locked_by is null and t.priority = p.priority and t.ready_seq > p.floor
            and (t.ready_seq, t.id) <= ((select us from moment), 9223372036854775807)"""


QUEUED = PENDING.replace(
    _WHERE_PENDING, f"{_WHERE_PENDING.replace('pending', 'queued')} and t.ready_seq < {NO_MOMENT}"
)


def _with_due(pending: str, floors: str) -> str:
    """Return a statement that also finds the tasks that sleep and are due, and in ``next_start`` the seconds
    until the next one is. ``floors``: the parameter with the floors of those that sleep.

    It has a row although there is no task.
    """
    due = pending.replace(_WHERE_PENDING, _WHERE_DUE).replace("$2::bigint[]", floors)
    return f"""
with moment as materialized (select (extract(epoch from clock_timestamp()) * 1000000)::bigint as us),
p as materialized ({pending}), d as materialized ({due}),
n as materialized (
    select (min(t.ready_seq) - (select us from moment)) / 1e6::float8 as next_start, (select us from moment) / 1e6::float8 as at
    from unnest($1::int[]) as p (priority) cross join lateral (
        select t.ready_seq from makegood.task t
        where t.state = 'sleeping' and t.locked_by is null and t.priority = p.priority and t.ready_seq > (select us from moment)
        order by t.ready_seq limit 1
    ) t
)
select q.*, n.next_start, n.at from n left join (select * from p union all select * from d) q on true
"""  # noqa: S608 - our own text


WITH_DUE, WITH_DUE_AGED = _with_due(PENDING, "$5::bigint[]"), _with_due(PENDING_AGED, "$6::bigint[]")
# A row is locked only once its lanes are: whoever makes room in them waits for the rows of parked tasks.
_AT_REST = f"""
with busy as materialized (select unnest(b.tasks) as task from ({lane_locks.TRY}) b)
select {COLUMNS} from makegood.task t
where t.id = any ($1::bigint[]) and {AT_REST} and t.id not in (select task from busy)
for no key update of t skip locked
"""  # noqa: S608 - our own columns


_SLEEP_ON = """
update makegood.task t set start_at = x.start, ready_seq = (x.start * 1000000)::bigint
from unnest($1::bigint[], $2::float8[]) as x (id, start) where t.id = x.id
"""


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
    last_seqs: dict[tuple[str, int], int] = field(default_factory=dict)
    """By state and priority, the ready_seq of the last task found."""
    next_start: float | None = None
    """Seconds until the next task that sleeps is due."""
    looked_at: float = 0.0
    """The server's clock when tasks that sleep were looked for."""
    more_queued: bool = False
    """Whether more tasks wait whose lanes may be free."""
    lanes_busy: bool = False
    """Whether tasks were left because another transaction decides on their lanes just now."""


@dataclass(frozen=True, slots=True)
class ClaimScan:
    """What a process remembers from one claim to the next."""

    floors: Floors
    ageing: Ageing
    clock: ServerClock


async def find(tx: WriteTransaction, claim: Claim, scan: ClaimScan, node: int) -> Claimed:
    """Lock and return the tasks that ``claim`` gets for ``node``, with their epoch already raised."""
    rest: list[Row] = []
    if claim.at_rest:
        rest = await tx.rows(_AT_REST, list(claim.at_rest))
    pending, next_start, looked_at = await _pending(tx, claim, scan, node)
    in_queue = await _in_queue(tx, claim, scan.floors, node)
    candidates_count = len(pending) + len(in_queue)
    pending = await _lockable(tx, pending, in_queue)
    lanes_busy = len(pending) < candidates_count
    refusals: list[Row] = []
    if in_queue:
        pending, refusals = await _admit(tx, pending)
        pending = sorted(pending, key=_in_order)[: claim.limit + 1]
    candidates = _alone(pending[: claim.limit], others=bool(rest))
    candidates = await _due(tx, candidates)
    claims = Claimed(more=len(candidates) < len(pending), next_start=next_start, looked_at=looked_at)
    claims.more_queued = bool(in_queue) and len(in_queue) >= claim.limit
    claims.lanes_busy = lanes_busy
    due = {row["id"] for row in candidates}
    refusal_ids = {row["id"] for row in refusals}
    rest = [row for row in rest if row["id"] not in due and row["id"] not in refusal_ids]
    rest += refusals
    raws: list[Raw] = []
    for row in (*rest, *candidates):
        has_deadline = row["complete_by"] is not None
        fresh = row["state"] in UNBEGUN and row["goal"] == "forward" and row["id"] in due
        begins = not has_deadline and row["within"] is not None and fresh
        claims.begins[row["id"]] = begins
        raws.append(Raw(row, row["epoch"] + 1, has_deadline or begins))
    if raws:
        result = await read(tx.connection, tx.plans, raws, claim.room)
        claims.tasks, claims.unreadable = result.tasks, result.unreadable
        stay = {row["id"] for row in rest if _stays(row)}
        for load in claims.tasks:
            load.sleeps, load.lane_taken = load.task.id in stay, load.task.id in refusal_ids
        claims.left = bool(result.left)
        claims.more = claims.more or claims.left
        left = set(result.left)
        candidates = [row for row in candidates if row["id"] not in left]
    for row in candidates:
        claims.last_seqs[row["state"], row["priority"]] = row["ready_seq"]
    return claims


async def find_unlocked(tx: WriteTransaction, claim: Claim) -> tuple[list[Loaded], dict[int, int]] | None:
    """Return the tasks at rest that ``claim`` names, with their epoch already raised, and the versions of
    their rows; None if the usual way is needed, as some have lanes or are large or unreadable.
    """
    result, task_rows = await read_unlocked(tx.connection, tx.plans, claim.at_rest, claim.eager)
    with_lanes = any(may_have_lanes(row["static"]) for row in task_rows.values())
    if with_lanes or len(result.tasks) < len(task_rows):
        return None
    for load in result.tasks:
        load.sleeps = _stays(task_rows[load.task.id])
    return result.tasks, {id_: row["version"] for id_, row in task_rows.items()}


async def _in_queue(tx: WriteTransaction, claim: Claim, floors: Floors, node: int) -> list[Row]:
    """Lock and return queued tasks whose lanes may be free."""
    if not claim.lanes or claim.limit <= 0:
        return []

    async def look(bottom: bool) -> list[Row]:  # noqa: FBT001 - as ``scan`` calls it
        begin = [-1 if bottom else int(floors.floor(("queued", priority))) for priority in PRIORITIES]
        return sorted(await tx.rows(QUEUED, PRIORITIES, begin, claim.limit, node), key=_in_order)

    return await floors.scan("queued", look)


async def _lockable(tx: WriteTransaction, pending: list[Row], in_queue: list[Row]) -> list[Row]:
    """Return the tasks to claim without those on whose lanes another transaction decides now: they stay as
    they are.
    """
    with_lanes = [row["id"] for row in pending if may_have_lanes(row["static"])]
    busy = await lane_locks.busy(tx, [*with_lanes, *(row["id"] for row in in_queue)])
    pending = [*pending, *in_queue]
    return [row for row in pending if row["id"] not in busy] if busy else pending


async def _admit(tx: WriteTransaction, pending: list[Row]) -> tuple[list[Row], list[Row]]:
    """Return tasks without those whose lanes are taken, and of these the ones that do not wait."""
    in_queue = [row["id"] for row in pending if row["state"] == "queued"]
    verdict = await lanes.admit(tx, in_queue)
    out = set(in_queue) - verdict.may_go
    return (
        [row for row in pending if row["id"] not in out],
        [row for row in pending if row["id"] in verdict.refusals],
    )


async def _due(tx: WriteTransaction, candidates: Sequence[Row]) -> Sequence[Row]:
    """Return candidates without those that sleep on, by the rules that their zones have now.

    They sleep on whatever becomes of an ambiguous commit, so it needs no mark.
    """
    starts: dict[int, float] = {}
    for row in candidates:
        wall = row["start_wall"] if row["state"] == "sleeping" else ""
        if wall and (start := present_start(row["start_at"], wall, row["ready_seq"])) is not None:
            starts[row["id"]] = start
    if starts:
        await tx.rows(_SLEEP_ON, list(starts), list(starts.values()))
    return [row for row in candidates if row["id"] not in starts] if starts else candidates


def _stays(row: Row) -> bool:
    """Return whether a task may not begin yet, whatever message wakes it."""
    return row["state"] == "queued" or (row["state"] == "sleeping" and row["start_at"] is not None)


def _alone(pending: Sequence[Row], *, others: bool) -> Sequence[Row]:
    """Return the tasks that may be claimed together: a task that may kill its Schedulers is claimed alone."""
    doubtful = next((n for n, row in enumerate(pending) if row["lost"] >= MOST_LOST), None)
    if doubtful is None:
        return pending
    if doubtful == 0:
        return () if others else pending[:1]
    return pending[:doubtful]


async def _pending(
    tx: WriteTransaction, claim: Claim, scan: ClaimScan, node: int
) -> tuple[list[Row], float | None, float]:
    """Return the tasks to claim in their order, one more than wanted if there are more; in how many
    seconds the next one that sleeps is due, and when that was read.
    """
    if claim.limit <= 0:  # only for messages: no pending task is wanted, nor locked for nothing
        return [], None, 0.0
    floors, ageing, clock = scan.floors, scan.ageing, scan.clock
    limit, now = claim.limit + 1, floors.clock.monotonic()
    step = ageing.step if ageing.due("pending", now) else None
    next_start: float | None = None
    looked_at = 0.0

    async def look(bottom: bool) -> list[Row]:  # noqa: FBT001 - as ``scan`` calls it
        nonlocal next_start, looked_at
        begin, begin_due = (
            [-1 if bottom else int(floors.floor((state, priority))) for priority in PRIORITIES]
            for state in ("pending", "sleeping")
        )
        values = [PRIORITIES, begin, limit, *([] if step is None else [step * 1e6]), node]
        if not claim.sleepers:
            rows = await tx.rows(PENDING if step is None else PENDING_AGED, *values)
        else:
            begin_at = floors.clock.monotonic()
            rows = await tx.rows(WITH_DUE if step is None else WITH_DUE_AGED, *values, begin_due)
            next_start, looked_at = rows[0]["next_start"], rows[0]["at"]
            clock.set(looked_at, begin_at)  # a quick answer, and one that counts: see ``ServerClock``
            rows = [row for row in rows if row["id"] is not None]
        rows.sort(
            key=_in_order if step is None else lambda row: rank(row["priority"], row["ready_seq"], step * 1e6)
        )
        return rows[:limit]

    rows = await floors.scan("pending", look)
    oldest = None if step is None else max((row["waited"] for row in rows), default=0.0)
    ageing.record("pending", full=len(rows) >= limit, oldest=oldest, now=now)
    return rows, next_start, looked_at


def _in_order(row: Row) -> tuple[int, int]:
    """Return a key to sort by: the highest priority first, then the longest waiting."""
    return -row["priority"], row["ready_seq"]
