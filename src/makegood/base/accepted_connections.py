"""The connections that a small server has accepted: a limited number, where silent ones make room for new
ones.

A stranger who opens connections and sends nothing must not keep out clients that send something. If there is
no room, the oldest silent connection is closed at once. A connection that has sent something is closed only
when no silent one is left.
"""

import asyncio
from typing import Final

QUEUE: Final = 1024
"""Connections that the system may hold for a server until it accepts them."""

AT_A_TIME: Final = 16
"""Connections accepted in one turn of the event loop.

Few compared with ``most``, so that data of a new connection is read before others take its place.
"""


class Connections:
    """At most ``most`` transports."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._silent: dict[asyncio.Transport, None] = {}
        self._kept: dict[asyncio.Transport, None] = {}

    def __len__(self) -> int:
        """The number of connections."""
        return len(self._silent) + len(self._kept)

    def join(self, new: asyncio.Transport) -> None:
        """Add a connection; if there is no room, abort the oldest silent one."""
        if len(self) >= self._most:
            oldest = next(iter(self._silent or self._kept))
            self.leave(oldest)
            oldest.abort()
        self._silent[new] = None

    def keep(self, one: asyncio.Transport) -> None:
        """Record that a connection has sent something, as the latest of all."""
        if one in self._silent or one in self._kept:
            self.leave(one)
            self._kept[one] = None

    def spend(self, one: asyncio.Transport) -> None:
        """Record that a connection has been served: it may be closed like a silent one, and before those."""
        if one in self._kept:
            del self._kept[one]
            self._silent = {one: None, **self._silent}

    def leave(self, one: asyncio.Transport) -> None:
        """Remove a connection."""
        self._silent.pop(one, None)
        self._kept.pop(one, None)

    def abort(self) -> None:
        """Abort all connections."""
        for one in (*self._silent, *self._kept):
            one.abort()
        self._silent.clear()
        self._kept.clear()


def queue_more(server: asyncio.Server) -> None:
    """Let the system hold ``QUEUE`` connections for a server that was started to accept ``AT_A_TIME``.

    asyncio has one number for both.
    """
    for listening in server.sockets:
        with listening.dup() as same:
            same.listen(QUEUE)
