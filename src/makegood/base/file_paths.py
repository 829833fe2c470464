"""Paths of files, and the errors for places that this user may not enter."""

import os
from pathlib import Path

from makegood.base.urls import SQLITE_PARAMETER, mask_url
from makegood.errors import ConfigError, StoreUnavailableError

FileNumber = tuple[int, int]
"""A device, and the number of a file on it: they identify a file regardless of its name."""
EFFECTIVE = os.access in os.supports_effective_ids
"""Whether the system can check rights for the effective user of this process, not only for its real user."""


def check_searchable(path: Path) -> None:
    """Check that this process may look up ``path``, whether or not a file is there.

    Raises ``ConfigError`` that names the barred folder. Python answers False for a missing folder, but raises
    an exception for a barred one, in the middle of any operation.

    >>> check_searchable(Path("there-is-none.db"))
    """
    try:
        path.stat()
    except PermissionError as fault:
        folders = reversed(path.absolute().parents)
        first = next((f for f in folders if not os.access(f, os.X_OK, effective_ids=EFFECTIVE)), path.parent)
        raise ConfigError(
            f"{path}: this user may not enter the folder {first}: "
            "run as the user it belongs to, give this one access to it, or name another file"
        ) from fault
    except OSError:  # missing, or not a folder on the way: opening the file reports it
        return


def number_of(path: str | Path) -> FileNumber | None:
    """Return the number of the file that bears this name now, whatever its name was before; None if there is
    none.

    >>> number_of("there-is-none.db")
    """
    try:
        status = os.stat(path)  # noqa: PTH116 - asked before every transaction: a Path costs more than the question
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def exists(path: Path) -> bool:
    """Whether a file or folder is there. Raises ``OSError`` if this process may not look.

    From Python 3.14 on ``Path.exists`` answers False there, which would take a barred store for a missing
    one.

    >>> exists(Path("there-is-none.db"))
    False
    """
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def unreachable(subject: object, failure: OSError) -> StoreUnavailableError:
    """Return the error for a file that is out of reach: a folder on its way was barred, or the disk fails."""
    return StoreUnavailableError(
        f"{subject} cannot be reached ({failure}): give this user access to the file and the folders on its way"
    )


def file_of(url: str) -> str:
    """Return the path in ``sqlite:///relative.db`` or ``sqlite:////absolute.db``.

    Raises ``ConfigError`` for a URL that names no file.

    >>> file_of("sqlite:///shop.db"), file_of("sqlite:////var/lib/shop.db")
    ('shop.db', '/var/lib/shop.db')
    """
    path = url.partition("://")[2]
    if ":memory:" in path or "mode=memory" in path:
        raise ConfigError(
            f"{mask_url(url)!r}: an in-memory store is not supported, because processes and threads share the store through a file. In tests, use "
            "a file under pytest's tmp_path, or makegood.testing, which creates a store of its own"
        )
    if not path.startswith("/") or not path.strip("/"):
        raise ConfigError(
            f"{mask_url(url)!r}: write sqlite:///file.db for a file in the current folder, sqlite:////var/lib/file.db for an absolute path"
        )
    if SQLITE_PARAMETER.search(path):
        raise ConfigError(
            f"{mask_url(url)!r}: such a URL has no parameters; write it without what begins with the question mark"
        )
    return path[1:]
