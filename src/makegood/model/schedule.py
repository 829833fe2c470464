"""Schedules: at which moments a workflow becomes a task, by which policy, and the plan of these tasks as
data.

Everything is JSON in a row of the store, so the process that fires a schedule needs no code of the app's.
"""

import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal, Protocol, TypedDict, get_args

import msgspec

from makegood.base.durations import Duration, seconds
from makegood.base.text import refuse_unstorable, short_repr
from makegood.base.wall_times import moment
from makegood.errors import ConfigError
from makegood.model.lane import NO_LANES, Lanes
from makegood.model.plan import OnFailure, Signals, StepPlan, Template
from makegood.moments.cron import Cron
from makegood.moments.every import Every
from makegood.moments.moment import ScheduleMoment, delay

Overlap = Literal["skip", "allow", "buffer", "cancel"]
"""What happens to a moment while the task that was fired last has not ended."""


class ScheduleOptions(TypedDict, total=False):
    """The options of ``schedule``."""

    cron: str | None
    every: Duration | None
    timezone: str
    overlap: Overlap
    catch_up: Duration
    coalesce: bool
    jitter: Duration
    start: datetime | None
    end: datetime | None


SkipReason = Literal["overlap", "missed", "coalesced", "paused", "gap", "fold"]
"""Why a moment has no task: the last task was not ended; it was too long ago when somebody could fire it; a
later one was fired in its place; the schedule was paused; clocks never showed its time; they showed it twice.
"""

ATTRIBUTE: Final = "makegood.schedule"
"""The attribute of a task that a schedule fired: the schedule's name."""
MOST_NAME: Final = 100
"""Characters of a schedule's name, at most."""
LEAST_CATCH_UP: Final = 10.0
"""Seconds: a shorter window would miss moments whenever the Supervisor changes."""


class ScheduleTimes(msgspec.Struct, frozen=True, omit_defaults=True):
    """The moments of a schedule. One of ``cron`` and ``every`` is given."""

    cron: str | None = None
    every: float | None = None
    """Seconds between two moments."""
    timezone: str = "UTC"
    jitter: float = 0.0
    """Seconds by which chance delays a moment, at most."""
    start: float | None = None
    """Seconds since 1970: no moment is before."""
    end: float | None = None
    """Seconds since 1970: no moment is after it."""

    def calendar(self) -> Cron | Every:
        """Return what computes the moments. Raises ``ConfigError``, for a zone that this machine lacks
        too.
        """
        return Cron(self.cron, self.timezone) if self.cron is not None else Every(self.every or 0.0)

    def after(self, instant: float, latest: datetime | None = None) -> Iterator[ScheduleMoment]:
        """Yield the moments after an instant, in seconds since 1970, by the zone's rules as they are now.

        ``latest``: as in ``Cron.after``.
        Keep no iterator over a firing. Raises ``ConfigError`` for an instant that no calendar has, too.
        """
        if self.start is not None and instant < self.start:
            instant = self.start - 1e-6
        try:
            begin = datetime.fromtimestamp(instant, UTC)
        except (OSError, OverflowError, ValueError):  # a row that nobody of makegood wrote
            raise ConfigError(f"no calendar has {instant:g} seconds since 1970") from None
        calendar = self.calendar()
        for each in calendar.after(begin) if isinstance(calendar, Every) else calendar.after(begin, latest):
            if self.end is not None and each.at.timestamp() > self.end:
                return
            yield each

    def beyond(self, since: float, wall: datetime | None) -> Iterator[ScheduleMoment]:
        """Yield the moments after ``since``, and those before it whose wall time is after ``wall``: new rules
        put the clocks forward over them, and nobody has dealt with them.
        """
        for each in self.after(self.reach(since, wall), wall):
            if wall is None or each.at.timestamp() > since or (each.wall > wall and not each.is_second):
                yield each

    def reach(self, since: float, wall: datetime | None) -> float:
        """Return the instant after which all moments and gaps with times beyond ``since`` or ``wall`` are."""
        calendar = self.calendar()
        if wall is None or isinstance(calendar, Every):
            return since
        # By the new rules no clock may show that time, and another moment be at the end of the gap.
        return min(since, calendar.first(wall).timestamp() - 1)

    def fires_at(self, name: str, at: ScheduleMoment, following: ScheduleMoment | None) -> float:
        """Return when a moment fires, in seconds since 1970: jitter delays it, never beyond the next one."""
        begin = at.at.timestamp()
        if not self.jitter:
            return begin
        room = self.jitter if following is None else following.at.timestamp() - begin
        return begin + delay(at.key(name), self.jitter, room)


class ScheduleSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """A schedule without its plan."""

    app: str
    name: str
    times: ScheduleTimes
    overlap: Overlap = "skip"
    catch_up: float = 86_400.0
    """Seconds after which a moment that nobody fired is missed."""
    coalesce: bool = True
    """Whether of several late moments only the latest is fired."""
    is_declared: bool = False
    """Whether code of the app declares it; otherwise a client made it."""


