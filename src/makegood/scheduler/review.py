"""Which held tasks a Scheduler reads again from the store, and when."""

import heapq
from collections.abc import Collection

_REVIEW_EVERY, _REVIEW_MOST = 30.0, 1000
"""Seconds, and tasks each time."""


class Review:
    """Which of the tasks held are to be read again, in turn.

    A Scheduler that was slow to answer may have been taken for deaf and its tasks freed. Of one that nobody else has
    claimed since it hears nothing more: no message comes, nothing is decided, so no commit tells. It would hold it for ever,
    and, as it holds only so many, claim ever less.
    """

    __slots__ = ("_due", "_last")

    def __init__(self, now: float) -> None:
        self._due, self._last = now + _REVIEW_EVERY, 0

    def some(self, held: Collection[int], busy: Collection[int], now: float) -> list[int]:
        """Return the next of the tasks ``held`` that are not ``busy``; none before their time has come, in monotonic seconds."""
        if now < self._due:
            return []
        self._due = now + _REVIEW_EVERY
        found = heapq.nsmallest(
            _REVIEW_MOST, (task for task in held if task > self._last and task not in busy)
        )
        self._last = found[-1] if len(found) == _REVIEW_MOST else 0
        return found
