"""Records of schedules: rows as they are stored, what firing makes of them, and what people see."""

from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import islice, takewhile
from typing import Any, Final

import msgspec

from makegood.errors import ConfigError
from makegood.model.plan import Template
from makegood.model.schedule import Overlap, SchedulePlan, ScheduleProgress, ScheduleSpec, ScheduleTimes
from makegood.moments.moment import ScheduleMoment, in_utc
from makegood.store.records import Submission

_spec = msgspec.json.Decoder(ScheduleSpec).decode
_plan = msgspec.json.Decoder(SchedulePlan).decode
_progress = msgspec.json.Decoder(ScheduleProgress).decode

NO_MOMENTS: Final = (ConfigError, ValueError, ArithmeticError)
"""Exceptions of computing moments from stored times: a zone that this machine does not know, an instant
beyond the calendar.
"""


class Pausing(msgspec.Struct, frozen=True):
    """A pause of a schedule."""

    at: float
    until: float | None
    """None: until somebody resumes it."""

    def lasts(self, calendar: float) -> bool:
        """Whether it is not over at ``calendar``."""
        return self.until is None or calendar < self.until

    def span(self, calendar: float) -> tuple[float, float]:
        """Return its begin and its end, at the latest ``calendar``."""
        return self.at, calendar if self.until is None else min(self.until, calendar)


class StoredSchedule(msgspec.Struct, frozen=True):
    """A schedule's row, and the state of the task that it fired last."""

    app: str
    name: str
    spec: ScheduleSpec
    plan: SchedulePlan
    progress: ScheduleProgress
    moment: float | None
    last_task: int | None = None
    has_open_task: bool = False
    """Whether that task has not ended."""
    pausing: Pausing | None = None


class FiredMoment(msgspec.Struct, frozen=True):
    """A moment that becomes a task."""

    key: str
    local: str
    late: float = 0.0
    """Seconds by which it was fired after its time."""


class Advance(msgspec.Struct, frozen=True):
    """What a pass does with one schedule."""

    progress: ScheduleProgress
    moment: float | None
    """The next moment, and when it fires."""
    next_at: float | None
    fires: tuple[FiredMoment, ...] = ()
    skips: Mapping[str, int] = {}
    cancels: bool = False
    """Whether the last task is to be cancelled."""
    resumes: bool = False
    """Whether its pause is over."""
    more: bool = False
    """More moments may be due."""
    keeps: bool = False
    """Whether a moment from before a pause waits until the pause is over."""


class ScheduleFiring(msgspec.Struct, frozen=True):
    """What became of one schedule in a pass."""

    app: str
    name: str
    tasks: tuple[int, ...] = ()
    """New tasks."""
    late: tuple[float, ...] = ()
    """By how many seconds each was fired late."""
    skips: Mapping[str, int] = {}
    trouble: str = ""
    """Why it could not be fired."""
    is_declared: bool = False
    """Whether code of the app declares it."""


class FiringPass(msgspec.Struct, frozen=True):
    """What one pass over the due schedules did."""

    firings: tuple[ScheduleFiring, ...]
    full: bool
    """More may be due."""


class DueSchedule(msgspec.Struct, frozen=True):
    """A row that is due, undecoded: it may be unreadable."""

    app: str
    name: str
    spec: bytes
    plan: bytes
    progress: bytes
    moment: float | None
    last_task: int | None
    last_state: str | None
    """Of the last task."""
    paused_at: float | None
    paused_until: float | None

    def decode(self) -> StoredSchedule:
        """Return the row, read. Raises ``ValueError`` and its kind for one that cannot be read."""
        pausing = None if self.paused_at is None else Pausing(float(self.paused_at), self.paused_until)
        is_open = self.last_state is not None and self.last_state not in ("processed", "undone", "error")
        return StoredSchedule(
            self.app,
            self.name,
            _spec(self.spec),
            _plan(self.plan),
            _progress(self.progress),
            self.moment,
            self.last_task,
            is_open,
            pausing,
        )


class ScheduleWork(msgspec.Struct, frozen=True):
    """What ``following`` answers about one due schedule: the advance and its tasks, or the trouble."""

    due: DueSchedule
    schedule: StoredSchedule | None = None
    """The row, read; None if it cannot be."""
    advance: Advance | None = None
    drafts: tuple[Submission, ...] = ()
    trouble: str = ""
    failures: int = 0
    wait: float = 0.0
    """With ``trouble``: seconds until the next try."""


