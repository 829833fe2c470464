"""The heartbeat: the row by which other processes know this process, and see that it lives.

A process that was stopped for longer than its heartbeat lasts learns from its next heartbeat that it was
declared dead. It then continues under a new number: what it held belongs to others, and the fences refuse
what it still writes under the old one.
"""

import asyncio
import logging
import random
from collections.abc import Callable

from msgspec.structs import replace

from makegood.actor.actor import Actor
from makegood.actor.setbacks import Setbacks
from makegood.actor.store_contact import StoreContact, longest_contact_gap
from makegood.base import zones
from makegood.base.clock import Clock
from makegood.errors import StoreUnavailableError
from makegood.node.loop_lag import Lateness
from makegood.options import Options
from makegood.store.protocol import Store
from makegood.store.views import NodeInfo

ZONES_EVERY = 10.0
"""Seconds between two looks for the rules of time zones on disk."""

log = logging.getLogger("makegood.node")


class Heartbeat(Actor):
    """Registers a process and renews its row.

    ``info`` returns the row's contents, except for the zone rules; ``on_number`` is called with each new
    number.
    """

    def __init__(
        self,
        store: Store,
        info: Callable[[], NodeInfo],
        on_number: Callable[[int], None],
        *,
        options: Options,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self.number = 0
        """The process's number, 0 before it is registered."""
        self.contact = StoreContact(clock, longest_contact_gap(options))
        """When the store took the heartbeats."""
        self._store = store
        self._info = info
        self._on_number = on_number
        self._options = options
        self._clock = clock
        self._rng = rng
        self._last_beat: float | None = None
        self.registrations = 0
        """How often the process was registered: more than once if it was declared dead."""
        self._zone_rules: zones.ZoneRules | None = None
        self._zones_at = -ZONES_EVERY

    async def register(self) -> None:
        """Become a process of the store, under a number that nobody had."""
        self.registrations += 1
        self.number = await self._store.nodes.register(self._row())
        self._last_beat = self._clock.monotonic()
        self.contact.note()
        self._on_number(self.number)

    async def publish(self) -> bool:
        """Renew the row; returns False when the process was declared dead."""
        return await self._store.nodes.heartbeat(self.number, self._row())

    def _row(self) -> NodeInfo:
        if (now := self._clock.monotonic()) - self._zones_at >= ZONES_EVERY:
            self._zone_rules, self._zones_at = zones.current(), now
        return replace(self._info(), zone_rules=self._zone_rules)

    def reaches(self) -> bool:
        """Return whether the store took a heartbeat that has not run out."""
        return (
            self._last_beat is not None
            and self._clock.monotonic() - self._last_beat <= self._options.number("dead_after")
        )

    async def run(self) -> None:
        """Renew the row again and again, until cancelled."""
        pause, lateness = self._options.number("heartbeat"), Lateness()
        setbacks = Setbacks("heartbeat", self._store.alerts, self._rng)
        while True:
            rest, began = pause * self._rng.uniform(0.9, 1.0), self._clock.monotonic()
            await asyncio.sleep(rest)
            lateness.note_sleep(rest, began, self._clock.monotonic())
            try:
                if not await self.publish():
                    await self.register()
                if self._last_beat is None:
                    log.info("the store is back: the heartbeat continues")
                self._last_beat = self._clock.monotonic()
                self.contact.note()
                if setbacks.count:
                    await setbacks.over()
            except StoreUnavailableError as away:
                if self._last_beat is not None:
                    log.warning("no heartbeat until the store is back: %s", away)
                self._last_beat = None
            except Exception as defect:  # noqa: BLE001 - others would take a process for dead that works
                await asyncio.sleep(await setbacks.pause_after(defect))
