"""I17: circuits, each of one agent in one process."""

import math
from dataclasses import dataclass, field
from typing import ClassVar

from makegood.model.blame import ONCE
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

KNOWN: float = 20.0
"""Seconds after which every process knows of a step that fails in another one."""

Attempt = tuple[int, int, int]


@dataclass(slots=True)
class _Circuit:
    """The circuit of one agent in one process."""

    event: Event
    opening: Event | None = None
    """When it last opened."""
    flying: dict[Attempt, Event] = field(default_factory=dict)
    """Attempts that called and have no answer."""
    canaries: set[Attempt] = field(default_factory=set)
    """Those of them that were taken since it became half-open."""
    repeats: dict[Attempt, float] = field(default_factory=dict)
    """When each of them was tried again first: it had failed by then."""
    ends: dict[tuple[int, int], float] = field(default_factory=dict)
    """When a call of each step ended whose reply has not been sent."""
    silences: dict[Attempt, Event] = field(default_factory=dict)
    """All attempts without an answer, also of earlier phases."""
    answer_at: float = -math.inf
    """When its service last answered."""


@dataclass(slots=True)
class _Agent:
    """What the service of one agent has answered, over all processes."""

    first: dict[tuple[int, int], float] = field(default_factory=dict)
    """When each step that fails failed first: in its first try, even if no answer says so."""
    probe_answers: dict[tuple[int, int], float] = field(default_factory=dict)
    """When the probe of each such step was last answered."""
    last: dict[tuple[int, int], float] = field(default_factory=dict)
    """When each of them failed last."""
    answers: dict[tuple[int, int], float] = field(default_factory=dict)
    """When each step was last answered."""

    def failed(self, attempt: Attempt, event: Event, first: float) -> None:
        self.first.setdefault(attempt[:2], first)
        self.last[attempt[:2]] = event.at

    def answered(self, attempt: Attempt, event: Event) -> None:
        self.answers[attempt[:2]] = event.at
        if event["doing"] == "probe":
            self.probe_answers[attempt[:2]] = event.at

    def may_blame(self, attempt: Attempt, event: Event, earlier: Event | None) -> bool:
        """Whether a failure may count although its circuit rules it out. ``earlier``: the failure before."""
        step = attempt[:2]
        failed_at = self.last.get(step, math.inf if earlier is None else earlier.at)
        if event["doing"] == "do" and self.probe_answers.get(step, -math.inf) > failed_at:
            return True
        answer = max(self.answers.values(), default=-math.inf)
        moments = [at for key, at in self.last.items() if key != step]
        fails_alone = not any(answer + SLACK < at < event.at - KNOWN for at in moments)
        answer_of_others = max((at for key, at in self.answers.items() if key != step), default=-math.inf)
        return fails_alone and answer_of_others > self.first.get(step, math.inf) - SLACK


