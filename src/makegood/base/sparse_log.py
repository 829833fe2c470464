"""Log lines that strangers can cause: at most one a minute, which says how many were left out."""

from typing import Final

PAUSE: Final = 60.0
"""Seconds between two lines."""


class Sparing:
    """Decides whether a line may be written now.

    >>> sparing = Sparing()
    >>> sparing.due(100.0), sparing.due(101.0), sparing.due(102.0), sparing.due(160.0)
    ('', None, None, ' (and 2 more since the last such line)')
    """

    def __init__(self) -> None:
        self._silent_until = float("-inf")
        self._left_out = 0

    def due(self, now: float) -> str | None:
        """Return what to append to a line at ``now``, seconds on a monotonic clock; None if the line is to be
        left out.
        """
        if now < self._silent_until:
            self._left_out += 1
            return None
        count, self._left_out, self._silent_until = self._left_out, 0, now + PAUSE
        return f" (and {count} more since the last such line)" if count else ""
