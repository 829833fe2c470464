"""An outage of a service undoes nothing by itself: of whatever kind, with one agent process and several, forward and in the undo."""

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

import makegood as mg
from makegood.client.handle import TaskHandle
from makegood.node.node import Node
from makegood.options import Options
from makegood.store.sqlite import SQLiteStore
from tests.conformance.worlds import SQLiteWorld, World, eventually
from tests.waiting import until

ONE_TRY = mg.Retry(tries=1)
SOON = mg.Recover(threshold=3, wait="1ms", extended="2ms")
"""As declared by default, a thousand times faster: the fifth failure is the verdict."""

BRISK = Options(
    heartbeat="200ms",
    dead_after="60s",
    poll_every="20ms",
    drain="0s",
    supervise_every="500ms",
    late_after="50ms",
)

HEARD = replace(BRISK, late_after="2s")
"""The agents have two seconds to excuse a silence before the Supervisor judges it: 50 ms are over before a busy machine lets them."""

IN_ORDER = replace(BRISK, drain="60s")
"""A process that ends when its calls are answered, and its answers are in the store."""


class Service:
    """A service that is up or down. ``down``: nobody is answered; ``broken``: orders whose calls fail whatever the service does.
    ``asked``: calls by what they asked for.
    """

    def __init__(self, *, down: bool = False, silent: bool = False) -> None:
        self.down, self.silent = down, silent
        self.broken: set[str] = set()
        self.asked: Counter[str] = Counter()
        self.back = asyncio.Event()

    @property
    def calls(self) -> int:
        """How many calls there were."""
        return self.asked.total()

    async def call(self, what: str) -> None:
        """Be called."""
        self.asked[what] += 1
        if self.down and self.silent:
            await self.back.wait()
        if self.down or what in self.broken:
            raise ConnectionError("payments does not answer")


def shop(service: Service, breaker: mg.Breaker, *, within: str = "20s", **terms: Any) -> tuple[mg.App, Any]:
    """Return an app with one action and its undo at the same service, and its workflow."""
    app = mg.App("shop")
    payments = app.agent("payments", concurrency=4, breaker=breaker)

    @payments.action(complete_within=within, retry=ONE_TRY, recover=SOON)
    async def charge(order: str) -> str:
        await service.call(order)
        return order

    @charge.undo
    async def refund(order: str, *, result: str | None) -> None:
        await service.call(f"undo {order}")

    @app.workflow(**terms)
    def buy(order: str) -> str:
        return charge(order)

    return app, buy


@asynccontextmanager
async def processes(app: mg.App, world: World, agents: int, options: Options = BRISK) -> AsyncIterator[Node]:
    """Run a Scheduler with a Supervisor, and so many processes with the agents; yields the first, which has a client."""
    async with AsyncExitStack() as stack:
        beside = ("agent",) if agents == 1 else ()
        first = await running(stack, world, ("scheduler", "supervisor", *beside), app, options)
        for _ in range(agents if agents > 1 else 0):
            await running(stack, world, ("agent",), app, options)
        yield first


async def running(
    stack: AsyncExitStack, world: World, roles: Sequence[str], app: mg.App, options: Options = BRISK
) -> Node:
    """Run a process with a store of its own, whose clock moves by itself, until the stack is left."""
    store = SQLiteStore(world.path) if isinstance(world, SQLiteWorld) else world.store()
    await store.open(migrate=True)
    stack.push_async_callback(store.close)
    return await stack.enter_async_context(Node(app, store, roles=roles, options=options))


async def submit(node: Node, workflow: Any, count: int) -> list[TaskHandle[Any]]:
    """Submit tasks; the last has the highest priority."""
    return [
        await node.client.submit(workflow, f"o-{n}", priority=9 if n == count - 1 else 0)
        for n in range(count)
    ]


async def counted(tasks: Sequence[TaskHandle[Any]]) -> list[tuple[str, int]]:
    """Return the state of each task, and how many failures its step has."""
    views = [await task.status() for task in tasks]
    return [(view.task.state, view.steps[0].failures) for view in views]


@pytest.mark.parametrize("agents", [1, 2])
@pytest.mark.parametrize("tasks", [1, 4])
@pytest.mark.parametrize("failures", [1, 3, 5])
async def test_an_outage_undoes_nothing(world: World, agents: int, tasks: int, failures: int) -> None:
    """Each step has counted a failure at most once, of as many attempts as there were; when the service is back all are done."""
    service = Service(down=True)
    app, buy = shop(service, mg.Breaker(failures=failures, reset="5ms"))
    async with processes(app, world, agents) as node:
        orders = await submit(node, buy, tasks)
        await eventually(lambda: service.calls >= 12 * tasks + agents * failures, "many attempts")
        for state, count in await counted(orders):
            assert (state, count <= 1) == ("processing", True)
        service.down = False
        await asyncio.gather(*(task.result(timeout="60s") for task in orders))


