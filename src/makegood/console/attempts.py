"""The attempts of a task: what was asked of agents when, who answered, and how it ended.

They are put together from the history (what a commit moved, and which attempts it used) and from what is in
flight now. What the store does not know stays None: an attempt that an older version recorded has no time of
its taking.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from makegood.model.attempt_end import AttemptEnd
from makegood.model.states import TASK_MOVES
from makegood.store.views import EventView, StepView, TaskDetail

_LATE = re.compile(r"(\w+) came too late for the (do|probe|undo) of step (\d+), attempt (\d+)")

ENDS: Mapping[tuple[str, str], str] = {
    ("do", "done"): "done", ("do", "permanent"): "failed", ("do", "refused"): "failed", ("do", "later"): "later",
    ("probe", "happened"): "happened", ("probe", "not_happened"): "not happened", ("probe", "refused"): "not happened",
    ("probe", "later"): "later", ("undo", "done"): "undone", ("undo", "refused"): "undone", ("undo", "permanent"): "undo failed",
    ("undo", "later"): "later",
}  # fmt: skip
"""(what was asked, what was answered) -> how the attempt ended; every other end is silence."""

SILENT = "no answer"


@dataclass(slots=True, kw_only=True, eq=False)
class ShownAttempt:
    """One attempt of an action, a probe or an undo. Points in time are those of the store's clock."""

    idx: int
    step: str
    doing: str
    round: int
    submission: int
    asked: float
    """When it was asked for; of a probe without a record of its own, when the step came in doubt."""
    number: int | None = None
    taken: float | None = None
    ended: float | None = None
    end: str = "running"
    """running, planned, done, failed, later, no answer, withdrawn, happened, not happened, undone, undo
    failed.
    """
    why: str = ""
    node: int | None = None
    """The process that ran it."""
    due: float | None = None
    """Its deadline, where it matters: it passed, or it is in flight."""
    late: float | None = None
    """When a reply came too late."""
    late_kind: str = ""
    error: str = ""
    frame: str = ""
    traceback: str = ""


@dataclass(slots=True, kw_only=True, eq=False)
class Holding:
    """A time in which one Scheduler held the task; ``node`` None: nobody did."""

    node: int | None
    start: float
    end: float | None
    epoch: int
    submission: int = 1


@dataclass(slots=True, kw_only=True, eq=False)
class Course:
    """How a task came to where it is."""

    attempts: list[ShownAttempt] = field(default_factory=list)
    holdings: list[Holding] = field(default_factory=list)
    forward: dict[str, str] = field(default_factory=dict)
    """How a step had gone forward before its undo: done, in_doubt, "done, by probe", "done, by hand"."""
    turned: EventView | None = None
    """The event in which the task last turned from forward to undo or error."""
    began: dict[int, float] = field(default_factory=dict)
    """When each submission began."""
    ended: dict[int, float] = field(default_factory=dict)
    """When each submission came to rest last."""

    def of(self, idx: int) -> list[ShownAttempt]:
        """Return the attempts of a step."""
        return [attempt for attempt in self.attempts if attempt.idx == idx]


def course(found: TaskDetail, events: Sequence[EventView], now: float) -> Course:
    """Return how a task came to where it is."""
    reader = _Reader(found)
    for event in events:
        reader.read(event)
    reader.in_flight(found, now)
    made = reader.made
    claims = [holding for holding in made.holdings if holding.node is not None]
    for n, holding in enumerate(reversed(claims)):
        holding.epoch = max(0, found.task.epoch - n)
    made.attempts.sort(key=lambda attempt: attempt.asked)
    _number(found.steps, made.attempts)
    return made


