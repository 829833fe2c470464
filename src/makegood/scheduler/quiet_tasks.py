"""Which tasks a Scheduler lets go to make room, although requests of theirs are in flight.

The requests of an agent that is dead, paused or limited by a rate lie in the store for a long time. Their
tasks would fill ``max_tasks``, and the Scheduler would claim nothing else. So while it is nearly full, it
tells quiet tasks to ``rest``: they sleep until a message comes. Each reply then costs a claim, which a busy
agent's tasks shall not pay. Only time shows whether an agent is busy or slow, so a task rests after three
looks, half a second apart::

    first look ──same──► second look ──same──► third look: rests, if its agents answer slowly
    how far it is        what it waits for     how many others still wait for the same agents

Tasks that moved between two looks cost a comparison of two numbers.
"""

from collections import Counter
from collections.abc import Collection, Iterable

from makegood import saga
from makegood.actor.slot_pool import SlotPool
from makegood.base.ids import address
from makegood.model.messages import TaskMessage
from makegood.scheduler.claims import Claims

PERIOD = 0.5
"""Seconds between two looks."""
_CROWDED, _RELIEVED = 0.8, 0.5
"""The shares of what may be held above which tasks rest, and down to which."""
_SLOW = 0.1
"""From one look to the next, a slow agent answers less than this share of the tasks that wait for it."""


class QuietTasks:
    """Says which tasks rest. ``hold``: the most tasks in memory."""

    def __init__(self, claims: Claims, agents: SlotPool, hold: int) -> None:
        self._claims = claims
        self._tasks = claims.tasks
        self._agents = agents
        self._hold = hold
        self._most_tasks, self._most_octets = _CROWDED * hold, _CROWDED * claims.tasks.weights.most
        self._next = 0.0
        self._left: dict[int, int] = {}
        """By task: the steps that had not passed at the last look."""
        self._agents_of: dict[int, frozenset[str]] = {}
        """By task that was quiet at the last look: the agents that it waits for."""

    @property
    def next_look(self) -> float | None:
        """When to look, on the monotonic clock; None while there is room."""
        tasks = self._tasks
        is_crowded = len(tasks.in_memory) > self._most_tasks or tasks.weights.total > self._most_octets
        return self._next if is_crowded and self._claims.open else None

    def look(self, now: float, writing: Iterable[Collection[int]]) -> None:
        """Let tasks rest if it is time to. ``writing``: the tasks of commits under way."""
        moment = self.next_look
        if moment is None:
            if self._left:
                self._left, self._agents_of = {}, {}
            return
        if now < moment:
            return
        self._next = now + PERIOD
        tasks = self._tasks
        busy = self._agents.tasks().union(tasks.messages, *writing)
        before, agents_before = self._left, self._agents_of
        self._left = {task: held_task.left for task, held_task in tasks.in_memory.items() if task not in busy}
        quiet = [task for task, left in self._left.items() if before.get(task) == left]
        self._agents_of = {task: agents for task in quiet if (agents := self._waits_for(task))}
        quiet = [task for task in self._slow(agents_before) if not self._wakes_soon(task, now)]
        for count, task in enumerate(quiet):
            if self._fill(count) <= _RELIEVED:
                break
            del self._agents_of[task]  # else the next look would take its absence for an answer of its agents
            tasks.hear(task, TaskMessage("rest"))

    def _fill(self, resting: int = 0) -> float:
        """Return the share of what may be held that is; without so many tasks, of the usual weight."""
        weights = self._tasks.weights
        return max(
            (len(self._tasks.in_memory) - resting) / self._hold,
            (weights.total - resting * weights.mean) / weights.most,
        )

    def _wakes_soon(self, task: int, now: float) -> bool:
        """Whether a timer of a task fires so soon that it may stay in memory."""
        timers = self._tasks.timers.seconds_left(task, now)
        return bool(timers) and min(timers.values()) <= self._claims.linger

    def _waits_for(self, task: int) -> frozenset[str]:
        """Return the agents that a task waits for."""
        held_task = self._tasks.in_memory[task]
        return frozenset(
            address(held_task.task.app, step.plan.agent)
            for step in held_task.steps
            if saga.is_in_flight(step)
        )

    def _slow(self, agents_before: dict[int, frozenset[str]]) -> list[int]:
        """Return the tasks that wait, and waited at the look before, for slow agents only."""
        quiet = [task for task, agents in agents_before.items() if self._agents_of.get(task) == agents]
        waits = Counter(agent for agents in agents_before.values() for agent in agents)
        silences = Counter(agent for task in quiet for agent in agents_before[task])
        slow = {agent for agent, count in waits.items() if silences[agent] > (1 - _SLOW) * count}
        return [task for task in quiet if agents_before[task] <= slow]
