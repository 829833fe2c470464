"""One timer for many moments.

Nearly everything with a deadline ends long before it, and setting and cancelling an event-loop timer for each
costs as much as the work it watches. So a waiter with many deadlines sets one timer for the earliest. When it
fires, the waiter handles what is due and sets it again for the rest.
"""

import asyncio
import math
from collections.abc import Callable

from makegood.base.clock import Clock
from makegood.base.contexts import home_context


class Alarm:
    """Calls ``callback`` at the earliest moment set, in monotonic seconds of ``clock``; after that it must be
    set again.

    It may fire too early, if the earliest deadline no longer exists: ``callback`` checks the clock. It runs
    in the context in which the alarm was made.
    """

    def __init__(self, clock: Clock, callback: Callable[[], None]) -> None:
        self._clock = clock
        self._callback = callback
        self._context = home_context()
        self._moment = math.inf
        self._timer: asyncio.TimerHandle | None = None

    def set(self, moment: float) -> None:
        """Fire at this moment at the latest."""
        if moment < self._moment:
            self.stop()
            self._moment = moment
            left = max(0.0, moment - self._clock.monotonic())
            self._timer = asyncio.get_running_loop().call_later(left, self._fire, context=self._context)

    def stop(self) -> None:
        """Do not fire."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._moment = None, math.inf

    def _fire(self) -> None:
        self._timer, self._moment = None, math.inf
        self._callback()
