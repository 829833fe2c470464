"""Priority with ageing: every so many seconds of waiting count as one priority more, so that none waits for ever.

All grow old at the same speed, so the order of any two never changes: who began to wait at ``since`` with priority p has the
rank ``since - p * step``, and the lowest rank comes first. What waits lies in an index by priority and ``since``, and its order,
highest priority first, is the same as long as nobody has waited long. So a look is a plain one unless the last one was *full*:
only then does it matter who comes first. After looks that were full for a second, then once a second, and for as long as somebody
old is found, a look is *aged*: the first of each of the ten priorities are read from the index, and the best of them taken.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field

_EVERY = 1.0

PRIORITIES = 10


def rank(priority: int, since: float, step: float) -> float:
    """Return who comes first, the lowest; ``step``: seconds of waiting that count as one priority more.

    >>> rank(0, 0.0, 60.0) < rank(1, 61.0, 60.0), rank(0, 0.0, 60.0) < rank(1, 59.0, 60.0)
    (True, False)
    """
    return since - priority * step


@dataclass(slots=True)
class Ageing:
    """When to look at age. ``step``: seconds of waiting that count as one priority more; None: never."""

    step: float | None
    _full: set[Hashable] = field(default_factory=set)
    _old: set[Hashable] = field(default_factory=set)
    _looked: dict[Hashable, float] = field(default_factory=dict)

    def due(self, key: Hashable, now: float) -> bool:
        """Return whether a look is to be an aged one; ``now`` on any clock that only rises."""
        if key not in self._full or self.step is None:
            return False
        return key in self._old or not 0 <= now - self._looked[key] < _EVERY

    def found(self, key: Hashable, *, full: bool, oldest: float | None, now: float) -> None:
        """Note what a look found. ``full``: there may be more; ``oldest``: of an aged look, the longest anyone had waited."""
        (self._full.add if full else self._full.discard)(key)
        self._looked.setdefault(key, now)
        if oldest is not None and self.step is not None:
            (self._old.add if oldest >= self.step else self._old.discard)(key)
            self._looked[key] = now
