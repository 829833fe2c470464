"""I9 and I10: what may begin when, forward and back."""

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import ClassVar, Final

from makegood.model.states import AT_REST
from makegood.testing.checker.reading import PASSED, Dispatch, HistoryState, TaskNow
from makegood.testing.checker.report import Report, join_names
from makegood.testing.checker.rule import EPSILON, Rule, when
from makegood.testing.history import Event

SETTLED = frozenset({"undone", "failed", "skipped", "waiting", "kept"})
_STOPPED: Mapping[str, str] = MappingProxyType({"poison": "*poison", "unreadable": "*unreadable"})
"""Alerts which say that a whole task is asked nothing more."""
_STUCK: Final = re.compile(r"; (?:the undo of ([^;]+?) failed: |([^;]+?) cannot be undone: )")
"""How the alert of a task names its stuck steps."""


class UndoInOrder(Rule):
    """I9: undos come in order.

    - An undo is asked only of a task that is being undone, or of a branch that is not, or may not be, the
      first one; of a step that was asked to do, with nothing of it in flight, after everything that followed
      it is settled.
    - Nor before the deadline of an attempt that was judged earlier, because its process seemed dead: it may
      still run.
    - An undone task has nothing done or in doubt.
    - An undo that ends in error has raised an alert for each step that could have been undone and was not.
    """

    name: ClassVar[str] = "I9"
    says: ClassVar[str] = (
        "undone is what is done or in doubt, all of it, in reverse order, after the decision to undo"
    )
    kinds: ClassVar[frozenset[str]] = frozenset({"sent", "moved", "alert", "ended"})

    def __init__(self, report: Report) -> None:
        super().__init__(report)
        self._stops: dict[int, set[str]] = {}

    def before(self, event: Event, world: HistoryState) -> None:
        """Check what was in flight when an undo is asked, and note alerts about stuck steps."""
        if event.kind == "alert":
            stuck_steps = self._stops.setdefault(event.task, set())
            if event["alert"] == "undo_incomplete":
                stuck_steps.update(_named(event["text"]))
            else:
                stuck_steps.add(
                    event["step"] if event["alert"] == "undo_stuck" else _STOPPED.get(event["alert"], "")
                )
        elif event.kind == "moved":
            for move in event["moves"]:
                if move[0] == "task" and move[2] == "undoing" and move[1] != "pending":
                    self._stops[event.task] = set()
        elif event.kind == "sent" and event["doing"] == "undo":
            self._asked(event, world)

    def _asked(self, event: Event, world: HistoryState) -> None:
        self.saw()
        task, idx = world.task(event.task), event["idx"]
        step, name = task.step(idx), task.name(idx)
        if task.state != "undoing" and idx in task.plans and not _may_lose(task, idx):
            self.wrong(f"the undo of {name} was asked {when(event)} although the task was {task.state}")
        if not any(dispatch.doing == "do" for dispatch in step.dispatches.values()):
            self.wrong(f"the undo of {name} was asked {when(event)}, which certainly never started")
        for dispatch in step.dispatches.values():
            if dispatch.open:
                text = f"the undo of {name} was asked {when(event)} while its attempt {dispatch.attempt} ({dispatch.doing}) was in flight"
                self.wrong(text, dispatch.event)
            if (left := _time_left(event, dispatch)) > EPSILON:
                text = f"the undo of {name} was asked {when(event)}, {left:.3f} s before the deadline of its attempt {dispatch.attempt}, whose process seemed dead"
                self.wrong(text, dispatch.verdict)
        undos = [d for d in step.dispatches.values() if d.doing == "undo" and d.round == event["round"]]
        again = bool(undos) and any(task.races(idx))  # its branch may have lost meanwhile
        barring = [] if again else self._barring(task, idx)
        if barring:
            descriptions = [f"{task.name(follower)} ({task.step(follower).state})" for follower in barring]
            self.wrong(
                f"the undo of {name} was asked {when(event)} before what came after it was settled: {join_names(descriptions)}"
            )

    def _barring(self, task: TaskNow, idx: int) -> list[int]:
        """Return what came after a step and is not settled; a skipped step passes the question on."""
        barriers: list[int] = []
        marks, todo = {idx}, _after(task, idx)
        while todo:
            follower = todo.pop()
            if follower in marks:
                continue
            marks.add(follower)
            state = task.step(follower).state
            if state not in SETTLED:
                barriers.append(follower)
            elif state == "skipped":
                todo += _after(task, follower)
        return sorted(barriers)

    def after(self, event: Event, world: HistoryState) -> None:
        """Check whether an undone task is undone completely."""
        if not event.task:
            return
        task = world.task(event.task)
        if event.kind == "ended" and event["state"] == "error" and task.backward:
            self._incomplete(event, task)
        if event.kind != "moved" or task.state != "undone":
            return
        self.saw()
        left = [
            f"{task.name(idx)} ({step.state})"
            for idx, step in task.steps.items()
            if step.state not in SETTLED
        ]
        if left:
            self.wrong(f"the task was undone {when(event)}, but these were not: {join_names(left)}")

    def _incomplete(self, event: Event, task: TaskNow) -> None:
        """An undo ended in error: whatever is left must be stuck, or be barred by a stuck step."""
        self.saw()
        stuck_steps = self._stops.get(event.task, set())
        if stuck_steps & set(_STOPPED.values()):
            return
        for idx, step in sorted(task.steps.items()):
            left = step.state in ("done", "in_doubt", "undo_failed")
            if left and task.name(idx) not in stuck_steps and not self._barring(task, idx):
                self.wrong(
                    f"the undo ended in error {when(event)} with {task.name(idx)} {step.state}; nothing barred its undo, "
                    "and no alert says that it is stuck"
                )


