"""Where the lease stores of the suite live, and how time passes there."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from makegood.election import OpenLeases, open_leases
from makegood.election.stores.memory import MemoryLeases
from makegood.testing.forwarder import Forwarder
from makegood.testing.leases import LeaseWorld
from tests.clocks import AheadClock


class MemoryWorld(LeaseWorld):
    """One object for all: there are no other processes in memory."""

    ttl = 15.0

    def __init__(self) -> None:
        super().__init__()
        self.clock = AheadClock()
        self.leases = MemoryLeases(self.clock)

    def open(self) -> OpenLeases:
        return self.leases

    async def elapse(self, seconds: float) -> None:
        self.clock.ahead += seconds


class SQLiteWorld(LeaseWorld):
    """A file; a restart is a boot of the host, after which every holder is gone."""

    ttl = 15.0

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.clock = AheadClock()
        self.url = f"sqlite:///{folder / 'leases.db'}"

    def open(self) -> OpenLeases:
        return open_leases(self.url, clock=self.clock)

    async def elapse(self, seconds: float) -> None:
        self.clock.ahead += seconds

    async def restart(self) -> None:
        self.clock.boot = "another boot"


class PostgresWorld(LeaseWorld):
    """An empty database; time passes by setting back what was written."""

    ttl = 15.0
    slack = 5.0

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url

    def open(self) -> OpenLeases:
        return open_leases(self.url)

    async def run(self, sql: str, *values: object) -> None:
        """Run a statement on a connection of its own."""
        connection = await asyncpg.connect(self.url)
        try:
            await connection.execute(sql, *values)
        finally:
            await connection.close()

    async def elapse(self, seconds: float) -> None:
        await self.run(
            "update makegood_election.lease set expires_at = expires_at - $1, taken_at = taken_at - $1",
            seconds,
        )
        await self.run(
            "update makegood_election.term set began_at = began_at - $1, ended_at = ended_at - $1", seconds
        )

    async def recycle(self) -> None:
        await self.run(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where application_name like 'makegood election %' and datname = current_database()"
        )

    @asynccontextmanager
    async def black_hole(self) -> AsyncIterator[tuple[OpenLeases, Callable[[], None]]]:
        parts = urlsplit(self.url)
        async with Forwarder(parts.port or 5432, host=parts.hostname or "127.0.0.1") as between:
            userinfo = parts.netloc.rpartition("@")[0]
            url = urlunsplit(parts._replace(netloc=f"{userinfo}@127.0.0.1:{between.port}"))
            async with open_leases(url, timeout=0.5) as leases:
                yield leases, partial(setattr, between, "swallow", "everything")
                between.heal()


async def until(seconds: float) -> None:
    """Let real time pass, by the loop's timers."""
    over = asyncio.Event()
    asyncio.get_running_loop().call_later(seconds, over.set)
    with contextlib.suppress(TimeoutError):
        await over.wait()
