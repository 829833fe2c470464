"""The tasks that a Scheduler holds in memory, and what waits for each: messages, timers, a fresh read."""

import heapq
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from makegood import saga
from makegood.base.clock import Clock, WallJumps
from makegood.model.messages import TaskMessage
from makegood.model.shape import HeldTask
from makegood.saga import NOTHING_DUE, Due
from makegood.scheduler.task_memory import SMALL, Weights
from makegood.scheduler.wakeups import Wakeups

_STALE = 1000
"""Timers of tasks that are forgotten that may stay in memory."""
_REVIEW_EVERY, _REVIEW_MOST = 30.0, 1000
"""Seconds, and tasks each time."""


class Review:
    """Chooses held tasks to read again, in turn.

    A Supervisor may have taken a slow Scheduler for unresponsive, and freed its tasks. That Scheduler hears
    nothing more about a freed task that nobody has claimed since: no message arrives and nothing is decided,
    so no commit fails. Without a review it would hold that task forever and, as it holds only a limited
    number, claim ever fewer.
    """

    __slots__ = ("_due", "_last")

    def __init__(self, now: float) -> None:
        self._due, self._last = now + _REVIEW_EVERY, 0

    def some(self, ids: Collection[int], busy: Collection[int], now: float) -> list[int]:
        """Return the next of the tasks ``held`` that are not ``busy``; none before the next review is due."""
        if now < self._due:
            return []
        self._due = now + _REVIEW_EVERY
        due = heapq.nsmallest(_REVIEW_MOST, (task for task in ids if task > self._last and task not in busy))
        self._last = due[-1] if len(due) == _REVIEW_MOST else 0
        return due


