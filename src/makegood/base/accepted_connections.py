"""The connections that a small server has accepted: at most so many, and a silent one makes room for a new one.

A stranger who opens connections and says nothing must not keep out those who have something to say. So where there is no room the
oldest that has said nothing goes, at once; what is kept has said something, and goes only when all that there are have.
"""

import asyncio
from typing import Final

QUEUE: Final = 1024
"""Connections that the system may hold for a server until it accepts them."""

AT_A_TIME: Final = 16
"""Connections accepted in one turn of the event loop: few beside ``most``, so that what a new one has sent is read before others take its
place.
"""


class Connections:
    """At most ``most`` transports."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._silent: dict[asyncio.Transport, None] = {}
        self._kept: dict[asyncio.Transport, None] = {}

    def __len__(self) -> int:
        """How many there are."""
        return len(self._silent) + len(self._kept)

    def join(self, new: asyncio.Transport) -> None:
        """Take in a new one; the oldest silent one is cut off where there is no room."""
        if len(self) >= self._most:
            oldest = next(iter(self._silent or self._kept))
            self.leave(oldest)
            oldest.abort()
        self._silent[new] = None

    def keep(self, one: asyncio.Transport) -> None:
        """Note that one has said something, as the latest of all."""
        if one in self._silent or one in self._kept:
            self.leave(one)
            self._kept[one] = None

    def spend(self, one: asyncio.Transport) -> None:
        """Note that one has had what it wanted: it may go like a silent one, and before those."""
        if one in self._kept:
            del self._kept[one]
            self._silent = {one: None, **self._silent}

    def leave(self, one: asyncio.Transport) -> None:
        """Forget one."""
        self._silent.pop(one, None)
        self._kept.pop(one, None)

    def abort(self) -> None:
        """Cut all of them off."""
        for one in (*self._silent, *self._kept):
            one.abort()
        self._silent.clear()
        self._kept.clear()


def queue_more(server: asyncio.Server) -> None:
    """Let the system hold ``QUEUE`` connections for a server that was started to accept ``AT_A_TIME``; asyncio has one number for both."""
    for listening in server.sockets:
        with listening.dup() as same:
            same.listen(QUEUE)