@pytest.mark.parametrize("tasks", [1, 4])
@pytest.mark.parametrize("failures", [1, 3, 5])
async def test_an_outage_that_six_processes_meet_undoes_nothing(
    world: World, tasks: int, failures: int
) -> None:
    await test_an_outage_undoes_nothing(world, 6, tasks, failures)


@pytest.mark.parametrize("agents", [1, 2])
async def test_a_step_that_may_fail_but_once_is_not_undone_either(world: World, agents: int) -> None:
    """Its second failure would be the verdict, and its probe asks the same service, at once after each failure."""
    service, app = Service(down=True), mg.App("shop")
    payments = app.agent("payments", breaker=mg.Breaker(failures=5, reset="5ms"))
    once = mg.Recover(threshold=0, wait="1ms", extended="1ms")

    @payments.action(complete_within="20s", retry=ONE_TRY, recover=once)
    async def charge(order: str) -> str:
        await service.call(order)
        return order

    @charge.probe
    async def found(order: str) -> mg.Happened[str] | mg.NotHappened:
        await service.call(f"probe {order}")
        return mg.NOT_HAPPENED

    @charge.undo
    async def refund(order: str, *, result: str | None) -> None:
        await service.call(f"undo {order}")

    @app.workflow()
    def buy(order: str) -> str:
        return charge(order)

    async with processes(app, world, agents) as node:
        (task,) = await submit(node, buy, 1)
        await eventually(lambda: service.calls >= 25, "many attempts")
        assert await counted([task]) == [("processing", 1)]
        service.down = False
        await task.result(timeout="60s")


@pytest.mark.parametrize("agents", [1, 2])
async def test_silence_is_an_outage_too(world: World, agents: int) -> None:
    """Calls hang until their complete-by, each judged by the Supervisor: one failure for a step at most."""
    service = Service(down=True, silent=True)
    app, buy = shop(service, mg.Breaker(failures=2, reset="5ms"), within="300ms")
    async with processes(app, world, agents, HEARD) as node:
        orders = await submit(node, buy, 2)
        await eventually(lambda: service.calls >= 8, "several attempts")
        for state, failures in await counted(orders):
            assert (state, failures <= 1) == ("processing", True)
        service.down = False
        service.back.set()
        await asyncio.gather(*(task.result(timeout="60s") for task in orders))


async def test_a_plain_function_that_hangs_is_an_outage_too(world: World) -> None:
    """It cannot be stopped, and returns after its complete-by: what it then raises counts for nobody."""
    app, down, calls = mg.App("shop"), threading.Event(), Counter[str]()
    payments = app.agent("payments", concurrency=2, breaker=mg.Breaker(failures=1, reset="5ms"))
    down.set()

    @payments.action(complete_within="300ms", retry=ONE_TRY, recover=SOON, undo=mg.NOTHING)
    def charge(order: str) -> str:
        calls[order] += 1
        if down.is_set():
            threading.Event().wait(0.4)
            raise TimeoutError("payments does not answer")
        return order

    @app.workflow()
    def buy(order: str) -> str:
        return charge(order)

    async with processes(app, world, 1, HEARD) as node:
        orders = await submit(node, buy, 2)
        await eventually(lambda: calls.total() >= 8, "several attempts")
        for state, failures in await counted(orders):
            assert (state, failures <= 1) == ("processing", True)
        down.clear()
        await asyncio.gather(*(task.result(timeout="60s") for task in orders))


async def test_an_outage_that_begins_in_the_undo_ends_none_in_error(world: World) -> None:
    """The undo waits at the same service, as the action did."""
    service = Service()
    app, buy = shop(service, mg.Breaker(failures=3, reset="5ms"))
    async with processes(app, world, 1) as node:
        orders = await submit(node, buy, 3)
        await asyncio.gather(*(task.result(timeout="60s") for task in orders))
        service.down = True
        before = service.calls
        for task in orders:
            await task.undo(why="sent back")
        await eventually(lambda: service.calls >= before + 40, "many attempts")
        for state, failures in await counted(orders):
            assert (state, failures <= 1) == ("undoing", True)
        service.down = False
        for task in orders:
            with pytest.raises(mg.TaskUndone):
                await task.result(timeout="60s")


