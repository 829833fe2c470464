"""Elections on virtual time: a candidate's test runs in no time at all, and the same each time."""

import asyncio
import functools
import random
from collections.abc import Awaitable, Callable
from typing import Any, ParamSpec

from makegood.election import Election, Grant
from makegood.election.stores.memory import MemoryLeases
from makegood.errors import StoreUnavailableError
from makegood.testing.simulator.clocks import SimulatedClock
from makegood.testing.simulator.loop import WorldLoop

P = ParamSpec("P")


def virtual(test: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """Run a test on a loop of virtual time."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        loop = WorldLoop(random.Random(1))
        try:
            loop.run_until_complete(test(*args, **kwargs))
        finally:
            loop.dispose()

    return run


def now() -> float:
    """Return virtual time."""
    return asyncio.get_running_loop().time()


def clock(drift: float = 0.0) -> SimulatedClock:
    """Return a clock over the running loop's time."""
    return SimulatedClock(asyncio.get_running_loop().time, drift=drift)


class Leases(MemoryLeases):
    """In memory, with faults: ``away`` (refused), ``deaf`` (no answer); it keeps a log of what it did."""

    def __init__(self) -> None:
        super().__init__(clock())
        self.away = self.deaf = False
        self.answers_after = 0.0
        self.log: list[tuple[float, str, str, int]] = []

    async def _fault(self) -> None:
        if self.away:
            raise StoreUnavailableError("away")
        if self.deaf:
            await asyncio.Event().wait()

    async def _late(self) -> None:
        if self.answers_after:
            end = asyncio.Event()
            asyncio.get_running_loop().call_later(self.answers_after, end.set)
            await end.wait()

    async def acquire(self, name: str, holder: str, nonce: str, ttl: float) -> Grant | None:
        await self._fault()
        grant = await super().acquire(name, holder, nonce, ttl)
        if grant is not None:
            self.log.append((now(), "took", holder, grant.epoch))
        await self._late()
        return grant

    async def renew(self, grant: Grant) -> bool:
        await self._fault()
        is_ours = await super().renew(grant)
        self.log.append((now(), "renewed" if is_ours else "refused", grant.holder, grant.epoch))
        await self._late()
        return is_ours

    async def release(self, grant: Grant) -> None:
        await self._fault()
        self.log.append((now(), "released", grant.holder, grant.epoch))
        await super().release(grant)

    def verbs(self) -> list[str]:
        """Return what was done, without renewals."""
        return [f"{holder} {verb} {epoch}" for _, verb, holder, epoch in self.log if verb != "renewed"]


def election(leases: MemoryLeases, me: str = "a", **options: Any) -> Election:
    """Return a candidate with its own seed."""
    options = {"clock": clock(), "ttl": 15, **options}
    return Election("lead", leases, me=me, rng=random.Random(me), **options)


async def wait(seconds: float) -> None:
    """Let virtual time pass."""
    over = asyncio.Event()
    asyncio.get_running_loop().call_later(seconds, over.set)
    await over.wait()


async def forever() -> None:
    """Work until cancelled."""
    await asyncio.Event().wait()
