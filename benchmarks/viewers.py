"""People at a console: pages asked over one connection, and viewers whose pages are live.

    python -m benchmarks.viewers serve sqlite:///shop.db 8640 1.0    # `makegood console` that counts its statements
    python -m benchmarks.viewers watch 8640 20                            # twenty viewers, until a line comes

``serve`` runs the command ``makegood console``; the last number is for how many seconds results are shared between viewers. It
answers each line of its input with the number of statements so far. A viewer does what the console's script does in a browser:
it opens the page and its stream, and fetches the fragments that the stream names, four times a second at most.
"""

import asyncio
import contextlib
import importlib
import json
import os
import subprocess
import sys
import threading
import time
from typing import Any, Final
from urllib.parse import quote

import asyncpg

from benchmarks.meters import Traffic, counting_sqlite

PAGES: Final = (
    "/",
    "/tasks",
    "/tasks?q=state%3Aerror",
    "/alerts",
    "/agents",
    "/cluster",
    "/errors",
    "/",
    "/tasks",
    "/",
)
"""What viewers watch, one after the other: most of them the overview."""
_PAUSE: Final = 0.25
TOKEN: Final = "the-token-of-a-benchmark"  # noqa: S105


def serve(store: str, port: int, share: float) -> None:
    """Run ``makegood console``, and count what it sends."""
    traffic = Traffic()
    connect = asyncpg.connect

    async def counting(*arguments: Any, **options: Any) -> Any:
        connection = await connect(*arguments, **options)
        connection.add_query_logger(_counted(traffic))
        return connection

    def answer() -> None:
        for _ in sys.stdin:
            sys.stdout.write(f"{traffic.statements}\n")
            sys.stdout.flush()

    os.environ["MAKEGOOD_CONSOLE_TOKEN"] = TOKEN
    asyncpg.connect = counting
    threading.Thread(target=answer, daemon=True).start()
    with counting_sqlite(traffic):
        app, command = (
            importlib.import_module("makegood.console.app"),
            importlib.import_module("makegood.cli"),
        )
        app.SHARED = share  # type: ignore[attr-defined]  # set for this process alone
        sys.argv = [
            "makegood",
            "--store",
            store,
            "console",
            "--console",
            f"127.0.0.1:{port}",
            "--log-level",
            "warning",
        ]
        command.main()


def _counted(traffic: Traffic) -> Any:
    def sent(_: Any) -> None:
        traffic.statements += 1

    return sent


class Line:
    """A connection that is kept: requests one after the other."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def get(self, path: str) -> tuple[int, bytes]:
        """Return status and body of a page; a server closes a connection that was idle, and browsers open another."""
        try:
            reader, length, status = await self.begin(path)
        except (asyncio.IncompleteReadError, ConnectionError):
            await self.close()
            self._streams = None
            reader, length, status = await self.begin(path)
        return status, await reader.readexactly(length)

    async def begin(self, path: str) -> tuple[asyncio.StreamReader, int, int]:
        """Send a request; returns where the body comes, its length (0 for a stream), and the status."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        writer.write(
            f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1:{self._port}\r\naccept: text/html\r\n"
            f"authorization: Bearer {TOKEN}\r\n\r\n".encode()
        )
        await writer.drain()
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        lengths = [
            line.partition(":")[2] for line in head.split("\r\n") if line.startswith("content-length:")
        ]
        return reader, int(lengths[0]) if lengths else 0, int(head.split(" ", 2)[1])

    async def close(self) -> None:
        """Close it."""
        if self._streams is not None:
            self._streams[1].close()
            with contextlib.suppress(OSError):
                await self._streams[1].wait_closed()


async def until_listening(process: "subprocess.Popen[str]", port: int, path: str, seconds: float) -> None:
    """Wait until the console of a process answers. Raises ``RuntimeError`` when it has ended, or takes longer."""
    end = time.monotonic() + seconds
    while True:
        line = Line(port)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await line.get(path)
            await line.close()
            return
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError("the console does not listen")
        await asyncio.sleep(0.1)


class Viewer:
    """One viewer of one page."""

    def __init__(self, port: int, page: str) -> None:
        self._port, self._page = port, page
        self.open = False
        self.events = self.fetched = self.bytes = self.failed = 0
        self._wanted: dict[str, None] = {}
        self._ring = asyncio.Event()

    async def watch(self) -> None:
        """Watch until cancelled."""
        stream, line = Line(self._port), Line(self._port)
        try:
            await line.get(self._page)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._listen(stream))
                group.create_task(self._fetch(line))
        finally:
            await stream.close()
            await line.close()

    async def _listen(self, stream: Line) -> None:
        reader, _, status = await stream.begin(f"/events?page={quote(self._page, safe='')}")
        if status != 200:
            raise RuntimeError(f"the stream answers {status}")
        self.open = True
        while text := await reader.readline():
            if text.startswith(b"data: "):
                self.events += 1
                self._wanted |= dict.fromkeys(text[6:].decode().strip().split(","))
                self._ring.set()

    async def _fetch(self, line: Line) -> None:
        while await self._ring.wait():
            self._ring.clear()
            names, self._wanted = ",".join(self._wanted), {}
            status, body = await line.get(
                f"{self._page}{'&' if '?' in self._page else '?'}fragment={quote(names)}"
            )
            self.fetched, self.bytes, self.failed = (
                self.fetched + 1,
                self.bytes + len(body),
                self.failed + (status != 200),
            )
            await asyncio.sleep(_PAUSE)


async def watch(port: int, viewers: int) -> dict[str, float]:
    """Let viewers watch until a line comes, and return what they were sent in a second."""
    people = [Viewer(port, PAGES[n % len(PAGES)]) for n in range(viewers)]
    start = time.perf_counter()
    watching = [asyncio.create_task(person.watch()) for person in people]
    end = asyncio.create_task(asyncio.to_thread(sys.stdin.readline))
    while not all(person.open for person in people) and not any(one.done() for one in watching):
        await asyncio.sleep(0.05)
    print("ready", flush=True)
    ready, _ = await asyncio.wait([end, *watching], return_when=asyncio.FIRST_COMPLETED)
    took = time.perf_counter() - start
    for one in watching:
        one.cancel()
    await asyncio.gather(*watching, return_exceptions=True)
    for one in ready - {end}:
        one.result()
    sums = {name: sum(getattr(person, name) for person in people) for name in ("events", "fetched", "bytes")}
    return {name: value / took for name, value in sums.items()} | {
        "failed": sum(person.failed for person in people)
    }


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    if what == "serve":
        serve(rest[0], int(rest[1]), float(rest[2]))
    else:
        print(json.dumps(asyncio.run(watch(int(rest[0]), int(rest[1])))))
