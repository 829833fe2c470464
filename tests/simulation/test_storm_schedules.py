"""Schedules in a storm: the walk that judges them agrees with the engine's calendar, and worlds contain what they are to contain."""

import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from makegood.base import zones
from makegood.model.schedule import ScheduleTimes
from makegood.moments.clock_effects import clock_effects
from makegood.moments.cron import Cron
from makegood.store.sqlite.store_threads import Operation
from makegood.testing.simulator.stores import InlineLine
from makegood.testing.simulator.swarm import LAYOUTS
from proofs.seeds import Storms
from proofs.storms.moment_walk import Walk
from proofs.storms.schedule_rules import reasons
from proofs.storms.shop import NOON
from proofs.storms.swarm import calm
from proofs.storms.timetable import StormSchedule, Timetable, draw
from proofs.storms.zone_laws import ZONE, ZoneLaw, install

START = int(NOON)
TICK = StormSchedule(
    name="tick", workflow="tick", cron="0-59/4 0-59 0-23 * * *", every=None, overlap="allow", catch_up=10.0, coalesce=True,
    jitter=0.0,
)  # fmt: skip
seconds_field = st.one_of(
    st.sampled_from(["*", "*/2", "*/7", "0-59/3", "0-59/10"]),
    st.lists(st.integers(0, 59), min_size=1, max_size=8, unique=True).map(
        lambda values: ",".join(map(str, values))
    ),
)
fields = st.tuples(seconds_field, st.sampled_from(["*", "0-59", "*/2"]), st.sampled_from(["*", "0-23"]))


@pytest.fixture(scope="module")
def storms() -> Iterator[Storms]:
    """Worlds over the order workflow alone, whose noise is not printed."""
    logging.disable(logging.CRITICAL)
    yield Storms("place_order")
    logging.disable(logging.NOTSET)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder of zones, in place of the machine's."""
    path = tmp_path_factory.mktemp("zones")
    token = zones.FOLDERS.set([path])
    yield path
    zones.FOLDERS.reset(token)


@given(
    text=fields.map(lambda parts: " ".join([*parts, "* * *"])),
    before=st.sampled_from([0, 3600, -18_000]),
    shift=st.integers(-70, 70).filter(bool),
    since=st.integers(-150, 150),
)
def test_the_walk_agrees_with_the_calendar(
    folder: Path, text: str, before: int, shift: int, since: int
) -> None:
    """Moments, keys and times without a moment are the same around any change of the clocks."""
    law = ZoneLaw(START, before, before + shift)
    install(folder, law, "2026a")
    begin, end = START + since, START + since + 120
    cron, walk = Cron(text, ZONE), Walk("tick", {"cron": text, "timezone": ZONE}, law)
    moments = takewhile(
        lambda moment: moment.at.timestamp() <= end, cron.after(datetime.fromtimestamp(begin, UTC))
    )
    walked = [(each.at, each.key) for each in walk.moments({"since": begin}, end)]
    assert walked == [(moment.at.timestamp(), moment.key("tick")) for moment in moments]
    counts = Counter[str]()
    for effect in clock_effects(cron, *(datetime.fromtimestamp(at, UTC) for at in (begin, end))):
        times_shown = len(effect.walls) * (1 if effect.mark == "gap" else 2)
        counts[effect.mark] += times_shown - len(effect.moments)
    blow = walk.blow({"since": begin}, end)
    assert counts == ({} if blow is None else Counter({blow.reason: blow.skips}))


