"""A TCP proxy that loses what matters: the answer to a commit, the commit itself, or its way until it is too late."""

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import Literal

Loss = Literal["answer", "request", "until later"]


@dataclass(eq=False)
class _Pair:
    """One client's connection and the server's behind it."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    lost: Loss | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass
class Proxy:
    """Copies both directions, until ``lose`` is told what to watch for.

    ``answer``: the chunk reaches the server, what comes back is dropped and the client's connection aborted. ``request``: the
    chunk is dropped and both connections are aborted. ``until later``: the client's connection is aborted at once, and the
    chunk reaches the server when ``deliver`` is called.
    """

    target: int
    port: int = 0
    losses: int = 0
    refusing: bool = False
    silent: bool = False
    """Whether nothing is carried any more, in either direction, as behind a machine without power."""
    _server: asyncio.Server | None = None
    _pairs: set[_Pair] = field(default_factory=set)
    _all: list[_Pair] = field(default_factory=list)
    _mark: bytes = b""
    _how: Loss = "answer"
    _times: int = 1
    _lost: asyncio.Event = field(default_factory=asyncio.Event)
    _late: list[tuple[_Pair, bytes]] = field(default_factory=list)
    _tasks: set["asyncio.Task[None]"] = field(default_factory=set)

    async def start(self) -> None:
        """Listen on a free port."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Drop everything."""
        if self._server is not None:
            self._server.close()
        for pair in self._all:
            pair.client.transport.abort()
            pair.server.transport.abort()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for pair in self._all:
            for writer in (pair.client, pair.server):
                with contextlib.suppress(OSError):
                    await writer.wait_closed()

    def lose(self, mark: bytes, how: Loss, times: int = 1) -> asyncio.Event:
        """Lose the next ``times`` chunks of clients that contain ``mark``; the event says that it happened."""
        self._mark, self._how, self._times, self._lost = mark, how, times, asyncio.Event()
        return self._lost

    def cut(self) -> None:
        """Abort all connections."""
        for pair in list(self._pairs):
            pair.client.transport.abort()
            if pair.lost != "until later":
                pair.server.transport.abort()

    async def deliver(self) -> None:
        """Let what was held up reach the server, and wait until the server has dealt with it."""
        late, self._late = self._late, []
        for pair, chunk in late:
            with contextlib.suppress(OSError):  # the server has closed it, tired of waiting
                pair.server.write(chunk)
                pair.server.write_eof()
            await pair.ended.wait()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refusing:
            writer.transport.abort()
            return
        if self.silent:
            await reader.read()
            writer.close()
            return
        back, forth = await asyncio.open_connection("127.0.0.1", self.target)
        pair = _Pair(writer, forth)
        self._pairs.add(pair)
        self._all.append(pair)
        for work in (self._up(pair, reader), self._down(pair, back)):
            task = asyncio.create_task(work)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _up(self, pair: _Pair, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError):
            while chunk := await reader.read(1 << 20):
                if self.silent:
                    continue
                if self._mark and self._mark in chunk:
                    self._times -= 1
                    if not self._times:
                        self._mark = b""
                    self.losses += 1
                    pair.lost = self._how
                    if pair.lost != "answer":
                        if pair.lost == "until later":
                            self._late.append((pair, chunk))
                        else:
                            pair.server.transport.abort()
                        pair.client.transport.abort()
                        self._lost.set()
                        return
                pair.server.write(chunk)
                await pair.server.drain()
            if pair.lost is None:
                pair.server.close()

    async def _down(self, pair: _Pair, back: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError):
            while chunk := await back.read(1 << 20):
                if self.silent:
                    continue
                if pair.lost == "answer":
                    pair.client.transport.abort()
                    pair.server.transport.abort()
                    self._lost.set()
                elif pair.lost is None:
                    pair.client.write(chunk)
                    await pair.client.drain()
        self._pairs.discard(pair)
        pair.ended.set()
        pair.client.close()
