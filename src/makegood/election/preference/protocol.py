"""What an election needs from a preference.

A preference determines how patient a candidate is: one of rank 0 takes a free lease at once, one of rank n
waits n turns before it tries. The waiting is bounded, so a preference that is wrong, or whose messages do not
get through, costs time and nothing else: the lease alone decides who leads.
"""

from dataclasses import dataclass
from typing import Protocol

MOST_TURNS = 5
"""A candidate waits no longer than this many turns, whatever its rank."""

TURN = 2.0
"""A turn, in units of ``retry``: by then the candidate before has read the lease."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a candidate knows of the lease: its holder (None: nobody now) and the latest epoch."""

    leader: str | None
    epoch: int


class Preference(Protocol):
    """Who may try first: ``Election(…, preference=…)``.

    The election starts it with its first campaign, reports every term that it sees, and stops it when it
    ends.
    """

    async def start(self, me: str) -> None:
        """Open the transport and look for the others. ``me``: this candidate's name. It may be called again
        after ``stop``.
        """

    async def stop(self) -> None:
        """End, and release what ``start`` opened."""

    def rank(self) -> int:
        """Return how many turns to wait before trying: 0 for the one that should lead.

        It answers at once, from what is known now; without knowledge it answers 0.
        """

    def seen(self, sighting: Seen) -> None:
        """Handle a change of leader, as far as this candidate can see it, its own terms included. It must not
        block.
        """
