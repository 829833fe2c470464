"""What a rule of the checker is."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

from makegood.testing.checker.reading import HistoryState
from makegood.testing.checker.report import Report
from makegood.testing.history import Event

EPSILON = 1e-6
"""Seconds within which two readings of one clock are the same: times are floating-point numbers."""


class Rule:
    """One invariant. ``kinds``: the events it wants to see. A rule may remember what it has seen; it lives for one history."""

    name: ClassVar[str] = ""
    kinds: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, report: Report) -> None:
        self.report = report

    def before(self, event: Event, world: HistoryState) -> None:
        """Look at an event while the world is still as it was."""

    def after(self, event: Event, world: HistoryState) -> None:
        """Look at an event when the world has taken it in."""

    def end(self, world: HistoryState) -> None:
        """Look at the world when the history is over."""

    def saw(self, times: int = 1) -> None:
        """There was something to look at."""
        self.report.saw(self.name, times)

    def wrong(self, text: str, *events: Event, task: int = 0) -> None:
        """The invariant is violated."""
        self.report.wrong(self.name, text, *events, task=task)


def when(event: Event) -> str:
    """Return the time of an event, and who did it, for a sentence."""
    return f"at {event.at:.3f} s" + (f" by {event.node}" if event.node else "")


def frozen(table: dict[tuple[str, str], frozenset[str]]) -> Mapping[tuple[str, str], frozenset[str]]:
    """Return a table of moves that nobody can change."""
    return MappingProxyType(table)
