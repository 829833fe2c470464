"""Mutants of schedules and their firings."""

import asyncio
from copy import copy
from dataclasses import replace
from datetime import UTC, timedelta
from functools import cache
from typing import Any

import msgspec
import pytest

from makegood.base import zones
from makegood.moments.moment import ScheduleMoment, in_utc
from makegood.store import firing, schedules
from makegood.store.schedule_records import DueSchedule
from makegood.store.schedule_verbs import ScheduleVerbs
from proofs.storms.shop import NOON
from proofs.storms.timetable import StormSchedule, Timetable
from proofs.storms.world import StormWorld
from proofs.storms.zone_laws import ZoneLaw
from tests.simulation.mutants_making import mutant
from tests.simulation.mutants_worlds import FAULTS_OF_ALL_KINDS

GAP, FOLD = (ZoneLaw(int(NOON) + 12, 3600, 3600 + shift) for shift in (11, -11))
"""Clocks are set forward, and back, in the middle of the storm."""
DAILY = StormSchedule(
    name="tick", workflow="tick", cron="0-59/4 0-59 0-23 * * *", every=None, overlap="allow", catch_up=10.0, coalesce=True,
    jitter=0.0,
)  # fmt: skip
"""A time of the day every four seconds."""
REAL = replace(DAILY, cron="*/3 * 0-23 * * *")
"""Real time whose hour is named."""
LEADERS = (("scheduler", "agent"), *[("supervisor",)] * 3)
TICKING = replace(FAULTS_OF_ALL_KINDS, layout=LEADERS, tasks=1, storm=25.0, rates={"stop": 0.3})
"""A little of everything; of three Supervisors one or another is stopped."""


@mutant(replace(TICKING, timetable=Timetable(schedules=(DAILY, replace(DAILY, name="tock")), laws=(GAP,))))
def fired_without_cas_and_key(m: pytest.MonkeyPatch) -> None:
    """A Supervisor fires what it read a while ago, under no key, whatever the row and its term are now."""
    move, draft_of, scheduled = schedules._MOVE, firing.draft_of, ScheduleVerbs.fire

    class Earlier:
        """A transaction in which what is due was read earlier."""

        def __init__(self, tx: Any, rows: list[Any]) -> None:
            self._tx, self._rows = tx, rows

        def __getattr__(self, name: str) -> Any:
            return getattr(self._tx, name)

        async def rows(self, sql: Any, *values: Any) -> list[Any]:
            return self._rows if sql is schedules._DUE else await self._tx.rows(sql, *values)

    async def fire(self: Any, term: Any, limit: int, following: Any) -> Any:
        async def due(tx: Any, calendar: float) -> Any:
            return await tx.rows(schedules._DUE, calendar, limit)

        rows = await self._run_read(due)
        await asyncio.sleep(1.0)

        async def fire(tx: Any, place: Any) -> Any:
            return await schedules.fire(Earlier(tx, rows), place, limit, following)

        return await self._scheduled(fire) if rows else await scheduled(self, term, limit, following)

    m.setattr(ScheduleVerbs, "fire", fire)
    m.setattr(schedules, "_MOVE", _without_comparison(move))
    m.setattr(firing, "draft_of", lambda *values: msgspec.structs.replace(draft_of(*values), key=None))


def _without_comparison(move: Any) -> Any:
    statement = copy(move)
    statement.sqlite = statement.sqlite.partition("and coalesce(")[0]
    return statement


@mutant(replace(TICKING, timetable=Timetable(schedules=(DAILY,), laws=(GAP,))))
def moment_in_the_past(m: pytest.MonkeyPatch) -> None:
    """Nobody asks whether the next moment is after the one before."""
    m.setattr(ScheduleMoment, "is_after", lambda *_: True)


