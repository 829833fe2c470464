"""Debian's rule once more, as cron itself works: it looks at the clock again and again.

The walk takes five minutes at a step: all changes of clocks, and all times of the texts, are multiples of five minutes.
A job with a fixed time is due at each minute that the clock has passed since cron last looked, and at none that it showed already. A
job with a star is due whenever the clock shows a time that fits.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta
from itertools import pairwise
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
    readings: list[int] = []
    at = start
    while at < end:
        local = at.astimezone(zone)
        readings.append(local.toordinal() * DAY + local.hour * 60 + local.minute)
        at += STRIDE
    return readings


def fitting(text: str, readings: Sequence[int]) -> set[int]:
    """Return the wall times of these days that fit a text of five fields, whether a clock shows them or not."""
    minutes, hours, days, months, weekdays = (
        values(field, *range_) for field, range_ in zip(text.split(), RANGES, strict=True)
    )
    times = {hour * 60 + minute for hour in hours for minute in minutes}
    _, _, day_field, _, weekday_field = text.split()
    has_star = day_field.startswith("*") or weekday_field.startswith("*")
    fits: set[int] = set()
    for ordinal in range(min(readings) // DAY, max(readings) // DAY + 1):
        day = date.fromordinal(ordinal)
        hits = (day.day in days, bool({day.isoweekday(), day.isoweekday() % 7} & weekdays))
        if day.month in months and (all(hits) if has_star else any(hits)):
            fits.update(ordinal * DAY + time for time in times)
    return fits


def is_real_time(text: str) -> bool:
    """Whether a text of five fields has a star in its time."""
    return any(field.startswith("*") for field in text.split()[:2])


def due(text: str, readings: Sequence[int]) -> Iterator[int]:
    """Yield at which of these steps a text of five fields is due."""
    fits, is_wild = fitting(text, readings), is_real_time(text)
    latest = readings[0] - MINUTES
    for index, minute in enumerate(readings):
        if is_wild or minute == latest + MINUTES:
            if minute in fits:
                yield index
        elif minute > latest and not fits.isdisjoint(range(latest + MINUTES, minute + 1, MINUTES)):
            yield index
        latest = max(latest, minute)


def skips(text: str, readings: Sequence[int]) -> Counter[str]:
    """Return how many times of a text the clocks never showed ("gap"), or showed once too often ("fold").

    A fixed time that was never shown is made up for at the end of the gap, once for all times of the gap. A text that fits in
    every hour alike is not affected by a shift of whole hours.
    """
    fits, times, counts = fitting(text, readings), Counter(readings), Counter[str]()
    is_wild, is_hourly = is_real_time(text), text.split()[1] == "*"
    for before, after in pairwise(readings):
        if after > before + MINUTES and not (is_hourly and (after - before - MINUTES) % 60 == 0):
            walls = len(fits.intersection(range(before + MINUTES, after)))
            counts["gap"] += walls if is_wild or not walls else walls - 1
    if not is_wild:
        counts["fold"] = sum(times[wall] - 1 for wall in fits & times.keys())
    return +counts
