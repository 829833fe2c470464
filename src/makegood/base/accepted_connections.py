"""The connections that a small server accepts: a limited number, where silent ones make room for new ones.

A stranger who opens connections and sends nothing must not keep out clients that send something. There are
three ranks: connections that are silent or have been served, those with a request, and those of clients that
the server knows. If there is no room, the oldest connection of the lowest rank is closed at once. A quarter
of the places is safe in each rank, so that a crowd in a higher one does not keep out new connections, either.
"""

import asyncio
import contextlib
import errno
import logging
import socket
import sys
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final

from makegood.base.cancelling import cancel_and_wait
from makegood.base.sparse_log import Sparing

if sys.platform != "win32":
    import resource

log = logging.getLogger("makegood.connections")

QUEUE: Final = 1024
"""Connections that the system may hold for a server until it accepts them."""

AT_A_TIME: Final = 16
"""Connections accepted together: the next ones are accepted when these have been read from.

Few compared with ``most``, so that data of a new connection is read before others take its place.
"""
RETRY: Final = 1.0
"""Seconds until a server accepts again after an error that closing its own connections does not end."""

_NO_ROOM: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_GONE: Final = frozenset({errno.ECONNABORTED, errno.ECONNRESET, errno.EPROTO, errno.EINTR})


def affordable(most: int) -> int:
    """Return ``most``, or a quarter of the files that this process may open if that is fewer."""
    if sys.platform == "win32":
        return most
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most if files == resource.RLIM_INFINITY else max(1, min(most, files // 4))


class Connections:
    """At most ``most`` transports, in three ranks: see the module. All calls are made on the event loop."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._ranks = tuple(OrderedDict[asyncio.Transport, None]() for _ in range(3))
        self._silent, self._kept, self._known = self._ranks

    def __len__(self) -> int:
        """The number of connections."""
        return sum(map(len, self._ranks))

    def join(self, transport: asyncio.Transport) -> None:
        """Add a connection; if there is no room, abort the oldest one of the lowest rank."""
        if len(self) >= self._most:
            self._abort([next(next(iter(rank)) for rank in self._ranks if len(rank) > self._most // 4)])
        self._silent[transport] = None

    def keep(self, transport: asyncio.Transport) -> None:
        """Record that a connection has sent a request, as the latest of its rank."""
        if transport in self._known:
            self.know(transport)
        elif transport in self._silent or transport in self._kept:
            self.leave(transport)
            self._kept[transport] = None

    def know(self, transport: asyncio.Transport) -> None:
        """Record that a connection is a known client's: strangers leave before it."""
        if any(transport in rank for rank in self._ranks):
            self.leave(transport)
            self._known[transport] = None

    def spend(self, transport: asyncio.Transport) -> None:
        """Record that a stranger's connection has been served: it may be closed like a silent one, and before
        those.
        """
        if transport in self._kept:
            del self._kept[transport]
            self._silent[transport] = None
            self._silent.move_to_end(transport, last=False)

    def leave(self, transport: asyncio.Transport) -> None:
        """Remove a connection."""
        for rank in self._ranks:
            rank.pop(transport, None)

    def shed(self, count: int) -> int:
        """Abort up to so many connections of strangers, and return how many."""
        return self._abort([*self._silent, *self._kept][:count])

    def abort(self) -> None:
        """Abort all connections."""
        self._abort([*self._silent, *self._kept, *self._known])

    def _abort(self, transports: Sequence[asyncio.Transport]) -> int:
        for transport in transports:
            self.leave(transport)
            transport.abort()
        return len(transports)


class SocketAcceptor:
    """Accepts connections on sockets that listen, and closes these in the end.

    An event loop's own server logs a line for each connection that it cannot accept. This one closes
    connections of strangers when files run out, and logs that once a minute. ``name``: who accepts, for the
    log.
    """

    def __init__(
        self,
        name: str,
        listening: Sequence[socket.socket],
        connections: Connections,
        protocol: Callable[[], asyncio.BaseProtocol],
    ) -> None:
        self._name = name
        self._listening = listening
        self._connections = connections
        self._protocol = protocol
        self._sparing = Sparing()
        for listener in listening:
            listener.setblocking(False)
        self._tasks = [
            asyncio.create_task(self._accept_all(listener), name=f"{name} accepts") for listener in listening
        ]

    async def close(self) -> None:
        """Accept nothing more. Connections that exist stay."""
        await cancel_and_wait(*self._tasks)
        for listener in self._listening:
            listener.close()

    async def _accept_all(self, listening: socket.socket) -> None:
        while True:
            try:
                arrivals = await self._arrivals(listening)
            except OSError as fault:
                if fault.errno not in _GONE:
                    await asyncio.sleep(self._pause(fault))
                continue
            beginning = asyncio.gather(*map(self._begin, arrivals))
            try:
                await asyncio.shield(beginning)
            except asyncio.CancelledError:
                await beginning  # each arrival becomes a transport, which its server can close
                raise

    @staticmethod
    async def _arrivals(listening: socket.socket) -> list[socket.socket]:
        first, _ = await asyncio.get_running_loop().sock_accept(listening)
        arrivals = [first]
        with contextlib.suppress(OSError):  # nothing more waits; or the next call says what is wrong
            while len(arrivals) < AT_A_TIME:
                arrivals.append(listening.accept()[0])
        return arrivals

    async def _begin(self, arrival: socket.socket) -> None:
        try:
            arrival.setblocking(False)
            await asyncio.get_running_loop().connect_accepted_socket(self._protocol, arrival)
        except (OSError, RuntimeError) as error:  # uvloop's word for a transport that is closed already
            log.debug("%s: a connection ended before it began: %s", self._name, error)
            arrival.close()

    def _pause(self, fault: OSError) -> float:
        """Return the seconds until the next attempt to accept, after an error."""
        shed_count = self._connections.shed(AT_A_TIME) if fault.errno in _NO_ROOM else 0
        if (note := self._sparing.due(asyncio.get_running_loop().time())) is not None:
            log.warning(
                "%s cannot accept a connection: %s; raise the limit of open files (`ulimit -n`) if this lasts%s",
                self._name, fault.strerror or fault, note,
            )  # fmt: skip
        return RETRY / AT_A_TIME if shed_count else RETRY


async def listening_on(host: str, port: int) -> list[socket.socket]:
    """Return sockets that listen at all addresses of a host. Raises ``OSError``."""
    server = await asyncio.get_running_loop().create_server(asyncio.Protocol, host, port, start_serving=False)
    sockets: list[socket.socket] = []
    try:
        for listener in server.sockets:
            sockets.append(listener.dup())
            sockets[-1].listen(QUEUE)
    except OSError:
        for listener in sockets:
            listener.close()
        raise
    finally:
        server.close()
    return sockets
