"""Recognises connections by the names of their classes, so that no driver or library has to be imported."""

from collections.abc import Callable
from typing import Any

from makegood.errors import TransactionError
from makegood.transactions.caller import MARKS, Caller
from makegood.transactions.drivers import Asyncpg, AsyncPsycopg, Psycopg, SQLite
from makegood.transactions.libraries import (
    AsyncSQLAlchemy,
    AsyncSQLAlchemySession,
    Django,
    SQLAlchemyConnection,
    SQLAlchemySession,
)

_KNOWN: dict[str, Callable[[Any], Caller]] = {
    "sqlite3.Connection": SQLite,
    "asyncpg.connection.Connection": Asyncpg,
    "asyncpg.pool.PoolConnectionProxy": Asyncpg,
    "psycopg.Connection": Psycopg,
    "psycopg.AsyncConnection": AsyncPsycopg,
    "sqlalchemy.engine.base.Connection": SQLAlchemyConnection,
    "sqlalchemy.orm.session.Session": SQLAlchemySession,
    "sqlalchemy.orm.scoping.scoped_session": SQLAlchemySession,
    "sqlalchemy.ext.asyncio.engine.AsyncConnection": AsyncSQLAlchemy,
    "sqlalchemy.ext.asyncio.session.AsyncSession": AsyncSQLAlchemySession,
    "sqlalchemy.ext.asyncio.scoping.async_scoped_session": AsyncSQLAlchemySession,
    "django.db.backends.base.base.BaseDatabaseWrapper": Django,
    "django.utils.connection.ConnectionProxy": Django,
}

_NEARLY = {
    "sqlalchemy.engine.base.Engine": "`with engine.begin() as connection:`",
    "sqlalchemy.ext.asyncio.engine.AsyncEngine": "`async with engine.begin() as connection:`",
    "sqlalchemy.orm.session.sessionmaker": "`with sessionmaker.begin() as session:`",
    "sqlalchemy.ext.asyncio.session.async_sessionmaker": "`async with sessionmaker.begin() as session:`",
    "asyncpg.pool.Pool": "`async with pool.acquire() as connection, connection.transaction():`",
    "psycopg_pool.pool.ConnectionPool": "`with pool.connection() as connection:`",
    "psycopg_pool.pool_async.AsyncConnectionPool": "`async with pool.connection() as connection:`",
    "sqlite3.Cursor": "`cursor.connection`",
    "psycopg.Cursor": "`cursor.connection`",
    "psycopg.AsyncCursor": "`cursor.connection`",
}


def recognise(connection: Any) -> Caller:
    """Return the open transaction of a connection of a known kind.

    Raises ``TransactionError`` for any other kind, since it is unknown how that would commit.
    """
    if (caller := recognise_known(connection)) is not None:
        return caller
    for name in _names(connection):
        if name in _NEARLY:
            raise TransactionError(
                f"connection= takes the connection whose transaction is open, not {_a(connection)}: {_NEARLY[name]}"
            )
    raise TransactionError(
        f"connection= is {_a(connection)}, which is not supported: pass a connection of sqlite3, asyncpg or psycopg, a Connection or Session of "
        "SQLAlchemy (the async ones too), or django.db.connection"
    )


def recognise_known(connection: Any) -> Caller | None:
    """Return the open transaction of a connection, as ``recognise`` does; None for an unsupported kind."""
    if isinstance(caller := getattr(connection, "caller", None), Caller):
        return caller  # a ``Transaction``
    kinds = [_KNOWN[name] for name in _names(connection) if name in _KNOWN]
    return _with_dialect(kinds[0](connection)) if kinds else None


def _names(connection: Any) -> list[str]:
    return [f"{kind.__module__}.{kind.__qualname__}" for kind in type(connection).__mro__]


def _with_dialect(caller: Caller) -> Caller:
    if caller.style and caller.style not in MARKS:
        raise TransactionError(
            f"{caller.kind} whose driver has the parameter style {caller.style!r} is not supported: use one of {', '.join(MARKS)}"
        )
    return caller


def _a(connection: Any) -> str:
    kind = type(connection)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
