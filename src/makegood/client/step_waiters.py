"""Step waiters: callers that wait for the outcome of one step, and one watcher for all of them.

The watcher reads all awaited steps in one go: at once, after each wake-up, and at slow intervals without one.
It subscribes to wake-ups only while somebody waits, so no other client hears of steps.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Final

from makegood.base.cancelling import cancel_and_wait
from makegood.base.pacing import Pauses, event_within
from makegood.client.opened_store import OpenedStore
from makegood.client.waiters import missing
from makegood.errors import ClosedError, StoreUnavailableError
from makegood.model.states import AT_REST
from makegood.store.step_outcomes import AwaitedStep, StepOutcome

log = logging.getLogger("makegood.client")

_PAGE: Final = 200
"""Steps that are read at once."""
_REST: Final = 0.005
"""Seconds between two reads, at least: outcomes that come together are read together."""
UNDER_WAY: Final = frozenset({"waiting", "ready", "running", "in_doubt"})


def is_over(step: AwaitedStep, outcome: StepOutcome) -> bool:
    """Whether waiting for a step has ended: it has an outcome, gets none unless somebody acts, or another
    wait used the signal.

    A step that was done before the signal was used says nothing about that signal.
    """
    if outcome.is_stale or outcome.goal == "undo" or outcome.task_state in AT_REST:
        return True
    return outcome.wait is not None and (outcome.wait not in step.waits or outcome.state not in UNDER_WAY)


class StepWaiters:
    """The waiting callers of one client. ``poll``: seconds between reads without a wake-up."""

    def __init__(self, opened_store: OpenedStore, *, poll: float, rng: random.Random) -> None:
        self._opened_store = opened_store
        self._poll = poll
        self._rng = rng
        self._waiting: dict[AwaitedStep, list[asyncio.Future[StepOutcome]]] = {}
        self._watcher: asyncio.Task[None] | None = None
        self._look: asyncio.Event | None = None

    async def close(self) -> None:
        """Stop looking. Callers that still wait get a ``ClosedError``."""
        await cancel_and_wait(self._watcher)
        self._watcher = None
        for step in tuple(self._waiting):
            text = "the client was closed while a step of this task was waited for; the task continues"
            self._fail(step, ClosedError(text))

    async def outcome(self, step: AwaitedStep) -> StepOutcome:
        """Return a step once waiting for it has ended. Raises ``TaskNotFoundError``, ``ClosedError``."""
        self._opened_store.ready()
        home = self._opened_store.home
        assert home is not None
        waiter: asyncio.Future[StepOutcome] = home.loop.create_future()
        self._waiting.setdefault(step, []).append(waiter)
        if self._watcher is None or self._watcher.done():
            self._look = asyncio.Event()
            self._watcher = home.start(self._watch(self._look), name="client watch of steps")
        elif self._look is not None:
            self._look.set()
        try:
            return await waiter
        finally:
            waiters = self._waiting.get(step, [])
            if waiter in waiters:
                waiters.remove(waiter)
            if not waiters:
                self._waiting.pop(step, None)

    def _fail(self, step: AwaitedStep, error: Exception) -> None:
        for waiter in self._waiting.pop(step, ()):
            if not waiter.done():
                waiter.set_exception(error)

    async def _watch(self, look: asyncio.Event) -> None:
        """Read the awaited steps until nobody waits any more."""
        stops: list[Callable[[], None]] = [
            self._opened_store.store.subscribe(topic, look.set) for topic in ("steps", "ended")
        ]
        pauses = Pauses()
        try:
            while self._waiting:
                look.clear()
                try:
                    await self._read()
                    pauses.reset()
                except StoreUnavailableError as away:
                    log.warning(
                        "waiting for %d steps of tasks, the store is away: %s", len(self._waiting), away
                    )
                    await asyncio.sleep(pauses.draw())
                await asyncio.sleep(_REST)
                if self._waiting:
                    await event_within(look, self._poll * self._rng.uniform(0.8, 1.2))
        finally:
            for stop in stops:
                stop()

    async def _read(self) -> None:
        steps = tuple(self._waiting)
        for start in range(0, len(steps), _PAGE):
            page = steps[start : start + _PAGE]
            outcomes = await self._opened_store.store.tasks.step_outcomes(page)
            for step in page:
                outcome = outcomes.get(step)
                if outcome is None:
                    self._fail(step, missing(step.task))
                elif is_over(step, outcome):
                    for waiter in self._waiting.pop(step, ()):
                        if not waiter.done():
                            waiter.set_result(outcome)
