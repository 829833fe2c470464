"""Following a batch: counts of its tasks by state, until all of them have ended."""

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Final

from makegood.base.arguments import checked_count
from makegood.base.clock import Clock
from makegood.base.durations import Duration, seconds
from makegood.base.pacing import Pauses
from makegood.client.opened_store import OpenedStore
from makegood.errors import ConfigError, StoreUnavailableError, TaskNotFoundError, WaitExpiredError
from makegood.store.filters import text_of
from makegood.store.views import Filter
from makegood.story.batch_progress import BatchProgress, batch_progress

log = logging.getLogger("makegood.client")

_REST: Final = 9
"""Times as long as a count takes, the pause until the next one is at least: a large batch is counted less
often.
"""


class Follower:
    """Counts the tasks that match a filter. ``poll``: seconds between two counts, at most, of a small batch.

    Raises ``ConfigError`` for a filter that a task leaves as it runs, and for a wrong ``expect``.
    """

    def __init__(
        self, opened_store: OpenedStore, condition: Filter, expect: int | None, *, poll: float, clock: Clock
    ) -> None:
        if expect is not None:
            checked_count(expect, "expect")
        passing = {
            "state": condition.states or None, "failing": condition.failing, "doubt": condition.doubt,
            "failures": condition.failures, "error": condition.error, "waits": condition.waits,
        }  # fmt: skip
        if name := next((name for name, value in passing.items() if value is not None), None):
            raise ConfigError(
                f"{text_of(condition)!r} cannot be followed: {name} is true of a task only for some time. Name the batch "
                "by correlation, key, attribute, workflow or age"
            )
        self._opened_store = opened_store
        self._condition = condition
        self._total = expect or 0
        self._poll = poll
        self._clock = clock

    async def progress(self, timeout: Duration | None) -> AsyncIterator[BatchProgress]:
        """Yield how far the tasks are: see ``Client.follow``."""
        start = self._clock.monotonic()
        limit = None if timeout is None else start + seconds(timeout, name="timeout")
        pauses = Pauses(longest=self._poll)
        last: BatchProgress | None = None
        while True:
            before = self._clock.monotonic()
            try:
                count = await self._count(before - start)
            except StoreUnavailableError as away:
                if last is None:
                    raise
                log.warning("following %s, the store is away: %s", text_of(self._condition), away)
                count = last
            if last is None and not (count.tasks or self._total):
                raise TaskNotFoundError(
                    f"no task matches {text_of(self._condition)}; for tasks that are still to be submitted, give their number with expect="
                )
            if count != last:
                last = count
                yield count
            if count.is_over:
                return
            now = self._clock.monotonic()
            if limit is not None and now >= limit:
                raise WaitExpiredError(
                    f"not all tasks ended within {limit - start:g} s: {count.text}; they continue"
                )
            pause = max(pauses.draw(), _REST * (now - before))
            await asyncio.sleep(pause if limit is None else min(pause, limit - now))

    async def _count(self, age: float) -> BatchProgress:
        """Return how far the tasks are. Ages are those at the beginning, ``age`` seconds ago."""
        older, younger = self._condition.older, self._condition.younger
        condition = replace(
            self._condition,
            older=None if older is None else older + age,
            younger=None if younger is None else younger + age,
        )
        return batch_progress(await self._opened_store.ready().tasks.states(condition), self._total)
