"""The bully algorithm.

H. Garcia-Molina, *Elections in a Distributed Computing System*, IEEE Transactions on Computers C-31 (1),
1982.

A member that misses the leader asks all members with higher names. If none answers within ``timeout``, it
leads, and announces that to all others. A member that is asked answers, and holds an election of its own. A
member that gets an answer waits for the announcement of the leader, and starts again if none comes. A member
that comes back holds an election: if it is the highest, it takes over at once ("bullies").

**Messages** of one election among n members: n - 1 if the highest holds it; at worst, when the leader has
died and the lowest notices, n(n-1)/2 ``election``, (n-1)(n-2)/2 ``answer`` and n - 1 ``coordinator``: O(n²).
Signs of life come on top.

**What it guarantees.** If messages arrive within ``timeout``, none is lost, all members are known, and dead
ones are silent, then all living members come to follow the highest of them. The paper assumes just that: a
synchronous system in which a time-out is proof of death. **What it does not**: in a real network a slow or
cut-off member counts as dead, and then two lead, one on each side of the cut, until they hear from each other
(within ``interval`` + the delay). It has no term, so a resource cannot tell the old leader from the new by a
number. Where two must never lead, let the lease decide, and this choose who tries first.
"""

from typing import Literal

from makegood.election.preference.member import ElectionMember
from makegood.election.preference.rules import NEVER, Announced
from makegood.election.preference.transport import Letter, Message


class BullyRules(Announced):
    """The rules of the bully algorithm for one member."""

    def prepare(self) -> None:
        """Set what this algorithm knows at the beginning."""
        self.higher = [member for member in self.others if self.above(member, self.me)]
        self._phase: Literal["", "asking", "waiting"] = ""
        self._until = NEVER
        self._number = 0

    @property
    def due(self) -> float:
        """When time decides something next."""
        return min(self._until, self._next_alive, self.silent_at())

    def electing(self) -> bool:
        """Whether this member has asked, or waits for the outcome."""
        return self._phase != ""

    def elect(self, now: float) -> list[Letter]:
        """Ask all members with higher names; without any, lead."""
        if not self.higher:
            return self._announce(now)
        self._phase, self._until, self._number = "asking", now + self.timing.timeout, self.number()
        return self.to(self.higher, Message("election", self.me, self._number))

    def settle(self) -> None:
        """The election is over."""
        self._phase, self._until = "", NEVER

    def hear(self, sender: str, message: Message, now: float) -> list[Letter]:
        """Handle a message."""
        if message.kind == "election" and self.above(self.me, sender):
            answer = [(sender, Message("answer", self.me, message.number))]
            if self.leader == self.me:
                return [*answer, (sender, Message("coordinator", self.me))]
            return answer if self.electing() else [*answer, *self.elect(now)]
        if message.kind == "answer" and self._phase == "asking" and message.number == self._number:
            self._phase, self._until = "waiting", now + self.timing.patience
        if message.kind in ("coordinator", "alive"):
            return self.accept(sender, now, by_election=message.kind == "coordinator")
        return []

    def tick(self, now: float) -> list[Letter]:
        """Do what is due."""
        letters: list[Letter] = []
        if now >= self._until:
            letters = self._announce(now) if self._phase == "asking" else self.elect(now)
        return [*letters, *self.announce_or_elect(now)]

    def _announce(self, now: float) -> list[Letter]:
        self.lead(now)
        return self.to(self.others, Message("coordinator", self.me))


class Bully(ElectionMember):
    """Prefers the highest name among the members that answer. The module's docstring has the guarantees.

    - ``interval``: seconds between two signs of life of the leader.
    - ``patience``: silence after which it counts as dead (three intervals).
    - ``timeout``: how long to wait for answers (an interval): longer than a message and its answer usually
      take.
    - ``order``: the order of names (default: as people do, numbers by value).

    All members must use the same settings. Raises ``ConfigError`` for settings that cannot work.
    """

    rules = BullyRules
