"""An outbox in an application's own database, for orders to a store elsewhere.

The application inserts into the table ``makegood_outbox`` in the transaction of its own rows. A relay
(``makegood inbox --from URL``) puts each entry in a queue of the store and then deletes it. No transaction
spans the two databases: after a relay dies in between, the entry is sent once more, and the queue knows its
key.

``sqlite:///relative/path.db``, ``sqlite:////absolute/path.db``, ``postgresql://user@host/database``.
"""

from importlib import import_module

from makegood.base.extras import optional
from makegood.base.file_paths import file_of
from makegood.base.private_files import secret_in
from makegood.base.urls import parts_of, path_hint, scheme_hint, scheme_of
from makegood.errors import ConfigError
from makegood.messaging.outbox.protocol import Entry, Outbox, TakenEntries

__all__ = ["Entry", "Outbox", "TakenEntries", "ddl", "open_outbox"]

_TABLE = """\
create table if not exists makegood_outbox (
    seq {seq},
    key text not null,
    queue text not null,
    payload text not null,
    reply_to text,
    correlation_id text,
    created_at {created},
    error text,
    unique (queue, key)
){options};"""
_SQLITE = _TABLE.format(
    seq="integer primary key autoincrement", created="text not null default current_timestamp", options=""
)
_POSTGRES = _TABLE.format(
    seq="bigint generated always as identity primary key",
    created="timestamptz not null default clock_timestamp()",
    options=" with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000)",
)


def _scheme(url: str) -> str:
    scheme = scheme_of(url)
    if scheme not in ("sqlite", "postgresql", "postgres"):
        subject = f"the scheme {scheme!r}" if scheme else "this text"
        raise ConfigError(
            f"{subject} names no outbox: an outbox is in sqlite:///file.db or postgresql://user@host/database{scheme_hint(scheme)}{path_hint(url)}"
        )
    if scheme != "sqlite":
        parts_of(url, "the outbox's URL")
    return scheme


def ddl(url: str) -> str:
    """Return the statement that makes the table in the database that ``url`` names. Raises ``ConfigError``.

    >>> ddl("sqlite:///shop.db").splitlines()[0]
    'create table if not exists makegood_outbox ('
    """
    return _SQLITE if _scheme(secret_in(url, "the outbox")) == "sqlite" else _POSTGRES


def open_outbox(url: str) -> Outbox:
    """Return the outbox in the database that ``url`` names; nothing is opened yet.

    ``@FILE``: the URL in that file.

    Raises ``ConfigError`` for another URL, or when the extra for it is not installed.
    """
    url = secret_in(url, "the outbox")
    if _scheme(url) == "sqlite":
        outbox: Outbox = import_module("makegood.messaging.outbox.sqlite").SQLiteOutbox(file_of(url))
        return outbox
    message = (
        "an outbox in postgresql:// needs asyncpg: `pip install asyncpg`, or makegood's extra [postgres]"
    )
    server_outbox: Outbox = optional("makegood.messaging.outbox.postgres", "asyncpg", message).PostgresOutbox(
        url
    )
    return server_outbox
