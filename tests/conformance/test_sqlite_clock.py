"""SQLite only: the store's own clock, one for all processes of a boot, never going back."""

from pathlib import Path

import pytest

from makegood.store.sqlite import SQLiteStore
from tests.clocks import HandClock
from tests.conformance.builders import draft, info, running, term
from tests.conformance.worlds import SQLiteWorld


async def now_of(path: Path, clock: HandClock) -> float:
    """Open a store of a process with this clock and return its time."""
    store = SQLiteStore(path, clock=clock, poll=None)
    await store.open(migrate=True)
    now = await store.now()
    await store.close()
    return now


async def test_a_new_stores_clock_is_the_wall_clock(tmp_path: Path) -> None:
    clock = HandClock()
    assert await now_of(tmp_path / "s.db", clock) == clock.wall()


async def test_within_a_boot_a_jump_of_the_wall_clock_changes_nothing(tmp_path: Path) -> None:
    clock = HandClock()
    before = await now_of(tmp_path / "s.db", clock)
    clock.forward(10)
    for jump in (-1e6, 1e6):
        clock.wall_seconds += jump
        assert await now_of(tmp_path / "s.db", clock) == pytest.approx(before + 10)


async def test_processes_with_different_wall_clocks_agree(tmp_path: Path) -> None:
    world = SQLiteWorld(tmp_path)
    first = world.store()
    await first.open(migrate=True)
    world.clock.wall_seconds -= 5000
    second = world.store()
    await second.open()
    assert await first.now() == await second.now()
    await first.close()
    await second.close()


async def test_after_a_boot_time_goes_on_from_the_wall_clock(tmp_path: Path) -> None:
    clock = HandClock()
    before = await now_of(tmp_path / "s.db", clock)
    clock.boot, clock.seconds = "boot-2", 5.0
    clock.wall_seconds += 300
    assert await now_of(tmp_path / "s.db", clock) == pytest.approx(before + 300)


@pytest.mark.parametrize("left", ["a heartbeat", "a lease", "an event", "a task"])
async def test_after_a_boot_with_a_wrong_wall_clock_time_does_not_go_back(tmp_path: Path, left: str) -> None:
    world = SQLiteWorld(tmp_path)
    store = world.store()
    await store.open(migrate=True)
    if left == "an event":
        scheduler = await running(store, 1)
        assert scheduler.node
    world.clock.forward(500)
    if left == "a heartbeat":
        await store.nodes.register(info())
    elif left == "a lease":
        await term(store)
    elif left == "an event":
        await running(store, 2)
    else:
        await store.tasks.submit([draft(7)])
    before = await store.now()
    await store.close()
    world.clock.boot, world.clock.seconds, world.clock.wall_seconds = "boot-2", 5.0, 1000.0
    assert await now_of(world.path, world.clock) >= before


async def test_a_lease_runs_out_across_a_boot(tmp_path: Path) -> None:
    world = SQLiteWorld(tmp_path)
    store = world.store()
    await store.open(migrate=True)
    await term(store, holder="before", ttl=15.0)
    await store.close()
    world.clock.boot, world.clock.seconds = "boot-2", 3.0
    world.clock.wall_seconds += 60
    await store.open()
    assert (await term(store, holder="after")).epoch == 2
    await store.close()
