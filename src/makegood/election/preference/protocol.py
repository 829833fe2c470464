"""What an election asks of a preference.

A preference says how patient a candidate is: one of rank 0 takes a free lease at once, one of rank n waits n turns before it
tries. The waiting is bounded, so a preference that is wrong, or whose messages do not come through, costs time and nothing
else: the lease decides alone who leads.
"""

from dataclasses import dataclass
from typing import Protocol

MOST_TURNS = 5
"""Whatever the rank, a candidate waits no longer than so many turns."""

TURN = 2.0
"""A turn, in ``retry``: whoever goes before has looked at the lease by then."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a candidate knows of the lease: who holds it (None: nobody now) and the latest epoch."""

    leader: str | None
    epoch: int


class Preference(Protocol):
    """Who may try first. Given as ``Election(…, preference=…)``; the election starts it with its first campaign, tells it of
    every term that it sees, and stops it when it ends.
    """

    async def start(self, me: str) -> None:
        """Begin: open the transport, look for the others. ``me`` is this candidate's name. It may be called again after ``stop``."""
        ...

    async def stop(self) -> None:
        """End, and let go of what ``start`` opened."""
        ...

    def rank(self) -> int:
        """Return how many turns to wait before trying: 0 for who should lead. It answers at once, from what is known now;
        without knowledge 0 is the answer.
        """
        ...

    def seen(self, seen: Seen) -> None:
        """Hear who leads now, whenever that changes as far as this candidate can see; its own terms as well. It must not block."""
        ...
