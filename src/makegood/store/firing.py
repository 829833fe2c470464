"""What the leading Supervisor does with a schedule that is due: pure functions from rows and a calendar.

Moments that were missed while nobody led, and those missed while a leader stood still, go the same way as one
that is on time: all moments since the last look are put in order, each becomes a task or a counted skip.

A moment is fired at most once, whatever hosts disagree about: its key is that of its task (``moments``), and
the moments are computed again each time, because the rules of a zone may have changed.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import takewhile
from typing import NamedTuple

import msgspec

from makegood.model.schedule import (
    ATTRIBUTE,
    BufferedMoment,
    SchedulePlan,
    ScheduleProgress,
    ScheduleSpec,
    ScheduleTimes,
)
from makegood.model.shape import Shape
from makegood.moments.clock_effects import clock_effects
from makegood.moments.cron import Cron
from makegood.moments.moment import ScheduleMoment
from makegood.payload.codec import UNREADABLE
from makegood.store.records import Submission
from makegood.store.schedule_records import (
    NO_MOMENTS,
    Advance,
    DueSchedule,
    FiredMoment,
    Pausing,
    ScheduleWork,
    StoredSchedule,
)

MOST = 1000
"""Moments of all schedules in one pass."""
_BACK = 86_400.0
"""Seconds by which a calendar may be corrected backwards. After a longer jump it counts from its new time."""
_FIRST_WAIT, _LONGEST_WAIT = 5.0, 3600.0


class Firing:
    """One pass over due schedules. ``draw`` draws ids of tasks; ``most`` moments are dealt with at most."""

    def __init__(self, draw: Callable[[], int], most: int = MOST) -> None:
        self.rows: Sequence[DueSchedule] = ()
        """The schedules of this pass."""
        self._draw = draw
        self._left = most

    def __call__(self, due_rows: Sequence[DueSchedule], calendar: float) -> list[ScheduleWork]:
        """Return what to do with schedules, the same or fewer; ``calendar``: seconds since 1970."""
        self.rows = due_rows
        works: list[ScheduleWork] = []
        for due in due_rows:
            if self._left < 1:
                break
            works.append(self._work(due, calendar))
        return works

    def _work(self, due: DueSchedule, calendar: float) -> ScheduleWork:
        try:
            schedule = due.decode()
        except UNREADABLE as fault:
            return _trouble(due, fault, 1)
        try:
            advance = advance_of(schedule, calendar, self._left)
        except NO_MOMENTS as fault:
            return _trouble(due, fault, schedule.progress.failures + 1)
        drafts = tuple(
            draft_of(due.app, due.name, schedule.plan, each, self._draw()) for each in advance.fires
        )
        self._left -= max(1, len(drafts) + sum(advance.skips.values()))
        return ScheduleWork(due, schedule, advance, drafts)


def _trouble(due: DueSchedule, fault: Exception, failures: int) -> ScheduleWork:
    return ScheduleWork(due, trouble=str(fault), failures=failures, wait=wait_after(failures))


def wait_after(failures: int) -> float:
    """Return the seconds until a schedule is tried again that failed so often in a row.

    >>> wait_after(1), wait_after(2), wait_after(100)
    (5.0, 10.0, 3600.0)
    """
    return min(_LONGEST_WAIT, _FIRST_WAIT * 2.0 ** min(failures - 1, 20))


def advance_of(schedule: StoredSchedule, calendar: float, most: int = MOST) -> Advance:
    """Return what is due of a schedule at an instant of the calendar, and what is next.

    At most ``most`` moments are dealt with. Raises ``ConfigError`` for a zone that this machine does not
    know.
    """
    spec, pausing = schedule.spec, schedule.pausing
    times, skips = spec.times, Counter[str]()
    progress = by_calendar(schedule.progress, calendar)
    since, wall = progress.since, progress.wall
    if times.every is not None and pausing is None and not progress.pauses:
        since, skips["missed"] = _leap(times, since, calendar - spec.catch_up)
    agenda = _agenda(spec, since, wall, calendar, most)
    is_paused = pausing is not None and pausing.lasts(calendar)
    pauses = progress.pauses
    if pausing is not None:
        pauses = *pauses, (pausing.at, math.inf if pausing.until is None else pausing.until)
    if pausing is not None and is_paused:
        agenda = _within(agenda, pauses, pausing)
    if agenda.due:
        former = since, wall
        since, wall = max(since, _at(agenda.due[-1].moment)), _latest_wall(agenda.due, wall)
        skips.update(_clock_skips(times, former, (since, wall)))
    policy, live = _Policy(schedule, skips, is_paused=is_paused), list[_Due]()
    for each in agenda.due:
        if _is_in(pauses, each.begin):
            skips["paused"] += 1
        elif each.begin < calendar - spec.catch_up:
            skips["missed"] += 1
        else:
            live.append(each)
    if spec.coalesce:
        latest = live[-1:] if not agenda.is_more else []
        skips["coalesced"] += len(live) - len(latest)
        live = latest
    for each in live:
        policy.meet(each, calendar)
    pauses_left = progress.pauses if is_paused else pauses
    if not agenda.is_more and not agenda.keeps:  # a calendar that was set back comes to its end once more
        pauses_left = tuple(pause for pause in pauses_left if pause[1] > calendar)
    last = policy.fires[-1] if policy.fires else FiredMoment(progress.last_key, progress.last_moment)
    return Advance(
        ScheduleProgress(
            since,
            wall,
            policy.buffer,
            last.key,
            last.local,
            progress.firings,
            dict(Counter(progress.skips) + skips),
            pauses_left,
        ),
        agenda.moment,
        agenda.next_at,
        tuple(policy.fires),
        dict(+skips),
        cancels=policy.cancels,
        resumes=pausing is not None and not is_paused,
        more=agenda.is_more,
        keeps=agenda.keeps,
    )


def by_calendar(progress: ScheduleProgress, calendar: float) -> ScheduleProgress:
    """Return up to which instant moments are dealt with, for a calendar that was perhaps set back.

    >>> by_calendar(ScheduleProgress(100.0), 50.0).since, by_calendar(ScheduleProgress(1e9), 50.0).since
    (100.0, 50.0)
    """
    return progress if progress.since <= calendar + _BACK else dealt_with(progress, calendar)


def dealt_with(progress: ScheduleProgress, instant: float) -> ScheduleProgress:
    """Return progress for which the moments after an instant are next, whatever was fired."""
    return msgspec.structs.replace(progress, since=instant, wall=None, pauses=())


class _Due(NamedTuple):
    moment: ScheduleMoment
    begin: float
    """When it fires: the moment, and its jitter."""


class _Agenda(NamedTuple):
    due: Sequence[_Due]
    moment: float | None
    """The next moment, and when it fires."""
    next_at: float | None
    is_more: bool
    """Whether that is due as well."""
    keeps: bool = False
    """Whether that waits until a pause is over."""


def _agenda(spec: ScheduleSpec, since: float, wall: datetime | None, calendar: float, most: int) -> _Agenda:
    """Return the moments beyond ``since`` and ``wall`` that are due, and the next one."""
    moments, due = spec.times.beyond(since, wall), list[_Due]()
    moment = next(moments, None)
    while moment is not None:
        following = next(moments, None)
        begin = spec.times.fires_at(spec.name, moment, following)
        if begin > calendar or len(due) >= most:
            return _Agenda(due, _at(moment), begin, begin <= calendar)
        due.append(_Due(moment, begin))
        moment = following
    return _Agenda(due, None, None, is_more=False)


def _within(agenda: _Agenda, pauses: Sequence[tuple[float, float]], pausing: Pausing) -> _Agenda:
    """Return the moments up to the first one that is in no pause: it waits until the present pause ends."""
    due = list(takewhile(lambda each: _is_in(pauses, each.begin), agenda.due))
    if len(due) == len(agenda.due):
        return agenda
    return _Agenda(due, _at(agenda.due[len(due)].moment), pausing.until, is_more=False, keeps=True)


def _is_in(pauses: Sequence[tuple[float, float]], instant: float) -> bool:
    return any(begin <= instant < end for begin, end in pauses)


def _latest_wall(due: Sequence[_Due], wall: datetime | None) -> datetime | None:
    """Return the latest wall time of moments whose hour is named, and of those before them.

    The moment of a gap is that of all of its times, up to the end that clocks show then.
    """
    moments = [each.moment for each in due if each.moment.by_wall and not each.moment.is_second]
    walls = [moment.local.replace(tzinfo=None) for moment in moments]
    return max([*walls, *([] if wall is None else [wall])], default=None)


def next_of(spec: ScheduleSpec, progress: ScheduleProgress) -> tuple[float | None, float | None]:
    """Return the first moment that is not dealt with by the present rules, and when it fires; None without
    one.
    """
    agenda = _agenda(spec, progress.since, progress.wall, progress.since, 0)
    return agenda.moment, agenda.next_at


class _Policy:
    """What becomes of moments while the last task has not ended, one after the other."""

    def __init__(self, schedule: StoredSchedule, skips: Counter[str], *, is_paused: bool) -> None:
        self.fires: list[FiredMoment] = []
        self.buffer = schedule.progress.buffer
        self.cancels = False
        self._name = schedule.name
        self._overlap = schedule.spec.overlap
        self._skips = skips
        self._is_open = schedule.has_open_task
        self._last_key = schedule.progress.last_key
        if is_paused:
            self._drop()
        else:
            self._release()

    def meet(self, due: _Due, calendar: float) -> None:
        """Take a moment that is due and not late."""
        key, local = due.moment.key(self._name), due.moment.local.isoformat()
        if key == self._last_key:  # other rules of the zone have fired it at another instant
            return
        if self._overlap == "allow" or not self._is_open:
            self._fire(FiredMoment(key, local, max(0.0, calendar - due.begin)))
        elif self._overlap == "skip" or self.buffer is not None:
            self._skips["overlap"] += 1
        else:
            self.buffer, self.cancels = BufferedMoment(key, local), self._overlap == "cancel"

    def _drop(self) -> None:
        """Skip the moment that waits."""
        if self.buffer is not None:
            self.buffer = None
            self._skips["paused"] += 1

    def _release(self) -> None:
        """Fire the moment that waits, if the task before it has ended."""
        if self.buffer is not None and not self._is_open:
            self._fire(FiredMoment(self.buffer.key, self.buffer.local))
            self.buffer = None

    def _fire(self, moment: FiredMoment) -> None:
        self.fires.append(moment)
        self._last_key, self._is_open = moment.key, True


def _leap(times: ScheduleTimes, since: float, horizon: float) -> tuple[float, int]:
    """Return the last moment of an interval before ``horizon``, and the number of moments up to it: a long
    absence is not walked through moment by moment.
    """
    length = times.every or 1.0
    begin = since if times.start is None else max(since, times.start - 1e-6)
    end = horizon if times.end is None else min(horizon, times.end)
    count = math.floor(end / length) - math.floor(begin / length)
    return (math.floor(end / length) * length, count) if count > MOST else (since, 0)


def _clock_skips(
    times: ScheduleTimes, before: tuple[float, datetime | None], after: tuple[float, datetime | None]
) -> Counter[str]:
    """Return how many times of a cron text the clocks did not show, or showed once too often, while a
    schedule moved on from one instant and latest wall time to others.

    The gap may be before that instant: a leader with other rules fired some of its times, and not the others.
    """
    skips, calendar = Counter[str](), times.calendar()
    (since, wall), (until, latest) = before, after
    if isinstance(calendar, Cron):
        span = (datetime.fromtimestamp(at, UTC) for at in (times.reach(since, wall), until))
        for effect in clock_effects(calendar, *span):
            if effect.mark == "gap":
                walls = [
                    each
                    for each in effect.walls
                    if (wall is None or each > wall) and (latest is None or each <= latest)
                ]
                skips["gap"] += max(0, len(walls) - len(effect.moments))
            elif effect.change.at.timestamp() > since:
                skips["fold"] += 2 * len(effect.walls) - len(effect.moments)
    return skips


def _at(moment: ScheduleMoment) -> float:
    return moment.at.timestamp()


def draft_of(app: str, name: str, plan: SchedulePlan, moment: FiredMoment, task_id: int) -> Submission:
    """Return the task of a moment of the schedule ``name``, ready to be written."""
    local = msgspec.json.encode(moment.local)
    inputs = tuple(local if n in plan.moments else bytes(raw) for n, raw in enumerate(plan.inputs))
    identity = msgspec.json.encode([app, plan.workflow])
    fingerprint = hashlib.blake2b(b",".join([identity, *inputs]), digest_size=16).digest()
    return Submission(
        task_id, app, plan.workflow, Shape.of(plan.steps), inputs, plan.returns, fingerprint, moment.key,
        within=plan.within, undo_within=plan.undo_within, on_failure=plan.on_failure, names=plan.names,
        attributes=((ATTRIBUTE, name),), signals=plan.signals, lanes=plan.lanes,
    )  # fmt: skip
