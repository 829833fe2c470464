"""Fires schedules, beside the leading Supervisor.

A schedule is a row with its plan as data, so no code of an app is needed here. Each pass writes the tasks of
many schedules in one transaction under the term of the leader. What the database refuses is done again one by
one: the schedule at fault keeps its moment, is tried again after a growing wait, and an alert names it.

A new leader computes all next moments anew, and so does one whose zone rules have changed on disk: the leader
before it, or this one until now, may have had other rules.
"""

import asyncio
import logging
import random
from collections.abc import Callable

from makegood.actor.actor import Actor
from makegood.actor.setbacks import Setbacks
from makegood.base import zones
from makegood.base.clock import Clock, WallJumps
from makegood.base.ids import TaskIdSource, show
from makegood.base.pacing import event_within
from makegood.election import Term
from makegood.errors import FencedOffError, PayloadError, StoreError, StoreUnavailableError
from makegood.payload.codec import UNREADABLE
from makegood.store.firing import Firing, wait_after
from makegood.store.protocol import Store
from makegood.store.schedule_records import DueSchedule, FiringPass, ScheduleWork
from makegood.store.schedules import TOPIC

log = logging.getLogger("makegood.schedules")

AT_ONCE = 100
"""Schedules in one transaction."""

POLL = 5.0
"""Seconds at most between two looks for what is due."""

BUFFER_POLL = 1.0
"""The same while a moment waits for a task to end."""

JUMP_LOOK = 1.0
"""Seconds between two looks whether the wall clock was set, which is the calendar on SQLite."""

RULES_EVERY = 60.0
"""Seconds between two looks at the version of the zone rules."""

RETIME_EVERY = 3600.0
"""Seconds after which all next moments are computed again in any case: a calendar may have been set back."""


class Firings(Actor):
    """Fires schedules in the terms that ``term`` returns: the present one, None while another process
    leads. ``leads`` is set in a term: this actor does nothing until then.
    ``every``: seconds between two looks without a wake-up at least, if nothing is due.
    """

    def __init__(
        self,
        store: Store,
        term: Callable[[], Term | None],
        leads: asyncio.Event,
        *,
        clock: Clock,
        rng: random.Random,
        every: float = 0.0,
    ) -> None:
        self._store = store
        self._term = term
        self._leads = leads
        self._clock = clock
        self._jumps = WallJumps(clock)
        self._rng = rng
        self._poll = max(every, POLL)
        self._draw = TaskIdSource(clock, rng).draw
        self._rules: tuple[int, str] | None = None
        """The epoch and the zone rules by which all next moments were computed."""
        self._rules_at = self._retimed_at = float("-inf")

    async def run(self) -> None:
        """Fire what is due, until cancelled."""
        wake, setbacks = asyncio.Event(), Setbacks("schedules", self._store.alerts, self._rng)
        end = self._store.subscribe(TOPIC, wake.set)
        try:
            while True:
                wake.clear()
                if not self._leads.is_set():
                    self._rules = None
                    await self._leads.wait()
                rest = await setbacks.turn(self._turn, log, "the store is away; schedules wait: %s")
                await self._rest(wake, BUFFER_POLL if rest is None else rest)
        finally:
            end()

    async def _rest(self, wake: asyncio.Event, seconds: float) -> None:
        """Wait for a wake-up, a jump of the wall clock, or so many seconds."""
        # Who polls more seldom than each hour, as in a test of months, looks seldom too.
        look = JUMP_LOOK if self._poll <= 3_600.0 else self._poll / 5
        while not await event_within(wake, min(seconds, look)):
            seconds -= look
            if self._jumps.come() or seconds <= 0:
                return

    async def _turn(self) -> float:
        term = self._term()
        if term is None:  # it has just ended
            return 0.0
        try:
            return await self.once(term)
        except FencedOffError as over:
            log.warning("the store refused a write: %s", over)
            return BUFFER_POLL

    async def once(self, term: Term) -> float:
        """Fire what is due; return in how many seconds more is. Raises ``FencedOffError`` if the term is
        over.
        """
        await self._follow_rules(term)
        firing = Firing(self._draw)
        try:
            outcome = await self._store.schedules.fire(term.grant, AT_ONCE, firing)
        except (FencedOffError, StoreUnavailableError):
            raise
        except (PayloadError, StoreError) as fault:
            log.warning("schedules are fired one by one: %s", fault)
            await self._one_by_one(term)
        else:
            _report(outcome)
            if outcome.full:
                return 0.0
        seconds, is_buffered = await self._store.schedules.ahead(self._poll)
        return min(BUFFER_POLL, seconds) if is_buffered else seconds

    async def _one_by_one(self, term: Term) -> None:
        """Fire schedules each in a transaction of its own; set those aside that the database refuses."""
        for _ in range(AT_ONCE):
            firing = Firing(self._draw)
            try:
                outcome = await self._store.schedules.fire(term.grant, 1, firing)
            except (FencedOffError, StoreUnavailableError):
                raise
            except (PayloadError, StoreError) as fault:
                if not firing.rows:
                    raise
                await self._store.schedules.fail(term.grant, _failure_of(firing.rows[0], fault))
                due = firing.rows[0]
                log.error("schedule %s/%s cannot be fired: %s", due.app, due.name, fault)  # noqa: TRY400 - it is the row's fault
            else:
                if not outcome.firings:
                    return
                _report(outcome)

    async def _follow_rules(self, term: Term) -> None:
        """Compute all next moments anew in a new term, and after a change of the zone rules."""
        now = self._clock.monotonic()
        is_new = self._rules is None or self._rules[0] != term.epoch
        if not is_new and now < self._rules_at + RULES_EVERY:
            return
        self._rules_at, rules = now, (term.epoch, str(zones.current()))
        if rules == self._rules and now < self._retimed_at + RETIME_EVERY:
            return
        self._retimed_at = now
        after: tuple[str, str] | None = ("", "")
        while after is not None:
            after = await self._store.schedules.retime(term.grant, after)
        self._rules = rules


def _failure_of(due: DueSchedule, fault: Exception) -> ScheduleWork:
    try:
        failures = due.decode().progress.failures + 1
    except UNREADABLE:
        failures = 1
    return ScheduleWork(due, trouble=str(fault), failures=failures, wait=wait_after(failures))


def _report(outcome: FiringPass) -> None:
    for firing in outcome.firings:
        name = f"{firing.app}/{firing.name}"
        if firing.trouble:
            log.error("schedule %s cannot be fired: %s", name, firing.trouble)
        for task in firing.tasks:
            log.debug("schedule %s fired task %s", name, show(task))
        for reason, count in firing.skips.items():
            log.info("schedule %s skipped %d: %s", name, count, reason)
