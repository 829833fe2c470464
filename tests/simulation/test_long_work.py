"""Work of five minutes with a heartbeat of two seconds, on virtual time: how soon its death is missed, and how soon it hears."""

import asyncio

import makegood as mg
from makegood.testing import World, crash_everywhere

bank = mg.App("bank")
vault = bank.agent("vault")


@vault.action(complete_within="2s", extend_up_to="3h", cancellable=True, recover=mg.Recover(wait="1s"))
async def transfer(order: str) -> str:
    """Transfer for five minutes."""
    call = mg.current_call()
    for _ in range(200):
        await call.extend("2s")
        await asyncio.sleep(1.5)
    return "transferred"


@transfer.undo
async def send_back(order: str, *, result: str | None) -> None:
    """Take back what was transferred."""


@bank.workflow()
def move(order: str) -> str:
    return transfer(order)


def test_a_process_that_dies_after_two_minutes_is_missed_within_seconds_though_its_limit_is_hours() -> None:
    gaps: list[float] = []

    @crash_everywhere(kinds=("kill",), at_most=1)
    async def test_death(world: World) -> None:
        task = await world.submit(move, "o7")
        await world.advance("2m")
        world.kill("agent")
        died = world.now
        await world.until(lambda: task.steps["transfer"] != "running")
        gaps.append(world.now - died)
        await world.run_to_rest()
        task.assert_processed()

    test_death()
    assert (
        min(gaps) < 15.0
    )  # two seconds, the grace, a pass of the Supervisor, which is rare in the first world


def test_a_cancel_ends_it_within_a_second() -> None:
    gaps: list[float] = []

    @crash_everywhere(kinds=("kill",), at_most=1)
    async def test_cancel(world: World) -> None:
        task = await world.submit(move, "o7")
        await world.advance("2m")
        await world.operator.cancel(task)
        began = world.now
        await world.until(lambda: task.steps["transfer"] == "undone")
        gaps.append(world.now - began)
        await world.run_to_rest()
        task.assert_undone()

    test_cancel()
    assert gaps[0] < 1.0
