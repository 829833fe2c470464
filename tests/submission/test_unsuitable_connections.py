"""Connections that cannot carry a submission are refused before anything is written, with what to do about it."""

import asyncio
import shutil
import sqlite3
import threading
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy as sa
from psycopg.conninfo import make_conninfo
from sqlalchemy.ext.asyncio import create_async_engine

import makegood as mg
from makegood.store import open_store
from makegood.store.migrations import latest_version
from tests.actors.noop_apps import chain_app
from tests.submission.connections import ORDER, ORDERS, PostgresWorld, SQLiteWorld, World, migrated

_, CHAIN = chain_app(3)


@pytest.fixture
def sqlite(tmp_path: Path) -> SQLiteWorld:
    """An empty file."""
    return SQLiteWorld(tmp_path / "shop.db")


@pytest.fixture
def postgres(postgres_url: str) -> PostgresWorld:
    """An empty database."""
    return PostgresWorld(postgres_url)


def refused(world: World, connection: Any, match: str, error: type[Exception] = mg.TransactionError) -> None:
    """Check that a submission is refused in these words, and nothing written, whatever happens to the transaction."""
    with mg.SyncClient(world.url) as client:
        with pytest.raises(error, match=match):
            client.submit(CHAIN, "a", connection=connection)
        if isinstance(connection, sqlite3.Connection | psycopg.Connection):
            connection.commit()
    assert world.counts()[1:] == (0, 0)


def test_another_file(sqlite: SQLiteWorld, tmp_path: Path) -> None:
    """A copy of the store is another one, though it has the same id; a link to it is the same."""
    for other in (tmp_path / "none.db", ":memory:", shutil.copy(sqlite.path, tmp_path / "copy.db")):
        connection = sqlite3.connect(other)
        connection.execute(ORDERS)
        connection.execute(ORDER)
        refused(sqlite, connection, "nothing can be committed in two databases together")
        connection.close()
    link = tmp_path / "link.db"
    link.symlink_to(sqlite.path)
    with mg.SyncClient(sqlite.url) as client, sqlite3.connect(link) as connection:
        client.submit(CHAIN, "a", connection=connection)
    connection.close()
    assert sqlite.counts() == (0, 1, 3)


def test_a_connection_without_an_encoding(postgres: PostgresWorld) -> None:
    """What psycopg opens in a database with the encoding SQL_ASCII; the same connection in UTF-8 works there."""
    with psycopg.connect(postgres.url, client_encoding="SQL_ASCII") as connection:
        refused(postgres, connection, "speaks SQL_ASCII.*open it with client_encoding=utf8")


def test_another_kind_of_database(sqlite: SQLiteWorld, postgres: PostgresWorld) -> None:
    with psycopg.connect(postgres.url) as to_postgres:
        refused(sqlite, to_postgres, "psycopg.Connection to PostgreSQL, and the store is .*shop.db")
    to_sqlite = sqlite3.connect(sqlite.path)
    refused(postgres, to_sqlite, "sqlite3.Connection to SQLite, and the store is PostgreSQL at")
    to_sqlite.close()


def test_another_database_of_the_server(postgres: PostgresWorld, databases: Any) -> None:
    """Without a store, with one of its own, or a copy."""
    url = asyncio.run(databases.create())

    def elsewhere() -> None:
        with psycopg.connect(url) as connection:
            refused(postgres, connection, "nothing can be committed in two databases together")
            connection.execute("select 1")  # the transaction is whole

    elsewhere()
    migrated(url)
    elsewhere()
    ((store_id,),) = postgres.rows("select store_id from makegood.generation")
    with psycopg.connect(url) as connection:
        connection.execute("update makegood.generation set store_id = %s", (store_id,))
    elsewhere()
    asyncio.run(databases.drop(url))


def test_a_database_of_another_server_with_the_same_number(postgres: PostgresWorld) -> None:
    """As a restored dump may be: its id is the same, too."""
    store: Any = open_store(postgres.url)

    async def refused_there() -> None:
        connection = await asyncpg.connect(postgres.url)
        await store.open()
        async with mg.Client(store) as client, connection.transaction():
            store._database.dialer.system = "another server's"
            with pytest.raises(mg.TransactionError, match="nothing can be committed in two databases"):
                await client.submit(CHAIN, "a", connection=connection)
            store._database.dialer.system = ""  # the store's server does not tell: then nothing is compared
            assert (await client.submit(CHAIN, "a", connection=connection)).created
        await store.close()
        await connection.close()

    asyncio.run(refused_there())


