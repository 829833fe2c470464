"""Turns a batch of Decisions into rows, part by part, for the statement that writes them."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from operator import attrgetter
from typing import Any

from makegood.base import ids as ids_
from makegood.model.decision import Decision
from makegood.model.messages import Request
from makegood.model.notices import Notice, event, label, queue
from makegood.model.shape import ShapeStep, spec
from makegood.model.states import AT_REST, Move
from makegood.model.task import Step
from makegood.store import rows
from makegood.store.changes import (
    by_shape,
    is_plain,
    rare_rows,
    step_row,
    task_kind,
    task_row,
    task_topic,
    tells_of_steps,
)
from makegood.store.notice_records import listeners, queue_notice_rows
from makegood.store.postgres.commit_statement import (
    CONSUMED,
    HELD,
    PARTS,
    WOKEN,
    Columns,
    is_number,
    join_values,
    numbers,
    place,
    statement,
)
from makegood.store.postgres.transaction import WriterGoneError, WriteTransaction

Key = tuple[int, int, int]

_BY_TASK = attrgetter("task.id")


@dataclass(slots=True)
class Writing:
    """The rows of some Decisions."""

    node: int
    begins: dict[int, bool]
    """Tasks locked by this very transaction, mapped to whether their time begins now."""
    versions: dict[int, int] = field(default_factory=dict)
    """Of these, the tasks that this very statement locks, if their rows are the same versions."""
    fences: list[tuple[int, int]] = field(default_factory=list)
    used_requests: list[tuple[int, int]] = field(default_factory=list)
    kinds: dict[tuple[Any, ...], int] = field(default_factory=dict)
    moves: dict[tuple[Move, ...], int] = field(default_factory=dict)
    parts: defaultdict[str, list[tuple[Any, ...]]] = field(default_factory=lambda: defaultdict(list))
    topics: set[str] = field(default_factory=set)

    def collect(self, decisions: Iterable[Decision]) -> None:
        """Turn Decisions into rows, in order of task, so that two batches lock in the same order."""
        groups, others = by_shape(sorted(decisions, key=_BY_TASK), self.begins)
        for d in others:
            self._one(d)
        for (shape_step, *_, in_memory), of in groups.items():
            self._alike(shape_step, of, in_memory=in_memory)
        if groups:
            self.fences.sort()
            self.used_requests.sort()

    def _alike(self, shape_step: ShapeStep, of: Sequence[Decision], *, in_memory: bool) -> None:
        """Turn Decisions into rows that differ only in task, result and arguments.

        ``in_memory``: their requests are handed over in memory.
        """
        first, parts = of[0], self.parts
        ((idx, attempt),) = shape_step.used_requests
        position, moves = place(idx, attempt), self._moves_id(first.moves)
        ids = [d.before.id for d in of]
        self.fences += zip(ids, repeat(first.before.epoch))
        self.used_requests += zip(ids, repeat(position))
        parts["done"] += zip(ids, repeat(position), [d.steps[idx].result for d in of])
        read = [(seq, d.before.id) for d in of for seq in d.seqs]
        if read:
            parts["read"] += read
            parts["ended"] += [(d.before.id, moves, rows.attempts(d.attempts)) for d in of]
        else:
            parts["event"] += zip(ids, repeat(moves))
        for n, r in enumerate(first.requests):
            request_place, kind = (
                place(r.idx, r.attempt),
                self._kind(r, first.handed_at if in_memory else None),
            )
            if in_memory:
                parts["handed"] += zip(ids, repeat(request_place), repeat(kind))
            else:
                parts["sent"] += [(d.before.id, request_place, kind, rows.request(d.requests[n])) for d in of]
                self.topics.add(f"agent:{ids_.address(r.app, r.agent)}")
        if first.release:
            parts["processed"] += zip(ids, [d.task.result for d in of], strict=True)
            parts["rested"] += zip(ids)
            self.topics.add("ended")

    def _kind(self, r: Request, handed_at: float | None) -> int:
        """Return the number of the values that a request shares with others.

        ``handed_at``: None, unless it is handed over in memory.
        """
        key = (r.doing, ids_.address(r.app, r.agent), r.action, r.priority, r.isolate, r.within, handed_at)
        return self.kinds.setdefault(key, len(self.kinds) + 1)

    def _moves_id(self, moves: Sequence[Move]) -> int:
        """Return the number of a list of moves; most tasks make the same moves."""
        return self.moves.setdefault(tuple(moves), len(self.moves) + 1)

    def _add(self, part: str, *values: Any) -> None:
        self.parts[part].append(values)

    def _one(self, decision: Decision) -> None:
        id_ = decision.task.id
        if id_ not in self.begins:
            self.fences.append((id_, decision.before.epoch))
        for idx, attempt in decision.used_requests:
            self.used_requests.append((id_, place(idx, attempt)))
        rests = decision.release and decision.task.state in AT_REST
        for idx, s in decision.steps.items():
            plain = is_plain(s)
            first = plain and s.state == "running" and s.attempt == 1
            if rests or not (first and _is_new_dispatch(decision, idx, s)):
                self._step(id_, idx, s, decision, plain=plain)
        if not rests:
            handed_keys = {(r.idx, r.attempt) for r in decision.handovers}
            for request in decision.requests:
                is_handed_over = (request.idx, request.attempt) in handed_keys
                self._request(id_, request, decision.handed_at if is_handed_over else None)
            for idx, wait in decision.timers.items():
                self._add("timer", id_, idx, wait)
        if decision.answers or decision.attempts or decision.notes or decision.kept_signals:
            note = rows.note(decision.answers, decision.kept_signals, decision.task.state)
            ends = rows.attempts(decision.attempts, decision.notes)
            self._add("noted", id_, rows.moves(decision.moves), note, ends)
        elif decision.moves:
            self.parts["event"].append((id_, self._moves_id(decision.moves)))
        for seq in decision.seqs:
            if seq:
                self._add("read", seq, id_)
        self._rare(decision)
        if decision.notices:
            self._notify(decision.notices)
        self._task(decision)

    def _step(self, id_: int, idx: int, s: Step, decision: Decision, *, plain: bool) -> None:
        rewrites = decision.rewritten
        if s.state == "done" and plain and idx not in decision.failure_counts and idx not in rewrites:
            self.parts["done"].append((id_, place(idx, s.attempt), s.result))
        elif idx in rewrites:
            self._add("rewritten", *step_row(decision, idx, s), spec(s.plan))
        else:
            self.parts["step"].append(step_row(decision, idx, s))

    def _request(self, id_: int, r: Request, handed_at: float | None) -> None:
        kind = self._kind(r, handed_at)
        if handed_at is not None:
            self.parts["handed"].append((id_, place(r.idx, r.attempt), kind))
        else:
            self._add("sent", id_, place(r.idx, r.attempt), kind, rows.request(r))
            self.topics.add(f"agent:{ids_.address(r.app, r.agent)}")

    def _rare(self, decision: Decision) -> None:
        """Collect what most Decisions do not have."""
        for kind, row in rare_rows(decision):
            self.parts[kind].append(row)
        for idx, attempt in decision.withdraw:
            self._add("withdraw", decision.task.id, place(idx, attempt), len(self.parts.get("withdraw", ())))
        for idx, attempt in decision.cancels:
            self._add("cancelled", decision.task.id, place(idx, attempt))
        if decision.answers:
            self.topics.add("answers")
        if tells_of_steps(decision):
            self.topics.add("steps")

    def _notify(self, notices: Sequence[Notice]) -> None:
        """Collect the notices to the submitter."""
        to_web = [notice for notice in notices if queue(notice.reply.to) is None]
        for notice in to_web:
            self._add("notice", notice.task, notice.sequence, label(notice), event(notice))
        for listener in listeners(to_web):
            self._add("listener", *listener)
            self.topics.add("notice")
        for row in queue_notice_rows(notices):
            self._add("queued", *row)
            self.topics.add(f"queue:{row[4]}")

    def _task(self, decision: Decision) -> None:
        """Collect the task's own row, if anything in it changes."""
        before, task, begins = decision.before, decision.task, self.begins.get(decision.task.id)
        kind = "task" if decision.notices else task_kind(decision, is_claimed=begins is not None)
        if kind is None:
            return
        if (topic := task_topic(decision)) is not None:
            self.topics.add(topic)
        if decision.release and task.state in AT_REST:
            self._add("rested", task.id)
        if kind == "processed":
            self.parts["processed"].append((task.id, task.result))
        elif kind == "claimed":
            self._add("begun" if begins is None else "claimed", task.id)
        else:
            extension = max(1, round(decision.extends)) if decision.extends else 0
            row = task_row(decision, self.node, begins=bool(begins), extension=extension)
            name = "task"
            if decision.wakes is not None:
                name, row = "asleep", (*row[:11], decision.wakes, *row[12:])
            if task.inputs is not before.inputs and task.returns is not None:
                name = "corrected"
                row += (
                    rows.static(
                        task.inputs, task.returns, task.reply, task.names, task.signals, lanes=task.lanes
                    ),
                )
            if decision.notices:
                name = "told" if name == "task" else f"{name}_told"
                row += (task.told, task.notified)
            self.parts[name].append(row)

    async def write(self, tx: WriteTransaction, *, mark: bool, looks: bool = True) -> "Written":
        """Write everything, or nothing if a fence fails. ``mark``: with the writer's number, as the last
        write.

        ``looks``: find out which of the requests that replies have used are missing. Otherwise, if one is
        missing, raises ``MISSING`` (see ``errors``).
        """
        names = tuple(name for name in PARTS if name in self.parts)
        values: list[Any] = [*arrays(HELD, self.fences), *arrays(CONSUMED, self.used_requests)]
        if self.versions:
            values += arrays(WOKEN, sorted(self.versions.items()))
        if self.kinds:
            values += map(list, zip(*self.kinds, strict=True))
        if self.moves:
            values.append([rows.moves(moves) for moves in self.moves])
        for name in names:
            values += arrays(PARTS[name].columns, self.parts[name])
        row = await tx.row(
            statement(names, looks=looks, wakes=bool(self.versions)), tx.writer, tx.before, tx.number, sorted(self.topics), self.node, mark,
            len(self.fences) + len(self.versions), len(self.used_requests), *values,
        )  # fmt: skip
        assert row is not None
        if not row["writer"]:
            raise WriterGoneError
        if not row["ok"]:
            held_ids = set(row["held"])
            losers = {task for task, _ in self.fences if task not in held_ids} | self.versions.keys()
            if looks:
                existing_keys = {tuple(key) for key in row["there"]}
                losers |= {
                    task for task, position in self.used_requests if (task, position) not in existing_keys
                }
                if new_signals := self.parts.get("new_signal"):
                    losers |= {task for task, *_ in new_signals}.difference(row["new"])
            return Written(losers, [])
        tx.has_mark = tx.has_mark or mark
        tx.topics |= self.topics.union(row["cancelled"] or ())
        return Written(set(), self.withdrawals_at(row["withdrawn"]))

    def withdrawals_at(self, positions: Sequence[int] | None) -> list[Key]:
        """Return the requests at these positions among those to withdraw."""
        numbers = set(positions or ())
        withdrawals = self.parts.get("withdraw", ())
        return [
            (task, position >> 32, position & 0xFFFFFFFF) for task, position, n in withdrawals if n in numbers
        ]


