"""Supervisors that die in mid-pass, freeze past their lease, and what they find: poison, starved steps, slots that hang."""

from tests.processes import fault_app
from tests.processes.test_agents import ALL_STAND, CHARGED_AGAIN
from tests.processes.world import Child, World


async def test_supervisor_killed_in_mid_pass(world: World) -> None:
    """What it had judged stays judged and is counted once; what it had not come to is done by its successor.

    The Scheduler is stopped: that it is dead only its heartbeat shows.
    """
    async with world:
        scheduler = world.start("scheduler-1", "scheduler", fault="dispatched:stop")
        agent = world.start("till-1", "agent", agents=["till"])
        others = world.start("others", "agent", agents=["shelf", "van"])
        await world.started(scheduler, agent, others)
        task = await world.submit(fault_app.fill, "a", {"charge": ["kill before"]})
        await world.stops(scheduler, "dispatched")
        await world.dies(agent)
        await world.overdue(agent)
        first = world.start("supervisor-1", "supervisor", fault="judged:kill")
        await world.dies(first, "judged")
        view = await world.view(task)
        assert (view.failure_count, view.locked_by) == (1, scheduler.number())
        assert await world.rows("request") == []
        assert [row["kind"] for row in await world.rows("inbox")] == ["expired"]
        assert first.trace("freed") == []
        second = world.start("supervisor-2", "supervisor")
        await world.declared_dead(scheduler)
        world.start("scheduler-2", "scheduler")
        world.start("till-2", "agent", agents=["till"])
        view = await world.ended(task, "processed")
        assert (view.failure_count, view.epoch) == (2, 2)
        assert await world.steps(task) == CHARGED_AGAIN
        assert [e["requests"] for e in first.trace("judged")] == [[[task.number, 1, 1, 1]]]
        assert second.trace("judged") == []
        assert [(e["tasks"], e["epoch"]) for e in second.trace("freed")] == [([task.number], 2)]
        assert (await world.epoch(), await world.leader()) == (2, "supervisor-2")
        assert await world.left_over() == []
        world.audit({"a": ALL_STAND})


async def test_two_supervisors_one_stopped_past_its_lease_and_resumed(world: World) -> None:
    """The old leader wakes in the middle of a pass with something to judge: its epoch is refused, one failure is counted."""
    async with world:
        scheduler = world.start("scheduler", "scheduler")
        agent = world.start("till-1", "agent", agents=["till"])
        others = world.start("others", "agent", agents=["shelf", "van"])
        sleeper = world.start("sleeper", "supervisor", fault="judging:stop:when-armed")
        await world.started(scheduler, agent, others, sleeper)
        await world.until(lambda: sleeper.trace("pass"), "the first supervisor leads and judges", sleeper)
        second = world.start("second", "supervisor", fault="judging:wait")
        await world.started(second)
        task = await world.submit(fault_app.fill, "a", {"charge": ["kill before"]})
        await world.dies(agent)
        sleeper.arm()
        await world.stops(sleeper, "judging")
        await world.unled()
        await leads(world, second, 2)
        await world.until(
            lambda: second.struck() == "judging wait", "the new leader is about to judge", second
        )
        await world.overdue(agent)
        sleeper.resume()
        fences = await world.until(lambda: sleeper.trace("fenced off"), "the old leader is refused", sleeper)
        assert {entry["epoch"] for entry in fences} == {1}
        assert second.trace("judged") == []
        assert (await world.view(task)).failure_count == 0
        second.go_on()
        world.start("till-2", "agent", agents=["till"])
        view = await world.ended(task, "processed")
        assert (view.failure_count, view.epoch) == (1, 1)
        assert await world.steps(task) == CHARGED_AGAIN
        assert sleeper.trace("judged") == []
        assert [(e["epoch"], e["requests"]) for e in second.trace("judged")] == [
            (2, [[task.number, 1, 1, 1]])
        ]
        assert (await world.epoch(), await world.leader(), sleeper.alive()) == (2, "second", True)
        assert await world.left_over() == []
        world.audit({"a": ALL_STAND})


async def leads(world: World, child: Child, epoch: int) -> None:
    """Wait until a process leads in the term ``epoch``."""

    async def so() -> bool:
        return await world.leader() == child.name and await world.epoch() == epoch

    await world.until(so, f"{child.name} leads in term {epoch}", child)


