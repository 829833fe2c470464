"""Workflows that wait, with a whole Node that never polls: timers and wake-ups alone end their sleeps."""

from datetime import UTC, datetime, timedelta

import makegood as mg
from makegood.node.node import Node
from makegood.scheduler.task_table import Timers
from makegood.store.protocol import Store
from tests.actors.conftest import QUIET
from tests.conformance.worlds import World, eventually
from tests.waiting import moment

BOTH = ("scheduler", "agent")
app = mg.App("trips")
desk = app.agent("desk")


@desk.action(complete_within="1m", undo=mg.NOTHING)
async def book(city: str) -> str:
    return city


@desk.action(complete_within="1m", undo=mg.NOTHING)
async def departs(city: str) -> datetime:
    return datetime(2000 if city == "past" else 2034, 1, 1, tzinfo=UTC)


@app.workflow
def nap(city: str, length: timedelta) -> str:
    book(city)
    mg.sleep(length)
    return book(city)


@app.workflow
def trip(city: str) -> str:
    mg.sleep_until(departs(city))
    return book(city)


@app.workflow
def judged(city: str) -> str:
    return mg.when(
        book(city) == "Rome", then=lambda: book(city), otherwise=lambda: mg.fail("the boss said no")
    )


async def asleep(task: mg.TaskHandle[str]) -> mg.StepView:
    """Wait until a task sleeps; return the step that does."""
    while True:
        for step in (await task.status()).steps:
            if step.kind == "sleep" and step.state == "ready":
                return step
        await moment()


def timers(node: Node) -> Timers:
    """Return the timers of a Node's Scheduler."""
    assert node._scheduler is not None
    return node._scheduler.tasks.timers


async def test_a_sleep_ends_by_itself(store: Store, world: World) -> None:
    async with Node(app, store, roles=BOTH, options=QUIET) as node:
        task = await node.client.submit(nap, "Rome", timedelta(milliseconds=200))
        await asleep(task)
        # Not before its Scheduler counts from where the store's clock stands.
        await eventually(lambda: timers(node).ends, "the Scheduler to set its timer")
        await world.elapse(0.2)
        assert await task.result(timeout="60s") == "Rome"
        moves = [
            move[1:]
            async for event in task.events(follow=False)
            for move in event.moves
            if move.name == "sleep"
        ]
        assert moves == [
            ("waiting", "ready", "predecessors done or skipped"), ("ready", "done", "its moment has come"),
        ]  # fmt: skip
        assert not await store.admin.audit(10)


async def test_commands_reach_a_task_that_sleeps(store: Store) -> None:
    async with Node(app, store, roles=BOTH, options=QUIET) as node:
        first, second = [await node.client.submit(nap, "Rome", timedelta(days=30)) for _ in range(2)]
        step = await asleep(first)
        assert step.due is not None
        assert 29 * 86_400 < step.due <= 30 * 86_400
        answer = await first.wake(step="sleep", why="the weather", who="ann")
        assert (answer.verdict, answer.outcome) == ("applied", "sleep ends now")
        assert await first.result(timeout="60s") == "Rome"
        assert (await first.wake()).verdict == "noop"
        await asleep(second)
        assert (await second.cancel(who="ann")).verdict == "applied"
        assert (await second.wait("60s")).state == "undone"
        assert {step.name: step.state for step in (await second.status()).steps} == {
            "book": "kept", "sleep": "waiting", "book-2": "waiting",
        }  # fmt: skip


async def test_another_scheduler_ends_the_sleep_at_the_same_moment(store: Store, other: Store) -> None:
    async with Node(app, store, roles=BOTH, options=QUIET) as node:
        task = await node.client.submit(nap, "Rome", timedelta(hours=1))
        before = (await asleep(task)).due
    async with Node(app, other, roles=BOTH, options=QUIET) as node:
        task = node.client.task(task.id)
        after = (await asleep(task)).due
        assert before is not None
        assert after is not None
        assert after <= before
        await task.wake()
        assert await task.result(timeout="60s") == "Rome"


async def test_a_moment_that_has_passed_is_no_wait(store: Store) -> None:
    async with Node(app, store, roles=BOTH, options=QUIET) as node:
        assert await (await node.client.submit(trip, "past")).result(timeout="60s") == "past"
        far = await node.client.submit(trip, "Rome")
        step = await asleep(far)
        assert step.due is not None
        assert 3 * 365 * 86_400 < step.due < 10 * 366 * 86_400


async def test_a_fail_undoes_with_its_reason(store: Store) -> None:
    async with Node(app, store, roles=BOTH, options=QUIET) as node:
        assert await (await node.client.submit(judged, "Rome")).result(timeout="60s") == "Rome"
        task = await node.client.submit(judged, "Oslo")
        assert (await task.wait("60s")).state == "undone"
        assert (await task.status()).task.cause == "the boss said no"
        assert not await store.alerts.views(10)
