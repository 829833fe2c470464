"""A folder that may not be entered, for whoever runs the tests: root is let in everywhere, so it becomes somebody else meanwhile."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_NOBODY = 65534


@contextmanager
def barred(folder: Path) -> Iterator[None]:
    """Let nobody enter ``folder``, one inside the fixture ``open_folder``."""
    root = os.geteuid() == 0
    mode = folder.stat().st_mode
    folder.chmod(0o000)
    if root:
        os.seteuid(_NOBODY)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)
        folder.chmod(mode)
