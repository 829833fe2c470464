"""One term of leadership.

Belief ends at (clock read *before* the request) + ttl less a margin for clock drift, whatever the store says later: an
answer that was long on its way must not stretch it. At that deadline, or when a renewal is refused, the body of
``async with term`` is cancelled and *waited for*; only then is the lease released. A renewal whose outcome is unknown
keeps the old deadline and is tried again within it.
"""

import asyncio
import logging
import random
from types import TracebackType
from typing import Generic

from makegood.clock import Clock
from makegood.election.protocol import G, LeaseStore
from makegood.errors import MakegoodError, StoreError

log = logging.getLogger("makegood.election")

DRIFT = 0.01
"""Clocks are assumed to run within 1 % of real time."""


class LeadershipLostError(MakegoodError):
    """The term is over: the lease could not be renewed in time, or somebody else holds it."""


def belief(ttl: float) -> float:
    """Return for how many seconds after sending the request a holder may believe in a lease of ``ttl`` seconds."""
    return ttl * (1 - DRIFT) / (1 + DRIFT)


class Term(Generic[G]):
    """A stretch of time in which this process may lead. Use it once, with ``async with``.

    ``grant`` goes with every write (its epoch is the fence); ``lost`` is set when the term is over.
    """

    def __init__(
        self, leases: LeaseStore[G], grant: G, sent: float, *, renew: float, clock: Clock, rng: random.Random
    ) -> None:
        self.grant = grant
        self.lost = asyncio.Event()
        self._leases = leases
        self._deadline = sent + belief(grant.ttl)
        self._renew = renew
        self._clock = clock
        self._rng = rng
        self._body: asyncio.Task[object] | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._cancelled = False

    @property
    def epoch(self) -> int:
        """The fencing number of this term."""
        return self.grant.epoch

    def remaining(self) -> float:
        """Return the seconds of belief left by the local clock, never more than are really left."""
        return 0.0 if self.lost.is_set() else max(0.0, self._deadline - self._clock.monotonic())

    def check(self) -> None:
        """Raise ``LeadershipLostError`` when the term is over. A pure look at the clock."""
        if self.remaining() <= 0:
            raise LeadershipLostError(
                f"the term {self.epoch} of {self.grant.name!r} is over: stop, and contend again"
            )

    async def __aenter__(self) -> "Term[G]":
        """Begin renewing; the body that follows is cancelled when the term ends."""
        self._body = asyncio.current_task()
        self._keeper = asyncio.get_running_loop().create_task(self._keep(), name=f"renew {self.grant.name}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Stop renewing, then release. A cancellation that came from the end of the term ends here."""
        assert self._keeper is not None
        assert self._body is not None
        body, self._body = self._body, None
        self._keeper.cancel()
        try:
            await asyncio.gather(self._keeper, return_exceptions=True)
        except asyncio.CancelledError:
            if not self._cancelled:  # the caller's, not the end of the term arriving late
                raise
        self.lost.set()
        try:
            await self._leases.release(self.grant)
        except StoreError as unreachable:
            log.info(
                "the lease %r could not be released and runs out by itself: %s", self.grant.name, unreachable
            )
        if self._cancelled:
            return body.uncancel() <= 0 and kind in (None, asyncio.CancelledError)
        return False

    async def _keep(self) -> None:
        pause = self._renew
        while True:
            left = self._deadline - self._clock.monotonic()
            if left <= 0:
                break
            await asyncio.sleep(min(pause * self._rng.uniform(0.9, 1.0), left))
            sent = self._clock.monotonic()
            left = self._deadline - sent
            if left <= 0:
                break
            try:
                async with asyncio.timeout(left):
                    held = await self._leases.renew(self.grant)
            except (StoreError, TimeoutError) as unknown:
                now = self._clock.monotonic()
                left = max(0.0, self._deadline - now)
                why = str(unknown) or f"no answer within {now - sent:.1f} s"
                log.warning("a renewal of the lease %r failed, %.1f s left: %s", self.grant.name, left, why)
                pause = min(self._renew, left / 4)
                continue
            if not held:
                break
            self._deadline = sent + belief(self.grant.ttl)
            pause = self._renew
        self.lost.set()
        log.warning("the term %d of %r is over", self.epoch, self.grant.name)
        if self._body is not None:
            self._cancelled = True
            self._body.cancel()