@mutant(replace(TICKING, timetable=Timetable(schedules=(DAILY, replace(DAILY, name="tock")), laws=(GAP,))))
def missed_replayed(m: pytest.MonkeyPatch) -> None:
    """All moments that nobody could fire are fired, however long ago they were."""
    true = DueSchedule.decode

    def stored(self: DueSchedule) -> Any:
        schedule = true(self)
        spec = msgspec.structs.replace(schedule.spec, catch_up=1e9, coalesce=False)
        return msgspec.structs.replace(schedule, spec=spec)

    m.setattr(DueSchedule, "decode", stored)


@mutant(replace(TICKING, timetable=Timetable(schedules=(replace(DAILY, jitter=3.5),), laws=(GAP,))))
def jitter_in_the_key(m: pytest.MonkeyPatch) -> None:
    """The key of a firing is the moment with its jitter."""
    true = firing._Policy.meet

    def meet(self: Any, due: Any, calendar: float) -> None:
        late = timedelta(seconds=round(due.begin - due.moment.at.timestamp()))
        true(self, due._replace(moment=replace(due.moment, wall=due.moment.wall + late)), calendar)

    m.setattr(firing._Policy, "meet", meet)


@mutant(replace(TICKING, timetable=Timetable(schedules=(REAL,), laws=(FOLD,))))
def guard_in_local_time(m: pytest.MonkeyPatch) -> None:
    """Whether a moment is after another one is asked of the clocks on the wall."""

    def is_after(self: ScheduleMoment, instant: Any) -> bool:
        zone = zones.zone(self.timezone)
        return bool(self.at.astimezone(zone) > instant.astimezone(zone))

    m.setattr(ScheduleMoment, "is_after", is_after)


@mutant(replace(TICKING, timetable=Timetable(schedules=(DAILY, replace(DAILY, name="tock")), laws=(GAP,))))
def pause_swallows_moments(m: pytest.MonkeyPatch) -> None:
    """A pause takes along the moments from before it that nobody has fired: they are neither fired nor counted."""

    def within(agenda: Any, pauses: Any, _pausing: Any) -> Any:
        return agenda._replace(due=[each for each in agenda.due if firing._is_in(pauses, each.begin)])

    m.setattr(firing, "_within", within)


def upgraded(world: StormWorld) -> None:
    """Let the host of the Supervisor get new zone rules during the storm, if it has the old ones."""
    clockwork = world.clockwork
    assert clockwork is not None
    world.loop.call_later(8.0, clockwork.upgrade)


@mutant(
    replace(
        TICKING, layout=(("scheduler", "agent"), ("supervisor",)), points={}, rates={},
        timetable=Timetable(schedules=(DAILY, replace(REAL, name="tock")), laws=(GAP, FOLD)),
    ),
    twist=upgraded,
)  # fmt: skip
def cached_zone(m: pytest.MonkeyPatch) -> None:
    """A process keeps a zone as it was first read, over an upgrade of the rules on disk."""
    true = zones.zone

    @cache
    def read_once(_folder: Any, name: str) -> Any:
        return true(name)

    m.setattr(zones, "zone", lambda name: read_once(str(zones.FOLDERS.get()), name))


@mutant(replace(TICKING, timetable=Timetable(schedules=(DAILY,), laws=(GAP, FOLD))))
def utc_key_for_wall_time(m: pytest.MonkeyPatch) -> None:
    """The key of a firing is the instant, also where the time of the day is meant."""
    m.setattr(ScheduleMoment, "key", lambda self, name: f"{name}@{in_utc(self.at.astimezone(UTC))}")


@mutant(replace(TICKING, timetable=Timetable(schedules=(DAILY,), laws=(GAP, FOLD))))
def gap_left_by_others_is_not_counted(m: pytest.MonkeyPatch) -> None:
    """Times of a gap are not counted if a host without that gap led when it was there."""
    true = firing._clock_skips
    m.setattr(firing, "_clock_skips", lambda times, before, after: true(times, (before[0], None), after))
