"""A Scheduler's claims: pending tasks, and those that sleep and are due, while it has room; and tasks at
rest, or asleep, that an operator acts on.
"""

import logging

from makegood.base.sizes import shown
from makegood.scheduler.task_table import TaskTable
from makegood.store.records import Claim

log = logging.getLogger("makegood.scheduler")


class Claims:
    """Says what to claim next. ``hold``: the most tasks in memory."""

    def __init__(self, tasks: TaskTable, *, hold: int, most: int) -> None:
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
        self._full = False
        self._calls: set[int] = set()

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

    def wanted(self, most: int | None) -> Claim | None:
        """Return what to claim now: no more than there is room for, as far as that is known before reading.

        ``most``: tasks at once; None: the usual number.
        """
        if not self.open:
            self.at_rest = []
            return None
        weights = self.tasks.weights
        room = weights.room
        self._report_full(full=room == 0)
        if room == 0 and not (self.at_rest and self._heeds_operators()):
            return None
        at_rest, self.at_rest = self.at_rest, []
        if most is None:
            most = self.most
        elif at_rest:
            at_rest, self.at_rest, most = at_rest[:1], at_rest[1:], 0
        limit = min(most, self._hold - len(self.tasks.in_memory), room // weights.mean + 1) if room else 0
        if limit <= 0 or not self._wakeups.pending:
            return Claim(0, tuple(at_rest), room) if at_rest else None
        sleepers = self._wakeups.sleepers
        self._wakeups.pending = self._wakeups.sleepers = False
        return Claim(limit, tuple(at_rest), room, sleepers)

    def fire(self, now: float) -> None:
        """Look for tasks that sleep if the next one is due. ``now``: the monotonic clock."""
        if self.next_start is not None and now >= self.next_start:
            self.next_start = None
            self._wakeups.pending = self._wakeups.sleepers = True

    def made(self, claim: Claim, *, more: bool, next_start: float | None) -> None:
        """Note that a claim is committed; ``more``: others may be claimed. ``next_start``: seconds until the
        next task that sleeps is due, if the claim looked for such.
        """
        if claim.sleepers:
            now = self.tasks.clock.monotonic()
            self.next_start = None if next_start is None else now + next_start
            self._wakeups.sleepers = self._wakeups.sleepers or more
        if claim.at_rest:
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
                len(self.tasks.in_memory), shown(weights.total), shown(weights.most),
            )  # fmt: skip
        self._full = full
