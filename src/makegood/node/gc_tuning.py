"""The garbage collector, while a process is busy with many tasks.

CPython looks for cycles after every 700 new objects. A process that holds hundreds of tasks in flight makes
that many with every handful of steps, nearly all of which die by reference count, so the looking is a tenth
and more of its time. While at least one ``Node`` runs, it looks less often; a program that has set thresholds
of its own keeps them.
"""

import gc

USUAL = (700, 10, 10)
"""CPython's thresholds up to 3.12."""

RARER = 50_000
"""New objects between two looks while a Node runs."""


class Collecting:
    """Makes the collector look less often between ``begin`` and ``end``."""

    def __init__(self) -> None:
        self._before: tuple[int, int, int] | None = None

    def begin(self) -> None:
        """Raise the first threshold, unless the program has chosen its own or another Node has raised it
        already.
        """
        before = gc.get_threshold()
        if before[0] in (USUAL[0], 2000):  # 2000: CPython 3.13 and newer
            self._before = before
            gc.set_threshold(RARER, *before[1:])

    def end(self) -> None:
        """Set the thresholds back to what they were, unless somebody has changed them meanwhile."""
        if self._before is not None and gc.get_threshold()[0] == RARER:
            gc.set_threshold(*self._before)
        self._before = None
