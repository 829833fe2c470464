"""Tasks that only wait are let go, with whole Nodes that never poll: their moments and messages alone bring them back."""

import asyncio
from dataclasses import replace

import makegood as mg
from makegood.node.node import Node
from makegood.store.protocol import Store
from makegood.store.views import Filter
from tests.actors.conftest import QUIET
from tests.conformance.worlds import World, eventually
from tests.waiting import until

BOTH = ("scheduler", "agent")
BRIEF = replace(QUIET, linger=0.05)


class Service:
    """A service that asks to come back later, as often as it is told to, and for how long."""

    def __init__(self, later: str, times: int = 1) -> None:
        self.app = app = mg.App("shop")
        self.calls: list[str] = []
        bank, desk = app.agent("bank", concurrency=500), app.agent("desk")

        @bank.action(complete_within="1m", undo=mg.NOTHING)
        async def charge(order: str) -> str:
            self.calls.append(order)
            if self.calls.count(order) <= times:
                raise mg.Later(later, "the bank is closed")
            return order

        @desk.action(complete_within="1m")
        async def note(order: str) -> str:
            return order

        @note.undo
        async def unnote(order: str, *, result: str | None) -> None: ...

        @app.workflow(complete_within="1h")
        def payment(order: str) -> str:
            return charge(note(order))

        @app.workflow()
        def note_flow(order: str) -> str:
            return note(order)

        self.payment, self.note_flow = payment, note_flow


async def asleep(node: Node, count: int = 1) -> None:
    """Wait until so many tasks sleep."""

    async def enough() -> bool:
        return await node.client.count(Filter(states=("sleeping",))) == count

    await until(enough, f"{count} tasks to sleep")


def in_memory(node: Node) -> int:
    """Return how many tasks the Scheduler of a Node holds."""
    assert node._scheduler is not None
    return node._scheduler.count()


async def test_a_task_sleeps_while_it_waits_and_continues_at_its_moment(store: Store, world: World) -> None:
    service = Service("400ms")
    async with Node(service.app, store, roles=BOTH, options=BRIEF) as node:
        task = await node.client.submit(service.payment, "a")
        await asleep(node)
        await eventually(lambda: in_memory(node) == 0, "the Scheduler to let it go")
        assert (await task.status()).task.locked_by is None
        await world.elapse(0.5)
        assert await task.result(timeout="60s") == "a"
        assert service.calls == ["a", "a"]
        moves = [
            move[:3] async for event in task.events(follow=False) for move in event.moves if move.of_task
        ]
        assert moves == [
            ("task", "pending", "processing"),
            ("task", "processing", "sleeping"),
            ("task", "sleeping", "processing"),
            ("task", "processing", "processed"),
        ]


async def test_a_short_wait_is_spent_in_memory(store: Store) -> None:
    service = Service("100ms")
    async with Node(service.app, store, roles=BOTH, options=QUIET) as node:
        task = await node.client.submit(service.payment, "a")
        assert await task.result(timeout="60s") == "a"
        assert (await task.status()).task.epoch == 1


async def test_a_cancel_reaches_it_at_once(store: Store) -> None:
    service = Service("2h", 100)
    async with Node(service.app, store, roles=BOTH, options=QUIET) as node:
        task = await node.client.submit(service.payment, "a")
        await asleep(node)
        answer = await task.cancel(why="too late", who="ann")
        assert (answer.verdict, answer.outcome) == ("applied", "what was done is being undone")
        assert (await task.wait("60s")).state == "undone"


async def test_a_command_that_changes_nothing_leaves_it_asleep(store: Store) -> None:
    service = Service("2h", 100)
    async with Node(service.app, store, roles=BOTH, options=QUIET) as node:
        task = await node.client.submit(service.payment, "a")
        await asleep(node)
        assert (await task.wake(who="ann")).verdict == "noop"
        assert (await task.extend("1h", who="ann")).verdict == "applied"
        await eventually(lambda: in_memory(node) == 0, "the Scheduler to let it go again")
        assert (await task.status()).task.state == "sleeping"


async def test_the_backlog_of_a_dead_service_does_not_stop_others(store: Store) -> None:
    """200 tasks wait for a service, at a Scheduler that holds 50: those of another one run through."""
    service = Service("2h", 100)
    few = replace(QUIET, max_tasks=50)
    async with Node(service.app, store, roles=BOTH, options=few) as node:
        await node.client.submit_many(service.payment, [f"{n}" for n in range(200)])
        others = await node.client.submit_many(service.note_flow, [f"other {n}" for n in range(20)])
        for task in others:
            await task.result(timeout="60s")
        await asleep(node, 200)
        await eventually(lambda: in_memory(node) == 0, "the Scheduler to let it go")


async def test_a_scheduler_that_ends_lets_it_sleep_and_another_wakes_it(
    store: Store, other: Store, world: World
) -> None:
    service = Service("300ms")
    async with Node(service.app, other, roles=BOTH, options=QUIET) as second:
        first = Node(service.app, store, roles=("scheduler",), options=QUIET)
        assert second._scheduler is not None
        second._scheduler.turns.claims.open = False
        async with first:
            task = await second.client.submit(service.payment, "a")

            async def waits() -> bool:
                view = await task.status()
                return view.task.locked_by is not None and any(step.waiting for step in view.steps)

            await until(waits, "the service to ask to wait")
        assert ((await task.status()).task.state, service.calls) == ("sleeping", ["a"])
        second._scheduler.turns.claims.open = True
        second._scheduler.wakeups.wake_for_sleepers()  # what others let go rings nowhere: it would poll
        await world.elapse(0.5)
        assert await task.result(timeout="60s") == "a"


async def test_beside_a_step_that_runs_it_stays(store: Store) -> None:
    app, go = mg.App("shop"), asyncio.Event()
    bank = app.agent("bank")
    question = asyncio.Event()

    @bank.action(complete_within="1m", undo=mg.NOTHING)
    async def later(order: str) -> str:
        question.set()
        raise mg.Later("2h")

    @bank.action(complete_within="1m", undo=mg.NOTHING)
    async def slow(order: str) -> str:
        await question.wait()
        await go.wait()
        return order

    @app.workflow()
    def both(order: str) -> tuple[str, str]:
        return mg.parallel(later(order), slow(order))

    async with Node(app, store, roles=BOTH, options=QUIET) as node:
        task = await node.client.submit(both, "a")

        async def waits() -> bool:
            return any(step.waiting for step in (await task.status()).steps)

        await until(waits, "the service to ask to wait")
        assert ((await task.status()).task.state, in_memory(node)) == ("processing", 1)
        go.set()
        await asleep(node)
        await eventually(lambda: in_memory(node) == 0, "the Scheduler to let it go")
