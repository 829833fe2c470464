"""Leases in memory: for tests, for simulations, and for candidates that are tasks of one process.

The object *is* the place: candidates must share it. Two calls of ``open_leases("memory:")`` give two places.
"""

from dataclasses import dataclass, field

from makegood.base.clock import Clock, SystemClock
from makegood.election.protocol import Grant, LeaseView, PastTerm
from makegood.election.stores.base import Closing, lasting

KEPT = 1000
"""Terms remembered per lease."""


@dataclass(slots=True)
class _Record:
    """``expires`` is on the monotonic clock, ``since`` on the wall clock."""

    holder: str | None
    nonce: str
    epoch: int
    ttl: float
    expires: float
    since: float
    past: list[PastTerm] = field(default_factory=list)


class MemoryLeases(Closing):
    """A lease store in this process's memory. ``clock`` judges expiry."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._records: dict[str, _Record] = {}

    async def acquire(self, name: str, holder: str, nonce: str, ttl: float) -> Grant | None:
        """Take a lease that is free, expired or ours already (the same nonce)."""
        lasting(ttl)
        now, wall = self._clock.monotonic(), self._clock.wall()
        held = self._records.get(name)
        if held is None:
            held = self._records[name] = _Record(None, "", 0, ttl, now, wall)
        if held.nonce != nonce:
            if held.holder is not None and held.expires > now:
                return None
            if held.past and held.past[0].ended is None:
                last = held.past[0]
                ended = wall - (now - held.expires)
                held.past[0] = PastTerm(last.epoch, last.holder, last.began, ended, released=False)
            held.epoch, held.since = held.epoch + 1, wall
            held.past = [PastTerm(held.epoch, holder, wall, None, released=False), *held.past[: KEPT - 1]]
        held.holder, held.nonce, held.ttl, held.expires = holder, nonce, ttl, now + ttl
        return Grant(name, holder, nonce, held.epoch, ttl)

    async def renew(self, grant: Grant) -> bool:
        """Extend a lease that is still held; False if the term is over."""
        now = self._clock.monotonic()
        held = self._records.get(grant.name)
        if held is None or held.holder is None or held.nonce != grant.nonce or held.expires <= now:
            return False
        held.expires = now + held.ttl
        return True

    async def release(self, grant: Grant) -> None:
        """Free a lease that is still this grant's."""
        held = self._records.get(grant.name)
        if held is not None and held.holder is not None and held.nonce == grant.nonce:
            held.holder, held.nonce = None, ""
            last = held.past[0]
            held.past[0] = PastTerm(last.epoch, last.holder, last.began, self._clock.wall(), released=True)

    async def read(self, name: str) -> LeaseView | None:
        """Return who holds a lease."""
        held = self._records.get(name)
        if held is None:
            return None
        remaining = held.expires - self._clock.monotonic()
        return LeaseView(name, held.holder, held.epoch, held.ttl, held.since, remaining)

    async def past_terms(self, name: str, limit: int = 100) -> list[PastTerm]:
        """Return the latest terms, newest first."""
        held = self._records.get(name)
        return [] if held is None else held.past[:limit]


def from_url(url: str, *, clock: Clock, timeout: float) -> MemoryLeases:  # noqa: ARG001 - as every store
    """Return a new, empty place; ``url`` is ``memory:``."""
    return MemoryLeases(clock)
