"""Every kind of connection that a submission may go through, with its real driver on a real database.

A ``Door`` opens transactions of the application's own and carries out its statements in them. Its tests are written once, as
``async def``: for a driver that blocks they are run without any event loop, as blocking programs are.
"""

import asyncio
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

import asyncpg
import django
import psycopg
import sqlalchemy as sa
from django.conf import settings
from django.db import connections, transaction
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session

import makegood as mg
from makegood.transactions import at_once

ORDER = "insert into orders (id) values ('o')"
TABLES = ("task", "attribute", "step", "notice", "listener", "message", "signal", "inbox")
ORDERS = "create table if not exists orders (id text)"


def migrated(url: str) -> str:
    """Give a database makegood's schema; returns its URL."""
    with mg.SyncClient(url, migrate=True) as client:
        client.open()
    return url


class World(ABC):
    """A database with the application's table ``orders`` and makegood's own, seen from outside."""

    url: str
    prefix: str

    @abstractmethod
    def rows(self, sql: str) -> list[Any]:
        """Return what a statement finds, on a connection of its own; ``{task}`` and ``{step}`` stand for the tables."""

    def counts(self) -> tuple[int, int, int]:
        """Return how many orders, tasks and steps are committed."""
        row = self.rows(
            "select (select count(*) from orders), (select count(*) from {task}), (select count(*) from {step})"
        )
        return tuple(row[0])

    @property
    def place(self) -> str:
        """The URL's part after ``://``."""
        return self.url.partition("://")[2]


class SQLiteWorld(World):
    """A file in a temporary folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.url = f"sqlite:///{path}"
        migrated(self.url)
        self.rows(ORDERS)

    def rows(self, sql: str) -> list[Any]:
        """Return what a statement finds."""
        connection = sqlite3.connect(self.path)
        with connection:
            rows = connection.execute(sql.format(**{name: f"makegood_{name}" for name in TABLES})).fetchall()
        connection.close()
        return rows


class PostgresWorld(World):
    """A database of the run's server."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.rows(ORDERS)
        self.rows(
            "truncate makegood.task, makegood.attribute, makegood.lane, makegood.signal, makegood.step, makegood.notice, makegood.listener, makegood.message, makegood.request, makegood.inbox, makegood.event, orders"
        )

    def rows(self, sql: str) -> list[Any]:
        """Return what a statement finds."""
        with psycopg.connect(self.url) as connection, connection.cursor() as cursor:
            cursor.execute(sql.format(**{name: f"makegood.{name}" for name in TABLES}).encode())
            return cursor.fetchall() if cursor.description else []


class Door(ABC):
    """One kind of connection."""

    blocks = True

    def __init__(self, world: World) -> None:
        self.world = world

    @abstractmethod
    def begin(self) -> AbstractAsyncContextManager[Any]:
        """Open a transaction, to be committed at its end or rolled back by an exception; yields the connection."""

    def loose(self) -> AbstractAsyncContextManager[Any]:
        """Lend a connection on which no transaction is open and every statement is committed by itself."""
        raise NotImplementedError

    @abstractmethod
    async def run(self, connection: Any, sql: str) -> Any:
        """Carry out a statement of the application's; returns the first value that it finds, if any."""

    def play(self, story: Callable[["Player"], Awaitable[None]], **options: Any) -> None:
        """Run a story with a client, on an event loop only when the driver wants one."""

        async def blocking() -> None:
            with mg.SyncClient(self.world.url, **options) as client:
                await story(Player(self, client))

        async def awaited() -> None:
            async with mg.Client(self.world.url, **options) as client:
                await story(Player(self, client))

        if self.blocks:
            at_once(blocking())
        else:
            asyncio.run(awaited())


class Player:
    """A client, blocking or not, as the stories use it."""

    def __init__(self, door: Door, client: Any) -> None:
        self.door = door
        self.world = door.world
        self.client = client

    async def submit(self, *args: Any, **options: Any) -> Any:
        """Submit, in either way."""
        return await self.settled(self.client.submit(*args, **options))

    async def settled(self, answer: Any) -> Any:
        """Return an answer, in either way."""
        return answer if self.door.blocks else await answer


async def _first(cursor: Any) -> Any:
    return (cursor.fetchone() or [None])[0] if cursor.description else None


class PlainSQLite(Door):
    """sqlite3."""

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[Any]:
        """As ``with connection:`` does."""
        connection = sqlite3.connect(self.world.place[1:])
        connection.row_factory = sqlite3.Row
        try:
            with connection:
                yield connection
        finally:
            connection.close()

    @asynccontextmanager
    async def loose(self) -> AsyncIterator[Any]:
        """In autocommit mode."""
        connection = sqlite3.connect(self.world.place[1:], isolation_level=None)
        yield connection
        connection.close()

    async def run(self, connection: Any, sql: str) -> Any:
        """Execute."""
        return await _first(connection.execute(sql))


