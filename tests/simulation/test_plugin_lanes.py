"""Lanes in a user's test: tasks wait for each other in each world, and a lane that nobody frees is named."""

import pytest

import makegood as mg
from makegood.testing import World, crash_everywhere
from makegood.testing.kit.proof import UnprovedError

app = mg.App("bank")
desk = app.agent("desk")


@desk.action(complete_within="5s", undo=mg.NOTHING)
async def pay(order: str) -> str:
    if order == "broken":
        raise mg.Permanent("no such order")
    return f"paid {order}"


@app.workflow(lane=lambda customer, order: f"{customer}" if order else None, on_failure="hold")
def buy(customer: str, order: str) -> str:
    return pay(order)


def test_tasks_of_one_lane_go_in_order_whatever_crashes() -> None:
    worlds: list[str] = []

    @crash_everywhere(at_most=6)
    async def test_orders(world: World) -> None:
        tasks = [await world.submit(buy, "ada", f"o-{n}") for n in range(3)]
        await world.run_to_rest()
        for task in tasks:
            task.assert_processed()
        worlds.append(tasks[-1].state)

    test_orders()
    assert len(worlds) > 1


def test_a_lane_that_a_task_in_error_holds_is_named_soon() -> None:
    nows: list[float] = []

    @crash_everywhere(at_most=1)
    async def test_orders(world: World) -> None:
        for order in ("broken", "o-2"):
            await world.submit(buy, "ada", order)
        try:
            await world.run_to_rest()
        finally:
            nows.append(world.now)

    with pytest.raises(
        UnprovedError, match=r"is queued, and waits for lane ada, which \w+ holds.*release_lane"
    ):
        test_orders()
    assert nows[0] < 120


def test_an_operator_of_the_test_lets_the_others_continue() -> None:
    states: set[tuple[str, str]] = set()

    @crash_everywhere(at_most=3)
    async def test_orders(world: World) -> None:
        first = await world.submit(buy, "ada", "broken")
        other = await world.submit(buy, "ada", "o-2")
        await world.until(lambda: first.state == "error")
        assert other.state == "queued"
        await world.operator.release_lane(first, why="the other does not depend on it")
        await world.run_to_rest()
        other.assert_processed()
        states.add((first.state, other.state))

    test_orders()
    assert states == {("error", "processed")}


def test_a_submission_may_name_its_lanes_itself() -> None:
    """In place of those of the workflow: two tasks of one customer wait for each other, and one without a lane for nobody."""
    states: set[tuple[str, ...]] = set()

    @crash_everywhere(at_most=3)
    async def test_orders(world: World) -> None:
        first = await world.submit(buy, "ada", "broken", lane=["till-1", 7])
        others = [
            await world.submit(buy, "bob", "o-2", lane="till-1"),
            await world.submit(buy, "lea", "o-3", lane=7),
            await world.submit(buy, "ada", "o-4"),
            await world.submit(buy, "ada", "o-5", lane=()),
        ]
        await world.until(lambda: first.state == "error" and others[3].state == "processed")
        await world.until(lambda: others[2].state == "processed")
        states.add(tuple(other.state for other in others))
        await world.operator.undo(first)
        await world.run_to_rest()
        others[0].assert_processed()
        others[1].assert_processed()

    test_orders()
    assert states == {("queued", "queued", "processed", "processed")}
