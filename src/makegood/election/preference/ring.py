"""Election on a ring.

E. Chang and R. Roberts, *An improved algorithm for decentralized extrema-finding in circular configurations
of processes*, Communications of the ACM 22 (5), 1979.

Each member knows its successor. A member that misses the leader sends its own name on. A member passes a
higher name on; it drops a lower one, and sends its own instead unless it did already. A member whose own name
comes back has the highest, leads, and announces that once around the ring.

**Messages** of one election among n members that all begin: n(n+1)/2 ``candidate`` messages at worst (names
fall in the direction of travel), 2n - 1 at best, n·H(n), O(n log n), on average over all orders; then n
``elected``. Each of them is acknowledged, which doubles it. Signs of life of the leader come on top.

**The paper assumes** a ring that is whole: no member dies, no message is lost. Here each message is sent
again until it is acknowledged. A successor that does not acknowledge is left out for a while, and the one
after it takes its place. An election that does not end (its bearer died) restarts, and a message that has
been around is dropped.

**What it guarantees**: once members and network are quiet, the members that can reach each other agree on the
highest of them. **What it does not**: members that are cut off close a ring of their own and elect a leader
of their own, so two may lead until they hear from each other. It has no term by which a resource could tell
them apart. Where two must never lead, let the lease decide, and this choose who tries first.
"""

from collections import deque
from dataclasses import dataclass

from makegood.election.preference.member import ElectionMember
from makegood.election.preference.rules import NEVER, Announced
from makegood.election.preference.transport import Letter, Message

TRIES = 2
"""How often a message is sent to a member before that member is left out."""
REMEMBERED = 512
"""How many message numbers are remembered, to recognize repeats."""


@dataclass(slots=True)
class _Hop:
    """A message on its way to ``to``, not yet acknowledged."""

    message: Message
    to: str
    until: float
    tries: int = 1


class RingRules(Announced):
    """The rules of the ring for one member."""

    def prepare(self) -> None:
        """Set what this algorithm knows at the beginning."""
        mine = self.ring.index(self.me)
        self._after = [*self.ring[mine + 1 :], *self.ring[:mine]]
        self._takes_part = False
        self._stalls_at = NEVER
        self._hops: dict[int, _Hop] = {}
        self._left_out: dict[str, float] = {}
        self._recent: deque[int] = deque(maxlen=REMEMBERED)

    @property
    def due(self) -> float:
        """When time decides something next."""
        hops = min((hop.until for hop in self._hops.values()), default=NEVER)
        return min(hops, self._stalls_at, self._next_alive, self.silent_at())

    def electing(self) -> bool:
        """Whether this member's name, or a higher one that it passed on, is on its way."""
        return self._takes_part

    def elect(self, now: float) -> list[Letter]:
        """Send one's own name on."""
        self._take_part(now)
        return self._pass_on(Message("candidate", self.me, self.number()), now)

    def settle(self) -> None:
        """The election is over."""
        self._takes_part, self._stalls_at = False, NEVER

    def hear(self, sender: str, message: Message, now: float) -> list[Letter]:
        """Handle a message."""
        self._left_out.pop(sender, None)
        if message.kind == "ack":
            self._hops.pop(message.number, None)
        if message.kind == "alive":
            return self.accept(sender, now, by_election=False)
        if message.kind not in ("candidate", "elected"):
            return []
        ack = (sender, Message("ack", self.me, message.number))
        if message.number in self._recent:
            return [ack]
        self._recent.append(message.number)
        further = self._candidate if message.kind == "candidate" else self._handle_elected
        return [ack, *further(message, now)]

    def tick(self, now: float) -> list[Letter]:
        """Do what is due."""
        letters: list[Letter] = []
        for number, hop in list(self._hops.items()):
            if now < hop.until:
                continue
            if hop.tries < TRIES:
                hop.tries, hop.until = hop.tries + 1, now + self.timing.timeout
                letters.append((hop.to, hop.message))
            else:
                del self._hops[number]
                self._left_out[hop.to] = now + self.timing.patience
                letters += self._pass_on(hop.message, now)
        if now >= self._stalls_at:
            letters += self.elect(now)
        return [*letters, *self.announce_or_elect(now)]

    # -- an election -------------------------------------------------------------------------------

    def _candidate(self, message: Message, now: float) -> list[Letter]:
        name = message.about
        if name == self.me:
            return self._announce(now) if self._takes_part else []
        self._left_out.pop(name, None)  # It is alive, or was when it sent this.
        if self.above(name, self.me):
            self._take_part(now)
            return self._further(message, now)
        return [] if self._takes_part else self.elect(now)

    def _handle_elected(self, message: Message, now: float) -> list[Letter]:
        if message.about == self.me:
            return []  # It has been around.
        letters = self.accept(message.about, now, by_election=True)
        return letters if self.leader != message.about else self._further(message, now)

    def _announce(self, now: float) -> list[Letter]:
        self.lead(now)
        return self._pass_on(Message("elected", self.me, self.number()), now)

    def _take_part(self, now: float) -> None:
        self._takes_part = True
        self._stalls_at = now + self.timing.patience + len(self.ring) * self.timing.timeout

    # -- the ring ----------------------------------------------------------------------------------

    def _further(self, message: Message, now: float) -> list[Letter]:
        """Pass on a message about another member, unless it has been around: that member is gone, and cannot
        remove it.
        """
        hops = message.hops + 1
        if hops >= len(self.ring):
            return []
        return self._pass_on(Message(message.kind, message.about, self.number(), hops), now)

    def _pass_on(self, message: Message, now: float) -> list[Letter]:
        """Send to the next member that is not left out. If all are, this one is a ring by itself."""
        for member in self._after:
            if self._left_out.get(member, 0.0) <= now:
                self._hops[message.number] = _Hop(message, member, now + self.timing.timeout)
                return [(member, message)]
        if message.kind == "candidate" and message.about == self.me and self._takes_part:
            self.lead(now)
        return []


class Ring(ElectionMember):
    """Prefers the highest name on the ring. The module's docstring has the guarantees.

    The order of the ring is that of ``transport.members()``.

    - ``interval``: seconds between two signs of life of the leader.
    - ``patience``: silence after which it counts as dead (three intervals), and time for which a silent
      member is left out of the ring.
    - ``timeout``: how long to wait for an acknowledgement (a third of an interval).
    - ``order``: the order of names (default: as people do, numbers by value).

    All members must use the same settings. Raises ``ConfigError`` for settings that cannot work.
    """

    rules = RingRules
    answers = 1 / 3
