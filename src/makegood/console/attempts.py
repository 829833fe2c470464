"""The attempts of a task: what was asked of agents when, who answered, and how it ended.

They are put together from the history (what a commit moved, and which attempts it used) and from what is in
flight now. What the store does not know stays None.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from makegood.model.attempt_end import AttemptEnd
from makegood.model.states import Move
from makegood.store.views import EventView, StepView, TaskDetail

ENDS: Mapping[tuple[str, str], str] = {
    ("do", "done"): "done", ("do", "permanent"): "failed", ("do", "refused"): "failed", ("do", "later"): "later",
    ("probe", "happened"): "happened", ("probe", "not_happened"): "not happened", ("probe", "refused"): "not happened",
    ("probe", "later"): "later", ("undo", "done"): "undone", ("undo", "refused"): "undone", ("undo", "permanent"): "undo failed",
    ("undo", "later"): "later",
}  # fmt: skip
"""(what was asked, what was answered) -> how the attempt ended; every other end is silence."""

SILENT = "no answer"


_DOING: Final = ("do", "probe", "undo")


@dataclass(slots=True, kw_only=True, eq=False)
class ShownAttempt:
    """One attempt of an action, a probe or an undo. Points in time are those of the store's clock."""

    idx: int
    step: str
    doing: str
    """do, probe or undo; do for what only another version knows."""
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
    kind: str = ""
    """The kind of its answer, or the reason of its step's move."""
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


@dataclass(slots=True, eq=False)
class Holding:
    """A time in which one Scheduler held the task; ``node`` None: nobody did."""

    node: int | None
    start: float
    end: float | None
    submission: int = 1
    epoch: int = 0


class ForwardEnd(NamedTuple):
    """How a step had gone forward."""

    state: str
    by: str = ""
    """The reason of the move, if it was not a reply: "probe" or "by_hand"."""


@dataclass(slots=True, kw_only=True, eq=False)
class Course:
    """How a task came to where it is."""

    attempts: list[ShownAttempt] = field(default_factory=list)
    by_step: dict[int, list[ShownAttempt]] = field(default_factory=dict)
    """The attempts of each step, by its index, oldest first."""
    holdings: list[Holding] = field(default_factory=list)
    forward: dict[str, ForwardEnd] = field(default_factory=dict)
    """How a step had gone forward before its undo."""
    cause: Move | None = None
    """The task's move that says why it does not go forward, if that was read."""
    turn: EventView | None = None
    """The event in which the task last turned from forward to undo or error."""
    began: dict[int, float] = field(default_factory=dict)
    """When each submission began."""
    ended: dict[int, float] = field(default_factory=dict)
    """When each submission came to rest last."""

    def of(self, idx: int) -> list[ShownAttempt]:
        """Return the attempts of a step."""
        return self.by_step.get(idx, [])

    def silence(self, idx: int, round_: int | None = None) -> str:
        """Return how often calls of a step got no answer, of one round or of all: "" for once, ", twice"."""
        count = sum(a.doing == "do" and a.end == SILENT and round_ in (None, a.round) for a in self.of(idx))
        return "" if count < 2 else ", twice" if count == 2 else f", {count} times"


def course(detail: TaskDetail, events: Sequence[EventView], now: float) -> Course:
    """Return how a task came to where it is."""
    reader = _Reader(detail)
    for event in events:
        reader.read(event)
    reader.in_flight(detail, now)
    way = reader.course
    claims = [holding for holding in way.holdings if holding.node is not None]
    for n, holding in enumerate(reversed(claims)):
        holding.epoch = max(0, detail.task.epoch - n)
    way.attempts.sort(key=lambda attempt: attempt.asked)
    for attempt in way.attempts:
        way.by_step.setdefault(attempt.idx, []).append(attempt)
    for step in detail.steps:
        attempts = [attempt for attempt in way.of(step.idx) if attempt.end != "planned"]
        if len(attempts) == step.attempt:
            for n, attempt in enumerate(attempts, 1):
                attempt.number = n
    return way


