"""Tasks that wait for an agent that is dead, or slow by its rate, make room for others: they rest, and none is lost."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

import makegood as mg
from makegood.node.node import Node
from makegood.store.protocol import Store
from makegood.store.views import Filter
from tests.actors.conftest import QUIET
from tests.clocks import AheadClock
from tests.conformance.worlds import World, eventually
from tests.waiting import until

MOST = 10
FEW = replace(QUIET, max_tasks=MOST)
ASLEEP = Filter(states=("sleeping",))


class Shop:
    """A shop whose bank may be slow by its rate, and whose bank's first answers may not come."""

    def __init__(self, rate: str | None = None, *, silent: int = 0) -> None:
        self.app = app = mg.App("shop")
        self.calls: list[str] = []
        bank = app.agent("bank", concurrency=100, rate=rate)
        desk = app.agent("desk")

        @bank.action(complete_within="1m", recover=mg.Recover(threshold=5, wait=0), undo=mg.NOTHING)
        async def charge(order: str) -> str:
            self.calls.append(order)
            if len(self.calls) <= silent:
                await asyncio.Event().wait()
            return order

        @desk.action(complete_within="1m", undo=mg.NOTHING)
        async def note(order: str) -> str:
            return order

        @app.workflow(complete_within="10m")
        def payment(order: str) -> str:
            return note(charge(order))

        @app.workflow()
        def memo(order: str) -> str:
            return note(order)

        self.payment, self.memo = payment, memo


class Crowd:
    """A Node whose time passes at once; it must never hold more than it may."""

    def __init__(self, node: Node, clock: AheadClock) -> None:
        self.node, self.clock = node, clock
        self.most = 0

    async def until(self, count: int, condition: Filter = ASLEEP) -> None:
        """Let time pass until so many tasks sleep, or match another filter."""
        scheduler = self.node._scheduler
        assert scheduler is not None

        async def enough() -> bool:
            self.most = max(self.most, scheduler.count())
            self.clock.ahead += 0.5
            scheduler.wakeups.wake()
            return await self.node.client.count(condition) >= count

        await until(enough, f"{count} tasks to rest")


async def results(tasks: Sequence[mg.TaskHandle[str]]) -> list[str]:
    """Return what became of tasks."""
    return await asyncio.gather(*(task.result(timeout="60s") for task in tasks))


@pytest.mark.parametrize("rate", [None, "1/m"])
async def test_others_go_on_beside_three_times_max_tasks_for_an_agent_that_does_not_answer(
    store: Store, other: Store, world: World, rate: str | None
) -> None:
    shop, clock = Shop(rate), AheadClock()
    agents = ["desk"] if rate is None else ["bank", "desk"]
    async with Node(
        shop.app, store, roles=("scheduler", "agent"), agents=agents, options=FEW, clock=clock
    ) as node:
        crowd = Crowd(node, clock)
        payments = await node.client.submit_many(shop.payment, [f"{n}" for n in range(3 * MOST)])
        others = await node.client.submit_many(shop.memo, [f"other {n}" for n in range(2 * MOST)])
        await crowd.until(2 * MOST, Filter(states=("processed",)))
        await crowd.until(2 * MOST)
        assert await results(others) == [f"other {n}" for n in range(2 * MOST)]
        assert crowd.most <= MOST + len(shop.calls), "a reply is taken in although there is no room"
        assert shop.calls == ([] if rate is None else ["0"])
        if rate is None:
            async with Node(shop.app, other, roles=("agent",), agents=["bank"], options=FEW):
                assert await results(payments) == [f"{n}" for n in range(3 * MOST)]
            assert sorted(shop.calls) == sorted(f"{n}" for n in range(3 * MOST))
        else:
            waits = await world.rows("select count(*) from {request} where taken_by is null")
            assert waits[0][0] == 3 * MOST - 1


async def test_a_late_request_of_a_resting_task_wakes_it(store: Store, other: Store, world: World) -> None:
    """The Supervisor judges it, and leaves the message that the next claim reads."""
    shop, clock = Shop(silent=MOST), AheadClock()
    roles = ("scheduler", "supervisor")
    options = replace(FEW, supervise_every="500ms", late_after=0)
    async with (
        Node(shop.app, store, roles=roles, options=options, clock=clock) as node,
        Node(shop.app, other, roles=("agent",), options=QUIET),
    ):
        payments = await node.client.submit_many(shop.payment, [f"{n}" for n in range(MOST)])
        await eventually(lambda: len(shop.calls) == MOST, "the calls without an answer")
        await Crowd(node, clock).until(MOST // 2)
        await world.elapse(61.0)
        assert await results(payments) == [f"{n}" for n in range(MOST)]
        assert len(shop.calls) == 2 * MOST


async def test_a_cancel_reaches_a_resting_task(store: Store) -> None:
    shop, clock = Shop(), AheadClock()
    async with Node(shop.app, store, roles=("scheduler",), options=FEW, clock=clock) as node:
        payments = await node.client.submit_many(shop.payment, [f"{n}" for n in range(MOST)])
        await Crowd(node, clock).until(MOST // 2)
        for task in payments:
            assert (await task.cancel(who="ann")).verdict == "applied"
            assert (await task.wait("60s")).state == "undone"
        moves = [
            move.reason
            for task in payments
            async for event in task.events(follow=False)
            for move in event.moves
        ]
        assert moves.count("rested") >= MOST // 2
        assert not await node.client.count(Filter(states=("sleeping", "processing")))


async def test_the_deadline_of_a_resting_task_reaches_it(store: Store, world: World) -> None:
    shop, clock = Shop(), AheadClock()
    options = replace(FEW, supervise_every="500ms")
    roles = ("scheduler", "supervisor")
    async with Node(shop.app, store, roles=roles, options=options, clock=clock) as node:
        payments = await node.client.submit_many(shop.payment, [f"{n}" for n in range(MOST)])
        await Crowd(node, clock).until(MOST // 2)
        await world.elapse(601.0)
        for task in payments:
            assert (await task.wait("60s")).state == "undone"
