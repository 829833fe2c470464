"""One timer for many moments.

Nearly everything that has a deadline ends long before it, and to set a timer of the event loop for each and to cancel it again costs
as much as what it watches. So whoever waits for many things sets one for the earliest moment; when it rings, what is due is looked for,
and it is set again for what is left.
"""

import asyncio
import math
from collections.abc import Callable

from makegood.base.clock import Clock


class Alarm:
    """Calls ``rung`` at the earliest moment it was set to, in monotonic seconds of ``clock``; then it has to be set anew.

    It may ring too early for what was earliest then and has ended since: ``rung`` looks at the clock.
    """

    def __init__(self, clock: Clock, rung: Callable[[], None]) -> None:
        self._clock = clock
        self._rung = rung
        self._moment = math.inf
        self._timer: asyncio.TimerHandle | None = None

    def set(self, moment: float) -> None:
        """See to it that it rings at this moment, if not before."""
        if moment < self._moment:
            self.stop()
            self._moment = moment
            left = max(0.0, moment - self._clock.monotonic())
            self._timer = asyncio.get_running_loop().call_later(left, self._ring)

    def stop(self) -> None:
        """Ring no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._moment = None, math.inf

    def _ring(self) -> None:
        self._timer, self._moment = None, math.inf
        self._rung()
