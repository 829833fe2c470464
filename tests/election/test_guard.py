"""``guard`` lets the caller's own transaction be committed only under the present epoch, on every driver, and exactly."""

import asyncio
import contextlib
import random
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, LiteralString

import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy import orm
from sqlalchemy.ext import asyncio as sqlasync

from makegood.base.clock import SystemClock
from makegood.election import Grant, LeadershipLostError, OpenLeases, Term, open_leases
from makegood.election.settings import settings
from makegood.errors import ConfigError
from tests.clocks import AheadClock
from tests.election.worlds import PostgresWorld

TTL = 60.0
HELD = Grant("lead", "a", "nonce-a", 1, TTL)
SQLITE = ["sqlite3", "sqlite3 autocommit", "sqlalchemy", "sqlalchemy session"]
POSTGRES = ["asyncpg", "psycopg", "psycopg pipeline", "psycopg async", "psycopg async pipeline", "sqlalchemy", "sqlalchemy session", "sqlalchemy async", "sqlalchemy async session"]  # fmt: skip


def term_of(leases: OpenLeases, grant: Grant) -> Term:
    """Return a term that believes in itself."""
    time = SystemClock()
    return Term(leases, grant, time.monotonic(), settings=settings(TTL), clock=time, rng=random.Random(1))


async def usurped(leases: OpenLeases) -> None:
    """Let somebody else lead."""
    await leases.release(HELD)
    assert await leases.acquire("lead", "b", "nonce-b", TTL) is not None


@asynccontextmanager
async def by_psycopg(driver: str, url: str, write: LiteralString) -> AsyncIterator[Any]:
    """The same for psycopg. In a pipeline even the beginning of the transaction is still on its way."""
    if driver == "psycopg":
        with psycopg.connect(url) as blocking:
            blocking.execute(write)
            yield blocking
    elif driver == "psycopg async":
        async with await psycopg.AsyncConnection.connect(url) as connection:
            await connection.execute(write)
            yield connection
    elif driver == "psycopg pipeline":
        with psycopg.connect(url, autocommit=True) as blocking, blocking.pipeline(), blocking.transaction():
            blocking.execute(write)
            yield blocking
    else:
        async with (
            await psycopg.AsyncConnection.connect(url, autocommit=True) as connection,
            connection.pipeline(),
            connection.transaction(),
        ):
            await connection.execute(write)
            yield connection


@asynccontextmanager
async def transaction(driver: str, url: str) -> AsyncIterator[Any]:
    """Yield a connection of that driver on which a row was written; committed at the end, rolled back on an error."""
    write = "insert into work (epoch) values (1)"
    if driver.startswith("sqlite3"):
        with contextlib.closing(sqlite3.connect(url)) as plain:
            if driver == "sqlite3 autocommit":
                plain.isolation_level = None
                plain.execute("begin")
            with plain:
                plain.execute(write)
                yield plain
    elif driver == "asyncpg":
        connection = await asyncpg.connect(url)
        try:
            async with connection.transaction():
                await connection.execute(write)
                yield connection
        finally:
            await connection.close()
    elif driver.startswith("psycopg"):
        async with by_psycopg(driver, url, write) as async_connection:
            yield async_connection
    elif driver in ("sqlalchemy", "sqlalchemy session"):
        engine = sqlalchemy.create_engine(dialect(url, "psycopg"), poolclass=sqlalchemy.pool.NullPool)
        begin = engine.begin() if driver == "sqlalchemy" else orm.Session(engine)
        with begin as caller:
            caller.execute(sqlalchemy.text(write))
            yield caller
            caller.commit()
        engine.dispose()
    else:
        waiting = sqlasync.create_async_engine(dialect(url, "asyncpg"), poolclass=sqlalchemy.pool.NullPool)
        async_begin = waiting.begin() if driver == "sqlalchemy async" else sqlasync.AsyncSession(waiting)
        async with async_begin as caller:
            await caller.execute(sqlalchemy.text(write))
            yield caller
            await caller.commit()
        await waiting.dispose()


