"""Claiming: selects the tasks that a Scheduler gets.

Nothing is written here. The lock is written with the task's first Decision.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from makegood.model.states import UNBEGUN
from makegood.store import lanes
from makegood.store.priority_ageing import PRIORITIES, Ageing, rank
from makegood.store.records import MOST_LOST, NO_MOMENT, Claim, Loaded
from makegood.store.rows import present_start
from makegood.store.sqlite.load import COLUMNS, read
from makegood.store.sqlite.transaction import Row, WriteTransaction, are_numbers
from makegood.store.task_rows import Raw

# What a process claims that was declared dead would be freed once more, and counted.
_LIVES = "not exists (select 1 from makegood_node where id = ?2 and dead)"
PENDING = f"""
select {COLUMNS}, ready_seq from makegood_task where state = 'pending' and locked_by is null and {_LIVES}
order by priority desc, ready_seq limit ?1
"""  # noqa: S608 - our own columns
QUEUED = PENDING.replace("state = 'pending'", f"state = 'queued' and ready_seq < {NO_MOMENT}")
_OF_ONE = f"""
select * from (
    select {COLUMNS}, ready_seq from makegood_task where state = 'pending' and locked_by is null and priority = {{n}} and {_LIVES}
    order by ready_seq limit ?1
)
"""  # noqa: S608 - our own columns
PENDING_AGED = " union all ".join(_OF_ONE.format(n=n) for n in range(PRIORITIES))
"""The oldest of each priority."""
# Of each priority, those due by their clock: the store's (?3) after a delay, the calendar (?4) at a moment.
_DUE_OF_ONE = f"""
select * from (
    select id, priority, ready_seq from makegood_task where state = 'sleeping' and locked_by is null and (start_wall is null) = {{is_delay}}
        and priority = {{n}} and ready_seq <= {{clock}} and {_LIVES}
    order by ready_seq limit ?1
)
"""  # noqa: S608 - our own text
_NEXT_OF_ONE = """
select * from (
    select ready_seq - {clock} from makegood_task where state = 'sleeping' and locked_by is null and (start_wall is null) = {is_delay}
        and priority = {n} and ready_seq > {clock} order by ready_seq limit 1
)
"""
_CLOCKS = ((1, "?3"), (0, "?4"))
NEXT = " union all ".join(
    _NEXT_OF_ONE.format(n=n, is_delay=is_delay, clock=clock)
    for is_delay, clock in _CLOCKS
    for n in range(PRIORITIES)
)
# The highest priority first, and no lower ones once ?5 are found by a clock.
_ALL_DUE = " union all ".join(
    "select * from ({} limit ?5)".format(  # noqa: S608 - our own text
        " union all ".join(
            _DUE_OF_ONE.format(n=n, is_delay=is_delay, clock=clock) for n in reversed(range(PRIORITIES))
        )
    )
    for is_delay, clock in _CLOCKS
)
# Only those that come first are read whole. One priority counts as ?6 microseconds.
DUE = f"""
select {COLUMNS}, ready_seq from makegood_task
where id in (select id from ({_ALL_DUE}) order by ready_seq - priority * ?6 limit ?1)
"""  # noqa: S608 - our own columns
_STRICT = 10**17
"""Microseconds, more than any task waits: as the step of ageing they let age count within a priority only."""
_AT_REST = f"""
select {COLUMNS} from makegood_task
where (id = ? or exists (select 1 from makegood_inbox where task = makegood_task.id))
    and id in ({{marks}}) and locked_by is null and state in ('error', 'undone', 'processed', 'sleeping', 'queued')
"""  # noqa: S608 - our own columns
_SLEEP_ON = "update makegood_task set start_at = ?, ready_seq = ? where id = ?"
_PRIORITY, _LOST, _START_AT, _START_WALL = 8, 15, 21, 22
_WITHIN, _COMPLETE_BY = 10, 11
_NUMBERS = (7, _PRIORITY, 9, _WITHIN, _COMPLETE_BY, 14, _LOST, _START_AT)


@dataclass(slots=True)
class Claimed:
    """The tasks that a claim found."""

    tasks: list[Loaded] = field(default_factory=list)
    """The tasks that can be claimed."""
    complete_by: dict[int, float] = field(default_factory=dict)
    """By task, the deadline of those whose time begins now."""
    unreadable: list[tuple[int, str]] = field(default_factory=list)
    """Tasks that cannot be read, each with the reason."""
    more: bool = False
    """Whether there are more tasks to claim."""
    next_start: float | None = None
    """Seconds until the next task that sleeps is due."""
    left: bool = False
    """Whether tasks were left out because their large values did not fit in the claim's room."""
    more_queued: bool = False
    """Whether there are more tasks whose lanes may be free."""


