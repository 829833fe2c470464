"""What became of the tasks of an act on many: a command is accepted long before its task has ended."""

from collections.abc import Mapping
from typing import NamedTuple

_ENDS: Mapping[str, str] = {"undo": "undone", "cancel": "undone", "resubmit": "processed"}
"""The kind of an act -> the state in which its tasks are to end."""


class BulkProgress(NamedTuple):
    """How far the tasks are whose command was accepted."""

    tasks: int
    end: str
    """The state in which they are to end."""
    at_end: int
    """How many are in it."""
    to_go: int
    stuck: int
    """How many are in error."""
    elsewhere: Mapping[str, int]
    """How many ended in another state."""

    @property
    def text(self) -> str:
        """Return it in words: all figures while tasks are under way, then only what came of them."""
        ends = [f"{self.at_end:,} {self.end}"]
        if self.to_go:
            ends = [f"{self.tasks:,} accepted; {ends[0]}", f"{self.to_go:,} to go"]
        if self.to_go or self.stuck:
            ends.append(f"{self.stuck:,} stuck")
        return ", ".join((*ends, *(f"{count:,} {state}" for state, count in self.elsewhere.items())))


def bulk_progress(kind: str, states: Mapping[str, int]) -> BulkProgress:
    """Return how far the tasks of an act are. ``states``: of those that accepted it, how many are in each.

    >>> bulk_progress("undo", {"undone": 112, "undoing": 187}).text
    '299 accepted; 112 undone, 187 to go, 0 stuck'
    >>> bulk_progress("resubmit", {"processed": 3, "error": 1}).text
    '3 processed, 1 stuck'
    """
    end = _ENDS.get(kind, "processed")
    to_go = sum(states.get(state, 0) for state in ("pending", "sleeping", "processing", "undoing"))
    elsewhere = {
        state: n for state in ("processed", "undone") if state != end and (n := states.get(state, 0))
    }
    return BulkProgress(
        sum(states.values()), end, states.get(end, 0), to_go, states.get("error", 0), elsewhere
    )
