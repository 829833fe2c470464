"""How an attempt ended: a line of a task's history."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from makegood.model.note import Note

_PROBE_ANSWERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "happened": "it happened", "not_happened": "it did not happen", "refused": "it did not happen, and cannot any more",
        "later": "not known yet",
    }
)  # fmt: skip


class AttemptEnd(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """How an attempt ended that a commit used."""

    idx: int
    """Its step."""
    attempt: int
    doing: str
    """do, probe or undo."""
    kind: str
    """The answer, or "expired"."""
    node: int | None = None
    """The process that ran it; None: the one that wrote the history, or unknown."""
    took: float | None = None
    """Seconds from its taking to its answer; to its deadline if it "expired"."""
    error: str | None = None
    frame: str | None = None
    """The innermost line of the user's own code, such as "orders.py:42 in charge"."""
    traceback: str | None = None
    """The end of the error's traceback, as Python prints it."""
    late: bool = False
    """Nobody waited for this reply any more: it changed nothing."""
    note: Note | None = None
    """In the store alone: a note, kept as the end of no step's attempt, which older versions pass over."""
    due: float | None = None
    """Its deadline if it "expired", as it was last extended, on the store's clock."""


def note_entry(note: Note) -> AttemptEnd:
    """Return a note as it is kept beside the ends of attempts."""
    return AttemptEnd(-1, 0, "do", "note", note=note)


def probe_answer(kind: str, error: str | None) -> str:
    """Return what a probe answered, in words; ``kind`` and ``error``: of its attempt's end.

    >>> probe_answer("not_happened", None), probe_answer("gave_up", "OSError: refused")
    ('it did not happen', 'no answer: OSError: refused')
    """
    answer = _PROBE_ANSWERS.get(kind, "no answer")
    return f"{answer}: {error}" if error else answer
