"""The fence inside the caller's own transaction, on any supported driver.

The statement finds one row while the grant is current. In PostgreSQL it locks the row FOR SHARE (a plain
read, or KEY SHARE, would let a successor's take proceed: the old leader's transaction would be committed
after the new term had begun). In SQLite it takes the write lock. Either way no take is committed before the
transaction ends.
"""

import contextlib
import inspect
import re
from collections.abc import Awaitable, Iterator, Mapping
from importlib import import_module
from typing import Any

from makegood.election.protocol import Fence, Grant, LeaseStore
from makegood.errors import ConfigError, LeadershipLostError

_NAMED = re.compile(r"(?<!:):([a-z]+)\b")
_NO_TABLE = "42P01"
_IN_TRANSACTION = 2  # psycopg.pq.TransactionStatus.INTRANS, of libpq
_NO_PIPELINE = 0  # psycopg.pq.PipelineStatus.OFF


def guarded(leases: LeaseStore, grant: Grant, connection: Any) -> Awaitable[None] | None:
    """Check the grant in the transaction of ``connection``; returns an awaitable for an async driver.

    Raises ``LeadershipLostError``, ``ConfigError``.
    """
    fence_of = getattr(leases, "fence", None)
    if fence_of is None:
        raise ConfigError(
            f"{type(leases).__name__} is not in a database that a transaction could share: write term.epoch with every change, and let "
            "the resource refuse a lower one"
        )
    fence: Fence = fence_of(grant)
    library = _library(connection)
    if library == "sqlite3":
        _expect(fence, "sqlite", connection)
        _sqlite(connection, fence, grant)
        return None
    if library == "asyncpg":
        _expect(fence, "postgresql", connection)
        return _asyncpg(connection, fence, grant)
    if library == "psycopg":
        _expect(fence, "postgresql", connection)
        return _psycopg(connection, fence, grant)
    if library == "sqlalchemy":
        return _sqlalchemy(connection, fence, grant)
    raise ConfigError(
        f"term.guard() does not know {type(connection).__module__}.{type(connection).__qualname__}: pass a connection of sqlite3, "
        "asyncpg, psycopg, or a Connection or Session of SQLAlchemy"
    )


def _library(connection: Any) -> str:
    roots = [kind.__module__.partition(".")[0] for kind in type(connection).__mro__]
    return next((r for r in roots if r in ("sqlite3", "asyncpg", "psycopg", "sqlalchemy")), "")


def _expect(fence: Fence, dialect: str, connection: Any) -> None:
    if fence.dialect != dialect:
        raise ConfigError(
            f"the leases are kept in {fence.dialect}, the connection is one of {type(connection).__module__}: guard works only "
            "inside one database"
        )


@contextlib.contextmanager
def _one_database() -> Iterator[None]:
    """Explain a missing table of leases, whichever error the driver raises."""
    try:
        yield
    except Exception as wrong:
        cause = getattr(wrong, "orig", wrong)  # SQLAlchemy's
        if getattr(cause, "sqlstate", None) != _NO_TABLE and "no such table" not in str(cause):
            raise
        raise ConfigError(
            "the connection is open on another database than the leases: guard works only inside one"
        ) from wrong


def _verdict(found: bool, grant: Grant) -> None:  # noqa: FBT001 - what was found
    if not found:
        raise LeadershipLostError(
            f"the term {grant.epoch} of {grant.name!r} is over: roll this transaction back", epoch=grant.epoch
        )


def _outside() -> ConfigError:
    return ConfigError(
        "term.guard() outside of a transaction guards nothing: begin one, write, guard, commit"
    )


def _sqlite(connection: Any, fence: Fence, grant: Grant) -> None:
    sqlite3 = import_module("sqlite3")  # It is loaded: the connection comes from it.
    if not connection.in_transaction and connection.isolation_level is None:
        raise _outside()
    try:
        found = connection.execute(fence.sql, fence.values).rowcount == 1
    except sqlite3.OperationalError as wrong:
        if "no such table" in str(wrong):
            raise ConfigError(
                "the connection is open on another file than the leases: guard works only inside one"
            ) from wrong
        raise
    if not connection.in_transaction:
        raise _outside()
    _verdict(found, grant)


async def _asyncpg(connection: Any, fence: Fence, grant: Grant) -> None:
    if not connection.is_in_transaction():
        raise _outside()
    values: list[object] = []

    def numbered(match: re.Match[str]) -> str:
        values.append(fence.values[match[1]])
        return f"${len(values)}"

    sql = _NAMED.sub(numbered, fence.sql)
    with _one_database():
        found = await connection.fetchval(sql, *values)
    _verdict(found is not None, grant)


def _psycopg(connection: Any, fence: Fence, grant: Grant) -> Awaitable[None] | None:
    if inspect.iscoroutinefunction(connection.execute):
        return _psycopg_awaited(connection, fence, grant)
    if _pipelined(connection):
        with (
            connection.pipeline() as pipeline
        ):  # Read the open one: a statement under way may have begun the transaction.
            pipeline.sync()
    sql, values = _psycopg_asks(connection, fence)
    with _one_database():
        found = connection.execute(sql, values).fetchone() is not None
    _verdict(found, grant)
    return None


async def _psycopg_awaited(connection: Any, fence: Fence, grant: Grant) -> None:
    if _pipelined(connection):
        async with connection.pipeline() as pipeline:
            await pipeline.sync()
    sql, values = _psycopg_asks(connection, fence)
    with _one_database():
        found = await (await connection.execute(sql, values)).fetchone() is not None
    _verdict(found, grant)


def _pipelined(connection: Any) -> bool:
    return bool(connection.pgconn.pipeline_status != _NO_PIPELINE)


def _psycopg_asks(connection: Any, fence: Fence) -> tuple[str, Mapping[str, Any]]:
    if connection.autocommit and connection.info.transaction_status != _IN_TRANSACTION:
        raise _outside()
    return _NAMED.sub(r"%(\1)s", fence.sql), fence.values


def _sqlalchemy(connection: Any, fence: Fence, grant: Grant) -> Awaitable[None] | None:
    dialect = (connection.dialect if hasattr(connection, "dialect") else connection.get_bind().dialect).name
    _expect(fence, dialect, connection)
    with _one_database():
        got = connection.execute(import_module("sqlalchemy").text(fence.sql), dict(fence.values))
    if hasattr(got, "__await__"):
        return _sqlalchemy_awaited(connection, got, fence, grant)
    _sqlalchemy_verdict(connection, got, fence, grant)
    return None


async def _sqlalchemy_awaited(connection: Any, going: Awaitable[Any], fence: Fence, grant: Grant) -> None:
    with _one_database():
        got = await going
    _sqlalchemy_verdict(connection, got, fence, grant)


def _sqlalchemy_verdict(connection: Any, got: Any, fence: Fence, grant: Grant) -> None:
    if not connection.in_transaction():
        raise _outside()
    found = got.rowcount == 1 if fence.dialect == "sqlite" else got.first() is not None
    _verdict(found, grant)
