"""Letting go: a task that only waits is held by nobody.

While nothing of a task is in flight, only a timer or a message can move it. Its rows say which timers those
are, so no Scheduler has to keep it in memory: it goes to sleep, and whoever claims it at its moment, or for a
message, continues as after any take-over.
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
    seconds = _wait_left(work, due)
    if seconds is None or seconds <= linger:
        return False
    work.out.wakes = seconds
    work.move_task("sleeping", reason)
    return True


def _wait_left(work: DecisionBuilder, due: Due) -> float | None:
    """Return the seconds until the first timer of a task of which nothing runs, without end if only a signal
    can move it; None if it does not only wait.
    """
    if work.any(rules.is_in_flight):
        return None
    timers = work.out.timers
    waits = [
        timers[idx] if (idx := step.plan.idx) in timers else due.get(idx, 0.0)
        for step in work.steps()
        if step.waiting
    ]
    if not waits and work.any(rules.listens):
        return math.inf
    return min(waits, default=None)
