"""Times of the day: a page that shows when something is, not how far away, changes only when it happens."""

from makegood.base.clock import date_text


def day_time(at: float) -> str:
    """Return the time of the day in UTC, "?" for what is not a point in time.

    >>> day_time(0.0)
    '00:00:00'
    """
    return date_text(at, "%H:%M:%S")
