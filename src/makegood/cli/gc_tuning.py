"""Garbage collection in a process that is busy with many tasks.

CPython looks for cycles after every 700 new objects. A process that holds hundreds of tasks in flight makes
that many with every handful of steps. Nearly all of them die by reference count, so looking for cycles takes
a tenth of its time or more.
"""

import gc
from typing import Final

RARER: Final = 50_000
"""New objects between two looks of a process that runs roles."""

_USUAL: Final = (700, 2000)
"""CPython's own threshold: up to 3.12, and since."""


def collect_rarely() -> None:
    """Let the collector run less often for the rest of this process, unless a threshold is already set."""
    first, *others = gc.get_threshold()
    if first in _USUAL:
        gc.set_threshold(RARER, *others)
