"""Priority with ageing: seconds of waiting raise the priority, so that nothing waits forever.

Everything ages at the same rate, so the order of two items never changes: an item that began to wait at
``since`` with priority p has the rank ``since - p * step``, and the lowest rank comes first. Waiting items
are indexed by priority and ``since``. While nobody has waited long, the order of the index, highest
priority first, is the same order. So a query ignores age unless the last one was *full*: only then does the
order matter. After queries have been full for a second, then once a second, and for as long as one finds
old items, a query is *aged*: it reads the first items of each of the ten priorities from the index and
takes the best of them.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field

_EVERY = 1.0

PRIORITIES = 10


def rank(priority: int, since: float, step: float) -> float:
    """Return a sort key; the lowest comes first. ``step``: seconds of waiting that count as one priority.

    >>> rank(0, 0.0, 60.0) < rank(1, 61.0, 60.0), rank(0, 0.0, 60.0) < rank(1, 59.0, 60.0)
    (True, False)
    """
    return since - priority * step


@dataclass(slots=True)
class Ageing:
    """Decides which queries take age into account."""

    step: float | None
    """Seconds of waiting that count as one priority; None: never."""
    _full: set[Hashable] = field(default_factory=set)
    _old: set[Hashable] = field(default_factory=set)
    _look_times: dict[Hashable, float] = field(default_factory=dict)

    def due(self, key: Hashable, now: float) -> bool:
        """Return whether the next query is to be aged; ``now``: a monotonic clock."""
        if key not in self._full or self.step is None:
            return False
        return key in self._old or not 0 <= now - self._look_times[key] < _EVERY

    def record(self, key: Hashable, *, full: bool, oldest: float | None, now: float) -> None:
        """Record what a query found.

        ``full``: there may be more. ``oldest``: for an aged query, the longest wait among
        the results, in seconds.
        """
        (self._full.add if full else self._full.discard)(key)
        self._look_times.setdefault(key, now)
        if oldest is not None and self.step is not None:
            (self._old.add if oldest >= self.step else self._old.discard)(key)
            self._look_times[key] = now
