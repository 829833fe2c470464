"""What a Scheduler has done, counted once for each commit: the leading Supervisor adds it up per minute."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from itertools import islice

from makegood.base.clock import Clock
from makegood.base.ids import draw_time
from makegood.model.decision import Decision
from makegood.model.shape import HeldTask
from makegood.model.states import TaskState
from makegood.store.oversight_records import BUCKETS, bucket_end
from makegood.store.views import SchedulerTally

_ENDS = [bucket_end(n) for n in range(BUCKETS - 1)]
_SAMPLED = 4
"""Tasks of a commit whose time from submission to end is measured."""


class Tallies:
    """Counts ends of tasks and answers of agents. ``clock``: its wall clock is compared with tasks' ids."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._steps = 0
        self._rests = Counter[TaskState]()
        """Tasks that came to rest, by their state."""
        self._latencies = [0] * BUCKETS

    def add(self, decisions: Sequence[tuple[HeldTask, Decision]]) -> None:
        """Count Decisions that were committed."""
        if not decisions:
            return
        self._steps += sum([len(decision.used_requests) for _, decision in decisions])
        rests = [d.task for _, d in decisions if d.release and d.task.state != d.before.state]
        if not rests:
            return
        self._rests.update([task.state for task in rests])
        now = self._clock.wall()
        for task in islice((task for task in rests if task.state in ("processed", "undone")), _SAMPLED):
            self._latencies[bisect_left(_ENDS, now - draw_time(task.id))] += 1

    def total(self) -> SchedulerTally:
        """Return what was counted since the process started."""
        latencies = self._latencies
        while latencies and not latencies[-1]:
            latencies = latencies[:-1]
        rests = self._rests
        return SchedulerTally(
            rests["processed"], rests["undone"], rests["error"], self._steps, tuple(latencies)
        )
