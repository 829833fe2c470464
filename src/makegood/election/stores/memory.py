"""Leases in memory: for tests, for simulations, and for candidates that are tasks of one process.

The object *is* the place: candidates must share it. Two calls of ``open_leases("memory:")`` give two places.
"""

from makegood.base.clock import Clock, SystemClock
from makegood.election.protocol import Grant, LeaseView, PastTerm
from makegood.election.stores.base import Closing, lasting
from makegood.election.stores.compare_and_set import Record

KEPT = 1000
"""Terms remembered per lease."""


class MemoryLeases(Closing):
    """A lease store in this process's memory. ``clock`` judges expiry."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._records: dict[str, Record] = {}
        self._expires: dict[str, float] = {}  # On the monotonic clock.

    async def acquire(self, name: str, holder: str, nonce: str, ttl: float) -> Grant | None:
        """Take a lease that is free, expired or ours already (the same nonce)."""
        lasting(ttl)
        before, left = self._records.get(name), self._seconds_left(name)
        if before is not None and before.nonce != nonce and before.holder is not None and left > 0:
            return None
        grant = Grant(name, holder, nonce, 0, ttl)
        record = Record.take(before, grant, self._clock.wall(), end_offset=left, limit=KEPT)
        self._records[name], self._expires[name] = record, self._clock.monotonic() + ttl
        return Grant(name, holder, nonce, record.epoch, ttl)

    async def renew(self, grant: Grant) -> bool:
        """Extend a lease that is still held; False if the term is over."""
        record = self._record_of(grant)
        if record is None or self._seconds_left(grant.name) <= 0:
            return False
        self._expires[grant.name] = self._clock.monotonic() + record.ttl
        return True

    async def release(self, grant: Grant) -> None:
        """Free a lease that is still this grant's."""
        if (record := self._record_of(grant)) is not None:
            self._records[grant.name] = record.free(self._clock.wall())

    async def read(self, name: str) -> LeaseView | None:
        """Return who holds a lease."""
        record = self._records.get(name)
        if record is None:
            return None
        return LeaseView(
            name, record.holder, record.epoch, record.ttl, record.since, self._seconds_left(name)
        )

    async def past_terms(self, name: str, limit: int = 100) -> list[PastTerm]:
        """Return the latest terms, newest first."""
        record = self._records.get(name)
        return [] if record is None else record.past[:limit]

    def _record_of(self, grant: Grant) -> Record | None:
        record = self._records.get(grant.name)
        return (
            record
            if record is not None and record.holder is not None and record.nonce == grant.nonce
            else None
        )

    def _seconds_left(self, name: str) -> float:
        now = self._clock.monotonic()
        return self._expires.get(name, now) - now


def from_url(url: str, *, clock: Clock, timeout: float) -> MemoryLeases:  # noqa: ARG001 - as every store
    """Return a new, empty place; ``url`` is ``memory:``."""
    return MemoryLeases(clock)
