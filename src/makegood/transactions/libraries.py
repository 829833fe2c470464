"""Transactions of libraries that bring their own drivers: SQLAlchemy and Django."""

from collections.abc import Sequence
from typing import Any, TypeVar

from makegood.errors import TransactionError
from makegood.transactions.caller import Caller, Row, Work, at_once
from makegood.transactions.drivers import commits_at_once

T = TypeVar("T")

DIALECTS = {"sqlite": "sqlite", "postgresql": "postgres"}
"""Our names of the databases, by the names in the libraries."""


class SQLAlchemyConnection(Caller):
    """A ``Connection`` of SQLAlchemy: it begins a transaction by itself, unless it was set to autocommit."""

    kind = "a SQLAlchemy Connection"

    def __init__(self, connection: Any) -> None:
        dialect = connection.dialect
        super().__init__(connection, dialect=DIALECTS.get(dialect.name, ""), style=dialect.paramstyle)

    async def check(self) -> None:
        """Refuse a connection of SQLite in autocommit mode; on PostgreSQL the store itself finds out."""
        if self.dialect != "sqlite":
            return
        if not self.connection.in_transaction():
            self.connection.begin()  # what its first statement would do
        if commits_at_once(self.connection.connection.driver_connection):
            raise TransactionError(
                'this SQLAlchemy connection has the isolation level "AUTOCOMMIT" and would commit each statement by itself: '
                "submit on one without, inside `with engine.begin() as connection:`"
            )

    async def execute(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Execute a statement as the driver below takes it."""
        result = self.connection.exec_driver_sql(sql, tuple(values))
        return [tuple(row) for row in result] if result.returns_rows else []


class SQLAlchemySession(Caller):
    """A ``Session`` of SQLAlchemy, or a ``scoped_session``. Its pending changes are flushed first."""

    kind = "a SQLAlchemy Session"

    def __init__(self, connection: Any) -> None:
        super().__init__(connection, dialect="", style="")

    async def perform(self, work: Work[T]) -> T:
        """Flush, then do ``work`` on the session's connection."""
        self.connection.flush()
        return await SQLAlchemyConnection(self.connection.connection()).perform(work)


class AsyncSQLAlchemy(Caller):
    """An ``AsyncConnection`` or ``AsyncSession``: ``run_sync`` passes us the blocking one inside."""

    kind = "a SQLAlchemy AsyncConnection or AsyncSession"
    blocks = False
    inner: type[SQLAlchemyConnection] | type[SQLAlchemySession] = SQLAlchemyConnection

    def __init__(self, connection: Any) -> None:
        super().__init__(connection, dialect="", style="")

    async def perform(self, work: Work[T]) -> T:
        """Do ``work`` on the blocking connection inside."""

        def inside(connection: Any) -> T:
            return at_once(self.inner(connection).perform(work))

        result: T = await self.connection.run_sync(inside)
        return result


class AsyncSQLAlchemySession(AsyncSQLAlchemy):
    """An ``AsyncSession``, or an ``async_scoped_session``."""

    inner = SQLAlchemySession


class Django(Caller):
    """``django.db.connection``, or one of ``django.db.connections``."""

    kind = "a Django connection"

    def __init__(self, connection: Any) -> None:
        super().__init__(connection, dialect=DIALECTS.get(connection.vendor, ""), style="format")

    async def check(self) -> None:
        """Refuse a connection outside ``atomic()``, and one whose block is certain to be rolled back."""
        if not self.connection.in_atomic_block and self.connection.get_autocommit():
            raise TransactionError(
                "this Django connection is outside of a transaction and would commit each statement by itself: submit inside "
                "`with transaction.atomic():`"
            )
        if self.connection.needs_rollback:
            raise TransactionError(
                "this Django transaction will be rolled back, since something failed in it: nothing can be submitted in it"
            )

    async def execute(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Execute a statement."""
        with self.connection.cursor() as cursor:
            cursor.execute(sql, tuple(values))
            return [tuple(row) for row in cursor.fetchall()] if cursor.description else []
