"""Agents that die, freeze and are told twice: an effect stands once or not at all, and no late word changes anything."""

from typing import Any

from makegood import TaskHandle
from tests.processes import fault_app
from tests.processes.world import Child, World

ALL_STAND = {"hold": 1, "charge": 1, "send": 1}
ALL_DONE_AT_ONCE = {"hold": ("done", 1, 1, 0), "charge": ("done", 1, 1, 0), "send": ("done", 1, 1, 0)}
CHARGED_AGAIN = {"hold": ("done", 1, 1, 0), "charge": ("done", 2, 1, 1), "send": ("done", 1, 1, 0)}
TRIED_AGAIN = ["waiting", "ready", "running", "in_doubt", "running", "done"]


async def company(world: World) -> None:
    """Start a Scheduler, a Supervisor, and an agents' process that never meets with the fault."""
    await world.started(
        world.start("scheduler", "scheduler"),
        world.start("supervisor", "supervisor"),
        world.start("others", "agent", agents=["shelf", "van"]),
    )


async def test_agent_killed_before_the_effect(world: World) -> None:
    """Its silence is judged once, the step runs again under the same key, and takes effect once."""
    async with world:
        first = world.start("till-1", "agent", agents=["till"])
        await company(world)
        task = await world.submit(fault_app.fill, "a", {"charge": ["kill before"]})
        await world.dies(first)
        assert world.service.calls("charge") == []
        world.start("till-2", "agent", agents=["till"])
        await charged_again(world, task)
        assert world.service.calls("charge") == ["done"]


async def test_agent_killed_after_the_effect(world: World) -> None:
    """The charge was made but its answer was lost: the service gives the second attempt the same answer."""
    async with world:
        first = world.start("till-1", "agent", agents=["till"])
        await company(world)
        task = await world.submit(fault_app.fill, "a", {"charge": ["kill after"]})
        await world.dies(first)
        assert world.service.calls("charge") == ["done"]
        assert (await world.steps(task))["charge"][:2] == ("running", 1)
        world.start("till-2", "agent", agents=["till"])
        await charged_again(world, task)
        assert world.service.calls("charge") == ["done", "repeated"]


async def charged_again(world: World, task: TaskHandle[Any]) -> None:
    """Let the deadline of the first process pass; see that the second attempt at ``charge`` ended the matter, one failure counted."""
    await world.overdue(world.children["till-1"])
    view = await world.ended(task, "processed")
    assert (view.epoch, view.failure_count) == (1, 1)
    assert await world.steps(task) == CHARGED_AGAIN
    assert await world.moves(task, "charge") == TRIED_AGAIN
    verdicts = world.children["supervisor"].trace("judged")
    assert [entry["requests"] for entry in verdicts] == [[[task.number, 1, 1, 1]]]
    assert world.service.arrivals("charge") == 2
    assert await world.left_over() == []
    assert await world.alerts() == []
    world.audit({"a": ALL_STAND})


async def test_agent_killed_after_the_effect_of_a_step_that_can_be_asked(world: World) -> None:
    """The probe is asked first and says that it happened: the action does not run again."""
    async with world:
        first = world.start("till-1", "agent", agents=["till"])
        await company(world)
        task = await world.submit(fault_app.reserve, "a", {"book": ["kill after"]})
        await world.dies(first)
        world.start("till-2", "agent", agents=["till"])
        await world.overdue(first)
        view = await world.ended(task, "processed")
        assert view.failure_count == 1
        assert (await world.steps(task))["book"] == ("done", 2, 1, 1)
        assert await world.moves(task, "book") == ["waiting", "ready", "running", "in_doubt", "done"]
        assert (world.service.arrivals("book"), world.service.calls("book", "probe")) == (1, ["stands"])
        assert await world.left_over() == []
        world.audit({"a": {"hold": 1, "book": 1}})


async def test_agent_killed_in_an_undo(world: World) -> None:
    """The undo goes on where it was: it is asked for again, finds nothing left, and no other undo runs twice."""
    async with world:
        first = world.start("till-1", "agent", agents=["till"])
        await company(world)
        task = await world.submit(fault_app.wager, "a", {"send": ["permanent"], "bet undo": ["kill after"]})
        await world.dies(first)
        assert world.service.calls("bet", "undo") == ["undone"]
        world.start("till-2", "agent", agents=["till"])
        await world.overdue(first)
        view = await world.ended(task, "undone")
        assert view.failure_count == 1
        assert await world.steps(task) == {"bet": ("undone", 3, 1, 1), "send": ("failed", 1, 1, 0)}
        assert world.service.calls("bet", "undo") == ["undone", "nothing stood"]
        assert await world.left_over() == []
        world.audit({"a": {"bet": 0, "send": 0}})


async def test_reply_after_complete_by(world: World) -> None:
    """A reply that is long on its way is refused, kept in the history, and changes neither task nor step."""
    async with world:
        slow = world.start("till-1", "agent", agents=["till"], fault="answering:wait")
        await company(world)
        task = await world.submit(fault_app.fill, "a")
        await world.until(lambda: slow.struck() == "answering wait", "the reply is on its way", slow)
        world.start("till-2", "agent", agents=["till"])
        await world.overdue(slow)
        await world.ended(task, "processed")
        assert world.service.calls("charge") == ["done", "repeated"]
        before = (await world.view(task), await world.steps(task))
        assert before[1] == CHARGED_AGAIN
        slow.go_on()
        answers = await world.until(lambda: slow.trace("answer"), "the late reply arrives", slow)
        assert [(e["replies"], e["accepted"]) for e in answers] == [
            ([[task.number, "done", 1, "do", 1]], [False])
        ]
        assert "done came too late for step 1, attempt 1" in await world.notes(task)
        assert (await world.view(task), await world.steps(task)) == before
        assert await world.left_over() == []
        world.audit({"a": ALL_STAND})


