"""Schedules in the store: they are written, fired, paused and removed by the same statements on both stores.

A firing writes the tasks of many schedules, and moves their rows, in one transaction. Three fences keep a
moment from being fired twice: the row, which is locked and compared with what it was; the task's key; and the
term of the Supervisor.

``calendar`` is the machine's wall clock on SQLite, whose own clock is anchored once per boot, and None on
PostgreSQL, where the server's clock is the calendar.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import starmap
from typing import Any

import msgspec
from msgspec.structs import replace

from makegood.errors import ConfigError, ScheduleNotFoundError, StoreError
from makegood.model.messages import Act, Alert, TaskMessage
from makegood.model.schedule import ATTRIBUTE, ScheduleDraft, ScheduleProgress
from makegood.payload.codec import UNREADABLE
from makegood.store import alerts, rows
from makegood.store.firing import advance_of, by_calendar, dealt_with, next_of
from makegood.store.records import Submission, Submitted
from makegood.store.schedule_records import (
    NO_MOMENTS,
    DueSchedule,
    FiringPass,
    ScheduleFiring,
    ScheduleView,
    ScheduleWork,
    StoredSchedule,
    unreadable_view,
    view_of,
)
from makegood.store.transaction import ReadTx, Sql, Tx, for_each

TOPIC = "schedule"
"""What wakes the Supervisor when a schedule has changed."""
PAGE = 100
"""Rows in one transaction."""

Insert = Callable[[Sequence[Submission]], Awaitable[list[Submitted]]]
"""Inserts tasks in the open transaction."""
Following = Callable[[Sequence[DueSchedule], float], Sequence[ScheduleWork]]
"""Says what to do with due schedules; pure and quick: it may run on the store's own thread."""

_CALENDAR = "(select coalesce($1::float8, {now}))"
_NOW = Sql("select coalesce($1::float8, {now})")
_ROW = (
    "s.app, s.name, s.spec, s.plan, s.progress, s.moment, s.last_task, t.state, s.paused_at, s.paused_until"
)
_FROM = "from makegood.schedule s left join makegood.task t on t.id = s.last_task"
_HAS_FREE_BUFFER = (
    "s.buffer_at is not null and coalesce(t.state, 'processed') in ('processed', 'undone', 'error')"
)
_DUE = Sql(
    f"select {_ROW} {_FROM} where s.next_at <= $1::float8 order by s.next_at limit $2 for update of s skip locked"
)
_DUE_BUFFERS = Sql(
    f"select {_ROW} {_FROM} where {_HAS_FREE_BUFFER} and s.buffer_at <= $1::float8 order by s.app, s.name limit $2 for update of s skip locked"
)
_STATES = Sql("select id, state from makegood.task where id = any ($1::bigint[])")
_LOCKED = Sql(f"select {_ROW} {_FROM} where s.app = $1 and s.name = $2 for update of s")
_PAGE = Sql(
    f"select {_ROW} {_FROM} where s.app > $1 or (s.app = $1 and s.name > $2) order by s.app, s.name limit $3 for update of s"
)
_NEXT_FIRING = Sql(f"""
select (select min(next_at) from makegood.schedule where next_at is not null) - {_CALENDAR},
    exists (select 1 from makegood.schedule where buffer_at is not null)
""")  # noqa: S608 - our own text
_MOVE = for_each(
    """
update makegood.schedule set progress = x.progress, moment = x.moment, next_at = x.next_at, buffer_at = x.buffer_at,
    last_task = coalesce(x.last_task, makegood.schedule.last_task)
{rows} where makegood.schedule.app = x.app and makegood.schedule.name = x.name
    and coalesce(makegood.schedule.moment, -1) = coalesce(x.was, -1)
""",
    app="text", name="text", was="float8", progress="bytea", moment="float8", next_at="float8", buffer_at="float8",
    last_task="bigint",
)  # fmt: skip
_FAIL = for_each(
    """
update makegood.schedule set progress = x.progress, next_at = x.next_at,
    buffer_at = case when makegood.schedule.buffer_at is not null then x.next_at end
{rows} where makegood.schedule.app = x.app and makegood.schedule.name = x.name
""",
    app="text", name="text", progress="bytea", next_at="float8",
)  # fmt: skip
_RESUME = for_each(
    """
update makegood.schedule set paused_at = null, paused_until = null, paused_by = null, paused_why = null
{rows} where makegood.schedule.app = x.app and makegood.schedule.name = x.name
""",
    app="text", name="text",
)  # fmt: skip
_PAUSE = Sql("""
update makegood.schedule set paused_at = $3::float8, paused_until = $4::float8, paused_by = $5, paused_why = $6,
    progress = coalesce($7, progress), next_at = moment
where app = $1 and name = $2
""")
_DELETE = Sql(
    "select * from makegood.drop_schedule($1, $2)",
    "delete from makegood.schedule where app = $1 and name = $2 returning name",
)
_INSERT = Sql("""
insert into makegood.schedule (app, name, spec, plan, digest, progress, moment, next_at, made_at)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9) on conflict do nothing
""")
_CHANGE = Sql("""
update makegood.schedule set spec = $3, plan = $4, digest = $5, progress = $6, moment = $7, next_at = $8 where app = $1 and name = $2
""")
_VIEW = Sql(f"""
select s.app, s.name, s.spec, s.plan, s.progress, s.moment, s.next_at, s.buffer_at, s.last_task, t.state, s.paused_at, s.paused_until,
    s.paused_by, s.paused_why, s.made_at, {_CALENDAR}
{_FROM} where ($2::text is null or s.app = $2) and ($3::text is null or s.name = $3) and (s.app, s.name) > ($4, $5)
order by s.app, s.name limit $6
""")
_CANCEL = for_each(
    """
insert into makegood.inbox (task, kind, at, body) select x.task, 'cancel', {now}, x.body {rows}
where exists (select 1 from makegood.attribute a where a.task = x.task and a.name = $4 and a.value = x.schedule)
""",
    task="bigint", body="bytea", schedule="text",
)  # fmt: skip
_encode = msgspec.json.encode


