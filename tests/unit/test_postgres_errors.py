"""A PostgreSQL server that cannot be reached is told in the same words, and with what to do, by all that dial one."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import closing

import pytest

pytest.importorskip("asyncpg", reason="postgres: asyncpg is not installed")

from makegood.election.open import open_leases
from makegood.errors import StoreUnavailableError
from makegood.messaging.outbox import open_outbox
from makegood.store import open_store


@pytest.fixture
def deaf() -> Iterator[int]:
    """A port of this machine on which nobody listens."""
    with closing(socket.socket()) as port:
        port.bind(("127.0.0.1", 0))
        yield port.getsockname()[1]


async def test_a_port_where_nobody_listens_is_named_with_what_to_do(deaf: int) -> None:
    """The outbox and the leases left the port out, and what to do."""
    url = f"postgresql://me:secret@127.0.0.1:{deaf}/x"
    text = f"PostgreSQL at 127.0.0.1:{deaf}, database x, user me refuses connections: is PostgreSQL running there?"
    store, leases, outbox = open_store(url), open_leases(url), open_outbox(url)
    async with leases:
        for call in (store.open(), leases.read("x"), leases.acquire("x", "me", "n", 5.0), outbox.open()):
            with pytest.raises(StoreUnavailableError) as error:
                await call
            assert text in str(error.value)
            assert "secret" not in str(error.value)
    await asyncio.gather(store.close(), outbox.close())
