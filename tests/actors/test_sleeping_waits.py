"""Tasks that wait for a signal are held by nobody, with whole Nodes that never poll: a signal or their timeout brings them back."""

import asyncio
from datetime import timedelta
from itertools import pairwise

import pytest

import makegood as mg
from makegood.node.node import Node
from makegood.store.protocol import Store
from tests.actors.conftest import QUIET
from tests.actors.test_suspension import BOTH, BRIEF, asleep, in_memory
from tests.conformance.worlds import World, eventually
from tests.waiting import until

app = mg.App("shop")
desk = app.agent("desk")
approval = app.signal("approval", bool)
go = asyncio.Event()


@desk.action(complete_within="1m", undo=mg.NOTHING)
async def note(order: str) -> str:
    return order


@desk.action(complete_within="1m", undo=mg.NOTHING)
async def slow(order: str) -> str:
    await go.wait()
    return order


@app.workflow()
def order(name: str) -> bool:
    note(name)
    return mg.wait_for(approval)


@app.workflow()
def order_or_default(name: str) -> bool | str:
    note(name)
    return mg.wait_for(approval, timeout="300ms", otherwise="nobody")


@app.workflow()
def beside(name: str) -> tuple[bool, str]:
    return mg.parallel(mg.wait_for(approval), slow(name))


@app.workflow()
def twice(name: str) -> tuple[bool, bool]:
    return mg.parallel(mg.wait_for(approval), mg.wait_for(approval))


async def step_state(task: mg.TaskHandle[object], name: str, state: str) -> None:
    """Wait until a step is in a state."""

    async def there() -> bool:
        return (name, state) in [(step.name, step.state) for step in (await task.status()).steps]

    await until(there, f"{name} to be {state}")


async def test_it_sleeps_until_the_signal_comes(store: Store) -> None:
    async with Node(app, store, roles=BOTH, options=QUIET) as node:
        task = await node.client.submit(order, "a")
        await asleep(node)
        await eventually(lambda: in_memory(node) == 0, "the Scheduler to let it go")
        assert (await task.status()).task.locked_by is None
        await task.signal(approval, True)
        assert await task.result(timeout="60s") is True


async def test_many_sleep_and_one_signal_wakes_one(store: Store) -> None:
    async with Node(app, store, roles=BOTH, options=QUIET) as node:
        tasks = await node.client.submit_many(order, [f"{n}" for n in range(50)])
        await asleep(node, 50)
        await tasks[7].signal(approval, True)
        assert await tasks[7].result(timeout="60s") is True
        await asleep(node, 49)
        for task in tasks:
            if task is not tasks[7]:
                await task.signal(approval, False)
        assert [await task.result(timeout="60s") for task in tasks] == [n == 7 for n in range(50)]


async def test_its_timeout_comes_while_it_sleeps(store: Store, world: World) -> None:
    async with Node(app, store, roles=BOTH, options=BRIEF) as node:
        task = await node.client.submit(order_or_default, "a")
        await asleep(node)
        await world.elapse(0.5)
        assert await task.result(timeout="60s") == "nobody"


async def test_it_stays_beside_a_step_that_runs_and_goes_with_the_last_reply(store: Store) -> None:
    go.clear()
    async with Node(app, store, roles=BOTH, options=QUIET) as node:
        task = await node.client.submit(beside, "a")
        await step_state(task, "slow", "running")
        await eventually(lambda: in_memory(node) == 1, "the Scheduler to hold it")
        go.set()
        await asleep(node)
        await eventually(lambda: in_memory(node) == 0, "the Scheduler to let it go")
        await task.signal(approval, True)
        assert await task.result(timeout="60s") == (True, "a")


async def test_after_the_first_of_two_signals_it_sleeps_on(store: Store) -> None:
    async with Node(app, store, roles=BOTH, options=QUIET) as node:
        task = await node.client.submit(twice, "a")
        await asleep(node)
        await task.signal(approval, True, step="approval-2")
        await step_state(task, "approval-2", "done")
        await asleep(node)
        await task.signal(approval, False)
        assert await task.result(timeout="60s") == (False, True)


async def test_a_cancel_reaches_it_at_once(store: Store) -> None:
    async with Node(app, store, roles=BOTH, options=QUIET) as node:
        task = await node.client.submit(order, "a")
        await asleep(node)
        await task.cancel(who="ann")
        with pytest.raises(mg.TaskUndone):
            await task.result(timeout="60s")


async def test_a_scheduled_task_waits_for_its_signal_too(store: Store) -> None:
    """Its plan is data: whoever fires it knows the signal's name and type by it."""
    async with Node(app, store, roles=BOTH, options=QUIET) as node:
        schedule = await node.client.schedule("nightly", order, "a", every="1h")
        task = await schedule.trigger(why="now")
        await asleep(node)
        await eventually(lambda: in_memory(node) == 0, "the Scheduler to let it go")
        with pytest.raises(mg.SignalRefused, match="it has approval"):
            await task.signal("aproval", True)
        await task.signal(approval, True)
        assert await task.result(timeout="60s") is True


async def test_the_next_moments_of_a_schedule_are_at_most_a_thousand(store: Store) -> None:
    async with Node(app, store, roles=BOTH, options=QUIET) as node:
        schedule = await node.client.schedule("nightly", order, "a", every="1h")
        moments = await schedule.next(1000)
        assert {after - before for before, after in pairwise(moments)} == {timedelta(hours=1)}
        assert await schedule.next(3) == moments[:3]
        with pytest.raises(mg.ConfigError, match="count=1001: at most 1,000 moments"):
            await schedule.next(1001)


async def test_a_scheduled_sleep_that_the_deadline_ends_is_refused(store: Store) -> None:
    too_long = mg.App("night")

    @too_long.workflow(complete_within="1h")
    def close() -> None:
        mg.sleep("2h")

    async with Node(app, store, roles=BOTH, options=QUIET) as node:
        with pytest.raises(mg.DefinitionError, match="ends it before"):
            await node.client.schedule("nightly", close, every="1h")
