"""The verbs on schedules as methods: each store says how it opens a transaction that can insert tasks, and
what its calendar is.
"""

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

from makegood.election.protocol import Grant
from makegood.model.messages import Act
from makegood.model.schedule import ScheduleDraft
from makegood.store import schedules
from makegood.store.records import Submission, Submitted
from makegood.store.schedule_records import FiringPass, ScheduleView, ScheduleWork
from makegood.store.schedules import FiringPlace, Following
from makegood.store.transaction import ReadTx, Tx, Verbs

T = TypeVar("T")
Scheduling = Callable[[Tx, FiringPlace], Coroutine[Any, Any, T]]
"""A transaction on schedules that writes."""
ScheduleQuestion = Callable[[ReadTx, float | None], Coroutine[Any, Any, T]]
"""One that only reads; its second argument is the calendar."""


class ScheduleVerbs(Verbs):
    """Schedules: moments at which a workflow becomes a task. The leading Supervisor fires them.

    Their times are of the calendar: the server's clock on PostgreSQL, the machine's wall clock on SQLite.
    """

    async def _run_write(self, work: Scheduling[T], term: Grant | None = None) -> T:
        """Run a transaction that writes, under ``term`` if there is one."""
        raise NotImplementedError

    async def _run_read(self, question: ScheduleQuestion[T]) -> T:
        """Run a transaction that reads."""
        raise NotImplementedError

    async def apply(self, drafts: Sequence[ScheduleDraft]) -> list[str]:
        """Write schedules; return "new", "changed" or "same" for each. Writes nothing if all are the same.

        What they have fired, and a pause, stay. The next moment is computed again if the times have changed.
        """
        fresh = await self._db.run_read(partial(schedules.unlike, drafts=drafts)) if drafts else []
        outcomes = iter(await self._run_write(partial(schedules.apply, drafts=fresh)) if fresh else [])
        return [next(outcomes) if draft in fresh else "same" for draft in drafts]

    async def views(
        self,
        limit: int = schedules.PAGE,
        app: str | None = None,
        name: str | None = None,
        after: tuple[str, str] = ("", ""),
    ) -> list[ScheduleView]:
        """Return schedules by app and name, those behind ``after``, which is an app and a name."""
        return await self._run_read(partial(schedules.views, limit=limit, app=app, name=name, after=after))

    async def pause(self, act: Act, app: str, name: str, length: float | None) -> None:
        """Pause a schedule for ``length`` seconds, None: until it is resumed; audit it. It replaces an
        earlier pause.

        Raises ``ScheduleNotFoundError``.
        """
        await self._run_write(partial(schedules.pause, act=act, app=app, name=name, length=length))

    async def resume(self, act: Act, app: str, name: str) -> bool:
        """Resume a schedule; False if it was not paused. The moments of the pause are skipped for good.

        Raises ``ScheduleNotFoundError``.
        """
        return await self._run_write(partial(schedules.resume, act=act, app=app, name=name))

    async def delete(self, act: Act, app: str, name: str) -> None:
        """Remove a schedule and audit it; its tasks stay. Raises ``ScheduleNotFoundError``."""
        await self._db.run_write(partial(schedules.delete, act=act, app=app, name=name))

    async def launch(
        self, act: Act, app: str, name: str, drafts: Sequence[Submission], *, is_backfill: bool
    ) -> list[Submitted]:
        """Insert tasks of a schedule that an operator asked for, in one commit, and audit it.

        Keys that exist are left as they are. Raises ``ScheduleNotFoundError``.
        """
        work = partial(schedules.launch, act=act, app=app, name=name, drafts=drafts, is_backfill=is_backfill)
        return await self._run_write(work)

    async def fire(self, term: Grant, limit: int, following: Following) -> FiringPass:
        """Fire what is due of at most ``limit`` schedules, in one transaction under ``term``.

        The rows are locked, and those that another transaction has locked are left out. ``following`` says
        what becomes of each. Its tasks are inserted under their keys, where an existing key means that the
        moment was fired before; the row moves on if it is still as it was read.

        Raises ``FencedOffError`` and, if the database refuses a value, ``PayloadError``: then nothing is
        written.
        """
        return await self._run_write(partial(schedules.fire, limit=limit, following=following), term)

    async def fail(self, term: Grant, work: ScheduleWork) -> None:
        """Keep the moment of a schedule that could not be fired, for ``work.wait`` seconds, with an alert."""
        await self._run_write(partial(schedules.fail, work=work), term)

    async def retime(
        self, term: Grant, after: tuple[str, str], limit: int = schedules.PAGE
    ) -> tuple[str, str] | None:
        """Compute the next moments of schedules by this machine's zone rules, in the order of app and name.

        Returns the last one, or None if there are no more.
        """
        return await self._run_write(partial(schedules.retime, after=after, limit=limit), term)

    async def ahead(self, most: float) -> tuple[float, bool]:
        """Return the seconds until a schedule is due, 0 to ``most``, and whether a moment waits for the end
        of a task.
        """
        return await self._run_read(partial(schedules.ahead, most=most))
