"""Where to begin to look, in an index whose lower end is full of dead entries.

Rows leave the small indexes (pending tasks, waiting requests, messages) as fast as they come, and their dead entries
are walked until a vacuum. A *floor* is the highest position that has been passed; a look begins a little below it,
since transactions do not commit in the order of their numbers. What was left behind further down (a claim that was rolled
back, a request given back) is found by a sweep from the bottom, made now and then, and whenever there is nothing else.

While a transaction stays open somewhere (a backup, a report, a forgotten session) no vacuum takes dead entries away, and a million of them
take a sweep half a second. Once sweeps are dear they are made rarely, so that they take a twentieth of the time at most, or come once a minute; looks from
the floor go on as ever.
"""

from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import TypeVar

from makegood.base.clock import Clock

T = TypeVar("T")

_EVERY = 1.0
_DEAR = 0.1
_SHARE = 20.0
"""Seconds of a sweep from which on it is rested from, so many times as long. One alone that took long may have waited for a processor."""
_LONGEST = 60.0
"""Seconds of rest at most: two that took half a minute each were held up by something else, and what was given back lies there."""


@dataclass(slots=True)
class Floors:
    """Floors by key. ``slack``: how far below the highest position passed a look begins. ``left``: what was found and may be there still."""

    clock: Clock
    slack: float
    left: set[int] = field(default_factory=set)
    _passed: dict[Hashable, float] = field(default_factory=dict)
    _swept: dict[Hashable, float] = field(default_factory=dict)
    _took: dict[Hashable, float] = field(default_factory=dict)
    _rests: dict[Hashable, float] = field(default_factory=dict)

    async def looked(self, group: Hashable, look: Callable[[bool], Awaitable[list[T]]]) -> list[T]:
        """Return what ``look`` finds: from the floors or, given True, from the bottom, when that is due or nothing else was found."""
        swept = self.due(group)
        found: list[T] = [] if swept else await look(False)
        if swept or (not found and self.due(group, empty=True)):
            found = await look(True)
            self.swept(group)
        return found

    def due(self, group: Hashable, *, empty: bool = False) -> bool:
        """Return whether to sweep now, and note it. ``empty``: a look from the floor found nothing."""
        last = self._swept.get(group)
        if last is not None and self.clock.monotonic() - last < _EVERY and not empty:
            return False
        return self.affordable(group)

    def affordable(self, group: Hashable) -> bool:
        """Return whether to sweep now, and note it: always, unless sweeps have become dear."""
        now = self.clock.monotonic()
        if now < self._rests.get(group, now):
            return False
        self._swept[group] = now
        return True

    def swept(self, group: Hashable) -> None:
        """Note that the sweep has ended."""
        now = self.clock.monotonic()
        took, before = now - self._swept[group], self._took.get(group, 0.0)
        self._took[group] = took
        if min(took, before) >= _DEAR:
            self._rests[group] = now + min(_SHARE * took, _LONGEST)

    def floor(self, key: Hashable) -> float:
        """Return where to begin."""
        passed = self._passed.get(key)
        return -1.0 if passed is None else passed - self.slack

    def passed(self, key: Hashable, position: float) -> None:
        """Note that everything up to ``position`` was seen."""
        if position > self._passed.get(key, -1.0):
            self._passed[key] = position
