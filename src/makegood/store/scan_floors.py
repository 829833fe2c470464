"""Where a query starts in an index whose lower end is full of dead entries.

Rows leave the small indexes (pending tasks, waiting requests, messages) as fast as they arrive, and a query
visits their dead entries until a vacuum. A *floor* is the highest position that has been passed. A query
starts a little below the floor, since transactions do not commit in the order of their numbers. Rows left
behind further down (a claim that was rolled back, a released request) are found by a *sweep* from the bottom.
A sweep runs now and then, and whenever a query finds nothing.

While any transaction stays open (a backup, a report, a forgotten session), no vacuum removes dead entries,
and a million of them make a sweep take half a second. Once sweeps are expensive they run less often: they
take at most a twentieth of the time, or run once a minute. Queries from the floor continue as before.
"""

from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import TypeVar

from makegood.base.clock import Clock

T = TypeVar("T")

_EVERY = 1.0
_DEAR = 0.1
_SHARE = 20.0
"""After an expensive sweep, sweeps rest for this many times as long as it took.

One slow sweep does not count: it may have waited for a processor.
"""
_LONGEST = 60.0
"""The longest rest in seconds.

If two sweeps took half a minute each, something else delayed them, and released rows wait for the next sweep.
"""


@dataclass(slots=True)
class Floors:
    """Floors by key."""

    clock: Clock
    slack: float
    """How far below the highest passed position a query starts."""
    left: set[int] = field(default_factory=set)
    """Node ids that may be dead and still hold tasks: see ``supervision.release_dead``."""
    _highest: dict[Hashable, float] = field(default_factory=dict)
    _swept: dict[Hashable, float] = field(default_factory=dict)
    _took: dict[Hashable, float] = field(default_factory=dict)
    _rests: dict[Hashable, float] = field(default_factory=dict)

    async def scan(self, group: Hashable, look: Callable[[bool], Awaitable[list[T]]]) -> list[T]:
        """Return what ``look`` finds: from the floors or, with True, from the bottom.

        It searches from the bottom when that is due, or when nothing else was found.
        """
        swept = self.due(group)
        items: list[T] = [] if swept else await look(False)
        if swept or (not items and self.due(group, empty=True)):
            items = await look(True)
            self.end_sweep(group)
        return items

    def due(self, group: Hashable, *, empty: bool = False) -> bool:
        """Return whether to sweep now, and record it. ``empty``: a query from the floor found nothing."""
        last = self._swept.get(group)
        if last is not None and self.clock.monotonic() - last < _EVERY and not empty:
            return False
        return self.affordable(group)

    def affordable(self, group: Hashable) -> bool:
        """Return whether to sweep now, and record it: always, unless sweeps have become expensive."""
        now = self.clock.monotonic()
        if now < self._rests.get(group, now):
            return False
        self._swept[group] = now
        return True

    def end_sweep(self, group: Hashable) -> None:
        """Record that the sweep has ended."""
        now = self.clock.monotonic()
        took, before = now - self._swept[group], self._took.get(group, 0.0)
        self._took[group] = took
        if min(took, before) >= _DEAR:
            self._rests[group] = now + min(_SHARE * took, _LONGEST)

    def floor(self, key: Hashable) -> float:
        """Return the position to start from."""
        position = self._highest.get(key)
        return -1.0 if position is None else position - self.slack

    def advance(self, key: Hashable, position: float) -> None:
        """Record that everything up to ``position`` was read."""
        if position > self._highest.get(key, -1.0):
            self._highest[key] = position
