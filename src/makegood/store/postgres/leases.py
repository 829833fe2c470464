"""Leases: a row per name that is never deleted, so that an epoch never comes again.

A take waits for a transaction that holds the term (FOR SHARE, as its last statement), but not longer than the lock timeout;
then the answer is no, as if the lease were held, which it is.
"""

from asyncpg import exceptions as pg

from makegood.store.postgres.link import Connection
from makegood.store.records import Grant, LeaseView

_ACQUIRE = """
insert into makegood.lease as l (name, holder, nonce, epoch, ttl, expires_at, taken_at)
values ($1, $2, $3, 1, $4, extract(epoch from clock_timestamp())::float8 + $4, extract(epoch from clock_timestamp())::float8)
on conflict (name) do update set
    epoch = case when l.nonce = $3 then l.epoch else l.epoch + 1 end,
    taken_at = case when l.nonce = $3 then l.taken_at else extract(epoch from clock_timestamp())::float8 end,
    holder = $2, nonce = $3, ttl = $4, expires_at = extract(epoch from clock_timestamp())::float8 + $4
where l.holder is null or l.expires_at <= extract(epoch from clock_timestamp())::float8 or l.nonce = $3
returning epoch
"""
_RENEW = """
update makegood.lease set expires_at = extract(epoch from clock_timestamp())::float8 + ttl
where name = $1 and nonce = $2 and epoch = $3 and holder is not null
    and expires_at > extract(epoch from clock_timestamp())::float8
returning 1
"""
_RELEASE = "update makegood.lease set holder = null, nonce = '' where name = $1 and nonce = $2 and epoch = $3"
_READ = """
select holder, epoch, ttl, taken_at, expires_at - extract(epoch from clock_timestamp())::float8 as remaining
from makegood.lease where name = $1
"""


async def acquire(connection: Connection, name: str, holder: str, nonce: str, ttl: float) -> Grant | None:
    """Take a lease that is free, expired or ours already (the same nonce)."""
    try:
        row = await connection.fetchrow(_ACQUIRE, name, holder, nonce, ttl)
    except pg.LockNotAvailableError:
        return None
    return None if row is None else Grant(name, holder, nonce, row["epoch"], ttl)


async def renew(connection: Connection, grant: Grant) -> bool:
    """Extend a lease that is still held; False when the term is over."""
    return await connection.fetchrow(_RENEW, grant.name, grant.nonce, grant.epoch) is not None


async def release(connection: Connection, grant: Grant) -> None:
    """Free a lease that is still this grant's."""
    await connection.execute(_RELEASE, grant.name, grant.nonce, grant.epoch)


async def read(connection: Connection, name: str) -> LeaseView | None:
    """Return who holds a lease."""
    row = await connection.fetchrow(_READ, name)
    if row is None:
        return None
    return LeaseView(name, row["holder"], row["epoch"], row["ttl"], row["taken_at"], row["remaining"])