@dataclass(slots=True)
class Written:
    """The result of writing."""

    losers: set[int]
    """Tasks that lost their race, or may have; then nothing was written."""
    withdrawals: list[Key]
    """The withdrawn requests."""


def _is_new_dispatch(decision: Decision, idx: int, s: Step) -> bool:
    """Return whether only the request row records this running step: it was just dispatched, and nothing else
    about it changed. (The caller knows that it is at its first attempt and was never in trouble.)
    """
    if s.result is not None or idx in decision.failure_counts or idx in decision.rewritten:
        return False
    for r in decision.requests:  # noqa: SIM110 - a generator costs as much as everything else here
        if r.idx == idx and r.doing == "do":
            return True
    return False


def columns(of: Sequence[tuple[Any, ...]], count: int) -> list[list[Any]]:
    """Return rows as columns, for ``unnest``; ``count`` empty ones when there are no rows."""
    return list(map(list, zip(*of, strict=True))) if of else [[] for _ in range(count)]


def arrays(kinds: Columns, of: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Return rows as the arrays that the statement takes for these columns.

    Numbers become text, byte strings are joined, other values become lists.
    """
    values: list[Any] = []
    for (_, kind), column in zip(kinds, columns(of, len(kinds)), strict=True):
        if kind == "bytea":
            data, spans = join_values(column)
            values += data, numbers(spans)
        else:
            values.append(numbers(column) if is_number(kind) else column)
    return values
