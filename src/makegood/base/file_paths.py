"""Where files may be: what the system answers for a place that this user may not enter, told as our own error."""

import os
import re
from pathlib import Path

from makegood.base.urls import masked
from makegood.errors import ConfigError, StoreUnavailableError

EFFECTIVE = os.access in os.supports_effective_ids
"""Whether the system can be asked for the rights of the user that this process is now, and not for those of who started it."""


def entered(path: Path) -> None:
    """See that this process may look at ``path``, be there a file or not; raises ``ConfigError`` naming the folder that bars the way.

    Python tells of a missing folder by False and of a barred one by an exception, in the middle of whatever asked.

    >>> entered(Path("there-is-none.db"))
    """
    try:
        path.stat()
    except PermissionError as barred:
        folders = reversed(path.absolute().parents)
        first = next((f for f in folders if not os.access(f, os.X_OK, effective_ids=EFFECTIVE)), path.parent)
        raise ConfigError(
            f"{path}: this user may not enter the folder {first}: "
            "run as the user it belongs to, give this one access to it, or name another file"
        ) from barred
    except OSError:  # not there, or not a folder on the way: whoever opens it says so
        return


def unreachable(what: object, failure: OSError) -> StoreUnavailableError:
    """Return the error for a file that the system does not let us at any more: a folder on its way was barred, or the disk fails."""
    return StoreUnavailableError(
        f"{what} cannot be reached ({failure}): give this user access to the file and the folders on its way"
    )


def file_of(url: str) -> str:
    """Return the path in ``sqlite:///relative.db`` or ``sqlite:////absolute.db``; raises ``ConfigError`` for what names no file.

    >>> file_of("sqlite:///shop.db"), file_of("sqlite:////var/lib/shop.db")
    ('shop.db', '/var/lib/shop.db')
    """
    path = url.partition("://")[2]
    if ":memory:" in path or "mode=memory" in path:
        raise ConfigError(
            f"{masked(url)!r}: it is kept in a file, which processes and threads share, not in memory. In a test name a file in a temporary "
            "folder (pytest's tmp_path), or let makegood.testing play a world, which brings a store of its own"
        )
    if not path.startswith("/") or not path.strip("/"):
        raise ConfigError(
            f"{masked(url)!r}: write sqlite:///file.db for a file in the current folder, sqlite:////var/lib/file.db for an absolute path"
        )
    if _PARAMETER.search(path):
        raise ConfigError(
            f"{masked(url)!r}: such a URL has no parameters; write it without what begins with the question mark"
        )
    return path[1:]


_PARAMETER = re.compile(r"\?\w+=")
