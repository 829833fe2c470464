"""Reaching a PostgreSQL server: its name in messages, and why it could not be reached, with the remedy.

The state store, an election's leases and an outbox use the same words.
"""

from urllib.parse import parse_qs, unquote

import asyncpg
from asyncpg import exceptions as pg

from makegood.base.urls import parts_of, scrubbed
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

OWN_PATH = "select pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false)"
"""The first statement on each of makegood's own connections.

From then on a name without a schema means the server's own object: an operator or a function that another
role created in ``public`` is never used.
"""

LACKING = "{fault}. `makegood store grants` prints the SQL for what each kind of process needs; the owner of the schema applies it"


def server_of(url: str, what: str = "the store's URL") -> str:
    """Return where a URL's server is, for messages: host, port, database and user, and never the password.

    Raises ``ConfigError``, naming ``what``, for a URL that cannot be read.
    """
    parts = parts_of(url, what)
    query = parse_qs(parts.query)
    hosts = parts.netloc.rpartition("@")[2] or ",".join(query.get("host", []))
    user = unquote(parts.username or "") or ",".join(query.get("user", []))
    database = unquote(parts.path.lstrip("/")) or ",".join(query.get("dbname", []))
    named = hosts or "localhost (or PGHOST)"
    if hosts and ":" not in hosts.rpartition("]")[2] and "," not in hosts and not hosts.startswith("/"):
        named += ":5432"
    return f"PostgreSQL at {named}, database {database or '(PGDATABASE)'}, user {user or '(PGUSER)'}"


def refused(fault: BaseException, where: str, *, url: str, reached: bool = False) -> Exception:
    """Return why a connection to ``url`` failed, with the remedy.

    ``reached``: an earlier connection succeeded, so the caller waits for another, whatever the reason now.
    """
    error = _connection_error(fault, where, scrubbed(brief(fault), url))
    return StoreUnavailableError(str(error)) if reached and isinstance(error, ConfigError) else error


def _connection_error(fault: BaseException, where: str, said: str) -> Exception:
    error: type[Exception] = ConfigError
    match fault:
        case pg.TargetServerAttributeNotMatched() | pg.ReadOnlySQLTransactionError():
            error, text = StoreUnavailableError, READ_ONLY
        case pg.InvalidPasswordError() | pg.InvalidAuthorizationSpecificationError():
            text = f"refuses this user or password ({said}): correct the URL, PGPASSWORD or ~/.pgpass, or the server's pg_hba.conf"
        case pg.UndefinedObjectError() | pg.InvalidParameterValueError() | pg.CantChangeRuntimeParamError():
            text = f"does not take a parameter of the URL or of PGOPTIONS ({said}): is it misspelt?"
        case pg.InsufficientPrivilegeError():
            text = f"is there, and the role may not do this: {LACKING.format(fault=first_line(fault))}"
        case pg.InvalidCatalogNameError():
            text = "has no such database: create it (`createdb`), or correct the URL"
        case asyncpg.ClientConfigurationError() | ValueError() | OverflowError():
            text = f"cannot be used: {said}; correct the URL or the PG* environment"
        case pg.ProtocolViolationError() | pg.FeatureNotSupportedError():
            text = f"does not speak as PostgreSQL does ({said}); or {POOLING}"
        case TimeoutError():
            error, text = StoreUnavailableError, "does not answer: is the address right, and the way open?"
        case ConnectionRefusedError():
            error, text = StoreUnavailableError, "refuses connections: is PostgreSQL running there?"
        case OSError() | asyncpg.PostgresError() | asyncpg.InterfaceError() | pg.InternalClientError():
            error = StoreUnavailableError
            text = f"cannot be reached ({said}): is PostgreSQL running there, and is the address right?"
        case _:
            return fault if isinstance(fault, Exception) else RuntimeError(str(fault))
    return error(f"{where} {text}")


def brief(fault: BaseException) -> str:
    """Return a fault's kind and the first line of its text."""
    text = first_line(fault)
    return f"{type(fault).__name__}: {text}" if text else type(fault).__name__


def first_line(fault: BaseException) -> str:
    """Return the first line of a fault's text; "" for none."""
    return next(iter(str(fault).strip().splitlines()), "")