async def silenced(world: World, victim: Child) -> None:
    """Have a Supervisor judge what a process had when it died, once it knows of the death."""
    await world.declared_dead(victim)
    await world.overdue(victim)


async def test_poison_that_kills_the_agents_process_each_time(world: World) -> None:
    """Each death counts once, the third ends it: undone, alerted; other tasks are not harmed."""
    async with world:
        await world.started(
            world.start("scheduler", "scheduler"),
            world.start("supervisor", "supervisor"),
            world.start("others", "agent", agents=["shelf", "van", "till"]),
        )
        task = await world.submit(fault_app.poison, "a", {"brew": ["kill before"] * 9})
        innocent = await world.submit(fault_app.fill, "b")
        for n in (1, 2, 3):
            victim = world.start(f"still-{n}", "agent", agents=["still"])
            await world.dies(victim)
            ((_, idx, attempt, doing, alone),) = victim.trace("take")[-1]["requests"]
            assert (idx, attempt, doing, alone) == (1, n, "do", n == 3)
            await silenced(world, victim)
        world.start("still-4", "agent", agents=["still"])
        view = await world.ended(task, "undone")
        assert view.failure_count == 3
        assert await world.steps(task) == {"hold": ("undone", 2, 1, 0), "brew": ("undone", 4, 1, 0)}
        assert world.service.arrivals("brew") == 3
        assert [entry["requests"][0][3] for entry in world.children["supervisor"].trace("judged")] == [
            1,
            2,
            3,
        ]
        assert await world.alerts() == ["step_gave_up"]
        assert (await world.ended(innocent, "processed")).failure_count == 0
        assert await world.left_over() == []
        world.audit({"a": {"hold": 0, "brew": 0}, "b": ALL_STAND})


async def test_poison_in_a_process_that_runs_everything(world: World) -> None:
    """Where no process runs agents alone, the third try runs with nothing beside it; a task that has cost three Schedulers
    in a row goes to error, and an operator can still undo it.
    """
    async with world:
        await world.started(world.start("supervisor", "supervisor"))
        task = await world.submit(fault_app.poison, "a", {"brew": ["kill before"] * 9})
        victims = [world.start("all-1", "scheduler", "agent")]
        await world.dies(victims[0])
        await silenced(world, victims[0])
        innocent = await world.submit(fault_app.fill, "b")
        for n in (2, 3):
            victims.append(world.start(f"all-{n}", "scheduler", "agent"))
            await world.dies(victims[-1])
            await silenced(world, victims[-1])
        assert [(e["requests"], e["alone"]) for e in victims[2].trace("take")] == [
            ([[task.number, 1, 3, "do", True]], True)
        ]
        world.start("all-4", "scheduler", "agent")
        view = await world.ended(task, "error")
        assert view.failure_count == 6  # three silences, three Schedulers
        assert await world.steps(task) == {"hold": ("done", 1, 1, 0), "brew": ("in_doubt", 3, 1, 3)}
        assert world.service.arrivals("brew") == 3
        assert await world.alerts(task) == ["poison"]
        await world.ended(innocent, "processed")
        await task.undo(why="it kills", who="the test")
        await world.ended(task, "undone")
        assert await world.left_over() == []
        world.audit({"a": {"hold": 0, "brew": 0}, "b": ALL_STAND})


async def test_action_deployed_nowhere(world: World) -> None:
    """The step starves: one alert, no failure, no time used up; once an agent has the action it is done at once."""
    async with world:
        await world.started(
            world.start("scheduler", "scheduler"), world.start("others", "agent", agents=["shelf", "mill"])
        )
        task = await world.submit(fault_app.explore, "a")

        async def asked() -> bool:
            return (await world.steps(task))["land"][0] == "running"

        await world.until(asked, "nobody has the step")  # the one before it may have waited as long
        supervisor = world.start("supervisor", "supervisor", starved_after=1.0, supervise_every=0.3)

        async def alerted() -> bool:
            return bool(await world.alerts())

        await world.until(alerted, "the alert is raised", supervisor)
        passes = len(supervisor.trace("pass"))
        await world.until(lambda: len(supervisor.trace("pass")) > passes + 4, "more passes", supervisor)
        assert await world.alerts(task) == ["starved"]
        assert [e["starved"] for e in supervisor.trace("pass") if e["starved"]] == [[task.number]]
        assert (await world.view(task)).failure_count == 0
        assert (await world.steps(task))["land"] == ("running", 1, 1, 0)
        (request,) = await world.rows("request")
        assert (request["taken_by"], request["complete_by"]) == (None, None)
        world.start("moon", "agent", agents=["moon"])
        view = await world.ended(task, "processed")
        assert view.failure_count == 0
        assert await world.steps(task) == {"hold": ("done", 1, 1, 0), "land": ("done", 1, 1, 0)}
        assert await world.alerts() == ["starved"]
        assert supervisor.trace("judged") == []
        assert await world.left_over() == []
        world.audit({"a": {"hold": 1, "land": 1}})


