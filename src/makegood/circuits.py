"""Tells operators of open circuits: one alert for an agent, until the canary of every process that runs it was answered.

It is raised and ended by the processes themselves, each first publishing what its own circuit is: so the last one to hear an
answer sees that it is the last. The alert of a process that died with an open circuit is ended by the Supervisor.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from makegood.breaker import SHUT
from makegood.errors import StoreUnavailableError
from makegood.messages import Alert
from makegood.slots import Slots
from makegood.store.records import NodeView

log = logging.getLogger("makegood.agent")


class _Store(Protocol):
    async def nodes(self) -> list[NodeView]: ...

    async def alert(self, alerts: Sequence[Alert]) -> None: ...

    async def ease(self, causes: Sequence[Alert], why: str) -> None: ...


class Circuits:
    """Watches the circuits of one process. ``slots``: its agents; ``publish``: writes a heartbeat; ``me``: the process's number."""

    def __init__(
        self,
        store: _Store,
        slots: Sequence[Slots],
        publish: Callable[[], Awaitable[object]],
        me: Callable[[], int],
        *,
        rng: random.Random,
    ) -> None:
        self._store = store
        self._slots = [each for each in slots if each.circuit is not None]
        self._publish = publish
        self._me = me
        self._rng = rng
        self._told: set[str] = set()
        self._ring = asyncio.Event()

    def changed(self) -> None:
        """Hear that a circuit has opened, or its service has answered again."""
        self._ring.set()

    async def run(self) -> None:
        """Tell of what has changed, until cancelled."""
        pause = 0.05
        while True:
            await self._ring.wait()
            self._ring.clear()
            try:
                await self._tell()
                pause = 0.05
            except StoreUnavailableError as away:
                log.warning("an open circuit cannot be told now: %s", away)
                pause = min(pause * 2, 2.0)
                await asyncio.sleep(pause * self._rng.uniform(0.5, 1.5))
                self._ring.set()

    async def _tell(self) -> None:
        shut = {
            each.address for each in self._slots if each.circuit is not None and each.circuit.state in SHUT
        }
        new, over = sorted(shut - self._told), sorted(self._told - shut)
        if not (new or over):
            return
        await self._publish()
        if new:
            text = "its service does not answer: its circuit is open, requests wait (see `makegood agents`)"
            await self._store.alert([Alert("circuit_open", step=address, text=text) for address in new])
            self._told |= set(new)
        if over:
            elsewhere = self._shut(await self._store.nodes())
            ended = [Alert("circuit_open", step=address) for address in over if address not in elsewhere]
            if ended:
                await self._store.ease(ended, "the service answers again")
            self._told -= set(over)

    def _shut(self, nodes: Sequence[NodeView]) -> set[str]:
        """Return the agents whose circuit is shut in another process that lives."""
        return {
            info.agent
            for view in nodes
            if not (view.stopped or view.dead) and view.remaining > 0 and view.id != self._me()
            for info in view.info.agents
            if info.circuit in SHUT
        }
