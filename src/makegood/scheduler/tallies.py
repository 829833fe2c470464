"""What a Scheduler has done, counted once for each commit: the leading Supervisor adds it up per minute."""

from bisect import bisect_left
from collections.abc import Sequence

from makegood.base.clock import Clock
from makegood.base.ids import drawn_at
from makegood.model.decision import Decision
from makegood.model.shape import HeldTask
from makegood.store.oversight_records import BUCKETS, bucket_end
from makegood.store.views import SchedulerTally

_ENDS = [bucket_end(n) for n in range(BUCKETS - 1)]
_SAMPLED = 4
"""Tasks of a commit whose time from submission to end is measured."""


class Tallies:
    """Counts ends of tasks and answers of agents. ``clock``: its wall clock is compared with tasks' ids."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._processed = self._undone = self._errors = self._steps = 0
        self._latencies = [0] * BUCKETS

    def add(self, decided: Sequence[tuple[HeldTask, Decision]]) -> None:
        """Count Decisions that were committed."""
        steps, left = 0, _SAMPLED
        sample: tuple[int, ...] = ()
        for _, decision in decided:
            if decision.shape_step is not None:
                steps += 1
            elif decision.consumed:
                steps += len(decision.consumed)
            if decision.release and decision.task.state != decision.before.state:
                state = decision.task.state
                if state == "processed":
                    self._processed += 1
                elif state == "undone":
                    self._undone += 1
                else:
                    self._errors += state == "error"
                    continue
                if left:
                    left, sample = left - 1, (*sample, decision.task.id)
        self._steps += steps
        if sample:
            now = self._clock.wall()
            for task in sample:
                self._latencies[bisect_left(_ENDS, now - drawn_at(task))] += 1

    def total(self) -> SchedulerTally:
        """Return what was counted since the process started."""
        latencies = self._latencies
        while latencies and not latencies[-1]:
            latencies = latencies[:-1]
        return SchedulerTally(self._processed, self._undone, self._errors, self._steps, tuple(latencies))