def test_commits_that_a_power_cut_takes_back(sqlite: SQLiteWorld) -> None:
    for level in ("off", "normal"):
        connection = sqlite3.connect(sqlite.path)
        connection.execute(f"pragma synchronous = {level}")
        connection.execute(ORDER)
        refused(sqlite, connection, "pragma synchronous = full")
        connection.close()
    connection = sqlite3.connect(sqlite.path)
    connection.execute("pragma synchronous = extra")
    with mg.SyncClient(sqlite.url) as client, connection:
        client.submit(CHAIN, "a", connection=connection)
    connection.close()
    assert sqlite.counts() == (2, 1, 3)


def test_a_transaction_that_does_not_wait_for_its_commit_is_made_to(postgres: PostgresWorld) -> None:
    with mg.SyncClient(postgres.url) as client, psycopg.connect(postgres.url) as connection:
        connection.execute("set synchronous_commit = off")
        connection.commit()
        client.submit(CHAIN, "a", connection=connection)
        assert connection.execute("show synchronous_commit").fetchone() == ("on",)
        connection.commit()
        assert connection.execute("show synchronous_commit").fetchone() == ("off",)


def test_a_schema_that_is_too_old_or_gone(sqlite: SQLiteWorld, databases: Any) -> None:
    url = asyncio.run(databases.create())
    migrated(url)
    worlds = (
        (sqlite, sqlite3.connect(sqlite.path), "makegood_schema_version", "makegood_generation"),
        (PostgresWorld(url), psycopg.connect(url), "makegood.schema_version", "makegood.generation"),
    )
    for world, connection, versions, generation in worlds:
        with mg.SyncClient(world.url) as client:
            client.open()
            world.rows(f"delete from {versions} where version = {latest_version('sqlite')}")
            with pytest.raises(mg.SchemaMismatchError, match="makegood store migrate"):
                client.submit(CHAIN, "a", connection=connection)
            connection.rollback()
            world.rows(f"alter table {generation} rename to gone")
            with pytest.raises((mg.SchemaMismatchError, mg.TransactionError), match=r"migrate|may not write"):
                client.submit(CHAIN, "a", connection=connection)
            connection.execute(ORDER)  # the transaction is whole
            connection.commit()
            assert world.counts() == (1, 0, 0)
            if isinstance(world, PostgresWorld):
                world.rows("drop schema makegood cascade")
                with pytest.raises(mg.SchemaMismatchError, match="holds no tables of makegood"):
                    client.submit(CHAIN, "a", connection=connection)
        connection.close()
    asyncio.run(databases.drop(url))


def test_a_role_without_rights_is_told_which(postgres: PostgresWorld) -> None:
    def run(*statements: str) -> None:
        with psycopg.connect(postgres.url) as owner:
            for statement in statements:
                owner.execute(statement.encode())

    run("drop role if exists makegood_clerk", "create role makegood_clerk login password 'secret'")
    try:
        with (
            mg.SyncClient(postgres.url) as client,
            psycopg.connect(
                make_conninfo(postgres.url, user="makegood_clerk", password="secret")
            ) as connection,
        ):
            with pytest.raises(mg.TransactionError, match="grant usage on schema makegood") as error:
                client.submit(CHAIN, "a", connection=connection)
            for grant in str(error.value).split("`")[1::2]:
                run(f"{grant} to makegood_clerk")
            connection.rollback()
            client.submit(CHAIN, "a", connection=connection)
        assert postgres.counts() == (0, 1, 3)
    finally:
        run("drop owned by makegood_clerk", "drop role makegood_clerk")


def test_a_read_only_transaction(postgres: PostgresWorld) -> None:
    with psycopg.connect(postgres.url) as connection:
        connection.read_only = True
        refused(postgres, connection, "read-only")


