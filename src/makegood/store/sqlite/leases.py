"""Leases: one row per name, never deleted, so that no epoch is reused; and one row per term, for people to
read.
"""

from makegood.election.protocol import Grant, LeaseView, PastTerm
from makegood.election.stores.sqlite_table import Moment, SQLiteLeaseTable
from makegood.store.sqlite.transaction import WriteTransaction
from makegood.store.sqlite.upkeep import pass_by

_LEASES = SQLiteLeaseTable({"LEASE": "makegood_lease", "TERM": "makegood_lease_term"})


def acquire(tx: WriteTransaction, name: str, holder: str, nonce: str, ttl: float) -> Grant | None:
    """Acquire a lease that is free, expired or already ours (the same nonce).

    Returns None if it is not available.
    """
    pass_by(tx)
    return _LEASES.acquire(tx.connection, _moment(tx), Grant(name, holder, nonce, 0, ttl))


def renew(tx: WriteTransaction, grant: Grant) -> bool:
    """Extend a lease that is still held. Returns False if the term is over."""
    return _LEASES.renew(tx.connection, _moment(tx), grant)


def release(tx: WriteTransaction, grant: Grant) -> None:
    """Release a lease, if it still belongs to this grant."""
    _LEASES.release(tx.connection, _moment(tx), grant)


def read(tx: WriteTransaction, name: str) -> LeaseView | None:
    """Return a lease with its holder; None if the lease does not exist."""
    return _LEASES.read(tx.connection, _moment(tx), name)


def past_terms(tx: WriteTransaction, name: str, limit: int = 100) -> list[PastTerm]:
    """Return the latest terms, newest first."""
    return _LEASES.past_terms(tx.connection, name, limit)


def _moment(tx: WriteTransaction) -> Moment:
    return Moment(tx.now, tx.now)
