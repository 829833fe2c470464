"""A process that is told to end ends, whatever its user's functions do: through ``makegood run``, as a user starts it."""

import time

import pytest

from makegood.cli.event_loop import GRACE
from tests.processes.world import World

DRAIN = 0.5
MODULE = '''
"""Functions that do not end."""

import asyncio
import time
from pathlib import Path

import makegood as mg

mule = mg.App("mule")
cart = mule.agent("cart")
FOLDER = Path(__file__).parent


@cart.action(complete_within="2m", undo=mg.NOTHING)
async def refuse(load: str) -> str:
    """It swallows its cancellation, as some clients do while they connect anew."""
    (FOLDER / "runs").touch()
    while True:
        try:
            await asyncio.sleep(1000)
        except BaseException:
            continue


@cart.action(complete_within="2m", undo=mg.NOTHING)
async def sleep(load: str) -> str:
    """A thread of the loop's own executor cannot be cancelled."""
    (FOLDER / "runs").touch()
    await asyncio.to_thread(time.sleep, 1000)
    return load


@mule.workflow
def refusing(load: str) -> str:
    return refuse(load)


@mule.workflow
def sleeping(load: str) -> str:
    return sleep(load)


@mule.inbox("loads")
async def accept(load: str, tx: mg.Transaction) -> None:
    await refuse.fn(load)
'''


@pytest.mark.parametrize("how", ["refusing", "sleeping", "loads"])
async def test_sigterm_ends_a_process_whose_function_does_not_heed_its_cancellation(
    world: World, how: str
) -> None:
    """After the drain's limit and a moment: the loop would wait for it for ever. It is named, and its task is in the store."""
    async with world:
        (world.folder / "mule.py").write_text(MODULE, encoding="utf-8")
        run = world.launch(
            "run",
            ["makegood", "run", "mule:mule", "--store", world.url, "--drain", f"{DRAIN:g}s"],
            settings={"MAKEGOOD_POLL_EVERY": "0.2s"},
        )
        await world.until(lambda: "drains and stops" in run.log(), "the process runs", run)
        words = ["makegood", "task", "submit", f"mule:{how}", '"hay"', "--store", world.url]
        if how == "loads":
            words = ["makegood", "queue", "send", "loads", '"hay"', "--store", world.url]
        assert await world.ends(world.launch("ask", words)) == 0
        await world.until((world.folder / "runs").exists, "the function runs", run)
        began = time.monotonic()
        run.terminate()
        assert await world.ends(run) == 0
        assert time.monotonic() - began > DRAIN
        assert f"this process ends now, {GRACE:g} s after its node" in run.log()
        if how == "loads":
            assert "ignores its cancellation" in run.log()
        else:
            assert "still running after the drain's 0.5 s" in run.log()
            (row,) = await world.rows("task")
            assert row["state"] == "pending"
        if how == "refusing":
            assert "mule/cart/refuse for step refuse of task" in run.log()


SETUPS = '''
"""Setups that do not close."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator

import makegood as mg

mule = mg.App("mule")


@mule.setup
def cellar() -> Iterator[int]:
    """Its thread hangs."""
    yield 1
    time.sleep(1000)


@mule.setup
async def barn() -> AsyncIterator[int]:
    """It waits, and heeds its cancellation."""
    yield 2
    await asyncio.sleep(1000)


@mule.setup
async def loft() -> AsyncIterator[int]:
    """It swallows its cancellation."""
    yield 3
    while True:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            continue


@mule.agent("cart").action(complete_within="2m", undo=mg.NOTHING)
def load(n: int, *, cellar: int = mg.SETUP, barn: int = mg.SETUP) -> int:
    return n


@mule.agent("crane").action(complete_within="2m", undo=mg.NOTHING)
def lift(n: int, *, cellar: int = mg.SETUP, loft: int = mg.SETUP) -> int:
    return n
'''


@pytest.mark.parametrize(("agent", "last"), [("cart", "barn"), ("crane", "loft")])
async def test_sigterm_ends_a_process_whose_setups_do_not_close(world: World, agent: str, last: str) -> None:
    """After what is left of the drain's limit and a moment, also if a setup ignores its cancellation."""
    async with world:
        (world.folder / "mule.py").write_text(SETUPS, encoding="utf-8")
        command = ["makegood", "agent", "mule:mule", agent, "--store", world.url, "--drain", f"{DRAIN:g}s"]
        run = world.launch("run", command, settings={"MAKEGOOD_POLL_EVERY": "0.2s"})
        await world.until(lambda: f"the setup {last} of app mule" in run.log(), "the setups are open", run)
        run.terminate()
        assert await world.ends(run) == 0
        assert f"the setups could not be closed within 1.0 s (the setup {last} of app mule" in run.log()
        assert (f"this process ends now, {GRACE:g} s after its node" in run.log()) == (agent == "crane")
