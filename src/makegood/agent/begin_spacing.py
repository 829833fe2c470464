"""Spaces the calls of one agent in one process, at the moment at which its functions begin.

The store says when each call of an agent with a rate may begin. On a busy machine the event loop, or a
thread, comes to it late, and the next one may be on time: the two would be closer than the rate says. So a
call waits here until the one before it has really begun, and for the interval from then on.
"""

import asyncio
import math

from makegood.base.clock import Clock
from makegood.model.attempt import Attempt

SLACK = 0.001
"""Seconds by which timers are late: making up for them keeps a high rate from falling behind."""


class BeginSpacing:
    """Spaces the calls of one agent. ``rate``: calls a second."""

    def __init__(self, rate: float, clock: Clock) -> None:
        self._interval = 1.0 / rate
        self._clock = clock
        self._turn = asyncio.Lock()
        self._holder: Attempt | None = None
        self._due = -math.inf

    async def wait(self, attempt: Attempt) -> None:
        """Wait until the function of an attempt may begin. Nothing else may until ``begun``, or ``leave``."""
        await self._turn.acquire()
        self._holder = attempt
        now = self._clock.monotonic()
        self._due = max(self._due, now)
        if self._due > now:
            await asyncio.sleep(self._due - now)

    def note_begin(self, attempt: Attempt, at: float) -> None:
        """Note when the function of an attempt has begun."""
        if self._holder is attempt:
            self._due = max(self._due, at - SLACK) + self._interval
            self.leave(attempt)

    def leave(self, attempt: Attempt) -> None:
        """Let the next one take its turn, if it is still that of ``attempt``."""
        if self._holder is attempt:
            self._holder = None
            self._turn.release()