class Timers:
    """When waiting steps are due, on the monotonic clock. The last time set for a step counts."""

    __slots__ = ("_due", "_heap", "_stale", "ends")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, int]] = []
        self._stale = 0  # entries of the heap, about, whose steps were dropped
        self._due: dict[int, dict[int, float]] = {}
        self.ends: dict[tuple[int, int], float] = {}
        """When waits end, on the store's clock."""

    @property
    def first(self) -> float | None:
        """When to look next; None when nothing waits."""
        return self._heap[0][0] if self._heap else None

    def due(self, now: float) -> bool:
        """Return whether it is time to look."""
        return bool(self._heap) and self._heap[0][0] <= now

    def set(self, task: int, idx: int, moment: float) -> None:
        """Note when a step is due, in place of what was said of it before."""
        self._due.setdefault(task, {})[idx] = moment
        heapq.heappush(self._heap, (moment, task, idx))

    def seconds_left(self, task: int, now: float) -> Due:
        """Return the seconds until the timers of a task fire, by step."""
        due = self._due.get(task)
        return NOTHING_DUE if due is None else {idx: moment - now for idx, moment in due.items()}

    def drop(self, task: int) -> None:
        """Forget a task's steps. Their entries, which may be due only in months, do not stay for long."""
        steps = self._due.pop(task, None)
        if steps is None:
            return
        for idx in steps if self.ends else ():
            self.ends.pop((task, idx), None)
        self._stale += len(steps)
        if self._stale > max(_STALE, len(self._heap) // 2):
            self._heap = [(at, of, idx) for of, moments in self._due.items() for idx, at in moments.items()]
            heapq.heapify(self._heap)
            self._stale = 0

    def pop(self, now: float) -> list[tuple[int, int]]:
        """Return the task and idx of each step that is due, and forget them."""
        due: list[tuple[int, int]] = []
        while self.due(now):
            moment, task, idx = heapq.heappop(self._heap)
            moments = self._due.get(task)
            if moments is not None and moments.get(idx) == moment:
                del moments[idx]
                if not moments:
                    del self._due[task]
                due.append((task, idx))
        return due

    def clear(self) -> None:
        """Forget all."""
        self._heap.clear()
        self._due.clear()
        self.ends.clear()


class TaskTable:
    """The tasks of one Scheduler. ``memory``: bytes of tasks above which no more should be claimed."""

    def __init__(
        self,
        clock: Clock,
        memory: int,
        wakeups: Wakeups,
        store_clock: Callable[[], float] = lambda: math.inf,
    ) -> None:
        self.node = 0
        """The number of the node that holds them; 0 before there is one."""
        self.wakeups = wakeups
        self.in_memory: dict[int, HeldTask] = {}
        self.messages: dict[int, list[TaskMessage]] = {}
        """What waits to be decided, by task."""
        self.reload: set[int] = set()
        """Tasks to read again, as the store may know otherwise."""
        self.weights = Weights(memory)
        self.timers = Timers()
        self.clock = clock
        self._store_clock = store_clock
        self._review = Review(clock.monotonic())
        self._shapes = saga.Shapes()
        self._jumps = WallJumps(clock)

    def deliver(self, task: int, message: TaskMessage, node: int) -> bool:
        """Take a reply in memory; False when the task is not held (any more): the store must carry it."""
        if task not in self.in_memory or node != self.node:
            return False
        if (value := message.value) and len(value) > SMALL:
            self.weights.grow(task, len(value))
        self.messages.setdefault(task, []).append(message)
        self.wakeups.wake()
        return True

    def hear(self, task: int, message: TaskMessage) -> None:
        """Let a message wait for a task."""
        self.messages.setdefault(task, []).append(message)
        self.wakeups.wake()

    def put_back(self, inbox: Mapping[int, list[TaskMessage]]) -> None:
        """Let messages wait before those that have come meanwhile."""
        for task, messages in inbox.items():
            self.messages[task] = messages + self.messages.get(task, [])
        self.wakeups.wake()

    def mistrust(self, tasks: Iterable[int]) -> None:
        """Mark tasks to be read again."""
        self.reload.update(tasks)
        self.wakeups.wake()

    def hold(self, held_task: HeldTask, waits: Mapping[int, float]) -> None:
        """Hold a task that was claimed."""
        self._shapes.share(held_task)
        self.in_memory[held_task.task.id] = held_task
        self.arm(held_task.task.id, waits)

    def follow_the_calendar(self) -> None:
        """Look at all steps that sleep until a moment if the wall clock was set since the last call."""
        if not self._jumps.come():
            return
        for task, held_task in self.in_memory.items():
            waits = self.timers.seconds_left(task, 0.0)
            self.arm(task, {idx: 0.0 for idx in waits if saga.is_until(held_task.steps[idx].plan)})

    def arm(self, task: int, waits: Mapping[int, float]) -> None:
        """Set timers: in how many seconds each step is due."""
        now, held_task = self.clock.monotonic(), self.in_memory.get(task)
        follows = False
        for idx, wait in waits.items():
            self.timers.set(task, idx, now + wait)
            if held_task is not None and saga.is_wait(plan := held_task.steps[idx].plan):
                self.timers.ends[task, idx] = self._store_clock() + wait
                follows = follows or saga.is_until(plan)
        if follows:  # a clock that is set back and right again between two looks would look as before
            self.follow_the_calendar()

    def fire(self) -> None:
        """Let steps continue whose timers are due, and waits whose moment has come by the store's clock too:
        this process's own may be faster, or was ahead after its machine was suspended.

        A task that waits for a signal is read again first, with all of its inbox: no wait times out over a
        signal that was committed before.
        """
        now = self.clock.monotonic()
        for task, idx in self.timers.pop(now):
            held_task, end = self.in_memory.get(task), self.timers.ends.pop((task, idx), None)
            if held_task is None or not (step := held_task.steps[idx]).waiting:
                continue
            if end is not None and (left := end - self._store_clock()) > 0:
                self.arm(task, {idx: left})
            elif step.plan.kind == "wait_for":
                self.reload.add(task)
            else:
                self.messages.setdefault(task, []).append(TaskMessage("retry", idx))

    def review(self) -> None:
        """Mark tasks that have long been quiet to be read again, a few at a time."""
        self.reload.update(self._review.some(self.in_memory, self.messages, self.clock.monotonic()))

    def portion(self) -> Sequence[int]:
        """Return the first tasks that must be read again, as many as may be read in one go."""
        return self.weights.first_portion(sorted(self.reload))

    def forget(self, task: int) -> None:
        """Let a task go, with all that waits for it."""
        self.in_memory.pop(task, None)
        self.weights.drop(task)
        self.messages.pop(task, None)
        self.timers.drop(task)

    def rename(self, node: int) -> dict[int, list[TaskMessage]]:
        """Release all tasks and restart as ``node``; returns the messages that waited."""
        self.node, messages, self.messages = node, self.messages, {}
        for task in self.in_memory:
            self.weights.drop(task)
        self.in_memory.clear()
        self.timers.clear()
        self.reload.clear()
        self.wakeups.wake()
        return messages
