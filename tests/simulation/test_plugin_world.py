"""The world of a user's test: virtual time, roles, the operator, services of every kind; played here without pytest's help."""

import asyncio
from typing import Any

import pytest

import makegood as mg
from makegood.testing import FakeService, World, crash_everywhere
from makegood.testing.kit.proof import APART, Proof, UnprovedError
from makegood.testing.kit.stage import Stage
from tests.simulation import shop_for_plugin as shop


def services(world: World, **how: Any) -> FakeService:
    """Give the shop its services."""
    shop.Remote.warehouse = world.service("stock")
    shop.Remote.bank = world.service("payments", **how)
    return world._stage.services["payments"]


def test_a_workflow_of_two_hours_takes_no_time() -> None:
    """Two hours pass in a world in fewer than forty-five thousand steps of its loop, and every fault in it is survived."""
    steps: list[int] = []
    nows: list[float] = []

    @crash_everywhere(at_most=8)
    async def test_slow(world: World) -> None:
        services(world)
        task = await world.submit(shop.slow_order, "o7")
        await world.run_to_rest()
        task.assert_processed_or_undone()
        nows.append(world.now)
        steps.append(world._stage.loop.steps)

    test_slow()
    assert len(nows) == 10
    assert min(nows) > 7200
    assert sorted(steps)[len(steps) // 2] < 45_000


def test_the_roles_are_killed_stopped_and_resumed_by_name() -> None:
    states: list[bool] = []

    @crash_everywhere(at_most=1)
    async def test_roles(world: World) -> None:
        services(world)
        task = await world.submit(shop.place_order, "o7")
        for role in (world.scheduler, world.agent, world.supervisor):
            role.kill()
            states.append(role.up)
        await world.until(lambda: world.scheduler.up and world.agent.up and world.supervisor.up)
        world.stop("agent", "10m")
        states.append(world.agent.up)
        world.resume("agent")
        states.append(world.agent.up)
        world.at("1s", world.kill, "supervisor")
        await world.run_to_rest()
        task.assert_processed()
        assert await task.result() == "payments-1"
        assert "FAULT kill at by the test" in world.timeline()
        assert "FAULT" in task.timeline()

    test_roles()
    assert states[:5] == [False, False, False, False, True]


def test_the_end_of_a_stop_that_was_ended_early_does_not_resume_a_process_that_is_stopped_again() -> None:
    states: list[bool] = []

    @crash_everywhere(at_most=1)
    async def test_twice(world: World) -> None:
        services(world)
        task = await world.submit(shop.place_order, "o7")
        world.stop("supervisor", "10s")
        world.resume("supervisor")
        world.stop("supervisor", "60s")
        for wait in (30, 31):
            await asyncio.sleep(wait)
            states.append(world.supervisor.up)
        await world.run_to_rest()
        task.assert_processed()

    test_twice()
    assert states[:2] == [False, True]


def test_the_operator_undoes_what_was_processed_and_starts_it_again() -> None:
    @crash_everywhere(at_most=3)
    async def test_operator(world: World) -> None:
        bank = services(world)
        task = await world.submit(shop.place_order, "o7", key="order-7")
        await world.run_to_rest()
        task.assert_processed()
        again = await world.submit(shop.place_order, "o7", key="order-7")
        assert again.number == task.number
        await world.operator.undo(task, why="he sent it back")
        await world.run_to_rest()
        task.assert_undone()
        assert bank.standing() == 0
        with pytest.raises(mg.TaskUndone):
            await task.result()
        with pytest.raises(mg.ActRefusedError):
            await world.operator.cancel(task)
        await world.operator.resubmit(task)
        await world.run_to_rest()
        task.assert_processed()
        assert bank.standing() == 1

    test_operator()


def test_an_error_is_settled_by_the_operator() -> None:
    """A letter that may or may not have gone out is held; the operator looks, and says so."""
    outcomes: list[str] = []

    @crash_everywhere(kinds=["kill", "fails"])
    async def test_letter(world: World) -> None:
        letters = shop.Remote.letters = world.service("letters", keys=False, token=False)
        task = await world.submit(shop.letter, "o7")
        await world.run_to_rest()
        task.assert_whole()
        if task.state == "error":
            outcome = "done" if letters.standing() else "failed"
            await world.operator.settle(
                task, "stamp", outcome=outcome, value="letters-1" if outcome == "done" else None
            )
            await world.run_to_rest()
            outcomes.append(outcome)
            assert task.steps["stamp"] == outcome

    test_letter()
    assert outcomes


def played(script: Any, **how: Any) -> Stage:
    """Return a calm world after a script was played in it."""
    proof = Proof(lambda stage: script(World(stage), **how))
    return proof.calm(0)[0].stage


def test_what_a_service_hears_is_what_it_was_told() -> None:
    """The key, the token and what to take back come from the headers alone; the books know whose call it was."""

    async def script(world: World) -> None:
        services(world)
        task = await world.submit(shop.place_order, "o7")
        await world.run_to_rest()
        await world.operator.undo(task)
        await world.run_to_rest()

    stage = played(script)
    calls = [(each.doing, each.step, each.told, each.token) for each in stage.services["payments"].heard]
    (action, step, key, first), (undo, _, other_key, second) = calls
    assert (action, step, undo) == ("do", "charge", "undo")
    assert key == other_key == stage.services["payments"].effects[0].told
    assert first is not None
    assert second is not None
    assert second > first


def test_a_fakes_own_refusal_reaches_the_action_and_undoes_the_task() -> None:
    """What the fake raises is the answer; under the same key it is given again, and the fake is not asked twice."""
    orders: list[str] = []

    def refuse(order: str, _cents: int) -> str:
        orders.append(order)
        raise mg.Permanent("card refused")

    @crash_everywhere(at_most=40)
    async def test_refused(world: World) -> None:
        orders.clear()
        services(world, do=refuse)
        task = await world.submit(shop.place_order, "o7")
        await world.run_to_rest()
        task.assert_undone()
        assert "card refused" in task.cause
        assert len(orders) == 1
        assert task.steps == {"reserve": "undone", "charge": "failed"} or task.steps["charge"] == "undone"

    test_refused()


def test_an_undo_that_the_fake_refuses_leaves_it_standing() -> None:
    """The fake's undo gets the answer of its do; what it refuses was not taken back."""
    answers: list[str] = []

    def keep(answer: str) -> None:
        answers.append(answer)
        raise mg.Permanent("too late")

    async def script(world: World) -> None:
        bank = services(world, undo=keep)
        task = await world.submit(shop.place_order, "o7")
        await world.run_to_rest()
        await world.operator.undo(task)
        await world.run_to_rest()
        assert task.state == "error"
        assert bank.standing() == 1

    played(script)
    assert set(answers) == {"payments-1"}


def test_a_test_that_never_ends_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """After two days, which are two hours here, and the longest that its workflow may take."""
    monkeypatch.setattr("makegood.testing.kit.stage.DAY", 3600.0)

    async def script(world: World) -> None:
        services(world)
        await world.submit(shop.place_order, "o7")
        await asyncio.get_running_loop().create_future()

    with pytest.raises(UnprovedError, match="it waits for something that never comes"):
        played(script)


def test_each_role_is_a_process_of_its_own() -> None:
    async def script(world: World) -> None:
        services(world)
        await world.submit(shop.place_order, "o7")

    assert set(played(script).members) == {"shop", "operator", *(role for (role,) in APART)}


def test_an_undo_that_takes_back_what_another_task_did_is_found() -> None:
    """A service without keys goes by its answer; where two tasks got the same one, the wrong effect is taken back, and it is said."""

    async def script(world: World) -> None:
        services(world, keys=False, token=False, do=lambda _order, _cents: "charge 1")
        first = await world.submit(shop.place_order, "o7")
        second = await world.submit(shop.place_order, "o8")
        await world.run_to_rest()
        await world.operator.undo(second)
        await world.run_to_rest()
        first.assert_processed()
        second.assert_undone()

    with pytest.raises(
        UnprovedError, match=r"NOTHING IN PLACE: step charge of task \w+ is done.*\n.*another task.*unique"
    ):
        played(script)


def test_under_a_key_what_was_done_is_taken_back_whatever_was_answered() -> None:
    """The same answers, but the service honours keys: each task's own effect is taken back."""

    async def script(world: World) -> None:
        bank = services(world, do=lambda _order, _cents: "charge 1")
        await world.submit(shop.place_order, "o7")
        second = await world.submit(shop.place_order, "o8")
        await world.run_to_rest()
        await world.operator.undo(second)
        await world.run_to_rest()
        assert [effect.stands for effect in bank.effects] == [True, False]

    played(script)
