"""Schedulers that die and freeze with a signal in their hands, and Supervisors with a moment of a schedule in theirs."""

from collections import Counter
from typing import Any

import pytest

from makegood import TaskHandle
from makegood.store.schedule_records import ScheduleView
from makegood.store.views import Filter
from tests.processes import fault_app
from tests.processes.test_supervisors import leads
from tests.processes.test_waits import BRIEF, LONG, ends_whole, refused, waits
from tests.processes.world import World

EVERY = 1.0
SCHEDULE = "bell"


# -- signals -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["heard:kill:when-armed", "signalling:kill"])
async def test_scheduler_killed_with_a_signal_in_its_hands(world: World, fault: str) -> None:
    """It has read the signal of a task that it holds, or decided about it: the signal still is in the store, and is used once."""
    async with world:
        agent = world.start("agent", "agent")
        first = world.start("scheduler-1", "scheduler", fault=fault, linger=LONG)
        await world.started(agent, first, world.start("supervisor", "supervisor"))
        task = await world.submit(fault_app.ask_first, "a")
        await waits(world, task, "word", "processing", first, agent)
        first.arm()
        assert (await world.client.signal(task, fault_app.word, "yes", id="click")).created
        await world.dies(first, fault.partition(":")[0])
        assert [(row["id"], row["used"]) for row in await world.rows("signal")] == [("click", None)]
        assert [row["kind"] for row in await world.rows("inbox")] == ["signal"]
        await world.started(world.start("scheduler-2", "scheduler", linger=LONG))
        await ends_whole(world, task, "word", epoch=2, failures=1)


async def test_scheduler_killed_when_it_has_claimed_a_task_for_a_signal(world: World) -> None:
    """The claim of a task that slept has used the signal: whoever takes the task over does not use it again."""
    async with world:
        agent = world.start("agent", "agent")
        first = world.start("scheduler-1", "scheduler", fault="claimed:kill:when-armed", linger=BRIEF)
        await world.started(agent, first, world.start("supervisor", "supervisor"))
        task = await world.submit(fault_app.ask_first, "a")
        await waits(world, task, "word", "sleeping", first, agent)
        first.arm()
        await world.client.signal(task, fault_app.word, "yes", id="click")
        await world.dies(first, "claimed")
        assert [(row["id"], row["used"]) for row in await world.rows("signal")] == [("click", 1)]
        await world.started(world.start("scheduler-2", "scheduler", linger=BRIEF))
        await ends_whole(world, task, "word", epoch=3, failures=1)


async def test_scheduler_stopped_with_a_signal_in_its_hands(world: World) -> None:
    """It wakes with a decision that uses the signal once another one has used it: the store refuses it."""
    async with world:
        agent = world.start("agent", "agent")
        sleeper = world.start("sleeper", "scheduler", fault="signalling:stop", linger=LONG)
        await world.started(agent, sleeper, world.start("supervisor", "supervisor"))
        task = await world.submit(fault_app.ask_first, "a")
        await waits(world, task, "word", "processing", sleeper, agent)
        await world.client.signal(task, fault_app.word, "yes", id="click")
        await world.stops(sleeper, "signalling")
        await world.declared_dead(sleeper)
        await world.started(world.start("second", "scheduler", linger=LONG))
        await ends_whole(world, task, "word", epoch=2, failures=1)
        await refused(world, sleeper, task)
        assert [(row["id"], row["used"]) for row in await world.rows("signal")] == [("click", 1)]


# -- schedules -----------------------------------------------------------------------------------------------------------


async def view_of(world: World) -> ScheduleView:
    """Return the schedule as it is."""
    (view,) = await world.client.store.schedules.views(1, "faults", SCHEDULE)
    return view


