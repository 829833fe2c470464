"""Signals in a user's test: sent by the test, sent to whoever waits, or missing."""

import asyncio
from typing import Any

import pytest

import makegood as mg
from makegood.errors import ConfigError
from makegood.testing import World, crash_everywhere
from makegood.testing.kit.proof import UnprovedError, _swarm
from makegood.testing.kit.stage import Stage
from makegood.testing.kit.world import Task

app = mg.App("office")
desk = app.agent("desk")
approval = app.signal("approval", bool)


@desk.action(complete_within="5s", undo=mg.NOTHING)
async def pay(trip: str) -> str:
    return f"paid {trip}"


@app.workflow()
def travel(trip: str) -> str:
    answer = mg.wait_for(approval)
    return mg.when(answer, then=lambda: pay(trip), otherwise=lambda: "stays")


@app.workflow(complete_within="1m")
def travel_soon(trip: str) -> str:
    mg.wait_for(approval, timeout="20s", otherwise=True)
    mg.wait_for(approval, timeout="20s")
    return pay(trip)


@app.workflow()
def month(trip: str) -> str:
    mg.sleep("30d")
    return pay(trip)


@app.workflow()
def travel_within_a_month(trip: str) -> str:
    mg.wait_for(approval, timeout="30d", otherwise=True)
    return pay(trip)


@pytest.mark.parametrize("workflow", [month, travel_within_a_month])
def test_a_month_in_which_nothing_happens_takes_few_steps(workflow: Any) -> None:
    """Of a world's event loop, each of which takes about a tenth of a millisecond."""

    async def script(stage: Stage) -> None:
        world = World(stage)
        task = await world.submit(workflow, "rome")
        await world.run_to_rest()
        task.assert_processed()

    stage = Stage(1, script, swarm=_swarm(1.0))
    assert stage.run().findings == []
    assert stage.error is None
    assert stage.loop.now > 30 * 86_400.0
    assert stage.loop.steps < 5_000


def test_a_test_sends_a_signal_and_every_crash_is_survived() -> None:
    ends: list[Any] = []

    @crash_everywhere(at_most=12)
    async def test_travel(world: World) -> None:
        task = await world.submit(travel, "rome")
        await world.signal(task, approval, value=True)
        again = await world.signal(task, approval, value=False, id="test-1")
        assert (again.created, again.conflict) == (False, True)
        await world.run_to_rest()
        task.assert_processed()
        ends.append(await task.result())

    test_travel()
    assert len(ends) > 5
    assert set(ends) == {"paid rome"}


def test_a_signal_to_a_held_task_is_two_commits_the_senders_and_the_schedulers() -> None:
    """The second ends the wait and dispatches the next step: n steps, waits counted, are n + 1 commits."""
    counts: list[tuple[int, int]] = []

    @crash_everywhere(at_most=1)
    async def test_travel(world: World) -> None:
        task = await world.submit(travel, "rome")
        history = world._stage.history
        await world.until(lambda: any(e.kind == "moved" for e in history.events))
        before = len(history.events)
        await world.signal(task, approval, value=True)
        await world.until(lambda: any(e.kind == "sent" for e in history.events))
        commits = [e for e in history.events[before:] if e.kind == "store" and e["outcome"] == "committed"]
        writes = [e for e in commits if {"send", "commit"} & {*e["verbs"]}]
        await world.run_to_rest()
        task.assert_processed()
        counts.append((len(writes), sum(e.kind == "moved" for e in history.events)))

    test_travel()
    assert counts[0] == (2, 3)


def test_whoever_waits_is_answered_in_each_round() -> None:
    trips: list[str] = []

    @crash_everywhere(at_most=4)
    async def test_travel(world: World) -> None:
        trips.clear()

        def answer(task: Task) -> bool:
            trips.append(task.key)
            return True

        world.on_wait(approval, answer)
        tasks = [await world.submit(travel_soon, trip, key=trip) for trip in ("rome", "oslo")]
        await world.run_to_rest()
        for task in tasks:
            task.assert_processed()
        assert sorted(trips) == ["oslo", "oslo", "rome", "rome"]

    test_travel()


def test_the_name_of_a_signal_is_not_a_signal() -> None:
    @crash_everywhere(at_most=1)
    async def test_travel(world: World) -> None:
        with pytest.raises(ConfigError, match=r"takes a signal, .* not 'verdic'"):
            world.on_wait("verdic", lambda _: True)  # type: ignore[arg-type]  # as an untyped test writes it
        world.on_wait(approval, lambda _: True)
        task = await world.submit(travel_soon, "rome")
        await world.run_to_rest()
        task.assert_processed()

    test_travel()


def test_a_timeout_passes_in_virtual_time() -> None:
    states: set[str] = set()

    @crash_everywhere(at_most=4)
    async def test_travel(world: World) -> None:
        task = await world.submit(travel_soon, "rome")
        await world.run_to_rest()
        states.add(f"{task.state}: {task.cause}")

    test_travel()
    assert states == {"undone: approval-2: no signal approval within 20s"}


def test_a_task_that_waits_for_what_nobody_sends_is_named_soon() -> None:
    nows: list[float] = []

    @crash_everywhere(at_most=1)
    async def test_travel(world: World) -> None:
        await world.submit(travel, "rome")
        try:
            await world.run_to_rest()
        finally:
            nows.append(world.now)

    with pytest.raises(
        UnprovedError, match=r"is sleeping, and waits for approval, a signal\. Send it with world\.signal"
    ):
        test_travel()
    assert nows[0] < 120


def test_an_answer_that_fails_is_the_failure_of_the_test() -> None:
    @crash_everywhere(at_most=1)
    async def test_travel(world: World) -> None:
        def answer(_task: Any) -> bool:
            raise LookupError("nobody is in the office")

        world.on_wait(approval, answer)
        await world.submit(travel, "rome")
        await asyncio.sleep(5)
        await world.run_to_rest()

    with pytest.raises(UnprovedError, match="nobody is in the office"):
        test_travel()