@dataclass(frozen=True, slots=True)
class FiringPlace:
    """What a store adds to the shared statements."""

    insert: Insert
    calendar: float | None


async def calendar_of(tx: ReadTx, calendar: float | None) -> float:
    """Return the calendar, in seconds since 1970."""
    ((now,),) = await tx.rows(_NOW, calendar)
    return float(now)


async def fire(tx: Tx, place: FiringPlace, limit: int, following: Following) -> FiringPass:
    """Fire what is due of at most ``limit`` schedules: their tasks, their rows and their alerts."""
    now = await calendar_of(tx, place.calendar)
    due_rows = {(row.app, row.name): row for row in starmap(DueSchedule, await tx.rows(_DUE, now, limit))}
    if len(due_rows) < limit:
        for row in starmap(DueSchedule, await tx.rows(_DUE_BUFFERS, now, limit - len(due_rows))):
            due_rows.setdefault((row.app, row.name), row)
    if not due_rows:
        return FiringPass((), full=False)
    works = following(await _with_states(tx, due_rows.values()), now)
    drafts = [draft for work in works for draft in work.drafts]
    answers = (
        {draft.id: answer for draft, answer in zip(drafts, await place.insert(drafts), strict=True)}
        if drafts
        else {}
    )
    if any(answer.key_collision for answer in answers.values()):
        raise StoreError("a task's id was drawn twice: nothing was fired, and the schedules are tried again")
    firings = [_firing(work, answers) for work in works]
    moves = [_advance_values(work, answers) for work in works if work.advance is not None]
    if await tx.many(_MOVE, moves) != len(moves):
        raise StoreError("a schedule has changed while it was locked: nothing was fired")
    await tx.many(
        _RESUME, [(w.due.app, w.due.name) for w in works if w.advance is not None and w.advance.resumes]
    )
    await _cancel(tx, works)
    await _fail(tx, [work for work in works if work.advance is None], now)
    recoveries = [
        _cause(w.due.app, w.due.name)
        for w in works
        if w.advance is not None and w.schedule is not None and w.schedule.progress.failures
    ]
    if recoveries:
        await alerts.ease(tx, recoveries, "it is fired again")
    has_more = any(work.advance is not None and work.advance.more for work in works)
    return FiringPass(tuple(firings), full=len(due_rows) >= limit or len(works) < len(due_rows) or has_more)


async def _with_states(tx: Tx, due_rows: Collection[DueSchedule]) -> list[DueSchedule]:
    """Return locked rows with the states of their last tasks, read again: a row that changed while PostgreSQL
    was locking it names a task that the same statement does not see.
    """
    last_tasks = [due.last_task for due in due_rows if due.last_task is not None]
    states = dict[int, str](await tx.rows(_STATES, last_tasks) if last_tasks else ())
    return [
        due if due.last_task is None else replace(due, last_state=states.get(due.last_task))
        for due in due_rows
    ]


