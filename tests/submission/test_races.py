"""What happens between two transactions, in a process that is killed, and in a store's own transaction."""

import asyncio
import contextlib
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import asyncpg
import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

import makegood as mg
from makegood.transactions import recognise
from makegood.transactions.caller import at_once, spell
from makegood.transactions.drivers import commits_at_once
from makegood.transactions.libraries import DIALECTS
from makegood.transactions.transaction import Transaction
from tests.actors.noop_apps import chain_app
from tests.conformance.worlds import still_waits
from tests.submission.application_servers import serving
from tests.submission.connections import ORDER, PostgresWorld, SQLiteWorld, World

_, CHAIN = chain_app(3)


@pytest.fixture
def postgres(postgres_url: str) -> PostgresWorld:
    """An empty database."""
    return PostgresWorld(postgres_url)


@pytest.fixture
def sqlite(tmp_path: Path) -> SQLiteWorld:
    """An empty file."""
    return SQLiteWorld(tmp_path / "shop.db")


@pytest.mark.parametrize("with_commit", [True, False])
async def test_who_comes_second_with_a_key_waits_for_the_first(
    postgres: PostgresWorld, with_commit: bool
) -> None:
    """And gets the first one's task, or creates his own: never two, never an error."""
    one, two = await asyncpg.connect(postgres.url), await asyncpg.connect(postgres.url)
    async with mg.Client(postgres.url) as client:
        first, second = one.transaction(), two.transaction()
        await first.start()
        await second.start()
        task = await client.submit(CHAIN, "a", key="k", connection=one)
        waiting = asyncio.create_task(client.submit(CHAIN, "a", key="k", connection=two))
        assert await still_waits(waiting)
        await (first.commit() if with_commit else first.rollback())
        again = await asyncio.wait_for(waiting, 60)
        assert (again.id == task.id, again.created) == (with_commit, not with_commit)
        await two.execute(ORDER)
        await second.commit()
    await one.close()
    await two.close()
    assert postgres.counts() == (1, 1, 3)


async def test_a_key_used_since_a_snapshot_is_the_drivers_own_error(postgres: PostgresWorld) -> None:
    """The caller chose an isolation at which the server refuses that; it reaches him as it is, and again is well."""
    connection = await asyncpg.connect(postgres.url)
    async with mg.Client(postgres.url) as client:
        transaction = connection.transaction(isolation="repeatable_read")
        await transaction.start()
        await connection.fetch("select * from orders")
        before = await client.submit(CHAIN, "a", key="k")
        with pytest.raises(asyncpg.SerializationError):
            await client.submit(CHAIN, "a", key="k", connection=connection)
        await transaction.rollback()
        async with connection.transaction(isolation="repeatable_read"):
            task = await client.submit(CHAIN, "a", key="k", connection=connection)
        assert task.id == before.id
    await connection.close()


class Base(DeclarativeBase):
    """The application's tables."""


class Order(Base):
    """One of them."""

    __tablename__ = "orders"
    id: Mapped[str] = mapped_column(primary_key=True)


def test_what_a_session_holds_back_is_written_before_the_task(sqlite: SQLiteWorld) -> None:
    """So that what is wrong with it is told before anything of the task is there."""
    sqlite.rows("drop table orders")
    engine = sa.create_engine(sqlite.url)
    Base.metadata.create_all(engine)
    sqlite.rows(ORDER)
    with mg.SyncClient(sqlite.url) as client, Session(engine, autoflush=False) as session:
        session.add(Order(id="o"))
        with pytest.raises(IntegrityError, match=r"orders\.id"):
            client.submit(CHAIN, "a", connection=session)
        session.rollback()
        session.add(Order(id="p"))
        client.submit(CHAIN, "a", connection=session)
        session.commit()
    engine.dispose()
    assert sqlite.counts() == (2, 1, 3)


KILLED = """
import sys
import makegood as mg
from tests.actors.noop_apps import chain_app

url = sys.argv[1]
if url.startswith("sqlite"):
    import sqlite3
    connection = sqlite3.connect(url.removeprefix("sqlite:///"))
else:
    import psycopg
    connection = psycopg.connect(url)
client = mg.SyncClient(url)
connection.execute("insert into orders (id) values ('o')")
client.submit(chain_app(3)[1], "a", key="k", connection=connection)
print("written", flush=True)
sys.stdin.read()
"""


