"""The databases that the suite runs on, and time by hand for each.

A ``World`` is one empty database. Every store made by it is like a process of its own on it. Time passes by hand:
SQLite's store is given a clock that does not move by itself; PostgreSQL's clock is the server's, so ``elapse`` makes
everything that is recorded so many seconds older, which is the same thing seen from inside.
"""

import asyncio
import sqlite3
import tempfile
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, closing
from functools import cache
from pathlib import Path
from typing import Any

from makegood.base.sqlite_log import Connection
from makegood.store.protocol import Store
from makegood.store.sqlite import SQLiteStore
from makegood.store.sqlite.connection import connect
from tests.clocks import HandClock
from tests.waiting import moment

TIMES = {
    "task": ("complete_by", "undo_by", "created_at", "ended_at", "start_at"),
    "request": ("sent_at", "taken_at", "complete_by"),
    "step": ("first_sent",),
    "rate": ("next",),
    "inbox": ("at",),
    "signal": ("at", "used_at"),
    "event": ("at",),
    "audit": ("at",),
    "alert": ("at", "ended_at", "acked_at", "tell_at"),
    "message": ("sent_at", "visible_at", "ended_at", "expires_at"),
    "listener": ("due_at",),
    "node": ("started_at", "alive_until", "stopped_at"),
    "lease": ("expires_at", "taken_at"),
    "refusal": ("at",),
    "supervisor_decision": ("at",),
    "bulk_act": ("at", "free_at", "ended_at"),
    "bulk_item": ("at",),
    "schedule": ("moment", "next_at", "paused_at", "paused_until", "made_at"),
}


class Raw(ABC):
    """A write transaction of somebody else, held open: what a commit in flight looks like from outside.

    ``for_share``: what to put behind a select that locks its rows for reading.
    """

    for_share = ""

    @abstractmethod
    async def run(self, sql: str, *values: Any) -> list[Sequence[Any]]:
        """Execute a statement; ``{step}`` and so on stand for the tables, ``?`` for values."""


class Counts:
    """What went through the driver: commits that wrote, and statements sent. ``shares``: the store has one writer, so that
    operations of one moment share a commit whatever they are.
    """

    shares = True

    def __init__(self) -> None:
        self.statements = self.committed = 0

    async def reset(self) -> None:
        """Count anew."""
        self.statements = self.committed = 0

    async def commits(self) -> int:
        """Return the commits that wrote since the last reset."""
        return self.committed

    def sharing(self, operations: int) -> int:
        """Return the most commits that so many operations of one moment may cost."""
        return 1 if self.shares else operations


class World(ABC):
    """One empty database."""

    dialect: str

    @abstractmethod
    def counted(self) -> tuple[Store, Counts]:
        """Return a store that is not open yet, whose traffic is counted."""

    @abstractmethod
    def store(self) -> Store:
        """Return a store on it that is not open yet."""

    @abstractmethod
    async def elapse(self, seconds: float, *, pending: bool = False) -> None:
        """Let time pass; ``pending``: for the tasks that wait to be claimed too, which a store expects near the present."""

    @abstractmethod
    def raw(self) -> Any:
        """Return an ``async with`` for a ``Raw``: locks all tasks for writing, commits at its end."""

    async def rows(self, sql: str, *values: Any) -> list[Sequence[Any]]:
        """Return what a statement finds, read from outside of the store."""
        async with self.raw() as raw:
            rows: list[Sequence[Any]] = await raw.run(sql, *values)
            return rows


class _SQLiteRaw(Raw):
    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    async def run(self, sql: str, *values: Any) -> list[Sequence[Any]]:
        names = {
            table: f"makegood_{table}"
            for table in (*TIMES, "step", "attribute", "lane", "notice", "schema_version")
        }
        return self.connection.execute(sql.format_map(names), values).fetchall()


@asynccontextmanager
async def opened(folder: Path, connection: Callable[[str], sqlite3.Connection]) -> AsyncIterator[SQLiteStore]:
    """Open a store whose connections are made by the test, on a file of its own, its clock by hand."""
    store = SQLiteStore(folder / "store.db", clock=HandClock(), poll=None, open_connection=connection)
    await store.open(migrate=True)
    try:
        yield store
    finally:
        await store.close()


def counting(counts: Counts) -> Callable[[str], sqlite3.Connection]:
    """Return an opener of connections whose statements are counted."""

    class Counting(Connection):
        """Counts calls, not rows: ``executemany`` compiles once and stays inside the driver. A trace would see each row of a
        trigger, with all values that are bound.
        """

        changes = 0

        def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
            inside = self.in_transaction
            counts.statements += inside and sql not in ("commit", "rollback")
            result = super().execute(sql, *values)
            if inside and sql == "commit":
                counts.committed += self.total_changes != self.changes
                self.changes = self.total_changes
            return result

        def executemany(self, sql: str, values: Any) -> sqlite3.Cursor:
            counts.statements += 1
            return super().executemany(sql, values)

    def opened(uri: str) -> sqlite3.Connection:
        return connect(uri, factory=Counting)

    return opened


class SQLiteWorld(World):
    """A file in a temporary folder."""

    dialect = "sqlite"

    def __init__(self, folder: Path) -> None:
        self.path = folder / "store.db"
        self.clock = HandClock()

    def store(self) -> SQLiteStore:
        """Return a store on the file; it never polls."""
        return SQLiteStore(self.path, clock=self.clock, poll=None)

    def counted(self) -> tuple[SQLiteStore, Counts]:
        """Return a store whose connections count."""
        counts = Counts()
        return SQLiteStore(self.path, clock=self.clock, poll=None, open_connection=counting(counts)), counts

    async def elapse(self, seconds: float, *, pending: bool = False) -> None:
        """Move the clock."""
        self.clock.forward(seconds)

    @asynccontextmanager
    async def raw(self) -> AsyncIterator[Raw]:
        """Hold the file's write lock."""
        connection = sqlite3.connect(self.path, isolation_level=None)
        try:
            connection.execute("begin immediate")
            yield _SQLiteRaw(connection)
            connection.execute("commit")
        finally:
            connection.close()


@cache
def migrated() -> bytes:
    """Return a SQLite file with the tables of this version and nothing in them: to copy it costs a quarter of making it."""

    async def make(world: SQLiteWorld) -> None:
        store = world.store()
        await store.open(migrate=True)
        await store.close()

    with tempfile.TemporaryDirectory() as name:
        world = SQLiteWorld(Path(name))
        asyncio.run(make(world))
        with closing(sqlite3.connect(world.path)) as connection:
            connection.execute("pragma wal_checkpoint(truncate)")
        return world.path.read_bytes()


async def still_waits(task: "asyncio.Task[Any]") -> bool:
    """Whether a task has not ended after a moment that would have been long enough."""
    ready, _ = await asyncio.wait([task], timeout=0.15)
    return not ready


async def eventually(condition: Any, what: str, seconds: float = 120.0) -> None:
    """Wait until ``condition()`` holds; fails after a deadline, naming ``what``."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while not condition():
        assert loop.time() < end, f"waited {seconds:g} s for {what}"
        await moment()
