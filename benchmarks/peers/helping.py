"""What several peers need: a free port, a server that is waited for, ends of tasks found by looking into a table."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import driving

_PATIENCE = 90.0
_LOOK = 0.005
"""Seconds between two looks for ends: what a caller that asks a table learns later, at most."""


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


async def started(
    command: Sequence[str | Path], log: Path, *ports: int, environment: Mapping[str, str] | None = None
) -> asyncio.subprocess.Process:
    """Start a program and wait until it listens on all these ports. Raises ``UnableError`` with its last words."""
    with log.open("ab") as out:
        process = await asyncio.create_subprocess_exec(
            *command, stdout=out, stderr=out, env={**os.environ, **(environment or {})}
        )
    try:
        async with asyncio.timeout(_PATIENCE):
            for port in ports:
                while not await _listens(port):
                    if process.returncode is not None:
                        raise driving.UnableError(f"{Path(command[0]).name} ended: {last_words(log)}")
                    await asyncio.sleep(0.05)
    except TimeoutError:
        raise driving.UnableError(f"{Path(command[0]).name} did not start: {last_words(log)}") from None
    return process


async def said(log: Path, word: str) -> None:
    """Wait until a log holds a word."""
    try:
        async with asyncio.timeout(_PATIENCE):
            while word not in _text(log):
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise driving.UnableError(f"its other process did not start: {last_words(log)}") from None


def last_words(log: Path) -> str:
    """Return the last line of a log."""
    lines = _text(log).strip().splitlines()
    return lines[-1][:200] if lines else "it said nothing"


def _text(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return True


async def ended(*processes: asyncio.subprocess.Process | None) -> None:
    """Kill these processes."""
    for process in processes:
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


class Watcher:
    """Tells who waits for a task that it has ended: one query for all that are waited for, again and again.

    ``connection``: psycopg's, asynchronous; ``query``: returns those of the ids in its one parameter that have ended.
    """

    def __init__(self, connection: Any, query: str) -> None:
        self._connection, self._query = connection, query
        self._wanted: dict[Any, asyncio.Future[None]] = {}
        self._looking = asyncio.create_task(self._look())

    async def end_of(self, task: Any) -> None:
        """Wait until a task has ended."""
        future = self._wanted[task] = asyncio.get_running_loop().create_future()
        await future

    async def _look(self) -> None:
        while True:
            if self._wanted:
                rows = await (await self._connection.execute(self._query, (list(self._wanted),))).fetchall()
                for (task,) in rows:
                    future = self._wanted.pop(task, None)
                    if future is not None and not future.done():
                        future.set_result(None)
            await asyncio.sleep(_LOOK)

    async def close(self) -> None:
        """Stop looking."""
        self._looking.cancel()
        await asyncio.gather(self._looking, return_exceptions=True)
        await self._connection.close()