def _firing(work: ScheduleWork, answers: dict[int, Submitted]) -> ScheduleFiring:
    due = work.due
    if work.advance is None:
        return ScheduleFiring(due.app, due.name, trouble=work.trouble)
    fresh = [
        (answers[draft.id].id, moment.late)
        for draft, moment in zip(work.drafts, work.advance.fires, strict=True)
        if answers[draft.id].is_new
    ]
    tasks, late = tuple(task for task, _ in fresh), tuple(late for _, late in fresh)
    is_declared = work.schedule is not None and work.schedule.spec.is_declared
    return ScheduleFiring(due.app, due.name, tasks, late, work.advance.skips, is_declared=is_declared)


def _advance_values(work: ScheduleWork, answers: dict[int, Submitted]) -> tuple[Any, ...]:
    due, advance = work.due, work.advance
    assert advance is not None
    outcomes = [answers[draft.id] for draft in work.drafts]
    progress = replace(
        advance.progress, firings=advance.progress.firings + sum(answer.is_new for answer in outcomes)
    )
    buffer_at = None if progress.buffer is None else progress.since
    last = outcomes[-1].id if outcomes else None
    return due.app, due.name, due.moment, _encode(progress), advance.moment, advance.next_at, buffer_at, last


async def _cancel(tx: Tx, works: Sequence[ScheduleWork]) -> None:
    """Leave a cancel with the last task of each schedule that replaces it."""
    letters: list[tuple[int, bytes, str]] = []
    for work in works:
        task = work.due.last_task
        if work.advance is not None and work.advance.cancels and task is not None:
            name = f"{work.due.app}/{work.due.name}"
            act = Act(f"schedule/{name}/{task}", f"schedule {name}", "its next moment has come")
            letters.append(
                (task, rows.message(TaskMessage("cancel", act=act, automatic=True)), work.due.name)
            )
    if letters:
        await tx.many(_CANCEL, letters, ATTRIBUTE)
        tx.topics.add("inbox")


def _cause(app: str, name: str) -> Alert:
    return Alert("schedule", step=f"{app}/{name}")


async def _fail(tx: Tx, works: Sequence[ScheduleWork], now: float) -> None:
    """Keep the moments of schedules that cannot be fired, and raise an alert of each."""
    await tx.many(_FAIL, [(w.due.app, w.due.name, _progress_after_failure(w), now + w.wait) for w in works])
    await alerts.raise_(
        tx,
        rows.alerts(
            [
                replace(
                    _cause(w.due.app, w.due.name),
                    text=f"it cannot be fired, and is tried again: {w.trouble}; see `makegood schedule show`",
                )
                for w in works
            ]
        ),
    )


def _progress_after_failure(work: ScheduleWork) -> bytes:
    """Return the progress of a schedule that could not be fired; one that cannot be read stays as it is."""
    raw = work.due.progress
    try:
        progress = msgspec.json.decode(raw, type=ScheduleProgress)
    except UNREADABLE:
        return raw
    return _encode(replace(progress, failures=work.failures, trouble=work.trouble))


async def fail(tx: Tx, place: FiringPlace, work: ScheduleWork) -> None:
    """Keep the moment of a schedule whose firing the database refused."""
    await _fail(tx, [work], await calendar_of(tx, place.calendar))


async def retime(
    tx: Tx, place: FiringPlace, after: tuple[str, str], limit: int = PAGE
) -> tuple[str, str] | None:
    """Compute the next moments of ``limit`` schedules by this machine's rules of time zones; return the last
    one, or None if there are no more.

    A new leader does so: the one before may have had other rules.
    """
    now = await calendar_of(tx, place.calendar)
    due_rows = [*starmap(DueSchedule, await tx.rows(_PAGE, *after, limit))]
    moves: list[tuple[Any, ...]] = []
    for due in due_rows:
        try:
            schedule = due.decode()
        except UNREADABLE:
            continue  # the firing raises the alert
        progress = by_calendar(schedule.progress, now)
        try:
            moment, next_at = next_of(schedule.spec, progress)
        except NO_MOMENTS:
            continue
        if moment != schedule.moment and not progress.failures:
            buffer_at = None if progress.buffer is None else progress.since
            state = _encode(progress), moment, next_at, buffer_at, schedule.last_task
            moves.append((due.app, due.name, schedule.moment, *state))
    await tx.many(_MOVE, moves)
    return (due_rows[-1].app, due_rows[-1].name) if len(due_rows) >= limit else None


