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
        """Flush, then do ``work`` on the session's connection.

        Raises ``TransactionError`` for a session of several engines: each has a transaction of its own, and
        the task must be in that of the caller's rows.
        """
        session = self.connection() if hasattr(self.connection, "registry") else self.connection
        session.flush()
        engines = _engines(session)
        if len(engines) > 1:
            urls = ", ".join(sorted(engine.url.render_as_string() for engine in engines))
            raise TransactionError(
                f"this SQLAlchemy Session works on several engines ({urls}), each with a transaction of its own: pass the connection "
                'that the task belongs to, such as connection=session.connection(bind_arguments={"mapper": Order})'
            )
        bind = {"bind": next(iter(engines.values()))} if engines else {}
        return await SQLAlchemyConnection(session.connection(bind_arguments=bind)).perform(work)


def _engines(session: Any) -> dict[Any, Any]:
    """Return what a session is bound to, as a whole and for its classes, by engine."""
    classes = getattr(session, "binds", None) or vars(session).get("_Session__binds") or {}  # before 2.1
    binds = [session.bind, *classes.values()]
    if _chooses(session):
        binds += [session.get_bind(), *map(session.get_bind, {type(each) for each in session})]
    transaction = session.get_transaction()
    if transaction is not None:  # what its statements were sent to so far
        binds += getattr(transaction, "_connections", ())
    engines: dict[Any, Any] = {}
    for bind in binds:
        if bind is not None:
            engines.setdefault(bind.engine, bind)
    return engines


def _chooses(session: Any) -> bool:
    """Return whether the class of a session chooses an engine by a method of its own."""
    method = getattr(type(session), "get_bind", None)
    return getattr(method, "__module__", "") != "sqlalchemy.orm.session"


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
