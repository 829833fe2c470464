"""Rates as people write them, "20/s", "100/m", "5/2h", and how a rate becomes points in time.

One number keeps a rate: the moment from which the next call is free (``next``). A process that takes n calls
moves it on by n intervals, so the calls of all processes together are evenly spaced. Calls may be taken a
little ahead of their time, each with the delay after which it may begin. Unused time is not made up for: even
after a rest, two calls are never closer than an interval. A further try within an attempt is a call like any
other: it gets a turn of its own, and waits for it.
"""

import math
import re
from dataclasses import dataclass

from makegood.base.durations import seconds
from makegood.errors import ConfigError

AHEAD = 0.2
"""Seconds ahead of its time that a call may be taken, so that a call that arrives late still begins in
time.
"""

_RESERVED = 60.0
"""Seconds ahead, at most, that further tries may reserve their turns."""

_FORM = re.compile(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*/\s*((?:\d+(?:\.\d+)?)?)\s*(ms|s|m|h|d)\s*", re.ASCII)


def per_second(value: object, *, name: str = "rate") -> float:
    """Return a rate as calls per second; raises ``ConfigError``, naming the parameter by ``name``.

    >>> per_second("20/s"), per_second("90/m"), per_second("1/2s"), per_second(3)
    (20.0, 1.5, 0.5, 3.0)
    """
    rate = 0.0
    if isinstance(value, int | float) and not isinstance(value, bool):
        rate = float(value)
    elif isinstance(value, str) and (match := _FORM.fullmatch(value)):
        length = seconds(f"{match[2] or 1}{match[3]}", name=name)
        rate = float(match[1]) / length if length else 0.0
    if not 0 < rate < float("inf"):
        raise ConfigError(f'{name}={value!r}: calls in a length of time, such as "20/s", "100/m" or "5/2h"')
    return rate


@dataclass(frozen=True, slots=True)
class Pace:
    """The state of a rate at one moment."""

    first: float
    """When the next call is free."""
    now: float
    rate: float
    """Calls per second."""

    @property
    def most(self) -> int:
        """How many calls may be taken now."""
        ahead = (self.now + AHEAD - self.first) * self.rate
        return max(0, int(ahead + 1.01))  # points in time are known to a microsecond

    def delay(self, n: int) -> float:
        """Return the seconds until the ``n``-th call taken now (from 0) may begin."""
        return max(0.0, self.first + n / self.rate - self.now)

    def turn(self, most: float) -> float | None:
        """Return the seconds until the turn of a further try; None if they are more than ``most``, or too
        many to be reserved.
        """
        delay = self.delay(0)
        return delay if delay <= min(most, _RESERVED) else None

    def after(self, count: int) -> float:
        """Return ``next`` once ``count`` calls are taken."""
        return self.first + count / self.rate

    def again(self, count: int) -> float:
        """Return the seconds until it is time to ask for more: when half of the time ahead is used up."""
        return max(0.001, self.after(count) - self.now - AHEAD / 2)


def pace(next_: float | None, now: float, rate: float) -> Pace:
    """Return the state of a rate. ``next_``: the stored ``next``, None at its first use.

    >>> pace(None, 100.0, 20.0).most, pace(100.0, 100.0, 20.0).most, pace(103.0, 100.0, 20.0).most
    (5, 5, 0)
    """
    # no calls lead to a moment beyond this: the store's clock has gone back, or SQL has written it
    most = now + _RESERVED + 1 / rate
    if not isinstance(next_, int | float) or math.isnan(next_) or next_ > most:
        next_ = now
    return Pace(max(next_, now), now, rate)
