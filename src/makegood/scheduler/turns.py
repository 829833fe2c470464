"""The turns of a Scheduler: which may begin now, and what it takes.

A turn takes messages, decides, commits and settles. The loop waits for most turns. Large ones run in
parallel, each on tasks of its own, so that one is decided while the store writes others::

            begins one beside            begins the fourth
     QUIET ───────────────────► ABREAST ───────────────────► FULL
      ▲ │                        ▲  │ ▲                        │
      │ └─ turns that are        │  │ └────────────────────────┘
      │    waited for            └──┘           one has ended
      │                     begins another
      └────────────────────────────┘
             the last has ended

``quiet``
    No commit is under way. Only now are tasks read from the store or claimed, and only now do timers fire.
``parallel``
    One to three commits are under way. Another turn begins when enough tasks wait that are in none of them,
    and no work waits for quiet: a timer that is due, a task to read again, tasks to claim or to try in parts.
``full``
    Four commits are under way. No turn begins, and the inbox is not read.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from makegood.model.messages import TaskMessage
from makegood.model.shape import HeldTask
from makegood.scheduler.claims import Claims
from makegood.scheduler.doubts import Doubts
from makegood.scheduler.task_table import TaskTable
from makegood.store.records import Claim
from makegood.telemetry.hooks import Watch

State = Literal["quiet", "parallel", "full"]

_MOST_PARALLEL = 4  # turns


@dataclass(slots=True)
class Listeners:
    """Callbacks of one Scheduler."""

    on_end: Callable[[HeldTask], None] = lambda _task: None
    """Called for each task that came to rest here."""
    watch: Watch | None = None
    """Told of each commit."""
    defect: Callable[[Exception], None] = lambda _fault: None
    """Called for each unexpected exception; the Scheduler continues."""


class Next(NamedTuple):
    """A turn that is about to begin."""

    messages: dict[int, list[TaskMessage]]
    """The messages to decide, by task."""
    claim: Claim | None
    """The tasks to claim in the same commit."""
    is_parallel: bool
    """Whether other turns may begin meanwhile."""


class Turns:
    """The turns of one Scheduler: which are under way, and what the next one takes."""

    def __init__(
        self, tasks: TaskTable, claims: Claims, listeners: Listeners, parallel_from: int | None
    ) -> None:
        self.tasks = tasks
        self.claims = claims
        self.listeners = listeners
        self.doubts = Doubts()
        self.under_way: dict[asyncio.Task[None], dict[int, list[TaskMessage]]] = {}
        """What each turn that runs beside others has taken."""
        self.last_used = 0
        """The highest number of a message of the inbox that a Decision has used."""
        self._parallel_from = parallel_from
        """How many tasks are worth a commit beside others; None: one turn after another."""

    @property
    def state(self) -> State:
        """Whether commits are under way, and how many: see above."""
        if not self.under_way:
            return "quiet"
        return "full" if len(self.under_way) >= _MOST_PARALLEL else "parallel"

    def begin(self, turn: Coroutine[Any, Any, None], inbox: dict[int, list[TaskMessage]]) -> None:
        """Start a turn that the loop does not wait for."""
        self.under_way[asyncio.get_running_loop().create_task(turn)] = inbox

    def reap(self) -> None:
        """Remove the turns that have ended. Raises the exception of one that failed."""
        for turn in [turn for turn in self.under_way if turn.done()]:
            del self.under_way[turn]
            turn.result()

    async def stop(self) -> None:
        """Cancel the turns under way."""
        for turn in self.under_way:
            turn.cancel()
        await asyncio.gather(*self.under_way, return_exceptions=True)
        self.under_way.clear()

    def inbox_rows(self) -> set[int]:
        """Return the inbox rows that turns under way have taken: the store keeps them until the commit."""
        return {m.seq for turn in self.under_way.values() for messages in turn.values() for m in messages}

    def may_begin(self) -> bool:
        """Return whether a turn may begin now."""
        state = self.state
        if state == "quiet":
            return True
        if state == "full" or self._parallel_from is None or self._wants_quiet():
            return False
        messages = self.tasks.messages
        busy = sum(len(messages.keys() & turn.keys()) for turn in self.under_way.values())
        return len(messages) - busy >= self._parallel_from

    def _wants_quiet(self) -> bool:
        """Return whether work waits that reads tasks, which commits under way are changing."""
        due = self.tasks.timers.due(self.tasks.clock.monotonic())
        waiting = due or self.tasks.reload or self.claims.at_rest or self.tasks.wakeups.pending
        return bool(waiting or self.doubts)

    def next(self) -> Next | None:
        """Return the next turn, None when there is nothing to do."""
        messages = self.tasks.messages
        while self.doubts:  # nothing is under way then
            if inbox := {task: messages.pop(task) for task in self.doubts.next() if task in messages}:
                return Next(inbox, None, is_parallel=False)
        claim = self.claims.next_claim(self.doubts.most)
        if claim is not None:
            return Next(
                {} if self.doubts.most is not None else self._take(plain=False), claim, is_parallel=False
            )
        if not messages:
            return None
        inbox = self._take(plain=True)
        is_parallel = self._parallel_from is not None and len(inbox) >= self._parallel_from
        return Next(inbox, None, is_parallel=is_parallel) if inbox else None

    def _take(self, *, plain: bool) -> dict[int, list[TaskMessage]]:
        """Take the messages to decide now: all but those of tasks under way, or a part of many or large ones.

        ``plain``: the turn claims nothing, so it may leave a part to the turns beside it.
        """
        tasks = self.tasks
        inbox, tasks.messages = tasks.messages, {}
        for busy in self.under_way.values():
            tasks.messages |= {task: inbox.pop(task) for task in [*inbox] if task in busy}
        if plain and self._parallel_from is not None and len(inbox) >= 3 * self._parallel_from:
            tasks.messages |= {task: inbox.pop(task) for task in [*inbox][2 * self._parallel_from :]}
            self.tasks.wakeups.wake()
        portion = len(tasks.weights.first_portion(ids := [*inbox]))
        if portion < len(ids):
            tasks.messages |= {task: inbox.pop(task) for task in ids[portion:]}
            self.tasks.wakeups.wake()
        return inbox
