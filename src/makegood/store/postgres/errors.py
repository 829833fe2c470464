"""Classifies database faults into five kinds, and explains them to people.

- *Lost*: the connection is gone; the work under way may or may not have been committed.
- *Passing*: the server rolled back everything (deadlock, lock timeout, cancelled statement); a retry may
  succeed.
- *Away*: the server is reachable and cannot write now.
- *Data*: the server refuses a value, and will refuse it again.
- Everything else is a defect, ours or of the installation, and is raised as it is.
"""

import msgspec
from asyncpg import exceptions as pg
from asyncpg.protocol import Protocol

from makegood.base.postgres_errors import LACKING, POOLING, READ_ONLY, brief, first_line
from makegood.errors import ConfigError, MakegoodError, SchemaMismatchError, StoreUnavailableError
from makegood.store.grants import NOT_ALLOWED

LOST = (
    OSError, EOFError, pg.PostgresConnectionError, pg.AdminShutdownError, pg.CrashShutdownError,
    pg.CannotConnectNowError, pg.DatabaseDroppedError, pg.IdleInTransactionSessionTimeoutError,
    pg.IdleSessionTimeoutError, pg.InterfaceError, pg.InternalClientError,
)  # fmt: skip
"""The connection is unusable. (An InterfaceError of the driver means: closed, or in an unknown state.)"""

PASSING = (
    pg.TransactionRollbackError,
    pg.LockNotAvailableError,
    pg.QueryCanceledError,
    pg.InvalidCachedStatementError,
    pg.OutdatedSchemaCacheError,
)
"""Certainly rolled back; a retry may succeed."""

LOCKED = pg.LockNotAvailableError
"""Another transaction holds a row or a table."""

HOLDER = (
    '. Another session holds what was to be changed: docs/operate/security.md, "What a credential can hold up", has the query that finds it, '
    "and the function that ends it"
)

AWAY = (pg.InsufficientResourcesError, pg.ReadOnlySQLTransactionError)
"""Certainly rolled back: disk full, out of memory or connections, or the server is a replica now."""

MISSING = pg.DivisionByZeroError
"""Raised on purpose by a statement that deletes rows when one is missing (see ``commit_statement``).

Certainly rolled back.
"""

DATA = (
    pg.DataError,
    pg._base.DataError,  # noqa: SLF001 - what the driver raises for values that it cannot encode
    pg.IntegrityConstraintViolationError,
    pg.ProgramLimitExceededError,
    msgspec.MsgspecError,
    UnicodeEncodeError,
    OverflowError,
    TypeError,
)
"""The database, or the encoding, refuses a value: certainly rolled back, and a retry
would be refused again.
"""

_PROXIED = (pg.InvalidSQLStatementNameError, pg.DuplicatePreparedStatementError)


def is_data(fault: BaseException) -> bool:
    """Return whether the database refused a value. Such a fault never means a lost connection, although the
    driver's families overlap.
    """
    return isinstance(fault, DATA)


def is_row_held(fault: BaseException) -> bool:
    """Return whether another transaction holds a row, which the server names. Other locks hold up everybody:
    those of tables, and that of notifications.
    """
    return isinstance(fault, LOCKED) and bool(getattr(fault, "context", None))


def is_lost(fault: BaseException) -> bool:
    """Return whether the connection is gone."""
    if isinstance(fault, AttributeError):
        # If the connection is dropped between preparing a statement and running it, the driver looks up a
        # method on None.
        return fault.obj is None and hasattr(Protocol, fault.name or "")
    return isinstance(fault, LOST) and not is_data(fault) and not isinstance(fault, PASSING)


def translate(fault: BaseException, where: str) -> Exception:
    """Return a fault as an error of the family that names the server and the remedy;
    other faults unchanged.
    """
    if isinstance(fault, MakegoodError):
        return fault
    if isinstance(fault, _PROXIED):
        return ConfigError(f"{where}: {POOLING}")
    if isinstance(fault, pg.ReadOnlySQLTransactionError | pg.TargetServerAttributeNotMatched):
        return StoreUnavailableError(f"{where} {READ_ONLY}")
    if isinstance(fault, pg.UndefinedTableError | pg.UndefinedColumnError | pg.InvalidSchemaNameError):
        return SchemaMismatchError(f"{where}: {fault}: run `makegood store migrate`")
    if isinstance(fault, pg.InsufficientPrivilegeError):
        return ConfigError(f"{where} {NOT_ALLOWED}: {LACKING.format(fault=first_line(fault))}")
    if is_data(fault):
        return fault if isinstance(fault, Exception) else RuntimeError(str(fault))
    if is_lost(fault) or isinstance(fault, (*LOST, *PASSING, *AWAY, TimeoutError)):
        remedy = HOLDER if isinstance(fault, LOCKED) else ""
        return StoreUnavailableError(
            f"{where} did not carry out the request ({brief(fault)}); nothing was written{remedy}"
        )
    return fault if isinstance(fault, Exception) else RuntimeError(str(fault))


def cause(fault: Exception) -> Exception | None:
    """Return the cause for an error that ``translate`` returned; None for an error of the family itself."""
    return None if isinstance(fault, MakegoodError) else fault
