"""A note: what an action says of its progress while it runs, as a line of its task's history."""

from typing import Any, Final

import msgspec

MOST_OCTETS: Final = 2048
"""Bytes of a note as JSON, before a codec encodes it."""
EVERY: Final = 1.0
"""Seconds between two notes of one attempt, at least."""
SHARE: Final = 0.01
"""The same as a share of the time for which the attempt has run: so even a day brings only some hundreds."""


class Note(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """A text or value that an attempt wrote with ``call.note``."""

    idx: int
    """Its step."""
    attempt: int
    doing: str
    """do, probe or undo."""
    value: Any
    """A text, or another value as JSON has it."""
    skipped: int = 0
    """Notes before it that are not kept, since they came faster than notes are kept."""
    late: bool = False
    """Nobody waited for its attempt any more."""

    @property
    def text(self) -> str:
        """Its text; another value as JSON."""
        return self.value if isinstance(self.value, str) else msgspec.json.encode(self.value).decode()

    @property
    def facts(self) -> str:
        """What people must know of it beside its text; "" for most."""
        facts = [f"{self.skipped} before it skipped"] if self.skipped else []
        return ", ".join([*facts, *(["came too late"] if self.late else [])])


def pause(age: float) -> float:
    """Return how long an attempt waits, that has run for so many seconds, before its next note is kept.

    >>> pause(5.0), pause(3600.0)
    (1.0, 36.0)
    """
    return max(EVERY, SHARE * age)
