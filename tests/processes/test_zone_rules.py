"""An upgrade of the zone rules while the lead moves between hosts that have the old and the new ones.

The rules are files that the test writes: those of Winnipeg as they were and as they are since 2026e, from files that tzdata has for
other zones, and a zone whose clocks change within seconds. So no run needs an index of packages, a compiler of zones or
a certain date. The folder of each host is that of "the system" there, and newer than any real one.
"""

import json
import time
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import makegood as mg
from makegood.store.rows import read_static
from tests.processes.world import QUICK, Child, World
from tests.processes.zone_host import FastCalendar, opened
from tests.unit.zone_folders import CHANGING, SUMMER, enact, system_rules, write_zone

OLD, NEW = "2998a", "2998b"

app = mg.App("diary")
desk = app.agent("desk")


@desk.action(complete_within="20s", undo=mg.NOTHING)
def write(at: datetime) -> str:
    """Return the moment."""
    return at.isoformat()


@app.workflow
def report(at: datetime) -> str:
    """Write."""
    return write(at)


class Hosts:
    """Two hosts with rules of their own, of which each in turn leads."""

    def __init__(self, world: World, old: Path, new: Path, calendar: FastCalendar | None = None) -> None:
        self.world, self.calendar = world, calendar
        self.rules = {"old": old, "new": new}
        self.present: dict[str, Child] = {}
        self.leads: list[str] = []
        """The laws under which somebody has led, one after the other."""

    async def start(self, law: str) -> None:
        """Start a host."""
        name = f"{law}-{len(self.world.children)}"
        options = json.dumps(dict(QUICK))
        command = ["tests.processes.zone_host", str(self.rules[law]), "--store", self.world.url]
        command += ["--name", name, "--options", options]
        if self.calendar is not None:
            command += ["--calendar", str(self.calendar)]
        self.present[law] = self.world.launch(name, command)
        await self.world.started(self.present[law])

    async def other_leads(self, law: str, after: float) -> None:
        """Let the host with a law lead for some seconds: the other one stands still, is killed or ends in good order."""
        (other,) = {"old", "new"} - {law}
        leader = self.present[other]
        ending = len(self.leads) % 3
        (leader.stop, leader.kill, leader.terminate)[ending]()
        if ending == 0:
            await self.world.unled()
        host = self.present[law]

        async def is_leader() -> bool:
            return await self.world.leader() == host.name

        await self.world.until(is_leader, f"{host.name} leads", host)
        self.leads.append(law)
        if ending == 0:
            leader.resume()
        else:
            await self.world.ends(leader)
            await self.start(other)
        count = len(await self.world.rows("task"))
        end = time.monotonic() + after

        async def has_fired() -> bool:
            return len(await self.world.rows("task")) > count and time.monotonic() > end

        await self.world.until(has_fired, f"{host.name} fires", host)

    async def findings(self, severity: str) -> Sequence[str]:
        """Return what ``makegood doctor`` says of zone rules, of one severity."""
        child = self.world.launch(
            f"doctor-{len(self.world.children)}", ["makegood", "--store", self.world.url, "doctor", "--json"]
        )
        await self.world.ends(child)
        report: dict[str, Any] = json.loads(child.log())
        return [
            finding["what"]
            for finding in report["findings"]
            if finding["check"] == "zones" and finding["severity"] == severity
        ]


async def moments(world: World) -> list[tuple[datetime, datetime]]:
    """Return of each task the wall time in its key, and its moment as its workflow gets it, in the order of the keys."""
    return sorted(
        (
            datetime.fromisoformat(row["key"].partition("@")[2].partition("[")[0]),
            datetime.fromisoformat(json.loads(read_static(row["static"])[0][0])),
        )
        for row in await world.rows("task")
    )


async def fires(world: World, host: Child, offset: timedelta, since: datetime) -> None:
    """Wait until a moment since an instant was fired by a law of this offset: a slow machine needs more than a turn for it."""

    async def is_there() -> bool:
        return any(at.utcoffset() == offset and at >= since for _, at in await moments(world))

    await world.until(is_there, "it fires by its law", host)