class Asyncpg(Door):
    """asyncpg."""

    blocks = False

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[Any]:
        """With a pool, as applications do."""
        async with (
            asyncpg.create_pool(self.world.url, min_size=1) as pool,
            pool.acquire() as connection,
            connection.transaction(),
        ):
            yield connection

    @asynccontextmanager
    async def loose(self) -> AsyncIterator[Any]:
        """Without a transaction."""
        connection = await asyncpg.connect(self.world.url)
        yield connection
        await connection.close()

    async def run(self, connection: Any, sql: str) -> Any:
        """Execute."""
        return await connection.fetchval(sql)


class Psycopg(Door):
    """psycopg, blocking, with rows that are dictionaries."""

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[Any]:
        """As ``with connection:`` does."""
        with psycopg.connect(self.world.url, row_factory=psycopg.rows.dict_row) as connection:
            yield connection

    @asynccontextmanager
    async def loose(self) -> AsyncIterator[Any]:
        """In autocommit mode."""
        with psycopg.connect(self.world.url, autocommit=True) as connection:
            yield connection

    async def run(self, connection: Any, sql: str) -> Any:
        """Execute."""
        with connection.cursor(row_factory=psycopg.rows.tuple_row) as cursor:
            cursor.execute(sql)
            return await _first(cursor)


class PsycopgRaw(Psycopg):
    """psycopg with cursors that take PostgreSQL's own marks."""

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[Any]:
        """In autocommit mode, inside ``transaction()``."""
        with (
            psycopg.connect(self.world.url, autocommit=True, cursor_factory=psycopg.RawCursor) as connection,
            connection.transaction(),
        ):
            yield connection


class PsycopgAsync(Door):
    """psycopg, awaited."""

    blocks = False

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[Any]:
        """As ``async with connection:`` does."""
        async with await psycopg.AsyncConnection.connect(self.world.url) as connection:
            yield connection

    @asynccontextmanager
    async def loose(self) -> AsyncIterator[Any]:
        """In autocommit mode."""
        async with await psycopg.AsyncConnection.connect(self.world.url, autocommit=True) as connection:
            yield connection

    async def run(self, connection: Any, sql: str) -> Any:
        """Execute."""
        cursor = await connection.execute(sql)
        return (await cursor.fetchone() or [None])[0] if cursor.description else None


class PsycopgPipeline(Psycopg):
    """psycopg in pipeline mode: what is executed is on its way, and its results come later."""

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[Any]:
        """As ``with connection.pipeline():`` does."""
        with psycopg.connect(self.world.url) as connection, connection.pipeline():
            yield connection

    @asynccontextmanager
    async def loose(self) -> AsyncIterator[Any]:
        """In autocommit mode, where what is on its way would be committed together at the next sync."""
        with psycopg.connect(self.world.url, autocommit=True) as connection, connection.pipeline():
            connection.execute("select 1")
            yield connection

    async def run(self, connection: Any, sql: str) -> Any:
        """Execute; only a result that is asked for is waited for."""
        cursor = connection.execute(sql)
        return cursor.fetchone()[0] if sql.startswith("select") else None


class PsycopgAsyncPipeline(PsycopgAsync):
    """The same, awaited, inside ``transaction()``."""

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[Any]:
        """In autocommit mode, inside ``transaction()``."""
        async with (
            await psycopg.AsyncConnection.connect(self.world.url, autocommit=True) as connection,
            connection.pipeline(),
            connection.transaction(),
        ):
            yield connection

    @asynccontextmanager
    async def loose(self) -> AsyncIterator[Any]:
        """In autocommit mode."""
        async with (
            await psycopg.AsyncConnection.connect(self.world.url, autocommit=True) as connection,
            connection.pipeline(),
        ):
            yield connection

    async def run(self, connection: Any, sql: str) -> Any:
        """Execute."""
        cursor = await connection.execute(sql)
        return (await cursor.fetchone())[0] if sql.startswith("select") else None


