"""Wakes listeners after commits on one SQLite file.

The commits are those of this process, of other processes (by wake socket and slow poll), and of callers'
connections.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

from makegood.base.sqlite_readonly import may_write
from makegood.store.sqlite.database import Database, data_version
from makegood.store.sqlite.joined_watch import Lookout, Wanted
from makegood.store.sqlite.wake_socket import Heard, WakeSocket, kind_of
from makegood.store.subscribers import Subscribers


class Wakes:
    """Listeners by topic, and everything that wakes them.

    ``poll``: seconds between polls that back up the wake socket; None: never.
    """

    def __init__(
        self, database: Database, wake_socket: Callable[[Path, Heard], WakeSocket], poll: float | None
    ) -> None:
        self._db = database
        self._make_socket = wake_socket
        self._poll = poll
        self._socket: WakeSocket | None = None
        self._subscribers = Subscribers()
        self.announce = self._subscribers.announce
        self._poll_timer: asyncio.TimerHandle | None = None
        self._data_version = (0, -1)
        self._lookout = Lookout(database.read, self._seen)

    def wake_socket(self) -> WakeSocket:
        """Create the wake socket, which the writing thread uses."""
        self._socket = self._make_socket(self._db.path, self.announce)
        return self._socket

    def open(self, loop: asyncio.AbstractEventLoop) -> None:
        """Open the wake socket and start polling."""
        wake_socket = self._socket
        # A process that may only read must not create the socket folder: it would lock out the file's owner.
        if wake_socket is not None:
            handle = wake_socket.open() if may_write(self._db.path) else None
            if handle is not None:
                loop.add_reader(handle, wake_socket.answer)
            for topic in self._subscribers:
                wake_socket.listen_to(topic)
        self._lookout.open(loop)
        self._plan_poll()

    async def rest(self) -> None:
        """Stop polling. Commits under way still wake others."""
        await self._lookout.close()
        if self._poll_timer is not None:
            self._poll_timer.cancel()

    def close(self) -> None:
        """Close the wake socket."""
        wake_socket, self._socket = self._socket, None
        if wake_socket is not None:
            if wake_socket.watched is not None:
                asyncio.get_running_loop().remove_reader(wake_socket.watched)
            wake_socket.close()

    def subscribe(self, topic: str, wake: Callable[[], None]) -> Callable[[], None]:
        """Call ``wake`` when something may have arrived for ``topic``; returns a function that ends the
        subscription.
        """
        kind_of(topic)  # raises KeyError for a topic of an unknown kind
        if self._socket is not None:
            self._socket.listen_to(topic)
        return self._subscribers.subscribe(topic, wake)

    def joined(self, *keys: Wanted) -> None:
        """Poll for these tasks or messages for 10 seconds, and wake listeners once they are committed."""
        for key in keys:
            self._lookout.expect(key)

    def _plan_poll(self) -> None:
        if self._poll is not None and self._db.reader is not None:
            self._poll_timer = asyncio.get_running_loop().call_later(self._poll, self._look)

    def _look(self) -> None:
        if self._db.reader is not None and self._subscribers:
            self._db.reader.ask(data_version).add_done_callback(self._looked)
        else:
            self._plan_poll()

    def _looked(self, future: "asyncio.Future[int]") -> None:
        reader = self._db.reader
        if not future.cancelled() and future.exception() is None and reader is not None:
            version = (reader.openings, future.result())  # numbers of two connections cannot be compared
            if version != self._data_version:
                self._data_version = version
                self.announce(None)
        self._plan_poll()

    def _seen(self, keys: set[Wanted]) -> None:
        """Wake all processes for tasks and messages that were committed on a connection that wakes
        nobody.
        """
        topics = {f"queue:{key[0]}" if len(key) == 2 else "inbox" for key in keys if not isinstance(key, int)}
        if any(isinstance(key, int) for key in keys):
            topics |= {"pending", "sleeping", "queued"}
        if self._socket is not None:
            self._socket.wake(topics)
        self.announce(topics)
