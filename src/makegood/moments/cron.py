"""The moments of a cron text in a time zone, by Debian's rule where clocks change.

A **fixed** time (seconds, minutes and hours all named) means a time of the day, and each day has it once. If
the clocks skip it, it is the end of the gap; if they show it twice, the first of the two. So it is the first
instant at which the clocks show that time or a later one. With a star in the time, or a step of a star, the
text means **real time**: each instant at which the clocks show a time that fits, none in the gap, both in the
fold.

cronsim computes which wall times fit, and knows nothing of zones here: where half an hour is repeated, or
midnight skipped, its own arithmetic differs from this rule, and it returns moments that have passed.
"""

from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime, timezone
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from makegood.base import zones
from makegood.errors import ConfigError
from makegood.moments.cron_fields import fields_of
from makegood.moments.moment import ScheduleMoment
from makegood.moments.wall_time import instants, offsets

_ANY = datetime(2000, 1, 1)  # noqa: DTZ001 - a wall time; the calendar repeats itself from any year on


class Cron:
    """A cron text: five fields, or six with the seconds first, in a zone by its IANA name.

    Raises ``ConfigError`` for a text that cannot be read, or that fits no moment in fifty years, and for an
    unknown zone.
    """

    def __init__(self, text: str, timezone: str = "UTC") -> None:
        self.text = text
        self.timezone = timezone
        fields = fields_of(text)
        self._fields = " ".join(fields)
        self.is_fixed = not any(field.startswith("*") for field in fields[:3])
        """Whether it means a time of the day, and not real time."""
        self.is_hourly = not self.is_fixed and fields[2] in {"*", "*/1", "0-23"}
        """Whether it fits in every hour alike."""
        self._by_wall = not fields[2].startswith("*")
        zones.zone(timezone)
        try:
            next(self.walls(_ANY))
        except (CronSimError, StopIteration):  # the fields alone are right: cronsim has no other complaint
            raise ConfigError(
                f"cron={text!r:.80}: day of month {fields[3]!r:.20}, month {fields[4]!r:.20} and day of week "
                f"{fields[5]!r:.20} have no date in common within 50 years: write a day that these months have"
            ) from None

    def walls(self, wall: datetime) -> Iterator[datetime]:
        """Yield the wall times (without zone) that fit, from the second after one on."""
        try:
            yield from CronSim(self._fields, wall)
        except OverflowError:  # the year 9999 is over
            return

    def first(self, wall: datetime) -> datetime:
        """Return the first instant at which clocks show a wall time or a later one, by the rules on disk."""
        return instants(zones.zone(self.timezone), wall).first

    def after(self, instant: datetime, latest: datetime | None = None) -> Iterator[ScheduleMoment]:
        """Yield the moments after an instant that has a zone, in their order.

        ``latest``: the wall time up to which all times have become tasks or counted skips, perhaps by other
        rules: the moment at the end of a gap is that of the others.

        The zone's rules are read from disk now. Keep no iterator over a firing: another law may hold for the
        next one.

        >>> from itertools import islice
        >>> start = datetime(2026, 3, 28, 12, tzinfo=UTC)
        >>> for moment in islice(Cron("30 2 * * *", "Europe/Berlin").after(start), 2):
        ...     print(moment.local, moment.mark, moment.key("report"))
        2026-03-29 03:00:00+02:00 gap report@2026-03-29T02:30[Europe/Berlin]
        2026-03-30 02:30:00+02:00 None report@2026-03-30T02:30[Europe/Berlin]
        """
        zone, last = zones.zone(self.timezone), instant.astimezone(UTC)
        try:
            for moment in self._around(zone, last, latest):
                if moment.is_after(last):
                    last = moment.at
                    yield moment
        except OverflowError:  # the end of the calendar in this zone
            return

    def _around(self, zone: ZoneInfo, instant: datetime, latest: datetime | None) -> Iterator[ScheduleMoment]:
        """Yield the moments from a little before an instant on, in their order."""
        again: deque[ScheduleMoment] = deque()
        for wall in self.walls(_begin(zone, instant)):
            first, second, mark = instants(zone, wall)
            while again and again[0].at < first:
                yield again.popleft()
            if mark != "gap" or (self.is_fixed and (latest is None or wall > latest)):
                yield self._moment(zone, first, wall, mark=mark)
            if second is not None and not self.is_fixed:
                again.append(self._moment(zone, second, wall, mark=mark, is_second=True))
        yield from again

    def _moment(self, zone: ZoneInfo, at: datetime, wall: datetime, **marks: object) -> ScheduleMoment:
        offset = at.astimezone(zone).utcoffset()
        assert offset is not None
        return ScheduleMoment(at.astimezone(timezone(offset)), wall, self.timezone, self._by_wall, **marks)  # type: ignore[arg-type]


def _begin(zone: ZoneInfo, instant: datetime) -> datetime:
    """Return the wall time after which the moments after an instant are.

    In the first of two equal hours, that is before it: what the clocks showed already, they show again.
    """
    local = instant.astimezone(zone)
    wall = local.replace(tzinfo=None, fold=0)
    before, after = offsets(zone, wall)
    return wall - (before - after) if before > after and not local.fold else wall
