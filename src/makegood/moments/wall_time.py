"""Between the clocks on the wall and UTC: when does a clock in a zone show a time, if clocks there change?"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

from makegood.moments.moment import Mark

_SECOND = timedelta(seconds=1)
_STRIDE = timedelta(hours=6)
"""Shorter than the time between two changes."""


class Instants(NamedTuple):
    """When the clocks of a zone show a wall time, in UTC."""

    first: datetime
    """The first instant at which they show it or, in a gap, a later one: the end of the gap."""
    second: datetime | None
    """In the repeated hour, the instant at which they show it again."""
    mark: Mark | None


class ClockChange(NamedTuple):
    """A change of the clocks: the instant in UTC, and their offsets before and from then on."""

    at: datetime
    before: timedelta
    after: timedelta

    @property
    def shift(self) -> timedelta:
        """How long the gap or the fold is."""
        return abs(self.after - self.before)


def instants(zone: ZoneInfo, wall: datetime) -> Instants:
    """Return when a wall time (without zone) is. Raises ``OverflowError`` at the ends of the calendar."""
    before, after = offsets(zone, wall)
    early, late = _utc(wall, before), _utc(wall, after)
    if before < after:
        return Instants(_transition(zone, late, early), None, "gap")
    return Instants(early, None, None) if before == after else Instants(early, late, "fold")


def offsets(zone: ZoneInfo, wall: datetime) -> tuple[timedelta, timedelta]:
    """Return the offsets from UTC of a wall time, by the clocks before and after a change; mostly equal."""
    return tuple(zone.utcoffset(wall.replace(fold=fold)) or timedelta() for fold in (0, 1))  # type: ignore[return-value]  # two


def wall_time(at: datetime, offset: timedelta) -> datetime:
    """Return what clocks with an offset show at an instant, without zone."""
    return at.astimezone(UTC).replace(tzinfo=None) + offset


def changes(zone: ZoneInfo, start: datetime, end: datetime) -> Iterator[ClockChange]:
    """Yield the changes of the clocks between two instants."""
    at, offset = start, _offset(zone, start)
    while at < end:
        later = min(at + _STRIDE, end)
        if (new := _offset(zone, later)) != offset:
            yield ClockChange(_transition(zone, at, later), offset, new)
        at, offset = later, new


def _transition(zone: ZoneInfo, early: datetime, late: datetime) -> datetime:
    """Return the first second at which the clocks are as they are at ``late``; at ``early`` they are not."""
    new, early = _offset(zone, late), early.replace(microsecond=0)
    while late - early > _SECOND:
        middle = early + (late - early) // _SECOND // 2 * _SECOND
        if _offset(zone, middle) == new:
            late = middle
        else:
            early = middle
    return late


def _offset(zone: ZoneInfo, at: datetime) -> timedelta:
    return at.astimezone(zone).utcoffset() or timedelta()


def _utc(wall: datetime, offset: timedelta) -> datetime:
    return (wall - offset).replace(tzinfo=UTC)
