"""Transactions on bare drivers: sqlite3, asyncpg, psycopg."""

from collections.abc import Sequence
from typing import Any

from makegood.errors import TransactionError
from makegood.transactions.caller import Caller, Row

_IDLE = 0  # psycopg's TransactionStatus: no transaction is open
_NO_PIPELINE = 0  # psycopg's PipelineStatus: each statement is waited for


def commits_at_once(connection: Any) -> bool:
    """Whether what is written on a connection of sqlite3 (or aiosqlite) now would be committed by itself."""
    if connection.in_transaction:
        return False
    mode = getattr(connection, "autocommit", -1)  # since Python 3.12; -1: the old way, by its isolation level
    return mode is True or (mode == -1 and connection.isolation_level is None)


class SQLite(Caller):
    """A ``sqlite3.Connection``. Unless it is in autocommit mode the driver begins a transaction with the
    first write.
    """

    kind = "sqlite3.Connection"

    def __init__(self, connection: Any) -> None:
        super().__init__(connection, dialect="sqlite", style="qmark")

    async def check(self) -> None:
        """Refuse a connection in autocommit mode on which no transaction is open."""
        if commits_at_once(self.connection):
            raise TransactionError(
                "this sqlite3 connection has no open transaction and would commit each statement by itself (isolation_level is "
                'None, or autocommit is True): `connection.execute("begin immediate")` first, and commit afterwards'
            )

    async def execute(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Execute a statement, whatever kind of rows the connection makes for its owner."""
        cursor = self.connection.cursor()
        cursor.row_factory = None
        try:
            rows: list[Row] = cursor.execute(sql, values).fetchall()
            return rows
        finally:
            cursor.close()


class Asyncpg(Caller):
    """A connection of asyncpg, or one lent by its pool."""

    kind = "an asyncpg connection"
    blocks = False

    def __init__(self, connection: Any) -> None:
        super().__init__(connection, dialect="postgres", style="numeric_dollar")

    async def check(self) -> None:
        """Refuse a connection on which no transaction is open."""
        if not self.connection.is_in_transaction():
            raise TransactionError(
                "this asyncpg connection has no open transaction and would commit each statement by itself: submit inside "
                "`async with connection.transaction():`"
            )

    async def execute(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Execute a statement."""
        return [tuple(row) for row in await self.connection.fetch(sql, *values)]


class _AnyPsycopg(Caller):
    """In pipeline mode, neither the result of a statement nor its effect on the transaction is known until
    the pipeline is synced. So this class syncs after each of its own statements, and syncs the caller's
    before it inspects the connection.
    """

    def __init__(self, connection: Any) -> None:
        raw = any(kind.__name__ == "RawCursorMixin" for kind in connection.cursor_factory.__mro__)
        super().__init__(connection, dialect="postgres", style="numeric_dollar" if raw else "format")

    @property
    def _is_pipeline(self) -> bool:
        return bool(self.connection.pgconn.pipeline_status != _NO_PIPELINE)

    def _refuse_autocommit(self) -> None:
        if self.connection.autocommit and self.connection.info.transaction_status == _IDLE:
            raise TransactionError(
                "this psycopg connection is in autocommit mode and has no open transaction: submit inside "
                "`with connection.transaction():` (`async with` when it is an AsyncConnection)"
            )


class Psycopg(_AnyPsycopg):
    """A ``psycopg.Connection``."""

    kind = "psycopg.Connection"

    async def check(self) -> None:
        """Refuse a connection in autocommit mode on which no transaction is open."""
        self._sync()
        self._refuse_autocommit()

    def _sync(self) -> None:
        if self._is_pipeline:
            with self.connection.pipeline() as pipeline:  # the one that is open
                pipeline.sync()

    async def execute(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Execute a statement, whatever kind of rows the connection makes for its owner."""
        with self.connection.cursor(row_factory=_tuples) as cursor:
            cursor.execute(sql, values)
            self._sync()
            rows: list[Row] = cursor.fetchall() if cursor.description else []
            return rows


class AsyncPsycopg(_AnyPsycopg):
    """A ``psycopg.AsyncConnection``."""

    kind = "psycopg.AsyncConnection"
    blocks = False

    async def check(self) -> None:
        """Refuse a connection in autocommit mode on which no transaction is open."""
        await self._sync()
        self._refuse_autocommit()

    async def _sync(self) -> None:
        if self._is_pipeline:
            async with self.connection.pipeline() as pipeline:  # the one that is open
                await pipeline.sync()

    async def execute(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Execute a statement, whatever kind of rows the connection makes for its owner."""
        async with self.connection.cursor(row_factory=_tuples) as cursor:
            await cursor.execute(sql, values)
            await self._sync()
            rows: list[Row] = await cursor.fetchall() if cursor.description else []
            return rows


def _tuples(_: Any) -> Any:
    return tuple
