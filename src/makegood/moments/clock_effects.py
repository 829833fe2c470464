"""What changes of the clocks do to a cron text: which of its times do not exist or exist twice, and what
becomes of them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Final

from makegood.base import zones
from makegood.moments.cron import Cron
from makegood.moments.moment import Mark, ScheduleMoment, in_utc
from makegood.moments.wall_time import ClockChange, changes, wall_time

AHEAD: Final = timedelta(days=730)
"""How far ahead a cron text is compared with the changes of the clocks."""
_SECOND = timedelta(seconds=1)
_HOUR = timedelta(hours=1)
_LISTED = 4
"""Times and moments that a sentence names."""


@dataclass(frozen=True, slots=True)
class ClockEffect:
    """What one change of the clocks does to a cron text."""

    change: ClockChange
    walls: Sequence[datetime]
    """The wall times of the text that do not exist, or exist twice."""
    moments: Sequence[ScheduleMoment]
    """What becomes of them: none, if they mean real time and do not exist."""
    timezone: str

    @property
    def mark(self) -> Mark:
        """Whether the wall times do not exist, or exist twice."""
        return "gap" if self.change.after > self.change.before else "fold"

    def __str__(self) -> str:
        """Return the effect as a sentence for people."""
        before, after = (
            wall_time(self.change.at, offset) for offset in (self.change.before, self.change.after)
        )
        walls = _listing([f"{wall:%H:%M:%S}".removesuffix(":00") for wall in self.walls])
        fires = _listing([in_utc(moment.at) for moment in self.moments])
        if not self.moments:
            outcome = (
                "it does not fire for these times; with fixed minutes and hours it would fire at the end"
            )
        elif self.mark == "gap":
            outcome = f"it fires once, at the end: {fires}"
        else:
            often = "once" if len(self.moments) == len(self.walls) else "twice"
            outcome = f"it fires {often}{' for each' if len(self.walls) > 1 else ''}: {fires}"
        existence = "does not exist" if self.mark == "gap" else "is there twice"
        if len(self.walls) > 1:
            existence = "do not exist" if self.mark == "gap" else "are there twice"
        return (
            f"clocks in {self.timezone} go from {before:%Y-%m-%d %H:%M} to {after:%Y-%m-%d %H:%M}: "
            f"{walls} {existence}; {outcome}"
        )


def clock_effects(cron: Cron, start: datetime, end: datetime) -> Iterator[ClockEffect]:
    """Yield what the changes of the clocks between two instants do to a cron text.

    A text that fits in every hour alike is not affected by a shift of whole hours.
    """
    for change in changes(zones.zone(cron.timezone), start, end):
        if not (cron.is_hourly and change.shift % _HOUR == timedelta()):
            effect = _effect(cron, change)
            if effect.walls:
                yield effect


def _effect(cron: Cron, change: ClockChange) -> ClockEffect:
    low, high = sorted(wall_time(change.at, offset) for offset in (change.before, change.after))
    walls = [*takewhile(lambda wall: wall < high, cron.walls(low - _SECOND))]
    reach = timedelta() if change.after > change.before else change.shift  # both of two equal hours
    moments = takewhile(
        lambda moment: moment.at <= change.at + reach, cron.after(change.at - reach - _SECOND)
    )
    return ClockEffect(change, walls, [moment for moment in moments if moment.mark], cron.timezone)


def _listing(texts: Sequence[str]) -> str:
    """Return a list for a sentence, shortened.

    >>> _listing(["02:00", "02:15"]), _listing("abcdefg")
    ('02:00, 02:15', 'a, b, c, d and 3 more')
    """
    more = f" and {len(texts) - _LISTED} more" if len(texts) > _LISTED else ""
    return ", ".join(texts[:_LISTED]) + more