def find(tx: WriteTransaction, claim: Claim, ageing: Ageing, node: int) -> Claimed:
    """Return the tasks that ``claim`` gets, with their epochs already raised; ``node`` claims them."""
    claims = Claimed()
    rest = {row[0]: row for row in _sound(tx.among(_AT_REST, claim.at_rest, claim.eager), claims)}
    free, refusals = _with_lanes(tx, claim, node, claims)
    pending, claims.next_start = _pending(tx, claim, ageing, node, free)
    candidates = _sound(pending[: claim.limit], claims)
    doubtful = next((n for n, row in enumerate(candidates) if row[_LOST] >= MOST_LOST), None)
    if doubtful is not None:
        candidates = candidates[: 0 if rest and not doubtful else max(1, doubtful)]
    candidates = _due(tx, candidates)
    claims.more = len(pending) > len(candidates)
    refusal_ids = {row[0] for row in refusals}
    rest |= {row[0]: row for row in refusals}
    for row in candidates:
        rest.pop(row[0], None)  # one that sleeps and is due
    raws: list[Raw] = []
    for row in (*rest.values(), *candidates):
        has_deadline = row[_COMPLETE_BY] is not None
        begins = row[4] in UNBEGUN and row[0] not in rest
        if not has_deadline and row[_WITHIN] is not None and begins and row[5] == "forward":
            claims.complete_by[row[0]] = tx.now + row[_WITHIN]
            has_deadline = True
        raws.append(Raw(row, row[9] + 1, has_deadline))
    result = read(tx, raws, claim.room)
    claims.tasks = result.tasks
    for load in claims.tasks:
        if load.task.id in rest:
            state = load.task.state
            load.sleeps = state == "queued" or (
                state == "sleeping" and rest[load.task.id][_START_AT] is not None
            )
            load.lane_taken = load.task.id in refusal_ids
    claims.unreadable += result.unreadable
    for task in result.left:
        claims.complete_by.pop(task, None)
    claims.left = bool(result.left)
    claims.more = claims.more or claims.left
    return claims


def _sound(rows: Sequence[Row], claims: Claimed) -> list[Row]:
    """Return the rows whose number columns hold numbers.

    The others cannot be claimed, and are recorded as unreadable.
    """
    sound = [row for row in rows if are_numbers(*[row[n] for n in _NUMBERS])]
    if len(sound) < len(rows):
        sound_ids = {row[0] for row in sound}
        claims.unreadable += [
            (row[0], "its row cannot be read: a column of numbers holds something else")
            for row in rows
            if row[0] not in sound_ids
        ]
    return sound


def _with_lanes(
    tx: WriteTransaction, claim: Claim, node: int, claims: Claimed
) -> tuple[list[Row], list[Row]]:
    """Return queued tasks whose lanes are free, and those that do not wait for theirs; park the others."""
    if not claim.lanes or claim.limit <= 0:
        return [], []
    candidates = _sound(tx.rows(QUEUED, (claim.limit, node)), claims)
    claims.more_queued = len(candidates) == claim.limit
    verdict = tx.do(lanes.admit, [row[0] for row in candidates])
    return (
        [row for row in candidates if row[0] in verdict.may_go],
        [row for row in candidates if row[0] in verdict.refusals],
    )


def _pending(
    tx: WriteTransaction, claim: Claim, ageing: Ageing, node: int, free: Sequence[Row]
) -> tuple[list[Row], float | None]:
    """Return the tasks to claim in their order, with those whose lanes are ``free``, one more than
    wanted if there are more, and in how many seconds the next one that sleeps is due.
    """
    if claim.limit <= 0:  # only for messages
        return [], None
    limit = claim.limit + 1
    step = ageing.step if ageing.due("pending", tx.now) else None
    due = list(free)
    next_start: float | None = None
    if claim.sleepers:
        clocks = (int(tx.now * 1e6), int(tx.calendar * 1e6))
        order = (limit, _STRICT) if step is None else (-1, int(step * 1e6))
        due += tx.rows(DUE, (limit, node, *clocks, *order))
        waits = [wait for (wait,) in tx.rows(NEXT, (limit, node, *clocks)) if are_numbers(wait)]
        next_start = min(waits) / 1e6 if waits else None
    oldest: float | None = None
    if step is None:
        candidates = tx.rows(PENDING, (limit, node))
        if due:
            candidates = sorted([*candidates, *due], key=_in_order)[:limit]
    else:
        rows = tx.rows(PENDING_AGED, (limit, node)) + due

        def age(row: Row) -> float:
            if not are_numbers(row[_PRIORITY], row[-1]):
                return 0.0  # this task is put to error next
            return rank(row[_PRIORITY], row[-1], step * 1e6)

        rows.sort(key=age)
        candidates = rows[:limit]
        oldest = max((tx.now - row[-1] / 1e6 for row in rows[:limit] if are_numbers(row[-1])), default=0.0)
    ageing.record("pending", full=len(candidates) >= limit, oldest=oldest, now=tx.now)
    return candidates, next_start


def _due(tx: WriteTransaction, candidates: list[Row]) -> list[Row]:
    """Return candidates without those that sleep on, by the rules that their zones have now."""
    starts: dict[int, float] = {}
    for row in candidates:
        if (
            row[_START_WALL]
            and (start := present_start(row[_START_AT], row[_START_WALL], row[-1])) is not None
        ):
            starts[row[0]] = start
    tx.many(_SLEEP_ON, [(start, round(start * 1e6), task) for task, start in starts.items()])
    return [row for row in candidates if row[0] not in starts]


def _in_order(row: Row) -> tuple[float, float]:
    """Return a key to sort by: the highest priority first, then the longest waiting."""
    if not are_numbers(row[_PRIORITY], row[-1]):
        return -math.inf, 0.0  # this task is put to error next
    return -row[_PRIORITY], row[-1]
