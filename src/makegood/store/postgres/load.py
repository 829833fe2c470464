"""Reading tasks as a Scheduler wants them: with steps, requests and messages, in one statement."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from makegood.messages import Message
from makegood.store import rows
from makegood.store.postgres.link import Connection
from makegood.store.postgres.transaction import Row
from makegood.store.records import Loaded
from makegood.store.rows import Interner
from makegood.task import Step, Task

COLUMNS = """
t.id, t.app, t.workflow, t.key, t.state, t.goal, t.on_failure, t.submission, t.priority, t.epoch, t.within, t.complete_by,
t.undo_within, t.cause, t.failure_count, t.lost, t.static, t.result, t.trace, t.told, t.notified, t.ready_seq
"""
_PARTS = """
select 0 as what, task, idx, state, attempt, round, failure_count, asked, deaths, flags, result, late, error, spec,
    null::float8 as due, 0::bigint as seq
from makegood.step where task = any ($1::bigint[])
union all
select 1, task, idx, kind, attempt, 0, 0, 0, 0, 0, null, null, null, null,
    greatest(0, complete_by - extract(epoch from clock_timestamp())::float8), 0
from makegood.request where task = any ($1)
union all
select 2, task, 0, '', 0, 0, 0, 0, 0, 0, body, null, null, null, null, seq from makegood.inbox where task = any ($1)
"""
_HELD = f"select {COLUMNS} from makegood.task t where t.locked_by = $1 and t.id = any ($2::bigint[])"  # noqa: S608 - our own columns


@dataclass(slots=True)
class Raw:
    """A task's row, to be made a record, under the epoch that it has or is about to get."""

    row: Row
    epoch: int
    timed: bool


@dataclass(slots=True)
class Read:
    """Tasks that could be read, and (task, reason) of those that could not."""

    tasks: list[Loaded]
    unreadable: list[tuple[int, str]]


def _task(raw: Raw) -> Task:
    (
        id_, app, workflow, key, state, goal, on_failure, submission, priority, _, within, _, undo_within, cause, failures,
        lost, static, result, trace, told, notified, *_,
    ) = raw.row  # fmt: skip
    inputs, returns, reply = rows.read_static(static)
    return Task(
        id_, app, workflow, key, state, goal, on_failure, submission, priority, raw.epoch, within, raw.timed, undo_within,
        cause, failures, lost, inputs, returns, result, trace, reply, told or "", notified or 0,
    )  # fmt: skip


def _step(plans: Interner, row: Any, request: Any, waiting: bool) -> Step:  # noqa: FBT001 - columns
    (
        _, _, _, state, attempt, round_, failures, asked, deaths, flags, result, late, error, spec, _, _,
    ) = row  # fmt: skip
    doing = None
    if request is not None:
        doing = request[0]
        if request[1] > attempt:
            state, attempt = "running", request[1]
    elif state == "waiting" and not attempt and round_ == 1 and not (waiting or failures or flags):
        return plans.untouched(spec)  # shared by all tasks of one shape
    return Step(
        plans.plan(spec), state, doing, waiting, attempt, round_, failures, asked, deaths,
        bool(flags & rows.DOUBT), bool(flags & rows.FINAL), bool(flags & rows.STUCK), bool(flags & rows.AGAIN),
        result, late, error, bool(flags & rows.STOOD),
    )  # fmt: skip


@dataclass(slots=True)
class _Pieces:
    steps: list[Row]
    inbox: list[tuple[int, bytes]]
    doing: dict[int, tuple[str, int]]
    due: dict[int, float]


async def read(connection: Connection, plans: Interner, found: Sequence[Raw]) -> Read:
    """Return tasks with steps, requests and messages, in the order of ``found``."""
    ids: list[int] = [raw.row["id"] for raw in found]
    pieces = {id_: _Pieces([], [], {}, {}) for id_ in ids}
    for row in await connection.fetch(_PARTS, ids):
        piece = pieces[row[1]]
        if row[0] == 0:
            piece.steps.append(row)
        elif row[0] == 2:
            piece.inbox.append((row[15], row[10]))
        elif row[3] == "timer":
            piece.due[row[2]] = row[14]
        else:
            piece.doing[row[2]] = (row[3], row[4])
    done = Read([], [])
    for raw, id_ in zip(found, ids, strict=True):
        piece = pieces[id_]
        piece.steps.sort(key=lambda row: row[2])
        piece.inbox.sort()
        try:
            messages: list[Message] = [rows.read_message(body, seq) for seq, body in piece.inbox]
            steps = [_step(plans, row, piece.doing.get(row[2]), row[2] in piece.due) for row in piece.steps]
            done.tasks.append(Loaded(_task(raw), steps, messages, piece.due))
        except (msgspec.MsgspecError, ValueError, TypeError) as fault:
            done.unreadable.append((id_, f"its rows cannot be read: {type(fault).__name__}: {fault}"))
    return done


async def load(connection: Connection, plans: Interner, node: int, tasks: Sequence[int]) -> Read:
    """Return those of ``tasks`` that ``node`` holds, all as of one moment."""
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        found = await connection.fetch(_HELD, node, sorted(set(tasks)))
        raws = [Raw(row, row["epoch"], row["complete_by"] is not None) for row in found]
        raws.sort(key=lambda raw: raw.row["id"])
        return await read(connection, plans, raws)
