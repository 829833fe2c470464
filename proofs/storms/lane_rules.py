"""I29 to I31 and L9: lanes.

What goes in a lane is told by the tasks' moves, not by the rows that the engine decides by: a task goes from
the commit that begins it until it has ended, its undo included. In error it still goes, until an operator
releases it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from makegood.testing.checker.reading import HistoryState
from makegood.testing.checker.report import Report
from makegood.testing.checker.rule import Rule, when
from makegood.testing.history import Event

_UNREAD = 40.0
"""Seconds after which a task whose lanes are free has begun: see L7."""
_HELD = frozenset({"processing", "undoing"})


@dataclass(slots=True)
class _Place:
    """A task's place in a lane: its number, how many may go beside it, and what its row says."""

    seq: int
    at_once: int
    state: str


@dataclass(slots=True)
class _Task:
    """A task with lanes."""

    places: dict[str, _Place] = field(default_factory=dict)
    state: str = "sleeping"
    goes: Event | None = None
    """The event with which it began; None: it does not go."""


class LaneRule(Rule):
    """The fold of the lanes: after each commit ``settle`` is called with the tasks that have begun in it."""

    part: ClassVar[tuple[str, str] | None] = ("lane", "no task has a lane")
    kinds: ClassVar[frozenset[str]] = frozenset({"lane", "moved", "act", "removed", "sent", "healed"})

    def __init__(self, report: Report) -> None:
        super().__init__(report)
        self._tasks: dict[int, _Task] = {}
        self._commit: tuple[float, str] | None = None
        self._begun: dict[int, Event] = {}
        self._touched: set[int] = set()
        self._last: Event | None = None

    def settle(self) -> None:
        """Check what holds after a commit; ``event`` is its last one."""

    def after(self, event: Event, _world: HistoryState) -> None:
        """Fold an event in, and before one of the next commit check the one before."""
        commit = (event.at, event.node)
        if commit != self._commit:
            self._close()
            self._commit = commit
        self._last = event
        if event.kind == "lane":
            task = self._tasks.setdefault(event.task, _Task())
            if event["state"] == "gone":
                task.places.pop(event["lane"], None)
            else:
                if event["state"] == "waiting" and not task.places:
                    task.state = "queued"
                task.places[event["lane"]] = _Place(event["seq"], event["at_once"], event["state"])
        elif event.kind == "removed":
            self._tasks.pop(event.task, None)
        elif (one := self._tasks.get(event.task)) is not None:
            self._fold(event, one)
        self._touched.add(event.task)

    def _fold(self, event: Event, task: _Task) -> None:
        if event.kind == "act" and event["what"] == "release_lane" and event["verdict"] == "applied":
            task.goes = None
        if event.kind != "moved":
            return
        states = [move[2] for move in event["moves"] if move[0] == "task"]
        if not states:
            return
        task.state = states[-1]  # one that ends and is undone in one commit has its lanes throughout
        if task.state in ("processed", "undone"):
            task.goes = None
            self._begun.pop(event.task, None)
        elif task.goes is None and not _HELD.isdisjoint(states):  # it may begin with a sleep
            task.goes = self._begun[event.task] = event

    def _close(self) -> None:
        if self._last is not None:
            event, self.event = self.event, self._last
            self.settle()
            self.event = event
        self._begun.clear()
        self._touched.clear()

    def end(self, _world: HistoryState) -> None:
        """Check the last commit."""
        self._close()
        self._last = None

    def others(self, task: int, lane: str) -> list[Event]:
        """Return with which events the other tasks of a lane that go have begun. Of those that begin in one
        commit the earlier ones are first.
        """
        mine = self._tasks[task].places[lane].seq
        return [
            one.goes
            for number, one in self._tasks.items()
            if number != task
            and one.goes is not None
            and lane in one.places
            and (number not in self._begun or one.places[lane].seq < mine)
        ]

    def earlier(self, task: int, lane: str) -> list[int]:
        """Return the tasks that wait in a lane, with a smaller number than a task."""
        mine = self._tasks[task].places[lane].seq
        return [
            number
            for number, one in self._tasks.items()
            if number != task and one.state == "queued" and lane in one.places and one.places[lane].seq < mine
        ]

    def places(self, task: int) -> Iterator[tuple[str, _Place]]:
        """Yield the places of a task, by lane."""
        yield from self._tasks[task].places.items()


