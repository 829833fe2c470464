"""Wakes listeners after commits on one SQLite file.

The commits are those of this process, of other processes (by wake socket and slow poll), and of callers'
connections.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

from makegood.base.sqlite_readonly import may_write
from makegood.store.sqlite.database import Database, data_version
from makegood.store.sqlite.joined_watch import JoinedWatch, RowKey
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
        self._joined_watch = JoinedWatch(database.read, self._wake_for)

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
        self._joined_watch.open(loop)
        self._plan_poll()

    async def rest(self) -> None:
        """Stop polling. Commits under way still wake other processes."""
        await self._joined_watch.close()
        if self._poll_timer is not None:
            self._poll_timer.cancel()

    def close(self) -> None:
        """Close the wake socket."""
        wake_socket, self._socket = self._socket, None
        if wake_socket is not None:
            if wake_socket.listener is not None:
                asyncio.get_running_loop().remove_reader(wake_socket.listener)
            wake_socket.close()

    def subscribe(self, topic: str, wake: Callable[[], None]) -> Callable[[], None]:
        """Call ``wake`` when something may have arrived for ``topic``; returns a function that ends the
        subscription.
        """
        kind_of(topic)  # raises KeyError for a topic of an unknown kind
        if self._socket is not None:
            self._socket.listen_to(topic)
        return self._subscribers.subscribe(topic, wake)

    def expect(self, *keys: RowKey) -> None:
        """Poll for rows that a caller's transaction wrote, and wake listeners once they are committed.

        It polls for 10 seconds.
        """
        for key in keys:
            self._joined_watch.expect(key)

    def _plan_poll(self) -> None:
        if self._poll is not None and self._db.reader is not None:
            self._poll_timer = asyncio.get_running_loop().call_later(self._poll, self._poll_version)

    def _poll_version(self) -> None:
        if self._db.reader is not None and self._subscribers:
            self._db.reader.ask(data_version).add_done_callback(self._compare_version)
        else:
            self._plan_poll()

    def _compare_version(self, future: "asyncio.Future[int]") -> None:
        reader = self._db.reader
        if not future.cancelled() and future.exception() is None and reader is not None:
            version = (
                reader.openings,
                future.result(),
            )  # SQLite's number is comparable only within a connection
            if version != self._data_version:
                self._data_version = version
                self.announce(None)
        self._plan_poll()

    def _wake_for(self, keys: set[RowKey]) -> None:
        """Wake all processes for rows that were committed on a caller's connection, which wakes nobody."""
        topics: set[str] = set()
        for key in keys:
            if isinstance(key, int):  # a task, in whichever state it was submitted
                topics |= {"pending", "sleeping", "queued"}
            elif len(key) == 2:  # a message
                topics.add(f"queue:{key[0]}")
            else:  # a signal
                topics.add("inbox")
        if self._socket is not None:
            self._socket.wake(topics)
        self.announce(topics)
