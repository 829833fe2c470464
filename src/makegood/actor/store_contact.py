"""Whether a process has been in touch with its store all the time, as whoever judges the silence of others
must know.

A SQLite file that somebody locks, or a PostgreSQL server that is away, holds up the heartbeats and replies of
all processes alike. The first write that succeeds afterwards may be the Supervisor's, and to it every other
process looks dead::

    leader's writes   .  .  .  .                       . .  .  .
    others' writes     .  .  .  .                        .  .  .
                               |<------- a gap ------->|
                                                       ^ their heartbeats have run out; nobody is dead

So the time between two writes of this process counts, whichever actor makes them, and not how long the last
of them took: an outage may begin while nothing is written, and another actor's write may be the first after.
"""

from makegood.base.clock import Clock
from makegood.options import Options


class StoreContact:
    """Notes the writes of one process. ``longest``: seconds between two of them that are no gap."""

    def __init__(self, clock: Clock, longest: float) -> None:
        self._clock = clock
        self._longest = longest
        self._last: float | None = None
        self._gap = 0.0

    def note(self) -> None:
        """Note that the store took a write."""
        now = self._clock.monotonic()
        if self._last is not None and now - self._last > self._longest:
            self._gap = max(self._gap, now - self._last)
        self._last = now

    def take_gap(self) -> float:
        """Return how many seconds the longest gap lasted that ended since the last call; 0 for none."""
        gap, self._gap = self._gap, 0.0
        return gap


def longest_contact_gap(options: Options) -> float:
    """Return for how many seconds a store may be away from a process with heartbeats before others seem dead.

    The others' last heartbeat may be one pause older, and their next may follow one pause after the outage.
    If a life is hardly longer than two pauses, a part of it must do, or every pause would be a gap. Replies
    are held up as well, however long a life is, so the Supervisor's interval is a bound too.
    """
    life, pause = options.number("dead_after"), options.number("heartbeat")
    return min(max(life - 2 * pause, 0.6 * life), 1.5 * options.number("supervise_every"))