async def ahead(tx: ReadTx, calendar: float | None, most: float) -> tuple[float, bool]:
    """Return the seconds until a schedule is due, 0 to ``most``, and whether a moment waits for a task."""
    ((seconds, is_buffered),) = await tx.rows(_NEXT_FIRING, calendar)
    rest = float(seconds) if isinstance(seconds, int | float) else most
    return min(most, max(0.0, rest)), bool(is_buffered)


# -- written by the apps -------------------------------------------------------------------------------------


async def unlike(tx: ReadTx, drafts: Sequence[ScheduleDraft]) -> list[ScheduleDraft]:
    """Return those that are not stored as they are."""
    digests = await _digests(tx, drafts)
    return [draft for draft in drafts if digests.get((draft.spec.app, draft.spec.name)) != draft.rows[2]]


_DIGEST = Sql("select digest from makegood.schedule where app = $1 and name = $2")


async def _digests(tx: ReadTx, drafts: Sequence[ScheduleDraft]) -> dict[tuple[str, str], bytes]:
    digests: dict[tuple[str, str], bytes] = {}
    for draft in drafts:
        key = draft.spec.app, draft.spec.name
        for (digest,) in await tx.rows(_DIGEST, *key):
            digests[key] = digest
    return digests


async def apply(tx: Tx, place: FiringPlace, drafts: Sequence[ScheduleDraft]) -> list[str]:
    """Write schedules; return "new", "changed" or "same" for each.

    What they have fired, and a pause, stay. The next moment is computed again if the times have changed.
    """
    now, outcomes = await calendar_of(tx, place.calendar), list[str]()
    for draft in drafts:
        outcome = ""
        while not outcome:  # somebody may delete a row after it was there and before it is locked
            outcome = await _write(tx, draft, now)
        outcomes.append(outcome)
    if set(outcomes) - {"same"}:
        tx.topics.add(TOPIC)
    return outcomes


async def _write(tx: Tx, draft: ScheduleDraft, now: float) -> str:
    """Write a schedule; return what became of it, "" if its row has vanished meanwhile."""
    spec, (spec_bytes, plan, digest) = draft.spec, draft.rows
    head = spec.app, spec.name, spec_bytes, plan, digest
    begin = ScheduleProgress(now)
    moment, next_at = next_of(spec, begin)
    if await tx.run(_INSERT, *head, _encode(begin), moment, next_at, now):
        return "new"
    for row in starmap(DueSchedule, await tx.rows(_LOCKED, spec.app, spec.name)):
        if (row.spec, row.plan) == (spec_bytes, plan):
            return "same"
        try:
            stored = row.decode()
        except UNREADABLE:
            await tx.run(_CHANGE, *head, _encode(begin), moment, next_at)
            return "changed"
        progress = stored.progress
        if stored.spec.times != spec.times:
            progress = dealt_with(progress, now)
        moment, next_at = next_of(spec, progress)
        await tx.run(_CHANGE, *head, _encode(progress), moment, next_at)
        return "changed"
    return ""


async def views(
    tx: ReadTx,
    calendar: float | None,
    *,
    limit: int,
    app: str | None = None,
    name: str | None = None,
    after: tuple[str, str] = ("", ""),
) -> list[ScheduleView]:
    """Return schedules by app and name, those behind ``after``."""
    records = await tx.rows(_VIEW, calendar, app, name, *after, limit)
    schedules: list[ScheduleView] = []
    for row in records:
        app_, name_, *columns, now = row
        try:
            schedules.append(view_of(tuple(columns), now))
        except UNREADABLE as fault:
            schedules.append(unreadable_view(str(app_), str(name_), str(fault)))
    return schedules


# -- acts of operators ---------------------------------------------------------------------------------------


def _missing(app: str, name: str) -> ScheduleNotFoundError:
    return ScheduleNotFoundError(
        f"there is no schedule {name!r} of app {app!r} in this store: see `makegood schedule list`"
    )


async def _lock_schedule(tx: Tx, app: str, name: str) -> StoredSchedule:
    for row in await tx.rows(_LOCKED, app, name):
        try:
            return DueSchedule(*row).decode()
        except UNREADABLE as fault:
            raise ConfigError(f"the row of schedule {app}/{name} cannot be read: {fault}") from fault
    raise _missing(app, name)


