"""A message that is sent, or acknowledged, in the caller's own transaction stands or falls with it: on every kind of connection."""

import asyncio
import contextlib
import sqlite3
from typing import Any

import asyncpg
import psycopg
import pytest
from psycopg.conninfo import make_conninfo

import makegood as mg
from makegood.model.queue_message import QueueMessage
from makegood.store.postgres import PostgresStore
from makegood.store.sqlite import SQLiteStore
from tests.submission.connections import ORDER, Door, Player, PostgresWorld, SQLiteWorld, World


class BackError(Exception):
    """What the application rolls back with."""


def orders(world: World) -> int:
    """Return how many orders are committed."""
    return world.counts()[0]


async def received(shop: Player, **options: Any) -> list[QueueMessage]:
    """Receive what is there."""
    messages: list[QueueMessage] = await shop.settled(
        shop.client.queue("web", **options).receive(10, timeout="0s")
    )
    return messages


def test_a_message_is_sent_with_the_callers_row_or_not_at_all(door: Door) -> None:
    async def story(shop: Player) -> None:
        options = {
            "id": "m-1",
            "headers": {"who": "ann"},
            "reply_to": "queue:desk",
            "correlation_id": "c",
            "kind": "k",
        }
        with contextlib.suppress(BackError):
            async with door.begin() as connection:
                await door.run(connection, ORDER)
                assert (
                    await shop.settled(shop.client.send("web", {"n": 1}, connection=connection, **options))
                ).created
                raise BackError
        assert (orders(shop.world), await received(shop)) == (0, [])
        async with door.begin() as connection:
            answer = await shop.settled(shop.client.send("web", {"n": 1}, connection=connection, **options))
            assert (answer.id, answer.created) == ("m-1", True)
            again = await shop.settled(shop.client.send("web", {"n": 1}, connection=connection, id="m-1"))
            other = await shop.settled(shop.client.send("web", {"n": 2}, connection=connection, id="m-1"))
            assert (again.created, again.conflict, other.conflict) == (False, False, True)
            late = await shop.settled(shop.client.send("web", "late", delay="1h", connection=connection))
            assert late.created
            await door.run(connection, ORDER)
        (message,) = await received(shop)
        assert orders(shop.world) == 1
        assert (message.value, message.headers, message.reply_to) == ({"n": 1}, {"who": "ann"}, "queue:desk")
        assert (message.correlation_id, message.kind, message.tries) == ("c", "k", 1)

    door.play(story)


def test_a_message_is_acknowledged_with_the_callers_row_or_comes_again(door: Door) -> None:
    async def story(shop: Player) -> None:
        queue = shop.client.queue("web", lease="1h")
        await shop.settled(shop.client.send("web", 1, id="given"))
        await shop.settled(shop.client.send("web", 2))
        first, second = await shop.settled(queue.receive(10))
        with contextlib.suppress(BackError):
            async with door.begin() as connection:
                await door.run(connection, ORDER)
                assert await shop.settled(queue.acknowledge(first, second, connection=connection))
                raise BackError
        assert shop.world.counts()[0] == 0
        assert await shop.settled(queue.give_back(first)), "it is still its receiver's"
        (again,) = await shop.settled(queue.receive())
        assert (again.id, again.tries) == ("given", 2)
        async with door.begin() as connection:
            await door.run(connection, ORDER)
            assert not await shop.settled(queue.acknowledge(first, connection=connection)), "another has it"
            assert await shop.settled(queue.acknowledge(again, second, connection=connection))
            assert not await shop.settled(queue.acknowledge(again, connection=connection)), "it is gone"
            await door.run(connection, ORDER)
        assert orders(shop.world) == 2, "the transaction was whole"
        assert await shop.settled(shop.client.messages("web")) == []
        assert not (await shop.settled(shop.client.send("web", 1, id="given"))).created, "it is remembered"

    door.play(story)


def test_a_full_queue_leaves_the_transaction_as_it_was(door: Door) -> None:
    async def story(shop: Player) -> None:
        await shop.settled(shop.client.send("web", 1, id="a"))
        await shop.settled(shop.client.send("web", 2, id="b"))
        async with door.begin() as connection:
            with pytest.raises(mg.QueueFullError, match="queue web is full") as full:
                await shop.settled(shop.client.send("web", 3, connection=connection))
            assert (full.value.limit, full.value.room) == (2, 0)
            answer = await shop.settled(shop.client.send("web", 2, id="b", connection=connection))
            assert not answer.created, "what is there needs no room"
            with pytest.raises(mg.ConfigError):
                await shop.settled(shop.client.send("web", 1, id="\x00", connection=connection))
            await door.run(connection, ORDER)
        assert orders(shop.world) == 1
        shop.world.rows("update {message} set expires_at = 1 where id = 'a'")
        async with door.begin() as connection:
            assert (await shop.settled(shop.client.send("web", 4, id="d", connection=connection))).created
        assert [m.id for m in await received(shop)] == ["b", "d"], "what has expired takes no room"

    door.play(story, queue_limit=2)


