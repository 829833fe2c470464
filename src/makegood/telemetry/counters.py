"""Counts numbers by labels, cheaply enough for a commit's thousand Decisions. They become metrics when they
are read.

Only the event loop counts. Another thread may read: copying a dict is atomic.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping

from makegood.telemetry.catalogue import METRICS, Metric

Labels = tuple[str, ...]


class Spread:
    """A histogram: how many values fell into each bucket, and the sum of all values."""

    __slots__ = ("counts", "total")

    def __init__(self, buckets: int) -> None:
        self.counts = [0] * (buckets + 1)
        self.total = 0.0

    def rising(self) -> Iterator[int]:
        """Yield for each bucket the number of values within its bound; for the last, of all values."""
        total = 0
        for count in list(self.counts):
            total += count
            yield total


class Counters:
    """The counts of this process since it started."""

    def __init__(self) -> None:
        self._counts: dict[str, dict[Labels, float]] = {
            m.name: {(word,): 0.0 for word in m.known} for m in METRICS if m.kind == "counter"
        }
        histograms = [metric.name for metric in METRICS if metric.kind == "histogram"]
        self._spreads: dict[str, dict[Labels, Spread]] = {name: {} for name in histograms}

    def count(self, metric: Metric, *labels: str, by: float = 1.0) -> None:
        """Add ``by`` to a counter."""
        series = self._counts[metric.name]
        series[labels] = series.get(labels, 0.0) + by

    def observe(self, metric: Metric, value: float, *labels: str) -> None:
        """Record a value. A value below 0 counts as 0 (two machines' clocks differ)."""
        series = self._spreads[metric.name]
        spread = series.get(labels)
        if spread is None:
            spread = series[labels] = Spread(len(metric.buckets))
        value = max(value, 0.0)
        spread.counts[bisect_left(metric.buckets, value)] += 1
        spread.total += value

    def counts(self, metric: Metric) -> Mapping[Labels, float]:
        """Return a counter's numbers by labels."""
        return dict(self._counts[metric.name])

    def spreads(self, metric: Metric) -> Mapping[Labels, Spread]:
        """Return a histogram's values by labels."""
        return dict(self._spreads[metric.name])