def dialect(url: str, driver: str) -> str:
    """Return a URL as SQLAlchemy wants it."""
    if "://" not in url:
        return f"sqlite:///{url}"
    return url.replace("postgresql://", f"postgresql+{driver}://").replace(
        "postgres://", f"postgresql+{driver}://"
    )


@pytest.fixture
def file(tmp_path: Path) -> str:
    """A file with a table of the leader's own work."""
    path = str(tmp_path / "app.db")
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("create table work (epoch integer)")
        connection.commit()
    return path


@pytest.fixture
def base(database: str) -> str:
    """A database with a table of the leader's own work."""
    asyncio.run(PostgresWorld(database).run("create table work (epoch integer)"))
    return database


def rows_of(url: str) -> int:
    """Return how many rows were committed."""
    if "://" not in url:
        with contextlib.closing(sqlite3.connect(url)) as connection:
            return int(connection.execute("select count(*) from work").fetchone()[0])
    with psycopg.connect(url) as blocking:
        row = blocking.execute("select count(*) from work").fetchone()
        assert row is not None
        return int(row[0])


async def prove(driver: str, leases: OpenLeases, url: str) -> None:
    """Committed under the present epoch, refused and rolled back under an old one."""
    assert await leases.acquire("lead", "a", "nonce-a", TTL) == HELD
    term = term_of(leases, HELD)
    async with transaction(driver, url) as connection:
        await term.guard(connection)
    assert rows_of(url) == 1
    await usurped(leases)
    with pytest.raises(LeadershipLostError, match="roll this transaction back") as error:
        async with transaction(driver, url) as connection:
            await term.guard(connection)
    assert error.value.epoch == 1
    assert rows_of(url) == 1


@pytest.mark.parametrize("driver", SQLITE)
async def test_on_sqlite(driver: str, file: str) -> None:
    async with open_leases(f"sqlite:///{file}") as leases:
        await prove(driver, leases, file)


@pytest.mark.parametrize(("before", "after"), [(1000, 40_000), (39_999, 40_000), (50_000, 50_000), (0, 0)])
async def test_a_guarded_connection_leaves_checkpoints_to_makegood(
    file: str, before: int, after: int
) -> None:
    """SQLite's own checkpoints could lose an epoch (``makegood.base.sqlite_log``): they come late, or as the caller has set."""
    async with open_leases(f"sqlite:///{file}") as leases:
        assert await leases.acquire("lead", "a", "nonce-a", TTL) == HELD
        term = term_of(leases, HELD)
        with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as connection:
            connection.execute(f"pragma wal_autocheckpoint = {before}")
            connection.execute("begin immediate")
            await term.guard(connection)
            connection.execute("commit")
            assert connection.execute("pragma wal_autocheckpoint").fetchone() == (after,)


async def test_on_postgres(base: str) -> None:
    async with open_leases(base) as leases:
        for driver in POSTGRES:
            await PostgresWorld(base).run("delete from work")
            await leases.acquire("first", "a", "nonce-a", TTL)  # the tables are made
            await PostgresWorld(base).run("delete from makegood_election.lease")
            await PostgresWorld(base).run("delete from makegood_election.term")
            await prove(driver, leases, base)


async def test_a_connection_to_another_database_is_told_so_by_every_driver(base: str, file: str) -> None:
    """One in which nobody ever kept leases: no driver's own error about a table that is missing."""
    async with open_leases("sqlite:///elsewhere.db") as leases, open_leases(base) as others:
        for driver, url, store in [
            *((d, base, others) for d in POSTGRES),
            *((d, file, leases) for d in SQLITE),
        ]:
            with pytest.raises(ConfigError, match="than the leases"):
                async with transaction(driver, url) as connection:
                    await term_of(store, HELD).guard(connection)


