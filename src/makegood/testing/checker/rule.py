"""The base of the checker's rules."""

from typing import ClassVar

from makegood.testing.checker.reading import HistoryState
from makegood.testing.checker.report import Report
from makegood.testing.history import Event

EPSILON = 1e-6
"""Seconds within which two readings of one clock are equal: times are floating-point numbers."""


class Rule:
    """One invariant. ``kinds``: the events it needs. A rule may remember events; it lives for one history."""

    name: ClassVar[str] = ""
    says: ClassVar[str] = ""
    """What must hold, in the words of the report."""
    part: ClassVar[tuple[str, str] | None] = None
    """For an invariant about what a world may lack: the kind of event without which it does not apply, and
    why.
    """
    kinds: ClassVar[frozenset[str]] = frozenset()

    event: Event | None = None
    """The event that is being checked; None once the history is over."""

    def __init__(self, report: Report) -> None:
        self.report = report

    def before(self, event: Event, world: HistoryState) -> None:
        """Check an event before the world takes it in."""

    def after(self, event: Event, world: HistoryState) -> None:
        """Check an event after the world has taken it in."""

    def end(self, world: HistoryState) -> None:
        """Check the world when the history is over."""

    def saw(self, times: int = 1) -> None:
        """Note that the invariant was checked."""
        self.report.saw(self.name, times)

    def wrong(self, text: str, *earlier: Event | None, task: int = 0) -> None:
        """The invariant is violated. ``earlier``: events that show it, besides the one being checked; None is
        left out.
        """
        events = [event for event in (*earlier, self.event) if event is not None]
        self.report.wrong(self.name, text, *events, task=task)


def when(event: Event) -> str:
    """Return the time and process of an event, for a sentence."""
    return f"at {event.at:.3f} s" + (f" by {event.node}" if event.node else "")
