"""Uvicorn's HTTP server with limits on what a client may hold: places, time and memory.

Uvicorn limits neither the time in which a request arrives nor that in which an answer is read, and accepts
connections until no file is left. Strangers reach this port before they log in, and behind it the roles of a
process may work. So

- at most ``MOST_CONNECTIONS`` are open, and those of visitors whom the application knows are closed last (see
  ``accepted_connections``);
- a head arrives within ``HEAD`` seconds, and its body within ``BODY`` more. Of a body that nobody reads, the
  rest has ``LINGER`` seconds after the answer;
- an answer is sent in pieces, and a client takes each within ``DRAIN`` seconds, so no connection holds more
  than a piece in memory, or lasts because its client does not read;
- bytes are parsed ``AT_ONCE`` at a time, and for ``SHARE`` seconds in each turn of the loop, because a body
  in chunks of one byte takes much longer to parse than to send, and the loop has other work. The rest of
  what has arrived waits for the next turns, heads before bodies;
- a head has about ``MOST_LINES`` lines at most, because each becomes several objects;
- a request with two lengths, which a proxy may read in another way than h11 does, ends its connection;
- a request that is not HTTP gets its answer, and the log a line a minute.
"""

import asyncio
import contextlib
import logging
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, cast

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from makegood.base.accepted_connections import Connections, SocketAcceptor, affordable
from makegood.base.sparse_log import Sparing
from makegood.console.visits import KNOWN

log = logging.getLogger("makegood.console")

MOST_CONNECTIONS: Final = 256
"""Connections at the same time, or a quarter of the files that the process may open if that is fewer."""
MOST_HEAD: Final = 65_536
"""Bytes of the head of a request."""
MOST_LINES: Final = 200
"""Lines of a head after which no more of it is read: each becomes several objects."""
HEAD: Final = 5.0
"""Seconds within which the head of a request must have arrived."""
IDLE: Final = 5
"""Seconds for which a connection stays open between two requests."""
BODY: Final = 15.0
"""Seconds within which the body of a request must have arrived after its head. The application answers a
moment before that.
"""
LINGER: Final = 2.0
"""Seconds within which the rest of a body must arrive after an answer that did not wait for it."""
DRAIN: Final = 10.0
"""Seconds within which a client must take each piece of an answer."""
PIECE: Final = 65_536
"""Bytes of an answer that are written together."""
AT_ONCE: Final = 1024
"""Bytes of a request that are parsed together."""
SHARE: Final = 0.005
"""Seconds of each turn of the loop in which requests are parsed."""

_LENGTHS: Final = frozenset({b"content-length", b"transfer-encoding"})
_TWO_LENGTHS: Final = b"A request has Content-Length or Transfer-Encoding, not both."

_Scope = dict[str, Any]
_Receive = Callable[[], Awaitable[dict[str, Any]]]
_Send = Callable[[dict[str, Any]], Awaitable[None]]
Application = Callable[[_Scope, _Receive, _Send], Awaitable[None]]
"""An ASGI application."""


class LimitedServer:
    """Serves an application on a socket that listens, on the running loop.

    ``name``: who serves, for the log. ``grace``: seconds that answers under way have when it ends.
    """

    def __init__(self, name: str, application: Any, listening: socket.socket, *, grace: int) -> None:
        config = uvicorn.Config(
            application, lifespan="off", ws="none", http=H11Protocol, log_config=None, access_log=False, proxy_headers=False,
            server_header=False, timeout_keep_alive=IDLE, timeout_graceful_shutdown=grace, h11_max_incomplete_event_size=MOST_HEAD,
        )  # fmt: skip
        self._name = name
        self._server = _Server(name, config, listening)
        self._serving = asyncio.get_running_loop().create_task(self._server.serve(), name=name)
        self._serving.add_done_callback(self._log_end)

    @property
    def connections(self) -> Connections:
        """Its connections."""
        return self._server.kept

    async def wait(self) -> None:
        """Wait until it has ended."""
        await asyncio.wait([self._serving])

    def _log_end(self, serving: asyncio.Task[None]) -> None:
        if not serving.cancelled() and (failure := serving.exception()) is not None:
            log.error("%s has ended", self._name, exc_info=failure)

    async def end(self) -> None:
        """Accept nothing more, let answers under way finish, and close all connections."""
        self._server.should_exit = True
        await self.wait()


