"""A few pages over HTTP, for probes and scrapers: /livez, /readyz, /startupz, /metrics.

Small on purpose: GET and HEAD, one request for each connection, everything bounded (a head's length, the time that it may take, how
many are answered at once). It lives on the event loop of the roles: when that loop does not turn, nobody answers, and that is the
point of /livez. What is asked is not logged.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple

from makegood.addresses import host_and_port
from makegood.errors import ConfigError

log = logging.getLogger("makegood.telemetry")

MOST_HEAD: Final = 16_384
"""Bytes of a request's head at most."""
MOST_AT_ONCE: Final = 64
"""Connections answered at the same time."""
PATIENCE: Final = 5.0
"""Seconds within which a request must have come and its answer must have gone."""

_REASONS: Final = {
    200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 431: "Request Header Fields Too Large",
    501: "Not Implemented", 503: "Service Unavailable",
}  # fmt: skip


class Page(NamedTuple):
    """An answer."""

    status: int
    text: bytes
    kind: str = "text/plain; charset=utf-8"


Answer = Callable[[str, Mapping[str, str]], Awaitable[Page]]
"""Returns the page for a path and the request's headers, whose names are in lower case."""


class Server:
    """Answers on ``listen``, "HOST:PORT". Raises ``ConfigError`` for one that cannot be meant."""

    def __init__(self, listen: str, answer: Answer) -> None:
        self._listen = listen
        self._host, self._port = host_and_port(listen)
        self._answer = answer
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> str:
        """The address that is listened on, "http://127.0.0.1:43121"; "" before ``begin``."""
        if self._server is None or not self._server.sockets:
            return ""
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    async def begin(self) -> None:
        """Listen. Raises ``ConfigError`` when that cannot be: the port is taken, the host is not of this machine."""
        try:
            self._server = await asyncio.start_server(
                self._connected, self._host, self._port, limit=MOST_HEAD
            )
        except OSError as refused:
            why = refused.strerror or str(refused)
            raise ConfigError(
                f"listen={self._listen!r}: this process cannot listen there ({why}): is another process on that port, or is the host "
                f"not one of this machine? Port 0 takes any that is free"
            ) from refused

    async def end(self) -> None:
        """Listen no more; who is being answered is cut off."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer), name="telemetry page")
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                writer.write(await self._page(reader))
                await writer.drain()
                if writer.can_write_eof():
                    writer.write_eof()
                await reader.read(MOST_HEAD * 4)  # what was not read would cut off the answer
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as gone:
            log.debug("a request was not answered: %s", type(gone).__name__)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _page(self, reader: asyncio.StreamReader) -> bytes:
        if len(self._serving) > MOST_AT_ONCE:
            return _written(Page(503, b"too many connections\n"))
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return _written(Page(431, b"the head of this request is too long\n"))
        first, *lines = head.decode("latin-1").split("\r\n")
        words = first.split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return _written(Page(400, b"this is not HTTP/1.1\n"))
        method, target, _ = words
        if method not in ("GET", "HEAD"):
            return _written(Page(405, b"GET and HEAD only\n"))
        headers = {
            name.strip().lower(): value.strip()
            for name, colon, value in (line.partition(":") for line in lines)
            if colon
        }
        page = await self._answer(target.partition("?")[0], headers)
        return _written(page, body=method == "GET")


def _written(page: Page, *, body: bool = True) -> bytes:
    head = (
        f"HTTP/1.1 {page.status} {_REASONS[page.status]}\r\nContent-Type: {page.kind}\r\nContent-Length: {len(page.text)}\r\n"
        "Cache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode("latin-1") + (page.text if body else b"")
