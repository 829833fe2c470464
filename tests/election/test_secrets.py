"""No library that an election talks through writes a password into a log, at whatever level."""

import asyncio
import contextlib
import logging
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

pytest.importorskip("kazoo", reason="zookeeper: kazoo is not installed")

from makegood.election import open_leases
from makegood.errors import MakegoodError


@asynccontextmanager
async def keeper_of_nothing() -> AsyncIterator[tuple[int, asyncio.Event]]:
    """Give the port of a server that takes a session of ZooKeeper and answers nothing more, and what says that it heard a password."""
    connection = asyncio.Event()

    async def on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError), contextlib.closing(writer):
            while True:
                (length,) = struct.unpack("!i", await reader.readexactly(4))
                if b"digest" in await reader.readexactly(length):
                    connection.set()
                else:
                    answer = struct.pack("!iiqi16sb", 0, 10_000, 1, 16, bytes(16), 0)
                    writer.write(struct.pack("!i", len(answer)) + answer)

    async with await asyncio.start_server(on, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1], connection


async def test_the_password_for_zookeeper_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Kazoo writes each request into its log at level debug, that of the login too."""
    caplog.set_level(1)
    logging.getLogger("kazoo.client").setLevel(1)
    try:
        async with (
            keeper_of_nothing() as (port, connection),
            open_leases(f"zookeeper://shop:hunter2@127.0.0.1:{port}/x", timeout=2) as leases,
        ):
            reading = asyncio.ensure_future(leases.read("reports"))
            async with asyncio.timeout(60):
                await connection.wait()
            with pytest.raises(MakegoodError):
                await reading
    finally:
        logging.getLogger("kazoo.client").setLevel(logging.NOTSET)
    assert "Zookeeper connection established" in caplog.text
    assert "hunter2" not in caplog.text
