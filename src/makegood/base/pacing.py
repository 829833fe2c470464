"""Pacing: how long a loop rests while what it needs is away, and how it waits for a wake-up with a limit."""

import asyncio
import random


class Pauses:
    """The pauses between tries: each twice as long as the one before, up to ``longest`` seconds.

    With ``rng`` each is drawn from half to one and a half of that: processes that failed together must not
    return together. Without it each is exact.

    >>> pauses = Pauses(first=1.0, longest=3.0)
    >>> [pauses.draw() for _ in range(4)]
    [1.0, 2.0, 3.0, 3.0]
    """

    def __init__(self, rng: random.Random | None = None, *, first: float = 0.1, longest: float = 2.0) -> None:
        self._rng = rng
        self._first = self._next = first
        self._longest = longest

    def draw(self) -> float:
        """Return the next pause in seconds."""
        pause, self._next = self._next, min(self._next * 2, self._longest)
        return pause if self._rng is None else pause * self._rng.uniform(0.5, 1.5)

    def reset(self) -> None:
        """Begin with the shortest again."""
        self._next = self._first


async def event_within(event: asyncio.Event, limit: float | None) -> bool:
    """Wait for ``event`` at most ``limit`` seconds, None: for ever. Return whether it was set in time."""
    try:
        async with asyncio.timeout(limit):
            await event.wait()
    except TimeoutError:
        return False
    return True
