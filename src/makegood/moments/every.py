"""The moments of an interval."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from makegood.base.durations import Duration, seconds
from makegood.errors import ConfigError
from makegood.moments.moment import ScheduleMoment

_LONGEST = 10 * 366 * 86_400.0
"""Seconds between two moments, at most: ten years."""
_LAST = datetime(9980, 1, 1, tzinfo=UTC)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Every:
    """Moments an interval of at least a second apart, counted from the beginning of 1970 in UTC.

    No calendar is asked, so that clocks that change do not move them. Raises ``ConfigError``.
    """

    def __init__(self, every: Duration) -> None:
        length = seconds(every, name="every", least=1.0)
        if length > _LONGEST:
            raise ConfigError(f"every={every!r:.40} is longer than ten years: write a shorter interval")
        self.length = timedelta(seconds=length)

    def after(self, instant: datetime) -> Iterator[ScheduleMoment]:
        """Yield the moments after an instant, as long as the calendar goes.

        >>> from itertools import islice
        >>> start = datetime(2026, 3, 29, 0, 50, tzinfo=UTC)
        >>> [moment.key("tick") for moment in islice(Every("20m").after(start), 2)]
        ['tick@2026-03-29T01:00:00Z', 'tick@2026-03-29T01:20:00Z']
        """
        at = instant.astimezone(UTC)
        at -= (at - _EPOCH) % self.length
        while at < _LAST:
            at += self.length
            yield ScheduleMoment(at, at.replace(tzinfo=None), "UTC", by_wall=False)