async def test_a_term_whose_lease_has_expired_is_refused_though_nobody_took_it(file: str) -> None:
    ahead = AheadClock()
    async with open_leases(f"sqlite:///{file}", clock=ahead) as leases:
        await leases.acquire("lead", "a", "nonce-a", TTL)
        ahead.ahead += TTL
        with pytest.raises(LeadershipLostError):
            async with transaction("sqlite3", file) as connection:
                await term_of(leases, HELD).guard(connection)


async def test_a_term_that_knows_itself_to_be_over_does_not_even_ask(file: str) -> None:
    async with open_leases(f"sqlite:///{file}") as leases:
        term = term_of(leases, HELD)
        term.stop()
        with pytest.raises(LeadershipLostError, match="contend again"):
            await term.guard(None)


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
async def test_no_take_is_committed_between_the_guard_and_the_commit(
    store: str, file: str, base: str
) -> None:
    """The lease runs out while the guarded transaction is open: the successor waits until it has ended."""
    url = file if store == "sqlite" else base
    ahead = AheadClock()
    place = f"sqlite:///{url}" if store == "sqlite" else url
    async with open_leases(place, clock=ahead) as leases, open_leases(place, clock=ahead) as other:
        await leases.acquire("lead", "a", "nonce-a", 4.0)
        async with transaction("sqlite3" if store == "sqlite" else "asyncpg", url) as connection:
            await term_of(leases, HELD).guard(connection)
            over = asyncio.Event()
            asyncio.get_running_loop().call_later(4.1, over.set)
            await over.wait()
            going = asyncio.ensure_future(other.acquire("lead", "b", "nonce-b", TTL))
            await asyncio.wait([going], timeout=0.5)
            assert not going.done()
        grant = await going
        assert grant is not None
        assert grant.epoch == 2
    assert rows_of(url) == 1


async def test_outside_of_a_transaction_it_guards_nothing_and_says_so(file: str, base: str) -> None:
    async with open_leases(f"sqlite:///{file}") as leases:
        await leases.acquire("lead", "a", "nonce-a", TTL)
        with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as plain, outside():
            await term_of(leases, HELD).guard(plain)
    async with open_leases(base) as leases:
        await leases.acquire("lead", "a", "nonce-a", TTL)
        connection = await asyncpg.connect(base)
        with outside():
            await term_of(leases, HELD).guard(connection)
        await connection.close()
        with psycopg.connect(base, autocommit=True) as blocking, outside():
            await term_of(leases, HELD).guard(blocking)


@contextlib.contextmanager
def outside() -> Iterator[None]:
    """Expect to be told to begin a transaction."""
    with pytest.raises(ConfigError, match="begin one, write, guard, commit"):
        yield


async def test_what_cannot_be_guarded_is_refused_with_what_to_do(file: str, tmp_path: Path) -> None:
    async with open_leases("memory:") as leases:
        with pytest.raises(ConfigError, match=r"write term\.epoch with every change"):
            await term_of(leases, HELD).guard(object())
    async with open_leases(f"sqlite:///{file}") as leases:
        with pytest.raises(ConfigError, match=r"does not know builtins\.object"):
            await term_of(leases, HELD).guard(object())
        with contextlib.closing(sqlite3.connect(tmp_path / "other.db")) as other, another_file():
            await term_of(leases, HELD).guard(other)
    async with open_leases("postgresql://nobody@127.0.0.1:1/none") as leases:
        with contextlib.closing(sqlite3.connect(file)) as plain, another_kind():
            await term_of(leases, HELD).guard(plain)


@contextlib.contextmanager
def another_file() -> Iterator[None]:
    """Expect to be told that the connection is on another file."""
    with pytest.raises(ConfigError, match="another database or file"):
        yield


@contextlib.contextmanager
def another_kind() -> Iterator[None]:
    """Expect to be told that the connection is of another kind of database."""
    with pytest.raises(ConfigError, match="kept in postgresql"):
        yield