class _Reader:
    """Reads a history from its beginning."""

    def __init__(self, found: TaskDetail) -> None:
        self.made = Course(began={1: found.task.created})
        self._steps = {step.idx: step for step in found.steps}
        self._names = {step.name: step for step in found.steps}
        self._open: dict[int, ShownAttempt] = {}
        self._last: dict[int, float] = {}  # the last event of each step
        self._rounds: dict[int, int] = {}
        self._submission = 1

    def read(self, event: EventView) -> None:
        """Take in one event: first what ended, then what moved."""
        after = {name: (was, state) for name, was, state, _ in event.moves}
        for end in event.attempts or ():
            self._end(event, end, after)
        for name, before, state, why in event.moves:
            if name == "task" and state in TASK_MOVES and before in TASK_MOVES and name not in self._names:
                self._task_move(event, before, state, why)
            elif (step := self._names.get(name)) is not None:
                self._step_move(event, step, before, state, why)
        for kind, doing, idx, number in _LATE.findall(event.note):
            self._late(event, kind, doing, int(idx), int(number))

    def _task_move(self, event: EventView, before: str, state: str, why: str) -> None:
        made = self.made
        if before == "undone" and state == "pending":
            self._submission += 1
            made.began[self._submission] = event.at
        if state in ("undoing", "error") and before == "processing":
            made.turned = event
        elif state == "pending" and before in ("undone", "error"):
            made.turned = None
        held = made.holdings[-1] if made.holdings else None
        ends = state in ("pending", "processed", "undone", "error")
        if held is not None and held.end is None and (ends or why == "claimed"):
            held.end = event.at
        if state in ("processing", "undoing") and (held is None or held.end is not None):
            if held is not None and held.end is not None and held.end < event.at and before == "pending":
                made.holdings.append(
                    Holding(node=None, start=held.end, end=event.at, epoch=0, submission=self._submission)
                )
            made.holdings.append(
                Holding(node=event.node, start=event.at, end=None, epoch=0, submission=self._submission)
            )
        if state in ("processed", "undone", "error"):
            made.ended[self._submission] = event.at

    def _step_move(self, event: EventView, step: StepView, before: str, state: str, why: str) -> None:
        idx = step.idx
        attempt = self._open.get(idx)
        if attempt is not None and before in ("running", "undoing") and state != "running":
            self._close(attempt, event, *_moved(attempt.doing, state, why))
        if before == "in_doubt" and why in ("probe", "a fencing probe") and not self._ended_now(idx, event):
            end = "happened" if state == "done" else "not happened"
            start = self._last.get(idx, event.at)
            self._add(step, "probe", start, ended=event.at, end=end, node=event.node)
        if state == "running":
            self._open[idx] = self._add(step, "do", event.at)
        elif state == "undoing":
            if before != "undoing":
                self.made.forward[step.name] = self._forward(step, before)
            self._open[idx] = self._add(step, "undo", event.at)
        elif state == "waiting" and why.startswith("round "):
            number = why.removeprefix("round ")
            self._rounds[idx] = int(number) if number.isdigit() else step.round
            self.made.forward.pop(step.name, None)
        elif state in ("done", "kept") and before in ("in_doubt", "failed", "done"):
            self.made.forward[step.name] = self._forward(step, before if state == "kept" else "done", why)
        self._last[idx] = event.at

    def _forward(self, step: StepView, before: str, why: str = "") -> str:
        known = self.made.forward.get(step.name, "")
        if why == "probe":
            return "done, by probe"
        if why and why not in ("nothing to undo", "past return", "reply"):
            return "done, by hand"
        return known or before

    def _add(self, step: StepView, doing: str, asked: float, **more: object) -> ShownAttempt:
        made = ShownAttempt(
            idx=step.idx, step=step.name, doing=doing, round=self._rounds.get(step.idx, 1),
            submission=self._submission, asked=asked,
        )  # fmt: skip
        for name, value in more.items():
            setattr(made, name, value)
        self.made.attempts.append(made)
        return made

    def _close(self, attempt: ShownAttempt, event: EventView, end: str, why: str) -> None:
        """End an attempt without a record: it was answered in memory, or an older version wrote the row."""
        attempt.ended, attempt.end, attempt.why = event.at, end, why
        if end != SILENT and event.attempts is not None:
            attempt.node, attempt.taken = event.node, attempt.asked
        self._open.pop(attempt.idx, None)

    def _ended_now(self, idx: int, event: EventView) -> bool:
        return any(a.idx == idx and a.ended == event.at and a.doing == "probe" for a in self.made.attempts)

    def _end(self, event: EventView, end: AttemptEnd, after: Mapping[str, tuple[str, str]]) -> None:
        """Take in the record of an attempt that this commit used."""
        step = self._steps.get(end.idx)
        if step is None:
            return
        taken = None if end.took is None else event.at - end.took
        attempt = self._open.get(end.idx)
        if attempt is None or attempt.doing != end.doing:
            asked = self._last.get(end.idx, event.at)
            attempt = self._add(step, end.doing, asked if taken is None else min(asked, taken))
        else:
            self._open.pop(end.idx)
        attempt.number, attempt.ended, attempt.why = end.attempt, event.at, end.kind
        attempt.end = ENDS.get((end.doing, end.kind), SILENT)
        was, state = after.get(step.name, ("", ""))
        if end.doing == "do" and (was, state) == ("running", "in_doubt"):
            attempt.end = "later" if end.kind == "later" else SILENT
        elif end.doing == "undo" and state == "undo_failed":
            attempt.end = "undo failed"
        attempt.taken = None if taken is None else max(attempt.asked, taken)
        attempt.node = event.node if end.node is None and end.kind != "expired" else end.node
        attempt.error, attempt.frame = end.error or "", end.frame or ""
        attempt.traceback = end.traceback or ""
        if end.kind == "expired" and attempt.taken is not None:
            due = attempt.taken + _within(step, end.doing)
            attempt.due = due if due <= event.at else None
        self._last[end.idx] = event.at

    def _late(self, event: EventView, kind: str, doing: str, idx: int, number: int) -> None:
        ended = [a for a in self.made.attempts if a.idx == idx and a.doing == doing and a.ended is not None]
        named = [a for a in ended if a.number == number] or ended
        if named:
            named[-1].late, named[-1].late_kind = event.at, kind

    def in_flight(self, found: TaskDetail, now: float) -> None:
        """Add what is asked for now, and what is planned."""
        for step in found.steps:
            attempt = self._open.get(step.idx)
            if step.doing is not None:
                if attempt is None or attempt.doing != step.doing:
                    attempt = self._add(step, step.doing, self._last.get(step.idx, found.task.created))
                attempt.number, attempt.node = step.attempt, step.taken_by
                attempt.due = None if step.due is None or step.taken_by is None else now + step.due
                if attempt.due is not None:
                    attempt.taken = max(attempt.asked, attempt.due - _within(step, step.doing))
            elif attempt is not None and step.waiting:
                self._close_silent(attempt, step)
            if step.waiting and step.due is not None:
                doing = "undo" if step.state == "undoing" else "do"
                self._add(step, doing, now + max(0.0, step.due), end="planned", round=step.round)

    def _close_silent(self, attempt: ShownAttempt, step: StepView) -> None:
        """End an undo that was not answered and is to be tried again: no move says so."""
        attempt.end, attempt.why = SILENT, step.error or ""
        self._open.pop(step.idx, None)


def _within(step: StepView, doing: str) -> float:
    """Return the seconds that an attempt may take."""
    policy = None if step.plan is None else step.plan.policy
    if policy is None:
        return math.inf
    return policy.undo_within or policy.within if doing == "undo" else policy.within


def _moved(doing: str, state: str, why: str) -> tuple[str, str]:
    """Return how an attempt ended whose step moved to ``state``."""
    if why in ("later", "withdrawn"):
        return why, ""
    if doing == "undo":
        return {"undone": "undone", "undo_failed": "undo failed"}.get(state, SILENT), why
    return {"done": "done", "failed": "failed"}.get(state, SILENT), why


def _number(steps: Iterable[StepView], attempts: Sequence[ShownAttempt]) -> None:
    """Number the attempts of each step whose every attempt is known."""
    mine: dict[int, list[ShownAttempt]] = {}
    for attempt in attempts:
        if attempt.end != "planned":
            mine.setdefault(attempt.idx, []).append(attempt)
    for step in steps:
        known = mine.get(step.idx, [])
        if len(known) == step.attempt:
            for n, attempt in enumerate(known, 1):
                attempt.number = n
