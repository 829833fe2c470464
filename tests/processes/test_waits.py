"""Processes that die and freeze while a task sleeps, or waits for a person's word, and while a schedule fires.

A task that only waits is rows that nobody holds: whoever dies or freezes meanwhile, the wait ends at its moment or with its signal,
and no step runs twice.
"""

from typing import Any

import pytest

from makegood import TaskHandle
from tests.processes import fault_app
from tests.processes.test_agents import ALL_STAND
from tests.processes.test_supervisors import leads
from tests.processes.world import Child, World

WAITS = {"sleep": fault_app.rest, "word": fault_app.ask_first}
ONCE = {"hold": ("done", 1, 1, 0), "charge": ("done", 1, 1, 0), "send": ("done", 1, 1, 0)}
BRIEF, LONG = 0.1, 600.0
"""Seconds of ``linger``: a task that waits is let go at once, or stays with its Scheduler."""

pytestmark = pytest.mark.parametrize("wait", WAITS)


async def ends_whole(world: World, task: TaskHandle[Any], wait: str, *, epoch: int, failures: int) -> None:
    """Give the word if the task waits for it, twice under one id; see that it ends, with every step and the wait done once."""
    if wait == "word":
        answers = [await world.client.signal(task, fault_app.word, "yes", id="click") for _ in range(2)]
        assert not answers[1].created
    view = await world.ended(task, "processed")
    assert (view.epoch, view.failure_count) == (epoch, failures)
    steps = await world.steps(task)
    assert steps.pop(wait)[0] == "done"
    assert steps == ONCE
    assert await world.moves(task, wait) == ["waiting", "ready", "done"]
    assert wait == "word" or await seconds_of(world, task, wait) >= fault_app.REST
    assert [(row["id"], row["used"]) for row in await world.rows("signal")] == [("click", 1)] * (
        wait == "word"
    )
    assert await world.left_over() == []
    assert [world.service.calls(step) for step in ALL_STAND] == [["done"]] * 3
    world.audit({"a": ALL_STAND})


async def seconds_of(world: World, task: TaskHandle[Any], wait: str) -> float:
    """Return for how long a step waited, on the store's clock."""
    times = {
        after: event.at
        for event in await world.history(task)
        for name, _, after, _ in event.moves
        if name == wait
    }
    return times["done"] - times["ready"]


async def waits(world: World, task: TaskHandle[Any], wait: str, state: str, *living: Child) -> None:
    """Wait until a task is in ``state`` and its wait has begun."""

    async def so() -> bool:
        step = (await world.steps(task)).get(wait)
        return step is not None and step[0] == "ready" and (await world.view(task)).state == state

    await world.until(so, f"the task is {state} and waits", *living)


# -- schedulers ----------------------------------------------------------------------------------------------------------


async def test_scheduler_killed_when_it_is_about_to_let_a_task_go(world: World, wait: str) -> None:
    """The wait has not begun: whoever claims the task next decides the same."""
    async with world:
        agent = world.start("agent", "agent")
        first = world.start("scheduler-1", "scheduler", fault="resting:kill", linger=BRIEF)
        await world.started(agent, first, world.start("supervisor", "supervisor"))
        task = await world.submit(WAITS[wait], "a")
        await world.dies(first, "resting")
        assert (await world.steps(task))[wait][0] == "waiting"
        second = world.start("scheduler-2", "scheduler", linger=BRIEF)
        await waits(world, task, wait, "sleeping", second, agent)
        await ends_whole(world, task, wait, epoch=3, failures=1)


async def test_scheduler_killed_when_it_has_let_a_task_go(world: World, wait: str) -> None:
    """Nobody holds the task, so no Supervisor is needed."""
    async with world:
        agent = world.start("agent", "agent")
        first = world.start("scheduler-1", "scheduler", fault="rested:kill", linger=BRIEF)
        await world.started(agent, first)
        task = await world.submit(WAITS[wait], "a")
        await world.dies(first, "rested")
        view = await world.view(task)
        assert (view.state, view.locked_by) == ("sleeping", None)
        await world.started(world.start("scheduler-2", "scheduler", linger=BRIEF))
        await ends_whole(world, task, wait, epoch=2, failures=0)


async def test_scheduler_stopped_when_it_is_about_to_let_a_task_go(world: World, wait: str) -> None:
    """It wakes with its decision once the task has ended with others: the store refuses it."""
    async with world:
        agent = world.start("agent", "agent")
        sleeper = world.start("sleeper", "scheduler", fault="resting:stop", linger=BRIEF)
        await world.started(agent, sleeper, world.start("supervisor", "supervisor"))
        task = await world.submit(WAITS[wait], "a")
        await world.stops(sleeper, "resting")
        second = world.start("second", "scheduler", linger=BRIEF)
        await world.declared_dead(sleeper)
        await waits(world, task, wait, "sleeping", second, agent)
        await ends_whole(world, task, wait, epoch=3, failures=1)
        await refused(world, sleeper, task)


