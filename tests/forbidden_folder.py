"""A folder that may not be entered, for whoever runs the tests: root is let in everywhere, so it becomes somebody else meanwhile."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_NOBODY = 65534


@contextmanager
def barred(folder: Path) -> Iterator[None]:
    """Let nobody enter ``folder``, and everybody those above it."""
    root = os.geteuid() == 0
    above = [each for each in folder.parents if root and each != Path("/") and each.stat().st_uid == 0]
    modes = {each: each.stat().st_mode for each in (folder, *above)}
    for each in above:
        each.chmod(modes[each] | 0o055)
    folder.chmod(0o000)
    if root:
        os.seteuid(_NOBODY)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)
        for each, mode in modes.items():
            each.chmod(mode)
