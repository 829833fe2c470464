"""Where to begin to look, in an index whose lower end is full of dead entries.

Rows leave the small indexes (pending tasks, waiting requests, messages) as fast as they come, and their dead entries
are walked until a vacuum. A *floor* is the highest position that has been passed; a look begins a little below it,
since transactions do not commit in the order of their numbers. What was left behind further down (a claim that was rolled
back, a request given back) is found by a sweep from the bottom, made now and then, and whenever there is nothing else.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field

from makegood.clock import Clock

_EVERY = 1.0


@dataclass(slots=True)
class Floors:
    """Floors by key. ``slack``: how far below the highest position passed a look begins."""

    clock: Clock
    slack: float
    _passed: dict[Hashable, float] = field(default_factory=dict)
    _swept: dict[Hashable, float] = field(default_factory=dict)

    def due(self, group: Hashable, *, empty: bool = False) -> bool:
        """Return whether to sweep now, and note it. ``empty``: a look from the floor found nothing."""
        now = self.clock.monotonic()
        last = self._swept.get(group)
        if last is not None and now - last < _EVERY and not empty:
            return False
        self._swept[group] = now
        return True

    def floor(self, key: Hashable) -> float:
        """Return where to begin."""
        passed = self._passed.get(key)
        return -1.0 if passed is None else passed - self.slack

    def passed(self, key: Hashable, position: float) -> None:
        """Note that everything up to ``position`` was seen."""
        if position > self._passed.get(key, -1.0):
            self._passed[key] = position
