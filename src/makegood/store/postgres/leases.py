"""Leases: one row per name, never deleted, so an epoch is never reused. The statements
belong to the election.

An ``acquire`` waits for a transaction that holds the term (FOR SHARE, as its last statement), but at most for
the lock timeout. Then the answer is None, as for a held lease: the lease is held.
"""

from asyncpg import exceptions as pg

from makegood.base.stored_values import record_of
from makegood.election.protocol import Grant, LeaseView, PastTerm
from makegood.election.stores.postgres_sql import statements
from makegood.store.postgres.connection import Connection

_SQL = statements("makegood.lease", "makegood.lease_term")


async def acquire(connection: Connection, name: str, holder: str, nonce: str, ttl: float) -> Grant | None:
    """Take a lease that is free, expired or already ours (the same nonce)."""
    try:
        row = await connection.fetchrow(_SQL.acquire, name, holder, nonce, ttl)
    except pg.LockNotAvailableError:
        return None
    return None if row is None else Grant(name, holder, nonce, row["epoch"], ttl)


async def renew(connection: Connection, grant: Grant) -> bool:
    """Extend a lease that is still held; False if the term is over."""
    return await connection.fetchrow(_SQL.renew, grant.name, grant.nonce, grant.epoch) is not None


async def release(connection: Connection, grant: Grant) -> None:
    """Free a lease that is still held by this grant."""
    await connection.execute(_SQL.release, grant.name, grant.nonce)


async def read(connection: Connection, name: str) -> LeaseView | None:
    """Return the holder of a lease."""
    row = await connection.fetchrow(_SQL.read, name)
    if row is None:
        return None
    return record_of(
        LeaseView, (name, row["holder"], row["epoch"], row["ttl"], row["taken_at"], row["remaining"])
    )


async def past_terms(connection: Connection, name: str, limit: int = 100) -> list[PastTerm]:
    """Return the latest terms, newest first."""
    return [record_of(PastTerm, row) for row in await connection.fetch(_SQL.past, name, limit)]
