"""Nobody else's code runs as makegood: what another role creates in ``public`` is never met by a statement of ours."""

import asyncio
import base64
import re
from collections.abc import Iterator
from typing import Any

import asyncpg
import psycopg
import pytest

import makegood as mg
from makegood.base.postgres_session import OWN_PATH
from makegood.election import open_leases
from makegood.election.protocol import Fence
from makegood.messaging.outbox import ddl, open_outbox
from makegood.node.node import Node
from makegood.options import Options
from makegood.store.postgres import PostgresStore
from makegood.store.views import TaskView
from proofs.private_server import PrivateServer
from tests.postgres.shadowing_objects import FIRST, USUAL, lay
from tests.waiting import moment

pytestmark = pytest.mark.new_database

SECRET = "whsec_" + base64.b64encode(bytes(32)).decode()
SOON = Options(
    supervise_every="200ms",
    alerts_every="100ms",
    drain="5s",
    webhook_hosts="hooks.invalid",
    webhook_secret=SECRET,
)


@pytest.fixture(params=[FIRST, USUAL], ids=["public first", "usual path"])
def trap_url(
    request: pytest.FixtureRequest, server: PrivateServer, url: str, runner: asyncio.Runner
) -> Iterator[str]:
    """A database full of traps, on whose default path ``public`` stands."""
    runner.run(lay(url, request.param))
    yield url
    server.run("drop owned by mallory", database=url.rpartition("/")[2])


async def test_the_traps_are_sprung_by_what_is_not_exact(trap_url: str) -> None:
    connection = await asyncpg.connect(trap_url)
    with pytest.raises(asyncpg.RaiseError, match="trap: operator"):
        await connection.fetch("select 1::numeric * 2")
    await connection.close()


class Shop:
    """An app with all that a statement may be about: steps and undos that fail, a rate, an inbox, and notices to a queue."""

    def __init__(self) -> None:
        self.app = mg.App("shop")
        self.broken = {"stuck"}
        stock, payments = self.app.agent("stock"), self.app.agent("payments", rate="1000/s")

        @stock.action(complete_within="20s", retry=mg.NEVER)
        async def reserve(order: str) -> str:
            return f"hold of {order}"

        @reserve.undo
        async def release(order: str, *, result: str | None) -> None:
            if order in self.broken:
                raise mg.Permanent("the stock is closed")

        @payments.action(complete_within="20s", undo=mg.NOTHING)
        async def charge(order: str, hold: str) -> str:
            if order in ("bad", "stuck"):
                raise mg.Permanent("card refused")
            return f"{hold} charged"

        @self.app.workflow
        def place_order(order: str) -> str:
            receipt = charge(order, reserve(order))
            mg.wait_for("approval", str, timeout=0, otherwise="none")
            return receipt

        @self.app.inbox("orders")
        def accept(order: str, tx: mg.Transaction) -> mg.Plan[str]:
            tx.execute("insert into shop_order (id) values ($1)", (order,))
            return place_order.plan(order).with_(key=order, reply_to="queue:web")

        self.place_order = place_order


async def own_table(url: str) -> None:
    """Make a table of the application's own, where its own default path finds it."""
    connection = await asyncpg.connect(url)
    await connection.execute("create table public.shop_order (id pg_catalog.varchar)")
    await connection.close()


async def ended(client: mg.Client, key: str) -> TaskView:
    """Return the task with this key once it has ended."""
    async with asyncio.timeout(60):
        while True:
            for view in await client.find():
                if view.key == key and view.state in ("processed", "undone"):
                    return view
            await moment()


async def test_a_shop_runs_between_the_traps(trap_url: str) -> None:
    """Orders, failures, undos, operators, queues, the inbox with a table of the user's: no trap is sprung."""
    await own_table(trap_url)
    shop = Shop()
    async with Node(shop.app, trap_url, options=SOON) as node:
        client = node.client
        good = await client.submit(shop.place_order, "good", key="good", reply_to="queue:web")
        again = await client.submit(shop.place_order, "good", key="good")
        assert again.id == good.id
        assert await good.result(timeout=60) == "hold of good charged"
        bad = await client.submit(shop.place_order, "bad", reply_to="https://hooks.invalid/x")
        with pytest.raises(mg.TaskUndone):
            await bad.result(timeout=60)
        stuck_task = await client.submit(shop.place_order, "stuck")
        with pytest.raises(mg.TaskInError):
            await stuck_task.result(timeout=60)
        shop.broken.clear()
        await stuck_task.undo(why="the stock is open")
        with pytest.raises(mg.TaskUndone):
            await stuck_task.result(timeout=60)
        await client.send("orders", "by message", id="m-1")
        assert (await ended(client, "by message")).state == "processed"
        web = client.queue("web")
        assert {m.kind for m in await web.receive(10, timeout="60s")}
        await client.alerts()
        assert await client.audit()
        assert await client.queues()
        store = node.store
        assert await store.admin.examine()
        await store.admin.check()
        assert (await store.admin.schema()).version
        await store.admin.prune(0.0, 0, 100)


async def test_every_connection_of_the_store_sets_its_path_before_anything_else(url: str) -> None:
    """So nothing in another schema can be met, whatever a statement says."""
    await own_table(url)
    firsts: list[str] = []

    async def driver(*args: Any, **options: Any) -> Any:
        connection = await asyncpg.connect(*args, **options)
        queries: list[str] = []

        def note(record: Any) -> None:
            if not queries:
                firsts.append(record.query)
            queries.append(record.query)

        connection.add_query_logger(note)
        return connection

    shop = Shop()
    store = PostgresStore(url, driver=driver)
    await store.open(migrate=True)
    async with Node(shop.app, store, options=SOON) as node:
        await (await node.client.submit(shop.place_order, "good")).result(timeout=60)
        await node.client.send("orders", "by message", id="m-1")
        await ended(node.client, "by message")
        await store.admin.examine()
        await store.admin.check()
        await store.admin.schema()
    await store.close()
    assert len(firsts) > 8
    # Whether a proxy is in between is asked before anything is set, and with exact names.
    assert {re.sub(r"\) \d+\)", ") PID)", first) for first in firsts} <= {
        OWN_PATH,
        "select 1 operator(pg_catalog./) (pg_catalog.pg_backend_pid() operator(pg_catalog.=) PID)::int",
    }


