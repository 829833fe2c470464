"""Listens for attempts that nobody needs any more, and lets them hear of it.

The Decision that turns a task to undo marks the request rows of its actions that an agent has. Its commit
wakes this process; if that wake-up is lost, the next heartbeat does. Then the marked rows are read. Nothing
is read before the first wake-up, and none comes as long as nothing is cancelled.
"""

import asyncio
import logging
import random
from collections.abc import Callable

from makegood.actor.setbacks import Setbacks
from makegood.agent.attempts import Attempts
from makegood.base.pacing import Pauses
from makegood.channels.protocol import Channel
from makegood.errors import StoreUnavailableError

log = logging.getLogger("makegood.agent")


class CancelListener:
    """Lets the attempts of a process hear that nobody needs them."""

    def __init__(self, channel: Channel, attempts: Attempts, setbacks: Setbacks, rng: random.Random) -> None:
        self._channel = channel
        self._attempts = attempts
        self._setbacks = setbacks
        self._rng = rng
        self._node = 0
        self._wake = asyncio.Event()
        self._end: Callable[[], None] = lambda: None

    def listen_as(self, node: int) -> None:
        """Listen for this number of the process from now on."""
        self._end()
        self._node = node
        self._end = self._channel.subscribe_to_cancels(node, self._wake.set)

    async def run(self) -> None:
        """Read what is cancelled whenever something may be, until cancelled itself."""
        pauses = Pauses(self._rng)
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                if not self._attempts.running:
                    continue
                node = self._node
                try:
                    self._attempts.cancel(frozenset(await self._channel.cancels(node)), node)
                except StoreUnavailableError as away:
                    log.warning("what is cancelled cannot be read now: %s", away)
                    await asyncio.sleep(pauses.draw())
                    self._wake.set()
                    continue
                except Exception as defect:  # noqa: BLE001 - it must not end what runs
                    await asyncio.sleep(await self._setbacks.pause_after(defect))
                    continue
                pauses.reset()
                if self._setbacks.count:
                    await self._setbacks.over()
        finally:
            self._end()
