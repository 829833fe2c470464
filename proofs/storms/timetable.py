"""The schedules of a storm: their times, the zone rules of each host, and an operator who pauses, resumes,
triggers and backfills.

Moments are seconds apart, and come to an end soon after the storm, so that the world comes to rest. The
machine's calendar jumps, hosts get new zone rules while they run, and now and then nobody leads.
"""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, Protocol

from makegood.client.client import Client
from makegood.client.schedules import ScheduleHandle
from makegood.errors import ConfigError, ScheduleNotFoundError, StoreUnavailableError
from makegood.testing.history import History
from makegood.testing.simulator.clocks import SimulatedClock
from makegood.testing.simulator.loop import WorldLoop
from makegood.testing.simulator.members import FleetMember
from makegood.workflow.app import App
from proofs.storms.acts import Acts
from proofs.storms.shop import NOON
from proofs.storms.zone_laws import ZONE, ZoneLaw, install

Overlap = Literal["skip", "allow", "buffer", "cancel"]

_SHARE = 0.2
_AFTER = 6.0
"""Seconds after the storm until which there are moments."""
_TEXTS: Final = (
    "0-59/4 0-59 0-23 * * *",
    "1,2,3,10,20,21,30,44,50 0-59 0-23 * * *",
    "0-59/6 0-59 0-23 * * *",
    "*/5 * * * * *",
    "*/3 * 0-23 * * *",
)
"""Times of the day, real time, and real time whose hour is named."""
_LENGTHS: Final = (2.5, 4.0, 7.0)
_OVERLAPS: Final[Sequence[Overlap]] = ("skip", "skip", "allow", "buffer", "cancel")
_ACTS: Final = (
    "pause",
    "pause",
    "resume",
    "trigger",
    "trigger",
    "backfill",
    "absence",
    "absence",
    "calendar",
    "rules",
)
RATE: Final = 0.4
"""Acts on schedules in a second."""
ACT: Final = "timetable"
"""The kind of these acts, as a fault that chance drives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StormSchedule:
    """One schedule of a storm, and its policies."""

    name: str
    workflow: str
    cron: str | None
    every: float | None
    overlap: Overlap
    catch_up: float
    coalesce: bool
    jitter: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Timetable:
    """The schedules of a storm."""

    schedules: tuple[StormSchedule, ...]
    laws: tuple[ZoneLaw, ...]
    """The rules of the zone: the old ones and, if hosts disagree, the new ones."""


def draw(seed: int, storm: float) -> Timetable | None:
    """Draw the schedules in the world of a seed; None, in most worlds: there are none. ``storm``: its
    seconds.
    """
    rng = random.Random(f"{seed} schedules")
    return None if rng.random() >= _SHARE else drawn_from(rng, storm)


def drawn_from(rng: random.Random, storm: float) -> Timetable:
    """Return schedules that chance draws."""
    schedules = tuple(_schedule(n, rng) for n in range(rng.choice((1, 1, 2))))
    count, before = 2 if rng.random() < 0.5 else 1, rng.choice((0, 3600, -18_000))
    # Hosts disagree about the change, and not about the past: a new host leaps over a few moments, not hours.
    return Timetable(schedules=schedules, laws=tuple(_law(rng, storm, before) for _ in range(count)))


def _schedule(n: int, rng: random.Random) -> StormSchedule:
    by_cron = rng.random() < 0.75
    return StormSchedule(
        name=f"tick{n}",
        workflow=rng.choice(("tick", "slow_tick")),
        cron=rng.choice(_TEXTS) if by_cron else None,
        every=None if by_cron else rng.choice(_LENGTHS),
        overlap=rng.choice(_OVERLAPS),
        catch_up=rng.choice((10.0, 10.0, 86_400.0)),
        coalesce=rng.random() < 0.6,
        jitter=rng.choice((0.0, 0.0, 1.5, 60.0)),
    )


def _law(rng: random.Random, storm: float, before: int) -> ZoneLaw:
    shift = rng.choice((-1, 1, 1)) * rng.randint(4, 14)
    return ZoneLaw(int(NOON + rng.uniform(3.0, max(4.0, 0.7 * storm))), before, before + shift)


class Clockwork(Protocol):
    """The parts of a world that its schedules need."""

    seed: int
    app: App
    loop: WorldLoop
    history: History
    true_clock: SimulatedClock
    members: dict[str, FleetMember]

    def stop(self, name: str, seconds: float, point: str = "") -> None:
        """Stop a process as SIGSTOP does."""
        ...

    def jump_calendar(self, seconds: float) -> None:
        """Let the wall clock of the store's machine jump."""
        ...


