"""Letting go: a task that only waits is held by nobody.

While nothing of a task is in flight, only a timer or a message can move it. Its rows say which timers those
are, so no Scheduler has to keep it in memory: it goes to sleep, and whoever claims it at its moment, or for a
message, continues as after any take-over.

A Scheduler that is nearly full lets a task go that waits for requests in flight, too. Replies to
a task that nobody holds, and the Supervisor's judgement of a late one, are rows of its inbox, which wake it.
"""

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from makegood.model.states import Reason
from makegood.saga import rules
from makegood.saga.decision_builder import DecisionBuilder

Due = Mapping[int, float]
"""By the index of each step that waits: the seconds until its timer fires, as known before the Decision."""

NOTHING_DUE: Final[Due] = MappingProxyType({})


def suspend(work: DecisionBuilder, due: Due, linger: float, reason: Reason = "suspended") -> bool:
    """Let a task sleep if it only waits, and for more than ``linger`` seconds; returns whether it sleeps."""
    if work.task.state not in ("processing", "undoing"):
        return False
    if work.any(rules.is_in_flight):
        return False
    return _sleep(work, _wait_left(work, due), linger, reason)


def suspend_in_flight(work: DecisionBuilder, due: Due, linger: float) -> bool:
    """Let a task sleep although requests of it are in flight, until a message comes, unless a timer of it
    fires within ``linger`` seconds; returns whether it sleeps.
    """
    if not work.any(rules.is_in_flight):
        return suspend(work, due, linger)
    seconds = _wait_left(work, due)
    return _sleep(work, math.inf if seconds is None else seconds, linger, "rested")


def _sleep(work: DecisionBuilder, seconds: float | None, linger: float, reason: Reason) -> bool:
    if seconds is None or seconds <= linger:
        return False
    work.out.wakes = seconds
    waiting = [step.plan for step in work.steps() if step.waiting]
    work.out.by_calendar = bool(waiting) and all(map(rules.is_until, waiting))
    work.move_task("sleeping", reason)
    return True


def _wait_left(work: DecisionBuilder, due: Due) -> float | None:
    """Return the seconds until the first timer of a task, without end if it has none and waits for a signal;
    None if it waits for nothing.
    """
    timers = work.out.timers
    waits = [
        timers[idx] if (idx := step.plan.idx) in timers else due.get(idx, 0.0)
        for step in work.steps()
        if step.waiting
    ]
    if not waits and work.any(rules.listens):
        return math.inf
    return min(waits, default=None)
