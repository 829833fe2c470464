"""Event loop lag: warns when the event loop was blocked.

A blocked loop holds up heartbeats, replies and every other action of the process.
"""

import logging
from typing import Final

log = logging.getLogger("makegood.node")

LATE: Final = 1.0
"""Seconds that a sleep may last too long before it is said."""

SAID: Final = 60.0
"""Seconds until it is said again."""


class Lateness:
    """Judges how long sleeps took: at most one warning within ``SAID`` seconds."""

    def __init__(self) -> None:
        self._silent_until = 0.0

    def note_sleep(self, pause: float, began: float, now: float) -> None:
        """Judge a sleep of ``wanted`` seconds, from ``began`` to ``now`` on a monotonic clock."""
        late = now - began - pause
        if late > LATE and now >= self._silent_until:
            self._silent_until = now + SAID
            log.warning(
                "the event loop was blocked for %.1f s, and heartbeats and replies waited: does an `async def` action block "
                "without `await`? A plain `def` runs in a thread (or the machine had no time for this process)",
                late,
            )
