"""What went wrong, seen from outside: five kinds of faults, and words for people.

*Lost*: the connection is gone; what was under way may or may not have been committed. *Passing*: the server took
everything back by itself (deadlock, lock timeout, cancelled statement), the same again may succeed. *Away*: the server is
there and cannot write now. *Data*: it refuses a value, and will refuse it again. Everything else is a defect, ours or of the
installation, and is raised as it is.
"""

import msgspec
from asyncpg import exceptions as pg
from asyncpg.protocol import Protocol

from makegood.base.postgres_errors import LACKING, POOLING, READ_ONLY, brief, first_line
from makegood.errors import ConfigError, MakegoodError, SchemaMismatchError, StoreUnavailableError

LOST = (
    OSError,
    EOFError,
    pg.PostgresConnectionError,
    pg.AdminShutdownError,
    pg.CrashShutdownError,
    pg.CannotConnectNowError,
    pg.DatabaseDroppedError,
    pg.IdleInTransactionSessionTimeoutError,
    pg.IdleSessionTimeoutError,
    pg.InterfaceError,
    pg.InternalClientError,
)
"""The connection can no longer be used. (An InterfaceError of the driver means: closed, or in a state it does not know.)"""

PASSING = (
    pg.TransactionRollbackError,
    pg.LockNotAvailableError,
    pg.QueryCanceledError,
    pg.InvalidCachedStatementError,
    pg.OutdatedSchemaCacheError,
)
"""Certainly rolled back, and may succeed next time."""

AWAY = (pg.InsufficientResourcesError, pg.ReadOnlySQLTransactionError)
"""Certainly rolled back: disk full, out of memory or connections, or the server is a replica now."""

MISSING = pg.DivisionByZeroError
"""What a statement that deletes rows raises on purpose when one of them is not there (see ``statement``): certainly rolled back."""

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
"""The database, or the encoding, refuses a value: certainly rolled back, and it would be refused again."""

_PROXIED = (pg.InvalidSQLStatementNameError, pg.DuplicatePreparedStatementError)


def is_data(fault: BaseException) -> bool:
    """Return whether the database refused a value (and not the connection, although the driver's families overlap)."""
    return isinstance(fault, DATA)


def is_lost(fault: BaseException) -> bool:
    """Return whether the connection is gone."""
    if isinstance(fault, AttributeError):
        # Dropped between preparing a statement and running it, the driver asks None for one of its protocol's methods.
        return fault.obj is None and hasattr(Protocol, fault.name or "")
    return isinstance(fault, LOST) and not is_data(fault) and not isinstance(fault, PASSING)


def translated(fault: BaseException, where: str) -> Exception:
    """Return a fault as an error of the family that names the server and the remedy; others as they are."""
    if isinstance(fault, MakegoodError):
        return fault
    if isinstance(fault, _PROXIED):
        return ConfigError(f"{where}: {POOLING}")
    if isinstance(fault, pg.ReadOnlySQLTransactionError | pg.TargetServerAttributeNotMatched):
        return StoreUnavailableError(f"{where} {READ_ONLY}")
    if isinstance(fault, pg.UndefinedTableError | pg.UndefinedColumnError | pg.InvalidSchemaNameError):
        return SchemaMismatchError(f"{where}: {fault}: run `makegood store migrate`")
    if isinstance(fault, pg.InsufficientPrivilegeError):
        return ConfigError(f"{where} refuses it to this role: {LACKING.format(fault=first_line(fault))}")
    if is_data(fault):
        return fault if isinstance(fault, Exception) else RuntimeError(str(fault))
    if is_lost(fault) or isinstance(fault, (*LOST, *PASSING, *AWAY, TimeoutError)):
        return StoreUnavailableError(f"{where} did not do it ({brief(fault)}); nothing was written")
    return fault if isinstance(fault, Exception) else RuntimeError(str(fault))


def cause(fault: Exception) -> Exception | None:
    """Return what ``translated`` shall be raised from: an error of the family is its own reason."""
    return None if isinstance(fault, MakegoodError) else fault
