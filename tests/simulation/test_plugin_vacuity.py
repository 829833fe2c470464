"""A proof says so when it proves nothing: of a workflow that fails by itself, an undo that never runs, a test that is chance."""

import pytest

import makegood as mg
from makegood.testing import World, crash_everywhere, simulate
from makegood.testing.kit import limits
from makegood.testing.kit.progress import Progress
from makegood.testing.kit.proof import Proof, UnprovedError
from tests.simulation import shop_for_plugin as shop
from tests.simulation.test_plugin_reports import order, run

pytest_plugins = ["pytester"]

WRONG = """
import asyncio

press = shop.shop.agent("press")

@press.action(complete_within="30s", undo=mg.NOTHING)
async def misspelt(order: str) -> str:
    return ordre

@press.action(complete_within="30s", undo=mg.NOTHING)
async def returns_another(order: str) -> str:
    return 7

@press.action(complete_within="30s", undo=mg.NOTHING)
def forgets_await(order: str) -> str:
    return asyncio.sleep(0)

@press.action(complete_within="30s", undo=mg.NOTHING)
async def sleeps(order: str) -> str:
    await asyncio.sleep(3600)
    return order

@press.action(complete_within="30s", undo=mg.NOTHING)
async def later(order: str) -> str:
    raise mg.Later("10s", "not yet")

@press.action(complete_within="30s", undo=mg.NOTHING)
async def refuses(order: str) -> str:
    raise mg.Permanent("sold out")

def workflow(action):
    def print_it(order: str) -> str:
        return action(order)
    return shop.shop.workflow(complete_within="10m", name=f"print_{action.name}")(print_it)

misspelt_order, wrong_order, forgetful_order = map(workflow, (misspelt, returns_another, forgets_await))
sleepy_order, late_order, refused_order = map(workflow, (sleeps, later, refuses))

def services(world):
    pass
"""


FAILING = {
    "misspelt_order": "misspelt: NameError: name 'ordre' is not defined",
    "wrong_order": "returns_another: the result cannot be kept",
    "forgetful_order": "forgets_await: ",
    "sleepy_order": "sleeps: no answer by its deadline",
    "late_order": "the deadline passed",
}


def test_a_workflow_that_fails_in_a_calm_world_fails_the_test(pytester: pytest.Pytester) -> None:
    """Undone is whole, but if nothing ever succeeds the test shows nothing. ``fails=True`` says that it is meant."""
    decorators = {
        "points": "crash_everywhere",
        "storms": "simulate(seeds=2)",
        "meant": "crash_everywhere(at_most=2, fails=True)",
    }
    output = run(
        pytester,
        WRONG
        + "".join(
            f"@{decorator}" + order(f"test_{workflow}_{how}", workflow)
            for workflow in FAILING
            for how, decorator in decorators.items()
        ),
        "--tb=short",
    )
    assert "10 failed, 5 passed" in output
    for workflow, cause in FAILING.items():
        for how in ("points", "storms"):
            section = output.split(f"_ test_{workflow}_{how} _")[1].split("\n____")[0]
            assert f"is undone although nothing struck: {cause}" in section
            assert "fails=True" in section


def test_what_fails_for_good_in_a_calm_world_may_be_what_is_tested(pytester: pytest.Pytester) -> None:
    assert "1 passed" in run(pytester, WRONG + "@crash_everywhere" + order(workflow="refused_order"))


def test_a_test_that_strikes_itself_may_end_as_it_likes() -> None:
    """Nothing is calm about a world in which the test kills."""

    @crash_everywhere(at_most=2)
    async def test_order(world: World) -> None:
        shop.Remote.warehouse, shop.Remote.bank = world.service("stock"), world.service("payments")
        for n in range(40):
            world.at(f"{n}s", world.kill, "agent")
        await world.submit(shop.place_order, "o7")
        await world.run_to_rest()

    test_order()


