"""Counting: numbers by labels, plain enough for a commit's thousand decisions. They become metrics when somebody asks.

Counted on the event loop alone. They may be read in another thread: a copy of a dict is made in one go.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping

from makegood.telemetry.catalogue import METRICS, Metric

Labels = tuple[str, ...]


class Spread:
    """How often a value fell into each bucket, and the sum of all."""

    __slots__ = ("counts", "total")

    def __init__(self, buckets: int) -> None:
        self.counts = [0] * (buckets + 1)
        self.total = 0.0

    def rising(self) -> Iterator[int]:
        """Yield for each bucket how many values were at most its bound; for the last how many there are."""
        seen = 0
        for count in list(self.counts):
            seen += count
            yield seen


class Counters:
    """What this process has counted since it began."""

    def __init__(self) -> None:
        self._counts: dict[str, dict[Labels, float]] = {
            m.name: {(word,): 0.0 for word in m.known} for m in METRICS if m.kind == "counter"
        }
        self._spreads: dict[str, dict[Labels, Spread]] = {
            m.name: {} for m in METRICS if m.kind == "histogram"
        }

    def count(self, metric: Metric, *labels: str, by: float = 1.0) -> None:
        """Count ``by`` more."""
        known = self._counts[metric.name]
        known[labels] = known.get(labels, 0.0) + by

    def observe(self, metric: Metric, value: float, *labels: str) -> None:
        """Note a value; below 0 it counts as 0 (two machines' clocks differ)."""
        known = self._spreads[metric.name]
        spread = known.get(labels)
        if spread is None:
            spread = known[labels] = Spread(len(metric.buckets))
        value = max(value, 0.0)
        spread.counts[bisect_left(metric.buckets, value)] += 1
        spread.total += value

    def counts(self, metric: Metric) -> Mapping[Labels, float]:
        """Return a counter's numbers by labels."""
        return dict(self._counts[metric.name])

    def spreads(self, metric: Metric) -> Mapping[Labels, Spread]:
        """Return a histogram's values by labels."""
        return dict(self._spreads[metric.name])