def test_what_is_no_connection(sqlite: SQLiteWorld, postgres_url: str) -> None:
    engine = sa.create_engine(sqlite.url)
    refused(
        sqlite, engine, r"not a sqlalchemy\.engine\.base\.Engine: `with engine\.begin\(\) as connection:`"
    )
    plain = sqlite3.connect(sqlite.path)
    refused(sqlite, plain.cursor(), r"`cursor\.connection`")
    plain.close()
    refused(
        sqlite,
        object(),
        "connection= is an object, which is not supported: pass a connection of sqlite3, asyncpg",
    )
    refused(sqlite, "shop.db", "connection= is a str, which is not supported")
    other = create_async_engine(postgres_url.replace("postgresql:", "postgresql+asyncpg:"))
    refused(
        sqlite,
        other.connect(),
        r"AsyncConnection or AsyncSession, which wants to be awaited: use makegood\.Client",
    )


async def test_a_blocking_connection_may_be_used_in_an_event_loop(sqlite: SQLiteWorld) -> None:
    connection = sqlite3.connect(sqlite.path)
    async with mg.Client(sqlite.url) as client:
        with connection:
            await client.submit(CHAIN, "a", connection=connection)
    connection.close()
    assert sqlite.counts() == (0, 1, 3)


def test_an_error_half_way_leaves_nothing_that_could_be_committed(sqlite: SQLiteWorld) -> None:
    sqlite.rows(
        "create trigger full before insert on makegood_step when new.idx = 1 begin select raise(abort, 'disk full'); end"
    )
    connection = sqlite3.connect(sqlite.path)
    with mg.SyncClient(sqlite.url) as client, connection:
        connection.execute(ORDER)
        with pytest.raises(sqlite3.IntegrityError, match="disk full"):
            client.submit(CHAIN, "a", connection=connection)
    connection.close()
    assert sqlite.counts() == (1, 0, 0)


def test_a_writer_in_the_way_is_waited_for(sqlite: SQLiteWorld) -> None:
    """A look into the database before the first write would make SQLite refuse it, since somebody else committed after it."""
    other = sqlite3.connect(sqlite.path, isolation_level=None, check_same_thread=False)
    connection = sqlite3.connect(sqlite.path)
    threads: list[threading.Thread] = []

    def seen(sql: str) -> None:
        if "makegood_generation" in sql and not threads:
            threads.append(threading.Thread(target=other.execute, args=("commit",)))
            threads[0].start()

    with mg.SyncClient(sqlite.url) as client:
        client.open()
        connection.execute("begin")
        other.execute("begin immediate")
        other.execute(ORDER)
        connection.set_trace_callback(seen)
        client.submit(CHAIN, "a", connection=connection)
        connection.commit()
    threads[0].join()
    connection.close()
    other.close()
    assert sqlite.counts() == (1, 1, 3)


async def test_a_connection_of_asyncpg_outside_of_a_transaction_is_told_how(postgres: PostgresWorld) -> None:
    connection = await asyncpg.connect(postgres.url)
    async with mg.Client(postgres.url) as client:
        with pytest.raises(mg.TransactionError, match=r"async with connection\.transaction"):
            await client.submit(CHAIN, "a", connection=connection)
    await connection.close()


def test_a_savepoint_of_the_application_is_a_transaction_too(world: World) -> None:
    """What is rolled back to a savepoint is gone, the rest is committed."""
    driver = "sqlite+pysqlite" if isinstance(world, SQLiteWorld) else "postgresql+psycopg"
    engine = sa.create_engine(f"{driver}://{world.place}")
    with mg.SyncClient(world.url) as client, engine.begin() as connection:
        connection.execute(sa.text(ORDER))
        client.submit(CHAIN, "a", connection=connection)
        inner = connection.begin_nested()
        client.submit(CHAIN, "b", connection=connection)
        inner.rollback()
    engine.dispose()
    assert world.counts() == (1, 1, 3)


def test_the_first_call_of_a_client_may_come_while_the_caller_holds_the_lock(world: World) -> None:
    """A blocking client opens the store at its first call, and that must not wait for the transaction that it is part of."""
    with mg.SyncClient(world.url, migrate=True) as client:
        local = isinstance(world, SQLiteWorld)
        connection: Any = sqlite3.connect(world.place[1:]) if local else psycopg.connect(world.url)
        connection.execute(ORDER)
        task = client.submit(CHAIN, "a", connection=connection)
        connection.commit()
        connection.close()
        assert task.status().task.state == "pending"
        assert client.submit(CHAIN, "b").created, "the same client writes by itself, too"
