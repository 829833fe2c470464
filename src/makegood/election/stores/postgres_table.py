"""The verbs of a lease in PostgreSQL, for the election's own tables and for those of the state store.

Each verb is one statement, on a connection that has no transaction open.
"""

from asyncpg import exceptions as pg

from makegood.base.postgres_session import Connection
from makegood.base.stored_values import record_of
from makegood.election.protocol import Grant, LeaseView, PastTerm
from makegood.election.stores import postgres_sql as sql


class PostgresLeaseTable:
    """The verbs over two tables: (name, holder, nonce, epoch, ttl, expires_at, taken_at) and
    (name, epoch, holder, began_at, ended_at, released).
    """

    def __init__(self, lease_table: str, term_table: str) -> None:
        self._acquire, self._renew, self._release, self._read, self._past, self.fence = [
            sql.over(text, lease_table, term_table)
            for text in (sql.ACQUIRE, sql.RENEW, sql.RELEASE, sql.READ, sql.PAST, sql.FENCE)
        ]

    async def acquire(
        self, connection: Connection, name: str, holder: str, nonce: str, ttl: float
    ) -> Grant | None:
        """Take a lease that is free, expired or already ours (the same nonce).

        It waits for a transaction that holds the term (FOR SHARE, as its last statement), but at most for the
        lock timeout. Then the answer is None, as for a held lease: the lease is held.
        """
        try:
            epoch = await connection.fetchval(self._acquire, name, holder, nonce, ttl)
        except pg.LockNotAvailableError:
            return None
        return None if epoch is None else Grant(name, holder, nonce, epoch, ttl)

    async def renew(self, connection: Connection, grant: Grant) -> bool:
        """Extend a lease that is still held; False if the term is over."""
        return await connection.fetchval(self._renew, grant.name, grant.nonce, grant.epoch) is not None

    async def release(self, connection: Connection, grant: Grant) -> None:
        """Free a lease that is still held by this grant."""
        await connection.execute(self._release, grant.name, grant.nonce)

    async def read(self, connection: Connection, name: str) -> LeaseView | None:
        """Return the holder of a lease; None if nobody ever held it."""
        row = await connection.fetchrow(self._read, name)
        return None if row is None else record_of(LeaseView, row)

    async def past_terms(self, connection: Connection, name: str, limit: int = 100) -> list[PastTerm]:
        """Return the latest terms, newest first."""
        return [record_of(PastTerm, row) for row in await connection.fetch(self._past, name, limit)]