async def fires_on(world: World, *, more: int) -> None:
    """Wait until ``more`` moments were fired from now on; see that each moment so far has one task, or is counted as skipped."""
    count = (await view_of(world)).firings + more

    async def enough() -> bool:
        return (await view_of(world)).firings >= count

    await world.until(enough, f"the schedule fires {more} times more")
    await (await world.client.find_schedule(SCHEDULE)).pause()
    view = await view_of(world)
    tasks = await world.client.find(Filter(workflow=fault_app.ring.name, limit=1000))
    assert max(Counter(task.key for task in tasks).values()) == 1
    assert len(tasks) == view.firings
    moments = int(view.since // EVERY) - int(view.first_at // EVERY)
    assert moments == view.firings + sum(view.skips.values())
    for task in tasks:
        handle: TaskHandle[Any] = world.client.task(task.id)
        await world.ended(handle, "processed")
    assert await world.left_over() == []


@pytest.mark.parametrize("point", ["firing", "fired"])
async def test_supervisor_killed_around_a_firing(world: World, point: str) -> None:
    """Before its transaction the moment is its successor's, after it the task is there: each moment once."""
    async with world:
        first = world.start("supervisor-1", "supervisor", fault=f"{point}:kill:when-armed")
        await world.started(first, world.start("scheduler", "scheduler", linger=BRIEF))
        await world.client.schedule(SCHEDULE, fault_app.ring, every=EVERY)
        await world.until(lambda: first.trace("fired"), "it fires", first)
        first.arm()
        await world.dies(first, point)
        await world.started(world.start("supervisor-2", "supervisor"))
        await fires_on(world, more=2)
        assert world.children["supervisor-2"].trace("fired")
        assert await world.epoch() == 2


async def test_two_supervisors_one_stopped_when_it_is_about_to_fire(world: World) -> None:
    """The old leader wakes with a moment in its hands that the new one has dealt with: the store refuses its term."""
    async with world:
        sleeper = world.start("sleeper", "supervisor", fault="firing:stop:when-armed")
        await world.started(sleeper, world.start("scheduler", "scheduler", linger=BRIEF))
        await world.client.schedule(SCHEDULE, fault_app.ring, every=EVERY)
        await world.until(lambda: sleeper.trace("fired"), "it fires", sleeper)
        second = world.start("second", "supervisor")
        await world.started(second)
        sleeper.arm()
        await world.stops(sleeper, "firing")
        await world.unled()
        await leads(world, second, 2)
        await world.until(lambda: second.trace("fired"), "the new leader fires", second)
        count = len(sleeper.trace("fired"))
        sleeper.resume()
        fences = await world.until(lambda: sleeper.trace("fenced off"), "the old leader is refused", sleeper)
        assert {entry["epoch"] for entry in fences} == {1}
        assert len(sleeper.trace("fired")) == count
        await fires_on(world, more=2)


async def test_all_processes_killed_over_a_sleep_and_a_delayed_start(world: World) -> None:
    """Nothing runs while the moments come; whoever starts later finds what is due."""
    async with world:
        first = [
            world.start(f"{role}-1", role, linger=BRIEF) for role in ("scheduler", "agent", "supervisor")
        ]
        await world.started(*first)
        task = await world.submit(fault_app.rest, "a")
        later = await world.client.submit(fault_app.fill, fault_app.Order("b"), delay=fault_app.REST)
        await waits(world, task, "sleep", "sleeping", *first)
        for child in first:
            child.kill()
        due = await world.client.store.now() + fault_app.REST

        async def past() -> bool:
            return await world.client.store.now() > due

        await world.until(past, "both moments have come")
        for role in ("scheduler", "agent"):
            world.start(f"{role}-2", role)
        await world.ended(later, "processed")
        view = await world.ended(task, "processed")
        assert (view.epoch, view.failure_count) == (2, 0)
        assert await world.moves(later, "task") == ["sleeping", "processing", "processed"]
        assert await world.left_over() == []
        stand = dict.fromkeys(("hold", "charge", "send"), 1)
        world.audit({"a": stand, "b": stand})
