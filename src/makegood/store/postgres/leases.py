"""Leases: a row per name that is never deleted, so that an epoch never comes again. The statements are the election's own.

A take waits for a transaction that holds the term (FOR SHARE, as its last statement), but not longer than the lock timeout;
then the answer is no, as if the lease were held, which it is.
"""

from asyncpg import exceptions as pg

from makegood.election.protocol import Grant, LeaseView, PastTerm
from makegood.election.stores.postgres_sql import statements
from makegood.store.postgres.connection import Connection

_SQL = statements("makegood.lease", "makegood.lease_term")


async def acquire(connection: Connection, name: str, holder: str, nonce: str, ttl: float) -> Grant | None:
    """Take a lease that is free, expired or ours already (the same nonce)."""
    try:
        row = await connection.fetchrow(_SQL.acquire, name, holder, nonce, ttl)
    except pg.LockNotAvailableError:
        return None
    return None if row is None else Grant(name, holder, nonce, row["epoch"], ttl)


async def renew(connection: Connection, grant: Grant) -> bool:
    """Extend a lease that is still held; False when the term is over."""
    return await connection.fetchrow(_SQL.renew, grant.name, grant.nonce, grant.epoch) is not None


async def release(connection: Connection, grant: Grant) -> None:
    """Free a lease that is still this grant's."""
    await connection.execute(_SQL.release, grant.name, grant.nonce)


async def read(connection: Connection, name: str) -> LeaseView | None:
    """Return who holds a lease."""
    row = await connection.fetchrow(_SQL.read, name)
    if row is None:
        return None
    return LeaseView(name, row["holder"], row["epoch"], row["ttl"], row["taken_at"], row["remaining"])


async def past_terms(connection: Connection, name: str, limit: int = 100) -> list[PastTerm]:
    """Return the latest terms, newest first."""
    return [PastTerm(*row) for row in await connection.fetch(_SQL.past, name, limit)]
