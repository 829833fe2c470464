"""Leases: one row per name, never deleted, so that no epoch is reused; and one row per term, for people to
read.
"""

from makegood.base.stored_values import record_of
from makegood.election.protocol import Grant, LeaseView, PastTerm
from makegood.store.sqlite.transaction import WriteTransaction, are_numbers
from makegood.store.sqlite.upkeep import pass_by

KEPT = 1000
"""The most terms kept per lease."""

_BEFORE = "select expires_at from makegood_lease where name = ?"
_ACQUIRE = """
insert into makegood_lease as l (name, holder, nonce, epoch, ttl, expires_at, taken_at)
values (?1, ?2, ?3, coalesce((select max(cast(epoch as integer)) from makegood_lease_term where name = ?1), 0) + 1, ?4, ?5, ?6)
on conflict (name) do update set
    epoch = case when l.nonce = excluded.nonce then cast(l.epoch as integer) else cast(l.epoch as integer) + 1 end,
    taken_at = case when l.nonce = excluded.nonce then l.taken_at else excluded.taken_at end,
    holder = excluded.holder, nonce = excluded.nonce, ttl = excluded.ttl, expires_at = excluded.expires_at
where l.holder is null or cast(l.expires_at as real) <= excluded.taken_at or l.nonce = excluded.nonce
returning epoch
"""
_RAN_OUT = "update makegood_lease_term set ended_at = ? where name = ? and ended_at is null and epoch < ?"
_BEGUN = """
insert into makegood_lease_term (name, epoch, holder, began_at, released) values (?, ?, ?, ?, 0)
on conflict (name, epoch) do nothing
"""
_TRIM = "delete from makegood_lease_term where name = ? and epoch <= ?"
_RENEW = """
update makegood_lease set expires_at = ? + ttl
where name = ? and nonce = ? and epoch = ? and holder is not null and expires_at > ?
"""
_RELEASE = (
    "update makegood_lease set holder = null, nonce = '' where name = ? and nonce = ? and holder is not null"
)
_GIVEN_BACK = "update makegood_lease_term set ended_at = ?, released = 1 where name = ? and ended_at is null"
_READ = "select holder, epoch, ttl, taken_at, expires_at from makegood_lease where name = ?"
_PAST = """
select epoch, holder, began_at, ended_at, released from makegood_lease_term where name = ? order by epoch desc limit ?
"""


def acquire(tx: WriteTransaction, name: str, holder: str, nonce: str, ttl: float) -> Grant | None:
    """Acquire a lease that is free, expired or already ours (the same nonce).

    Returns None if it is not available.
    """
    before = tx.rows(_BEFORE, (name,))
    rows = tx.rows(_ACQUIRE, (name, holder, nonce, ttl, tx.now + ttl, tx.now))
    pass_by(tx)
    if not rows:
        return None
    epoch: int = rows[0][0]
    if before:
        tx.run(_RAN_OUT, (min(before[0][0], tx.now) if are_numbers(before[0][0]) else tx.now, name, epoch))
    tx.run(_BEGUN, (name, epoch, holder, tx.now))
    tx.run(_TRIM, (name, epoch - KEPT))
    return Grant(name, holder, nonce, epoch, ttl)


def renew(tx: WriteTransaction, grant: Grant) -> bool:
    """Extend a lease that is still held. Returns False if the term is over."""
    return tx.run(_RENEW, (tx.now, grant.name, grant.nonce, grant.epoch, tx.now)) == 1


def release(tx: WriteTransaction, grant: Grant) -> None:
    """Release a lease, if it still belongs to this grant."""
    if tx.run(_RELEASE, (grant.name, grant.nonce)) == 1:
        tx.run(_GIVEN_BACK, (tx.now, grant.name))


def read(tx: WriteTransaction, name: str) -> LeaseView | None:
    """Return a lease with its holder; None if the lease does not exist."""
    for holder, epoch, ttl, taken_at, expires_at in tx.rows(_READ, (name,)):
        remaining = expires_at - tx.now if are_numbers(expires_at) else 0.0
        return record_of(LeaseView, (name, holder, epoch, ttl, taken_at, remaining))
    return None


def past_terms(tx: WriteTransaction, name: str, limit: int = 100) -> list[PastTerm]:
    """Return the latest terms, newest first."""
    rows = tx.rows(_PAST, (name, limit))
    return [record_of(PastTerm, row) for row in rows]