class _Server(uvicorn.Server):
    """Uvicorn's server without its signals, since its process has its own, and with another door."""

    def __init__(self, name: str, config: uvicorn.Config, listening: socket.socket) -> None:
        super().__init__(config)
        self._name = name
        self.kept = Connections(affordable(MOST_CONNECTIONS))
        self.lines = _SparingLog()
        self.parsing = _Parsing()
        self._listening = listening
        self._acceptor: SocketAcceptor | None = None

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals alone."""
        yield

    async def startup(self, sockets: Any = None) -> None:  # noqa: ARG002 - as uvicorn calls it
        """Accept connections."""
        self.servers = []
        self._acceptor = SocketAcceptor(self._name, [self._listening], self.kept, lambda: _Connection(self))
        self.started = True

    async def shutdown(self, sockets: Any = None) -> None:
        """Accept nothing more, and end what there is."""
        if self._acceptor is not None:
            await self._acceptor.close()
        self.kept.shed(MOST_CONNECTIONS)  # strangers are not waited for
        await super().shutdown(sockets)
        self.kept.abort()


class _Connection(asyncio.BufferedProtocol):
    """One connection, whose bytes uvicorn's protocol parses: what its client owes it has a deadline."""

    def __init__(self, server: _Server) -> None:
        self._kept = server.kept
        self._parsing = server.parsing
        self._unparsed = b""
        self._waits = False
        self._lines = 0
        self._http = _Http(server, self)
        self._buffer = bytearray(AT_ONCE)
        self._phase: Any = h11.IDLE
        self._due: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's does not say that it is one
        self._transport = cast("asyncio.Transport", transport)
        self._http.connection_made(self._transport)
        self._transport.set_write_buffer_limits(high=0)  # ``resume_writing`` is called once all has gone
        self._kept.join(self._transport)
        self._limit(HEAD)

    def connection_lost(self, exc: Exception | None) -> None:
        self._unparsed = b""
        self._http.connection_lost(exc)
        self._limit(None)
        self._stop_timer()
        self._kept.leave(self._transport)

    def get_buffer(self, sizehint: int) -> bytearray:  # noqa: ARG002 - as every protocol has it
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._unparsed = bytes(self._buffer[:nbytes])
        self._waits = not self._parsing.offer(self, body=self._phase is h11.SEND_BODY)
        if self._waits:
            self._transport.pause_reading()

    def parse(self) -> None:
        """Parse what has arrived."""
        if not self._unparsed:
            return  # closed meanwhile
        text, self._unparsed = self._unparsed, b""
        if self._phase is h11.IDLE:
            if self._lines > MOST_LINES:
                self._http.send_400_response("This request has too many headers.")
                return
            self._lines += text.count(b"\n")
        self._http.data_received(text)
        if self._waits and not self._http.flow.read_paused and not self._transport.is_closing():
            self._transport.resume_reading()
        self._follow(more=True)

    def pause_writing(self) -> None:
        self._http.pause_writing()
        self._unread = self._http.loop.call_later(DRAIN, self._transport.abort)

    def resume_writing(self) -> None:
        self._stop_timer()
        self._http.resume_writing()

    def know(self) -> None:
        """Record that the application knows the client."""
        self._kept.know(self._transport)

    def finish_answer(self, proceed: Callable[[], None]) -> None:
        """Record that an answer is complete, and let uvicorn ``proceed`` to the next request."""
        self._kept.spend(self._transport)
        proceed()
        parser = self._http.conn
        if parser.their_state is h11.SEND_BODY and parser.our_state is not h11.SEND_RESPONSE:
            self._limit(LINGER)
        else:
            self._follow(more=False)

    def _follow(self, *, more: bool) -> None:
        """Set the deadline of what the client owes now. ``more``: bytes have arrived."""
        before, self._phase = self._phase, self._http.conn.their_state
        if self._phase is h11.IDLE:
            if before is not h11.IDLE:
                self._limit(None)
            if more and self._due is None:
                self._limit(HEAD)
        elif self._phase is not before:  # its head is complete
            self._lines = 0
            self._kept.keep(self._transport)
            self._limit(BODY if self._phase is h11.SEND_BODY else None)

    def _limit(self, patience: float | None) -> None:
        if self._due is not None:
            self._due.cancel()
        self._due = None if patience is None else self._http.loop.call_later(patience, self._transport.abort)

    def _stop_timer(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None


class _Parsing:
    """Lets connections parse what has arrived, for a share of each turn of the loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._heads: deque[_Connection] = deque()
        self._bodies: deque[_Connection] = deque()
        self._left = SHARE
        self._next: asyncio.Handle | None = None

    def offer(self, connection: _Connection, *, body: bool) -> bool:
        """Return whether a connection parsed at once; otherwise it does in one of the next turns.

        ``body``: it has sent a part of a body, and others' heads come first.
        """
        if self._left > 0 and not self._heads and not self._bodies:
            self._let(connection)
            return True
        (self._bodies if body else self._heads).append(connection)
        self._come_back()
        return False

    def _come_back(self) -> None:
        if self._next is None:
            self._next = self._loop.call_soon(self._turn)

    def _let(self, connection: _Connection) -> None:
        self._come_back()
        began = self._loop.time()
        connection.parse()
        self._left -= self._loop.time() - began

    def _turn(self) -> None:
        self._next, self._left = None, SHARE
        for waiting in (self._heads, self._bodies):
            if waiting:
                self._let(waiting.popleft())  # one at least of each
        while self._left > 0 and (waiting := self._heads or self._bodies):
            self._let(waiting.popleft())


class _Http(H11Protocol):
    """Uvicorn's protocol, which reports to its connection."""

    def __init__(self, server: _Server, connection: _Connection) -> None:
        super().__init__(config=server.config, server_state=server.server_state, app_state={})
        self.logger = server.lines
        self._application: Application = self.app
        self.app = self._answer
        self._connection = connection

    def on_response_complete(self) -> None:
        self._connection.finish_answer(super().on_response_complete)

    async def _answer(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        if {name for name, _ in scope["headers"]} >= _LENGTHS:
            headers = [(b"content-type", b"text/plain"), (b"connection", b"close")]
            await send({"type": "http.response.start", "status": 400, "headers": headers})
            await send({"type": "http.response.body", "body": _TWO_LENGTHS})
            return

        async def send_in_pieces(message: dict[str, Any]) -> None:
            body: bytes = message.get("body", b"")
            for at in range(PIECE, len(body), PIECE):
                await send({**message, "body": body[at - PIECE : at], "more_body": True})
            rest = max(0, (len(body) - 1) // PIECE * PIECE)
            await send({**message, "body": body[rest:]} if rest else message)

        await self._application({**scope, KNOWN: self._connection.know}, receive, send_in_pieces)


class _SparingLog(logging.Logger):
    """What uvicorn says of connections: strangers can cause warnings, so there is one a minute."""

    def __init__(self) -> None:
        super().__init__("makegood.console.http", logging.INFO)
        self.parent = log
        self._sparing = Sparing()

    def handle(self, record: logging.LogRecord) -> None:
        if record.exc_info is not None and isinstance(record.exc_info[1], asyncio.CancelledError):
            return  # an answer that took longer than the end of the server may take
        if record.levelno <= logging.WARNING:
            if (suffix := self._sparing.due(record.created)) is None:
                return
            record.msg = f"{record.msg}{suffix}"
        super().handle(record)
