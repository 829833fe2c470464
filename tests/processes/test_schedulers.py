"""Schedulers that race, die and freeze: the task goes on from its rows, each effect stands once."""

from typing import Any

from makegood import TaskHandle
from tests.processes import fault_app
from tests.processes.world import Child, World

ALL_STAND = {"hold": 1, "charge": 1, "send": 1}
ALL_DONE_AT_ONCE = {"hold": ("done", 1, 1, 0), "charge": ("done", 1, 1, 0), "send": ("done", 1, 1, 0)}
TAKEN_OVER = ["pending", "processing", "pending", "processing", "processed"]


async def test_two_schedulers_and_one_task(world: World) -> None:
    """Both reach for the one task in the same moment: one gets it, under epoch 1, and every step runs once."""
    async with world:
        rivals = [
            world.start(f"scheduler-{n}", "scheduler", fault="claiming:wait:when-armed") for n in (1, 2)
        ]
        agent = world.start("agent", "agent")
        await world.started(agent, *rivals)
        for rival in rivals:
            rival.arm()
        await world.until(
            lambda: all(r.struck() == "claiming wait" for r in rivals), "both are about to claim", *rivals
        )
        task = await world.submit(fault_app.fill, "a")
        for rival in rivals:
            rival.go_on()
        view = await world.ended(task, "processed")
        claims = [entry["claimed"] for rival in rivals for entry in rival.trace("commit") if entry["claimed"]]
        assert claims == [[task.number]]
        after_the_gate = [
            next(
                e for e in rival.trace("commit") if e["wanted"] and e["at"] >= rival.trace("struck")[0]["at"]
            )
            for rival in rivals
        ]
        assert sorted(len(entry["claimed"]) for entry in after_the_gate) == [0, 1]
        assert (view.epoch, view.failure_count) == (1, 0)
        assert await world.steps(task) == ALL_DONE_AT_ONCE
        assert await world.left_over() == []
        world.audit({"a": ALL_STAND})
        assert world.service.calls("charge") == ["done"]


async def test_scheduler_killed_after_the_claim(world: World) -> None:
    """The first request lies in the outbox of the claim's own transaction: it is run although its sender is dead."""
    async with world:
        first = world.start("scheduler-1", "scheduler", fault="claimed:kill")
        await world.started(first)
        task = await world.submit(fault_app.fill, "a")
        await world.dies(first, "claimed")
        view = await world.view(task)
        assert (view.state, view.locked_by, view.epoch) == ("processing", first.number(), 1)
        assert [row["taken_by"] for row in await world.rows("request")] == [None]
        world.start("agent", "agent")
        world.start("scheduler-2", "scheduler")
        world.start("supervisor", "supervisor")
        await taken_over(world, task)


async def test_scheduler_killed_after_dispatch(world: World) -> None:
    """The step that it sent is answered while nobody schedules; the next owner uses that answer, nothing runs again."""
    async with world:
        agent = world.start("agent", "agent")
        first = world.start("scheduler-1", "scheduler", fault="dispatched:kill")
        await world.started(first, agent)
        task = await world.submit(fault_app.fill, "a")
        await world.dies(first, "dispatched")
        assert (await world.steps(task))["charge"][:2] == ("running", 1)
        await world.until(
            lambda: world.service.calls("charge") == ["done"], "the step is done meanwhile", agent
        )
        assert (await world.view(task)).locked_by == first.number()
        world.start("scheduler-2", "scheduler")
        world.start("supervisor", "supervisor")
        await taken_over(world, task)


async def test_scheduler_killed_after_the_reply(world: World) -> None:
    """A reply that was read and not yet decided still lies in the store, for the next owner."""
    async with world:
        agent = world.start("agent", "agent")
        first = world.start("scheduler-1", "scheduler", fault="heard:kill")
        await world.started(first, agent)
        task = await world.submit(fault_app.fill, "a")
        await world.dies(first, "heard")
        assert first.trace("inbox")[-1]["kinds"] == ["done"]
        assert (await world.steps(task))["hold"][:2] == ("running", 1)
        assert [row["kind"] for row in await world.rows("inbox")] == ["done"]
        world.start("scheduler-2", "scheduler")
        world.start("supervisor", "supervisor")
        await taken_over(world, task)


async def taken_over(world: World, task: TaskHandle[Any]) -> None:
    """See that a task went on under its second owner, with no step run again."""
    view = await world.ended(task, "processed")
    assert (view.epoch, view.failure_count) == (2, 1)
    assert await world.steps(task) == ALL_DONE_AT_ONCE
    assert await world.moves(task, "task") == TAKEN_OVER
    releases = world.children["supervisor"].trace("freed")
    assert [entry["tasks"] for entry in releases] == [[task.number]]
    assert [row["lost"] for row in await world.rows("task")] == [0]
    assert await world.left_over() == []
    assert await world.alerts() == []
    assert [world.service.calls(step) for step in ALL_STAND] == [["done"]] * 3
    world.audit({"a": ALL_STAND})


