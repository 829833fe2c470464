"""The lowest name leads, among the members that can be heard.

Every member sends a sign of life to all others at each ``interval``. Members heard within ``patience`` count
as alive, and the lowest name among these and oneself leads. It is the pattern's first example, and the
simplest: there are no questions and no answers.

**Messages**: n(n-1) at each interval; there are no elections.

**What it guarantees**: once messages get through, all members that can reach each other agree within
``patience`` + the delay. **What it does not**: during a cut each side has its leader. A member that was slow
for longer than ``patience`` is replaced, and leads again once it is heard again, although nobody died. While
views differ, as they do for a moment at each change, two believe. Measured on five members with a cut of 2 to
30 s about once a minute: more than one believed a sixth of the time.
"""

from makegood.election.preference.member import ElectionMember
from makegood.election.preference.rules import NEVER, Rules
from makegood.election.preference.transport import Letter, Message


class LowestRules(Rules):
    """The rules for one member."""

    def prepare(self) -> None:
        """Set what this algorithm knows at the beginning."""
        self._until: dict[str, float] = {}  # By member: until when it counts as alive.
        self._listens_until = 0.0

    @property
    def due(self) -> float:
        """When time decides something next."""
        silent = min(self._until.values(), default=NEVER)
        listening = self._listens_until if self.leader is None else NEVER
        return min(self._next_alive, silent, listening)

    def begin(self, now: float) -> list[Letter]:
        """Announce this member; listen for a while before choosing anybody, even oneself, as the lowest."""
        self._listens_until = now + self.timing.patience if self.others else now
        self._next_alive = now
        return self.tick(now)

    def hear(self, sender: str, message: Message, now: float) -> list[Letter]:
        """Handle a sign of life. The first one of a member is answered, so that a newcomer need not wait an
        interval.
        """
        if message.kind != "alive":
            return []
        new = sender not in self._until
        self._until[sender] = now + self.timing.patience
        self._judge(now)
        return [(sender, Message("alive", self.me))] if new else []

    def tick(self, now: float) -> list[Letter]:
        """Send a sign of life if it is due, and forget silent members."""
        self._judge(now)
        return self.signs_of_life(now)

    def rank(self) -> int:
        """The number of living members with lower names."""
        return sum(self.above(self.me, member) for member in self._until)

    def _judge(self, now: float) -> None:
        self._until = {member: until for member, until in self._until.items() if until > now}
        lowest = min([self.me, *self._until], key=self._order)
        if now >= self._listens_until or len(self._until) == len(self.others):
            self.leader = lowest


class LowestId(ElectionMember):
    """Prefers the lowest name among the members that can be heard. The module's docstring has the guarantees.

    - ``interval``: seconds between two signs of life.
    - ``patience``: silence after which a member counts as dead (three intervals).
    - ``timeout``: how much longer to wait for a leader at the start (an interval).
    - ``order``: the order of names (default: as people do, numbers by value).

    All members must use the same settings. Raises ``ConfigError`` for settings that cannot work.
    """

    rules = LowestRules