class NeverTooMany(LaneRule):
    """I29: when a task begins, fewer others go in each of its lanes than its ``at_once``, and nothing of a
    task is sent before it has begun, or once it was released.
    """

    name: ClassVar[str] = "I29"
    says: ClassVar[str] = "no more than at_once tasks of a lane go at a time"

    def after(self, event: Event, world: HistoryState) -> None:
        """Look at requests too."""
        super().after(event, world)
        if event.kind == "sent" and (task := self._tasks.get(event.task)) is not None and task.goes is None:
            self.wrong(f"a request of the task was sent {when(event)}, which does not have its lanes")

    def settle(self) -> None:
        """Count who goes beside the tasks that have begun."""
        for task, begun in self._begun.items():
            for lane, place in self.places(task):
                self.saw()
                others = self.others(task, lane)
                if len(others) >= place.at_once:
                    text = f"the task began {when(begun)} in lane {lane}, in which {len(others)} went, and {place.at_once} may go"
                    self.wrong(text, *others, task=task)


class FirstComeFirst(LaneRule):
    """I30: a task begins only if it fits together with those that wait before it in each of its lanes."""

    name: ClassVar[str] = "I30"
    says: ClassVar[str] = "tasks of a lane begin in the order of their submission"

    def settle(self) -> None:
        """Count who waits before the tasks that have begun."""
        for task, begun in self._begun.items():
            for lane, place in self.places(task):
                self.saw()
                others, earlier = len(self.others(task, lane)), self.earlier(task, lane)
                if earlier and others < place.at_once <= others + len(earlier):
                    text = f"the task began {when(begun)} in lane {lane} before task {earlier[0]}, which was submitted earlier"
                    self.wrong(text, task=task)


class PlacesAsTasks(LaneRule):
    """I31: a task that goes has all its lanes, one that is queued has none, and neither has one that ended,
    or was released.
    """

    name: ClassVar[str] = "I31"
    says: ClassVar[str] = "a task that goes has all its lanes, and no other task has one"

    def settle(self) -> None:
        """Compare the rows of the tasks that the commit has touched."""
        for number in self._touched:
            task = self._tasks.get(number)
            if task is None:
                continue
            states = {place.state for place in task.places.values()}
            due = "held" if task.goes is not None else "waiting" if task.state == "queued" else "out"
            self.saw()
            if states - {due}:
                text = f"the task is {task.state}, and its places are {', '.join(sorted(states))}; they should be {due}"
                self.wrong(text, task=number)


class NobodyForgotten(LaneRule):
    """L9: in the end no task waits for lanes that are free, and without faults it does not for long."""

    name: ClassVar[str] = "L9"
    says: ClassVar[str] = "no task waits for lanes that are free"

    def __init__(self, report: Report) -> None:
        super().__init__(report)
        self._free: dict[int, Event] = {}
        """Since when the lanes of tasks that wait are free."""
        self._calm_since: float | None = None

    def after(self, event: Event, world: HistoryState) -> None:
        """Note when the faults are over."""
        super().after(event, world)
        if event.kind == "healed":
            self._calm_since = event.at

    def settle(self) -> None:
        """Note whose lanes are free, and look how long each that begins has waited since."""
        last = self.event
        assert last is not None
        for task in self._begun:
            self.saw()
            since = self._free.pop(task, None)
            if since is None or self._calm_since is None:
                continue
            length = last.at - max(since.at, self._calm_since)
            if length > _UNREAD:
                self.wrong(f"its lanes were free for {length:.3f} s without a fault", since, task=task)
        for number, one in self._tasks.items():
            if one.state == "queued" and one.goes is None and self._may_go(number):
                self._free.setdefault(number, last)
            else:
                self._free.pop(number, None)

    def end(self, world: HistoryState) -> None:
        """Look for tasks that wait for nothing."""
        super().end(world)
        if world.rest is None:
            return
        for number, since in self._free.items():
            self.wrong(
                f"the task is queued, and its lanes are free since {since.at:.3f} s", since, task=number
            )

    def _may_go(self, task: int) -> bool:
        return all(
            len(self.others(task, lane)) + len(self.earlier(task, lane)) < place.at_once
            for lane, place in self.places(task)
        )
