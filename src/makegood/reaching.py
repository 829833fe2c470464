"""Reaching a PostgreSQL server: how it is called in messages, and why it could not be reached, with what to do about it.

The state store, an election's leases and an outbox say the same words.
"""

from urllib.parse import parse_qs, unquote, urlsplit

import asyncpg
from asyncpg import exceptions as pg

from makegood.errors import ConfigError, StoreUnavailableError

POOLING = (
    "the connection goes through a proxy that hands out another server session for each transaction (PgBouncer with "
    "pool_mode=transaction): wake-ups and prepared statements do not survive that; connect to PostgreSQL itself, or use "
    "pool_mode=session for makegood"
)

READ_ONLY = (
    "is read-only (a replica, or default_transaction_read_only is on): name the primary, or wait for the promotion; "
    "nothing was written"
)


def server_of(url: str) -> str:
    """Return where a URL's server is, for messages: host, port, database and user, and never the password.

    Raises ``ConfigError`` for one that cannot be read.
    """
    try:
        parts = urlsplit(url)
        query = parse_qs(parts.query)
        hosts = parts.netloc.rpartition("@")[2] or ",".join(query.get("host", []))
        user = unquote(parts.username or "") or ",".join(query.get("user", []))
    except ValueError:
        raise ConfigError(
            "the store's URL cannot be read: write postgresql://user@host:port/database"
        ) from None
    database = unquote(parts.path.lstrip("/")) or ",".join(query.get("dbname", []))
    named = hosts or "localhost (or PGHOST)"
    if hosts and ":" not in hosts.rpartition("]")[2] and "," not in hosts and not hosts.startswith("/"):
        named += ":5432"
    return f"PostgreSQL at {named}, database {database or '(PGDATABASE)'}, user {user or '(PGUSER)'}"


def refused(fault: BaseException, where: str, *, reached: bool = False) -> Exception:
    """Return why a connection could not be made, with the remedy. ``reached``: one could be made before, so another is awaited,
    whatever the reason now.
    """
    error = _refused(fault, where)
    return StoreUnavailableError(str(error)) if reached and isinstance(error, ConfigError) else error


def _refused(fault: BaseException, where: str) -> Exception:
    said = brief(fault)
    if isinstance(fault, pg.TargetServerAttributeNotMatched | pg.ReadOnlySQLTransactionError):
        return StoreUnavailableError(f"{where} {READ_ONLY}")
    for kinds, error, text in (
        (
            (pg.InvalidPasswordError, pg.InvalidAuthorizationSpecificationError),
            ConfigError,
            f"refuses this user or password ({said}): mend the URL, PGPASSWORD or ~/.pgpass, or the server's pg_hba.conf",
        ),
        (
            (pg.UndefinedObjectError, pg.InvalidParameterValueError, pg.CantChangeRuntimeParamError),
            ConfigError,
            f"does not take a parameter of the URL or of PGOPTIONS ({said}): is it misspelt?",
        ),
        (
            pg.InvalidCatalogNameError,
            ConfigError,
            "has no such database: create it (`createdb`), or mend the URL",
        ),
        (
            (asyncpg.ClientConfigurationError, ValueError, OverflowError),
            ConfigError,
            f"cannot be used: {said}; mend the URL or the PG* environment",
        ),
        (
            (pg.ProtocolViolationError, pg.FeatureNotSupportedError),
            ConfigError,
            f"does not speak as PostgreSQL does ({said}); or {POOLING}",
        ),
        (TimeoutError, StoreUnavailableError, "does not answer: is the address right, and the way open?"),
        (ConnectionRefusedError, StoreUnavailableError, "refuses connections: is PostgreSQL running there?"),
        (
            (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, pg.InternalClientError),
            StoreUnavailableError,
            f"cannot be reached ({said}): is PostgreSQL running there, and is the address right?",
        ),
    ):
        if isinstance(fault, kinds):
            return error(f"{where} {text}")
    return fault if isinstance(fault, Exception) else RuntimeError(str(fault))


def brief(fault: BaseException) -> str:
    """Return a fault's kind and the first line of what it says."""
    text = str(fault).strip().splitlines()
    return f"{type(fault).__name__}: {text[0]}" if text else type(fault).__name__
