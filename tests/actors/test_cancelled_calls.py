"""A running action hears that nobody needs it, in whichever process; what it did is undone at once, and it is no failure."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

import makegood as mg
from makegood.model.messages import TaskMessage
from makegood.node.node import Node
from makegood.options import Options
from makegood.store.protocol import Store
from tests.actors.conftest import QUIET
from tests.actors.lone_agent import Waiting, request, running
from tests.conformance.worlds import World, eventually

BEATING = Options(
    heartbeat="50ms", dead_after="3h", poll_every=None, drain="1s", alerts_every=None, leaderless_after=None
)


class Transfer:
    """A workflow whose first action transfers for as long as nobody stops it; the other fails once ``fails`` is set."""

    def __init__(self, **options: Any) -> None:
        self.began, self.fails = asyncio.Event(), asyncio.Event()
        self.notes: list[str] = []
        self.app = app = mg.App("shop")
        bank = app.agent("bank", breaker=mg.Breaker(failures=1))
        shelf = app.agent("shelf")

        @bank.action(complete_within="1h", **options)
        async def transfer(order: str) -> None:
            self.began.set()
            try:
                await mg.current_call().sleep("50m")
            except asyncio.CancelledError:
                self.notes.append("stopped")
                raise
            finally:
                self.notes.append(f"cancelled: {mg.current_call().cancelled}")

        @transfer.undo
        async def transfer_back(order: str, *, result: str | None) -> None:
            call = mg.current_call()
            self.notes.append(f"undone, in doubt: {call.in_doubt}, cancelled: {call.cancelled}")

        @shelf.action(complete_within="1m", undo=mg.NOTHING, cancellable=True)
        async def fail(order: str) -> None:
            await self.fails.wait()
            raise mg.Permanent("no")

        @app.workflow()
        def move(order: str) -> None:
            mg.parallel(transfer(order), fail(order))

        self.move = move


@asynccontextmanager
async def nodes(app: mg.App, near: Store, far: Store | None) -> AsyncIterator[list[Node]]:
    """Run a Scheduler and agents, together or each in a process of its own."""
    if far is None:
        async with Node(app, near, roles=("scheduler", "agent"), options=QUIET) as node:
            yield [node, node]
        return
    async with (
        Node(app, near, roles=("scheduler",), options=QUIET) as scheduler,
        Node(app, far, roles=("agent",), options=QUIET) as agent,
    ):
        yield [scheduler, agent]


async def history(task: mg.TaskHandle[Any]) -> list[str]:
    """Return the reasons of all moves of a task, as people read them."""
    return [move.why async for event in task.events(follow=False) for move in event.moves]


@pytest.mark.parametrize("apart", [False, True])
async def test_a_cancel_reaches_an_action_that_sleeps_and_it_is_undone_at_once(
    store: Store, other: Store, *, apart: bool
) -> None:
    work = Transfer()
    async with nodes(work.app, store, other if apart else None) as (scheduler, agent):
        task = await scheduler.client.submit(work.move, "o")
        await work.began.wait()
        work.fails.set()  # another branch fails
        view = await task.wait("120s")  # less than it would sleep
        assert (view.state, view.failure_count) == ("undone", 0)
        assert work.notes == ["cancelled: True", "undone, in doubt: True, cancelled: False"]
        assert any("heard the cancel, ended after " in why for why in await history(task))
        detail = await task.status()
        assert detail.steps[1].error is not None or detail.steps[2].error is not None
        assert agent._agents is not None
        slots = agent._agents.slots["shop/bank"]
        assert (slots.failures, slots.success) == (0, 1.0)
        assert slots.circuit is not None
        assert slots.circuit.state == "closed"
        assert await scheduler.client.alerts() == []


@pytest.mark.parametrize("apart", [False, True])
async def test_an_action_that_is_cancellable_is_cancelled(store: Store, other: Store, *, apart: bool) -> None:
    work = Transfer(cancellable=True)
    async with nodes(work.app, store, other if apart else None) as (scheduler, _):
        task = await scheduler.client.submit(work.move, "o")
        await work.began.wait()
        act = asyncio.ensure_future(task.cancel(who="ann"))
        assert (await task.wait("120s")).state == "undone"
        await act
        assert work.notes == ["stopped", "cancelled: True", "undone, in doubt: True, cancelled: False"]


async def test_a_thread_hears_too(store: Store) -> None:
    app, began, loop = mg.App("shop"), asyncio.Event(), asyncio.get_running_loop()

    @app.agent("bank").action(complete_within="1m", undo=mg.NOTHING)
    def count(order: str) -> None:
        loop.call_soon_threadsafe(began.set)
        while True:
            mg.current_call().sleep(0.001)

    @app.workflow()
    def flow(order: str) -> None:
        count(order)

    async with Node(app, store, roles=("scheduler", "agent"), options=QUIET) as node:
        task = await node.client.submit(flow, "o")
        await began.wait()
        await task.cancel()
        assert (await task.wait("120s")).state == "undone"


async def test_a_lost_wake_up_is_made_up_for_by_the_heartbeat(store: Store, world: World) -> None:
    work = Transfer()
    async with Node(work.app, store, roles=("scheduler", "agent"), options=BEATING) as node:
        await node.client.submit(work.move, "o")
        await work.began.wait()
        async with world.raw() as raw:  # as a commit whose wake-up came to nobody
            await raw.run("update {request} set cancelled = true where kind = 'do'")
        await eventually(lambda: work.notes, "it to hear")
        assert work.notes[0] == "cancelled: True"
        work.fails.set()


class Recording(Waiting):
    """A channel that keeps what is answered."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[TaskMessage] = []

    async def answer(self, node: int, replies: Sequence[tuple[int, TaskMessage]]) -> list[bool]:
        """Keep the answers."""
        self.messages += [message for _, message in replies]
        return await super().answer(node, replies)


async def test_a_call_whose_turn_has_not_come_is_not_begun_and_nothing_is_in_doubt() -> None:
    """It was taken, and its agent's rate lets it begin in half a minute."""
    calls, channel = list[int](), Recording()

    async def charge() -> None:
        calls.append(1)

    async with running(channel, charge) as agents:
        channel.waiting = [replace(request(1), delay=30.0)]
        channel.wake()
        await eventually(lambda: agents.attempts.running, "it to wait for its turn")
        agents.attempts.cancel({(1, 0, 1)}, 2)  # that of another process
        agents.attempts.cancel({(1, 0, 1)}, 1)
        await eventually(lambda: channel.messages, "the answer")
    (message,) = channel.messages
    assert (calls, message.kind, message.unclear) == ([], "later", False)
    assert message.error == "it was not begun: nobody needs step charge of task 0000000000001 any more"