async def test_a_submission_in_the_callers_transaction_springs_none(trap_url: str) -> None:
    """On a connection with the caller's own path: new tasks, a known key, notices to a queue and to a webhook; on two drivers."""
    await own_table(trap_url)
    shop = Shop()
    async with mg.Client(trap_url) as client:
        connection = await asyncpg.connect(trap_url)
        for n, to in enumerate((None, "queue:web", "https://hooks.invalid/x")):
            async with connection.transaction():
                await connection.execute(f"insert into shop_order (id) values ('{n}')")
                for _ in range(2):
                    task = await client.submit(
                        shop.place_order, "a", key=f"k-{n}", reply_to=to, connection=connection
                    )
                    assert task.id
                    signal = await client.signal(task, "approval", "yes", id="s-1", connection=connection)
                    assert signal.task == task.id
                    by_key: Any = {"key": f"k-{n}", "connection": connection}
                    assert (
                        await client.signal(shop.place_order, "approval", "no", id="s-1", **by_key)
                    ).conflict
        await connection.close()


def test_nor_on_a_driver_that_blocks(trap_url: str, runner: asyncio.Runner) -> None:
    runner.run(own_table(trap_url))
    shop = Shop()
    with mg.SyncClient(trap_url) as client, psycopg.connect(trap_url) as connection:
        connection.execute("insert into shop_order (id) values ('4')")
        for _ in range(2):
            task = client.submit(
                shop.place_order, "a", key="k-4", reply_to="queue:web", connection=connection
            )
            assert task.id


async def test_messages_in_the_callers_transaction_spring_none(trap_url: str) -> None:
    """Sent (new, known with the same value, with another one, with the queue full) and acknowledged."""
    async with mg.Client(trap_url, queue_limit=2) as client:
        connection = await asyncpg.connect(trap_url)
        async with connection.transaction():
            answers = [
                await client.send("orders", value, id="m-1", delay=0, expires="1h", connection=connection)
                for value in ("a", "a", "b")
            ]
            await client.send("orders", "c", headers={"x": "y"}, reply_to="queue:web", connection=connection)
            with pytest.raises(mg.QueueFullError):
                await client.send("orders", "d", connection=connection)
        assert [(one.created, one.conflict) for one in answers] == [
            (True, False),
            (False, False),
            (False, True),
        ]
        queue = client.queue("orders")
        for message in await queue.receive(2, timeout="60s"):
            async with connection.transaction():
                assert await queue.acknowledge(message, connection=connection)
        assert not await client.messages("orders")
        await connection.close()


async def test_an_election_between_the_traps(trap_url: str) -> None:
    """Its connections, and the guard in a transaction of the leader's own."""
    async with open_leases(trap_url) as leases:
        grant = await leases.acquire("cron", "me", "n1", 30.0)
        assert grant is not None
        assert await leases.renew(grant)
        assert await leases.acquire("cron", "you", "n2", 30.0) is None
        view = await leases.read("cron")
        assert view is not None
        assert view.holder == "me"
        connection = await asyncpg.connect(trap_url)
        async with connection.transaction():
            fence: Fence = getattr(leases, "fence")(grant)  # noqa: B009 - only some stores have one
            sql = fence.sql
            for n, name in enumerate(("name", "nonce", "epoch"), 1):
                sql = sql.replace(f":{name}", f"${n}")
            values = [fence.values[name] for name in ("name", "nonce", "epoch")]
            assert await connection.fetchval(sql, *values) == 1
        await connection.close()
        await leases.release(grant)
        assert await leases.past_terms("cron")


async def test_an_outbox_between_the_traps(trap_url: str) -> None:
    """Its table is found by the role's own path, in whatever schema it is, and its statements meet no trap."""
    connection = await asyncpg.connect(trap_url)
    await connection.execute(
        'create schema "An App"; set search_path = "An App", pg_catalog;'
        + ddl(trap_url)
        + "insert into makegood_outbox (key, queue, payload) values ('a', 'orders', '1'), ('b', 'orders', '2')"
    )
    name = trap_url.rpartition("/")[2]
    path = await connection.fetchval(
        "select reset_val from pg_catalog.pg_settings where name operator(pg_catalog.=) 'search_path'"
    )
    await connection.execute(f'alter database "{name}" set search_path = "An App", {path}')
    await connection.close()
    outbox = open_outbox(trap_url)
    await outbox.open()
    async with outbox.take(10, ("other",)) as taking:
        assert [entry.key for entry in taking.entries] == ["a", "b"]
        await taking.settle([taking.entries[0].seq], [(taking.entries[1].seq, "no")])
    async with outbox.take(10, ()) as taking:
        assert list(taking.entries) == []
    await outbox.close()


async def test_the_name_of_a_table_is_never_run(url: str, db: Any) -> None:
    """Whoever may create in the schema names a table as a piece of SQL: it is counted like any other."""
    name = 'generation" where pg_catalog.pg_sleep(0) is not null--'
    await db.execute(f'create table makegood."{name.replace(chr(34), chr(34) * 2)}" (a int)')
    store = PostgresStore(url)
    status = await store.admin.schema()
    assert status.rows[name] == 0
    await store.close()
