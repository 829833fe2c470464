"""The forwarder lets bytes vanish one way or both, refuses nothing, and breaks what lost some when it is healed."""

import asyncio

import pytest

from makegood.testing import Forwarder
from makegood.testing.forwarder import Swallow


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(100):
            writer.write(data.upper())
    except ConnectionError:
        return
    finally:
        writer.close()


async def ended(reader: asyncio.StreamReader) -> bool:
    """Whether the connection is over, in whatever way."""
    try:
        return await reader.read(1) == b""
    except ConnectionError:
        return True


async def test_it_passes_bytes_on_and_ends_when_either_side_does() -> None:
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with server, Forwarder(server.sockets[0].getsockname()[1]) as between:
        reader, writer = await asyncio.open_connection("127.0.0.1", between.port)
        writer.write(b"hello")
        assert await reader.read(100) == b"HELLO"
        writer.write_eof()
        assert await reader.read(100) == b""
        writer.close()


@pytest.mark.parametrize("swallow", ["requests", "replies", "everything"])
async def test_what_is_swallowed_never_arrives_and_the_connection_is_broken_at_the_end(
    swallow: Swallow,
) -> None:
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with server, Forwarder(server.sockets[0].getsockname()[1]) as between:
        reader, writer = await asyncio.open_connection("127.0.0.1", between.port)
        writer.write(b"a")
        assert await reader.read(1) == b"A"
        between.swallow = swallow
        writer.write(b"b")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await reader.read(1)
        assert between.swallowed == 1
        between.heal()
        assert await ended(reader)
        writer.close()


async def test_a_server_that_is_not_there_is_told_by_a_broken_connection() -> None:
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    async with Forwarder(port) as between:
        reader, writer = await asyncio.open_connection("127.0.0.1", between.port)
        assert await ended(reader)
        writer.close()