class Alchemy(Door):
    """SQLAlchemy's Connection."""

    driver: ClassVar = {"sqlite": "sqlite+pysqlite", "postgresql": "postgresql+psycopg"}

    def engine(self, **options: Any) -> sa.Engine:
        """Make an engine."""
        scheme, _, rest = self.world.url.partition("://")
        return sa.create_engine(f"{self.driver[scheme]}://{rest}", **options)

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[Any]:
        """As ``engine.begin()`` does."""
        engine = self.engine()
        try:
            with engine.begin() as connection:
                yield connection
        finally:
            engine.dispose()

    @asynccontextmanager
    async def loose(self) -> AsyncIterator[Any]:
        """In autocommit mode."""
        engine = self.engine(isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            yield connection
        engine.dispose()

    async def run(self, connection: Any, sql: str) -> Any:
        """Execute."""
        result = connection.execute(sa.text(sql))
        return result.scalar() if result.returns_rows else None


class AlchemySession(Alchemy):
    """SQLAlchemy's Session."""

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[Any]:
        """As ``Session.begin()`` does."""
        engine = self.engine()
        try:
            with Session(engine) as session, session.begin():
                yield session
        finally:
            engine.dispose()

    @asynccontextmanager
    async def loose(self) -> AsyncIterator[Any]:
        """In autocommit mode."""
        engine = self.engine(isolation_level="AUTOCOMMIT")
        with Session(engine) as session:
            yield session
        engine.dispose()


class AsyncAlchemy(Door):
    """SQLAlchemy's AsyncConnection."""

    blocks = False
    driver: ClassVar = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+asyncpg"}

    def engine(self, **options: Any) -> AsyncEngine:
        """Make an engine."""
        scheme, _, rest = self.world.url.partition("://")
        return create_async_engine(f"{self.driver[scheme]}://{rest}", **options)

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[Any]:
        """As ``engine.begin()`` does."""
        engine = self.engine()
        try:
            async with engine.begin() as connection:
                yield connection
        finally:
            await engine.dispose()

    @asynccontextmanager
    async def loose(self) -> AsyncIterator[Any]:
        """In autocommit mode."""
        engine = self.engine(isolation_level="AUTOCOMMIT")
        async with engine.connect() as connection:
            yield connection
        await engine.dispose()

    async def run(self, connection: Any, sql: str) -> Any:
        """Execute."""
        result = await connection.execute(sa.text(sql))
        return result.scalar() if result.returns_rows else None


class AsyncAlchemySession(AsyncAlchemy):
    """SQLAlchemy's AsyncSession."""

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[Any]:
        """As ``AsyncSession.begin()`` does."""
        engine = self.engine()
        try:
            async with AsyncSession(engine) as session, session.begin():
                yield session
        finally:
            await engine.dispose()

    @asynccontextmanager
    async def loose(self) -> AsyncIterator[Any]:
        """In autocommit mode."""
        engine = self.engine(isolation_level="AUTOCOMMIT")
        async with AsyncSession(engine) as session:
            yield session
        await engine.dispose()


class AsyncAlchemyPsycopg(AsyncAlchemySession):
    """SQLAlchemy's AsyncSession on psycopg."""

    driver: ClassVar = {"postgresql": "postgresql+psycopg"}


class Django(Door):
    """Django's connection, inside ``atomic()``."""

    def __init__(self, world: World, alias: str = "") -> None:
        super().__init__(world)
        if not settings.configured:
            settings.configure(DATABASES={}, USE_TZ=True)
            django.setup()
        self.alias = alias or f"of {world.url}"
        database: dict[str, Any] = {"ENGINE": "django.db.backends.sqlite3", "NAME": world.place[1:]}
        if isinstance(world, PostgresWorld):
            parameters = psycopg.conninfo.conninfo_to_dict(world.url)
            database = {"ENGINE": "django.db.backends.postgresql", "NAME": parameters.pop("dbname")}
            database |= {
                name.upper(): parameters.pop(name)
                for name in ("user", "password", "host", "port")
                if name in parameters
            }
            database["OPTIONS"] = parameters
        connections.settings[self.alias] = connections.configure_settings({"default": database})["default"]

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[Any]:
        """As ``atomic()`` does."""
        connection = connections[self.alias]
        try:
            with transaction.atomic(using=self.alias):
                yield connection
        finally:
            connection.close()

    @asynccontextmanager
    async def loose(self) -> AsyncIterator[Any]:
        """Outside of ``atomic()``."""
        connection = connections[self.alias]
        yield connection
        connection.close()

    async def run(self, connection: Any, sql: str) -> Any:
        """Execute."""
        with connection.cursor() as cursor:
            cursor.execute(sql)
            return await _first(cursor) if cursor.description else None


DOORS: dict[str, tuple[type[Door], str]] = {
    "sqlite3": (PlainSQLite, "sqlite"),
    "sqlalchemy-sqlite": (Alchemy, "sqlite"),
    "session-sqlite": (AlchemySession, "sqlite"),
    "async-sqlalchemy-sqlite": (AsyncAlchemy, "sqlite"),
    "async-session-sqlite": (AsyncAlchemySession, "sqlite"),
    "django-sqlite": (Django, "sqlite"),
    "asyncpg": (Asyncpg, "postgres"),
    "psycopg": (Psycopg, "postgres"),
    "psycopg-raw": (PsycopgRaw, "postgres"),
    "psycopg-pipeline": (PsycopgPipeline, "postgres"),
    "psycopg-async": (PsycopgAsync, "postgres"),
    "psycopg-async-pipeline": (PsycopgAsyncPipeline, "postgres"),
    "sqlalchemy-postgres": (Alchemy, "postgres"),
    "session-postgres": (AlchemySession, "postgres"),
    "async-sqlalchemy-postgres": (AsyncAlchemy, "postgres"),
    "async-session-postgres": (AsyncAlchemySession, "postgres"),
    "async-session-psycopg": (AsyncAlchemyPsycopg, "postgres"),
    "django-postgres": (Django, "postgres"),
}
"""Each kind, and the store that it is for."""

__all__ = ["DOORS", "ORDER", "Door", "Player", "PostgresWorld", "SQLiteWorld", "World", "migrated"]
