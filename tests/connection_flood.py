"""Strangers who open connections and say nothing: on loopback, and bounded."""

import socket
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress


def opened(address: str, says: bytes = b"") -> socket.socket:
    """Return a connection that has said so much, and will read nothing."""
    connection = socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])))
    connection.setblocking(False)
    with suppress(ConnectionError):  # it was cut off already
        connection.sendall(says)
    return connection


@contextmanager
def flooding(address: str, says: bytes) -> Iterator[threading.Event]:
    """Open connections that say so much, one after another, as fast as a thread can, 20,000 at most, and hold the last 300. The event: 300
    are held.
    """
    over, under_way = threading.Event(), threading.Event()

    def flood() -> None:
        connections: deque[socket.socket] = deque()
        for _ in range(20_000):
            if over.is_set():
                break
            with suppress(OSError):
                connections.append(opened(address, says))
            if len(connections) > 300:
                under_way.set()
                connections.popleft().close()
        for one in connections:
            one.close()

    thread = threading.Thread(target=flood)
    thread.start()
    try:
        yield under_way
    finally:
        over.set()
        thread.join()
