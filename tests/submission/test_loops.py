"""A client, a handle, a queue, a node and a store answer on the event loop on which they were opened, and refuse any other by name."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import makegood as mg
from makegood.store import open_store
from tests.submission.connections import PlainSQLite, SQLiteWorld, World
from tests.submission.test_contexts import QUIET, app, both, far

ELSEWHERE = "was opened on an event loop that"


def on_another_loop(work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Run work on a loop of its own in another thread, and return what it raised: at once, or the test fails."""
    answer: list[Any] = []

    async def bounded() -> None:
        try:
            async with asyncio.timeout(60):
                answer.append(await work())
        except BaseException as failure:
            answer.append(failure)

    thread = threading.Thread(target=lambda: asyncio.run(bounded()))
    thread.start()
    thread.join()
    return answer[0]


async def refused(*works: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    """Each of these is refused on another loop, while this one runs on."""
    for n, work in enumerate(works):
        error = await asyncio.to_thread(on_another_loop, work)
        assert isinstance(error, mg.ClosedError), (n, error)
        assert ELSEWHERE in str(error)
        assert "SyncClient" in str(error)


async def test_after_the_end_of_its_loop_the_remedy_is_a_new_client(tmp_path: Path) -> None:
    """As in a program that calls asyncio.run twice."""
    client = mg.Client(f"sqlite:///{tmp_path / 'a.db'}", migrate=True)
    await asyncio.to_thread(on_another_loop, client.open)
    for use in (client.find, client.open, client.close):
        with pytest.raises(
            mg.ClosedError, match=r"an event loop that has ended, .*: make a new client, and open"
        ):
            await use()


async def test_every_way_of_a_client_is_refused_on_another_loop(world: World) -> None:
    """While the client's own loop runs in another thread; afterwards it works there as before."""
    async with mg.Client(world.url) as client:
        task = await client.submit(far, "a")
        queue = client.queue("orders")
        await client.send("orders", 1)
        (message,) = await queue.receive()

        async def all_of_many() -> Any:
            return await client.submit_many(far, ["a", "b"])

        async def events() -> Any:
            return [event async for event in task.events(follow=False)]

        await refused(
            lambda: client.submit(far, "b"), all_of_many, client.find, client.alerts, client.queues,
            lambda: client.count(mg.Filter()), lambda: client.cancel_all(mg.Filter(), why="x"), client.audit,
            lambda: client.send("orders", 2), queue.receive, lambda: queue.acknowledge(message),
            lambda: queue.give_back(message), lambda: queue.extend(message, lease="1m"),
            task.status, task.wait, task.result, task.cancel, events, client.open, client.close,
        )  # fmt: skip
        assert await queue.acknowledge(message)
        assert (await task.status()).task.state == "pending"
        assert await client.count(mg.Filter()) == 1


async def test_the_client_of_a_node_and_the_node_are_refused_on_another_loop(world: World) -> None:
    async with mg.Node(app, world.url, options=QUIET) as node:
        task = await node.client.submit(both, "a")
        await refused(lambda: node.client.submit(both, "b"), task.result, node.stop)
        assert await task.result("120s") == "a"
        assert (node.dead(), node.unready(), node.leads() in (True, False)) == ("", "", True)


def test_a_client_of_a_loop_that_has_ended_is_refused(world: World) -> None:
    """As in two calls of ``asyncio.run``."""
    client = mg.Client(world.url)

    async def begin() -> mg.TaskHandle[Any]:
        await client.open()
        return await client.submit(far, "a")

    async def go_on(task: mg.TaskHandle[Any]) -> None:
        for work in (task.wait, client.find, client.open, client.close):
            with pytest.raises(mg.ClosedError, match="loop that has ended"):
                await work()

    with asyncio.Runner() as first:
        task = first.run(begin())
        with pytest.raises(mg.ClosedError, match="not the one that runs here"):
            asyncio.run(client.find())
        home = client._opened_store.home
        first.run(client.close())  # so that the test leaves nothing open
    client._opened_store.home = home  # as if it had not been closed
    asyncio.run(go_on(task))


def test_a_client_that_was_closed_can_be_opened_on_another_loop(world: World) -> None:
    client = mg.Client(world.url)

    async def use() -> None:
        async with client:
            task = await client.submit(far, "a")
            with pytest.raises(mg.WaitExpiredError):
                await task.wait(timeout=0.05)

    asyncio.run(use())
    asyncio.run(use())


async def test_a_store_of_another_loop_is_refused(world: World) -> None:
    """A client takes a store that its caller has opened, perhaps on another loop."""
    store = open_store(world.url)
    await store.open()
    try:

        async def use() -> Any:
            async with mg.Client(store) as client:
                return await client.submit(far, "a")

        async def read() -> Any:
            async with mg.Client(store) as client:
                return await client.find()

        await refused(use, read)
    finally:
        await store.close()


async def test_the_callers_own_connection_may_be_used_on_any_loop(tmp_path: Path) -> None:
    """What is written on it needs nothing of the client's loop."""
    world = SQLiteWorld(tmp_path / "shop.db")
    door = PlainSQLite(world)
    async with mg.Client(world.url) as client:

        async def submit() -> str:
            async with door.begin() as connection:
                return (await client.submit(far, "a", connection=connection)).id

        task_id = await asyncio.to_thread(on_another_loop, submit)
        assert isinstance(task_id, str), task_id
        assert (await client.task(task_id).status()).task.state == "pending"
