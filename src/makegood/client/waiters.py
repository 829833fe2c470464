"""Waiters: callers that wait for tasks to come to rest, and how they are notified.

A Scheduler of the same process reports the end of the tasks that it holds. For all other tasks the client
queries the store: one query for all of them, after each wake-up, and at slow intervals without one.
"""

import asyncio
import logging
import random
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import msgspec

from makegood.base import ids
from makegood.base.cancelling import cancel_and_wait
from makegood.base.clock import Clock
from makegood.base.contexts import HomeLoop
from makegood.base.deadline_timer import Alarm
from makegood.base.pacing import Pauses
from makegood.client.opened_store import OpenedStore
from makegood.errors import ClosedError, StoreUnavailableError, TaskNotFoundError
from makegood.model.shape import HeldTask
from makegood.model.states import AT_REST
from makegood.model.task import Step
from makegood.store.views import Filter, StepView, TaskView

log = logging.getLogger("makegood.client")

_MOST_RECENT: Final = 10_000
"""Tasks submitted here whose end a Scheduler of the same process may report before anybody waits for it."""

_MOST_BYTES: Final = 4096
"""The end of such a task is kept only if its result has at most this many bytes."""


class Rested(msgspec.Struct, frozen=True):
    """A task at rest."""

    view: TaskView
    steps: Sequence[StepView] | None = None
    """Its steps as they are then, None when nobody has looked."""

    @property
    def octets(self) -> int:
        """The bytes of the results of the task and its steps."""
        total = len(self.view.result or b"")
        return total + sum([len(step.result) for step in self.steps or () if step.result is not None])


def missing(task: int) -> TaskNotFoundError:
    """Return the error for a task that the store does not have."""
    task_id = ids.show(task)
    return TaskNotFoundError(
        f"there is no task {task_id} in this store: see `makegood task list`. (A task submitted with connection= appears when "
        "its transaction commits. A store restored from a backup lacks the tasks submitted after it.)",
        task_id=task_id,
    )


class RecentTasks:
    """Tasks submitted here recently, and the ends of those that ended before anybody waited for them."""

    def __init__(self) -> None:
        self._ends: OrderedDict[int, Rested | None] = OrderedDict()

    def __contains__(self, task: int) -> bool:
        return task in self._ends

    def add(self, task: int) -> None:
        """Note a task that was just submitted."""
        self._ends[task] = None
        if len(self._ends) > _MOST_RECENT:
            self._ends.popitem(last=False)

    def keep_end(self, end: Rested) -> None:
        """Keep the end of a task that was submitted here, unless it is large: the store has it as well."""
        task = end.view.id
        if task in self._ends:
            if end.octets <= _MOST_BYTES:
                self._ends[task] = end
            else:
                del self._ends[task]

    def pop(self, task: int) -> tuple[bool, Rested | None]:
        """Forget a task; returns whether it was known, and its end, if that has come."""
        return task in self._ends, self._ends.pop(task, None)


