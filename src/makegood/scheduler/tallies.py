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
        self._processed_count = self._undone_count = self._errors = self._steps = 0
        self._latencies = [0] * BUCKETS

    def add(self, decisions: Sequence[tuple[HeldTask, Decision]]) -> None:
        """Count Decisions that were committed."""
        steps, releases = 0, []
        for _, decision in decisions:
            steps += 1 if decision.shape_step is not None else len(decision.used_requests)
            if decision.release:
                releases.append(decision)
        self._steps += steps
        ends: list[int] = []
        for task, state in [(decision.task, decision.before.state) for decision in releases]:
            if task.state == state:
                continue
            self._processed_count += task.state == "processed"
            self._undone_count += task.state == "undone"
            self._errors += task.state == "error"
            if task.state in ("processed", "undone"):
                ends.append(task.id)
        if ends:
            now = self._clock.wall()
            for id_ in ends[:_SAMPLED]:
                self._latencies[bisect_left(_ENDS, now - drawn_at(id_))] += 1

    def total(self) -> SchedulerTally:
        """Return what was counted since the process started."""
        latencies = self._latencies
        while latencies and not latencies[-1]:
            latencies = latencies[:-1]
        return SchedulerTally(
            self._processed_count, self._undone_count, self._errors, self._steps, tuple(latencies)
        )
