"""Leaders with different zone rules take turns over a change of the clocks: each time of a text is fired once at most, and is
fired or counted. The calendar is moved by hand, on both stores.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import count, cycle, takewhile
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from makegood.moments.cron import Cron
from makegood.store import schedules
from makegood.store.protocol import Store
from tests.conformance.builders import term
from tests.conformance.test_schedules import ACT, a_schedule, fire, tasks
from tests.unit.zone_folders import enact, system_rules, write_zone

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
"""When the clocks change by a law that changes them."""
SHIFT = 58
"""Seconds by which they are set forward or back."""
ZONE = "Test/Town"
DENSE, REAL, SPARSE = "0-59/5 0-59 0-23 * * *", "*/5 0-59 0-23 * * *", "5,10,35 0-59 0-23 * * *"


class Laws:
    """Hosts that lead in turn: ``static`` keeps the offset, ``changing`` changes it at noon, ``ahead`` has changed it long ago."""

    def __init__(self, store: Store, folder: Path) -> None:
        self.store, self.now, self.numbers = store, NOON.timestamp() - 60, count(1)
        self.skips: Counter[str] = Counter()
        self.folders = {law: enact(folder / law, "2998a") for law in ("static", "changing", "ahead")}

    async def declare(self, cron: str, shift: int = SHIFT) -> None:
        """Write the laws and the schedule."""
        at = int(NOON.timestamp())
        offsets: dict[str, Sequence[Any]] = {"static": (0,), "changing": (0, (at, shift)), "ahead": (shift,)}
        for law, values in offsets.items():
            write_zone(self.folders[law] / ZONE, *values)
        with system_rules(self.folders["static"]):
            draft = a_schedule("s", cron=cron, timezone=ZONE, overlap="allow", coalesce=False)
            await self.store.schedules.apply([draft])

    async def leads(self, law: str, seconds: int) -> None:
        """Let a host lead for a while."""
        grant = await term(self.store, ttl=1e9)
        with system_rules(self.folders[law]):
            assert await self.store.schedules.retime(grant, ("", "")) is None
            for _ in range(seconds):
                self.now += 1
                for firing in (await fire(self.store, grant, self.numbers)).firings:
                    assert not firing.trouble
                    self.skips.update(firing.skips)
        await self.store.leases.release(grant)

    async def resumes(self, law: str) -> None:
        """Let an operator on a host end the pause."""
        with system_rules(self.folders[law]):
            assert await self.store.schedules.resume(replace(ACT, id="resumption"), "shop", "s")
        (schedule,) = await self.store.schedules.views(1, "shop", "s")
        self.skips.update(schedule.skips)

    async def walls(self) -> list[datetime]:
        """Return the wall times of the tasks, without those of a stretch that the clocks show again."""
        keys = [task.key or "" for task in await tasks(self.store)]
        assert len(set(keys)) == len(keys)
        texts = [key.partition("@")[2].partition("[")[0] for key in keys if "-second" not in key]
        return sorted(map(datetime.fromisoformat, texts))

    async def lost(self, cron: str = DENSE) -> list[datetime]:
        """Return the wall times of a text that have no task, between the first and the last that have one."""
        walls = await self.walls()
        texts = takewhile(lambda wall: wall <= walls[-1], Cron(cron).walls(walls[0] - timedelta(seconds=1)))
        return sorted(set(texts) - set(walls))


@pytest.fixture
def laws(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Laws:
    """Hosts whose calendar is moved by hand."""
    hosts = Laws(store, tmp_path)

    async def calendar_of(*_: Any) -> float:
        return hosts.now

    monkeypatch.setattr(schedules, "calendar_of", calendar_of)
    return hosts


@pytest.mark.parametrize("shift", [SHIFT, -SHIFT], ids=["forward", "back"])
@pytest.mark.parametrize("others", ["static", "ahead"])
@pytest.mark.parametrize("cron", [DENSE, REAL, SPARSE], ids=["dense", "real", "sparse"])
async def test_each_time_is_fired_or_counted_while_laws_take_turns(
    laws: Laws, cron: str, others: str, shift: int
) -> None:
    """As many are counted as skipped as have no task, at least; whoever leads when the clocks change."""
    await laws.declare(cron, shift)
    await laws.leads(others, 66)
    for law, seconds in zip(cycle(("changing", others)), (20, 9, 3, 12, 27, 5, 4, 21), strict=False):
        await laws.leads(law, seconds)
    lost = await laws.lost(cron)
    assert len(lost) <= laws.skips.total(), (lost, laws.skips)


async def test_a_gap_has_its_moment_for_the_times_that_other_rules_left(laws: Laws) -> None:
    """One of several times of the gap had come before it; the next one is fired, and the others are counted."""
    await laws.declare("0,10,20,30 0 12 * * *")
    await laws.leads("static", 65)
    await laws.leads("changing", 1)
    assert [wall.second for wall in await laws.walls()] == [0, 10]
    assert laws.skips == {"gap": 2}


async def test_a_time_at_the_end_of_a_gap_is_not_taken_for_one_that_was_fired_before(laws: Laws) -> None:
    """Clocks that were set forward long ago have shown the only time of the gap."""
    await laws.declare("0,50 0 12 * * *", 50)
    await laws.leads("ahead", 30)
    await laws.leads("changing", 40)
    assert [wall.second for wall in await laws.walls()] == [0, 50]
    assert not laws.skips.total()


async def test_an_operator_with_old_rules_ends_a_pause(laws: Laws) -> None:
    """Of the times that these rules had not reached, the new ones fire those from before the pause, and count the others."""
    await laws.declare(DENSE)
    await laws.leads("static", 70)
    await laws.store.schedules.pause(ACT, "shop", "s", None)
    laws.now += 12
    await laws.resumes("static")
    await laws.leads("changing", 60)
    assert len(await laws.lost()) == laws.skips.total()
    assert laws.skips == {"paused": 2 + 2, "gap": 6}


async def test_an_operator_with_old_rules_ends_the_second_of_two_pauses(laws: Laws) -> None:
    """The times of the first pause are skipped too, although it was over when these rules computed what is next."""
    await laws.declare(DENSE)
    await laws.leads("static", 66)
    await laws.store.schedules.pause(ACT, "shop", "s", None)
    laws.now += 6
    await laws.store.schedules.pause(replace(ACT, id="act-2"), "shop", "s", None)
    laws.now += 6
    await laws.resumes("static")
    await laws.leads("changing", 60)
    assert len(await laws.lost()) == laws.skips.total()
    assert laws.skips == {"paused": 2 + 3, "gap": 7}
