"""A bar of how far a batch is: drawn over and over at a terminal, a note now and then elsewhere."""

import time
from contextlib import ExitStack
from typing import Any, Final, Self

from makegood.cli.context import Cli
from makegood.cli.render.style import STYLES, Line
from makegood.story.batch_progress import BatchProgress

WIDTH: Final = 30
"""Characters of the bar."""
PAUSE: Final = 10.0
"""Seconds between two notes when nobody watches a terminal."""


class BatchBar:
    """Shows how far a batch is."""

    def __init__(self, cli: Cli) -> None:
        self._cli = cli
        self._stack = ExitStack()
        self._live: Any = None
        self._next_note = 0.0

    def __enter__(self) -> Self:
        """Begin to draw."""
        if self._cli.out.fancy:
            self._live = self._stack.enter_context(self._cli.out.live())
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the last drawing."""
        self._stack.close()

    def show(self, progress: BatchProgress) -> None:
        """Show it."""
        if self._live is not None:
            self._live.show([bar(progress, unicode=self._cli.out.unicode)])
        elif not progress.is_over and time.monotonic() >= self._next_note:
            self._next_note = time.monotonic() + PAUSE
            self._cli.note(progress.text)


def bar(progress: BatchProgress, *, unicode: bool) -> Line:
    """Return a batch as a line: a bar with a part for each state, and the figures.

    >>> from makegood.story.batch_progress import batch_progress
    >>> "".join(text for text, _ in bar(batch_progress({"processed": 2, "pending": 1}), unicode=False))
    '[####################----------] 3 submitted; 2 processed, 1 to go, 0 stuck'
    """
    total = max(progress.tasks, progress.total, 1)
    full, empty = ("█", "░") if unicode else ("#", "-")
    ends = {
        "processed": progress.at_end,
        "undone": progress.elsewhere.get("undone", 0),
        "error": progress.stuck,
    }
    line, width, count = [("[", "")], 0, 0
    for state, part in ends.items():
        count += part
        cells = WIDTH * count // total - width
        width += cells
        line.append((full * cells, STYLES[state]))
    return [*line, (empty * (WIDTH - width), "dim"), ("] ", ""), (progress.text, "")]