class Waiters:
    """Waiting callers of one client. ``poll``: seconds between reads of the store."""

    def __init__(self, opened_store: OpenedStore, *, poll: float, clock: Clock, rng: random.Random) -> None:
        self.recent = RecentTasks()
        self._opened_store = opened_store
        self._poll = poll
        self._clock = clock
        self._rng = rng
        self._home: HomeLoop
        self._waiting: dict[int, list[asyncio.Future[Rested | None]]] = {}
        self._limits: dict[asyncio.Future[Rested | None], float] = {}
        self._alarm = Alarm(clock, self._give_up)
        self._look = asyncio.Event()
        self._watcher: asyncio.Task[None] | None = None
        self._held_here: Callable[[int], bool] | None = None

    def open(self) -> None:
        """Begin, where the client was opened."""
        assert self._opened_store.home is not None
        self._home = self._opened_store.home
        self._alarm, self._look = Alarm(self._clock, self._give_up), asyncio.Event()

    async def close(self) -> None:
        """Stop looking. Who still waits gets a ``ClosedError``."""
        await cancel_and_wait(self._watcher)
        self._watcher = None
        self._alarm.stop()
        text = "the client was closed while this task was waited for; the task continues"
        for task in tuple(self._waiting):
            self._fail(task, lambda: ClosedError(text))

    def beside(self, holds: Callable[[int], bool]) -> None:
        """Leave the tasks that a Scheduler of the same process ``holds`` to it: it calls ``came_to_rest``."""
        self._held_here = holds

    def wake(self) -> None:
        """Look soon: the store has something new."""
        if self._waiting:
            self._look.set()

    def waits_for(self, task: int) -> bool:
        """Whether this client waits for the task, or submitted it and may still do so."""
        return task in self._waiting or task in self.recent

    def came_to_rest(self, held_task: HeldTask) -> None:
        """Take the end of a task that a Scheduler of the same process held."""
        task = held_task.task.id
        if task in self._waiting or task in self.recent:
            self._wake_waiters(_rested_task(held_task))

    async def wait_for_rest(self, task: int, limit: float | None = None) -> Rested | None:
        """Return the task once it is at rest, None when it is not at rest within ``limit`` seconds."""
        self._opened_store.ready()
        submitted_here, end = self.recent.pop(task)
        if end is not None:
            return end
        waiter: asyncio.Future[Rested | None] = self._home.loop.create_future()
        self._waiting.setdefault(task, []).append(waiter)
        if self._watcher is None or self._watcher.done():
            self._watcher = self._home.start(self._watch(), name="client watch")
        if not submitted_here:  # it may have ended before anybody here waited for it
            self._look.set()
        if limit is not None:
            moment = self._limits[waiter] = self._clock.monotonic() + limit
            self._alarm.set(moment)
        try:
            return await waiter
        finally:
            if limit is not None:
                del self._limits[waiter]
            if (left := self._waiting.get(task)) is not None:
                if waiter in left:
                    left.remove(waiter)
                if not left:
                    del self._waiting[task]

    def _wake_waiters(self, end: Rested) -> None:
        """Tell the waiters of a task that it came to rest."""
        waiting = self._waiting.pop(end.view.id, None)
        if waiting is None:
            self.recent.keep_end(end)
        for waiter in waiting or ():
            if not waiter.done():
                waiter.set_result(end)

    def _fail(self, task: int, error: Callable[[], Exception]) -> None:
        """Let the waiters of a task raise an error: nobody will tell them of its end."""
        for waiter in self._waiting.pop(task, ()):
            if not waiter.done():
                waiter.set_exception(error())

    def _give_up(self) -> None:
        """Notify waiters whose time has passed that their task has not come to rest."""
        now = self._clock.monotonic()
        for waiter, moment in self._limits.items():
            if moment <= now and not waiter.done():
                waiter.set_result(None)
        later = [moment for moment in self._limits.values() if moment > now]
        if later:
            self._alarm.set(min(later))

    async def _watch(self) -> None:
        """Query the end of all tasks that have waiters and that no Scheduler of this process holds."""
        pauses = Pauses()
        rest = 0.005 if self._held_here is None else 0.05
        while self._waiting:
            self._look.clear()
            is_held = self._held_here
            task_ids = [task for task in self._waiting if is_held is None or not is_held(task)]
            try:
                for start in range(0, len(task_ids), 500):
                    page = tuple(task_ids[start : start + 500])
                    views = await self._opened_store.store.tasks.find(
                        Filter(ids=page, limit=len(page), results=True)
                    )
                    for view in views:
                        if view.state in AT_REST:
                            self._wake_waiters(Rested(view))
                    for task in set(page) - {view.id for view in views}:
                        self._fail(task, partial(missing, task))
                pauses.reset()
            except StoreUnavailableError as away:
                log.warning("waiting for %d tasks, the store is away: %s", len(self._waiting), away)
                await asyncio.sleep(pauses.draw())
            try:
                async with asyncio.timeout(self._poll * self._rng.uniform(0.8, 1.2)):
                    await asyncio.sleep(rest)  # what ends together is looked for together
                    await self._look.wait()
            except TimeoutError:
                continue


def _rested_task(held_task: HeldTask) -> Rested:
    """Return a task that a Scheduler held, in the form that its waiters get."""
    task = held_task.task
    view = TaskView(
        task.id, task.app, task.workflow, task.key, task.state, task.goal, task.submission, task.priority, task.cause,
        task.failure_count, None, task.epoch, None, 0.0, None, None, result=task.result,
    )  # fmt: skip
    return Rested(view, None if task.state == "processed" else [_step_view(step) for step in held_task.steps])


def _step_view(step: Step) -> StepView:
    plan, policy = step.plan, step.plan.policy
    return StepView(
        plan.idx, plan.kind, plan.name, plan.agent, plan.action, step.state, step.attempt, step.round, step.failures, step.doubt,
        policy is not None and policy.undoable, error=step.error, plan=plan, stood=step.stood, loser=step.loser,
    )  # fmt: skip
