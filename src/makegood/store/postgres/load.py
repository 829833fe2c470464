"""Reads tasks for a Scheduler, with steps, requests and messages, in one statement."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from types import MappingProxyType
from typing import Any, Final

from makegood.model.messages import TaskMessage
from makegood.model.shape import KeptSignal
from makegood.model.task import Step
from makegood.store import rows
from makegood.store.postgres.connection import Connection
from makegood.store.postgres.transaction import Row
from makegood.store.records import NO_LIMIT, Loaded
from makegood.store.rows import INLINE, Interner, fitting
from makegood.store.task_rows import Raw, Read

_SEQ = itemgetter(0)
_ALL: Final = (1 << 31) - 1
"""More bytes than any value has."""


def _inline(column: str, most: object) -> str:
    """Return a column for the first read: null when the value is large."""
    return f"case when octet_length({column}) <= {most} then {column} end as {column.rpartition('.')[2]}"


def _beyond(column: str, most: object) -> str:
    """Return the bytes of a value that the first read omits."""
    return f"case when octet_length({column}) > {most} then octet_length({column}) else 0 end"


COLUMNS = f"""
t.id, t.app, t.workflow, t.key, t.state, t.goal, t.on_failure, t.submission, t.priority, t.epoch, t.within, t.complete_by,
t.undo_within, t.cause, t.failure_count, t.lost, {_inline("t.static", INLINE)}, {_inline("t.result", INLINE)}, t.trace, t.told, t.notified, t.ready_seq,
t.start_at, t.start_wall,
nullif({_beyond("t.static", INLINE)} + {_beyond("t.result", INLINE)}, 0) as large
"""
_RESULT, _LATE, _SPEC, _BODY = (_inline(column, "$2") for column in ("result", "late", "spec", "body"))
_STEP_BEYOND = " + ".join(_beyond(column, "$2") for column in ("result", "late", "spec"))
_BODY_BEYOND = _beyond("body", "$2")
_PARTS = f"""
select 0 as what, task, idx, state, attempt, round, failure_count, asked, deaths, flags, {_RESULT},
    {_LATE}, error, {_SPEC}, null::float8 as due, 0::bigint as seq,
    nullif({_STEP_BEYOND}, 0) as large, first_sent, runs_until
from makegood.step where task = any ($1::bigint[])
union all
select 1, task, idx, kind, attempt, 0, 0, 0, 0, 0, null, null, null, null,
    greatest(0, complete_by - extract(epoch from statement_timestamp())::float8), 0, null, null, null
