"""Clients of a real port that misbehave: they say nothing, send a byte now and then, or read nothing."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from makegood.console.limited_server import LimitedServer
from makegood.console.options import ConsoleOptions
from makegood.console.server import ConsoleServer
from makegood.console.users import User
from tests.console.consoles import USERS, migrated
from tests.waiting import moment


@asynccontextmanager
async def a_port(folder: Path, users: Mapping[str, User] = USERS) -> AsyncIterator[ConsoleServer]:
    """Serve a console on a port of this machine."""
    server = ConsoleServer(await migrated(folder), ConsoleOptions(listen="127.0.0.1:0", users=users))
    await server.begin()
    try:
        yield server
    finally:
        await server.end()


@asynccontextmanager
async def application_port(application: Any) -> AsyncIterator[tuple[LimitedServer, str]]:
    """Serve it on a port of this machine."""
    listening = socket.create_server(("127.0.0.1", 0))
    address = f"http://127.0.0.1:{listening.getsockname()[1]}"
    server = LimitedServer("a test", application, listening, grace=1)
    try:
        yield server, address
    finally:
        await server.end()


class Client:
    """One connection to a port."""

    def __init__(self, address: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.host = urlsplit(address).netloc
        self.reader, self.writer = reader, writer

    @classmethod
    async def at(cls, address: str, *, read_most: int = 65_536) -> "Client":
        """Connect. ``read_most``: bytes that this client takes before it is asked to read."""
        where = urlsplit(address)
        return cls(address, *await asyncio.open_connection(where.hostname, where.port, limit=read_most))

    def send(self, head: str, cookie: str = "", body: bytes = b"") -> None:
        """Send a request, or the beginning of one: ``head`` is its first line and further headers."""
        first, *lines = head.split("\n")
        lines = [first, f"Host: {self.host}", *([f"Cookie: {cookie}"] if cookie else []), *lines]
        self.writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    async def status(self) -> int:
        """Return the status of the next answer, and leave its body."""
        async with asyncio.timeout(60):
            return int((await self.reader.readline()).split()[1])

    async def drip(self, drop: bytes) -> bytes:
        """Send a drop again and again until the other end closes; return what came."""
        async with asyncio.timeout(60):
            reading = asyncio.ensure_future(self.reader.read())
            while not reading.done():
                if drop:
                    self.writer.write(drop)
                await moment()
            with contextlib.suppress(ConnectionError):
                return await reading
        return b""

    def close(self) -> None:
        """Leave."""
        self.writer.transport.abort()


def cookie(server: ConsoleServer, user: str = "vera") -> str:
    """Return the cookie of a user who is logged in."""
    return f"makegood_login={server.app.access.cookie(user)}"


async def page(address: str, logged_in: str, path: str = "/login") -> int:
    """Open a page on a connection of its own, and return its status."""
    client = await Client.at(address)
    client.send(f"GET {path} HTTP/1.1\nConnection: close", logged_in)
    try:
        return await client.status()
    finally:
        client.close()
