"""The lowest name leads, as far as it can be heard.

Every member sends a sign of life to all others at each ``interval``; whoever was heard within ``patience`` counts as alive, and the
lowest name among these and oneself leads. It is the pattern's first example, and the simplest: nobody asks and nobody answers.

**Messages**: n(n-1) at each interval, elections included: there are none.

**What it guarantees**: once messages go through, all members that can reach each other agree within ``patience`` + the delay.
**What it does not**: during a cut each side has its leader; a member that was slow for longer than ``patience`` was replaced, and
leads again when it is heard again, without anybody having died; and while views differ, as they do for a moment at each change, two
believe. Measured on five members with a cut of 2 to 30 s about once a minute: more than one believed a sixth of the time.
"""

import random
from collections.abc import Sequence

from makegood.base.clock import Clock
from makegood.base.durations import Duration
from makegood.election.preference.member import ElectionMember
from makegood.election.preference.rules import NEVER, Rules, Timing, timing
from makegood.election.preference.transport import Letter, Message, Order, Transport, natural


class LowestRules(Rules):
    """The rules for one member."""

    def __init__(
        self, me: str, members: Sequence[str], timing: Timing, order: Order, rng: random.Random
    ) -> None:
        super().__init__(me, members, timing, order, rng)
        self._until: dict[str, float] = {}  # by member: until when it counts as alive
        self._listens_until = 0.0

    @property
    def due(self) -> float:
        """When time decides something next."""
        silent = min(self._until.values(), default=NEVER)
        listening = self._listens_until if self.leader is None else NEVER
        return min(self._next_alive, silent, listening)

    def begin(self, now: float) -> list[Letter]:
        """Say that this member is here; listen for a while before taking anybody, oneself too, for the lowest."""
        self._listens_until = now + self.timing.patience if self.others else now
        self._next_alive = now
        return self.ticked(now)

    def heard(self, sender: str, message: Message, now: float) -> list[Letter]:
        """Take a sign of life. Who hears of a member for the first time answers, so that a newcomer need not wait an interval."""
        if message.kind != "alive":
            return []
        new = sender not in self._until
        self._until[sender] = now + self.timing.patience
        self._judge(now)
        return [(sender, Message("alive", self.me))] if new else []

    def ticked(self, now: float) -> list[Letter]:
        """Speak when it is time, and forget whom nobody hears any more."""
        self._judge(now)
        return self.signs_of_life(now)

    def rank(self) -> int:
        """As many as are alive and lower."""
        return sum(self.above(self.me, member) for member in self._until)

    def _judge(self, now: float) -> None:
        self._until = {member: until for member, until in self._until.items() if until > now}
        lowest = min([self.me, *self._until], key=self._order)
        if now >= self._listens_until or len(self._until) == len(self.others):
            self.leader = lowest


class LowestId(ElectionMember):
    """Prefers the lowest name among the members that can be heard. The module says what that guarantees, and what not.

    ``interval``: seconds between two signs of life; ``patience``: silence after which a member is taken for dead (three intervals).
    ``order``: by what names are compared (default: as people do, numbers by value). All members must use the same settings.
    Raises ``ConfigError`` for settings that cannot work.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        interval: Duration = 1,
        patience: Duration | None = None,
        order: Order = natural,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        super().__init__(
            LowestRules, transport, timing(interval, patience, None), order=order, clock=clock, rng=rng
        )
