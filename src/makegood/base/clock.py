"""Time as makegood reads it: only through a ``Clock`` that is handed in.

Deadlines are counted on a clock that does not stop while a machine is suspended (CLOCK_BOOTTIME on Linux);
``time.monotonic()`` does stop there. Wall time has two uses: it anchors the SQLite store's own clock once per
boot, and it gives dates for people. No process compares its wall clock with a time that another one stored.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final, Protocol, overload

FIRST: Final = -62_135_596_800.0
"""The beginning of the year 1, in seconds since 1970: the first date."""
LAST: Final = 253_402_300_799.0
"""The last second of the year 9999: the last date."""
DAY: Final = 86_400.0
_JUMP: Final = 0.5
"""Seconds by which a wall clock is set at least; less is its drift, between two looks."""


class Clock(Protocol):
    """An actor's source of time; tests and simulators hand in their own."""

    def monotonic(self) -> float:
        """Seconds on a clock that only rises and runs through suspend."""

    def wall(self) -> float:
        """Seconds since 1970 by the machine's wall clock, which may jump."""

    def boot_id(self) -> str:
        """Names the time since the machine started: ``monotonic()`` values compare only under one boot id."""


@overload
def iso(seconds: float) -> str: ...
@overload
def iso(seconds: float | None) -> str | None: ...
def iso(seconds: float | None) -> str | None:
    """Return a point in time, seconds since 1970, as ISO 8601 in UTC with milliseconds: for JSON.

    What no date expresses becomes the first or the last that there is.

    >>> iso(0.25), iso(None), iso(1e300)
    ('1970-01-01T00:00:00.250Z', None, '9999-12-31T23:59:59.000Z')
    """
    if seconds is None:
        return None
    at = max(FIRST, seconds) if seconds <= LAST else LAST  # not a number: the last
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def date_text(seconds: float, form: str, *, local: bool = False) -> str:
    """Return a point in time, seconds since 1970, in a ``form`` of ``strftime``, in UTC or local time.

    Returns "?" for one before 1970, and for one that no date expresses.

    >>> date_text(1.5, "%Y-%m-%d %H:%M:%S"), date_text(1e300, "%H:%M"), date_text(float("nan"), "%H:%M")
    ('1970-01-01 00:00:01', '?', '?')
    """
    if not 0 <= seconds <= LAST - DAY:  # a day: whatever the time zone
        return "?"
    at = datetime.fromtimestamp(seconds, UTC)
    return (at.astimezone() if local else at).strftime(form)


class WallJumps:
    """Notices that a machine's wall clock was set."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead = self._now()

    def _now(self) -> float:
        return self._clock.wall() - self._clock.monotonic()

    def come(self) -> bool:
        """Return whether it was set by more than half a second since the last call."""
        before, self._ahead = self._ahead, self._now()
        return abs(self._ahead - before) > _JUMP


class SystemClock:
    """The machine's clocks.

    >>> SystemClock().monotonic() <= SystemClock().monotonic()
    True
    """

    monotonic: Callable[[], float]
    """Seconds since boot, suspend included where the system offers it."""

    def __init__(self) -> None:
        boot_time = getattr(time, "CLOCK_BOOTTIME", None)
        # The system's own function, not a method around it: every step asks several times.
        self.monotonic = time.monotonic if boot_time is None else partial(time.clock_gettime, boot_time)
        boot_file = Path("/proc/sys/kernel/random/boot_id")
        self._boot = (
            boot_file.read_text().strip()
            if boot_file.exists()
            else f"boot-{round(time.time() - time.monotonic(), -1)}"
        )

    def wall(self) -> float:
        """Seconds since 1970."""
        return time.time()

    def boot_id(self) -> str:
        """The kernel's boot id, or one derived from the boot time where there is none."""
        return self._boot
