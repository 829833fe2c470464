"""Reading tasks as a Scheduler wants them: with steps, requests and messages."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from makegood.messages import Message
from makegood.states import TaskState
from makegood.store import rows
from makegood.store.records import Loaded
from makegood.store.sqlite.transaction import Row, Transaction
from makegood.task import Step, Task

COLUMNS = """
id, app, workflow, key, state, goal, on_failure, submission, priority, epoch, within, complete_by, undo_within, cause,
failure_count, lost, static, result, trace, told, notified
"""
_STEPS = """
select task, idx, spec, state, attempt, round, failure_count, asked, deaths, flags, result, late, error
from makegood_step where task in ({marks}) order by task, idx
"""
_REQUESTS = "select task, idx, kind, complete_by from makegood_request where task in ({marks})"
_INBOX = "select task, seq, body from makegood_inbox where task in ({marks}) order by seq"
_HELD = f"select {COLUMNS} from makegood_task where locked_by = ? and id in ({{marks}})"  # noqa: S608 - our own columns


_UNTOUCHED = ("waiting", 0, 1, 0, 0, 0, 0, None, None, None)


@dataclass(slots=True)
class Raw:
    """A task's row, to be made a record, under the epoch that it has or is about to get."""

    row: Row
    epoch: int
    timed: bool

    @property
    def id(self) -> int:
        """The task's id."""
        found: int = self.row[0]
        return found

    @property
    def state(self) -> TaskState:
        """The task's state."""
        found: TaskState = self.row[4]
        return found


@dataclass(slots=True)
class Read:
    """Tasks that could be read, and (task, reason) of those that could not."""

    tasks: list[Loaded]
    unreadable: list[tuple[int, str]]


def _task(raw: Raw) -> Task:
    (
        id_, app, workflow, key, state, goal, on_failure, submission, priority, _, within, _, undo_within, cause, failures,
        lost, static, result, trace, told, notified,
    ) = raw.row  # fmt: skip
    inputs, returns, reply = rows.read_static(static)
    return Task(
        id_, app, workflow, key, state, goal, on_failure, submission, priority, raw.epoch, within, raw.timed, undo_within,
        cause, failures, lost, inputs, returns, result, trace, reply, told or "", notified or 0,
    )  # fmt: skip


def _step(tx: Transaction, row: Row, doing: object, waiting: bool) -> Step:  # noqa: FBT001 - columns
    if doing is None and not waiting and row[3:] == _UNTOUCHED:
        return tx.plans.untouched(row[2])
    _, _, spec, state, attempt, round_, failures, asked, deaths, flags, result, late, error = row
    return Step(
        tx.plans.plan(spec), state, doing, waiting, attempt, round_, failures, asked, deaths,  # type: ignore[arg-type]
        bool(flags & rows.DOUBT), bool(flags & rows.FINAL), bool(flags & rows.STUCK), bool(flags & rows.AGAIN),
        result, late, error, bool(flags & rows.STOOD),
    )  # fmt: skip


def read(tx: Transaction, found: Sequence[Raw]) -> Read:
    """Return tasks with steps, requests and messages, in the order of ``found``; four statements for up to 512."""
    ids = [raw.id for raw in found]
    doing: dict[tuple[int, int], str] = {}
    due: dict[int, dict[int, float]] = {}
    for task, idx, kind, complete_by in tx.among(_REQUESTS, ids):
        if kind == "timer":
            due.setdefault(task, {})[idx] = max(0.0, complete_by - tx.now)
        else:
            doing[task, idx] = kind
    steps: dict[int, list[Row]] = {id_: [] for id_ in ids}
    for row in tx.among(_STEPS, ids):
        steps[row[0]].append(row)
    inbox: dict[int, list[tuple[int, bytes]]] = {}
    for task, seq, body in tx.among(_INBOX, ids):
        inbox.setdefault(task, []).append((seq, body))
    done = Read([], [])
    for raw in found:
        id_ = raw.id
        timers = due.get(id_, {})
        try:
            messages: list[Message] = [rows.read_message(body, seq) for seq, body in inbox.get(id_, ())]
            parts = [_step(tx, row, doing.get((id_, row[1])), row[1] in timers) for row in steps[id_]]
            done.tasks.append(Loaded(_task(raw), parts, messages, timers))
        except (msgspec.MsgspecError, ValueError, TypeError) as fault:
            done.unreadable.append((id_, f"its rows cannot be read: {type(fault).__name__}: {fault}"))
    return done


def load(tx: Transaction, node: int, tasks: Sequence[int]) -> Read:
    """Return those of ``tasks`` that ``node`` holds."""
    found = [Raw(row, row[9], row[11] is not None) for row in tx.among(_HELD, tasks, node)]
    found.sort(key=lambda raw: raw.id)
    return read(tx, list({raw.id: raw for raw in found}.values()))