class ScheduleView(msgspec.Struct, frozen=True):
    """A schedule as people see it. Times are seconds since 1970."""

    app: str
    name: str
    workflow: str
    cron: str | None
    every: float | None
    timezone: str
    overlap: Overlap
    catch_up: float
    coalesce: bool
    jitter: float
    start: float | None
    end: float | None
    is_declared: bool
    """Whether code of the app declares it; otherwise a client made it."""
    next_moment: float | None
    """None: it has no further moment."""
    next_firing: float | None
    """The next moment delayed by its jitter, or the next try."""
    is_buffered: bool
    """Whether a moment waits for the last task to end."""
    last_task: int | None
    last_state: str | None
    last_moment: str
    """The moment of the last task, ISO 8601; "" before the first."""
    firings: int
    skips: dict[str, int]
    """Moments without a task, by reason."""
    paused_at: float | None
    paused_until: float | None
    paused_by: str
    paused_why: str
    trouble: str
    """Why it cannot be fired; "" if it can."""
    first_at: float
    spec: ScheduleSpec
    plan: SchedulePlan
    since: float
    """All moments up to it are dealt with."""

    @property
    def times(self) -> str:
        """Its times in a few words."""
        return f"{self.cron} {self.timezone}" if self.cron is not None else f"every {self.every:g}s"

    def upcoming(self, count: int) -> list[ScheduleMoment]:
        """Return its next moments by the zone rules of this machine. Raises ``ConfigError`` for a zone that
        it lacks.
        """
        return [*islice(self.spec.times.after(self.since), count)]

    def between(self, begin: float, end: float, limit: int) -> list[ScheduleMoment]:
        """Return its moments from ``begin`` to ``end``, both included, by the zone rules of this machine.

        Raises ``ConfigError`` for more than ``limit``, and for an end before the beginning.
        """
        first, last = (in_utc(datetime.fromtimestamp(at, UTC)) for at in (begin, end))
        if end < begin:
            raise ConfigError(f"until={last} is before since={first}: write the earlier one as since")
        moments = [
            *islice(
                takewhile(lambda each: each.at.timestamp() <= end, self.spec.times.after(begin - 1e-6)),
                limit + 1,
            )
        ]
        if len(moments) > limit:
            raise ConfigError(
                f"there are more than limit={limit} moments from {first} to {last}: shorten the range, or raise limit="
            )
        return moments


_Real = float | None
_Text = str | None
_Columns = tuple[
    bytes, bytes, bytes, _Real, _Real, _Real, int | None, _Text, _Real, _Real, _Text, _Text, float
]
"""The kinds of a row's columns: SQLite keeps any value in any of them."""


def view_of(columns: tuple[Any, ...], calendar: float) -> ScheduleView:
    """Return the view of a row. Raises ``ValueError`` and its kind for one that cannot be read."""
    kinds = msgspec.convert(columns, _Columns)
    spec_, plan_, progress_, moment, next_at, buffer_at, last, state, at, until, by, why, first_at = kinds
    spec, plan, progress = _spec(spec_), _plan(plan_), _progress(progress_)
    times = spec.times
    if at is not None and until is not None and until <= calendar:
        at = until = by = why = None
    return ScheduleView(
        spec.app, spec.name, plan.workflow, times.cron, times.every, times.timezone, spec.overlap, spec.catch_up, spec.coalesce,
        times.jitter, times.start, times.end, spec.is_declared, moment, next_at, buffer_at is not None, last, state,
        progress.last_moment, progress.firings, dict(progress.skips), at, until, by or "", why or "", progress.trouble, first_at,
        spec, plan, progress.since,
    )  # fmt: skip


def unreadable_view(app: str, name: str, fault: str) -> ScheduleView:
    """Return what people see of a row that cannot be read: a schedule without times, and why."""
    times = ScheduleTimes(every=1.0, end=0.0)
    spec, plan = ScheduleSpec(app, name, times), SchedulePlan("?", (), (), (), Template(("null",)))
    columns = *map(msgspec.json.encode, (spec, plan, ScheduleProgress(0.0))), *[None] * 9, 0.0
    return msgspec.structs.replace(view_of(columns, 0.0), trouble=f"its row cannot be read: {fault}")


def local_text(seconds: float) -> str:
    """Return an instant as a workflow gets it that is fired by hand: ISO 8601 in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat()
