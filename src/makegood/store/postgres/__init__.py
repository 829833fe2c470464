"""The state store on PostgreSQL 14 or later: ``PostgresStore``.

Needs the extra ``makegood[postgres]`` (asyncpg).
"""

from makegood.store.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
