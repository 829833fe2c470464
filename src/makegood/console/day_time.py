"""Times of the day: a page that shows when something is, not how far away, changes only when it happens."""

from makegood.base.clock import DAY, date_text


def day_time(at: float) -> str:
    """Return the time of the day in UTC, "?" for what is not a point in time.

    >>> day_time(0.0)
    '00:00:00'
    """
    return date_text(at, "%H:%M:%S")


def near_time(at: float, now: float) -> str:
    """Return a time in UTC: that of the day, with the date if it is a day away or more.

    >>> near_time(3600.0, 0.0), near_time(600_000.0, 0.0)
    ('01:00:00', '1970-01-07 22:40')
    """
    return day_time(at) if abs(at - now) < DAY else date_text(at, "%Y-%m-%d %H:%M")
