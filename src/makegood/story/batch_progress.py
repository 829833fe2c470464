"""How far many tasks are: those of a batch, or of an act on many, which is accepted long before they end."""

from collections.abc import Mapping
from typing import NamedTuple

from makegood.model.states import AT_REST

_ENDS: Mapping[str, str] = {"undo": "undone", "cancel": "undone", "resubmit": "processed"}
"""The kind of an act -> the state in which its tasks are to end."""


class BatchProgress(NamedTuple):
    """How far many tasks are."""

    tasks: int
    end: str
    """The state in which they are to end."""
    at_end: int
    """How many are in it."""
    to_go: int
    """How many are under way."""
    stuck: int
    """How many are in error."""
    elsewhere: Mapping[str, int]
    """How many ended in another state."""
    total: int = 0
    """How many there are to be, at least; 0: as many as there are."""
    label: str = "accepted"
    """What is common to the tasks."""

    @property
    def is_over(self) -> bool:
        """Whether all of them have ended, and as many as there are to be."""
        return not self.to_go and self.tasks >= self.total

    @property
    def text(self) -> str:
        """Return it in words: all figures while tasks are under way, then only what came of them."""
        ends = [f"{self.at_end:,} {self.end}"]
        if not self.is_over:
            of = f" of {self.total:,}" if self.tasks < self.total else ""
            ends = [f"{self.tasks:,}{of} {self.label}; {ends[0]}", f"{self.to_go:,} to go"]
        if not self.is_over or self.stuck:
            ends.append(f"{self.stuck:,} stuck")
        return ", ".join((*ends, *(f"{count:,} {state}" for state, count in self.elsewhere.items())))


def bulk_progress(kind: str, states: Mapping[str, int]) -> BatchProgress:
    """Return how far the tasks of an act are. ``states``: of those that accepted it, how many are in each.

    >>> bulk_progress("undo", {"undone": 112, "undoing": 187}).text
    '299 accepted; 112 undone, 187 to go, 0 stuck'
    >>> bulk_progress("resubmit", {"processed": 3, "error": 1}).text
    '3 processed, 1 stuck'
    """
    end = _ENDS.get(kind, "processed")
    to_go = sum(count for state, count in states.items() if state not in AT_REST)
    elsewhere = {
        state: n for state in ("processed", "undone") if state != end and (n := states.get(state, 0))
    }
    return BatchProgress(
        sum(states.values()), end, states.get(end, 0), to_go, states.get("error", 0), elsewhere
    )


def batch_progress(states: Mapping[str, int], total: int = 0) -> BatchProgress:
    """Return how far the tasks of a batch are. ``states``: how many are in each; ``total``: how many
    there are to be, at least.

    >>> batch_progress({"processed": 112, "processing": 138}, 300).text
    '250 of 300 submitted; 112 processed, 138 to go, 0 stuck'
    """
    return bulk_progress("", states)._replace(total=total, label="submitted")