async def test_duplicate_request(world: World) -> None:
    """Two processes get the same request: one effect stands, one answer counts, the other is refused."""
    async with world:
        first = world.start("till-1", "agent", agents=["till"], fault="taken:copy")
        second = world.start("till-2", "agent", agents=["till"], fault="taken:replay")
        await company(world)
        task = await world.submit(fault_app.fill, "a")
        await world.ended(task, "processed")
        assert [e["requests"] for e in first.trace("take")] == [[[task.number, 1, 1, "do", False]]]
        answers = await world.until(lambda: second.trace("answer"), "the second process answers too", second)
        assert second.trace("take")[0]["requests"] == first.trace("take")[0]["requests"]
        assert [e["accepted"] for e in first.trace("answer")] == [[True]]
        assert [e["accepted"] for e in answers] == [[False]]
        assert world.service.arrivals("charge") == 2
        assert world.service.calls("charge") == ["done", "repeated"]
        assert await world.steps(task) == ALL_DONE_AT_ONCE
        assert (await world.view(task)).failure_count == 0
        assert await world.left_over() == []
        world.audit({"a": ALL_STAND})


async def test_duplicate_reply(world: World) -> None:
    """A reply that comes four times, before and after it was decided, counts once."""
    async with world:
        agent = world.start("till-1", "agent", agents=["till"], fault="answering:twice")
        await company(world)
        scheduler = world.children["scheduler"]
        task = await world.submit(fault_app.fill, "a", {"charge": ["hang after"]})
        await world.until((world.folder / "hangs").exists, "the action runs", agent)
        scheduler.stop()
        (world.folder / "free").touch()
        again = await world.until(
            lambda: agent.trace("answered at once again"), "the reply comes again", agent
        )
        assert again[0]["accepted"] == [True, True]
        assert [row["kind"] for row in await world.rows("inbox")] == ["done"]
        scheduler.resume()
        await world.ended(task, "processed")
        agent.go_on()
        late = await world.until(
            lambda: agent.trace("answered much later again"), "the reply comes late", agent
        )
        assert late[0]["accepted"] == [False]
        assert "done came too late" in await world.notes(task)
        assert await world.steps(task) == ALL_DONE_AT_ONCE
        assert (await world.moves(task, "charge")).count("done") == 1
        assert await world.left_over() == []
        world.audit({"a": ALL_STAND})


async def test_agent_stopped_past_complete_by_and_resumed(world: World) -> None:
    """Stopped between its look at the clock and the call, it calls late: the service refuses its token, the store its reply."""
    async with world:
        sleeper = world.start("till-1", "agent", agents=["till"])
        await company(world)
        task = await world.submit(fault_app.fill, "a", {"charge": ["stop before"]})
        await world.stops(sleeper)
        world.start("till-2", "agent", agents=["till"])
        await charged_again(world, task)
        await woken_in_vain(world, sleeper)
        assert world.service.calls("charge") == ["done", "stale"]
        assert await world.steps(task) == CHARGED_AGAIN
        assert "too late for step 1, attempt 1" in await world.notes(task)
        world.audit({"a": ALL_STAND})
        other = await world.submit(fault_app.fill, "b")
        await world.ended(other, "processed")


async def test_agent_stopped_until_its_step_was_undone(world: World) -> None:
    """The late do comes after its own undo: nothing stands, for the service knows that the key was undone."""
    async with world:
        sleeper = world.start("till-1", "agent", agents=["till"])
        await company(world)
        task = await world.submit(fault_app.gamble, "a", {"bet": ["stop before", "kill before"]})
        await world.stops(sleeper)
        second = world.start("till-2", "agent", agents=["till"])
        await world.overdue(sleeper)
        await world.dies(second)
        world.start("till-3", "agent", agents=["till"])
        await world.overdue(second)
        view = await world.ended(task, "undone")
        assert view.failure_count == 2
        steps = {"hold": ("undone", 2, 1, 0), "bet": ("undone", 3, 1, 0)}
        assert await world.steps(task) == steps
        assert world.service.calls("bet", "undo") == ["nothing stood"]
        assert await world.alerts(task) == ["step_gave_up"]
        await woken_in_vain(world, sleeper)
        assert world.service.calls("bet") == ["tombstone"]
        assert await world.steps(task) == steps
        assert await world.left_over() == []
        world.audit({"a": {"hold": 0, "bet": 0}})


async def woken_in_vain(world: World, sleeper: Child) -> None:
    """Resume a stopped agents' process and see that its reply is refused and that it lives on under a new number."""
    assert sleeper.trace("answer") == []
    await world.declared_dead(sleeper)
    sleeper.resume()
    answers = await world.until(lambda: sleeper.trace("answer"), "the late reply arrives", sleeper)
    assert [entry["accepted"] for entry in answers] == [[False]]
    numbers = {row["id"] for row in await world.rows("node") if row["name"] == sleeper.name}
    assert len(numbers) == 2 or await world.until(
        lambda: renamed(world, sleeper), "it gets a new number", sleeper
    )


async def renamed(world: World, child: Child) -> bool:
    """Whether a process has registered a second time."""
    return [row["name"] for row in await world.rows("node")].count(child.name) == 2
