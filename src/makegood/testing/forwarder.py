"""A TCP forwarder between a client and a server that lets bytes vanish.

A refused connection is the kindest of faults: it is noticed at once. Here nothing is refused and nothing is
answered, as when a cable is cut or a firewall drops a connection's state: that is what time-outs are for.
"""

import asyncio
import contextlib
from typing import Literal, Self

Swallow = Literal["nothing", "requests", "replies", "everything"]

_CHUNK = 65536


class Forwarder:
    """Listens on 127.0.0.1:``port`` and forwards bytes to ``host``:``to``; ``swallow`` says what vanishes.

    ``requests`` and ``replies`` cut one way. Vanished bytes are gone: ``heal`` breaks the connections that
    lost some.
    """

    def __init__(self, to: int, *, host: str = "127.0.0.1") -> None:
        self.host = host
        self.to = to
        self.port = 0
        self.swallowed = 0
        self.swallow: Swallow = "nothing"
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._lossy: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        """Listen on a free port."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop listening and break every connection."""
        assert self._server is not None
        self._server.close()
        self.sever()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def sever(self) -> None:
        """Break every connection."""
        for writer in list(self._writers):
            writer.transport.abort()

    def heal(self) -> None:
        """Let everything through again; connections that lost bytes are broken."""
        self.swallow = "nothing"
        for writer in list(self._lossy):
            writer.transport.abort()
        self._lossy.clear()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        server_writer: asyncio.StreamWriter | None = None
        try:
            server_reader, server_writer = await asyncio.open_connection(self.host, self.to)
            self._writers.add(server_writer)
            await asyncio.gather(
                self._pass(reader, server_writer, writer, "requests"),
                self._pass(server_reader, writer, writer, "replies"),
            )
        except OSError:
            writer.transport.abort()  # The server is not there: the client learns it.
        except asyncio.CancelledError:
            writer.transport.abort()  # Closed: it ends here; asyncio would log a task that ends cancelled.
        finally:
            self._tasks.discard(task)
            for end in (writer, server_writer):
                if end is not None:
                    self._writers.discard(end)
                    self._lossy.discard(end)
                    end.transport.abort()

    async def _pass(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        client: asyncio.StreamWriter,
        way: Swallow,
    ) -> None:
        while data := await reader.read(_CHUNK):
            if self.swallow in (way, "everything"):
                self.swallowed += len(data)
                self._lossy.add(client)
                continue
            writer.write(data)
            await writer.drain()
        if client not in self._lossy and writer.can_write_eof():
            with contextlib.suppress(OSError):
                writer.write_eof()
