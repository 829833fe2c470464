"""Good order: SIGTERM loses nothing and leaves nothing to find out; several processes share one store without polling."""

import asyncio
import signal
from typing import Any

from makegood import TaskHandle
from makegood.node.signals import SAME
from makegood.store.views import TaskView
from tests.processes import fault_app
from tests.processes.test_agents import ALL_DONE_AT_ONCE, ALL_STAND
from tests.processes.world import World

GIVEN_BACK = ["pending", "processing", "pending", "processing", "processed"]


async def test_sigterm_gives_tasks_back_at_once(world: World) -> None:
    """A Scheduler that is told to end gives its task back within a moment; no supervisor is needed, nothing is counted."""
    async with world:
        first = world.start("scheduler-1", "scheduler", drain=60.0)
        agent = world.start("others", "agent", agents=["shelf", "van"])
        await world.started(first, agent)
        task = await world.submit(fault_app.fill, "a")
        await world.until(
            lambda: step_is(world, task, "charge", "running"), "a step waits for its agent", first
        )
        first.terminate()
        assert await world.ends(first) == 0
        view = await world.view(task)
        assert (view.state, view.locked_by, view.failure_count) == ("pending", None, 0)
        (node,) = [row for row in await world.rows("node") if row["name"] == "scheduler-1"]
        assert node["stopped_at"] is not None
        world.start("scheduler-2", "scheduler")
        world.start("till", "agent", agents=["till"])
        await nothing_lost(world, task)


async def test_sigterm_lets_a_running_action_finish(world: World) -> None:
    """A process with all roles takes nothing more, waits for the action that runs, records its reply, gives the task back."""
    async with world:
        first = world.start("all-1", "scheduler", "agent", "supervisor", drain=60.0)
        await world.started(first)
        task = await world.submit(fault_app.finish, "a", {"polish": ["hang after"]})
        await world.until((world.folder / "hangs").exists, "the action runs", first)
        other = await world.submit(fault_app.finish, "b")
        await world.until(
            lambda: step_is(world, other, "polish", "running"), "a request waits for the slot", first
        )
        first.terminate()
        await world.until(lambda: given_back(world, other), "the other task is given back at once", first)
        assert (await world.view(task)).locked_by == first.number()
        (world.folder / "free").touch()
        assert await world.ends(first) == 0
        assert await given_back(world, task)
        assert (await world.steps(task))["polish"] == ("done", 1, 1, 0)
        world.start("all-2", "scheduler", "agent", "supervisor")
        for each in (task, other):
            view = await world.ended(each, "processed")
            assert (view.failure_count, view.epoch) == (0, 2)
            assert await world.steps(each) == {"polish": ("done", 1, 1, 0), "haul": ("done", 1, 1, 0)}
        assert world.service.arrivals("polish") == 2
        assert await world.left_over() == []
        world.audit({ref: {"polish": 1, "haul": 1} for ref in ("a", "b")})


async def test_sigterm_under_load_loses_nothing(world: World) -> None:
    """One role after the other is replaced while forty tasks are under way: no step runs twice, nothing fails."""
    async with world:
        crew = [world.start(f"{role}-1", role) for role in ("scheduler", "agent", "supervisor")]
        await world.started(*crew)
        tasks = [await world.submit(fault_app.carry, f"o{n}") for n in range(40)]
        await world.until(lambda: world.service.calls("hold"), "work is under way", *crew)
        for old in crew:
            fresh = world.start(old.name.replace("-1", "-2"), old.name.removesuffix("-1"))
            await world.started(fresh)
            old.terminate()
            assert await world.ends(old) == 0
        for task in tasks:
            view = await world.ended(task, "processed")
            assert view.failure_count == 0
            assert await world.steps(task) == {"hold": ("done", 1, 1, 0), "haul": ("done", 1, 1, 0)}
        assert (world.service.arrivals("hold"), world.service.arrivals("haul")) == (40, 40)
        old_nodes = [row for row in await world.rows("node") if row["name"].endswith("-1")]
        assert [row["stopped_at"] is not None for row in old_nodes] == [True] * 3
        assert await world.left_over() == []
        world.audit({f"o{n}": {"hold": 1, "haul": 1} for n in range(40)})


