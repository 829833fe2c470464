"""A TCP proxy that stands between a process and what it talks to, and can do what networks do: refuse, reset, swallow.

A *black hole* takes everything and passes nothing on; when it ends, some connections go on as if nothing had been (what was
sent arrives late), some are reset, and some stay silent for ever: their ends must find out by themselves.
"""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

CHUNK: Final = 1 << 16
LATE: Final = 0.2
"""Seconds from a swallowed answer to the reset that tells the client that something is wrong."""
RESET, SILENT = 0.45, 0.10
"""The shares of connections that a black hole's end resets, and leaves silent for ever."""

Sleep = Callable[[float], Awaitable[None]]
"""Waits for so many seconds, or less when the run ends before."""


@dataclass(eq=False)
class _Pair:
    """A client's connection and the one behind it."""

    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    deaf: bool = False
    """What the server says is dropped from the client's next word on."""
    asked: bool = False
    silent: bool = False
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    tasks: set["asyncio.Task[None]"] = field(default_factory=set)

    def abort(self) -> None:
        """Reset both connections."""
        self.gone.set()
        self.client.transport.abort()
        self.server.transport.abort()


class Proxy:
    """Listens on a free port of this machine and passes everything on to ``target``, but for the faults that it is told."""

    def __init__(self, rng: random.Random) -> None:
        self.port = 0
        self.target = 0
        self._rng = rng
        self._listener: asyncio.Server | None = None
        self._pairs: set[_Pair] = set()
        self._open = asyncio.Event()
        self._open.set()
        self._held = 0
        self._lost = 0
        self._losing = False

    async def start(self, target: int) -> None:
        """Listen; ``target`` is the port of the true server."""
        self.target = target
        await self._listen()

    async def stop(self) -> None:
        """Let go of everything."""
        if self._listener is not None:
            self._listener.close()
        tasks = [task for pair in self._pairs for task in pair.tasks]
        for pair in list(self._pairs):
            pair.abort()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # what was reset is let go of by the loop's next turn

    def hang_up(self) -> None:
        """End the connections that had fallen silent for ever."""
        for pair in list(self._pairs):
            if pair.silent:
                pair.abort()

    # -- faults: each returns how often it was met -----------------------------------------------------------------------

    async def refuse(self, away: float, sleep: Sleep) -> int:
        """Reset what is connected and refuse whoever comes."""
        if self._listener is not None:
            self._listener.close()
        hit = 1 + self._cut(1.0)
        try:
            await sleep(away)
        finally:
            await self._listen()
        return hit

    async def reset(self, away: float, sleep: Sleep) -> int:
        """Reset half of what is connected, now and once more after a while."""
        hit = self._cut(0.5)
        await sleep(away)
        return hit + self._cut(0.5)

    async def hole(self, away: float, sleep: Sleep) -> int:
        """Take everything, pass nothing."""
        self._held = 0
        self._open.clear()
        try:
            await sleep(away)
        finally:
            for pair in list(self._pairs):
                fate = self._rng.random()
                if fate < RESET:
                    pair.abort()
                elif fate < RESET + SILENT:
                    pair.silent = True
            self._open.set()
        return self._held

    async def lose_answers(self, away: float, sleep: Sleep) -> int:
        """For a while, let half of the requests through and lose the answers."""
        self._lost, self._losing = 0, True
        try:
            await sleep(away)
        finally:
            self._losing = False
        return self._lost

    def _cut(self, share: float) -> int:
        hit = [pair for pair in list(self._pairs) if not pair.gone.is_set() and self._rng.random() < share]
        for pair in hit:
            pair.abort()
        return len(hit)

    # -- passing on -----------------------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", self.port, backlog=512)
        self.port = self._listener.sockets[0].getsockname()[1]

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            back, forth = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.transport.abort()
            return
        pair = _Pair(writer, forth)
        self._pairs.add(pair)
        for work in (self._there(pair, reader), self._back(pair, back)):
            task = asyncio.get_running_loop().create_task(work)
            pair.tasks.add(task)
            task.add_done_callback(lambda handle, pair=pair: self._ended(pair, handle))  # type: ignore[misc]  # bound early

    def _ended(self, pair: _Pair, task: "asyncio.Task[None]") -> None:
        pair.tasks.discard(task)
        if not pair.tasks:
            self._pairs.discard(pair)

    async def _there(self, pair: _Pair, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError):
            while chunk := await reader.read(CHUNK):
                if self._losing and not pair.asked and self._rng.random() < 0.5:
                    pair.deaf = pair.asked = True
                await self._pass(pair, chunk, pair.server)
            await self._way(pair)
        pair.server.close()

    async def _back(self, pair: _Pair, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError):
            while chunk := await reader.read(CHUNK):
                if pair.deaf:
                    self._lost += 1
                    await asyncio.sleep(LATE)
                    pair.abort()
                    return
                await self._pass(pair, chunk, pair.client)
            await self._way(pair)
        pair.client.close()

    async def _pass(self, pair: _Pair, chunk: bytes, to: asyncio.StreamWriter) -> None:
        await self._way(pair)
        to.write(chunk)
        await to.drain()

    async def _way(self, pair: _Pair) -> None:
        """Wait out a black hole; for a pair that stays silent that takes for ever."""
        if not self._open.is_set():
            self._held += 1
            await self._open.wait()
        if pair.silent:
            await pair.gone.wait()
