"""Serves a few pages over HTTP, for probes and scrapers: /livez, /readyz, /startupz, /metrics.

The server is small on purpose: GET and HEAD, one request per connection, and everything bounded (the length
of a head, the time for a request, the number of connections, the number of pages in preparation). It runs on
the event loop of the roles. If that loop is blocked, nothing answers, which is the point of /livez. Requests
are not logged.

Strangers who reach the port can open connections and send nothing. So when there is no room, the oldest
connection that has sent no head is closed for the next one (``accepted_connections``). Nothing that is
refused is kept, and /livez waits for no other page.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple, cast

from makegood.base.accepted_connections import Connections, SocketAcceptor, listening_on
from makegood.base.cancelling import cancel_and_wait
from makegood.base.host_port import host_and_port
from makegood.base.sparse_log import Sparing
from makegood.errors import ConfigError

log = logging.getLogger("makegood.telemetry")

MOST_HEAD: Final = 16_384
"""The most bytes in the head of a request."""
MOST_AT_ONCE: Final = 128
"""The most connections at the same time."""
MOST_PAGES: Final = 16
"""The most pages in preparation or not yet read by their clients; /livez is not counted."""
PATIENCE: Final = 5.0
"""Seconds within which a request must have arrived and its answer must have been sent."""

_PROBE: Final = "/livez"
_END: Final = b"\r\n\r\n"
_REASONS: Final = {
    200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 431: "Request Header Fields Too Large",
    500: "Internal Server Error", 501: "Not Implemented", 503: "Service Unavailable",
}  # fmt: skip


class Page(NamedTuple):
    """An answer."""

    status: int
    text: bytes
    kind: str = "text/plain; charset=utf-8"


Answer = Callable[[str, Mapping[str, str]], Awaitable[Page]]
"""Returns the page for a path and the request's headers, whose names are in lower case."""


class Server:
    """An HTTP server on ``listen``, "HOST:PORT". Raises ``ConfigError`` if that is not a valid address."""

    def __init__(self, listen: str, answer: Answer) -> None:
        self._listen = listen
        self._host, self._port = host_and_port(listen)
        self._answer = answer
        self._acceptor: SocketAcceptor | None = None
        self.address = ""
        """The server's address, such as "http://127.0.0.1:43121"; "" while it does not listen."""
        self._sparing = Sparing()
        self.connections = Connections(MOST_AT_ONCE)
        self.pages: set[asyncio.Transport] = set()
        self.serving: set[asyncio.Task[None]] = set()

    async def begin(self) -> None:
        """Start listening.

        Raises ``ConfigError`` if the port is taken or the host is not one of this machine.
        """
        try:
            listening = await listening_on(self._host, self._port)
            self._acceptor = SocketAcceptor(
                f"the port of --listen {self._listen}", listening, self.connections, lambda: _Asker(self)
            )
        except OSError as refusal:
            why = refusal.strerror or str(refusal)
            raise ConfigError(
                f"listen={self._listen!r}: this process cannot listen there ({why}): is another process on that port, or is the host "
                f"not one of this machine? Name another port; port 0 takes any free one"
            ) from refusal
        host, port = listening[0].getsockname()[:2]
        self.address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    async def end(self) -> None:
        """Stop listening, and cut off all connections."""
        if self._acceptor is not None:
            self.address = ""
            await self._acceptor.close()
            self._acceptor = None
        self.connections.abort()
        await cancel_and_wait(*self.serving)

    async def page(self, path: str, headers: Mapping[str, str]) -> Page:
        """Return the page for a request, or an error page if it cannot be made."""
        if path != _PROBE and len(self.pages) > MOST_PAGES:
            return Page(503, b"too many requests\n")
        try:
            return await self._answer(path, headers)
        except Exception:  # whatever it is, the asker is answered, and the log is not the asker's to fill
            note = self._sparing.due(asyncio.get_running_loop().time())
            if note is not None:
                log.exception("the page %.200r could not be made%s", path, note)
            return Page(500, b"this page could not be made; the log says why\n")


class _Asker(asyncio.Protocol):
    """One connection: a head comes, a page goes."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._head = b""
        self._has_head = False
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's does not say that it is one
        self._transport = transport = cast("asyncio.Transport", transport)
        transport.set_write_buffer_limits(high=0)  # ``resume_writing`` is called once all has gone
        self._timer = asyncio.get_running_loop().call_later(PATIENCE, transport.abort)
        if self._server.address:
            self._server.connections.join(transport)
        else:  # accepted just before the end
            transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._has_head:
            return  # what follows a head is read, as it would cut off the answer otherwise, and not wanted
        self._head += data
        head, end, _ = self._head.partition(_END)
        if not end and len(self._head) < MOST_HEAD:
            return
        self._has_head = True
        self._head = b""
        self._server.connections.keep(self._transport)
        if len(head) >= MOST_HEAD:
            self._say(_response_bytes(Page(431, b"the head of this request is too long\n")))
            return
        self._task = asyncio.get_running_loop().create_task(self._answer(head), name="telemetry page")
        self._server.serving.add(self._task)
        self._task.add_done_callback(self._server.serving.discard)

    def eof_received(self) -> bool:
        # an asker may close its side, and is answered
        return self._has_head and not self._transport.is_closing()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - as every protocol has it
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
        self._server.connections.leave(self._transport)
        self._server.pages.discard(self._transport)

    def resume_writing(self) -> None:
        self._finish()

    async def _answer(self, head: bytes) -> None:
        first, *lines = head.decode("latin-1").split("\r\n")
        words = first.split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            self._say(_response_bytes(Page(400, b"this is not HTTP/1.1\n")))
            return
        method, target, _ = words
        if method not in ("GET", "HEAD"):
            self._say(_response_bytes(Page(405, b"GET and HEAD only\n")))
            return
        headers = {
            name.strip().lower(): value.strip()
            for name, colon, value in (line.partition(":") for line in lines)
            if colon
        }
        self._server.pages.add(self._transport)
        page = await self._server.page(target.partition("?")[0], headers)
        self._say(_response_bytes(page, body=method == "GET"))

    def _say(self, data: bytes) -> None:
        """Send the answer.

        The connection then ends when the client closes it, on timeout, or if its place is needed.
        """
        self._transport.write(data)
        if self._transport.can_write_eof():
            self._transport.write_eof()
        if not self._transport.get_write_buffer_size():
            self._finish()

    def _finish(self) -> None:
        self._server.connections.spend(self._transport)
        self._server.pages.discard(self._transport)


def _response_bytes(page: Page, *, body: bool = True) -> bytes:
    head = (
        f"HTTP/1.1 {page.status} {_REASONS[page.status]}\r\nContent-Type: {page.kind}\r\nContent-Length: {len(page.text)}\r\n"
        "Cache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode("latin-1") + (page.text if body else b"")
