"""I28, L7 and L8: tasks that only wait are let go, and come back in time."""

from collections import defaultdict
from typing import ClassVar

from makegood.testing.checker.reading import Dispatch, HistoryState
from makegood.testing.checker.report import Report
from makegood.testing.checker.rule import Rule, when
from makegood.testing.checker.signals import key_of
from makegood.testing.history import Event

_LATER = 0.05
"""The share by which a moment may be after the timer: clocks of processes run a little too fast or slow."""
_SLACK = 0.02
"""Seconds that a commit may take."""
_SLOW = 3.0
"""Seconds after which a slow commit is answered, at most."""
_UNREAD = 40.0
"""Seconds after which a Scheduler has read a signal: it may have to take the task over from one that died."""


class LetGoAtRest(Rule):
    """I28: a task is let go only while no attempt of it runs, and until its first timer at most. One that
    rests may have requests in flight, but none that runs in its Scheduler's process, which handed it over.

    A Scheduler counts a timer from the answer to the commit that set it. While the process is stopped, or
    waits for that answer, it does not count.
    """

    name: ClassVar[str] = "I28"
    says: ClassVar[str] = "a task is let go only when it only waits, and for no longer"
    part: ClassVar[tuple[str, str] | None] = ("suspended", "no task was let go")
    kinds: ClassVar[frozenset[str]] = frozenset({"suspended", "fault", "healed", "call", "reply"})

    def __init__(self, report: Report) -> None:
        super().__init__(report)
        self._starts: dict[str, float] = {}
        self._stops: dict[str, float] = {}
        """Since when a process is stopped."""
        self._longest_stops: dict[str, float] = {}
        self._slow: set[str] = set()
        """Processes that waited long for an answer."""
        self._deadlines: dict[tuple[int, str, int], float] = {}
        """Of attempts that called their service: earlier than usual if it forgets their key before."""
        self._replies: set[tuple[int, int, int]] = set()
        """Attempts that have ended, though their reply may be under way, or lost."""

    def before(self, event: Event, world: HistoryState) -> None:
        """Look for attempts in flight, and compare the moment with the timer."""
        if event.kind == "fault":
            self._note_fault(event)
            return
        if event.kind == "healed":
            for node in [*self._stops]:
                self._note_resume(node, event.at)
            return
        if event.kind == "call":
            deadline = event.at + event["remaining"]
            self._deadlines[event.task, event["step"], event["attempt"]] = deadline
            return
        if event.kind == "reply":
            self._replies.add((event.task, event["idx"], event["attempt"]))
            return
        self.saw()
        task = world.task(event.task)
        for idx, step in task.steps.items():
            last = step.last
            if last is None or not last.open:
                continue
            runs = (task.id, idx, last.attempt) not in self._replies and self._runs_here(
                last, task.name(idx), event
            )
            if not event.fields.get("rests") or runs:
                self.wrong(
                    f"the task was let go while attempt {last.attempt} of {task.name(idx)} was in flight",
                    last.event,
                )
        wakes, due = event["wakes"], event["due"]
        slack = _SLACK + self._longest_stops.get(event.node, 0.0) + _SLOW * (event.node in self._slow)
        if due is not None and (wakes is None or wakes > due + abs(due) * _LATER + slack):
            until = "only a message" if wakes is None else f"{wakes:.3f} s from then"
            self.wrong(f"its first timer is due {due:.3f} s after it was let go, and it sleeps until {until}")

    def _runs_here(self, dispatch: Dispatch, step: str, event: Event) -> bool:
        """Whether an attempt was handed over by the process of an event, which has lived since, and whose
        time is not over.
        """
        taking = dispatch.taking
        if taking is None or not dispatch.local or dispatch.by != event.node:
            return False
        usual = taking.at + taking["within"]
        deadline = self._deadlines.get((event.task, step, dispatch.attempt), usual)
        return taking.at >= self._starts.get(event.node, 0.0) and event.at < deadline

    def _note_fault(self, event: Event) -> None:
        """Note when a process began, and for how long it stood still."""
        if event["what"] == "restart":
            self._starts[event.node] = event.at
        elif event["what"] == "stop":
            self._stops.setdefault(event.node, event.at)
        elif event["what"] == "slow commit":
            self._slow.add(event.node)
        elif event["what"] in ("resume", "kill"):
            self._note_resume(event.node, event.at)

    def _note_resume(self, node: str, now: float) -> None:
        stop = now - self._stops.pop(node, now)
        self._longest_stops[node] = max(stop, self._longest_stops.get(node, 0.0))


class WokenInTime(Rule):
    """L7: nothing due sleeps on in the end, and without faults no signal waits for long to be read."""

    name: ClassVar[str] = "L7"
    says: ClassVar[str] = "in the end no task sleeps whose moment has passed, or for which a signal waits"
    kinds: ClassVar[frozenset[str]] = frozenset({"suspended", "signalled", "kept", "used", "healed"})

    def __init__(self, report: Report) -> None:
        super().__init__(report)
        self._moments: dict[int, Event] = {}
        self._unread: dict[tuple[int, str, str], Event] = {}
        self._calm_since: float | None = None

    def before(self, event: Event, _world: HistoryState) -> None:
        """Note when a task is due, and look how long a signal was not read."""
        if event.kind == "suspended":
            self._moments[event.task] = event
        elif event.kind == "healed":
            self._calm_since = event.at
        elif event.kind == "signalled":
            self._unread[key_of(event)] = event
        elif (signal := self._unread.pop(key_of(event), None)) is not None and self._calm_since is not None:
            self.saw()
            length = event.at - max(signal.at, self._calm_since)
            if length > _UNREAD:
                self.wrong(f"nobody read signal {event['id']} for {length:.3f} s without a fault", signal)

    def end(self, world: HistoryState) -> None:
        """Look for tasks that are due."""
        if world.rest is None:
            return
        for number, task in world.tasks.items():
            self.saw()
            event = self._moments.get(number)
            if event is None or task.state != "sleeping":
                continue
            wakes = event["wakes"]
            if wakes is not None and event.at + wakes < world.rest.at:
                self.wrong(
                    f"the task was let go for {wakes:.3f} s {when(event)}, and sleeps on", event, task=number
                )


class NothingLingers(Rule):
    """L8: no Scheduler keeps a task that only waits for longer than it may, or more tasks than twice
    ``max_tasks``: so many if each has a message.

    A process whose clock was set forward waits for less, as it sees it.
    """

    name: ClassVar[str] = "L8"
    says: ClassVar[str] = "no Scheduler holds a task that only waits, and for long, or too many tasks"
    kinds: ClassVar[frozenset[str]] = frozenset({"lingers", "claimed", "overfull", "fault"})

    def __init__(self, report: Report) -> None:
        super().__init__(report)
        self._ahead: dict[str, float] = defaultdict(float)

    def before(self, event: Event, _world: HistoryState) -> None:
        """Report each that was kept, and each commit that left too many."""
        if event.kind == "fault":
            self._ahead[event.node] += event.fields.get("seconds", 0.0)
            return
        self.saw()
        if event.kind == "overfull":
            self.wrong(f"its Scheduler holds {event['count']} tasks, and {event['most']} are its most")
        if event.kind == "lingers":
            most = event["linger"] * (1 + _LATER) + _SLACK + self._ahead[event.node]
            if event["wait"] > most:
                self.wrong(
                    f"its Scheduler keeps the task, which only waits, for {event['wait']:.3f} s {when(event)}"
                )
