"""A batch of Decisions as rows, part by part, ready for the statement that writes them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from makegood.decision import Decision
from makegood.messages import Request
from makegood.states import TaskState
from makegood.store import rows
from makegood.store.postgres.statement import (
    CONSUMED,
    HELD,
    PARTS,
    Columns,
    is_number,
    numbers,
    place,
    statement,
)
from makegood.store.postgres.transaction import LaneGoneError, Transaction
from makegood.task import Step

ENDED: tuple[TaskState, ...] = ("processed", "undone")
AT_REST: tuple[TaskState, ...] = ("processed", "undone", "error")

_KEEP, _CLEAR, _SET = 0, 1, 2

Key = tuple[int, int, int]


@dataclass(slots=True)
class Writing:
    """The rows of some Decisions. ``claimed``: tasks locked by this very transaction, mapped to whether their time begins now."""

    node: int
    local: set[Key]
    claimed: dict[int, bool]
    fences: list[tuple[int, int]] = field(default_factory=list)
    consumed: list[tuple[int, int]] = field(default_factory=list)
    kinds: dict[tuple[Any, ...], int] = field(default_factory=dict)
    parts: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)
    topics: set[str] = field(default_factory=set)

    def collect(self, decisions: Iterable[Decision]) -> None:
        """Turn Decisions into rows, in order of task, so that two batches lock in the same order."""
        for decision in sorted(decisions, key=lambda d: d.task.id):
            self._one(decision)

    def _add(self, part: str, *values: Any) -> None:
        if (found := self.parts.get(part)) is None:
            self.parts[part] = [values]
        else:
            found.append(values)

    def _one(self, decision: Decision) -> None:
        id_ = decision.task.id
        if id_ not in self.claimed:
            self.fences.append((id_, decision.before.epoch))
        for idx, attempt in decision.consumed:
            self.consumed.append((id_, place(idx, attempt)))
        rests = decision.release and decision.task.state in AT_REST
        for idx, s in decision.steps.items():
            if rests or s.state != "running" or s.attempt != 1 or not _dispatched(decision, idx, s):
                self._step(id_, idx, s, decision.counted)
        if not rests:
            for request in decision.requests:
                self._request(id_, request)
            for idx, wait in decision.timers.items():
                self._add("timer", id_, idx, wait)
        if decision.stale:
            self._add("noted", id_, rows.moves(decision.moves), rows.note(decision.stale))
        elif decision.moves:
            self._add("event", id_, rows.moves(decision.moves))
        for seq in decision.seqs:
            if seq:
                self._add("read", seq, id_)
        self._rare(decision)
        self._task(decision)

    def _step(self, id_: int, idx: int, s: Step, counted: Mapping[int, tuple[bool, int]]) -> None:
        bits = rows.flags(s)
        if s.state != "done" or idx in counted or not _plain(s, bits):
            reset, more = counted.get(idx, (False, 0))
            self._add(
                "step", id_, idx, s.state, s.attempt, s.result, s.round, s.asked, s.deaths, bits, s.late, s.error, reset, more
            )  # fmt: skip
        else:
            self._add("done", id_, place(idx, s.attempt), s.result)

    def _request(self, id_: int, r: Request) -> None:
        agent = rows.address(r.app, r.agent)
        what = self.kinds.setdefault(
            (r.doing, agent, r.action, r.priority, r.isolate, r.within), len(self.kinds) + 1
        )
        if (id_, r.idx, r.attempt) in self.local:
            self._add("handed", id_, place(r.idx, r.attempt), what)
        else:
            self._add("sent", id_, place(r.idx, r.attempt), what, rows.request(r))
            self.topics.add(f"agent:{agent}")

    def _rare(self, decision: Decision) -> None:
        """Collect what most Decisions do not have."""
        id_ = decision.task.id
        for idx, (reset, more) in decision.counted.items():
            if idx not in decision.steps:
                self._add("count", id_, idx, reset, more)
        for s in decision.added:
            plan = s.plan
            self._add(
                "added", id_, plan.idx, plan.kind, plan.name, plan.agent, plan.action, s.state, s.attempt, s.round, s.failures,
                s.asked, s.deaths, rows.flags(s), rows.spec(plan), s.result, s.late, s.error,
            )  # fmt: skip
        for idx in decision.dropped:
            if idx not in decision.timers:  # set anew in the same Decision: one row may be touched only once
                self._add("dropped", id_, idx)
        for idx, attempt in decision.withdraw:
            self._add("withdraw", id_, place(idx, attempt), len(self.parts.get("withdraw", ())))
        for a in decision.alerts:
            self._add("alert", a.kind, a.task or id_, a.step, a.text)
        for answer in decision.answers:
            act = answer.act
            self._add(
                "audit",
                act.id,
                id_,
                answer.kind,
                act.who,
                act.why,
                answer.verdict,
                answer.reason,
                answer.state,
            )
            self.topics.add("answers")

    def _task(self, decision: Decision) -> None:
        """Collect the task's own row, if anything of it changes."""
        before, task = decision.before, decision.task
        failures = sum(more for _, more in decision.counted.values()) if decision.counted else 0
        steady = (
            task.goal == before.goal
            and task.cause == before.cause
            and task.submission == before.submission
            and task.lost == before.lost
            and not failures
            and not decision.clear_complete_by
        )
        state, was, claimed = task.state, before.state, self.claimed.get(task.id)
        if (
            steady
            and state == was
            and task.result == before.result
            and claimed is None
            and not decision.release
        ):
            return
        if state in AT_REST and state != was:
            self.topics.add("ended")
        elif state == "pending":
            self.topics.add("pending")
        if steady and state == "processed" and was == "processing" and decision.release and claimed is None:
            self._add("processed", task.id, task.result)
            self._add("rested", task.id)
        elif (
            steady
            and (was, state, task.goal) == ("pending", "processing", "forward")
            and task.result is None
            and not decision.release
        ):
            self._add("begun" if claimed is None else "claimed", task.id)
        else:
            self._whole_task(decision, failures)

    def _whole_task(self, decision: Decision, failures: int) -> None:
        before, task = decision.before, decision.task
        state, was = task.state, before.state
        undo = _KEEP
        ends = _KEEP if state == was else _SET if state in ENDED else _CLEAR
        if state in AT_REST:
            undo = _CLEAR
            if decision.release:
                self._add("rested", task.id)
        elif state == "undoing" and was != "undoing" and not (was == "pending" and before.goal == "undo"):
            undo = _SET
        begins = self.claimed.get(task.id) or (task.timed and not before.timed)
        complete = _CLEAR if decision.clear_complete_by else _SET if begins else _KEEP
        self._add(
            "task", task.id, state, task.goal, task.cause, task.submission, failures, task.lost, task.result,
            None if decision.release else self.node, before.epoch, ends, state == "pending" and was != "pending", complete, undo,
        )  # fmt: skip

    async def write(self, tx: Transaction, *, mark: bool) -> "Written":
        """Write everything, or nothing when a fence does not hold; ``mark``: with the lane's number, as the last write."""
        names = tuple(name for name in PARTS if name in self.parts)
        values: list[Any] = [*arrays(HELD, self.fences), *arrays(CONSUMED, self.consumed)]
        if self.kinds:
            values += map(list, zip(*self.kinds, strict=True))
        for name in names:
            values += arrays(PARTS[name].columns, self.parts[name])
        row = await tx.row(
            statement(names), tx.lane, tx.before, tx.number, sorted(self.topics), self.node, mark, len(self.fences),
            len(self.consumed), *values,
        )  # fmt: skip
        assert row is not None
        if not row["lane"]:
            raise LaneGoneError
        if not row["ok"]:
            held, there = set(row["held"]), {tuple(key) for key in row["there"]}
            lost = {task for task, _ in self.fences if task not in held}
            return Written(lost | {task for task, where in self.consumed if (task, where) not in there}, [])
        tx.marked = tx.marked or mark
        tx.topics |= self.topics
        return Written(set(), self.taken_back(row["withdrawn"]))

    def taken_back(self, positions: Sequence[int] | None) -> list[Key]:
        """Return the requests at these positions among those to be withdrawn."""
        wanted = self.parts.get("withdraw", ())
        return [
            (task, where >> 32, where & 0xFFFFFFFF) for task, where, n in wanted if n in set(positions or ())
        ]


@dataclass(slots=True)
class Written:
    """What came of it: tasks that lost their race (then nothing was written), or the requests taken back."""

    lost: set[int]
    withdrawn: list[Key]


def _plain(s: Step, bits: int) -> bool:
    return s.round == 1 and not (s.asked or s.deaths or bits) and s.late is None and s.error is None


def _dispatched(decision: Decision, idx: int, s: Step) -> bool:
    """Return whether this is a step's first dispatch, which its request row says alone."""
    return (
        s.result is None
        and idx not in decision.counted
        and _plain(s, rows.flags(s))
        and any(r.idx == idx and r.doing == "do" for r in decision.requests)
    )


def columns(of: Sequence[tuple[Any, ...]], count: int) -> list[list[Any]]:
    """Return rows turned into columns, for ``unnest``; ``count`` of them when there are no rows."""
    return list(map(list, zip(*of, strict=True))) if of else [[] for _ in range(count)]


def arrays(kinds: Columns, of: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Return rows as the arrays that the statement wants for these columns: numbers as text, the others as lists."""
    made: list[Any] = []
    for (_, kind), column in zip(kinds, columns(of, len(kinds)), strict=True):
        made.append(numbers(column) if is_number(kind) else column)
    return made
