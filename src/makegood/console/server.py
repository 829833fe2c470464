"""Serves a console inside a process, by uvicorn: on the loop of the roles, or of a process of its own."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Iterator
from typing import Final

import uvicorn

from makegood.base.clock import Clock
from makegood.base.host_port import host_and_port
from makegood.client.client import Client
from makegood.console.app import ConsoleApp, create_app
from makegood.console.options import ConsoleOptions
from makegood.errors import ConfigError

log = logging.getLogger("makegood.console")

GRACE: Final = 3
"""Seconds that answers under way have when the console ends."""
MOST_AT_ONCE: Final = 512
"""Connections at the same time."""


class ConsoleServer:
    """A console that listens. Raises ``ConfigError`` for options that contradict each other."""

    def __init__(self, store: str | Client, options: ConsoleOptions, clock: Clock | None = None) -> None:
        self._options = options
        self.app: ConsoleApp = create_app(
            store,
            users=options.users,
            proxies=options.proxies,
            user_header=options.user_header,
            role=options.role,
            base=options.base,
            secret=options.secret,
            insecure=options.insecure,
            trace_url=options.trace_url,
            clock=clock,
        )
        self.address = ""
        """Where it listens, such as "http://127.0.0.1:8640"; "" before ``begin``."""
        self._server: uvicorn.Server | None = None
        self._serving: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Open the store, if it was given as a URL, and listen.

        Raises ``ConfigError`` if the port is taken or the host is not one of this machine, and what opening
        a store raises.
        """
        listening = self._listen()
        try:
            await self.app.open()
        except BaseException:
            listening.close()
            raise
        host, port = listening.getsockname()[:2]
        self.address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        self._server = _Server(
            uvicorn.Config(
                self.app, lifespan="off", ws="none", log_config=None, access_log=False, proxy_headers=False, server_header=False,
                limit_concurrency=MOST_AT_ONCE, timeout_graceful_shutdown=GRACE,
            )
        )  # fmt: skip
        self._serving = asyncio.get_running_loop().create_task(
            self._server.serve([listening]), name="console"
        )
        self._serving.add_done_callback(_ended)
        log.info("the console listens on %s", self.address)
        if self._options.insecure:
            log.warning("nobody logs in to the console: whoever reaches %s may do everything", self.address)

    async def wait(self) -> None:
        """Wait until it has ended."""
        if self._serving is not None:
            await asyncio.wait([self._serving])

    async def end(self) -> None:
        """End the streams, let answers under way finish, and close the store if it was opened here."""
        if self._server is not None and self._serving is not None:
            self.app.end_streams()
            self._server.should_exit = True
            await asyncio.wait([self._serving])
            self._server = self._serving = None
        await self.app.close()

    def _listen(self) -> socket.socket:
        host, port = host_and_port(self._options.listen, "console")
        try:
            family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            made = socket.socket(family, kind)
        except OSError as unknown:
            raise self._refused(unknown) from unknown
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind(address)
            made.listen(128)  # a second process on the port is told apart from one that only holds it bound
            made.setblocking(False)
        except OSError as refused:
            made.close()
            raise self._refused(refused) from refused
        return made

    def _refused(self, error: OSError) -> ConfigError:
        return ConfigError(
            f"console={self._options.listen!r}: this process cannot listen there ({error.strerror or error}): is another process on "
            f"that port, or is the host not one of this machine? Name another port; port 0 takes any free one"
        )


class _Server(uvicorn.Server):
    """Uvicorn's server without its signals: the process that runs it has its own."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals alone."""
        yield


def _ended(serving: asyncio.Task[None]) -> None:
    if not serving.cancelled() and (failure := serving.exception()) is not None:
        log.error("the console has ended", exc_info=failure)
