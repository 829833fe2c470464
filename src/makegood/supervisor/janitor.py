"""The janitor: removes tasks that ended long ago, with their steps, history, alerts and audit, and messages
that nobody received.

It runs beside the leading Supervisor. It never removes a task that is in error, has an undecided message, has
an unsent notice, or has an alert that is open or was not reported. It scans the tasks in the order of their
submission, a bounded window at a time, and rests in between, so that nobody waits for it. The statement that
deletes names the rows again, so two janitors do no harm.

It checks queues more often: a queue that nobody reads grows with every task. makegood refuses what a client
sends to a full queue. It cannot refuse the notice of a state change, so it drops the oldest notices, with an
alert.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from functools import partial

from makegood.actor.actor import Actor
from makegood.actor.setbacks import Setbacks
from makegood.store.protocol import Store
from makegood.store.records import Pruned

log = logging.getLogger("makegood.janitor")

WINDOW = 500
"""Tasks looked at in one transaction."""

REST = 0.05
"""Seconds between two windows of one round."""


QUEUES_EVERY = 30.0
"""Seconds at most between two looks at the queues."""


class Janitor(Actor):
    """Removes old tasks, expired messages and excess notices.

    Tasks that ended more than ``keep`` seconds ago are removed (None: never), every ``sweep`` seconds. Queues
    lose messages that were not received in time, and the oldest notices when more than ``most`` messages
    wait, or ``most_bytes``.

    ``leads``: asked before each window; while it says no, another process does the work. ``every``: seconds
    between two looks at the queues at least.
    """

    def __init__(
        self,
        store: Store,
        *,
        keep: float | None,
        sweep: float,
        most: int,
        most_bytes: int,
        leads: Callable[[], bool],
        rng: random.Random,
        every: float = 0.0,
    ) -> None:
        self._store = store
        self._keep = keep
        self._sweep = sweep
        self._most = most
        self._most_bytes = most_bytes
        self._leads = leads
        self._rng = rng
        self._pause = max(every, min(sweep, QUEUES_EVERY))
        self._age = 0.0
        """Seconds since the last sweep of tasks."""

    async def run(self) -> None:
        """Sweep round after round, until cancelled."""
        setbacks = Setbacks("janitor", None, self._rng)
        away = partial(log.warning, "the store is away; what is old is removed when it is back: %s")
        while True:
            await asyncio.sleep(self._pause * self._rng.uniform(0.9, 1.1))
            self._age += self._pause
            if self._leads():
                await setbacks.attempt(self._round, away)

    async def _round(self) -> None:
        await self.queues()
        if self._keep is not None and self._age >= self._sweep:
            self._age = 0.0
            await self.tasks(self._keep)

    async def queues(self) -> None:
        """Look through all queues, once; ends early when it leads no more."""
        shorten = partial(self._store.queues.shorten_queues, self._most, most_bytes=self._most_bytes)
        for tidy in (self._store.queues.expire_messages, shorten):
            while self._leads() and await tidy(WINDOW) >= WINDOW:
                await self._rest()

    async def tasks(self, keep: float) -> int:
        """Scan all tasks that are old enough, once; returns how many were removed.

        Ends early when this process no longer leads.
        """
        total, after = 0, 0
        while self._leads():
            pruning: Pruned = await self._store.admin.prune(keep, after, WINDOW)
            total += pruning.removals
            if pruning.next is None:
                break
            after = pruning.next
            await self._rest()
        if total:
            log.info("removed %d tasks that ended more than %g s ago", total, keep)
        return total

    async def _rest(self) -> None:
        await asyncio.sleep(REST * self._rng.uniform(0.5, 1.5))
