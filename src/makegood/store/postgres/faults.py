"""What went wrong, seen from outside: five kinds of faults, and words for people.

*Lost*: the connection is gone; what was under way may or may not have been committed. *Passing*: the server took
everything back by itself (deadlock, lock timeout, cancelled statement), the same again may succeed. *Away*: the server is
there and cannot write now. *Data*: it refuses a value, and will refuse it again. Everything else is a defect, ours or of the
installation, and is raised as it is.
"""

import asyncpg
import msgspec
from asyncpg import exceptions as pg
from asyncpg.protocol import Protocol

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

POOLING = (
    "the connection goes through a proxy that hands out another server session for each transaction (PgBouncer with "
    "pool_mode=transaction): wake-ups and prepared statements do not survive that; connect to PostgreSQL itself, or use "
    "pool_mode=session for makegood"
)


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
        return StoreUnavailableError(
            f"{where} is read-only (a replica, or default_transaction_read_only is on): name the primary, or wait for the "
            "promotion; nothing was written"
        )
    if isinstance(fault, pg.UndefinedTableError | pg.UndefinedColumnError | pg.InvalidSchemaNameError):
        return SchemaMismatchError(f"{where}: {fault}: run `makegood store migrate`")
    if isinstance(fault, pg.InsufficientPrivilegeError):
        return ConfigError(
            f"{where}: {fault}; the role must own the schema makegood, or be granted it by its owner"
        )
    if is_data(fault):
        return fault if isinstance(fault, Exception) else RuntimeError(str(fault))
    if is_lost(fault) or isinstance(fault, (*LOST, *PASSING, *AWAY, TimeoutError)):
        return StoreUnavailableError(f"{where} did not do it ({_brief(fault)}); nothing was written")
    return fault if isinstance(fault, Exception) else RuntimeError(str(fault))


def cause(fault: Exception) -> Exception | None:
    """Return what ``translated`` shall be raised from: an error of the family is its own reason."""
    return None if isinstance(fault, MakegoodError) else fault


def refused(fault: BaseException, where: str) -> Exception:
    """Return why a connection could not be made, with the remedy."""
    brief = _brief(fault)
    if isinstance(fault, pg.TargetServerAttributeNotMatched | pg.ReadOnlySQLTransactionError):
        return translated(fault, where)
    for kinds, error, text in (
        (
            (pg.InvalidPasswordError, pg.InvalidAuthorizationSpecificationError),
            ConfigError,
            f"refuses this user or password ({brief}): mend the URL, PGPASSWORD or ~/.pgpass, or the server's pg_hba.conf",
        ),
        (
            (pg.UndefinedObjectError, pg.InvalidParameterValueError, pg.CantChangeRuntimeParamError),
            ConfigError,
            f"does not take a parameter of the URL or of PGOPTIONS ({brief}): is it misspelt?",
        ),
        (
            pg.InvalidCatalogNameError,
            ConfigError,
            "has no such database: create it (`createdb`), or mend the URL",
        ),
        (
            (asyncpg.ClientConfigurationError, ValueError, OverflowError),
            ConfigError,
            f"cannot be used: {brief}; mend the URL or the PG* environment",
        ),
        (
            (pg.ProtocolViolationError, pg.FeatureNotSupportedError),
            ConfigError,
            f"does not speak as PostgreSQL does ({brief}); or {POOLING}",
        ),
        (TimeoutError, StoreUnavailableError, "does not answer: is the address right, and the way open?"),
        (ConnectionRefusedError, StoreUnavailableError, "refuses connections: is PostgreSQL running there?"),
        (
            (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, pg.InternalClientError),
            StoreUnavailableError,
            f"cannot be reached ({brief}): is PostgreSQL running there, and is the address right?",
        ),
    ):
        if isinstance(fault, kinds):
            return error(f"{where} {text}")
    return fault if isinstance(fault, Exception) else RuntimeError(str(fault))


def _brief(fault: BaseException) -> str:
    text = str(fault).strip().splitlines()
    return f"{type(fault).__name__}: {text[0]}" if text else type(fault).__name__
