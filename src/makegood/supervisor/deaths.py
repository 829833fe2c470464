"""Finds processes that are certainly dead, before their heartbeats run out.

A process is certainly dead if it was one of this host, and the system says that it is gone; or if another
one has begun under the name that its operator gave it. Every process with a Supervisor looks, whether it
leads or not: the leader may be the one that died, and then others would wait for the end of its lease. They
mark the dead; what follows (judging attempts, freeing tasks) is the leader's.

The mark is what an expired heartbeat leads to as well, and it is as harmless if it is wrong: a process that
lives registers again under another number, and whatever it still writes under the old one is refused.
"""

import asyncio
import logging
import math
import random
from collections.abc import Callable, Iterable, Sequence

from makegood.actor.actor import Actor
from makegood.actor.setbacks import Setbacks
from makegood.base.clock import Clock
from makegood.base.process_identity import ProcessIdentity, is_gone
from makegood.errors import StoreUnavailableError
from makegood.store.protocol import Store
from makegood.store.views import NodeInfo

log = logging.getLogger("makegood.supervisor")

LOOK_EVERY = 0.25
"""Seconds between two looks at the processes of this host."""
READ_EVERY = 1.0
"""Seconds between two reads of the processes of the store, at least: many may begin at once."""


class Deaths(Actor):
    """Marks the dead among the processes of a store. ``me``: this process. ``hurry``: called when processes
    are marked, by this one or another one. ``life``: seconds after which heartbeats run out.

    It reads the store when processes have begun, ended or been marked. A wake-up may be lost, so it also
    reads it once in a ``life``: until then heartbeats run out all the same.
    """

    def __init__(
        self,
        store: Store,
        me: ProcessIdentity,
        hurry: Callable[[], None],
        *,
        life: float,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._store = store
        self._me = me
        self._hurry = hurry
        self._life = life
        self._wake = asyncio.Event()
        self._clock = clock
        self._rng = rng
        self._processes: Sequence[tuple[int, NodeInfo]] = ()
        self._read_at = -math.inf

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        setbacks = Setbacks("supervisor", None, self._rng)
        stop = self._store.subscribe("nodes", self._wake.set)
        try:
            while True:
                rest = LOOK_EVERY
                try:
                    await self.once()
                    await setbacks.over()
                except StoreUnavailableError as away:
                    log.info("the store is away; the dead are not marked: %s", away)
                    self._wake.set()
                    rest = READ_EVERY
                except Exception as defect:  # noqa: BLE001 - heartbeats run out all the same
                    self._wake.set()
                    rest = await setbacks.pause_after(defect)
                await asyncio.sleep(rest * self._rng.uniform(0.9, 1.1))
        finally:
            stop()

    async def once(self) -> list[int]:
        """Mark those that are certainly dead now; return their numbers."""
        since = (now := self._clock.monotonic()) - self._read_at
        if since >= (READ_EVERY if self._wake.is_set() else self._life):
            self._wake.clear()
            before = {number for number, _ in self._processes}
            self._processes, self._read_at = await self._store.nodes.processes(), now
            if before - {number for number, _ in self._processes}:
                self._hurry()
        dead = [number for number, info in self._processes if self._is_gone(info)]
        dead += [number for number in predecessors(self._processes) if number not in dead]
        if not dead:
            return []
        numbers = await self._store.nodes.mark_dead(dead)
        names = [info.place for number, info in self._processes if number in numbers]
        self._processes = [(number, info) for number, info in self._processes if number not in dead]
        if numbers:
            self._hurry()
            log.warning("certainly dead: %s; others continue with what it had", ", ".join(names))
        return numbers

    def _is_gone(self, info: NodeInfo) -> bool:
        return info.process is not None and is_gone(info.process, self._me)


def predecessors(processes: Iterable[tuple[int, NodeInfo]]) -> list[int]:
    """Return the processes, in the order of their numbers, whose name another one has taken over since."""
    numbers: dict[str, list[int]] = {}
    dead: list[int] = []
    for number, info in sorted(processes, key=lambda process: process[0]):
        if info.is_successor:
            dead += numbers.pop(info.name, [])
        numbers.setdefault(info.name, []).append(number)
    return dead
