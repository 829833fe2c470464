"""Whether a step or its service is to blame for a failure: what a process knows of one service's answers.

While calls of others are answered, a failure is the step's own. A step that alone is left, as the last of a
batch or at night, has nobody beside it. It is still *to blame* while two things hold:

- the service has answered a call of another step since this one first failed: it was there;
- since the service last answered anybody, no other step has failed, in no process. If another one has, it
  looks like an outage, and nobody is to blame.

Several steps that alone are left look like an outage, too: one that begins while some calls are answered, or
that an answer or two interrupt. They are to blame only if more speaks against each of them: enough others
were answered since it first failed, or so many of its failures have counted that others must have been.

What other processes know is read from the store before a step that has failed is asked again.
"""

import math
from collections.abc import Iterable
from typing import Final

import msgspec

from makegood.model.task import Doing

ONCE: Final = 2
"""Counted failures of a step without a probe, after which the service certainly has answered a call of
another step between them: without an answer only its first one counts. (A process that stopped, and was not
known to be dead when its call was overdue, may have left one more.)
"""

TWICE: Final = 3
"""The same, with two such answers."""

_ENOUGH: Final = 5
"""Answers to others that speak against each of several steps, at least; and two for each of these steps."""

_MOST: Final = 1000
"""Failing steps that are remembered."""


class CallingStep(msgspec.Struct, frozen=True, array_like=True):
    """The step that a call is made for."""

    task: int
    idx: int
    step: str
    doing: Doing = "do"
    failures: int = 0
    """Its failures that counted before this call, in this direction, without deaths of processes."""
    has_probe: bool = False
    """Whether its action has a probe. Then failures count after answers to that probe, which are no answers
    to others.
    """

    def has_failed(self, times: int) -> bool:
        """Return whether so many of its failures have counted that others must have been answered between
        them.
        """
        return self.failures >= times and not self.has_probe

    @property
    def key(self) -> "Key":
        """The step in one direction: an action and its probe are one."""
        return self.task, self.idx, self.doing == "undo"


Key = tuple[int, int, bool]
"""Task, index, and whether it is the undo."""


class FailingStep(msgspec.Struct, frozen=True, array_like=True):
    """A step that has failed since its service last answered."""

    step: CallingStep
    last: float
    """When it failed last; as published, how many seconds ago."""
    answers: int = 0
    """Calls of others that the service has answered in the same process since the step first failed."""


class Evidence:
    """What one process knows of one service. Moments are seconds on any clock that only rises."""

    def __init__(self) -> None:
        self.answer_at: float | None = None
        """When the service last answered this process."""
        self.action_answer_at: float | None = None
        """When it last answered an action or an undo: that step does not fail any more."""
        self._answers = 0
        self._answer_to: Key | None = None
        self._other_answer_at: float | None = None  # to another step than that one
        self._answer_elsewhere = self._action_answer_elsewhere = -math.inf
        self._failing: dict[Key, tuple[CallingStep, float]] = {}
        self._first: dict[Key, tuple[float, int]] = {}  # when, and after how many answers
        self._failing_elsewhere: list[FailingStep] = []
        self._is_informed = False  # of what other processes know

    def record_answer(self, caller: CallingStep | None, now: float) -> None:
        """Record that the service has answered."""
        key = None if caller is None else caller.key
        if key != self._answer_to or key is None:
            self._other_answer_at, self._answer_to = self.answer_at, key
        self.answer_at = now
        if caller is None or caller.doing != "probe":
            self.action_answer_at = now
        self._answers += 1
        self._failing.clear()
        self._failing_elsewhere.clear()
        if caller is not None and caller.key in self._first:
            at, answers = self._first.pop(caller.key)
            if caller.doing == "probe":  # its own answer is none to another
                self._first[caller.key] = (at, answers + 1)

    def record_failure(self, caller: CallingStep, now: float, first: float) -> None:
        """Record a failure. ``first``: an earlier moment at which the step had failed already, or ``now``."""
        key = caller.key
        if key in self._failing or len(self._failing) < _MOST:
            self._failing[key] = (caller, now)
        if key not in self._first:
            self._first[key] = (min(first, now), self._answers)
            if len(self._first) > _MOST:
                del self._first[next(iter(self._first))]

    def learn(
        self, answer_at: float | None, action_answer_at: float | None, failing: Iterable[FailingStep]
    ) -> None:
        """Record what other processes know: when the service last answered one, when it answered one of them
        an action or an undo, and which steps fail there.
        """
        if answer_at is not None:
            self._answer_elsewhere = max(self._answer_elsewhere, answer_at)
        if action_answer_at is not None:
            self._action_answer_elsewhere = max(self._action_answer_elsewhere, action_answer_at)
        self._failing = {key: it for key, it in self._failing.items() if it[1] > self._answer_elsewhere}
        last = self.last_answer
        self._failing_elsewhere = [each for each in failing if each.last > last]
        self._is_informed = True

    @property
    def last_answer(self) -> float:
        """When the service last answered any process, as far as known."""
        return max(self._answer_elsewhere, -math.inf if self.answer_at is None else self.answer_at)

    @property
    def failing(self) -> list[FailingStep]:
        """The steps that have failed in this process since the service last answered."""
        return [FailingStep(step, at, self._answers_since(step.key)) for step, at in self._failing.values()]

    def matters(self, caller: CallingStep) -> bool:
        """Return whether what other processes know matters for a step: it has failed before."""
        return caller.failures > 0 or caller.key in self._first

    def _answers_since(self, key: Key) -> int:
        return self._answers - self._first.get(key, (0.0, self._answers))[1]

    def last_other_answer(self, caller: CallingStep) -> float:
        """Return when the service last answered another step than this one, which fails. A probe that another
        process made may have been this step's own.
        """
        here = self._other_answer_at if caller.key == self._answer_to else self.answer_at
        return max(self._action_answer_elsewhere, -math.inf if here is None else here)

    def callers(self) -> list[CallingStep]:
        """Return the steps that have failed since the service last answered, each once."""
        callers = [each.step for each in (*self._failing_elsewhere, *self.failing)]
        return list({(caller.task, caller.idx): caller for caller in callers}.values())

    def blames(self, caller: CallingStep) -> bool:
        """Return whether a step that fails again is to blame, and not its service."""
        if not self._is_informed:
            return False
        key = caller.key
        failing = [*self._failing_elsewhere, *self.failing]
        own = FailingStep(caller, math.inf, self._answers_since(key))
        count = len({each.step.key for each in (*failing, own)})
        if count > 1:
            enough = max(_ENOUGH, 2 * count)
            certain = {
                each.step.key
                for each in (*failing, own)
                if each.step.has_failed(TWICE) or each.answers >= enough
            }
            return len(certain) == count
        return (
            caller.has_failed(ONCE) or self.last_other_answer(caller) > self._first.get(key, (math.inf,))[0]
        )
