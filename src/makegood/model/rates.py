"""Rates as people write them, "20/s", "100/m", "5/2h", and how a rate becomes points in time.

A rate is kept by one number: the moment from which the next call is free (``next``). Whoever takes n calls moves it on by n
intervals, so that the calls of all processes are evenly spaced, whoever makes them. Calls may be taken a little ahead of their
time, each with the delay after which it may begin. Time that nobody used is not made up for: after a rest, too, two calls are never
closer than an interval.
"""

import math
import re
from dataclasses import dataclass

from makegood.base.durations import seconds
from makegood.errors import ConfigError

AHEAD = 0.2
"""Seconds ahead of its time that a call may be taken: what comes late still begins in time."""

_DEBT = 60.0
"""Seconds ahead that a rate may be used up by calls made beside it."""

_FORM = re.compile(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*/\s*((?:\d+(?:\.\d+)?)?)\s*(ms|s|m|h|d)\s*", re.ASCII)


def per_second(value: object, *, name: str = "rate") -> float:
    """Return a rate as calls a second; raises ``ConfigError``, naming the parameter by ``name``.

    >>> per_second("20/s"), per_second("90/m"), per_second("1/2s"), per_second(3)
    (20.0, 1.5, 0.5, 3.0)
    """
    found = 0.0
    if isinstance(value, int | float) and not isinstance(value, bool):
        found = float(value)
    elif isinstance(value, str) and (match := _FORM.fullmatch(value)):
        length = seconds(f"{match[2] or 1}{match[3]}", name=name)
        found = float(match[1]) / length if length else 0.0
    if not 0 < found < float("inf"):
        raise ConfigError(f'{name}={value!r}: calls in a length of time, such as "20/s", "100/m" or "5/2h"')
    return found


@dataclass(frozen=True, slots=True)
class Pace:
    """Where a rate stands at a moment ``now``. ``first``: when the next call is free; ``rate``: calls a second."""

    first: float
    now: float
    rate: float

    @property
    def most(self) -> int:
        """How many calls may be taken now."""
        ahead = (self.now + AHEAD - self.first) * self.rate
        return max(0, int(ahead + 1.01))  # points in time are known to a microsecond

    def delay(self, n: int) -> float:
        """Return after how many seconds the ``n``-th call taken now (from 0) may begin."""
        return max(0.0, self.first + n / self.rate - self.now)

    def after(self, taken: int) -> float:
        """Return ``next`` when so many were taken."""
        return self.first + taken / self.rate

    def again(self, taken: int) -> float:
        """Return in how many seconds to ask for more when so many were taken: when half of what lies ahead is used up."""
        return max(0.001, self.after(taken) - self.now - AHEAD / 2)


def pace(next_: float | None, now: float, rate: float, spent: int = 0) -> Pace:
    """Return where a rate stands. ``next_``: what was left of it, None at its first use; ``spent``: calls made beside it.

    >>> pace(None, 100.0, 20.0).most, pace(100.0, 100.0, 20.0).most, pace(103.0, 100.0, 20.0).most
    (5, 5, 0)
    """
    most = (
        now + _DEBT + 1 / rate
    )  # beyond it leads nothing that was taken: the store's clock has gone back, or SQL has written it
    if not isinstance(next_, int | float) or math.isnan(next_) or next_ > most:
        next_ = now
    return Pace(max(next_, now) + spent / rate, now, rate)
