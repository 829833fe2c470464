"""A Scheduler's claims: pending tasks, and those that sleep and are due, while it has room; and tasks at
rest, or asleep, that an operator acts on.
"""

import logging
import math
from collections.abc import Collection

from makegood.base.sizes import size_text
from makegood.scheduler.task_table import TaskTable
from makegood.store.records import Claim

log = logging.getLogger("makegood.scheduler")

_CROWDED = 0.5
"""Seconds that replace a longer ``linger`` while more than half of the tasks that may be held are."""
_FAR = 1e9
"""Seconds from which on nobody waits for a moment."""


class Claims:
    """Says what to claim next, and what to let go.

    ``hold``: the most tasks in memory. ``linger``: a task that only waits stays in memory if that is for no
    more than these seconds.
    """

    def __init__(self, tasks: TaskTable, *, hold: int, most: int, linger: float = math.inf) -> None:
        self.open = True
        """Whether it claims at all; not any more once the process is to stop."""
        self.at_rest: list[int] = []
        """Tasks at rest, or asleep, for which an operator's message waits."""
        self.next_start: float | None = None
        """When the next task that sleeps is due, on the monotonic clock, as far as is known."""
        self.most = most
        """The most tasks claimed in one commit."""
        self.tasks = tasks
        self._wakeups = tasks.wakeups
        self._hold = hold
        self._linger = linger
        self._last_look = -math.inf
        """When tasks that sleep were last looked for, on the monotonic clock."""
        self._full = False
        self._calls: set[int] = set()
        self._has_unread = False
        """Whether messages for tasks at rest, or asleep, may wait that were not read while it was stocked."""

    @property
    def linger(self) -> float:
        """For how many seconds a task that only waits may stay in memory now."""
        is_crowded = 2 * len(self.tasks.in_memory) > self._hold
        return min(self._linger, _CROWDED) if is_crowded else self._linger

    @property
    def is_stocked(self) -> bool:
        """Whether it knows so many tasks at rest, or asleep, with messages that it need not read of others.

        In a flood of signals each Scheduler would read all of them, again with each wake-up.
        """
        return len(self.at_rest) >= self.most

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to claim that it knows of, and room for more."""
        return self.open and not (self.at_rest or self._wakeups.pending) and self.tasks.weights.room > 0

    def takes(self, count: int) -> bool:
        """Return whether a task submitted here may be held from the beginning, beside ``expected`` others.

        Not while tasks may be waiting already: they come first.
        """
        weights = self.tasks.weights
        return (
            self.open
            and not self._wakeups.pending
            and len(self.tasks.in_memory) + count < self._hold
            and weights.total < weights.most
        )

    def next_claim(self, most: int | None) -> Claim | None:
        """Return what to claim now: no more than there is room for, as far as that is known before reading.

        ``most``: tasks at once; None: the usual number.
        """
        if not self.open:
            self.at_rest = []
            return None
        weights = self.tasks.weights
        room = weights.room
        if self._full or room == 0:
            self._report_full(full=room == 0)
        if room == 0 and not (self.at_rest and self._heeds_operators()):
            return None
        if not (self.at_rest or self._wakeups.pending or self._has_unread):
            return None  # nearly always
        share = self.most // 2 if self._wakeups.pending else self.most
        calls = min(max(1, share), max(0, 2 * self._hold - len(self.tasks.in_memory)))
        if most is None:
            most = self.most
        elif self.at_rest:
            calls, most = min(calls, 1), 0
        at_rest, self.at_rest = self.at_rest[:calls], self.at_rest[calls:]
        if self._has_unread and not self.is_stocked:
            self._has_unread, self._wakeups.inbox = False, True
        free = self._hold - len(self.tasks.in_memory)
        # Tasks at rest that are claimed for their messages may double what is held, and no more.
        free = min(free, self._hold + free - len(at_rest))
        limit = min(most, free, room // weights.mean + 1) if room else 0
        if limit <= 0 or not self._wakeups.pending:
            return Claim(0, tuple(at_rest), room) if at_rest else None
        sleepers, lanes = self._wakeups.sleepers, self._wakeups.lanes
        self._wakeups.pending = self._wakeups.sleepers = self._wakeups.lanes = False
        return Claim(limit, tuple(at_rest), room, sleepers, lanes)

    def postpone_pending(self, claim: Claim) -> Claim:
        """Return a claim without tasks that are pending or due: the next one looks for them."""
        if claim.limit == 0:
            return claim
        wakeups = self._wakeups
        wakeups.sleepers = wakeups.sleepers or claim.sleepers
        wakeups.lanes = wakeups.lanes or claim.lanes
        wakeups.wake_for_pending()
        return Claim(0, claim.at_rest, claim.room)

    def call(self, tasks: list[int], *, are_all: bool = True) -> None:
        """Note tasks at rest, or asleep, for which messages wait, from a place of this Scheduler's own on:
        two shall not want the same ones first. ``are_all``: False if such tasks were not read.
        """
        self._has_unread = self._has_unread or not are_all
        if tasks:
            self.at_rest = list(dict.fromkeys([*self.at_rest, *self._wakeups.rotate(tasks)]))

    def fire(self, now: float) -> None:
        """Look for tasks that sleep if the next one is due, or if nobody looked for long: what other
        processes let go wakes nobody here. ``now``: the monotonic clock.
        """
        if self.next_start is not None and now >= self.next_start:
            self.next_start = None
            self._wakeups.pending = self._wakeups.sleepers = True
        elif now - self._last_look > self._wakeups.longest_rest:
            self.tasks.follow_the_calendar()
            self._wakeups.pending = self._wakeups.sleepers = True

    def sleeps(self, seconds: float) -> None:
        """Note that a task sleeps that is due in so many seconds."""
        if seconds < _FAR:
            moment = self.tasks.clock.monotonic() + seconds
            self.next_start = moment if self.next_start is None else min(self.next_start, moment)

    def settle(self, claim: Claim, tasks: Collection[int], *, more: bool, next_start: float | None) -> None:
        """Note that a claim of ``tasks`` is committed; ``more``: others may be claimed. ``next_start``:
        seconds until the next task that sleeps is due, if the claim looked for such.
        """
        if claim.sleepers:
            self.tasks.follow_the_calendar()
            self._last_look, self.next_start = self.tasks.clock.monotonic(), None
            if next_start is not None:
                self.sleeps(next_start)
            self._wakeups.sleepers = self._wakeups.sleepers or more
        if claim.at_rest:
            if 2 * sum(task in tasks for task in claim.at_rest) < len(claim.at_rest):
                # Another Scheduler has been here, and is likely to have claimed those that follow.
                self.at_rest = self._wakeups.rotate(self.at_rest)
            self._calls.update(claim.at_rest)
            self._calls &= self.tasks.in_memory.keys()
        if more:
            self._wakeups.wake_for_pending()

    def _heeds_operators(self) -> bool:
        """Return whether tasks that an operator acts on may be claimed although there is no room.

        Such tasks have a limit of their own, of the same size.
        """
        weights = self.tasks.weights
        self._calls &= self.tasks.in_memory.keys()
        return sum(map(weights.of, self._calls)) < weights.most

    def _report_full(self, *, full: bool) -> None:
        """Log, once, that what is held leaves no room for more."""
        if full and not self._full:
            weights = self.tasks.weights
            log.info(
                "holding %d tasks of %s: nothing more is claimed until some of them end (max_task_memory is %s)",
                len(self.tasks.in_memory), size_text(weights.total), size_text(weights.most),
            )  # fmt: skip
        self._full = full