async def test_scheduler_killed_with_a_request_in_memory(world: World) -> None:
    """A request handed over in memory dies with its process: it is judged by its complete-by and sent again."""
    async with world:
        first = world.start("both", "scheduler", "agent", fault="handing:kill")
        await world.started(first)
        task, refs = await world.submit(fault_app.buy, "a"), ["a"]
        while not await ended_or_dead(
            world, task, first
        ):  # its slots may be lent to a read of the store just then
            refs.append(f"a{len(refs)}")
            task = await world.submit(fault_app.buy, refs[-1])
        await world.dies(first, "handing")
        (request,) = await world.rows("request")
        assert (request["task"], request["attempt"]) == (task.number, 1)
        assert (request["taken_by"], request["body"]) == (first.number(), None)
        count = world.service.arrivals("charge")
        assert count == len(refs) - 1
        world.start("both-2", "scheduler", "agent")
        world.start("supervisor", "supervisor")
        await world.overdue(first)
        view = await world.ended(task, "processed")
        assert (view.epoch, view.failure_count) == (2, 2)
        assert await world.steps(task) == {"charge": ("done", 2, 1, 1), "send": ("done", 1, 1, 0)}
        assert await world.moves(task, "charge") == [
            "waiting",
            "ready",
            "running",
            "in_doubt",
            "running",
            "done",
        ]
        assert world.service.arrivals("charge") == count + 1
        assert await world.left_over() == []
        world.audit({ref: {"charge": 1, "send": 1} for ref in refs})


async def ended_or_dead(world: World, task: TaskHandle[Any], child: Child) -> bool:
    """Wait until a task is processed (False) or a process has died (True)."""

    async def either() -> bool:
        return not child.alive() or (await world.view(task)).state == "processed"

    await world.until(either, "a task is processed, or its process dies")
    return not child.alive()


async def test_scheduler_stopped_past_its_life_and_resumed(world: World) -> None:
    """It wakes with a decision in its hands: the store refuses it, and it goes on under a new number, of use again."""
    async with world:
        agent = world.start("agent", "agent")
        sleeper = world.start("sleeper", "scheduler", fault="deciding:stop")
        supervisor = world.start("supervisor", "supervisor")
        await world.started(sleeper, agent, supervisor)
        task = await world.submit(fault_app.fill, "a")
        await world.stops(sleeper, "deciding")
        old = sleeper.number()
        second = world.start("second", "scheduler")
        await world.declared_dead(sleeper)
        await world.ended(task, "processed")
        before = (await world.view(task), await world.steps(task), len(await world.history(task)))
        assert (before[0].epoch, before[0].failure_count) == (2, 1)
        assert before[1] == ALL_DONE_AT_ONCE
        sleeper.resume()
        late = await world.until(
            lambda: [e for e in sleeper.trace("commit") if e["lost"]], "its late decision is refused", sleeper
        )
        assert [(entry["node"], entry["lost"]) for entry in late] == [(old, [task.number])]
        await world.until(
            lambda: f"declared dead as node {old}" in sleeper.log(), "it learns of its death", sleeper
        )
        assert (await world.view(task), await world.steps(task), len(await world.history(task))) == before
        second.kill()
        other = await world.submit(fault_app.fill, "b")
        await world.ended(other, "processed")
        assert [e["node"] for e in sleeper.trace("commit") if other.number in e["claimed"]] != [old]
        assert await world.left_over() == []
        world.audit({"a": ALL_STAND, "b": ALL_STAND})
        assert world.service.calls("charge") == ["done", "done"]


async def test_scheduler_stopped_with_a_retry_in_its_hands(world: World) -> None:
    """What it is about to write rests on no reply, so the task's lock alone must refuse it: nothing is sent twice."""
    async with world:
        agent = world.start("till-1", "agent", agents=["till"])
        others = world.start("others", "agent", agents=["shelf", "van"])
        sleeper = world.start("sleeper", "scheduler", fault="retrying:stop")
        supervisor = world.start("supervisor", "supervisor")
        await world.started(sleeper, agent, others, supervisor)
        task = await world.submit(fault_app.fill, "a", {"charge": ["kill before"]})
        await world.dies(agent)
        await world.overdue(agent)
        await world.stops(sleeper, "retrying")
        assert (await world.steps(task))["charge"] == ("in_doubt", 1, 1, 1)
        world.start("second", "scheduler")
        world.start("till-2", "agent", agents=["till"])
        await world.declared_dead(sleeper)
        view = await world.ended(task, "processed")
        before = (view.epoch, view.failure_count, await world.steps(task), len(await world.history(task)))
        steps = {"hold": ("done", 1, 1, 0), "charge": ("done", 2, 1, 1), "send": ("done", 1, 1, 0)}
        assert before[:3] == (2, 2, steps)
        sleeper.resume()
        late = await world.until(
            lambda: [e for e in sleeper.trace("commit") if e["lost"]], "its late retry is refused", sleeper
        )
        assert [(entry["lost"], entry["sent"]) for entry in late] == [([task.number], [])]
        view = await world.view(task)
        assert (
            view.epoch,
            view.failure_count,
            await world.steps(task),
            len(await world.history(task)),
        ) == before
        assert world.service.arrivals("charge") == 2
        assert await world.left_over() == []
        world.audit({"a": ALL_STAND})


async def test_scheduler_killed_after_it_let_a_task_go(world: World) -> None:
    """Nobody held the task, so no Supervisor is needed: another Scheduler claims it at its moment, and no failure counts."""
    async with world:
        agent = world.start("agent", "agent")
        first = world.start("scheduler-1", "scheduler", linger=0.2)
        await world.started(first, agent)
        task = await world.submit(fault_app.fill, "a", {"charge": ["later before"]})

        async def sleeps() -> bool:
            return (await world.view(task)).state == "sleeping"

        await world.until(sleeps, "the task sleeps", first, agent)
        assert (await world.view(task)).locked_by is None
        first.kill()
        world.start("scheduler-2", "scheduler", linger=0.2)
        view = await world.ended(task, "processed")
        assert (view.epoch, view.failure_count) == (2, 0)
        assert await world.moves(task, "task") == [
            "pending",
            "processing",
            "sleeping",
            "processing",
            "processed",
        ]
        assert (await world.steps(task))["charge"] == ("done", 2, 1, 0)
        assert await world.left_over() == []
        world.audit({"a": ALL_STAND})
