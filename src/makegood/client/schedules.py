"""Schedules as a client sees them: made at run time, paused, fired by hand."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from makegood.base.arguments import checked_count, judge_calls
from makegood.base.clock import Clock
from makegood.base.did_you_mean import did_you_mean
from makegood.base.durations import Duration, seconds
from makegood.base.ids import TaskIdSource
from makegood.base.text import refuse_unstorable
from makegood.base.wall_times import moment
from makegood.client.handle import TaskAccess, TaskHandle
from makegood.client.scheduler_kinds import SchedulerKinds
from makegood.errors import ConfigError, DefinitionError, ScheduleNotFoundError
from makegood.model.schedule import ScheduleDraft, spec_of
from makegood.moments.moment import ScheduleMoment
from makegood.store import Store
from makegood.store.firing import draft_of
from makegood.store.schedule_records import FiredMoment, ScheduleView, local_text
from makegood.workflow.workflow import Workflow

MOST_BACKFILL: Final = 1000
"""Moments that one backfill submits, unless ``limit`` says otherwise."""
MOST_NEXT: Final = 1000
"""Moments that are computed at once."""
_AT_ONCE = 500
_PAGE = 100
_SIMILAR = 1000
"""Schedules that are compared with a name that is not there, at most."""


def moments_between(
    view: ScheduleView, since: datetime, until: datetime, limit: int, now: float
) -> list[ScheduleMoment]:
    """Return the moments of a schedule that a backfill of a range is about, both ends included.

    Raises ``ConfigError`` for a range with more than ``limit`` moments, that ends before it begins, or that
    is not over at ``now``.
    """
    (begin, _), (end, _) = moment(since, name="since"), moment(until, name="until")
    if end > now:
        raise ConfigError(f"until={until} is not over yet: the schedule itself fires what is to come")
    return view.between(begin, end, limit)


async def moments_with_tasks(
    store: Store, view: ScheduleView, moments: Sequence[ScheduleMoment]
) -> list[tuple[ScheduleMoment, int | None]]:
    """Return moments of a schedule, each with its task, if it has one."""
    keys = [each.key(view.name) for each in moments]
    tasks = await store.tasks.ids_by_key(view.app, view.workflow, keys)
    return [(each, tasks.get(key)) for each, key in zip(moments, keys, strict=True)]


class ScheduleAccess:
    """What handles of schedules share."""

    def __init__(self, tasks: TaskAccess, source: TaskIdSource, clock: Clock) -> None:
        self.tasks = tasks
        self.source = source
        self.clock = clock
        self.kinds = SchedulerKinds()

    async def write(self, draft: ScheduleDraft) -> str:
        """Write a schedule; return "new", "changed" or "same".

        Raises ``SubmissionError`` for a plan that a living Scheduler cannot read.
        """
        store, spec = self.tasks.opened_store.ready(), draft.spec
        draft = await draft.seal()
        sample = draft_of(spec.app, spec.name, draft.plan, FiredMoment("", ""), 0)
        await self.kinds.check(store, [sample])
        (outcome,) = await store.schedules.apply([draft])
        return outcome

    async def views(self, app: str | None) -> list[ScheduleView]:
        """Return all schedules by app and name."""
        store, views, after = self.tasks.opened_store.ready(), list[ScheduleView](), ("", "")
        while page := await store.schedules.views(_PAGE, app, None, after):
            views += page
            after = page[-1].app, page[-1].name
            if len(page) < _PAGE:
                break
        return views

    async def find(self, name: str, app: str | None) -> ScheduleView:
        """Return a schedule by its name, or by APP/NAME. Raises ``ScheduleNotFoundError``, and
        ``ConfigError`` if two apps have the name.
        """
        refuse_unstorable(ConfigError, name=name, app=app)
        schedules = self.tasks.opened_store.ready().schedules
        views = await schedules.views(2, app, name)
        if not views and app is None:
            prefix, _, rest = name.partition("/")
            views = await schedules.views(1, prefix, rest)
        if not views:
            similar = did_you_mean(
                name.rpartition("/")[2], [view.name for view in await schedules.views(_SIMILAR, app)]
            )
            raise ScheduleNotFoundError(
                f"there is no schedule {name!r}{f' of app {app!r}' if app else ''} in this store: "
                f"{similar or 'see `makegood schedule list`'}"
            )
        if len(views) > 1:
            raise ConfigError(
                f"several apps have a schedule {name!r}: name one of them, {views[0].app!r} or {views[1].app!r}"
            )
        return views[0]


def draft_from(name: str, workflow: Any, inputs: tuple[Any, ...], options: dict[str, Any]) -> ScheduleDraft:
    """Return a schedule that a client makes. Raises ``ConfigError``, ``DefinitionError`` and its kind."""
    if not isinstance(workflow, Workflow):
        raise DefinitionError(
            f"schedule() takes a function decorated with @app.workflow(...), not {type(workflow).__name__}"
        )
    app = workflow.address.partition(".")[0]
    spec = spec_of(app, name, **options, is_declared=False)
    return ScheduleDraft(spec, workflow._sketch(*inputs), workflow._sealing)  # noqa: SLF001 - the plan as data


@judge_calls(ConfigError, values=True, constructor=False)
class ScheduleHandle:
    """One schedule. ``view``: as it was when this handle was made."""

    def __init__(self, access: ScheduleAccess, view: ScheduleView) -> None:
        self._access = access
        self.view = view
        self.app = view.app
        self.name = view.name

    def __repr__(self) -> str:
        return f"<schedule {self.app}/{self.name}>"

    async def status(self) -> ScheduleView:
        """Return the schedule as it is now. Raises ``ScheduleNotFoundError``."""
        return await self._access.find(self.name, self.app)

    async def next(self, count: int = 5) -> list[datetime]:
        """Return its next moments, at most 1,000, without jitter, by the zone rules of this machine.

        Raises ``ConfigError``, ``ScheduleNotFoundError``.
        """
        checked_count(count, "count")
        if count > MOST_NEXT:
            raise ConfigError(f"count={count}: at most {MOST_NEXT:,} moments")
        return [each.local for each in (await self.status()).upcoming(count)]

    async def pause(
        self, for_: Duration | None = None, *, why: str = "", who: str | None = None
    ) -> ScheduleView:
        """Let it fire no more, for a length of time or until it is resumed; return it.

        The moments of the pause are skipped for good, and counted; ``backfill`` submits them.
        """
        length = None if for_ is None else seconds(for_, name="for_", least=1.0)
        act = self._access.tasks.acts.new(who, why)
        await self._access.tasks.opened_store.ready().schedules.pause(act, self.app, self.name, length)
        return await self.status()

    async def resume(self, *, why: str = "", who: str | None = None) -> bool:
        """Let it fire again, from its next moment on; False if it was not paused."""
        act = self._access.tasks.acts.new(who, why)
        return await self._access.tasks.opened_store.ready().schedules.resume(act, self.app, self.name)

    async def trigger(self, *, why: str = "", who: str | None = None) -> "TaskHandle[Any]":
        """Submit a task of it now, whatever its times, its overlap or a pause say; return the task.

        The moment that its workflow gets is now. It is the schedule's last task from now on: while it runs,
        ``overlap`` says what becomes of moments.
        """
        view = await self.status()
        act = self._access.tasks.acts.new(who, why)
        micros = round(self._access.clock.wall() * 1e6)
        while True:
            now = datetime.fromtimestamp(micros / 1e6, UTC)
            moment_now = FiredMoment(f"{self.name}@{now:%Y-%m-%dT%H:%M:%S.%f}Z", local_text(micros / 1e6))
            (task,) = await self._launch(view, [moment_now], act, is_backfill=False)
            if task.created:
                return task
            micros += 1  # somebody else has triggered it in this microsecond

    async def backfill(
        self,
        since: datetime,
        until: datetime,
        *,
        limit: int = MOST_BACKFILL,
        why: str = "",
        who: str | None = None,
    ) -> "list[TaskHandle[Any]]":
        """Submit a task for each moment from ``since`` to ``until``, both included, that has none yet.

        Returns the tasks of all these moments; ``created`` is True for those that are new. Overlap and a
        pause do not matter. Raises ``ConfigError`` for a range with more than ``limit`` moments, that ends
        before it begins, or that is not over yet.
        """
        checked_count(limit, "limit")
        view, now = await self.status(), self._access.clock.wall()
        moments = moments_between(view, since, until, limit, now)
        fires = [FiredMoment(each.key(self.name), each.local.isoformat()) for each in moments]
        tasks: list[TaskHandle[Any]] = []
        for first in range(0, len(fires), _AT_ONCE):
            act = self._access.tasks.acts.new(who, why)
            tasks += await self._launch(view, fires[first : first + _AT_ONCE], act, is_backfill=True)
        return tasks

    async def delete(self, *, why: str = "", who: str | None = None) -> None:
        """Remove it; its tasks stay. A schedule that an app declares is written again by its next process."""
        act = self._access.tasks.acts.new(who, why)
        await self._access.tasks.opened_store.ready().schedules.delete(act, self.app, self.name)

    async def _launch(
        self, view: ScheduleView, fires: Sequence[FiredMoment], act: Any, *, is_backfill: bool
    ) -> "list[TaskHandle[Any]]":
        drafts = [
            draft_of(view.app, view.name, view.plan, each, self._access.source.draw()) for each in fires
        ]
        store = self._access.tasks.opened_store.ready()
        answers = await store.schedules.launch(act, self.app, self.name, drafts, is_backfill=is_backfill)
        return [
            TaskHandle(self._access.tasks, answer.id, None, created=answer.is_new, exists=True)
            for answer in answers
        ]


async def preview_backfill(
    handle: ScheduleHandle, since: datetime, until: datetime, limit: int
) -> list[tuple[ScheduleMoment, int | None]]:
    """Return the moments that a backfill would submit tasks for, each with its task, if it has one.

    It submits nothing, and raises what the backfill raises for the range.
    """
    access = handle._access  # noqa: SLF001 - the clock and the store that the backfill itself uses
    view, now = await handle.status(), access.clock.wall()
    moments = moments_between(view, since, until, limit, now)
    return await moments_with_tasks(access.tasks.opened_store.ready(), view, moments)
