"""Serves a console inside a process, by uvicorn: on the loop of the roles, or of a process of its own."""

import logging
import socket
from typing import Final
from urllib.parse import quote

from makegood.base.accepted_connections import QUEUE
from makegood.base.clock import Clock
from makegood.base.host_port import host_and_port
from makegood.client.client import Client
from makegood.console.app import ConsoleApp
from makegood.console.limited_server import LimitedServer
from makegood.console.options import ConsoleOptions
from makegood.errors import ConfigError

log = logging.getLogger("makegood.console")

GRACE: Final = 3
"""Seconds that answers under way have when the console ends."""


class ConsoleServer:
    """A console that listens. Raises ``ConfigError`` for options that contradict each other."""

    def __init__(self, store: str | Client, options: ConsoleOptions, clock: Clock | None = None) -> None:
        self._options = options
        self.app = ConsoleApp(store, options, clock)
        self.address = ""
        """Where it listens, such as "http://127.0.0.1:8640"; "" before ``begin``."""
        self.link = ""
        """The address to open: with the token, if the console has no users. It belongs in no log."""
        self.http: LimitedServer | None = None
        """What listens; None before ``begin`` and after ``end``."""

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
        token = self.app.access.token
        base = self.app.access.proxies.base
        self.link = f"{self.address}{base}/" + (
            "" if token is None else f"?token={quote(token.text, safe='')}"
        )
        self.http = LimitedServer("the console", self.app, listening, grace=GRACE)
        hint = "" if token is None or token.file is None else f"; its token is in {token.file}"
        log.info("the console listens on %s%s", self.address, hint)
        if self._options.insecure:
            log.warning("nobody logs in to the console: whoever reaches %s may do everything", self.address)

    async def wait(self) -> None:
        """Wait until it has ended."""
        if self.http is not None:
            await self.http.wait()

    async def end(self) -> None:
        """End the streams, let answers under way finish, and close the store if it was opened here."""
        if self.http is not None:
            self.app.end_streams()
            await self.http.end()
            self.http = None
        await self.app.close()

    def _listen(self) -> socket.socket:
        host, port = host_and_port(self._options.listen, "console")
        try:
            family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            sock = socket.socket(family, kind)
        except OSError as unknown:
            raise self._listen_error(unknown) from unknown
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(address)
            sock.listen(
                QUEUE
            )  # two sockets may be bound to a port with SO_REUSEADDR, and only one may listen
        except OSError as error:
            sock.close()
            raise self._listen_error(error) from error
        return sock

    def _listen_error(self, error: OSError) -> ConfigError:
        return ConfigError(
            f"console={self._options.listen!r}: this process cannot listen there ({error.strerror or error}): is another process on "
            f"that port, or is the host not one of this machine? Name another port; port 0 takes any free one"
        )