class ScheduleOperator(Acts):
    """Writes the schedules of a world, and acts on them at random. ``folder``: for the zones of its hosts."""

    def __init__(self, world: Clockwork, timetable: Timetable, storm: float, folder: Path) -> None:
        super().__init__(world, "an act on a schedule")
        self._world = world
        self._timetable = timetable
        self._rng = random.Random(f"{world.seed} timetable")
        self._end = NOON + storm + _AFTER
        self._folder = folder
        self._laws: dict[str, int] = {}

    # -- zone rules --------------------------------------------------------------------------------

    def folders(self, host: str) -> list[Path]:
        """Return the folders of a host's zones; rules are installed if there are none."""
        if host not in self._laws:
            self._install(host, self._rng.randrange(len(self._timetable.laws)))
        return [self._folder / host]

    def upgrade(self) -> None:
        """Install the new rules on a host of a Supervisor that has the old ones, if there is one."""
        newest = len(self._timetable.laws) - 1
        members = self._world.members
        hosts = [host for host, n in self._laws.items() if n < newest and "supervisor" in members[host].roles]
        if hosts:
            self._install(self._rng.choice(hosts), newest)

    def _install(self, host: str, n: int) -> None:
        law = self._laws[host] = n
        rules = self._timetable.laws[law]
        install(self._folder / host, rules, f"2026{'ab'[n]}")
        self._world.history.note(
            "zones", host, change=rules.change, before=rules.before, after=rules.after, zone=ZONE
        )

    # -- what its people do ------------------------------------------------------------------------

    def begin(self) -> None:
        """Start to write the schedules."""
        for schedule in self._timetable.schedules:
            self._begin(self._write(schedule))

    def act(self) -> None:
        """Do something to a schedule, to the calendar or to a host."""
        rng, world = self._rng, self._world
        kind, schedule = rng.choice(_ACTS), rng.choice(self._timetable.schedules)
        if kind == "absence":
            seconds = rng.uniform(2.0, 25.0)
            for member in world.members.values():
                if "supervisor" in member.roles:
                    world.stop(member.name, seconds, "nobody leads")
        elif kind == "calendar":
            world.jump_calendar(rng.choice((1.0, 1.0, -1.0)) * rng.uniform(0.5, 15.0))
        elif kind == "rules":
            self.upgrade()
        else:
            self._begin(self._do(kind, schedule))

    async def _client(self) -> Client:
        member = self._world.members["operator"]
        while member.client is None:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.1)
        return member.client

    async def _write(self, schedule: StormSchedule) -> None:
        """Write a schedule, again until the store has it."""
        client = await self._client()
        end = datetime.fromtimestamp(self._end, UTC)
        workflow: Any = self._world.app._find_workflow(schedule.workflow)
        while True:
            try:
                await client.schedule(
                    schedule.name, workflow, schedule.name, cron=schedule.cron, every=schedule.every,
                    timezone="UTC" if schedule.cron is None else ZONE, overlap=schedule.overlap,
                    catch_up=schedule.catch_up, coalesce=schedule.coalesce, jitter=schedule.jitter, end=end,
                )  # fmt: skip
            except StoreUnavailableError:
                await asyncio.sleep(0.2)
            else:
                return

    async def _do(self, kind: str, schedule: StormSchedule) -> None:
        rng, client = self._rng, await self._client()
        try:
            handle = await client.find_schedule(schedule.name)
            if kind == "pause":
                await handle.pause(rng.choice((None, 1.0, 4.0, 9.0)), why="at random", who="operator")
            elif kind == "backfill":
                await self._backfill(handle)
            else:
                await getattr(handle, kind)(why="at random", who="operator")
        except (StoreUnavailableError, ScheduleNotFoundError):
            return

    async def _backfill(self, handle: ScheduleHandle) -> None:
        now = self._world.true_clock.wall()
        since = now - self._rng.uniform(2.0, 20.0)
        begin, end = (datetime.fromtimestamp(at, UTC) for at in (since, now - 1.0))
        try:
            await handle.backfill(begin, end, why="at random", who="operator")
        except ConfigError as refusal:  # the operator's own clock is behind
            if "is not over yet" not in str(refusal):
                raise