async def test_scheduler_that_stood_still_loses_its_task_once(world: World) -> None:
    """It wakes up before its heartbeat, and claims nothing under the number that was declared dead."""
    async with world:
        supervisor = world.start("supervisor", "supervisor", supervise_every=0.3)
        scheduler = world.start("scheduler", "scheduler", heartbeat=0.75)
        await world.started(scheduler, supervisor, world.start("others", "agent", agents=["shelf"]))
        task = await world.submit(fault_app.explore, "a")

        async def asked() -> bool:
            return (await world.steps(task))["land"][0] == "running"

        await world.until(asked, "nobody has the step", scheduler)
        was = scheduler.number()
        scheduler.stop()
        await world.declared_dead(scheduler)
        await world.until(lambda: supervisor.trace("freed"), "its task is freed", supervisor)
        scheduler.resume()

        async def held_again() -> bool:
            # A heartbeat that was under way when it was stopped keeps the number from being declared dead.
            is_dead = any(row["dead"] for row in await world.rows("node") if row["id"] == was)
            view = await world.view(task)
            return view.epoch == 2 and view.locked_by is not None and not (is_dead and view.locked_by == was)

        await world.until(held_again, "it has claimed the task again, under no number of the dead", scheduler)
        view = await world.view(task)
        assert (view.failure_count, view.epoch) == (1, 2)
        assert len(supervisor.trace("freed")) == 1


async def test_def_action_that_ignores_its_deadline(world: World) -> None:
    """It cannot be stopped: its slot stays accounted for until it returns, and what it then says is refused."""
    async with world:
        agent = world.start("mill", "agent", agents=["mill"])
        supervisor = world.start("supervisor", "supervisor")
        others = world.start("others", "agent", agents=["shelf"])
        await world.started(world.start("scheduler", "scheduler"), supervisor, agent, others)
        task = await world.submit(fault_app.process, "a", {"grind": ["hang after"]})
        await world.until(lambda: supervisor.trace("judged"), "its silence is judged", supervisor, agent)

        async def asked_again() -> bool:
            return [(r["attempt"], r["kind"]) for r in await world.rows("request")] == [(2, "do")]

        await world.until(asked_again, "the step is asked for again", agent)
        passes = len(supervisor.trace("pass"))
        await world.until(
            lambda: len(supervisor.trace("pass")) >= passes + 3, "time passes", supervisor, agent
        )
        (request,) = await world.rows("request")
        assert (request["attempt"], request["taken_by"]) == (2, None)
        (node,) = [n for n in await world.client.store.nodes.views() if n.info.name == "mill"]
        assert [(a.agent, a.slots, a.used) for a in node.info.agents] == [("faults/mill", 1, 1)]
        assert not node.dead
        (world.folder / "free").touch()
        view = await world.ended(task, "processed")
        assert view.failure_count == 1
        assert await world.steps(task) == {"hold": ("done", 1, 1, 0), "grind": ("done", 2, 1, 1)}
        assert [(e["replies"][0][4], e["accepted"]) for e in agent.trace("answer")] == [
            (1, [False]),
            (2, [True]),
        ]
        assert "done came too late for step 1, attempt 1" in await world.notes(task)
        assert world.service.calls("grind") == ["done", "repeated"]

        async def slot_free() -> bool:
            (now,) = [n for n in await world.client.store.nodes.views() if n.info.name == "mill"]
            return now.info.agents[0].used == 0

        await world.until(slot_free, "the slot is free again", agent)
        assert await world.left_over() == []
        world.audit({"a": {"hold": 1, "grind": 1}})