async def test_a_task_with_a_complete_by_of_its_own_ends_by_it(world: World) -> None:
    """In an outage too: its verdict is its workflow's, and its undo waits for the service without counting."""
    service = Service(down=True)
    app, buy = shop(service, mg.Breaker(failures=3, reset="5ms"), complete_within="300ms")
    async with processes(app, world, 1) as node:
        orders = await submit(node, buy, 2)

        async def undoing() -> bool:
            return {state for state, _ in await counted(orders)} == {"undoing"}

        await until(undoing, "the tasks' complete-by")
        before = service.calls
        await eventually(lambda: service.calls >= before + 20, "many attempts")
        for state, failures in await counted(orders):
            assert (state, failures <= 1) == ("undoing", True)
        service.down = False
        for task in orders:
            with pytest.raises(mg.TaskUndone):
                await task.result(timeout="60s")


async def test_a_step_that_is_broken_comes_to_its_verdict_while_others_are_answered(world: World) -> None:
    service = Service()
    service.broken |= {"o-0"}
    app, buy = shop(service, mg.Breaker(failures=3, reset="5ms"))
    async with processes(app, world, 1) as node:
        (broken_task,) = await submit(node, buy, 1)
        end = asyncio.create_task(broken_task.result(timeout="60s"))
        n = 0
        while not end.done():
            n += 1
            await (await node.client.submit(buy, f"other-{n}")).result(timeout="60s")
        with pytest.raises(mg.TaskUndone):
            await end
        assert service.asked["o-0"] >= 5


async def test_a_broken_step_keeps_no_other_from_being_the_canary(world: World) -> None:
    """Alone it waits, for an operator; what comes after it is drawn next, though its priority is lower, and closes the circuit."""
    service = Service()
    service.broken |= {"o-0"}
    app, buy = shop(service, mg.Breaker(failures=3, reset="20ms"))
    async with processes(app, world, 1) as node:
        (broken_task,) = await submit(node, buy, 1)  # with the highest priority
        await eventually(lambda: service.asked["o-0"] >= 10, "canaries")
        assert (await counted([broken_task]))[0] == ("processing", 1)
        good = [await node.client.submit(buy, f"good-{n}") for n in range(3)]
        await asyncio.gather(*(task.result(timeout="60s") for task in good))
        await broken_task.cancel(why="it cannot be done")


async def test_canaries_are_drawn_in_turn(world: World) -> None:
    """Not always the task of the highest priority: of four that wait none is asked much more often than another."""
    service = Service(down=True)
    app, buy = shop(service, mg.Breaker(failures=1, reset="5ms"))
    async with processes(app, world, 1) as node:
        orders = await submit(node, buy, 4)
        await eventually(lambda: service.calls >= 44, "canaries")
        attempts = sorted(service.asked[f"o-{n}"] for n in range(4))
        assert attempts[-1] <= 2 * attempts[0], attempts
        service.down = False
        await asyncio.gather(*(task.result(timeout="60s") for task in orders))


async def test_a_process_that_begins_in_an_outage_counts_nothing_again(world: World) -> None:
    """Ten restarts of the agent's process, each with a closed circuit: an operator who tries that undoes nothing."""
    service = Service(down=True)
    app, buy = shop(service, mg.Breaker(failures=3, reset="5ms"))
    async with processes(app, world, 0) as node:
        (task,) = await submit(node, buy, 1)
        for _ in range(10):
            before = service.calls
            async with AsyncExitStack() as stack:
                await running(stack, world, ("agent",), app, IN_ORDER)
                await eventually(lambda before=before: service.calls >= before + 4, "an open circuit")
        (one,) = await counted([task])
        assert one == ("processing", 1)


async def test_calls_that_a_restart_cuts_off_count_nothing_again(world: World) -> None:
    """The service hangs, and the process does not wait for it: what it cut off is silent, which says nothing of the step."""
    service = Service(down=True, silent=True)
    app, buy = shop(service, mg.Breaker(failures=5, reset="5ms"), within="400ms")
    async with processes(app, world, 0, HEARD) as node:
        (task,) = await submit(node, buy, 1)
        for _ in range(4):  # a closed circuit each, and the call is nobody's trial
            before = service.calls
            async with AsyncExitStack() as stack:
                await running(stack, world, ("agent",), app)
                await eventually(lambda before=before: service.calls > before, "a call")
        async with AsyncExitStack() as stack:
            before = service.calls
            await running(stack, world, ("agent",), app)
            await eventually(lambda: service.calls > before, "the last silence to be judged")
            assert await counted([task]) == [("processing", 1)]
            service.down = False
            service.back.set()
            await task.result(timeout="60s")