async def test_sigterm_ends_although_an_action_hangs(world: World) -> None:
    """A ``def`` action that never returns holds its process up for the drain's limit and no longer."""
    async with world:
        agent = world.start("mill-1", "agent", agents=["mill", "shelf"], drain=0.5)
        await world.started(
            world.start("scheduler", "scheduler"), world.start("supervisor", "supervisor"), agent
        )
        task = await world.submit(fault_app.process, "a", {"grind": ["hang after"]})
        await world.until((world.folder / "hangs").exists, "the action runs", agent)
        agent.terminate()
        assert await world.ends(agent) == 0
        assert "still running after the drain's 0.5 s, so nobody will hear its answer" in agent.log()
        (world.folder / "free").touch()
        world.start("mill-2", "agent", agents=["mill", "shelf"])
        await world.overdue(agent)
        view = await world.ended(task, "processed")
        assert view.failure_count == 1
        assert world.service.calls("grind") == ["done", "repeated"]
        world.audit({"a": {"hold": 1, "grind": 1}})


async def test_a_second_signal_at_once_is_the_same_and_a_later_one_ends_without_draining(
    world: World,
) -> None:
    """`timeout` signals the process and its group: that must drain. Who asks again later wants no more waiting, and it is logged.

    Two that are at once on any machine: of two kinds, to a process that is stopped.
    """
    async with world:
        first = world.start("all-1", "scheduler", "agent", "supervisor", drain=60.0)
        await world.started(first)
        task = await world.submit(fault_app.deliver, "a", {"grind": ["hang after"]})
        await world.until((world.folder / "hangs").exists, "the action runs", first)
        first.stop()
        for number in (signal.SIGTERM, signal.SIGINT):
            first.process.send_signal(number)
        first.resume()
        await world.until(lambda: "draining" in first.log(), "it drains", first)
        await asyncio.sleep(SAME + 0.1)
        assert first.alive()
        first.terminate()
        assert await world.ends(first) == -signal.SIGTERM
        assert "SIGTERM once more: this process ends at once, and what runs in it is in doubt" in first.log()
        (world.folder / "free").touch()
        world.start("all-2", "scheduler", "agent", "supervisor")
        await world.overdue(first)
        view = await world.ended(task, "processed")
        assert view.failure_count >= 1
        assert world.service.calls("grind") == ["done", "repeated"]
        world.audit({"a": {"grind": 1, "send": 1}})


async def test_several_processes_woken_without_polling(world: World) -> None:
    """Two Schedulers and two agents on one store, all polling off: every step is woken by the wake socket, all take part.

    No Supervisor is there to ask again: the steps have minutes, so that a machine that stands still for two seconds proves nothing wrong.
    """
    async with world:
        schedulers = [
            world.start(f"scheduler-{n}", "scheduler", poll_every=None, claim_batch=1) for n in (1, 2)
        ]
        agents = [world.start(f"agent-{n}", "agent", poll_every=None, slots=1) for n in (1, 2)]
        await world.started(*schedulers, *agents)
        tasks: list[TaskHandle[Any]] = []

        def idle() -> list[str]:
            """Who has done nothing yet: which process a busy machine lets run first is chance."""
            idle = [agent.name for agent in agents if not agent.trace("take")]
            return idle + [s.name for s in schedulers if not any(e["claimed"] for e in s.trace("commit"))]

        while len(tasks) < 20 or (idle() and len(tasks) < 400):
            more = [await world.submit(fault_app.carry, f"o{len(tasks) + n}") for n in range(20)]
            for task in more:
                view = await world.ended(task, "processed")
                assert (view.epoch, view.failure_count) == (1, 0)
                assert await world.steps(task) == {"hold": ("done", 1, 1, 0), "haul": ("done", 1, 1, 0)}
            tasks += more
        assert not idle()
        claims = [task for s in schedulers for entry in s.trace("commit") for task in entry["claimed"]]
        assert sorted(claims) == sorted(task.number for task in tasks)
        assert [world.service.arrivals(step) for step in ("hold", "haul")] == [len(tasks)] * 2
        assert await world.left_over() == []
        world.audit({f"o{n}": {"hold": 1, "haul": 1} for n in range(len(tasks))})


async def nothing_lost(world: World, task: TaskHandle[Any]) -> None:
    """See that a task that was given back went on as if nothing had been."""
    view: TaskView = await world.ended(task, "processed")
    assert (view.epoch, view.failure_count) == (2, 0)
    assert await world.steps(task) == ALL_DONE_AT_ONCE
    assert await world.moves(task, "task") == GIVEN_BACK
    assert await world.left_over() == []
    world.audit({"a": ALL_STAND})


async def step_is(world: World, task: TaskHandle[Any], step: str, state: str) -> bool:
    """Whether a step is in a state."""
    return (await world.steps(task))[step][0] == state


async def given_back(world: World, task: TaskHandle[Any]) -> bool:
    """Whether a task waits for its next Scheduler."""
    view = await world.view(task)
    return (view.state, view.locked_by) == ("pending", None)