from makegood.request where task = any ($1)
union all
select 2, task, 0, '', 0, 0, 0, 0, 0, 0, {_BODY}, null, db_user, null, null, seq, nullif({_BODY_BEYOND}, 0), null, null
from makegood.inbox where task = any ($1)
"""  # noqa: S608 - our own columns
_KEPT = f"""
union all
select 3, task, 0, name, 0, 0, 0, 0, 0, 0, {_BODY}, convert_to(step, 'UTF8'), id, null, null, seq, nullif({_BODY_BEYOND}, 0), null, null
from makegood.signal where task = any ($1) and body is not null
"""  # noqa: S608 - our own columns
_FREE = "t.locked_by is null and t.state in ('error', 'undone', 'processed', 'sleeping', 'queued')"
_HAS_MESSAGE = "(select i.seq from makegood.inbox i where i.task = t.id limit 1) is not null"
AT_REST = f"{_FREE} and {_HAS_MESSAGE}"
"""Of a task ``t``: a message waits for it, and nobody holds it."""
_PART_COUNT: Final = 19
"""Columns in each part of ``_PARTS`` and ``_KEPT``."""
# Of one moment, without a lock: a task's row changes with each of its claims, and with all that operators do.
UNLOCKED = f"""
select t.*, p.* from (
    select {COLUMNS}, t.xmin::text::bigint as version from makegood.task t
    where t.id = any ($1) and {_FREE} and (t.id = $3::bigint or {_HAS_MESSAGE})
) t full join ({_PARTS}{_KEPT}) p ({", ".join(f"part_{n}" for n in range(_PART_COUNT))}) on false
"""  # noqa: S608 - our own columns
_STATIC = "select id, static, result from makegood.task where id = any ($1::bigint[])"
_HELD = f"select {COLUMNS} from makegood.task t where t.locked_by = $1 and t.id = any ($2::bigint[])"  # noqa: S608 - our own columns


def _step(plans: Interner, row: Any, request: Any, waiting: bool) -> Step:  # noqa: FBT001 - columns
    (
        _, _, _, state, attempt, round_, failures, asks, deaths, flags, result, late, error, spec, *_, first_sent, runs_until,
    ) = row  # fmt: skip
    doing = None
    if request is not None:
        doing = request[0]
        if request[1] > attempt:
            state, attempt = "running", request[1]
    elif state == "waiting" and not attempt and round_ == 1 and not (waiting or failures or flags):
        return plans.new_step(spec)  # shared by all tasks of one shape
    return Step(
        plans.plan(spec), state, doing, waiting, attempt, round_, failures, asks, deaths,
        bool(flags & rows.DOUBT), bool(flags & rows.FINAL), bool(flags & rows.STUCK), bool(flags & rows.AGAIN),
        result, late, error, bool(flags & rows.STOOD), first_sent or 0.0, bool(flags & rows.PROBE_ANSWER), rows.tally(flags),
        runs_until or 0.0,
        bool(flags & rows.LOSER),
    )  # fmt: skip


@dataclass(slots=True)
class _Pieces:
    """The rows of a task."""

    steps: list[Row] = field(default_factory=list)
    inbox: list[tuple[int, bytes, str | None]] = field(default_factory=list)
    signals: list[tuple[int, KeptSignal]] = field(default_factory=list)
    doing: dict[int, tuple[str, int]] = field(default_factory=dict)
    due: dict[int, float] = field(default_factory=dict)
    large: int = 0
    """The bytes of the values that the first read omitted."""


def _refuse_nan(waits: Iterable[float]) -> None:
    """Raise ``ValueError`` for a time that never comes: a Scheduler would wait for it forever."""
    if any(map(math.isnan, waits)):
        raise ValueError("a timer is due at no moment")


async def _pieces(
    connection: Connection, ids: Sequence[int], inline: int, *, may_wait: bool
) -> dict[int, _Pieces]:
    """Return the rows of tasks, without values of more than ``inline`` bytes. ``may_wait``: whether one of
    them may have steps that wait for signals.
    """
    return _pieces_by_task(ids, await connection.fetch(_PARTS + _KEPT if may_wait else _PARTS, ids, inline))


def _pieces_by_task(ids: Sequence[int], part_rows: Iterable[Any]) -> dict[int, _Pieces]:
    """Return the rows of ``_PARTS`` and ``_KEPT`` by task."""
    pieces = {id_: _Pieces() for id_ in ids}
    for row in part_rows:
        piece = pieces[row[1]]
        if row[0] == 0:
            piece.steps.append(row)
        elif row[0] == 2:
            piece.inbox.append((row[15], row[10], row[12]))
        elif row[0] == 3:
            piece.signals.append((row[15], KeptSignal(row[3], row[12], row[11].decode(), row[10])))
        elif row[3] == "timer":
            piece.due[row[2]] = row[14]
        else:
            piece.doing[row[2]] = (row[3], row[4])
        if row[16] is not None:
            piece.large += row[16]
    return pieces


async def read(connection: Connection, plans: Interner, raws: Sequence[Raw], room: int = NO_LIMIT) -> Read:
    """Return tasks with steps, requests and messages, in the order of ``raws``.

    One statement, and two more for tasks with large values. ``room``: bytes of large values that may be read;
    the first task is read whatever its size.
    """
    ids = [raw.id for raw in raws]
    may_wait = any(rows.may_wait(raw.row["static"]) for raw in raws)
    pieces = await _pieces(connection, ids, INLINE, may_wait=may_wait)
    large = {
        id_: size
        for id_, raw in zip(ids, raws, strict=True)
        if (size := pieces[id_].large + (raw.row["large"] or 0))
    }
    left: list[int] = []
    static: dict[int, tuple[bytes, bytes | None]] = {}
    if large:
        count = fitting(ids, large, room)
        left, ids, raws = ids[count:], ids[:count], raws[:count]
        large_ids = [id_ for id_ in ids if id_ in large]
        pieces |= await _pieces(connection, large_ids, _ALL, may_wait=may_wait)
        static = {row[0]: (row[1], row[2]) for row in await connection.fetch(_STATIC, large_ids)}
    result = _assemble(plans, raws, pieces, static)
    result.left = left
    return result


def _assemble(
    plans: Interner,
    raws: Sequence[Raw],
    pieces: dict[int, _Pieces],
    static: Mapping[int, tuple[bytes, bytes | None]] = MappingProxyType({}),
) -> Read:
    """Return tasks from their rows. ``static``: the large values of rows that were read apart."""
    result = Read([], [], [])
    for raw in raws:
        piece, id_ = pieces[raw.id], raw.id
        piece.steps.sort(key=lambda row: row[2])
        piece.inbox.sort()
        piece.signals.sort(key=_SEQ)
        try:
            _refuse_nan(piece.due.values())
            messages: list[TaskMessage] = [
                rows.read_message(body, seq, user) for seq, body, user in piece.inbox
            ]
            steps = [_step(plans, row, piece.doing.get(row[2]), row[2] in piece.due) for row in piece.steps]
            task, signals = raw.record(static.get(id_)), [signal for _, signal in piece.signals]
            result.tasks.append(
                Loaded(task, rows.check_steps(steps, raw.row[5]), messages, piece.due, signals or ())
            )
        except Exception as fault:  # noqa: BLE001 - only this task's rows can have caused it
            result.fault(id_, fault)
    return result


async def read_unlocked(
    connection: Connection, plans: Interner, ids: Sequence[int], eager: int | None
) -> tuple[Read, dict[int, Row]]:
    """Return those of the tasks that are at rest, and the row of each with its ``version``: one statement, of
    one moment, which locks nothing. Tasks with large values are left. ``eager``: as in ``Claim``.
    """
    task_rows: dict[int, Row] = {}
    part_rows: list[Any] = []
    for row in await connection.fetch(UNLOCKED, ids, INLINE, eager):
        if row["id"] is not None:
            task_rows[row["id"]] = row
        else:
            part_rows.append(row[-_PART_COUNT:])
    pieces = _pieces_by_task(ids, part_rows)
    raws = [
        Raw(row, row["epoch"] + 1, row["complete_by"] is not None)
        for id_, row in task_rows.items()
        if not (row["large"] or pieces[id_].large)
    ]
    return _assemble(plans, raws, pieces), task_rows


async def load(connection: Connection, plans: Interner, node: int, tasks: Sequence[int]) -> Read:
    """Return those of ``tasks`` that ``node`` holds, as of one moment."""
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        held_rows = await connection.fetch(_HELD, node, sorted(set(tasks)))
        raws = [Raw(row, row["epoch"], row["complete_by"] is not None) for row in held_rows]
        raws.sort(key=lambda raw: raw.row["id"])
        return await read(connection, plans, raws)
