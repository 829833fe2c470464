"""What waits cost, counted at the driver with whole Nodes that never poll: commits from a signal to the next step."""

import asyncio
import math
from dataclasses import replace

import pytest

import makegood as mg
from makegood.node.node import Node
from makegood.store.protocol import Store
from makegood.store.records import TaskMessages
from makegood.store.views import Filter
from tests.actors.conftest import QUIET
from tests.actors.test_suspension import BOTH, asleep, in_memory
from tests.conformance.worlds import Counts, World, eventually
from tests.waiting import until

MANY = 500


class Shop:
    """An app whose tasks wait for an approval; ``begun``: the orders whose step after it has begun."""

    def __init__(self) -> None:
        self.app = app = mg.App("shop")
        self.begun: list[str] = []
        self.end = asyncio.Event()
        """Lets the steps end."""
        self.approval = approval = app.signal("approval", bool)
        desk = app.agent("desk", concurrency=2 * MANY)

        @desk.action(complete_within="1m", undo=mg.NOTHING)
        async def note(order: str) -> str:
            return order

        @desk.action(complete_within="1m", undo=mg.NOTHING)
        async def ship(order: str) -> str:
            self.begun.append(order)
            await self.end.wait()
            return order

        @app.workflow()
        def approved(order: str) -> str:
            mg.wait_for(approval, timeout="7d")
            return ship(order)

        @app.workflow()
        def both_waits(order: str) -> str:
            note(order)
            mg.wait_for(approval)
            note(order)
            mg.sleep("2h")
            return ship(order)

        self.approved, self.both_waits = approved, both_waits

    async def ships(self, count: int) -> None:
        """Wait until so many steps have begun."""
        await eventually(lambda: len(self.begun) >= count, f"{count} steps to begin")


async def begins_to_sleep(task: mg.TaskHandle[str]) -> None:
    """Wait until the sleep of a task has begun."""

    async def has_begun() -> bool:
        return ("sleep", "ready") in [(step.name, step.state) for step in (await task.status()).steps]

    await until(has_begun, "its sleep to begin")


@pytest.mark.parametrize("linger", [math.inf, 10.0], ids=["held", "asleep"])
async def test_from_a_signal_to_the_next_step_are_two_commits(
    counting_store: Store, counts: Counts, linger: float
) -> None:
    """The sender's, and the one that ends the wait and asks for the step; that of a sleeper claims it, too."""
    shop = Shop()
    options = replace(QUIET, linger=1e9 if linger == math.inf else linger)
    async with Node(shop.app, counting_store, roles=BOTH, options=options) as node:
        task = await node.client.submit(shop.approved, "a")
        if linger == math.inf:
            await eventually(lambda: in_memory(node) == 1, "the task to be held")
            await task.status()
        else:
            await asleep(node)
            assert in_memory(node) == 0
        await counts.reset()
        await task.signal(shop.approval, True)
        await shop.ships(1)
        assert await counts.commits() == 2
        shop.end.set()
        assert await task.result(timeout="60s") == "a"


async def test_a_task_of_n_steps_costs_n_plus_one_commits_its_waits_included(
    counting_store: Store, counts: Counts, world: World
) -> None:
    """Its Scheduler lets it go and claims it again within them; the signal is a commit of its sender."""
    shop = Shop()
    shop.end.set()
    async with Node(shop.app, counting_store, roles=BOTH, options=QUIET) as node:
        for round_, order in enumerate(("warm", "a")):
            await counts.reset()
            task = await node.client.submit(shop.both_waits, order)
            await asleep(node)
            await task.signal(shop.approval, True)
            await begins_to_sleep(task)
            await asleep(node)
            assert in_memory(node) == 0
            await world.elapse(2 * 3600 + 1)
            assert node._scheduler is not None
            node._scheduler.wakeups.wake_for_sleepers()  # its own clock has not moved
            assert await task.result(timeout="60s") == order
            steps, signals = 5, 1
            assert await counts.commits() == steps + 1 + signals or round_ == 0


async def test_500_signals_to_500_sleepers_are_one_commit_of_the_scheduler(
    counting_store: Store, counts: Counts, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop()
    gate = asyncio.Event()
    inbox = counting_store.tasks.inbox

    async def reading(node: int, limit: int, room: int, *, at_rest: bool) -> TaskMessages:
        await gate.wait()
        return await inbox(node, limit, room, at_rest=at_rest)

    async with Node(shop.app, counting_store, roles=BOTH, options=QUIET) as node:
        tasks = await node.client.submit_many(shop.approved, [f"{n}" for n in range(MANY)])
        await asleep(node, MANY)
        monkeypatch.setattr(counting_store.tasks, "inbox", reading)
        await asyncio.gather(*(task.signal(shop.approval, True) for task in tasks))
        assert shop.begun == []
        await counts.reset()
        gate.set()
        await shop.ships(MANY)
        assert await counts.commits() == 1
        assert in_memory(node) == MANY
        shop.end.set()
        await eventually(lambda: in_memory(node) == 0, "all tasks to end")
        assert await node.client.count(Filter(states=("processed",))) == MANY
