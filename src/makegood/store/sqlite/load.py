"""Reads tasks for a Scheduler: with steps, requests and messages."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from makegood.model.messages import TaskMessage
from makegood.model.shape import KeptSignal
from makegood.model.task import Step
from makegood.store import rows
from makegood.store.records import NO_LIMIT, Loaded
from makegood.store.rows import INLINE, fitting
from makegood.store.sqlite.transaction import Row, WriteTransaction, are_values
from makegood.store.task_rows import Raw, Read


def _inline(column: str) -> str:
    """Return the SQL that reads a column at first: for a large value it gives only the length."""
    return f"case when length({column}) > {INLINE} then length({column}) else {column} end"


COLUMNS = f"""
id, app, workflow, key, state, goal, on_failure, submission, priority, epoch, within, complete_by, undo_within, cause,
failure_count, lost, {_inline("static")}, {_inline("result")}, trace, told, notified, start_at, start_wall
"""
_ALL_STEPS = """
select task, idx, spec, state, attempt, round, failure_count, asked, deaths, flags, result, late, error, first_sent, runs_until
from makegood_step where task in ({marks}) order by task, idx
"""
_STEPS = (
    _ALL_STEPS.replace("spec", _inline("spec"))
    .replace("result", _inline("result"))
    .replace("late", _inline("late"))
)
_REQUESTS = "select task, idx, kind, complete_by from makegood_request where task in ({marks})"
_ALL_INBOX = "select task, seq, body from makegood_inbox where task in ({marks}) order by seq"
_INBOX = _ALL_INBOX.replace("body", _inline("body"))
_ALL_KEPT = """
select task, name, id, step, body from makegood_signal where task in ({marks}) and body is not null order by seq
"""
_KEPT = _ALL_KEPT.replace("step, body", f"step, {_inline('body')}")
_STATIC = "select id, static, result from makegood_task where id in ({marks})"
_HELD = f"select {COLUMNS} from makegood_task where locked_by = ? and id in ({{marks}})"  # noqa: S608 - our own columns


_UNTOUCHED = ("waiting", 0, 1, 0, 0, 0, 0, None, None, None, None, None)
_OF_TASK, _OF_STEP = (16, 17), (2, 10, 11)
"""The positions in a row of values that may be large."""


def _step(tx: WriteTransaction, row: Row, doing: object, waiting: bool) -> Step:  # noqa: FBT001 - columns
    if doing is None and not waiting and row[3:] == _UNTOUCHED:
        return tx.plans.new_step(row[2])
    (
        _,
        _,
        spec,
        state,
        attempt,
        round_,
        failures,
        asks,
        deaths,
        flags,
        result,
        late,
        error,
        first_sent,
        runs_until,
    ) = row
    if not are_values(result, late):
        raise ValueError(f"a result of its step {row[1]} is not a value")
    return Step(
        tx.plans.plan(spec), state, doing, waiting, attempt, round_, failures, asks, deaths,  # type: ignore[arg-type]
        bool(flags & rows.DOUBT), bool(flags & rows.FINAL), bool(flags & rows.STUCK), bool(flags & rows.AGAIN),
        result, late, error, bool(flags & rows.STOOD), first_sent or 0.0, bool(flags & rows.PROBE_ANSWER), rows.tally(flags),
        runs_until or 0.0,
        bool(flags & rows.LOSER),
    )  # fmt: skip


@dataclass(slots=True)
class _Pieces:
    """Rows by task."""

    steps: dict[int, list[Row]]
    """The rows of its steps."""
    inbox: dict[int, list[tuple[int, bytes]]]
    """Its messages, as (seq, body)."""
    signals: dict[int, list[Row]]
    """The signals that it keeps."""
    large: dict[int, int]
    """The bytes of its large values that were not read; tasks without any are absent."""
    static: dict[int, tuple[bytes, bytes | None]]
    """The large values of the task's own row (static part, result), read later."""


