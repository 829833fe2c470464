"""Where files may be: what the system answers for a place that this user may not enter, told as our own error."""

import os
from pathlib import Path

from makegood.errors import ConfigError


def entered(path: Path) -> None:
    """See that this process may look at ``path``, be there a file or not; raises ``ConfigError`` naming the folder that bars the way.

    Python tells of a missing folder by False and of a barred one by an exception, in the middle of whatever asked.

    >>> entered(Path("there-is-none.db"))
    """
    try:
        path.stat()
    except PermissionError as barred:
        folders = reversed(path.absolute().parents)
        first = next((f for f in folders if not os.access(f, os.X_OK, effective_ids=_EFFECTIVE)), path.parent)
        raise ConfigError(
            f"{path}: this user may not enter the folder {first}: "
            "run as the user it belongs to, give this one access to it, or name another file"
        ) from barred
    except OSError:  # not there, or not a folder on the way: whoever opens it says so
        return


_EFFECTIVE = os.access in os.supports_effective_ids