class SchedulePlan(msgspec.Struct, frozen=True, omit_defaults=True):
    """The plan of a schedule's tasks."""

    workflow: str
    steps: tuple[StepPlan, ...]
    inputs: tuple[msgspec.Raw, ...]
    """As JSON; those at ``moments`` are null."""
    moments: tuple[int, ...]
    """The places of the inputs that are the moment."""
    returns: Template
    names: tuple[str, ...] = ()
    within: float | None = None
    undo_within: float | None = None
    on_failure: OnFailure = "undo"
    signals: Signals = ()
    """The signals that its steps wait for."""
    lanes: Lanes = NO_LANES
    """The lanes that they wait for."""


class BufferedMoment(msgspec.Struct, frozen=True):
    """A moment that waits until the task before it has ended."""

    key: str
    local: str
    """The moment as its workflow gets it, ISO 8601."""


class ScheduleProgress(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a schedule is."""

    since: float
    """Seconds since 1970: all moments up to it are dealt with."""
    wall: Annotated[datetime, msgspec.Meta(tz=False)] | None = None
    """The latest wall time of these, the end of a gap included, if the hour is named: by other rules, it is
    another instant.
    """
    buffer: BufferedMoment | None = None
    last_key: str = ""
    """The key of the task that was fired last."""
    last_moment: str = ""
    """Its moment, ISO 8601."""
    firings: int = 0
    skips: dict[str, int] = {}
    """Moments without a task, by ``SkipReason``."""
    pauses: tuple[tuple[float, float], ...] = ()
    """Begin and end of pauses that are over, and whose moments are not dealt with."""
    failures: int = 0
    """Firings in a row that failed."""
    trouble: str = ""
    """Why the last one failed."""


class ScheduleSealing(Protocol):
    """Encodes what the plan of a schedule holds, for an app that has a codec."""

    async def seal_schedule(self, plan: SchedulePlan, app: str, name: str) -> SchedulePlan:
        """Return the plan as it is stored for the schedule of this name."""


class ScheduleDraft(msgspec.Struct, frozen=True):
    """A schedule, ready to be written."""

    spec: ScheduleSpec
    plan: SchedulePlan
    sealing: ScheduleSealing | None = None
    """Encodes the plan; None: its app has no codec, or it is encoded."""

    async def seal(self) -> "ScheduleDraft":
        """Return the schedule as it is stored. Raises what its app's codec raises."""
        if self.sealing is None:
            return self
        return ScheduleDraft(
            self.spec, await self.sealing.seal_schedule(self.plan, self.spec.app, self.spec.name)
        )

    @property
    def rows(self) -> tuple[bytes, bytes, bytes]:
        """Spec and plan as they are stored, and the digest of both."""
        spec, plan = msgspec.json.encode(self.spec), msgspec.json.encode(self.plan)
        return spec, plan, hashlib.blake2b(spec + b"\n" + plan, digest_size=16).digest()


def spec_of(
    app: str,
    name: Any,
    *,
    cron: str | None,
    every: Duration | None,
    timezone: str,
    overlap: str,
    catch_up: Duration,
    coalesce: bool,
    jitter: Duration,
    start: datetime | None,
    end: datetime | None,
    is_declared: bool,
) -> ScheduleSpec:
    """Return the schedule that options describe. Raises ``ConfigError`` that names the option at fault."""
    _check_name(name)
    where = f"schedule {name!r}"
    if (cron is None) == (every is None):
        raise ConfigError(
            f'{where}: pass one of cron="0 9 * * MON-FRI" and every="1h"'
            + (", not both" if cron is not None else "")
        )
    if every is not None and timezone != "UTC":
        raise ConfigError(
            f"{where}: timezone={timezone!r}: every= counts from 1970 in UTC and asks no clock on a wall: leave timezone out"
        )
    if overlap not in get_args(Overlap):
        raise ConfigError(f"{where}: overlap={overlap!r:.40}: one of {', '.join(get_args(Overlap))}")
    try:
        begin = None if start is None else moment(start, name="start")[0]
        last = None if end is None else moment(end, name="end")[0]
        length = None if every is None else Every(every).length.total_seconds()
        times = ScheduleTimes(cron, length, timezone, seconds(jitter, name="jitter"), begin, last)
        times.calendar()
        least = seconds(catch_up, name="catch_up", least=LEAST_CATCH_UP)
    except ConfigError as wrong:
        raise ConfigError(f"{where}: {wrong}") from None
    if begin is not None and last is not None and last < begin:
        raise ConfigError(f"{where}: end={end} is before start={start}")
    return ScheduleSpec(app, name, times, overlap, least, bool(coalesce), is_declared)  # type: ignore[arg-type]  # checked above


def _check_name(name: Any) -> None:
    if (
        not isinstance(name, str)
        or not 0 < len(name) <= MOST_NAME
        or not name.isprintable()
        or set(name) & set(" @[]")
    ):
        raise ConfigError(
            f"a schedule's name {short_repr(name)} is not allowed: 1 to {MOST_NAME} characters, without spaces, @, [ and ]; pass name="
        )
    refuse_unstorable(ConfigError, name=name)