@given(
    text=fields.map(lambda parts: " ".join([*parts, "* * *"])),
    shifts=st.tuples(st.integers(-70, 70), st.integers(-70, 70)).filter(all),
    since=st.integers(-150, 150),
)
def test_the_walk_agrees_about_what_other_rules_left(
    folder: Path, text: str, shifts: tuple[int, int], since: int
) -> None:
    """A host has dealt with all moments up to an instant by its rules; another one goes on by its own."""
    times = ScheduleTimes(cron=text, timezone=ZONE)
    first, second = (ZoneLaw(START, 3600, 3600 + shift) for shift in shifts)
    install(folder, first, "2026a")
    moments = takewhile(lambda each: each.at.timestamp() <= START + since, times.after(START - 300))
    walls = [each.local.replace(tzinfo=None) for each in moments if each.by_wall and not each.is_second]
    install(folder, second, "2026b")
    begin, end = START + since, START + since + 120
    latest = max(walls, default=None)
    left = takewhile(lambda each: each.at.timestamp() <= end, times.beyond(begin, latest))
    progress = {"since": begin, "wall": latest and latest.isoformat()}
    walked = [
        (each.at, each.key)
        for each in Walk("tick", {"cron": text, "timezone": ZONE}, second).moments(progress, end)
    ]
    assert walked == [(each.at.timestamp(), each.key("tick")) for each in left]


def test_one_world_of_five_has_schedules_with_gaps_folds_and_hosts_that_disagree() -> None:
    timetables = [each for seed in range(1000) if (each := draw(seed, 20.0)) is not None]
    assert 150 < len(timetables) < 250
    laws = [law for timetable in timetables for law in timetable.laws]
    assert {law.after > law.before for law in laws} == {True, False}
    assert {len(timetable.laws) for timetable in timetables} == {1, 2}
    schedules = [schedule for timetable in timetables for schedule in timetable.schedules]
    assert {schedule.overlap for schedule in schedules} == {"skip", "allow", "buffer", "cancel"}
    assert {schedule.cron is None for schedule in schedules} == {True, False}


def test_in_a_calm_world_a_moment_is_one_task(storms: Storms) -> None:
    """Its moments end after six seconds."""
    timetable = Timetable(schedules=(TICK,), laws=(ZoneLaw(START + 2, 0, 1),))
    outcome = storms.run(3, replace(calm(layout=LAYOUTS[2]), timetable=timetable))
    assert outcome.findings == []
    keys = [key for event in outcome.history.of("schedule") for _, key in event["tasks"]]
    assert keys == [f"tick@2026-01-01T00:00:04[{ZONE}]"]
    assert outcome.report.checks["I24"] > 3


def test_a_store_of_a_host_reads_the_zones_of_that_host_whoever_asks(
    storms: Storms, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that waits for an operator's act polls in a context without variables."""
    folders: set[str] = set()
    perform = InlineLine._perform

    def noted(line: InlineLine, operations: list[Operation]) -> None:
        folders.update(
            f"{line._process.name} {folder.name}" for folder in zones.FOLDERS.get() or (Path("none"),)
        )
        perform(line, operations)

    monkeypatch.setattr(InlineLine, "_perform", noted)
    timetable = Timetable(schedules=(TICK,), laws=(ZoneLaw(START + 2, 0, 1),))
    swarm = replace(calm(layout=LAYOUTS[2]), storm=10.0, rates={"operator": 2.0}, timetable=timetable)
    outcome = storms.run(3, swarm)
    assert outcome.findings == []
    assert {"n1 n1", "operator operator"} <= folders
    assert all(name == folder for name, folder in map(str.split, folders))


def test_hosts_with_different_rules_take_turns_and_every_reason_occurs(storms: Storms) -> None:
    """In some storms over three Supervisors, whose rules differ and are upgraded."""
    laws = (ZoneLaw(START + 12, 3600, 3611), ZoneLaw(START + 12, 3600, 3589))
    schedules = (
        TICK,
        replace(TICK, name="tock", workflow="slow_tick", cron="*/3 * 0-23 * * *", overlap="skip"),
    )
    swarm = replace(
        calm(layout=LAYOUTS[7]), storm=30.0, points={"kill": 0.002, "stop": 0.001},
        timetable=Timetable(schedules=schedules, laws=laws),
    )  # fmt: skip
    skips, hosts = Counter[str](), set[str]()
    for seed in range(6):
        outcome = storms.run(seed, swarm)
        assert outcome.findings == []
        for event in outcome.history.of("schedule"):
            skips.update(reasons(event))
            if event["verb"] == "fire" and event["tasks"]:
                hosts.add(event.node)
    assert skips.keys() == {"overlap", "missed", "coalesced", "paused", "gap", "fold"}
    assert len(hosts) == 3
