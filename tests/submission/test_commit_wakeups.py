"""After the commit: whoever listens hears of the task, soon, and from another process."""

import asyncio
import random
import sqlite3
from typing import Any

import asyncpg
import pytest

import makegood as mg
from makegood.node.node import Node
from makegood.store import open_store
from makegood.store.sqlite import SQLiteStore
from makegood.store.sqlite.joined_watch import JoinedWatch, RowKey
from makegood.store.sqlite.transaction import Action
from makegood.testing.simulator.loop import WorldLoop
from tests.actors.conftest import QUIET
from tests.actors.noop_apps import chain_app
from tests.submission.connections import SQLiteWorld, World

APP, CHAIN = chain_app(3)


def deaf(world: World) -> Any:
    """Return a store that never looks unless it is woken."""
    return SQLiteStore(world.path, poll=None) if isinstance(world, SQLiteWorld) else open_store(world.url)


@pytest.mark.parametrize("near", [True, False], ids=["its-own-client", "another-process"])
async def test_the_commit_wakes_a_scheduler_that_never_looks_by_itself(world: World, near: bool) -> None:
    store, beside = deaf(world), deaf(world)
    await store.open()
    await beside.open()
    async with (
        Node(APP, store, roles=("scheduler", "agent"), options=QUIET) as node,
        mg.Client(beside) as other_client,
    ):
        client = node.client if near else other_client
        if isinstance(world, SQLiteWorld):
            connection = sqlite3.connect(world.path)
            with connection:
                task = await client.submit(CHAIN, "a", connection=connection)
            connection.close()
        else:
            other = await asyncpg.connect(world.url)
            async with other.transaction():
                task = await client.submit(CHAIN, "a", connection=other)
            await other.close()
        assert await task.result(timeout="60s") == "a"
    await beside.close()
    await store.close()


def test_a_rolled_back_submission_is_looked_for_and_given_up() -> None:
    """And the looking is little: its pauses grow."""
    looks: list[float] = []
    loop = WorldLoop(random.Random(1))

    async def read(action: Action[set[RowKey]]) -> set[RowKey]:
        looks.append(loop.time())
        return set()

    async def story() -> None:
        joined_watch = JoinedWatch(read, lambda _: pytest.fail("there is nothing to tell"))
        joined_watch.expect(1)  # closed: nobody to look
        joined_watch.open(loop)
        joined_watch.expect(1)
        joined_watch.expect(("web", "m-1"))
        await asyncio.sleep(0)
        assert joined_watch._watch is not None
        await joined_watch._watch
        await joined_watch.close()

    loop.run_until_complete(story())
    loop.close()
    assert looks[0] < 0.01
    assert 9 < looks[-1] < 11
    assert len(looks) < 150
