"""A key, or the id of a signal, that a transaction under way is just inserting holds up nobody who does not use it."""

import asyncio
from typing import Any

import asyncpg

import makegood as mg
from makegood import Client
from makegood.store.postgres import PostgresStore

shop = mg.App("shop")
approval = shop.signal("approval", bool)


@shop.workflow
def travel(place: str) -> str:
    mg.wait_for(approval)
    return place


def together(*calls: Any) -> tuple[asyncio.Task[Any], ...]:
    """Make calls at the same time, so that they are written together."""
    return tuple(asyncio.create_task(call) for call in calls)


async def test_submissions_do_not_wait_for_the_key_of_another_one(store: PostgresStore, url: str) -> None:
    other = await asyncpg.connect(url)
    async with Client(store) as client:
        async with other.transaction():
            await client.submit(travel, "Rome", key="held", connection=other)
            again, *others = together(
                client.submit(travel, "Rome", key="held"),
                *(client.submit(travel, f"{n}", key=f"{n}") for n in range(3)),
            )
            assert [(await task).created for task in others] == [True, True, True]
            assert (await client.submit(travel, "Oslo")).created
            assert not again.done()
        assert not (await again).created
    await other.close()


async def test_signals_do_not_wait_for_the_id_of_another_one(store: PostgresStore, url: str) -> None:
    other = await asyncpg.connect(url)
    async with Client(store) as client:
        tasks = [await client.submit(travel, place) for place in ("Rome", "Oslo", "Bern")]
        transaction = other.transaction()
        await transaction.start()
        await client.signal(tasks[0], approval, True, id="click", connection=other)
        again, *others = together(*(client.signal(task, approval, True, id="click") for task in tasks))
        assert [(await signal).created for signal in others] == [True, True]
        assert not again.done()
        await transaction.rollback()
        assert (await again).created
    await other.close()
