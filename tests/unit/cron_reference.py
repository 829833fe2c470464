"""Debian's rule once more, as cron itself works: it looks at the clock again and again.

The walk takes five minutes at a step: all changes of clocks, and all times of the texts, are multiples of five minutes.
A job with a fixed time is due at each minute that the clock has passed since cron last looked, and at none that it showed already. A
job with a star is due whenever the clock shows a time that fits.
"""

from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
MINUTES = 5
STRIDE = timedelta(minutes=MINUTES)
DAY = 1440


def values(field: str, least: int, most: int) -> set[int]:
    """Read a field of numbers, stars, ranges, steps and lists."""
    result: set[int] = set()
    for term in field.split(","):
        span, _, step = term.partition("/")
        first, _, last = (f"{least}-{most}" if span == "*" else span).partition("-")
        result.update(range(int(first), int(last or first) + 1, int(step or 1)))
    return result


def clocks(zone: ZoneInfo, start: datetime, end: datetime) -> Sequence[int]:
    """Return what the clocks show at each step from ``start`` to ``end``, in minutes since the year 1."""
    shown: list[int] = []
    at = start
    while at < end:
        local = at.astimezone(zone)
        shown.append(local.toordinal() * DAY + local.hour * 60 + local.minute)
        at += STRIDE
    return shown


def due(text: str, shown: Sequence[int]) -> Iterator[int]:
    """Yield at which of these steps a text of five fields is due."""
    fields = text.split()
    minutes, hours, days, months, weekdays = (
        values(field, *range_) for field, range_ in zip(fields, RANGES, strict=True)
    )
    times = {hour * 60 + minute for hour in hours for minute in minutes}
    has_star = fields[2].startswith("*") or fields[4].startswith("*")
    fits: set[int] = set()
    for ordinal in range(min(shown) // DAY, max(shown) // DAY + 1):
        day = date.fromordinal(ordinal)
        hits = (day.day in days, bool({day.isoweekday(), day.isoweekday() % 7} & weekdays))
        if day.month in months and (all(hits) if has_star else any(hits)):
            fits.update(ordinal * DAY + time for time in times)
    is_wild = fields[0].startswith("*") or fields[1].startswith("*")
    latest = shown[0] - MINUTES
    for index, minute in enumerate(shown):
        if is_wild or minute == latest + MINUTES:
            if minute in fits:
                yield index
        elif minute > latest and not fits.isdisjoint(range(latest + MINUTES, minute + 1, MINUTES)):
            yield index
        latest = max(latest, minute)