class _Reader:
    """Reads a history from its beginning."""

    def __init__(self, detail: TaskDetail) -> None:
        self.course = Course(began={1: detail.task.created})
        self._steps = {step.idx: step for step in detail.steps}
        self._names = {step.name: step for step in detail.steps}
        self._open: dict[int, ShownAttempt] = {}
        self._last: dict[int, float] = {}  # the last event of each step
        self._rounds: dict[int, int] = {}
        self._submission = 1

    def read(self, event: EventView) -> None:
        """Take in one event: first what ended, then what moved."""
        after = {move.name: move for move in event.moves if not move.of_task}
        for end in event.attempts:
            if not end.late:
                self._end(event, end, after.get(self._name(end)))
        for move in event.moves:
            if move.of_task:
                self._task_move(event, move)
            elif (step := self._names.get(move.name)) is not None:
                self._step_move(event, step, move)
        for end in event.attempts:
            if end.late:
                self._late(event, end)

    def _name(self, end: AttemptEnd) -> str:
        step = self._steps.get(end.idx)
        return "" if step is None else step.name

    def _task_move(self, event: EventView, move: Move) -> None:
        way, before, state = self.course, move.before, move.after
        if before == "undone" and state in ("pending", "queued"):
            self._submission += 1
            way.began[self._submission] = event.at
        if state in ("pending", "queued") and move.reason == "resubmitted":
            way.cause = None
        elif way.cause is None and state in ("undoing", "undone", "error") and move.reason != "claimed":
            way.cause = move
        if state in ("undoing", "error") and before == "processing":
            way.turn = event
        elif state in ("pending", "queued") and before in ("undone", "error"):
            way.turn = None
        holding = way.holdings[-1] if way.holdings else None
        ends = state in ("pending", "sleeping", "queued", "processed", "undone", "error")
        if holding is not None and holding.end is None and (ends or move.reason == "claimed"):
            holding.end = event.at
        if state in ("processing", "undoing") and (holding is None or holding.end is not None):
            free_since = None if holding is None else holding.end
            if free_since is not None and free_since < event.at and before == "pending":
                way.holdings.append(Holding(None, free_since, event.at, self._submission))
            way.holdings.append(Holding(event.node, event.at, None, self._submission))
        if state in ("processed", "undone", "error"):
            way.ended[self._submission] = event.at

    def _step_move(self, event: EventView, step: StepView, move: Move) -> None:
        idx, before, state, reason = step.idx, move.before, move.after, move.reason
        attempt = self._open.get(idx)
        if attempt is not None and before in ("running", "undoing") and state != "running":
            self._close(attempt, event, move)
        if before == "in_doubt" and reason in ("probe", "fenced") and not self._has_just_ended(idx, event):
            probe = self._add(step, "probe", self._last.get(idx, event.at))
            probe.ended, probe.node = event.at, event.node
            probe.end = "happened" if state == "done" else "not happened"
        if state == "running":
            self._open[idx] = self._add(step, "do", event.at)
        elif state == "undoing":
            if before != "undoing":
                self.course.forward[step.name] = self._forward(step, before)
            self._open[idx] = self._add(step, "undo", event.at)
        elif reason == "new_round":
            self._rounds[idx] = self._rounds.get(idx, 1) + 1
            self.course.forward.pop(step.name, None)
        elif state in ("done", "kept") and before in ("in_doubt", "failed", "done"):
            self.course.forward[step.name] = self._forward(
                step, before if state == "kept" else "done", reason
            )
        self._last[idx] = event.at

    def _forward(self, step: StepView, before: str, reason: str = "") -> ForwardEnd:
        if reason in ("probe", "by_hand"):
            return ForwardEnd("done", reason)
        return self.course.forward.get(step.name) or ForwardEnd(before)

    def _add(self, step: StepView, doing: str, request_time: float) -> ShownAttempt:
        attempt = ShownAttempt(
            idx=step.idx, step=step.name, doing=doing if doing in _DOING else "do", round=self._rounds.get(step.idx, 1),
            submission=self._submission, asked=request_time,
        )  # fmt: skip
        self.course.attempts.append(attempt)
        return attempt

    def _close(self, attempt: ShownAttempt, event: EventView, move: Move) -> None:
        """End an attempt without a record, whose step moved: it was answered in memory."""
        attempt.ended, attempt.end, attempt.kind = event.at, _ending(attempt.doing, move), move.reason
        attempt.why = move.why
        if attempt.end != SILENT:
            attempt.node, attempt.taken = event.node, attempt.asked
        self._open.pop(attempt.idx, None)

    def _has_just_ended(self, idx: int, event: EventView) -> bool:
        return any(a.idx == idx and a.ended == event.at and a.doing == "probe" for a in self.course.attempts)

    def _end(self, event: EventView, end: AttemptEnd, move: Move | None) -> None:
        """Take in the record of an attempt that this commit used. ``move``: its step's."""
        step = self._steps.get(end.idx)
        if step is None:
            return
        over = event.at if end.due is None else end.due  # a silence is judged some time after the deadline
        start = None if end.took is None else over - end.took
        attempt = self._open.get(end.idx)
        if attempt is None or attempt.doing != end.doing:
            request_time = self._last.get(end.idx, event.at)
            attempt = self._add(step, end.doing, request_time if start is None else min(request_time, start))
        else:
            self._open.pop(end.idx)
        attempt.number, attempt.ended, attempt.kind = end.attempt, event.at, end.kind
        attempt.end = ENDS.get((end.doing, end.kind), SILENT)
        was, state = ("", "") if move is None else (move.before, move.after)
        if end.doing == "do" and (was, state) == ("running", "in_doubt"):
            attempt.end = "later" if end.kind == "later" else SILENT
        elif end.doing == "undo" and state == "undo_failed":
            attempt.end = "undo failed"
        attempt.taken = None if start is None else max(attempt.asked, start)
        attempt.node = event.node if end.node is None and end.kind != "expired" else end.node
        attempt.error, attempt.frame = end.error or "", end.frame or ""
        attempt.why = move.detail if move is not None and end.kind == "gave_up" else ""
        attempt.traceback = end.traceback or ""
        attempt.due = end.due if end.due is not None and end.due <= event.at else None
        self._last[end.idx] = event.at

    def _late(self, event: EventView, end: AttemptEnd) -> None:
        over = [
            a
            for a in self.course.attempts
            if (a.idx, a.doing) == (end.idx, end.doing) and a.ended is not None
        ]
        candidates = [a for a in over if a.number == end.attempt] or over
        if candidates:
            candidates[-1].late, candidates[-1].late_kind = event.at, end.kind

    def in_flight(self, detail: TaskDetail, now: float) -> None:
        """Add what is asked for now, and what is planned."""
        for step in detail.steps:
            attempt = self._open.get(step.idx)
            if step.doing is not None:
                if attempt is None or attempt.doing != step.doing:
                    attempt = self._add(step, step.doing, self._last.get(step.idx, detail.task.created))
                attempt.number, attempt.node = step.attempt, step.taken_by
                attempt.due = None if step.due is None or step.taken_by is None else now + step.due
                if (
                    attempt.due is not None and step.taken_at is not None
                ):  # its deadline may have been extended
                    attempt.taken = max(attempt.asked, step.taken_at)
            elif attempt is not None and step.waiting:
                self._close_silent(attempt, step)
            if step.waiting and step.due is not None:
                doing = "undo" if step.state == "undoing" else "do"
                upcoming = self._add(step, doing, now + max(0.0, step.due))
                upcoming.end, upcoming.round = "planned", step.round

    def _close_silent(self, attempt: ShownAttempt, step: StepView) -> None:
        """End an undo that was not answered and is to be tried again: no move says so."""
        attempt.end, attempt.why = SILENT, step.error or ""
        self._open.pop(step.idx, None)


def _ending(doing: str, move: Move) -> str:
    """Return how an attempt ended whose step moved."""
    if move.reason in ("later", "withdrawn"):
        return move.reason
    if doing == "undo":
        return {"undone": "undone", "undo_failed": "undo failed"}.get(move.after, SILENT)
    return {"done": "done", "failed": "failed"}.get(move.after, SILENT)
