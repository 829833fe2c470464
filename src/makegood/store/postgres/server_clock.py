"""The server's clock, as a process knows it between its answers."""

from typing import Final

from makegood.base.clock import Clock

_DRIFT: Final = 0.0005
"""Seconds by which the server's clock may fall behind this process's in a second."""


class ServerClock:
    """The server's clock, as far as this process knows it without a call. ``local``: its own clock.

    An answer arrives some time after the server read its clock: a commit later, more on a busy machine. So
    each answer only bounds how far ahead the server is, and the quickest answers count. It is never ahead of
    the server: nothing that waits for a moment ends before it.
    """

    def __init__(self, local: Clock) -> None:
        self.local = local
        self._ahead: float | None = None
        self._set_at = 0.0

    def set(self, now: float, begin: float) -> None:
        """Note the time that the server's clock has shown since ``begin``, on the local monotonic clock."""
        end = self.local.monotonic()
        least, most = now - end, now - begin
        if self._ahead is not None and (quickest := self._ahead - _DRIFT * (end - self._set_at)) <= most:
            least = max(least, quickest)
        self._ahead, self._set_at = least, end

    def now(self) -> float:
        """Return the server's time by what it showed last; before that, the wall clock's."""
        return self.local.wall() if self._ahead is None else self.local.monotonic() + self._ahead
