"""Times of the day: a page that shows when something is, not how far away, changes only when it happens."""

from datetime import UTC, datetime


def day_time(at: float) -> str:
    """Return the time of the day in UTC.

    >>> day_time(0.0)
    '00:00:00'
    """
    return f"{datetime.fromtimestamp(at, UTC):%H:%M:%S}"
