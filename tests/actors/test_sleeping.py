"""Tasks that begin later, with a whole Node that never polls: timers and wake-ups alone start them."""

import asyncio

import pytest

import makegood as mg
from makegood.node.node import Node
from makegood.store.protocol import Store
from makegood.store.views import Filter
from tests.actors.conftest import QUIET
from tests.actors.noop_apps import chain_app
from tests.conformance.worlds import World

BOTH = ("scheduler", "agent")


async def test_it_begins_at_its_moment_and_no_process_holds_it_before(store: Store, world: World) -> None:
    app, chain = chain_app(1)
    async with Node(app, store, roles=BOTH, options=QUIET) as node:
        await (await node.client.submit(chain, "first")).result(timeout="60s")
        later = await node.client.submit(chain, "later", delay="30d")
        soon = await node.client.submit(chain, "soon", delay="300ms")
        detail = await soon.status()
        assert detail.task.state in ("sleeping", "processed")
        await world.elapse(0.5)
        assert await soon.result(timeout="60s") == "soon"
        moves = [move async for event in soon.events(follow=False) for move in event.moves if move.of_task]
        assert moves[0][:3] == ("task", "sleeping", "processing")
        (event, *_) = [event async for event in soon.events(follow=False)]
        assert event.at >= (await soon.status()).task.created + 0.3
        view = (await later.status()).task
        assert (view.state, view.locked_by, view.epoch) == ("sleeping", None, 0)
        assert node._scheduler is not None
        assert node._scheduler.count() == 0


async def test_one_that_another_process_submits_wakes_the_scheduler(
    store: Store, other: Store, world: World
) -> None:
    app, chain = chain_app(1)
    async with Node(app, store, roles=BOTH, options=QUIET) as node, mg.Client(other) as client:
        await (await node.client.submit(chain, "first")).result(timeout="60s")
        tasks = [await client.submit(chain, f"{n}", delay=0.2 + n / 10) for n in range(3)]
        await world.elapse(1)
        results = await asyncio.gather(*[node.client.task(task.id).result(timeout="60s") for task in tasks])
        assert results == ["0", "1", "2"]


async def test_commands_reach_it_while_it_sleeps(store: Store) -> None:
    app, chain = chain_app(1)
    async with Node(app, store, roles=BOTH, options=QUIET) as node:
        first, second, third = [await node.client.submit(chain, f"{n}", delay="30d") for n in range(3)]
        answer = await first.cancel(why="ordered twice", who="ann")
        assert (answer.verdict, answer.outcome, answer.state) == (
            "applied",
            "nothing had been done",
            "undone",
        )
        assert (await second.wake(who="ann")).verdict == "applied"
        assert await second.result(timeout="60s") == "1"
        assert (await second.wake(who="ann")).verdict == "noop"
        with pytest.raises(mg.ActRefusedError, match="the task is sleeping"):
            await third.resubmit()
        view = (await third.status()).task
        assert (view.state, view.locked_by) == ("sleeping", None)
        assert [audit.kind for audit in await node.client.audit(second.id)] == ["wake", "wake"]


async def test_many_of_them_are_submitted_and_cancelled_at_once(store: Store) -> None:
    app, chain = chain_app(1)
    async with Node(app, store, roles=BOTH, options=QUIET) as node:
        tasks = await node.client.submit_many(chain, [f"{n}" for n in range(50)], delay="1h")
        asleep = Filter(states=("sleeping",))
        assert await node.client.count(asleep) == len(tasks) == 50
        acted = await node.client.cancel_all(asleep, who="ann", why="not today")
        assert len(acted) == 50
        assert await node.client.count(Filter(states=("undone",))) == 50


async def test_a_resubmission_begins_at_once(store: Store) -> None:
    app, chain = chain_app(1)
    async with Node(app, store, roles=BOTH, options=QUIET) as node:
        task = await node.client.submit(chain, "x", delay="30d")
        await task.cancel()
        await task.resubmit()
        assert await task.result(timeout="60s") == "x"