class OpenMeansShut(Rule):
    """I17: while a circuit is open, its process takes no request of that agent and makes no call for one;
    half-open, it makes one call at a time.

    Three failures do not count for their steps: a trial call's; that of an attempt that was under way when
    the circuit opened; and a repeated attempt's, if the service has answered nobody in that process since the
    step last failed. They may count all the same if the service has answered the step's own probe since the
    action last failed; if the step fails alone: another step was answered after this one first failed, and
    none has failed since the last answer; or if two failures have counted of which the Supervisor judged one:
    that attempt's process said nothing of the service.
    """

    name: ClassVar[str] = "I17"
    says: ClassVar[str] = (
        "while a circuit is open nothing begins, half-open one trial call; a service that answers nobody "
        "adds no failure to a step"
    )
    part: ClassVar[tuple[str, str] | None] = ("circuit", "no agent has a breaker")
    kinds: ClassVar[frozenset[str]] = frozenset(
        {"circuit", "call", "outcome", "reply", "accepted", "counted", "judged"}
    )

    def __init__(self, report: Report) -> None:
        super().__init__(report)
        self._circuits: dict[tuple[str, str], _Circuit] = {}
        self._excuses: dict[Attempt, tuple[str, Event]] = {}
        self._counts: list[Event] = []
        self._acceptances: dict[tuple[float, str, int, int], tuple[str, Event]] = {}
        self._failures: dict[tuple[int, int], Event] = {}
        self._agents: dict[str, _Agent] = {}
        self._silent: set[tuple[int, int]] = set()
        """Steps of which a judged silence was the second failure, or a later one."""

    def before(self, event: Event, world: HistoryState) -> None:
        """Follow the circuits, and look at each call that begins and each failure that counts."""
        if event.kind == "circuit":
            self._became(event)
        elif event.kind == "call":
            self._called(event, world)
        elif event.kind == "outcome":
            self._ended(event, world)
        elif event.kind == "reply":
            self._answered(event, world)
        elif event.kind == "accepted" and event["reply"] == "gave_up":
            attempt = (event.task, event["idx"], event["attempt"])
            if attempt in self._excuses:
                self.saw()
                self._acceptances[event.at, event.node, event.task, event["idx"]] = self._excuses[attempt]
        elif event.kind == "counted":
            self._counts.append(event)
        elif event.kind == "judged":
            self._failures[event.task, event["idx"]] = event
            if event["failures"] >= ONCE:
                self._silent.add((event.task, event["idx"]))

    def _became(self, event: Event) -> None:
        circuit = self._circuits.setdefault((event.node, event["agent"]), _Circuit(event))
        if event["state"] == "closed" and circuit.event["state"] != "release":
            circuit.flying.clear()  # the process has restarted
            circuit.ends.clear()
        circuit.event = event
        if event["state"] == "open":
            circuit.opening = event
        circuit.canaries.clear()

    def _called(self, event: Event, world: HistoryState) -> None:
        if (owner := world.keys.get(event["key"])) is None:
            return
        task, idx = world.task(owner[0]), owner[1]
        dispatch, plan = task.step(idx).dispatches.get(event["attempt"]), task.plans.get(idx)
        circuit = None if plan is None else self._of(event.node, plan.agent)
        if dispatch is None or plan is None or circuit is None:
            return
        attempt = (task.id, idx, event["attempt"])
        if circuit.flying.setdefault(attempt, event) is not event:
            circuit.repeats.setdefault(attempt, event.at)
        if circuit.event["state"] not in ("open", "half-open") or not _taken_since(dispatch, circuit.event):
            return
        self.saw()
        if circuit.event["state"] == "open":
            text = f"{plan.name} was called {when(event)}, and the circuit of {plan.agent} is open since {circuit.event.at:.3f} s"
            self.wrong(text, circuit.event)
        elif circuit.canaries - {attempt}:
            text = f"the circuit of {plan.agent} is half-open, and a second call began {when(event)}"
            self.wrong(text, circuit.event)
        circuit.canaries.add(attempt)
        circuit.silences[attempt] = circuit.event

    def _ended(self, event: Event, world: HistoryState) -> None:
        """Note when a call ended. Of a task that was removed since, nothing else is known."""
        circuit, step = self._circuits[event.node, event["agent"]], (event.task, event["idx"])
        circuit.ends[step] = event.at
        agent = self._agents.setdefault(event["agent"], _Agent())
        if event["outcome"] == "failed":
            agent.first.setdefault(step, event.at - event["failing_for"])
        elif event["outcome"] == "answered" and not world.task(event.task).plans:
            circuit.answer_at = event.at
            agent.answered((*step, 0), event)

    def _of(self, node: str, agent: str) -> _Circuit | None:
        for (process, address), circuit in self._circuits.items():
            if process == node and address.endswith(f"/{agent}"):
                return circuit
        return None

    def _answered(self, event: Event, world: HistoryState) -> None:
        """Follow what an answer says about its circuit: it counts as one even if the action called no
        service.
        """
        attempt = (event.task, event["idx"], event["attempt"])
        dispatch, plan = world.dispatch_of(event), world.task(event.task).plans.get(event["idx"])
        circuit = None if plan is None else self._of(event.node, plan.agent)
        if circuit is None or dispatch is None:
            return
        call, end = circuit.flying.pop(attempt, None), circuit.ends.pop(attempt[:2], event.at)
        first = circuit.repeats.pop(attempt, end)
        circuit.canaries.discard(attempt)
        trial, opening = circuit.silences.pop(attempt, None), circuit.opening
        began = call or dispatch.taking or dispatch.event
        agent = self._agents.setdefault(circuit.event["agent"], _Agent())
        if event["reply"] == "gave_up":
            if call is not None:
                earlier = self._failures.get(attempt[:2])
                self._gave_up(attempt, event, circuit, call, trial=trial, end=end)
                if attempt[:2] in self._silent or agent.may_blame(attempt, event, earlier):
                    self._excuses.pop(attempt, None)
                agent.failed(attempt, event, first)
        elif event["reply"] != "later" and (opening is None or began.at >= opening.at):
            circuit.answer_at = event.at
            agent.answered(attempt, event)

    def _gave_up(
        self,
        attempt: Attempt,
        event: Event,
        circuit: _Circuit,
        began: Event,
        *,
        trial: Event | None,
        end: float,
    ) -> None:
        """Note that this failure must not be counted, if that is so. ``end``: when the call ended, for its
        circuit.
        """
        opening, failure = circuit.opening, self._failures.get(attempt[:2])
        self._failures[attempt[:2]] = event
        if trial is not None:
            self._excuses[attempt] = ("it was the trial call", trial)
        elif opening is not None and began.at < opening.at - EPSILON and opening.at < end - EPSILON:
            self._excuses[attempt] = ("it was under way when the circuit opened", opening)
        elif failure is not None and attempt[2] > 1 and circuit.answer_at < failure.at - SLACK:
            self._excuses[attempt] = ("the service had answered nobody since the step failed last", failure)

    def end(self, world: HistoryState) -> None:
        """Check whether a counted failure was excused."""
        for failure in self._counts:
            excuse = self._acceptances.get((failure.at, failure.node, failure.task, failure["idx"]))
            if excuse is not None:
                name, (reason, event) = world.task(failure.task).name(failure["idx"]), excuse
                self.wrong(f"a failure of {name} was counted {when(failure)}: {reason}", event, failure)


def _taken_since(dispatch: Dispatch, transition: Event) -> bool:
    """Whether an attempt was taken when the circuit was already so; a Scheduler may have promised its
    hand-over earlier.
    """
    if dispatch.local:
        return dispatch.event.at > transition.at + HANDED
    return dispatch.taking is not None and dispatch.taking.at > transition.at + EPSILON