def _pieces(tx: WriteTransaction, raws: Sequence[Raw]) -> _Pieces:
    """Return the rows of tasks, without large values."""
    ids = [raw.id for raw in raws]
    pieces = _Pieces({id_: [] for id_ in ids}, {}, {}, {}, {})
    steps, large = pieces.steps, defaultdict[int, int](int)
    for raw in raws:
        if type(raw.row[16]) is int or type(raw.row[17]) is int:
            large[raw.id] += _large(raw.row, _OF_TASK)
    for row in tx.among(_STEPS, ids):
        steps[row[0]].append(row)
        if type(row[2]) is int or type(row[10]) is int or type(row[11]) is int:
            large[row[0]] += _large(row, _OF_STEP)
    for task, seq, body in tx.among(_INBOX, ids):
        pieces.inbox.setdefault(task, []).append((seq, body))
        if type(body) is int:
            large[task] += body
    for row in tx.among(_KEPT, [raw.id for raw in raws if rows.may_wait(raw.row[16])]):
        pieces.signals.setdefault(row[0], []).append(row)
        if type(row[4]) is int:
            large[row[0]] += row[4]
    pieces.large.update(large)
    return pieces


def _large(row: Row, places: Iterable[int]) -> int:
    """Return the number of bytes in a row's values that were not read."""
    return sum(row[place] for place in places if type(row[place]) is int)


def _complete(tx: WriteTransaction, pieces: _Pieces, tasks: Sequence[int]) -> None:
    """Read these tasks completely, large values included."""
    for task in tasks:
        pieces.steps[task], pieces.inbox[task] = [], []
        if task in pieces.signals:
            pieces.signals[task] = []
    for row in tx.among(_ALL_STEPS, tasks):
        pieces.steps[row[0]].append(row)
    for task, seq, body in tx.among(_ALL_INBOX, tasks):
        pieces.inbox[task].append((seq, body))
    for row in tx.among(_ALL_KEPT, [task for task in tasks if task in pieces.signals]):
        pieces.signals[row[0]].append(row)
    pieces.static = {task: (static, result) for task, static, result in tx.among(_STATIC, tasks)}


def read(tx: WriteTransaction, raws: Sequence[Raw], room: int = NO_LIMIT) -> Read:
    """Return tasks with steps, requests and messages, in the order of ``raws``.

    ``room``: bytes of large values that may be read; the first task is read whatever its size. Up to 512
    tasks take four statements, and three more for those with large values.
    """
    result = Read([], [], [])
    pieces = _pieces(tx, raws)
    if pieces.large:
        count = fitting([raw.id for raw in raws], pieces.large, room)
        result.left, raws = [raw.id for raw in raws[count:]], raws[:count]
        _complete(tx, pieces, [raw.id for raw in raws if raw.id in pieces.large])
    doing: dict[tuple[int, int], str] = {}
    due: dict[int, dict[int, float]] = {}
    for task, idx, kind, complete_by in tx.among(_REQUESTS, [raw.id for raw in raws]):
        if kind == "timer":
            due.setdefault(task, {})[idx] = complete_by
        else:
            doing[task, idx] = kind
    for raw in raws:
        id_ = raw.id
        try:
            timers = {idx: max(0.0, at - tx.now) for idx, at in due.get(id_, {}).items()}
            messages: list[TaskMessage] = [
                rows.read_message(body, seq) for seq, body in pieces.inbox.get(id_, ())
            ]
            parts = [_step(tx, row, doing.get((id_, row[1])), row[1] in timers) for row in pieces.steps[id_]]
            task, signal_rows = raw.record(pieces.static.get(id_)), pieces.signals.get(id_, ())
            signals = [KeptSignal(*row[1:]) for row in signal_rows]
            result.tasks.append(Loaded(task, rows.check_steps(parts, raw.row[5]), messages, timers, signals))
        except Exception as fault:  # noqa: BLE001 - only this task's rows are involved here
            result.fault(id_, fault)
    return result


def load(tx: WriteTransaction, node: int, tasks: Sequence[int]) -> Read:
    """Return those of ``tasks`` that ``node`` holds."""
    raws = [Raw(row, row[9], row[11] is not None) for row in tx.among(_HELD, tasks, node)]
    raws.sort(key=lambda raw: raw.id)
    return read(tx, list({raw.id: raw for raw in raws}.values()))
