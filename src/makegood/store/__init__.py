"""The state store: ``open_store(url)`` returns the store that a URL names.

``sqlite:///relative/path.db``, ``sqlite:////absolute/path.db``, ``postgresql://user@host/database``.
"""

import os
from importlib import import_module

from makegood.base.clock import Clock, SystemClock
from makegood.base.extras import optional
from makegood.base.file_paths import file_of
from makegood.base.private_files import secret_in
from makegood.base.urls import SERVERS, parts_of, path_hint, scheme_hint, scheme_of
from makegood.errors import ConfigError
from makegood.options import DEFAULT_URL
from makegood.store.protocol import Store

__all__ = ["Store", "open_store", "store_given", "store_url"]


def store_url(url: str | None = None) -> str:
    """Return ``url``, or MAKEGOOD_STORE, or the default: a SQLite file in the current folder.

    ``@FILE`` stands for the content of that file. Raises ``ConfigError`` if the file cannot be read, or
    if others may write it.
    """
    name, value = ("MAKEGOOD_STORE", os.environ.get("MAKEGOOD_STORE")) if not url else ("store", url)
    return secret_in(value.strip(), name) if value else DEFAULT_URL


def open_store(url: str | None = None, *, clock: Clock | None = None, session: str | None = None) -> Store:
    """Return the store that ``url`` names, not yet open: ``await store.open()`` opens it.

    ``session``: the name that PostgreSQL shows for its connections (``application_name``), unless the URL
    sets one. Raises ``ConfigError`` if the URL does not name a store, or the extra for it is not installed.
    """
    target = store_url(url)
    scheme = scheme_of(target)
    clock = clock or SystemClock()
    if scheme == "sqlite":
        path = file_of(target)
        store: Store = import_module("makegood.store.sqlite").SQLiteStore(path, clock=clock)
        return store
    if scheme in ("postgresql", "postgres"):
        parts_of(target)  # fails before any part of it is shown
        hint = (
            "a postgresql:// store needs asyncpg: `pip install asyncpg`, or install makegood with its extra "
            "(in a checkout `pip install '.[postgres]'`)"
        )
        module = optional("makegood.store.postgres", "asyncpg", hint)
        postgres_store: Store = module.PostgresStore(target, clock=clock, session=session)
        return postgres_store
    raise ConfigError(
        f"unsupported store URL{f', scheme {scheme!r}' if scheme else ''}: use sqlite:///file.db or "
        f"postgresql://user@host/database (--store or MAKEGOOD_STORE){_scheme_hint(scheme)}{path_hint(target)}"
    )


def _scheme_hint(scheme: str) -> str:
    """Return a hint for a URL that was written for another tool."""
    if scheme in SERVERS:
        return "; `makegood leader NAME` takes the URL of an election's leases as well"
    return scheme_hint(scheme)


def store_given(store: Store) -> Store:
    """Return a store that a caller has opened; raise ``ConfigError`` for a path, which
    must be written as a URL.
    """
    if isinstance(store, os.PathLike):
        raise ConfigError(f"store={store!r}: write a URL, 'sqlite:///{os.fspath(store)}'")
    return store