async def pause(tx: Tx, place: FiringPlace, act: Act, app: str, name: str, *, length: float | None) -> None:
    """Pause a schedule for a length of time, None: until it is resumed. It replaces an earlier pause."""
    schedule = await _lock_schedule(tx, app, name)
    now = await calendar_of(tx, place.calendar)
    until = None if length is None else now + length
    has_pauses = schedule.pausing is not None or schedule.progress.pauses
    state = _encode(_with_pause(schedule, now)) if has_pauses else None
    await tx.run(_PAUSE, app, name, now, until, act.who, act.why, state)
    await _audit(tx, act, "schedule_pause", app=app, name=name, outcome="paused")
    tx.topics.add(TOPIC)


def _with_pause(schedule: StoredSchedule, calendar: float) -> ScheduleProgress:
    """Return the progress of a schedule whose pause, if it has one that is not over, ends now.

    No pause that is over lasts beyond now, not even if the calendar was set back.
    """
    spans = schedule.progress.pauses
    if schedule.pausing is not None:
        spans = *spans, schedule.pausing.span(calendar)
    pauses = tuple((begin, min(end, calendar)) for begin, end in spans if begin < min(end, calendar))
    return replace(schedule.progress, pauses=pauses)


async def resume(tx: Tx, place: FiringPlace, act: Act, app: str, name: str) -> bool:
    """Resume a schedule; False if it was not paused. The moments of the pause are skipped.

    All pauses that are over stay in the row until the Supervisor's next pass: it counts the moments behind
    one that waits, those beyond what one pass deals with, and those of a pause by other rules of the zone.
    """
    schedule = await _lock_schedule(tx, app, name)
    now = await calendar_of(tx, place.calendar)
    if schedule.pausing is None or not schedule.pausing.lasts(now):
        return False
    progress = replace(advance_of(schedule, now).progress, pauses=schedule.progress.pauses)
    progress = _with_pause(replace(schedule, progress=progress), now)
    moment, next_at = next_of(schedule.spec, progress)
    state = _encode(progress), moment, next_at, None, schedule.last_task
    await tx.many(_MOVE, [(app, name, schedule.moment, *state)])
    await tx.many(_RESUME, [(app, name)])
    await _audit(tx, act, "schedule_resume", app=app, name=name, outcome="resumed")
    tx.topics.add(TOPIC)
    return True


async def delete(tx: Tx, act: Act, app: str, name: str) -> None:
    """Remove a schedule. Its tasks stay."""
    if not await tx.rows(_DELETE, app, name):
        raise _missing(app, name)
    await _audit(tx, act, "schedule_delete", app=app, name=name, outcome="deleted")


async def launch(
    tx: Tx,
    place: FiringPlace,
    act: Act,
    app: str,
    name: str,
    *,
    drafts: Sequence[Submission],
    is_backfill: bool,
) -> list[Submitted]:
    """Insert tasks of a schedule that an operator asked for; moments that have a task already are left."""
    schedule = await _lock_schedule(tx, app, name)
    answers = await place.insert(drafts)
    if any(answer.key_collision for answer in answers):
        raise StoreError("a task's id was drawn twice: nothing was written; try again")
    count = sum(answer.is_new for answer in answers)
    progress = schedule.progress
    if count:
        progress = replace(progress, firings=progress.firings + count)
        buffer_at = None if progress.buffer is None else progress.since
        last = schedule.last_task if is_backfill else answers[-1].id
        ((next_at,),) = await tx.rows(_NEXT, app, name)
        await tx.many(
            _MOVE,
            [(app, name, schedule.moment, _encode(progress), schedule.moment, next_at, buffer_at, last)],
        )
    kind, outcome = (
        ("schedule_backfill", f"{count} of {len(answers)}") if is_backfill else ("schedule_trigger", "fired")
    )
    await _audit(tx, act, kind, app=app, name=name, outcome=outcome)
    return answers


_NEXT = Sql("select next_at from makegood.schedule where app = $1 and name = $2")


async def _audit(tx: Tx, act: Act, kind: str, *, app: str, name: str, outcome: str) -> None:
    await alerts.write_audit(tx, rows.act_row(act, kind, f"schedule {app}/{name}: {outcome}", outcome))
