"""A process that died is missed at once: no test here waits for a deadline, a heartbeat or a lease, which all last minutes."""

from typing import Any

from tests.processes import fault_app
from tests.processes.world import Child, World

LONG: dict[str, Any] = {"heartbeat": 1.0, "dead_after": 600.0, "lease": 600.0, "supervise_every": 0.5}
RESUMED = {"stamp": ("done", 2, 1, 1)}


async def resumed(world: World, task: Any, calls: list[str]) -> None:
    """See that the second attempt, under the same key, ended the matter."""
    await world.ended(task, "processed")
    assert await world.steps(task) == RESUMED
    assert await world.moves(task, "stamp") == ["waiting", "ready", "running", "in_doubt", "running", "done"]
    assert world.service.calls("stamp") == calls
    assert world.service.arrivals("stamp") == 2
    assert await world.left_over() == []
    world.audit({"a": {"stamp": 1}})


async def test_agent_killed_and_missed_at_once(world: World) -> None:
    """A Supervisor of its host sees that it is gone."""
    async with world:
        agents = [world.start(name, "agent", agents=["post"], **LONG) for name in ("post-1", "post-2")]
        others = (
            world.start("scheduler", "scheduler", **LONG),
            world.start("supervisor", "supervisor", **LONG),
        )
        await world.started(*agents, *others)
        task = await world.submit(fault_app.mail, "a", {"stamp": ["kill after"]})
        await world.until(lambda: any(agent.killed() for agent in agents), "one of the agents dies")
        await resumed(world, task, ["done", "repeated"])


async def test_everything_killed_and_started_again_under_its_name(world: World) -> None:
    """Its successor frees its tasks and takes its lease, whatever is left of that; then it resumes its attempt."""
    async with world:
        first = world.start("all", "scheduler", "agent", "supervisor", agents=["post"], **LONG)
        await world.started(first)
        task = await world.submit(fault_app.mail, "a", {"stamp": ["kill before"]})
        await world.dies(first)
        del world.children["all"]
        world.start("all", "scheduler", "agent", "supervisor", agents=["post"], **LONG)
        await resumed(world, task, ["done"])


async def test_agent_stopped_and_taken_for_dead(world: World) -> None:
    """It is slow and not dead: two attempts run at once under one key, which has one effect, and the first answer is late."""
    async with world:
        agents = [world.start(name, "agent", agents=["post"]) for name in ("post-1", "post-2")]
        await world.started(
            *agents, world.start("scheduler", "scheduler"), world.start("supervisor", "supervisor")
        )
        task = await world.submit(fault_app.mail, "a", {"stamp": ["stop after"]})

        def asleep() -> Child | None:
            return next((agent for agent in agents if agent.halted()), None)

        slow: Child = await world.until(asleep, "one of the agents stops itself")
        slow.settle()
        await world.declared_dead(slow)
        await resumed(world, task, ["done", "repeated"])
        slow.resume()
        (answer,) = await world.until(lambda: slow.trace("answer"), "it answers", slow)
        assert answer["accepted"] == [False]
        assert "done came too late for step 0, attempt 1" in await world.notes(task)
        assert await world.steps(task) == RESUMED
        assert (await world.view(task)).state == "processed"
        world.audit({"a": {"stamp": 1}})
