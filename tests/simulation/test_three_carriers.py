"""Three carriers, of which one wins: one is slow, one refuses, one gives no certain answer. All books are balanced, whatever dies."""

import asyncio
from collections import Counter
from collections.abc import Callable

import makegood as mg
from makegood.testing import FakeService, World, crash_everywhere

app = mg.App("carriers")
road, rail, air, desk = app.agent("road"), app.agent("rail"), app.agent("air"), app.agent("desk")
SOON = mg.Recover(threshold=0, wait="1s", extended="1s")


class Remote:
    """The services of the world that runs."""

    road: FakeService
    air: FakeService
    desk: FakeService


@road.action(complete_within="10s")
async def by_road(order: str, patience: float) -> str:
    await asyncio.sleep(patience)
    return str(await Remote.road.do(order, headers=mg.current_call().headers))


@by_road.undo
async def not_by_road(order: str, patience: float, *, result: str | None) -> None:
    await Remote.road.undo(result, headers=mg.current_call().headers)


@rail.action(complete_within="10s")
async def by_rail(order: str) -> str:
    raise mg.Permanent("no train")


@by_rail.undo
async def not_by_rail(order: str, *, result: str | None) -> None: ...


@air.action(complete_within="10s", retry=mg.Retry(tries=1), recover=SOON)
async def by_air(order: str) -> str:
    await Remote.air.do(order, headers=mg.current_call().headers)
    raise RuntimeError("no word of it")


@by_air.undo
async def not_by_air(order: str, *, result: str | None) -> None:
    await Remote.air.undo(result, headers=mg.current_call().headers)


@desk.action(complete_within="10s")
async def label(booking: str) -> str:
    return str(await Remote.desk.do(booking, headers=mg.current_call().headers))


@label.undo
async def tear(booking: str, *, result: str | None) -> None:
    await Remote.desk.undo(result, headers=mg.current_call().headers)


@app.workflow(complete_within="5m")
def send(order: str, patience: float) -> str:
    return label(mg.first(by_road(order, patience), by_rail(order), by_air(order)))


def _answer(name: str) -> Callable[[str], str]:
    return lambda text: f"{name} {text}"


def services(world: World, *, needed: bool = True) -> None:
    """Make the services of a world, whose answers are what they were asked."""
    for name in ("road", "air", "desk"):
        setattr(Remote, name, world.service(name, _answer(name), needed=needed))


def test_one_carrier_wins_and_the_books_of_all_are_balanced() -> None:
    """The slow one wins, before or after the doubtful one has given up; whatever is killed, where it hurts."""
    ends: Counter[tuple[str, int, int, int]] = Counter()

    @crash_everywhere(at_most=14)
    async def test_send(world: World) -> None:
        services(world)
        tasks = [await world.submit(send, "o", patience, key=str(patience)) for patience in (0.1, 4.0)]
        await world.run_to_rest()
        for task in tasks:
            task.assert_processed()
            assert await task.result() == "desk road o"
            assert task.steps["by_road"] == "done"
            assert task.steps["by_rail"] in ("failed", "skipped")
            assert task.steps["by_air"] in ("undone", "skipped")
        ends["books", Remote.road.standing(), Remote.air.standing(), Remote.desk.standing()] += 1

    test_send()
    assert set(ends) == {("books", 2, 0, 2)}
    assert ends.total() > 5


def test_if_none_carries_it_the_task_is_undone() -> None:
    """All fail: nothing is in place anywhere, and the cause names each."""

    @crash_everywhere(at_most=3, fails=True)
    async def test_send(world: World) -> None:
        services(world, needed=False)
        task = await world.submit(refused, "o")
        await world.run_to_rest()
        task.assert_undone()
        assert "by_rail: no train" in task.cause
        assert "by_air: " in task.cause
        assert Remote.air.standing() == 0

    test_send()


@app.workflow()
def refused(order: str) -> str:
    return mg.first(by_rail(order), by_air(order))