@pytest.mark.parametrize("act", ["kill", "stop"])
async def test_scheduler_killed_or_stopped_while_it_holds_a_task_that_waits(
    world: World, wait: str, act: str
) -> None:
    """It lingers, so a Supervisor frees the task; the moment stays where it was."""
    async with world:
        agent = world.start("agent", "agent")
        first = world.start("scheduler-1", "scheduler", linger=LONG)
        await world.started(agent, first, world.start("supervisor", "supervisor"))
        task = await world.submit(WAITS[wait], "a")
        await waits(world, task, wait, "processing", first, agent)
        if act == "kill":
            first.kill()
        else:
            first.stop()
            await world.declared_dead(first)
        await world.started(world.start("scheduler-2", "scheduler", linger=LONG))
        await ends_whole(world, task, wait, epoch=2, failures=1)
        if act == "stop":
            before = (await world.view(task), await world.steps(task), len(await world.history(task)))
            first.resume()
            await world.until(lambda: "declared dead" in first.log(), "it learns of its death", first)
            after = (await world.view(task), await world.steps(task), len(await world.history(task)))
            assert after == before


async def refused(world: World, sleeper: Child, task: TaskHandle[Any]) -> None:
    """Let a stopped Scheduler go on; see that its late decision about a task is lost and changes nothing."""
    before = (await world.view(task), await world.steps(task), len(await world.history(task)))
    sleeper.resume()
    late = await world.until(
        lambda: [e for e in sleeper.trace("commit") if e["lost"]], "its late decision is refused", sleeper
    )
    assert [entry["lost"] for entry in late] == [[task.number]]
    assert (await world.view(task), await world.steps(task), len(await world.history(task))) == before


# -- agents --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("act", ["kill", "stop"])
async def test_agent_killed_or_stopped_while_a_task_waits(world: World, wait: str, act: str) -> None:
    """Nothing of the task is in flight, so nothing fails; the step behind the wait finds an agent later."""
    async with world:
        agent = world.start("agent-1", "agent")
        scheduler = world.start("scheduler", "scheduler", linger=BRIEF)
        await world.started(agent, scheduler, world.start("supervisor", "supervisor"))
        task = await world.submit(WAITS[wait], "a")
        await waits(world, task, wait, "sleeping", scheduler, agent)
        if act == "kill":
            agent.kill()
            world.start("agent-2", "agent")
        else:
            agent.stop()
            if wait == "word":
                await world.client.signal(task, fault_app.word, "yes", id="click")

            async def requested() -> bool:
                return (await world.steps(task))["charge"][0] == "running"

            await world.until(requested, "the step behind the wait is requested", scheduler)
            agent.resume()
        await ends_whole(world, task, wait, epoch=2, failures=0)


# -- supervisors ---------------------------------------------------------------------------------------------------------


async def test_supervisor_killed_while_a_task_waits(world: World, wait: str) -> None:
    """A task that waits needs none: it ends without any."""
    async with world:
        agent = world.start("agent", "agent")
        scheduler = world.start("scheduler", "scheduler", linger=BRIEF)
        supervisor = world.start("supervisor", "supervisor")
        await world.started(agent, scheduler, supervisor)
        task = await world.submit(WAITS[wait], "a")
        await waits(world, task, wait, "sleeping", scheduler, agent)
        supervisor.kill()
        await ends_whole(world, task, wait, epoch=2, failures=0)


async def test_supervisor_stopped_when_it_is_about_to_free_a_task_that_waits(world: World, wait: str) -> None:
    """Another one frees it, and it ends; the old leader wakes, and frees nothing of it again."""
    async with world:
        agent = world.start("agent", "agent")
        first = world.start("scheduler-1", "scheduler", linger=LONG)
        sleeper = world.start("sleeper", "supervisor", fault="releasing:stop:when-armed")
        await world.started(agent, first, sleeper)
        await world.until(lambda: sleeper.trace("pass"), "the first supervisor leads", sleeper)
        second = world.start("second", "supervisor")
        await world.started(second)
        task = await world.submit(WAITS[wait], "a")
        await waits(world, task, wait, "processing", first, agent)
        sleeper.arm()
        await world.stops(sleeper, "releasing")
        first.kill()
        await world.unled()
        await leads(world, second, 2)
        await world.started(world.start("scheduler-2", "scheduler", linger=LONG))
        await ends_whole(world, task, wait, epoch=2, failures=1)
        before = (await world.view(task), len(await world.history(task)))
        sleeper.resume()
        await world.until(lambda: sleeper.trace("resumed"), "the old leader goes on", sleeper)
        await world.until(lambda: "is over" in sleeper.log(), "it learns that its term is over", sleeper)
        assert sleeper.trace("freed") == []
        assert [(entry["tasks"], entry["epoch"]) for entry in second.trace("freed")] == [([task.number], 2)]
        assert (await world.view(task), len(await world.history(task))) == before
