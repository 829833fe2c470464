"""Users' tests of months and years: virtual time leaps to what is due. Steps of the event loop are counted, never seconds."""

import asyncio
from datetime import timedelta

import makegood as mg
from makegood.testing import World, crash_everywhere, simulate

DAY = 86_400.0


class Office:
    """An app whose one workflow waits for an approval, or for a length that an action returns; ``runs``: when each action ran."""

    def __init__(self) -> None:
        self.app = mg.App("office")
        self.approval = self.app.signal("approval", bool)
        self.runs: list[float] = []
        desk = self.app.agent("desk")

        @desk.action(complete_within="20s", undo=mg.NOTHING)
        async def file(order: str) -> str:
            self.runs.append(asyncio.get_running_loop().time())
            return "filed"

        @desk.action(complete_within="20s", undo=mg.NOTHING)
        async def term(order: str) -> timedelta:
            return timedelta(days=200)

        @self.app.workflow()
        def approve(order: str) -> str:
            mg.wait_for(self.approval)
            return file(order)

        @self.app.workflow()
        def keep(order: str) -> str:
            mg.sleep(term(order))
            return file(order)

        @self.app.workflow()
        def remind() -> None:
            file("reminder")

        self.file, self.approve, self.keep, self.remind = file, approve, keep, remind


def steps(world: World) -> int:
    """Return the steps of the event loop so far."""
    return world._stage.loop.steps


def test_a_year_takes_as_few_steps_as_a_day() -> None:
    """A task waits for an approval, without a limit. Six hours took 82,618 steps."""
    office, counts = Office(), list[int]()

    for length in ("1d", "365d"):

        @crash_everywhere(kinds=("kill",), at_most=1)
        async def test(world: World, length: str = length) -> None:
            office.runs.clear()
            task = await world.submit(office.approve, "o")
            began, before = world.now, steps(world)
            await world.advance(length)
            counts.append(steps(world) - before)
            assert 0 <= world.now - began - (365 if length == "365d" else 1) * DAY < 1e-3
            assert (task.state, office.runs) == ("sleeping", [])
            await world.signal(task, office.approval, True)
            await world.run_to_rest()
            task.assert_processed()

        test()
    assert max(counts) < 1000


def test_a_sleep_whose_length_an_action_returns_ends_at_its_moment() -> None:
    """Also in a world in which a process is killed on the way, and in a storm. Processes are not taken for dead over a leap."""
    office, counts = Office(), list[int]()

    async def test(world: World) -> None:
        office.runs.clear()
        task = await world.submit(office.keep, "o")
        before = steps(world)
        await world.run_to_rest()
        counts.append(steps(world) - before)
        task.assert_processed()
        assert 200 * DAY < office.runs[-1] < 200 * DAY + 3600.0
        if not world._stage.faults.counts:
            assert office.runs[-1] < 200 * DAY + 60.0
            assert not world._stage.history.of("released")

    crash_everywhere(kinds=("kill",), at_most=4)(test)()
    simulate(seeds=2)(test)()
    assert max(counts) < 40_000


def test_schedules_fire_at_their_moments_and_the_test_s_own_appointments_are_kept() -> None:
    """A moment of each month, an answer to whoever waits, and a kill by the test itself at the end of March."""
    office, counts, kills = Office(), list[int](), list[float]()
    office.app.schedule(cron="0 9 1 * *")(office.remind)

    @crash_everywhere(kinds=("kill",), at_most=1)
    async def test(world: World) -> None:
        office.runs.clear()
        world.on_wait(office.approval, lambda _task: True)

        def kill() -> None:
            kills.append(world.now)
            world.kill("supervisor")

        world.at("85d", kill)
        task = await world.submit(office.approve, "o")
        before = steps(world)
        await world.advance("364d")
        counts.append(steps(world) - before)
        task.assert_processed()
        firings = office.runs[1:]
        assert len(firings) == 12
        assert all(0 <= at % DAY - 9 * 3600.0 < 60.0 for at in firings), firings

    test()
    assert all(abs(at - 85 * DAY) < 1.0 for at in kills)
    assert max(counts) < 60_000, counts
