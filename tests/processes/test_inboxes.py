"""Submission processes and relays that die: however often a message is sent and delivered, one task comes of it, with its order."""

import contextlib
import importlib
import itertools
import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest

from makegood.messaging.outbox import ddl
from makegood.store.queue_records import Outgoing
from makegood.store.views import Filter
from makegood.transactions import Caller
from tests.processes.conftest import another_database
from tests.processes.world import World

QUEUES = ("orders", "waiting-orders")
POINTS = ("received", "acknowledging", "accepted")


async def prepare(world: World) -> None:
    """Make the shop's own table; nothing keeps an order from standing in it twice."""

    async def work(caller: Caller) -> None:
        await caller.execute("create table fault_order (id text, pid integer)")

    await world.client.store.transact(work, waits=False)


async def orders(world: World) -> list[str]:
    """Return the shop's own orders."""

    async def work(caller: Caller) -> list[str]:
        return [row[0] for row in await caller.execute("select id from fault_order order by id")]

    return await world.client.store.transact(work, waits=False)


async def test_inboxes_killed_around_their_transactions(world: World) -> None:
    """Both kinds of handlers, ``def`` and ``async def``, in one process."""
    async with world:
        await prepare(world)
        victims = [world.start(point, "inbox", fault=f"{point}:kill") for point in POINTS]
        await world.started(*victims)
        numbers, ids = itertools.count(1), []
        while any(child.alive() for child in victims):  # until each has had one
            id_ = f"o-{next(numbers):04}"
            ids.append(id_)
            queue = QUEUES[len(ids) % 2]
            message = Outgoing(queue=queue, id=id_, body=f'{{"id":"{id_}"}}'.encode(), remember=600.0)
            await world.client.store.queues.send_messages([message] * 10, 10_000)
        for child, point in zip(victims, POINTS, strict=True):
            await world.dies(child, point)
        await world.started(*(world.start(f"later-{n}", "inbox") for n in range(2)))

        async def empty() -> bool:
            return not await world.client.messages()

        await world.until(empty, "the queue is empty")
        assert await orders(world) == ids
        tasks = await world.client.find(Filter(limit=10_000))
        assert len(tasks) == len(ids)
        assert await world.alerts() == []


@pytest.fixture
def outbox(world: World, request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a database of the application's own, of the store's kind."""
    if world.url.startswith("sqlite"):
        yield f"sqlite:///{world.folder}/app.db"
    else:
        yield another_database(request.getfixturevalue("shared_server"))


async def execute(url: str, *statements: str) -> list[Any]:
    """Execute statements in the application's database; returns the rows of the last one."""
    rows: list[Any] = []
    if url.startswith("sqlite"):
        with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=60)) as file:
            for statement in statements:
                rows = file.execute(statement).fetchall()
            file.commit()
            return rows
    connection = await importlib.import_module("asyncpg").connect(url)
    try:
        for statement in statements:
            rows = await connection.fetch(statement)
        return rows
    finally:
        await connection.close()


async def test_relays_killed_between_take_over_and_deletion(world: World, outbox: str) -> None:
    async with world:
        await execute(outbox, ddl(outbox))
        victims = [world.start(f"doomed-{n}", outbox=outbox, fault="carried:kill") for n in range(3)]
        await world.started(*victims)
        keys: list[str] = []
        while any(child.alive() for child in victims):  # until each has had one
            keys.append(f"o-{len(keys):04}")
            await execute(
                outbox,
                f"insert into makegood_outbox (key, queue, payload) values ('{keys[-1]}', 'orders', '1')",
            )
        for child in victims:
            await world.dies(child, "carried")
        assert await execute(outbox, "select key from makegood_outbox"), (
            "what the dead had carried is still there"
        )
        await world.started(*(world.start(f"later-{n}", outbox=outbox) for n in range(2)))

        async def empty() -> bool:
            return not await execute(outbox, "select key from makegood_outbox")

        await world.until(empty, "the outbox is empty")
        views = await world.client.messages("orders", limit=10_000)
        # Each of several relays skips the entries that another one holds.
        assert sorted(view.message.id for view in views) == keys
        again = [
            id_
            for name in world.children
            for entry in world.children[name].trace("sent")
            for id_, is_new in entry["messages"]
            if not is_new
        ]
        assert again, "nothing was carried twice: the fault was none"