def test_without_an_open_transaction_nothing_is_sent_or_acknowledged(door: Door) -> None:
    async def story(shop: Player) -> None:
        await shop.settled(shop.client.send("web", 1, id="a"))
        queue = shop.client.queue("web", lease="1h")
        (message,) = await shop.settled(queue.receive())
        async with door.loose() as connection:
            with pytest.raises(mg.TransactionError):
                await shop.settled(shop.client.send("web", 2, id="b", connection=connection))
            with pytest.raises(mg.TransactionError):
                await shop.settled(queue.acknowledge(message, connection=connection))
        assert [view.message.id for view in await shop.settled(shop.client.messages("web"))] == ["a"]

    door.play(story)


async def test_the_commit_wakes_a_receiver_that_never_looks_by_itself(world: World) -> None:
    """In another process, as far as the database can tell."""
    local = isinstance(world, SQLiteWorld)
    stores: list[Any] = [
        SQLiteStore(world.path, poll=None) if isinstance(world, SQLiteWorld) else PostgresStore(world.url)
        for _ in range(2)
    ]
    for store in stores:
        await store.open()
    async with mg.Client(stores[0]) as client, mg.Client(stores[1], poll_every="1h") as reader:
        waiting = asyncio.create_task(reader.queue("web").receive())
        await asyncio.wait([waiting], timeout=0.2)  # it looks once by itself, before or after
        for n in range(100):
            if local:
                with contextlib.closing(sqlite3.connect(world.place[1:])) as connection, connection:
                    await client.send("web", n, connection=connection)
            else:
                other = await asyncpg.connect(world.url)
                async with other.transaction():
                    await client.send("web", n, connection=other)
                await other.close()
            if (await asyncio.wait([waiting], timeout=5))[0]:
                break
        (message,) = await waiting
        assert message.value == 0
    for store in stores:
        await store.close()


async def test_an_inbox_sends_in_its_own_transaction(world: World) -> None:
    """What its function sends is there with the task, or not at all."""
    app = mg.App("shop")

    @app.agent("desk").action(complete_within="30s", undo=mg.NOTHING)
    def pack(order: str) -> str:
        return order

    @app.workflow()
    def place(order: str) -> str:
        return pack(order)

    clients: dict[str, mg.Client] = {}
    tries: list[int] = []

    @app.inbox("orders")
    async def accept(order: str, tx: mg.Transaction) -> mg.Plan[str]:
        tries.append(tx.message.tries)
        await clients["client"].send("desk", f"delivery {len(tries)}", connection=tx)
        if len(tries) == 1:
            raise mg.Later("1ms")
        return place.plan(order)

    async with mg.Node(app, world.url, roles=("scheduler", "agent", "inbox")) as node:
        clients["client"] = node.client
        await node.client.send("orders", "o-1")
        (message,) = await node.client.queue("desk").receive(10, timeout="60s")
        assert message.value == "delivery 2"


def test_a_role_without_rights_on_messages_is_refused_and_told_which(postgres_url: str) -> None:
    world = PostgresWorld(postgres_url)
    world.rows(
        "drop role if exists makegood_reader; create role makegood_reader login password 'secret';"
        "grant usage on schema makegood to makegood_reader; grant select on all tables in schema makegood to makegood_reader;"
        "grant insert on makegood.task, makegood.step to makegood_reader; grant select, insert on orders to makegood_reader"
    )
    try:
        with (
            mg.SyncClient(world.url) as client,
            psycopg.connect(
                make_conninfo(world.url, user="makegood_reader", password="secret")
            ) as connection,
        ):
            client.send("web", 1)
            queue = client.queue("web")
            (message,) = queue.receive()
            with pytest.raises(mg.TransactionError, match=r"`grant select, insert on makegood\.message`"):
                client.send("web", 2, connection=connection)
            with pytest.raises(
                mg.TransactionError, match=r"`grant execute on function makegood\.settle_messages`"
            ):
                queue.acknowledge(message, connection=connection)
            connection.execute(ORDER)
        assert orders(world) == 1
    finally:
        world.rows("drop owned by makegood_reader; drop role makegood_reader")
