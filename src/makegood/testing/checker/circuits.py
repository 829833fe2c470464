"""I17: circuits, each of one agent in one process."""

import math
from dataclasses import dataclass, field
from typing import ClassVar

from makegood.testing.checker.reading import Dispatch, HistoryState
from makegood.testing.checker.report import Report
from makegood.testing.checker.rule import EPSILON, Rule, when
from makegood.testing.history import Event

HANDED: float = 5.0
"""Seconds that a Scheduler's commit may be under way: it promised earlier what it hands to an agent beside
it.
"""

SLACK: float = 1.0
"""Seconds by which the clocks of two processes may disagree on what came first: an answer, or another call's
failure.
"""

Attempt = tuple[int, int, int]


@dataclass(slots=True)
class _Circuit:
    """The circuit of one agent in one process."""

    event: Event
    opened: Event | None = None
    """When it last opened."""
    flying: dict[Attempt, Event] = field(default_factory=dict)
    """Attempts that called and have no answer."""
    canaries: set[Attempt] = field(default_factory=set)
    """Those of them that were taken since it became half-open."""
    tried: dict[Attempt, Event] = field(default_factory=dict)
    """All attempts without an answer, also of earlier phases."""
    heard: float = -math.inf
    """When its service last answered."""


class OpenMeansShut(Rule):
    """I17: while a circuit is open, its process takes no request of that agent and makes no call for one;
    half-open, it makes one call at a time.

    Three failures do not count for their steps: a trial call's; that of an attempt that was under way when
    the circuit opened; and a repeated attempt's, if the service has answered nobody in that process since the
    step last failed.
    """

    name: ClassVar[str] = "I17"
    says: ClassVar[str] = (
        "while a circuit is open nothing begins, half-open one trial call; a service that answers nobody "
        "adds no failure to a step"
    )
    part: ClassVar[tuple[str, str] | None] = ("circuit", "no agent has a breaker")
    kinds: ClassVar[frozenset[str]] = frozenset({"circuit", "call", "reply", "accepted", "counted", "judged"})

    def __init__(self, report: Report) -> None:
        super().__init__(report)
        self._circuits: dict[tuple[str, str], _Circuit] = {}
        self._excused: dict[Attempt, tuple[str, Event]] = {}
        self._counted: list[Event] = []
        self._accepted: dict[tuple[float, str, int, int], tuple[str, Event]] = {}
        self._failed: dict[tuple[int, int], Event] = {}

    def before(self, event: Event, world: HistoryState) -> None:
        """Follow the circuits, and look at each call that begins and each failure that counts."""
        if event.kind == "circuit":
            self._became(event)
        elif event.kind == "call":
            self._called(event, world)
        elif event.kind == "reply":
            self._answered(event, world)
        elif event.kind == "accepted" and event["reply"] == "gave_up":
            attempt = (event.task, event["idx"], event["attempt"])
            if attempt in self._excused:
                self.saw()
                self._accepted[event.at, event.node, event.task, event["idx"]] = self._excused[attempt]
        elif event.kind == "counted":
            self._counted.append(event)
        elif event.kind == "judged":
            self._failed[event.task, event["idx"]] = event

    def _became(self, event: Event) -> None:
        found = self._circuits.setdefault((event.node, event["agent"]), _Circuit(event))
        if event["state"] == "closed" and found.event["state"] != "release":
            found.flying.clear()  # the process has restarted
        found.event = event
        if event["state"] == "open":
            found.opened = event
        found.canaries.clear()

    def _called(self, event: Event, world: HistoryState) -> None:
        if (whose := world.keys.get(event["key"])) is None:
            return
        task, idx = world.task(whose[0]), whose[1]
        asked, plan = task.step(idx).asked.get(event["attempt"]), task.plans.get(idx)
        circuit = None if plan is None else self._of(event.node, plan.agent)
        if asked is None or plan is None or circuit is None:
            return
        attempt = (task.id, idx, event["attempt"])
        circuit.flying.setdefault(attempt, event)
        if circuit.event["state"] not in ("open", "half-open") or not _taken_since(asked, circuit.event):
            return
        self.saw()
        if circuit.event["state"] == "open":
            text = f"{plan.name} was called {when(event)}, and the circuit of {plan.agent} is open since {circuit.event.at:.3f} s"
            self.wrong(text, circuit.event)
        elif circuit.canaries - {attempt}:
            text = f"the circuit of {plan.agent} is half-open, and a second call began {when(event)}"
            self.wrong(text, circuit.event)
        circuit.canaries.add(attempt)
        circuit.tried[attempt] = circuit.event

    def _of(self, node: str, agent: str) -> _Circuit | None:
        for (of, address), found in self._circuits.items():
            if of == node and address.endswith(f"/{agent}"):
                return found
        return None

    def _answered(self, event: Event, world: HistoryState) -> None:
        """Follow what an answer says about its circuit: it counts as one even if the action called no
        service.
        """
        attempt = (event.task, event["idx"], event["attempt"])
        asked, plan = world.asked(event), world.task(event.task).plans.get(event["idx"])
        circuit = None if plan is None else self._of(event.node, plan.agent)
        if circuit is None or asked is None:
            return
        called = circuit.flying.pop(attempt, None)
        circuit.canaries.discard(attempt)
        tried, opened = circuit.tried.pop(attempt, None), circuit.opened
        began = called or asked.taken or asked.event
        if event["reply"] == "gave_up":
            if called is not None:
                self._gave_up(attempt, event, circuit, called, tried)
        elif event["reply"] != "later" and (opened is None or began.at >= opened.at):
            circuit.heard = event.at

    def _gave_up(
        self, attempt: Attempt, event: Event, circuit: _Circuit, began: Event, tried: Event | None
    ) -> None:
        """Note that this failure must not be counted, if that is so."""
        opened, before = circuit.opened, self._failed.get(attempt[:2])
        self._failed[attempt[:2]] = event
        if tried is not None:
            self._excused[attempt] = ("it was the trial call", tried)
        elif opened is not None and began.at < opened.at - EPSILON and opened.at < event.at - EPSILON:
            self._excused[attempt] = ("it was under way when the circuit opened", opened)
        elif before is not None and attempt[2] > 1 and circuit.heard < before.at - SLACK:
            self._excused[attempt] = ("the service had answered nobody since the step failed last", before)

    def end(self, world: HistoryState) -> None:
        """Check whether a counted failure was excused."""
        for counted in self._counted:
            excused = self._accepted.get((counted.at, counted.node, counted.task, counted["idx"]))
            if excused is not None:
                name, (why, event) = world.task(counted.task).name(counted["idx"]), excused
                self.wrong(f"a failure of {name} was counted {when(counted)}: {why}", event, counted)


def _taken_since(asked: Dispatch, opened: Event) -> bool:
    """Whether an attempt was taken when the circuit was already so; a Scheduler may have promised its
    hand-over earlier.
    """
    if asked.local:
        return asked.event.at > opened.at + HANDED
    return asked.taken is not None and asked.taken.at > opened.at + EPSILON
