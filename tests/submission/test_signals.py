"""A signal that is sent in the caller's own transaction stands or falls with it: on every kind of connection."""

import asyncio
import contextlib
import random
import sqlite3
from typing import Any

import asyncpg
import pytest

import makegood as mg
from makegood.store import open_store
from makegood.store.sqlite import SQLiteStore
from makegood.store.sqlite.joined_watch import JoinedWatch, RowKey
from makegood.store.sqlite.transaction import Action
from makegood.testing.simulator.loop import WorldLoop
from tests.submission.connections import ORDER, Door, Player, SQLiteWorld, World

shop = mg.App("shop")
approval = shop.signal("approval", bool)


@shop.workflow
def travel(place: str) -> str:
    mg.wait_for(approval)
    return place


@shop.workflow
def walk(place: str) -> str:
    return place


class BackError(Exception):
    """What the application rolls back with."""


def rows_of(world: World) -> tuple[int, int, int]:
    """Return how many orders, signals and messages to tasks are committed."""
    row = world.rows(
        "select (select count(*) from orders), (select count(*) from {signal}), (select count(*) from {inbox})"
    )
    return tuple(row[0])


def test_a_signal_is_sent_with_the_callers_row_or_not_at_all(door: Door) -> None:
    async def story(player: Player) -> None:
        client: Any = player.client
        task = await player.settled(client.submit(travel, "Rome", key="t-1"))
        with contextlib.suppress(BackError):
            async with door.begin() as connection:
                await door.run(connection, ORDER)
                assert (
                    await player.settled(client.signal(task, approval, True, connection=connection))
                ).created
                raise BackError
        assert rows_of(player.world) == (0, 0, 0)
        async with door.begin() as connection:
            options = {"id": "klick-é-\U0001f600", "connection": connection}
            answer = await player.settled(client.signal(travel, approval, True, key="t-1", **options))
            assert (answer.id, answer.created, answer.task) == (options["id"], True, task.id)
            again = await player.settled(client.signal(task.id, "approval", True, **options))
            other = await player.settled(task.signal(approval, False, **options))
            assert (again.created, again.conflict, other.created, other.conflict) == (
                False,
                False,
                False,
                True,
            )
            await door.run(connection, ORDER)
        assert rows_of(player.world) == (1, 1, 1)
        (view,) = (await player.settled(task.status())).signals
        assert (view.name, view.id, view.used) == ("approval", options["id"], None)

    door.play(story)


def test_submit_and_signal_in_one_transaction(door: Door) -> None:
    """Signal-with-start: both are known by their ids, so that the whole may be done again."""

    async def story(player: Player) -> None:
        client: Any = player.client
        for is_new in (True, False):
            async with door.begin() as connection:
                task = await player.settled(client.submit(travel, "Rome", key="t-1", connection=connection))
                answer = await player.settled(
                    client.signal(travel, approval, True, key="t-1", id="first", connection=connection)
                )
                assert (task.created, answer.created) == (is_new, is_new)
        assert rows_of(player.world) == (0, 1, 1)

    door.play(story)


def test_a_refused_signal_leaves_the_transaction_as_it_was(door: Door) -> None:
    async def story(player: Player) -> None:
        client: Any = player.client
        task = await player.settled(client.submit(travel, "Rome", key="t-1"))
        player.world.rows("update {task} set state = 'undone'")
        await player.settled(client.submit(walk, "Rome", key="t-1"))
        async with door.begin() as connection:
            with pytest.raises(mg.SignalRefused, match=r"shop\.walk is an mg\.wait_for"):
                await player.settled(client.signal(walk, approval, True, key="t-1", connection=connection))
            with pytest.raises(mg.SignalRefused, match="the task had ended: undone; resubmit it first"):
                await player.settled(client.signal(task, approval, True, connection=connection))
            with pytest.raises(mg.TaskNotFoundError, match="submit it under this key first"):
                await player.settled(client.signal(travel, approval, True, key="t-2", connection=connection))
            with pytest.raises(
                mg.PayloadError, match="the value of signal approval is str, its annotation says bool"
            ):
                await player.settled(client.signal(task, approval, "yes", connection=connection))
            with pytest.raises(mg.ConfigError, match="leave out connection="):
                await player.settled(client.signal(task, approval, True, why="asked", connection=connection))
            await door.run(connection, ORDER)
        assert rows_of(player.world) == (1, 0, 0)

    door.play(story)


async def test_the_commit_of_a_signal_wakes_whoever_looks_for_messages(world: World) -> None:
    """Of another process, which never looks by itself; however late the commit is."""
    store = SQLiteStore(world.path, poll=None) if isinstance(world, SQLiteWorld) else open_store(world.url)
    beside = SQLiteStore(world.path, poll=None) if isinstance(world, SQLiteWorld) else open_store(world.url)
    await store.open()
    await beside.open()
    async with mg.Client(beside) as client:
        task = await client.submit(travel, "Rome")
        bell = asyncio.Event()
        stop = store.subscribe("inbox", bell.set)
        if isinstance(world, SQLiteWorld):
            with contextlib.closing(sqlite3.connect(world.path)) as connection, connection:
                await client.signal(task, approval, True, connection=connection)
        else:
            other = await asyncpg.connect(world.url)
            async with other.transaction():
                await client.signal(task, approval, True, connection=other)
                await asyncio.sleep(0)
                assert not bell.is_set()
            await other.close()
        async with asyncio.timeout(60):
            await bell.wait()
        stop()
    await beside.close()
    await store.close()


def test_a_rolled_back_signal_is_looked_for_and_given_up() -> None:
    looks: list[float] = []
    loop = WorldLoop(random.Random(1))

    async def read(action: Action[set[RowKey]]) -> set[RowKey]:
        looks.append(loop.time())
        return set()

    async def story() -> None:
        joined_watch = JoinedWatch(read, lambda _: pytest.fail("there is nothing to tell"))
        joined_watch.open(loop)
        joined_watch.expect((1, "approval", "click"))
        await asyncio.sleep(0)
        assert joined_watch._watch is not None
        await joined_watch._watch
        await joined_watch.close()

    loop.run_until_complete(story())
    loop.close()
    assert 9 < looks[-1] < 11
