"""The state store: ``open_store(url)`` gives the one that a URL names.

``sqlite:///relative/path.db``, ``sqlite:////absolute/path.db``, ``postgresql://user@host/database``.
"""

import os
from importlib import import_module
from urllib.parse import urlsplit

from makegood.clock import Clock, SystemClock
from makegood.errors import ConfigError
from makegood.folders import file_of
from makegood.store.protocol import Store

__all__ = ["DEFAULT_URL", "Store", "open_store", "store_given", "store_url"]

DEFAULT_URL = "sqlite:///makegood.db"


def store_url(url: str | None = None) -> str:
    """Return ``url``, or MAKEGOOD_STORE, or the default: a SQLite file in the current folder."""
    return url or os.environ.get("MAKEGOOD_STORE") or DEFAULT_URL


def open_store(url: str | None = None, *, clock: Clock | None = None) -> Store:
    """Return the store that ``url`` names; nothing is opened yet (``await store.open()`` does).

    Raises ``ConfigError`` for a URL that names no store, or when the extra for it is not installed.
    """
    wanted = store_url(url)
    try:
        parts = urlsplit(wanted)
    except ValueError as unreadable:
        raise ConfigError(f"the store's URL cannot be read: {unreadable}") from None
    clock = clock or SystemClock()
    if parts.scheme == "sqlite":
        path = file_of(wanted)
        store: Store = import_module("makegood.store.sqlite").SQLiteStore(path, clock=clock)
        return store
    if parts.scheme in ("postgresql", "postgres"):
        try:
            module = import_module("makegood.store.postgres")  # asyncpg is an extra
        except ModuleNotFoundError as missing:
            if missing.name != "asyncpg":
                raise
            raise ConfigError(
                "a postgresql:// store needs asyncpg: `pip install asyncpg`, or install makegood with its extra "
                "(in a checkout `pip install '.[postgres]'`)"
            ) from missing
        opened: Store = module.PostgresStore(wanted, clock=clock)
        return opened
    raise ConfigError(
        f"{wanted!r} names no store: write sqlite:///file.db or postgresql://user@host/database (--store or MAKEGOOD_STORE)"
    )


def store_given(store: Store) -> Store:
    """Return a store that a caller has opened; raises ``ConfigError`` for a path, which wants to be a URL."""
    if isinstance(store, os.PathLike):
        raise ConfigError(f"store={store!r}: write a URL, 'sqlite:///{os.fspath(store)}'")
    return store
