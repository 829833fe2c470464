"""Long work in a process of its own: it is missed soon after its process died, and hears that nobody needs it."""

from typing import Any

from makegood import TaskHandle
from tests.processes import fault_app
from tests.processes.world import Child, World


async def transferring(world: World) -> tuple[Child, TaskHandle[Any]]:
    """Return an agent's process whose transfer has gone on for longer than a deadline without a heartbeat, and its task."""
    agent = world.start("bank-1", "agent", agents=["bank"])
    await world.started(agent, world.start("scheduler", "scheduler"), world.start("supervisor", "supervisor"))
    task = await world.submit(fault_app.move, "a")

    async def lasts() -> bool:
        rows = [row for row in await world.rows("request") if row["taken_at"] is not None]
        return any(row["complete_by"] - row["taken_at"] > 2 * fault_app.HEARTBEAT for row in rows)

    await world.until(lasts, "the transfer outlives its first deadline", agent)
    assert await world.steps(task) == {"transfer": ("running", 1, 1, 0)}
    return agent, task


async def test_long_work_with_a_heartbeat_is_missed_soon_after_its_agent_was_killed(world: World) -> None:
    """Its limit is two hours, and its deadline never more than one heartbeat away."""
    async with world:
        agent, task = await transferring(world)
        agent.kill()
        (row,) = await world.rows("request")
        assert row["complete_by"] - await world.client.store.now() <= fault_app.HEARTBEAT
        (world.folder / "arrived").touch()
        world.start("bank-2", "agent", agents=["bank"])
        view = await world.ended(task, "processed")
        assert view.failure_count == 1
        assert await world.steps(task) == {"transfer": ("done", 2, 1, 1)}
        assert await world.left_over() == []
        world.audit({"a": {"transfer": 1}})


async def test_long_work_in_another_process_hears_of_a_cancel(world: World) -> None:
    """It is cancelled where it waits, and undone at once: nothing is counted, judged or alerted."""
    async with world:
        _, task = await transferring(world)
        await task.cancel(who="ann")
        view = await world.ended(task, "undone")
        assert view.failure_count == 0
        assert await world.steps(task) == {"transfer": ("undone", 2, 1, 0)}
        whys = [move.why for event in await world.history(task) for move in event.moves]
        assert any("heard the cancel, ended after" in why for why in whys)
        assert world.children["supervisor"].trace("judged") == []
        assert await world.alerts() == []
        assert await world.left_over() == []
        world.audit({"a": {"transfer": 0}})