UNDONE = """
@crash_everywhere(at_most=5)
async def test_calm(world):
    services(world)
    await world.submit(shop.place_order, "o7")
    await world.run_to_rest()

{second}
"""
CANCELLED = """
@crash_everywhere(at_most=5)
async def test_cancelled(world):
    services(world)
    task = await world.submit(shop.place_order, "o7")
    await world.until(lambda: task.steps["charge"] != "waiting")
    try:
        await world.operator.cancel(task)
    except mg.ActRefusedError:
        pass
    await world.run_to_rest()
"""


@pytest.mark.parametrize("options", [[], ["-n", "2"]])
def test_undos_that_ran_in_no_world_of_any_test_are_told_at_the_end(
    pytester: pytest.Pytester, options: list[str]
) -> None:
    """Also when several processes played the tests; one test that lets them run is enough."""
    alone = run(pytester, UNDONE.format(second=""), *options)
    assert "1 passed" in alone
    assert all(
        f"the undo of {action} ran in no world of these tests" in alone
        for action in ("shop/payments/charge", "shop/stock/reserve")
    )
    both = run(pytester, UNDONE.format(second=CANCELLED), *options)
    assert "2 passed" in both
    assert "ran in no world" not in both


def test_nothing_is_said_of_undos_where_less_was_played_than_asked_for(pytester: pytest.Pytester) -> None:
    assert "ran in no world" not in run(pytester, UNDONE.format(second=""), "--makegood-faults=late")


def test_a_world_that_holds_when_it_is_played_again_is_told_to_be_chance() -> None:
    """State that outlives a world: the fifth fails, whatever strikes there."""
    for decorator in (crash_everywhere(at_most=20), simulate(seeds=20)):
        worlds: list[int] = []

        async def test_order(world: World, worlds: list[int] = worlds) -> None:
            shop.Remote.warehouse, shop.Remote.bank = world.service("stock"), world.service("payments")
            worlds.append(1)
            await world.submit(shop.place_order, "o7")
            await world.run_to_rest()
            assert len(worlds) != 5

        with pytest.raises(UnprovedError, match="THE REPLAY PASSED"):
            decorator(test_order)()
        assert len(worlds) == 6


def test_the_same_key_with_other_inputs_is_refused_as_the_client_refuses_it() -> None:
    @crash_everywhere(at_most=1)
    async def test_order(world: World) -> None:
        shop.Remote.warehouse, shop.Remote.bank = world.service("stock"), world.service("payments")
        first = await world.submit(shop.place_order, "o7", key="k")
        again = await world.submit(shop.place_order, "o7", key="k")
        assert again.id == first.id
        with pytest.raises(mg.KeyConflict, match="the key 'k' with other inputs"):
            await world.submit(shop.place_order, "o8", key="k")
        await world.run_to_rest()

    test_order()


def test_until_says_how_the_tasks_are_when_it_was_in_vain() -> None:
    @crash_everywhere
    async def test_order(world: World) -> None:
        shop.Remote.warehouse, shop.Remote.bank = world.service("stock"), world.service("payments")
        await world.submit(shop.place_order, "o7")
        await world.until(lambda: False, within="1m")

    with pytest.raises(
        UnprovedError, match=r"it was not so within 60 virtual seconds; task \w+ is processed"
    ):
        test_order()


def test_real_time_in_a_calm_world_is_told_to_who_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever sleeps for real does so in every world."""
    lines: list[str] = []
    monkeypatch.setattr(limits, "_SLOW", -1.0)
    monkeypatch.setattr(limits, "_SECOND", 10_000_000_000)

    async def script(stage: object) -> None:
        world = World(stage)  # type: ignore[arg-type]
        shop.Remote.warehouse, shop.Remote.bank = world.service("stock"), world.service("payments")
        await world.submit(shop.place_order, "o7")
        await world.run_to_rest()

    proof = Proof(script, progress=Progress(lines.append, lines.append, first=0.0, steady=0.0))
    proof.progress.begin()
    proof.everywhere(0, ("kill",), 3)
    assert any("of real time: time.sleep and real services do not belong here" in line for line in lines)