def test_a_process_that_is_killed_before_its_commit_leaves_nothing(world: World, tmp_path: Path) -> None:
    (tmp_path / "killed.py").write_text(KILLED)
    with serving(tmp_path, "killed", world.url) as process:
        process.heard("written")
        process.kill()
        process.process.wait(120)
        assert world.counts() == (0, 0, 0)
        with mg.SyncClient(world.url) as client:
            assert client.submit(CHAIN, "b", key="k").created


def test_a_first_call_in_another_thread_holds_up_no_transaction(sqlite: SQLiteWorld) -> None:
    """A listener opens the client while a request has the file locked: the store is open for both before that is committed."""
    client = mg.SyncClient(sqlite.url)
    connection = sqlite3.connect(sqlite.url.removeprefix("sqlite:///"))
    with ThreadPoolExecutor() as threads, client:
        with connection:
            connection.execute(ORDER)
            assert threads.submit(client.queues).result(60) == []
            listening = threads.submit(client.queue("web-1").receive, timeout=60)
            task = client.submit(CHAIN, "a", key="k", reply_to="queue:web-1", connection=connection)
        (message,) = listening.result(60)
        assert message.value["data"]["task"] == task.id
    connection.close()
    assert sqlite.counts() == (1, 1, 3)


async def test_a_transaction_as_code_of_the_users_sees_it(postgres: PostgresWorld) -> None:
    """Plain functions run beside the event loop on which the connection lives; coroutines on it."""
    connection = await asyncpg.connect(postgres.url)
    async with mg.Client(postgres.url) as client, connection.transaction():
        tx = Transaction(recognise(connection), asyncio.get_running_loop())
        assert await asyncio.to_thread(tx.execute, "insert into orders values ($1) returning id", ["o"]) == [
            ("o",)
        ]
        with pytest.raises(mg.TransactionError, match=r"await tx\.execute_async"):
            tx.execute("select 1")
        assert await tx.execute_async("select count(*) from orders") == [(1,)]
        assert (await client.submit(CHAIN, "a", connection=tx)).created
    await connection.close()
    assert postgres.counts() == (1, 1, 3)


def test_a_blocking_transaction_as_code_of_the_users_sees_it(sqlite: SQLiteWorld) -> None:
    connection = sqlite3.connect(sqlite.path)
    tx = Transaction(recognise(connection))
    with mg.SyncClient(sqlite.url) as client, connection:
        assert tx.execute("insert into orders values (?)", ("o",)) == []
        client.submit(CHAIN, "a", connection=tx)
        assert tx.execute("select count(*) from orders") == [(1,)]
        assert not commits_at_once(connection)
    connection.close()
    assert sqlite.counts() == (1, 1, 3)


def test_marks_and_dialects() -> None:
    assert spell("a ? b ?", "qmark") == "a ? b ?"
    assert spell("a ? b ?", "numeric") == "a :1 b :2"
    assert set(DIALECTS.values()) == {"sqlite", "postgres"}


async def test_work_that_waits_is_a_defect_and_told_as_one() -> None:
    with pytest.raises(RuntimeError, match="a defect of makegood"):
        at_once(asyncio.sleep(0))


def test_psycopg_marks_are_not_mistaken_for_values_of_ours(postgres: PostgresWorld) -> None:
    """A key that looks like a mark travels as a value."""
    with mg.SyncClient(postgres.url) as client, psycopg.connect(postgres.url) as connection:
        client.submit(CHAIN, "100 %s ?", key="%(a)s ? $1", connection=connection)
    assert postgres.rows("select key from {task}") == [("%(a)s ? $1",)]


def test_what_failed_in_a_pipeline_before_is_raised_as_the_drivers_own_error(postgres: PostgresWorld) -> None:
    """It is on its way when the task is submitted, and known only then; nothing of the task is left."""
    postgres.rows("create unique index on orders (id)")
    postgres.rows(ORDER)
    with (
        mg.SyncClient(postgres.url) as client,
        psycopg.connect(postgres.url) as connection,
        contextlib.suppress(psycopg.errors.PipelineAborted),
        connection.pipeline(),
    ):
        connection.execute(ORDER)
        with pytest.raises(psycopg.errors.UniqueViolation):
            client.submit(CHAIN, "a", connection=connection)
    postgres.rows("drop index orders_id_idx")
    assert postgres.counts() == (1, 0, 0)
