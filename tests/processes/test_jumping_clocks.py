"""The clock on the wall of a machine is set forward and back by hours, under tasks that wait.

Lengths run on the store's clock, which nobody sets. Moments are of the calendar: on SQLite that is the machine's clock on the wall, so
they follow a jump; on PostgreSQL it is the server's, so nothing happens to them when another machine's clock jumps.
"""

import json
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

import makegood as mg
from tests.processes.jumping_host import asked, begun, nap, until
from tests.processes.world import QUICK, Child, World

HOUR = 3600.0
LENGTH = 3.0


class Machine:
    """A machine whose clock jumps."""

    def __init__(self, world: World, folder: Path) -> None:
        self.world, self.file = world, folder / "jump"
        self.jump(0.0)

    def jump(self, seconds: float) -> None:
        """Set its clock ahead of the true time."""
        fresh = self.file.with_suffix(".new")
        fresh.write_text(str(seconds), encoding="utf-8")
        fresh.replace(self.file)

    def start(self, name: str, linger: float) -> Child:
        """Start a process on it that lets tasks go which wait for longer than ``linger`` seconds."""
        command = ["tests.processes.jumping_host", "--store", self.world.url, "--name", name]
        command += ["--options", json.dumps({**QUICK, "linger": linger}), "--jump", str(self.file)]
        return self.world.launch(name, command)

    async def asleep(self, *tasks: mg.TaskHandle[str]) -> bool:
        """Wait until tasks wait, in the store or in memory; return whether none has ended, which a slow machine sees too late."""
        outcomes = [await self.world.until(partial(_waits, task), "the task waits") for task in tasks]
        return set(outcomes) == {"waits"}


async def _waits(task: mg.TaskHandle[str]) -> str:
    status = await task.status()
    if status.task.state == "sleeping" or any(step.state == "ready" for step in status.steps):
        return "waits"
    return "has ended" if status.task.state == "processed" else ""


@pytest.mark.parametrize("linger", [0.0, 600.0], ids=["let go", "in memory"])
async def test_lengths_do_not_follow_a_clock_that_jumps(world: World, folder: Path, linger: float) -> None:
    """A sleep, a timeout and a delay last as long as they say."""
    machine = Machine(world, folder)
    async with world:
        await world.started(machine.start("host", linger))
        for hours in (5, -5):
            while True:
                begin = time.monotonic()
                tasks = {
                    "rested": await world.client.submit(nap),
                    "nobody": await world.client.submit(asked),
                    "begun": await world.client.submit(begun.plan(), delay=LENGTH),
                }
                wait = await machine.asleep(*tasks.values())
                machine.jump(hours * HOUR)
                if wait and time.monotonic() - begin < LENGTH:
                    break  # it has jumped under all of them
            for result, task in tasks.items():
                assert await task.result(timeout="2m") == result
                assert time.monotonic() - begin >= LENGTH


@pytest.mark.parametrize("linger", [0.0, 9 * HOUR], ids=["let go", "in memory"])
async def test_a_start_comes_when_the_calendar_of_the_store_says_so(
    world: World, folder: Path, linger: float
) -> None:
    """On SQLite a moment has not come on a clock that was set back, and comes at once when it is set right or forward; no sleep until
    a moment ends before it either. On PostgreSQL the server's clock decides.
    """
    machine, is_sqlite = Machine(world, folder), world.url.startswith("sqlite")
    async with world:
        await world.started(machine.start("host", linger))
        while True:
            near, far = (datetime.now(UTC) + timedelta(seconds=each) for each in (LENGTH, HOUR))
            sleep, far_sleep = [await world.client.submit(until, moment) for moment in (near, far)]
            first, second = [await world.client.submit(begun.plan(), at=moment) for moment in (near, far)]
            wait = await machine.asleep(sleep, far_sleep, first, second)
            machine.jump(-5 * HOUR)
            if wait and datetime.now(UTC) < near:
                break  # it has jumped before any of them has come
            machine.jump(0.0)
        mark = await world.client.submit(nap)
        await world.ended(mark, "processed")  # the moment of the first two has come, and a little more
        if is_sqlite:
            assert (await world.view(first)).state == "sleeping"
            assert (await world.view(sleep)).state == ("processing" if linger else "sleeping")
            machine.jump(0.0)
        else:
            await world.ended(sleep, "processed")
        await world.ended(first, "processed")
        assert (await world.view(second)).state == "sleeping"
        machine.jump(5 * HOUR)
        if is_sqlite:
            await world.ended(second, "processed")
            await world.ended(far_sleep, "processed")
        else:
            await world.ended(await world.client.submit(nap), "processed")
            assert (await world.view(second)).state == "sleeping"
            assert (await far_sleep.status()).task.state in ("sleeping", "processing")


async def test_a_schedule_repeats_no_moment_when_the_clock_jumps(world: World, folder: Path) -> None:
    """Each second of the store's calendar has one task at most, however often a clock shows it."""
    machine = Machine(world, folder)
    async with world:
        await world.client.schedule("tick", begun, every="1s", overlap="allow")
        await world.started(machine.start("host", 0.0))
        for hours in (0, 5, 0, 5):
            machine.jump(hours * HOUR)
            count = len(await keys(world))

            async def fires(count: int = count) -> bool:
                return len(await keys(world)) >= count + 2

            if hours or not count:
                await world.until(fires, "the schedule fires")
            else:
                await world.ended(
                    await world.client.submit(nap), "processed"
                )  # it has dealt with hours to come
        tasks = await keys(world)
    assert len(set(tasks)) == len(tasks) >= 6


async def keys(world: World) -> list[str | None]:
    """Return the keys of the tasks that the schedule has fired."""
    condition = mg.Filter(attributes={"makegood.schedule": "tick"}, limit=1000)
    return [task.key for task in await world.client.find(condition)]