def _time_left(event: Event, dispatch: Dispatch) -> float:
    """Return the seconds that an attempt has left which was judged before its deadline; else 0."""
    taking, verdict = dispatch.taking, dispatch.verdict
    if taking is None or verdict is None or not verdict.fields.get("dead"):
        return 0.0
    return max(0.0, float(taking.at + taking.fields.get("within", 0.0) - event.at))


def _after(task: TaskNow, idx: int) -> list[int]:
    """Return what follows a step; a ``first`` with another winner does not."""
    races = dict(task.races(idx))
    return [f for f in task.followers(idx) if f not in races or task.winners.get(f, races[f]) == races[f]]


def _may_lose(task: TaskNow, idx: int) -> bool:
    """Whether a step is in a branch that was not the first one, or of a race that is not decided."""
    return any(task.winners.get(first) != branch for first, branch in task.races(idx))


def _named(text: str) -> Iterator[str]:
    """Yield the steps of which an alert about an incomplete undo says that they are stuck."""
    for names in _STUCK.findall(text.rpartition("; ")[0] + "; "):
        yield from filter(None, "".join(names).split(", "))


class ForwardInOrder(Rule):
    """I10: an action is asked once everything before it is done or skipped, and never of a task at rest. An
    action or a probe of a held task is never taken up.
    """

    name: ClassVar[str] = "I10"
    says: ClassVar[str] = "no step starts before its predecessors are done"
    kinds: ClassVar[frozenset[str]] = frozenset({"sent", "taken"})

    def before(self, event: Event, world: HistoryState) -> None:
        """Check the predecessors of a step that is asked, and whether a task is held when a step is taken
        up.
        """
        if event.kind == "taken":
            self._taken(event, world)
            return
        if event["doing"] != "do":
            return
        task, idx = world.task(event.task), event["idx"]
        if idx in task.plans:
            self.saw()
        open_ = [
            predecessor for predecessor in task.before(idx) if task.step(predecessor).state not in PASSED
        ]
        if open_:
            descriptions = [
                f"{task.name(predecessor)} ({task.step(predecessor).state})" for predecessor in open_
            ]
            self.wrong(
                f"{task.name(idx)} was started {when(event)} before what it follows: {join_names(descriptions)}"
            )
        if task.state not in ("processing", "undoing"):
            self.wrong(f"{task.name(idx)} was started {when(event)} although the task was {task.state}")

    def _taken(self, event: Event, world: HistoryState) -> None:
        """A step of a task that holds on failure has failed: requests not yet taken were withdrawn in the
        same commit.

        Only while it goes forward: a task that is being undone has its doubts probed, also one that was
        released and not yet claimed again.
        """
        task = world.task(event.task)
        holds = task.submit_event is not None and task.submit_event["on_failure"] == "hold"
        if not holds or event["doing"] == "undo" or task.backward or task.state in AT_REST:
            return
        self.saw()
        failures = [
            task.name(idx)
            for idx, step in sorted(task.steps.items())
            if step.state == "failed" and not any(task.races(idx))
        ]
        if failures:
            self.wrong(
                f"{task.name(event['idx'])} was taken up {when(event)}, although the task is held: {join_names(failures)} has failed"
            )
