"""Keeps a message for a receiver that is slower than the lease.

Without this a message that takes longer than its lease is redelivered while its first receiver still works on
it: both do the work, and the first is refused when it acknowledges. If all receivers are as slow, none ever
succeeds, and the message ends as a dead letter although each of them handled it.

A lease also ends the waiting for a receiver that hangs. So it is extended only for as long as all deliveries
of the message together would have had.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from makegood.base.contexts import bare_context
from makegood.base.durations import short_duration
from makegood.errors import MakegoodError, StoreUnavailableError

log = logging.getLogger("makegood.queues")

TIMES: Final = 3
"""Extensions in the length of one lease."""


class LeaseKeeper:
    """Extends the lease of one message, until ``stop``. To be made on an event loop.

    ``hold``: extends it by ``lease`` seconds; False if the message is another receiver's by now. ``tries``:
    the deliveries that the message may have. ``subject``: the message, for the log.
    """

    def __init__(
        self, hold: Callable[[], Awaitable[bool]], subject: str, *, lease: float, tries: int
    ) -> None:
        self._hold = hold
        self._subject = subject
        self._lease = lease
        self._most = tries * TIMES
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self._timer = self._loop.call_later(lease / TIMES, self._begin, context=bare_context())

    def stop(self) -> None:
        """Extend it no more. Can be called in any thread, and more than once."""
        with contextlib.suppress(RuntimeError):  # the loop is closed, and the keeper with it
            self._loop.call_soon_threadsafe(self._end)

    def _begin(self) -> None:
        self._task = self._loop.create_task(self._keep(), name=f"keep {self._subject}")

    def _end(self) -> None:
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    async def _keep(self) -> None:
        text = "%s takes longer than its lease of %s, and is kept for at most %s: raise lease=, or let its receiver be quicker"
        for n in range(1, self._most):
            try:
                if not await self._hold():
                    log.warning(
                        "%s is another receiver's by now, while this one still works on it", self._subject
                    )
                    return
            except StoreUnavailableError as away:
                log.warning("the lease of %s could not be extended: %s", self._subject, away)
            except MakegoodError:  # the client was closed
                return
            if n == TIMES:
                log.warning(
                    text,
                    self._subject,
                    short_duration(self._lease),
                    short_duration(self._lease * self._most / TIMES),
                )
            await asyncio.sleep(self._lease / TIMES)
        log.error(
            "%s is redelivered soon, although its receiver still works on it: raise lease=", self._subject
        )
