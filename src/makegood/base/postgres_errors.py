"""Why a PostgreSQL server could not be reached, with the remedy.

The state store, an election's leases and an outbox use the same words.
"""

import re
import ssl
from collections.abc import Sequence
from typing import TypeAlias

import asyncpg
from asyncpg import exceptions as pg

from makegood.base.urls import scrub
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

CONNECTIONS = (
    "a Node needs five, one more for each inbox function at work, and one for each election; raise max_connections, or the limit of "
    "this role or database"
)

NEEDED = 5
"""Connections of a Node."""
MORE_POOLED = "raise the proxy's limit (PgBouncer: default_pool_size, max_db_connections, max_client_conn)"
POOLER_FULL = (
    "A proxy is in between, which may have no connection left for this process: a Node needs five, one more for each inbox function at "
    f"work, and one for each election; {MORE_POOLED}"
)

_POOLER_LIMIT = re.compile(r"query_wait_timeout|max_\w*client_conn")
"""What PgBouncer names when it has no connection left; its texts are not translated."""

_NO_TLS = "rejected SSL upgrade"
"""What the driver says of a server without TLS."""
_NO_AUTHORITY = "root certificate"
"""What the driver says when it has nothing to verify a certificate with."""
_AUTHORITY = (
    "put the certificate of the server's authority there, or name its file with sslrootcert, such as "
    "sslrootcert=/etc/ssl/certs/ca-certificates.crt for a public authority; nothing was sent"
)

LACKING = "{fault}. `makegood store grants` prints the SQL for what each kind of process needs; the owner of the schema applies it"


class PoolerSilentError(TimeoutError):
    """There was no answer in time through a proxy that had answered before."""


class UnreachedError(Exception):
    """No server could be used. ``faults``: the places that were tried, each with its fault."""

    def __init__(self, faults: Sequence[tuple[str, BaseException]]) -> None:
        super().__init__("; ".join(f"{place}: {brief(fault)}" for place, fault in faults))
        self.faults = faults


def is_pooler_full(fault: BaseException) -> bool:
    """Return whether a pooler has no connection left: it says so, or stays silent."""
    return isinstance(fault, PoolerSilentError) or _POOLER_LIMIT.search(str(fault)) is not None


def connect_error(fault: BaseException, where: str, *, url: str, reached: bool = False) -> Exception:
    """Return why a connection to ``url`` failed, with the remedy.

    ``where``: the server's name in the message. ``reached``: an earlier connection succeeded, so the reason
    may pass: it is a ``StoreUnavailableError``, and the caller tries again.
    """
    faults = fault.faults if isinstance(fault, UnreachedError) else [("", fault)]
    reasons: list[tuple[str, type[Exception], str]] = []
    for place, inner_fault in faults:
        reason = _reason(inner_fault, scrub(brief(inner_fault), url))
        if reason is None and len(faults) == 1:
            return inner_fault if isinstance(inner_fault, Exception) else RuntimeError(str(inner_fault))
        reasons.append(
            (place, *(reason or (StoreUnavailableError, f"cannot be used ({brief(inner_fault)})")))
        )
    error = _of_all(reasons, where)
    return StoreUnavailableError(str(error)) if reached and isinstance(error, ConfigError) else error


def _of_all(reasons: Sequence[tuple[str, type[Exception], str]], where: str) -> Exception:
    """Return the error for several servers: what a person must correct at one of them, else all reasons."""
    to_correct = [reason for reason in reasons if reason[1] is ConfigError]
    place, kind, text = (to_correct or reasons)[0]
    if len({text for _, _, text in reasons}) == 1:
        return kind(f"{where} {text}")
    if to_correct:
        return kind(f"{where}: {place} {text}")
    texts = "; ".join(f"{place} {text}" for place, _, text in reasons)
    return kind(f"{where}: no server can be used now: {texts}")


_Reason: TypeAlias = tuple[type[Exception], str]


def _reason(fault: BaseException, message: str) -> _Reason | None:
    """Return the kind of error and the text that follows the server's name; None for other faults."""
    error: type[Exception] = ConfigError
    match fault:
        case pg.TargetServerAttributeNotMatched() | pg.ReadOnlySQLTransactionError():
            error, text = StoreUnavailableError, READ_ONLY
        case ConnectionError() if _NO_TLS in str(fault):
            text = (
                "answers without TLS, and sslmode asks for it: switch TLS on at the server (ssl = on, with a certificate), or name the port "
                "where it is on; where the network is safe, sslmode=prefer connects without; nothing was sent"
            )
        case ssl.SSLCertVerificationError():
            text = (
                f"shows a certificate that cannot be verified ({message}): name its authority's file with sslrootcert, and the host as the "
                "certificate has it"
            )
        case pg.InvalidPasswordError() | pg.InvalidAuthorizationSpecificationError():
            text = f"refuses this user or password ({message}): correct the URL, PGPASSWORD or ~/.pgpass, or the server's pg_hba.conf"
        case pg.UndefinedObjectError() | pg.InvalidParameterValueError() | pg.CantChangeRuntimeParamError():
            text = f"does not take a parameter of the URL or of PGOPTIONS ({message}): is it misspelt?"
        case pg.InsufficientPrivilegeError():
            text = f"is there, but the role may not do this: {LACKING.format(fault=first_line(fault))}"
        case pg.TooManyConnectionsError():
            error, text = StoreUnavailableError, f"has no connection left ({message}): {CONNECTIONS}"
        case PoolerSilentError() | asyncpg.PostgresError() if is_pooler_full(fault):
            trouble = (
                "does not answer in time"
                if isinstance(fault, TimeoutError)
                else f"cannot be reached ({message})"
            )
            error, text = StoreUnavailableError, f"{trouble}. {POOLER_FULL}"
        case pg.InvalidCatalogNameError():
            text = "has no such database: create it (`createdb`), or correct the URL"
        case asyncpg.ClientConfigurationError() | ValueError() | OverflowError():
            text = f"cannot be used: {message}; {_AUTHORITY if _NO_AUTHORITY in str(fault) else 'correct the URL or the PG* environment'}"
        case pg.ProtocolViolationError() | pg.FeatureNotSupportedError():
            text = f"does not speak the protocol of PostgreSQL ({message}); or {POOLING}"
        case TimeoutError():
            error, text = (
                StoreUnavailableError,
                "does not answer: is the address right, or does a firewall block the way?",
            )
        case ConnectionRefusedError():
            error, text = StoreUnavailableError, "refuses connections: is PostgreSQL running there?"
        case OSError() | asyncpg.PostgresError() | asyncpg.InterfaceError() | pg.InternalClientError():
            error = StoreUnavailableError
            text = f"cannot be reached ({message}): is PostgreSQL running there, and is the address right?"
        case _:
            return None
    return error, text


def brief(fault: BaseException) -> str:
    """Return a fault's kind and the first line of its text."""
    text = first_line(fault)
    return f"{type(fault).__name__}: {text}" if text else type(fault).__name__


def first_line(fault: BaseException) -> str:
    """Return the first line of a fault's text; "" for none."""
    return next(iter(str(fault).strip().splitlines()), "")
