"""Leases: a row per name that is never deleted, so that an epoch never comes again."""

from makegood.store.records import Grant, LeaseView
from makegood.store.sqlite.transaction import Transaction
from makegood.store.sqlite.upkeep import pass_by

_ACQUIRE = """
insert into makegood_lease as l (name, holder, nonce, epoch, ttl, expires_at, taken_at) values (?, ?, ?, 1, ?, ?, ?)
on conflict (name) do update set
    epoch = case when l.nonce = excluded.nonce then l.epoch else l.epoch + 1 end,
    taken_at = case when l.nonce = excluded.nonce then l.taken_at else excluded.taken_at end,
    holder = excluded.holder, nonce = excluded.nonce, ttl = excluded.ttl, expires_at = excluded.expires_at
where l.holder is null or l.expires_at <= excluded.taken_at or l.nonce = excluded.nonce
returning epoch
"""
_RENEW = """
update makegood_lease set expires_at = ? + ttl
where name = ? and nonce = ? and epoch = ? and holder is not null and expires_at > ?
"""
_RELEASE = "update makegood_lease set holder = null, nonce = '' where name = ? and nonce = ? and epoch = ?"
_READ = "select holder, epoch, ttl, taken_at, expires_at from makegood_lease where name = ?"


def acquire(tx: Transaction, wanted: Grant) -> Grant | None:
    """Take a lease that is free, expired or ours already; ``wanted.epoch`` does not matter."""
    values = (wanted.name, wanted.holder, wanted.nonce, wanted.ttl, tx.now + wanted.ttl, tx.now)
    got = tx.rows(_ACQUIRE, values)
    pass_by(tx)
    return Grant(wanted.name, wanted.holder, wanted.nonce, got[0][0], wanted.ttl) if got else None


def renew(tx: Transaction, grant: Grant) -> bool:
    """Extend a lease that is still held; False when the term is over."""
    return tx.run(_RENEW, (tx.now, grant.name, grant.nonce, grant.epoch, tx.now)) == 1


def release(tx: Transaction, grant: Grant) -> None:
    """Free a lease that is still this grant's."""
    tx.run(_RELEASE, (grant.name, grant.nonce, grant.epoch))


def read(tx: Transaction, name: str) -> LeaseView | None:
    """Return who holds a lease."""
    for holder, epoch, ttl, taken_at, expires_at in tx.rows(_READ, (name,)):
        return LeaseView(name, holder, epoch, ttl, taken_at, expires_at - tx.now)
    return None
