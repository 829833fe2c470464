"""Claiming: selects the tasks that a Scheduler gets.

Nothing is written here. The lock is written with the task's first Decision.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from makegood.store.priority_ageing import PRIORITIES, Ageing, rank
from makegood.store.records import MOST_LOST, Claim, Loaded
from makegood.store.sqlite.load import COLUMNS, read
from makegood.store.sqlite.transaction import Row, WriteTransaction, are_numbers
from makegood.store.task_rows import Raw

PENDING = f"""
select {COLUMNS} from makegood_task where state = 'pending' and locked_by is null
order by priority desc, ready_seq limit ?
"""  # noqa: S608 - our own columns
_OF_ONE = f"""
select * from (
    select {COLUMNS}, ready_seq from makegood_task where state = 'pending' and locked_by is null and priority = {{n}}
    order by ready_seq limit ?1
)
"""  # noqa: S608 - our own columns
PENDING_AGED = " union all ".join(_OF_ONE.format(n=n) for n in range(PRIORITIES))
"""The oldest of each priority."""
_AT_REST = f"""
select {COLUMNS} from makegood_task
where id in ({{marks}}) and locked_by is null and state in ('error', 'undone', 'processed')
    and exists (select 1 from makegood_inbox where task = makegood_task.id)
"""  # noqa: S608 - our own columns
_PRIORITY, _LOST = 8, 15
_WITHIN, _COMPLETE_BY = 10, 11
_NUMBERS = (7, _PRIORITY, 9, _WITHIN, _COMPLETE_BY, 14, _LOST)


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
    left: bool = False
    """Whether tasks were left out because their large values did not fit in the claim's room."""


def find(tx: WriteTransaction, claim: Claim, ageing: Ageing) -> Claimed:
    """Return the tasks that ``claim`` gets, with their epochs already raised."""
    found = Claimed()
    rest = {row[0]: row for row in _sound(tx.among(_AT_REST, claim.at_rest), found)}
    pending = _pending(tx, claim.limit + 1, ageing)
    taken = _sound(pending[: claim.limit], found)
    doubtful = next((n for n, row in enumerate(taken) if row[_LOST] >= MOST_LOST), None)
    if doubtful is not None:
        taken = taken[: 0 if rest and not doubtful else max(1, doubtful)]
    found.more = len(pending) > len(taken)
    raws: list[Raw] = []
    for row in (*rest.values(), *taken):
        timed = row[_COMPLETE_BY] is not None
        if not timed and row[_WITHIN] is not None and row[4] == "pending" and row[5] == "forward":
            found.complete_by[row[0]] = tx.now + row[_WITHIN]
            timed = True
        raws.append(Raw(row, row[9] + 1, timed))
    got = read(tx, raws, claim.room)
    found.tasks = got.tasks
    found.unreadable += got.unreadable
    for task in got.left:
        found.complete_by.pop(task, None)
    found.left = bool(got.left)
    found.more = found.more or found.left
    return found


def _sound(rows: Sequence[Row], found: Claimed) -> list[Row]:
    """Return the rows whose number columns hold numbers.

    The others cannot be claimed, and are recorded as unreadable.
    """
    sound = [row for row in rows if are_numbers(*[row[n] for n in _NUMBERS])]
    if len(sound) < len(rows):
        here = {row[0] for row in sound}
        found.unreadable += [
            (row[0], "its row cannot be read: a column of numbers holds something else")
            for row in rows
            if row[0] not in here
        ]
    return sound


def _pending(tx: WriteTransaction, limit: int, ageing: Ageing) -> list[Row]:
    """Return at most ``limit`` pending tasks, in the order in which they should be claimed."""
    step = ageing.step
    oldest: float | None = None
    if step is None or not ageing.due("pending", tx.now):
        found = tx.rows(PENDING, (limit,))
    else:
        known = tx.rows(PENDING_AGED, (limit,))

        def aged(row: Row) -> float:
            if not are_numbers(row[_PRIORITY], row[-1]):
                return 0.0  # this task is put to error next
            return rank(row[_PRIORITY], row[-1], step * 1e6)

        known.sort(key=aged)
        found = [row[:-1] for row in known[:limit]]
        oldest = max((tx.now - row[-1] / 1e6 for row in known[:limit] if are_numbers(row[-1])), default=0.0)
    ageing.found("pending", full=len(found) >= limit, oldest=oldest, now=tx.now)
    return found
