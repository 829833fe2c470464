"""The janitor: removes tasks that ended long ago, with their steps, history, alerts and audit, and messages nobody received.

It runs beside the leading Supervisor and never removes what is not settled: a task in error, one that somebody has a message
for, whose submitter is still to be told, or about which an alert stands or was not told. It looks through the tasks in the order in which they were submitted, a
bounded window at a time, and rests in between, so that nobody waits for it. What it deletes is named again in the statement that
deletes, hence two of them do no harm.
"""

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Protocol

from makegood.errors import StoreUnavailableError
from makegood.store.protocol import Retention
from makegood.store.records import Pruned

log = logging.getLogger("makegood.janitor")

WINDOW = 500
"""Tasks looked at in one transaction."""

REST = 0.05
"""Seconds between two windows of one round."""


class _Store(Retention, Protocol):
    async def expire_messages(self, limit: int) -> int: ...


class Janitor:
    """Removes tasks that ended more than ``keep`` seconds ago; a round every ``sweep`` seconds.

    ``leads``: asked before each window; another process does the work while it says no.
    """

    def __init__(
        self, store: _Store, *, keep: float, sweep: float, leads: Callable[[], bool], rng: random.Random
    ) -> None:
        self._store = store
        self._keep = keep
        self._sweep = sweep
        self._leads = leads
        self._rng = rng

    async def run(self) -> None:
        """Sweep round after round, until cancelled."""
        while True:
            await asyncio.sleep(self._sweep * self._rng.uniform(0.9, 1.1))
            if not self._leads():
                continue
            try:
                removed = await self.round()
            except StoreUnavailableError as away:
                log.warning("the store is away; ended tasks are removed when it is back: %s", away)
            else:
                if removed:
                    log.info("removed %d tasks that ended more than %g s ago", removed, self._keep)

    async def round(self) -> int:
        """Look through all tasks old enough, once; returns how many were removed. Ends early when it leads no more."""
        while self._leads() and await self._store.expire_messages(WINDOW) == WINDOW:  # noqa: ASYNC110 - it rests, it does not wait
            await asyncio.sleep(REST * self._rng.uniform(0.5, 1.5))
        removed, after = 0, 0
        while self._leads():
            found: Pruned = await self._store.prune(self._keep, after, WINDOW)
            removed += found.removed
            if found.next is None:
                break
            after = found.next
            await asyncio.sleep(REST * self._rng.uniform(0.5, 1.5))
        return removed
