"""What a Scheduler keeps in memory is bounded in bytes: claims, tasks born here, tasks too large for the limit; on every store."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any

import pytest

import makegood as mg
from makegood.base.sizes import KIB, MIB
from makegood.client.handle import TaskHandle
from makegood.node.node import Node
from makegood.options import Options
from makegood.scheduler.task_memory import STEP, TASK
from makegood.store.protocol import Store
from tests.actors.conftest import QUIET
from tests.conformance.worlds import eventually

LIMIT = MIB
VALUE = "x" * (100 * KIB)
TIGHT = replace(QUIET, max_task_memory=LIMIT)


def shop() -> tuple[mg.App, Any, asyncio.Event]:
    """Return an app with two steps, the second of which waits for the event, and its workflow."""
    app = mg.App("shop", payload_limit=16 * MIB)
    desk, go = app.agent("desk", concurrency=5), asyncio.Event()

    @desk.action(complete_within="1h", undo=mg.NOTHING)
    async def pack(order: str, grow: int) -> str:
        return order * grow

    @desk.action(complete_within="1h", undo=mg.NOTHING)
    async def send(parcel: str) -> int:
        await go.wait()
        return len(parcel)

    @app.workflow()
    def sell(order: str, grow: int) -> int:
        return send(pack(order, grow))

    return app, sell, go


def scheduler_of(store: Store, options: Options = TIGHT) -> AbstractAsyncContextManager[Node]:
    """Return a process with nothing but a Scheduler."""
    return Node(None, store, roles=("scheduler",), options=options)


async def submitted(
    store: Store, sell: Any, count: int, value: str = VALUE, grow: int = 1
) -> list[TaskHandle[int]]:
    """Submit tasks from elsewhere."""
    async with mg.Client(store) as client:
        return [await client.submit(sell, value, grow) for _ in range(count)]


def of(node: Node) -> Any:
    """Return the Scheduler of a process."""
    assert node._scheduler is not None
    return node._scheduler


async def settled(node: Node, condition: Callable[[], bool], what: str) -> None:
    """Wait until the Scheduler is where it should be, and see that it stays there when it is woken."""
    await eventually(condition, what)
    for _ in range(3):
        of(node).wakeups.wake_for_pending()
        of(node).wakeups.wake_for_inbox()
        await eventually(lambda: not of(node).wakeups.event.is_set(), "a turn")
    assert condition()


async def results(store: Store, tasks: list[TaskHandle[Any]]) -> list[Any]:
    """Wait for all of them."""
    async with mg.Client(store) as client:
        return [await client.task(task.number).result(timeout="60s") for task in tasks]


async def test_no_more_is_claimed_than_the_limit_and_one_task(
    store: Store, other: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """The others wait in the store, and come as room comes: none is forgotten. When all is over nothing counts any more."""
    app, sell, go = shop()
    tasks = await submitted(other, sell, 30)
    most: list[int] = []
    with caplog.at_level(logging.INFO, "makegood.scheduler"):
        async with scheduler_of(store) as node:
            scheduler = of(node)
            await settled(node, lambda: scheduler.weight() >= LIMIT, "its memory is full")
            assert scheduler.weight() <= LIMIT + 101 * KIB + TASK + 2 * STEP
            assert 9 <= scheduler.count() <= 11
            assert any(
                "nothing more is claimed until some of them end (max_task_memory is 1 MiB)" in line
                for line in caplog.messages
            )
            go.set()
            async with Node(app, other, roles=("agent",), options=QUIET):
                waiting = asyncio.create_task(results(other, tasks))
                while not waiting.done():
                    most.append(scheduler.weight())
                    await asyncio.wait([waiting], timeout=0.01)
                assert await waiting == [len(VALUE)] * 30
            await eventually(lambda: scheduler.count() == 0, "nothing is held")
            assert scheduler.weight() == 0
    assert max(most) <= 2 * (LIMIT + 103 * KIB), "each task that is held doubles with its result"


async def test_results_count_and_hold_up_claims(store: Store, other: Store) -> None:
    """Three small tasks that have grown fill the memory; what they wait for comes, and all go on."""
    app, sell, go = shop()
    async with scheduler_of(store) as node, Node(app, other, roles=("agent",), options=QUIET):
        scheduler = of(node)
        large = await submitted(other, sell, 3, "y" * KIB, 400)
        await eventually(lambda: scheduler.weight() >= LIMIT, "the results have come")
        later = await submitted(other, sell, 5, "y", 1)
        await settled(node, lambda: scheduler.count() == 3, "nothing is claimed")
        go.set()
        assert await results(other, [*large, *later]) == [400 * KIB] * 3 + [1] * 5
        await eventually(lambda: scheduler.count() == 0, "nothing is held")
        assert scheduler.weight() == 0


async def test_a_task_larger_than_the_limit_is_processed_with_nothing_beside_it(
    store: Store, other: Store
) -> None:
    app, sell, go = shop()
    tasks = await submitted(other, sell, 3, "z" * (3 * MIB))
    async with scheduler_of(store) as node:
        scheduler = of(node)
        await settled(node, lambda: scheduler.count() == 1, "one is claimed")
        go.set()
        async with Node(app, other, roles=("agent",), options=QUIET):
            assert await results(other, tasks) == [3 * MIB] * 3
        await eventually(lambda: scheduler.count() == 0, "nothing is held")
        assert scheduler.weight() == 0


async def test_tasks_that_are_submitted_beside_a_scheduler_count_as_well(store: Store) -> None:
    """Above the limit they are submitted as from elsewhere, and claimed when there is room."""
    app, sell, go = shop()
    async with Node(app, store, roles=("scheduler", "agent"), options=TIGHT) as node:
        scheduler = of(node)
        tasks = await asyncio.gather(*(node.client.submit(sell, VALUE, 1) for _ in range(40)))
        assert scheduler.weight() <= 2 * (LIMIT + 103 * KIB), "each task that is held doubles with its result"
        go.set()
        assert [await task.result(timeout="60s") for task in tasks] == [len(VALUE)] * 40
        await eventually(lambda: scheduler.count() == 0, "nothing is held")
        assert scheduler.weight() == 0


async def test_a_submission_that_is_refused_counts_nothing(store: Store) -> None:
    app, sell, _ = shop()
    async with Node(app, store, roles=("scheduler",), options=TIGHT) as node:
        await node.client.submit(sell, VALUE, 1)
        await eventually(lambda: of(node).count() == 1 and not of(node).wakeups.pending, "it is claimed")
        await node.client.submit(sell, VALUE, 1, key="a")
        before = of(node).weight()
        assert not (await node.client.submit(sell, VALUE, 1, key="a")).created
        with pytest.raises(mg.KeyConflict):
            await node.client.submit(sell, VALUE, 2, key="a")
        assert of(node).weight() == before > 200 * KIB


async def test_the_successor_of_a_dead_scheduler_takes_over_within_its_limit(
    store: Store, other: Store
) -> None:
    """What the tasks have become counts, not what they were."""
    app, sell, go = shop()
    roomy = replace(QUIET, max_task_memory=100 * MIB)
    async with Node(app, other, roles=("agent",), options=roomy):
        first = Node(None, other, roles=("scheduler",), options=roomy)
        await first.start()
        tasks = await submitted(other, sell, 5, "y" * KIB, 400)
        await eventually(lambda: of(first).weight() > 5 * 400 * KIB, "all have their first result")
        await first.stop()
        async with scheduler_of(store) as node:
            scheduler = of(node)
            await settled(node, lambda: scheduler.weight() >= LIMIT, "its memory is full")
            assert scheduler.count() == 3, "400 KiB each"
            go.set()
            assert await results(other, tasks) == [400 * KIB] * 5
            await eventually(lambda: scheduler.count() == 0, "nothing is held")
            assert scheduler.weight() == 0


async def test_an_operators_command_is_decided_while_the_memory_is_full(store: Store, other: Store) -> None:
    """However full it is; what operators call back has a limit of its own, beyond which it waits as others do."""
    app, sell, go = shop()
    desk = app.agents["desk"]
    loan, free = asyncio.Event(), asyncio.Event()

    @desk.action(complete_within="1h")
    async def lend(order: str) -> str:
        return order

    @lend.undo
    async def take_back(order: str, *, result: str | None) -> None:
        loan.set()
        await free.wait()

    @app.workflow()
    def borrow(order: str) -> str:
        return lend(order)

    async with (
        scheduler_of(store) as node,
        Node(app, other, roles=("agent",), options=replace(QUIET, slots=50)),
    ):
        scheduler = of(node)
        async with mg.Client(other) as client:
            loans = [await client.submit(borrow, "b" * (200 * KIB)) for _ in range(6)]
            await results(other, loans)
            await eventually(lambda: scheduler.count() == 0, "its memory to follow")
            tasks = await submitted(other, sell, 20)
            await settled(
                node,
                lambda: scheduler.weight() >= max(LIMIT, scheduler.count() * 200 * KIB),
                "its memory is full",
            )
            before = scheduler.count()
            acts = [
                asyncio.create_task(client.task(one.number).undo(why="wrong", timeout="60s")) for one in loans
            ]
            await loan.wait()
            await settled(node, lambda: scheduler.count() == before + 3, "half of them are called back")
            free.set()
            assert [(await act).verdict for act in acts] == ["applied"] * 6
        go.set()
        assert len(await results(other, tasks)) == 20
        await eventually(lambda: scheduler.count() == 0, "nothing is held")
        assert scheduler.weight() == 0