async def test_an_upgrade_of_the_zone_rules_fires_each_moment_once(world: World, folder: Path) -> None:
    """By the old rules clocks go back by seven seconds in a moment, by the new ones they do not; moments are two seconds apart."""
    zone, change, shift = "Test/Shift", int(time.time()) + 10, 7
    old, new = enact(folder / "old", OLD), enact(folder / "new", NEW)
    write_zone(old / zone, 3600, (change, 3600 - shift))
    write_zone(new / zone, 3600)
    hosts = Hosts(world, old, new)
    async with world:
        with system_rules(old):
            await world.client.schedule(
                "tick", report, mg.MOMENT, cron="0-58/2 0-59 0-23 * * *", timezone=zone,
                overlap="allow", coalesce=False,
            )  # fmt: skip
        await hosts.start("old")
        await hosts.start("new")
        await hosts.other_leads("old", 1.0)
        await hosts.other_leads("new", 1.0)
        await world.until(lambda: time.time() > change + 1, "the clocks go back by the old rules")
        await hosts.other_leads("old", 1.0)
        since = datetime.fromtimestamp(change, UTC)
        await fires(world, hosts.present["old"], timedelta(seconds=3600 - shift), since)
        (differing,) = await hosts.findings("warning")
        for rules, version in ((old, OLD), (new, NEW)):
            assert f"{version} ({rules}): " in differing
        write_zone(old / zone, 3600)
        enact(old, NEW)
        upgrade = datetime.now(UTC)

        async def lives_by_the_new_law() -> bool:
            fresh = [at for _, at in await moments(world) if at > upgrade]
            return any(at.utcoffset() == timedelta(seconds=3600) for at in fresh)

        await world.until(
            lives_by_the_new_law, "a process that runs follows an upgrade", hosts.present["old"]
        )
        assert await world.leader() == hosts.present["old"].name
        await hosts.other_leads("new", 1.0)
        assert not await hosts.findings("warning")
    tasks = await moments(world)
    count = (tasks[-1][0] - tasks[0][0]).seconds // 2 + 1
    assert [wall for wall, _ in tasks] == [tasks[0][0] + timedelta(seconds=2 * n) for n in range(count)]
    offsets = {at.utcoffset() for _, at in tasks if at.timestamp() >= change}
    assert offsets == {timedelta(seconds=3600), timedelta(seconds=3600 - shift)}, "no host fired by its law"


@pytest.mark.parametrize("world", ["sqlite"], indirect=True)
async def test_each_local_day_of_winnipeg_is_one_task_over_its_change_of_law(
    world: World, folder: Path
) -> None:
    """In November 2026 its clocks did not go back any more; a day lasts less than a second here."""
    zone, first = "America/Winnipeg", datetime(2026, 10, 24, tzinfo=UTC)
    old = enact(folder / "old", OLD, America_Winnipeg=CHANGING)
    new = enact(folder / "new", NEW, America_Winnipeg=SUMMER)
    calendar = FastCalendar(first.timestamp(), time.monotonic(), 0.5)
    hosts = Hosts(world, old, new, calendar)
    async with world:
        app.schedule(
            "nightly", report, mg.MOMENT, cron="0 9 * * *", timezone=zone,
            overlap="allow", coalesce=False, catch_up="3650d",
        )  # fmt: skip
        async with opened(world.url, calendar) as store:
            with system_rules(old):
                await store.schedules.apply([each.draft for each in app.schedules.values()])
        begin = datetime.fromtimestamp(calendar.wall(), UTC).date()
        await hosts.start("old")
        await hosts.start("new")
        for law in ("old", "new"):
            await hosts.other_leads(law, 1.0)
        for law, hours in (("old", -6), ("new", -5)):
            await hosts.other_leads(law, 1.0)
            await fires(world, hosts.present[law], timedelta(hours=hours), datetime(2026, 11, 2, tzinfo=UTC))
        enact(old, NEW, America_Winnipeg=SUMMER)
        await hosts.other_leads("old", 1.0)
    tasks = await moments(world)
    days = [wall.date() for wall, _ in tasks]
    assert days == [days[0] + timedelta(days=n) for n in range(len(days))]
    assert days[0] <= begin + timedelta(days=1)
    offsets = {at.utcoffset() for _, at in tasks if at.date() > date(2026, 11, 1)}
    assert offsets == {timedelta(hours=-6), timedelta(hours=-5)}, "no host fired by its law"
