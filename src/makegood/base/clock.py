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
"""The first date that ``datetime`` has, the beginning of the year 1, in seconds since 1970."""
LAST: Final = 253_402_300_799.0
"""The last date that ``datetime`` has, in the year 9999, in seconds since 1970."""
DAY: Final = 86_400.0
_JUMP: Final = 0.5
"""The smallest change, in seconds, that counts as setting a wall clock; a smaller one is its drift."""


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

    A time before the first date, or after the last one, is given as that date.

    >>> iso(0.25), iso(None), iso(1e300)
    ('1970-01-01T00:00:00.250Z', None, '9999-12-31T23:59:59.000Z')
    """
    if seconds is None:
        return None
    at = max(FIRST, seconds) if seconds <= LAST else LAST  # LAST for NaN, too: it compares false
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def date_text(seconds: float, form: str, *, local: bool = False) -> str:
    """Return a point in time, seconds since 1970, in a ``form`` of ``strftime``, in UTC or local time.

    Returns "?" for a time before 1970, and for one that is too late for a date.

    >>> date_text(1.5, "%Y-%m-%d %H:%M:%S"), date_text(1e300, "%H:%M"), date_text(float("nan"), "%H:%M")
    ('1970-01-01 00:00:01', '?', '?')
    """
    if not 0 <= seconds <= LAST - DAY:  # local time may be up to a day later
        return "?"
    at = datetime.fromtimestamp(seconds, UTC)
    return (at.astimezone() if local else at).strftime(form)


class WallJumps:
    """Notices that a machine's wall clock was set."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset = self._read_offset()

    def _read_offset(self) -> float:
        return self._clock.wall() - self._clock.monotonic()

    def come(self) -> bool:
        """Return whether the clock was set, by more than half a second, since the last call."""
        before, self._offset = self._offset, self._read_offset()
        return abs(self._offset - before) > _JUMP


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
