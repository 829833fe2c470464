"""What waits cost, counted at the driver with whole Nodes that never poll: commits from a signal to the next step."""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

import makegood as mg
from makegood.node.node import Node
from makegood.store.protocol import Store
from makegood.store.records import Offer, Taken, TaskMessages
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

        @app.workflow()
        def delivery(order: str) -> str:
            return ship(order)

        self.approved, self.both_waits, self.delivery = approved, both_waits, delivery

    async def ships(self, count: int) -> None:
        """Wait until so many steps have begun."""
        await eventually(lambda: len(self.begun) >= count, f"{count} steps to begin")


async def idle(node: Node) -> None:
    """Wait until a Scheduler holds nothing, and has nothing to claim."""
    assert node._scheduler is not None
    claims = node._scheduler.turns.claims
    await eventually(lambda: in_memory(node) == 0 and claims.is_idle, "the Scheduler to let it go")


async def begins_to_sleep(task: mg.TaskHandle[str]) -> None:
    """Wait until the sleep of a task has begun."""

    async def has_begun() -> bool:
        return ("sleep", "ready") in [(step.name, step.state) for step in (await task.status()).steps]

    await until(has_begun, "its sleep to begin")


@pytest.mark.parametrize("linger", [math.inf, 10.0], ids=["held", "asleep"])
async def test_from_a_signal_to_the_next_step_is_one_commit_whether_the_task_is_held_or_sleeps(
    counting_store: Store, counts: Counts, linger: float
) -> None:
    """The one that writes the signal, ends the wait and asks for the step; of a sleeper it is a claim as well."""
    shop = Shop()
    options = replace(QUIET, linger=1e9 if linger == math.inf else linger)
    async with Node(shop.app, counting_store, roles=BOTH, options=options) as node:
        task = await node.client.submit(shop.approved, "a")
        if linger == math.inf:
            await eventually(lambda: len(_waits(node)) == 1, "the task to be held, and to wait")
        else:
            await asleep(node)
            await idle(node)
        await counts.reset()
        await task.signal(shop.approval, True)
        await shop.ships(1)
        assert await counts.commits() == 1
        shop.end.set()
        assert await task.result(timeout="60s") == "a"


@pytest.mark.parametrize("linger", [1e9, 10.0], ids=["held", "asleep"])
@pytest.mark.parametrize("world", ["postgres"], indirect=True)  # a read of a file costs no round trip
async def test_a_scheduler_does_not_read_what_its_own_process_sends(
    store: Store, monkeypatch: pytest.MonkeyPatch, linger: float
) -> None:
    shop, reads = Shop(), 0
    inbox = store.tasks.inbox

    async def reading(node: int, limit: int, room: int, *, at_rest: bool) -> TaskMessages:
        nonlocal reads
        reads += 1
        return await inbox(node, limit, room, at_rest=at_rest)

    async with Node(shop.app, store, roles=BOTH, options=replace(QUIET, linger=linger)) as node:
        tasks = [await node.client.submit(shop.approved, order) for order in ("first of its kind", "a")]
        for task in tasks:
            await waits(task)
        count = 2 if linger == 1e9 else 0
        await eventually(lambda: len(_waits(node)) == count == in_memory(node), "its memory to follow")
        await tasks[0].signal(shop.approval, True)
        await shop.ships(1)
        monkeypatch.setattr(store.tasks, "inbox", reading)
        await tasks[1].signal(shop.approval, True)
        await shop.ships(2)
        assert reads == 0
        shop.end.set()
        assert [await task.result(timeout="60s") for task in tasks] == ["first of its kind", "a"]


def _waits(node: Node) -> list[int]:
    """Return the tasks that the Scheduler knows to wait."""
    assert node._scheduler is not None
    return [task for task, memory in node._scheduler.tasks.in_memory.items() if memory.steps[0].waiting]


async def waits(task: mg.TaskHandle[str]) -> None:
    """Wait until the wait of a task has begun."""

    async def has_begun() -> bool:
        return ("approval", "ready") in [(step.name, step.state) for step in (await task.status()).steps]

    await until(has_begun, "its wait to begin")


async def test_a_program_that_signals_is_not_asked_for_its_user(
    counting_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name goes with an operator's signal only, and the system reads files, or asks a directory, for it."""
    shop = Shop()
    async with Node(shop.app, counting_store, roles=BOTH, options=QUIET) as node:
        task = await node.client.submit(shop.approved, "a")
        monkeypatch.setattr("getpass.getuser", lambda: pytest.fail("the user was looked up"))
        await task.signal(shop.approval, True)
        await shop.ships(1)
        shop.end.set()
        assert await task.result(timeout="60s") == "a"


async def test_a_task_of_n_steps_costs_n_plus_one_commits_its_waits_included(
    counting_store: Store, counts: Counts, world: World
) -> None:
    """Its Scheduler lets it go and claims it again within them; the Decision that uses the signal writes it."""
    shop = Shop()
    shop.end.set()
    async with Node(shop.app, counting_store, roles=BOTH, options=QUIET) as node:
        for round_, order in enumerate(("warm", "a")):
            await counts.reset()
            task = await node.client.submit(shop.both_waits, order)
            await asleep(node)
            await idle(node)
            await task.signal(shop.approval, True)
            await begins_to_sleep(task)
            await asleep(node)
            await eventually(lambda: in_memory(node) == 0, "the Scheduler to let it go")
            await world.elapse(2 * 3600 + 1)
            assert node._scheduler is not None
            node._scheduler.wakeups.wake_for_sleepers()  # its own clock has not moved
            assert await task.result(timeout="60s") == order
            steps = 5
            assert await counts.commits() == steps + 1 or round_ == 0


async def test_500_signals_to_500_sleepers_are_one_commit_of_the_scheduler(
    counting_store: Store, counts: Counts, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That are sent by another process."""
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
        sender = world.store()
        await sender.open()
        async with mg.Client(sender) as client:
            await asyncio.gather(*(client.signal(task.id, shop.approval, True) for task in tasks))
        await sender.close()
        assert shop.begun == []
        await counts.reset()
        gate.set()
        await shop.ships(MANY)
        assert await counts.commits() == 1
        assert in_memory(node) == MANY
        shop.end.set()
        await eventually(lambda: in_memory(node) == 0, "all tasks to end")
        assert await node.client.count(Filter(states=("processed",))) == MANY


async def test_requests_of_one_claim_in_the_store_do_not_send_those_of_the_next_there(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the agents look there they lend no slot: each claim would find them looking, to the last one."""
    shop, sizes, take = Shop(), list[int](), store.requests.take

    async def taking(node: int, offers: Sequence[Offer], *, alone: bool = False) -> Taken:
        requests = await take(node, offers, alone=alone)
        sizes.append(len(requests))
        return requests

    monkeypatch.setattr(store.requests, "take", taking)
    shop.end.set()
    async with mg.Client(store) as client:
        await client.submit_many(shop.delivery, [f"{n}" for n in range(MANY)])
    batch = 25
    async with Node(shop.app, store, roles=BOTH, options=replace(QUIET, claim_batch=batch)):
        await shop.ships(MANY)
    assert sum(sizes) <= 2 * batch
