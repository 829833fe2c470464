"""What an election needs from a place where leases are kept.

A lease is one record per name: who holds it, under which nonce, in which epoch, for how long. **It is never
deleted**, so an epoch never repeats: each take by a new nonce adds 1, and release, expiry or a restart of the
server do not change that. The record serves no other purpose.

Every call has one of three outcomes: *yes*, *no* (None or False), or *unknown*: then it raises
``StoreUnavailableError``, and may or may not have happened. Every call may be repeated, and may be cancelled
at any await; a cancelled one counts as unknown. Every call ends within the store's own time-out, even if
there is no answer at all.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, Self


@dataclass(frozen=True, slots=True)
class Grant:
    """Proof that a lease was taken."""

    name: str
    holder: str
    nonce: str
    """Made by the taker for each campaign."""
    epoch: int
    """Rises with each change of holder, forever; send it with every write of this term."""
    ttl: float
    """Seconds that the lease lasts from each take or renewal."""


@dataclass(frozen=True, slots=True)
class LeaseView:
    """The holder of a lease, and its epoch."""

    name: str
    holder: str | None
    """None: nobody."""
    epoch: int
    ttl: float
    """The holder's ttl, in seconds."""
    since: float
    """Since when: seconds since 1970 by the store's or the holder's clock, for people."""
    remaining: float
    """For how many more seconds; not above 0: expired."""

    @property
    def held(self) -> bool:
        """Whether somebody holds it, and its time is not over."""
        return self.holder is not None and self.remaining > 0


@dataclass(frozen=True, slots=True)
class PastTerm:
    """A term as the store remembers it. Points in time are seconds since 1970, for people."""

    epoch: int
    holder: str
    began: float
    ended: float | None
    """When it was released, or when its lease ran out (known once it was taken again); None: it continues, or
    nobody has led since.
    """
    released: bool
    """Whether it was released."""


@dataclass(frozen=True, slots=True)
class Fence:
    """A statement for the caller's own transaction: it finds one row while the grant is current, and holds
    off every take until the transaction ends.
    """

    dialect: Literal["sqlite", "postgresql"]
    sql: str
    """Has parameters like ``:name``."""
    values: Mapping[str, str | int | float]
    """The values of the parameters."""


class LeaseStore(Protocol):
    """A place where leases are kept. Prove your own with ``makegood.testing.LEASE_STORE_CASES``."""

    async def acquire(self, name: str, holder: str, nonce: str, ttl: float) -> Grant | None:
        """Take the lease if it is free, has expired, or is held under this very ``nonce``; None: somebody
        holds it.

        A new nonce gets epoch + 1. The same nonce again, while it is still in the record, gets the same epoch
        and the full ``ttl`` again. ``ttl`` is written into the record and applies to all, whatever ttl others
        use. Of several takers at the same time one wins.
        """

    async def renew(self, grant: Grant) -> bool:
        """Extend the lease by its ttl from now. False: the term is over, and nothing was changed.

        It must refuse an expired lease, even if nobody has taken it since, and one with another nonce.
        """

    async def release(self, grant: Grant) -> None:
        """Free the lease if it still has this grant's nonce; otherwise do nothing.

        Only the nonce counts: after a take whose outcome is unknown the caller knows no epoch. The epoch
        stays in the record.
        """

    async def read(self, name: str) -> LeaseView | None:
        """Return who holds the lease; None: nobody ever did."""

    async def past_terms(self, name: str, limit: int = 100) -> list[PastTerm]:
        """Return the latest terms, newest first, including the present one. A store keeps at least the last
        16.
        """


class OpenLeases(LeaseStore, Protocol):
    """What ``open_leases`` returns: a store that connects when it is first used, and that must be closed."""

    async def close(self) -> None:
        """Close connections and files. A later call connects again."""

    async def __aenter__(self) -> Self:
        """Return the store."""

    async def __aexit__(self, *_: object) -> None:
        """Close the store."""


class FencingStore(LeaseStore, Protocol):
    """A store in a database that can also hold the leader's own work, so that the epoch can be checked in the
    same transaction: ``term.guard(connection)``.
    """

    def fence(self, grant: Grant) -> Fence:
        """Return the statement that checks the grant."""
