"""Contending for terms: follow, take, lead, stop, release, rest, follow.

Campaigning never blocks anybody: who does not lead goes on with ordinary work. Every pause is jittered, so that
candidates started together do not stay in step.
"""

import asyncio
import logging
import random
import uuid
from collections.abc import AsyncGenerator
from typing import Generic

from makegood.clock import Clock, SystemClock
from makegood.durations import Duration, seconds
from makegood.election.protocol import G, LeaseStore
from makegood.election.term import Term, belief
from makegood.errors import ConfigError, StoreError

log = logging.getLogger("makegood.election")


class Election(Generic[G]):
    """Contends for the lease ``name`` in the name of ``me``.

    ``ttl``: how long a lease lasts without renewal (seconds or a duration). ``renew``: pause between renewals, ttl / 3 unless
    said otherwise. Raises ``ConfigError`` when a renewal could not come in time.
    """

    def __init__(
        self,
        name: str,
        leases: LeaseStore[G],
        *,
        me: str,
        ttl: Duration = 15,
        renew: Duration | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.name = name
        self.me = me
        self.ttl = seconds(ttl, name="ttl", least=0.1)
        self._renew = seconds(renew, name="renew", least=0.01) if renew is not None else self.ttl / 3
        if self._renew * 2 > belief(self.ttl):
            raise ConfigError(
                f"renew={self._renew:g} s is too long for ttl={self.ttl:g} s: twice the renewal must fit into the "
                f"{belief(self.ttl):.2f} s for which a holder may believe in the lease; use renew <= {belief(self.ttl) / 2:.2f}"
            )
        self._leases = leases
        self._clock = clock or SystemClock()
        self._rng = rng or random.Random()

    async def terms(self) -> AsyncGenerator[Term[G], None]:
        """Yield one Term after another, as this process comes to lead; each must be used with ``async with``."""
        nonce = self._nonce()
        while True:
            sent = self._clock.monotonic()
            try:
                grant = await self._leases.acquire(self.name, self.me, nonce, self.ttl)
            except StoreError as unknown:
                log.info("the lease %r cannot be taken now: %s", self.name, unknown)
                grant = None
            else:
                if grant is None:
                    nonce = self._nonce()
            if grant is not None:
                log.info("%s leads %r, epoch %d", self.me, self.name, grant.epoch)
                yield Term(self._leases, grant, sent, renew=self._renew, clock=self._clock, rng=self._rng)
                nonce = self._nonce()
            await asyncio.sleep(self._renew * self._rng.uniform(0.5, 1.5))

    def _nonce(self) -> str:
        return str(uuid.UUID(int=self._rng.getrandbits(128), version=4))
