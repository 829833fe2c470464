"""Wake-ups: what wakes a Scheduler, and what it must then read from the store."""

import asyncio
import math
import random
from collections.abc import Callable
from typing import Protocol

from makegood.base.clock import Clock
from makegood.base.pacing import Pauses, event_within

_LANES_BUSY = 0.05
"""Seconds after which the lanes that another transaction decided on are looked at again, in the mean: it
holds their locks for one commit. Nobody would tell whether it took them.
"""


class _Topics(Protocol):
    def subscribe(self, topic: str, wake: Callable[[], None]) -> Callable[[], None]: ...


class Wakeups:
    """What wakes one Scheduler. ``poll``: seconds between reads without a wake-up, None: never."""

    def __init__(self, store: _Topics, clock: Clock, rng: random.Random, poll: float | None) -> None:
        self.pending = True
        """Whether tasks may wait to be claimed. It stays true until the Scheduler looks."""
        self.sleepers = True
        """Whether the next claim looks for tasks that sleep and are due, too."""
        self.lanes = True
        """Whether the next claim looks for tasks whose lanes may be free, too."""
        self.inbox = True
        """Whether messages may wait for held tasks. It stays true until the Scheduler looks."""
        self.event = asyncio.Event()
        self.wake: Callable[[], None] = self.event.set
        """Wakes the loop: something is to be done with what is in memory."""
        self._store = store
        self._clock = clock
        self._rng = rng
        self._poll = poll
        self.pauses = Pauses(rng)
        """The pauses while the store is away."""
        self._stops: list[Callable[[], None]] = []

    def open(self) -> None:
        """Subscribe to the store's topics."""
        self._stops = [
            self._store.subscribe("pending", self.wake_for_pending),
            self._store.subscribe("sleeping", self.wake_for_sleepers),
            self._store.subscribe("queued", self.wake_for_lanes),
            self._store.subscribe("inbox", self.wake_for_inbox),
        ]

    def close(self) -> None:
        """End the subscriptions."""
        for stop in self._stops:
            stop()

    def wake_for_pending(self) -> None:
        """Wake the loop: tasks may wait to be claimed."""
        self.pending = True
        self.event.set()

    def wake_for_sleepers(self) -> None:
        """Wake the loop: a task that sleeps may be due, or due before the others."""
        self.sleepers = True
        self.wake_for_pending()

    def wake_for_lanes(self) -> None:
        """Wake the loop: the lanes of tasks may be free."""
        self.lanes = True
        self.wake_for_pending()

    def wake_soon_for_lanes(self) -> None:
        """Wake the loop once another transaction, which decides on the lanes of tasks, should be over."""
        pause = _LANES_BUSY * self._rng.uniform(0.5, 1.5)
        asyncio.get_running_loop().call_later(pause, self.wake_for_lanes)

    def wake_for_inbox(self) -> None:
        """Wake the loop: messages may wait."""
        self.inbox = True
        self.event.set()

    def look_again(self) -> None:
        """Assume that every topic has something new, because wake-ups may be lost. Wakes nobody."""
        self.pending = self.sleepers = self.lanes = self.inbox = True

    @property
    def longest_rest(self) -> float:
        """The most seconds that pass between two reads without a wake-up."""
        return math.inf if self._poll is None else self._poll * 1.2

    @property
    def polls(self) -> bool:
        """Whether the store is looked at although nobody wakes it."""
        return self._poll is not None

    def rotate(self, tasks: list[int]) -> list[int]:
        """Return tasks in their order, from a place of this Scheduler's own on, and then those before."""
        begin = self._rng.randrange(len(tasks)) if tasks else 0
        return tasks[begin:] + tasks[:begin]

    async def rest(self, due: float | None) -> None:
        """Wait for a wake-up, until ``due`` on the monotonic clock, or for the slow poll."""
        if self.event.is_set():
            return
        limits = [self._poll * self._rng.uniform(0.8, 1.2)] if self._poll is not None else []
        if due is not None:
            limits.append(max(0.0, due - self._clock.monotonic()))
        if not await event_within(self.event, min(limits, default=None)) and self._poll is not None:
            self.look_again()
