"""The rules of an algorithm, without any I/O: what a member does when it begins, hears something, or when time has passed.

Each call says what time it is and returns the letters to be sent. So the same code runs over TCP, in memory, and in a test that
counts messages. ``due`` says when the next ``ticked`` is wanted.
"""

import random
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from makegood.base.durations import Duration, seconds
from makegood.election.preference.transport import Letter, Message, Order
from makegood.errors import ConfigError

NEVER = float("inf")
_LOSSES = 3
"""How many messages in a row may be lost before silence is taken for death, unless ``patience`` says otherwise."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds. ``interval``: between two signs of life; ``patience``: silence after which a member is taken for dead; ``timeout``: how
    long an answer is waited for.
    """

    interval: float
    patience: float
    timeout: float


def timing(interval: Duration, patience: Duration | None, timeout: Duration | None) -> Timing:
    """Return checked settings. Raises ``ConfigError`` when they cannot work together."""
    often = seconds(interval, name="interval", least=0.001)
    silence = _LOSSES * often if patience is None else seconds(patience, name="patience")
    answer = often if timeout is None else seconds(timeout, name="timeout", least=0.001)
    if silence <= often:
        raise ConfigError(
            f"patience={silence:g} s is not longer than interval={often:g} s: every member would be taken for dead between two "
            "signs of life; use three intervals or more"
        )
    return Timing(often, silence, answer)


class Rules(ABC):
    """What one member knows. ``leader``: whom it takes for the leader, None: it does not know one."""

    def __init__(
        self, me: str, members: Sequence[str], timing: Timing, order: Order, rng: random.Random
    ) -> None:
        self.me = me
        self.ring = list(members)
        self.others = [member for member in members if member != me]
        self.timing = timing
        self.leader: str | None = None
        self._order: Any = order
        self._rng = rng
        self._next_alive = NEVER

    @property
    @abstractmethod
    def due(self) -> float:
        """When ``ticked`` is wanted next."""

    @abstractmethod
    def begin(self, now: float) -> list[Letter]:
        """Begin."""

    @abstractmethod
    def heard(self, sender: str, message: Message, now: float) -> list[Letter]:
        """Take a message."""

    @abstractmethod
    def ticked(self, now: float) -> list[Letter]:
        """Do what is due."""

    @abstractmethod
    def rank(self) -> int:
        """Return how many members should try before this one."""

    def above(self, one: str, other: str) -> bool:
        """Whether one member's name is the higher of two."""
        return bool(self._order(one) > self._order(other))

    def number(self) -> int:
        """Return a number that nobody used before, also not this member in an earlier life."""
        return self._rng.getrandbits(53)

    def to(self, whom: Iterable[str], message: Message) -> list[Letter]:
        """Return a letter for each."""
        return [(member, message) for member in whom]

    def signs_of_life(self, now: float) -> list[Letter]:
        """Return what is to be said to all at each interval, when it is due."""
        if now < self._next_alive:
            return []
        self._next_alive = now + self.timing.interval
        return self.to(self.others, Message("alive", self.me))


class Announced(Rules):
    """What bully and ring have in common: the highest name leads, says so to all at each interval, and silence deposes it.

    The papers leave it open how a dead leader is noticed, or poll it; here it speaks by itself, n - 1 messages at each interval.
    That also heals partitions: when two leaders hear of each other, the lower one follows.
    """

    def __init__(
        self, me: str, members: Sequence[str], timing: Timing, order: Order, rng: random.Random
    ) -> None:
        super().__init__(me, members, timing, order, rng)
        self._heard_at = 0.0

    @abstractmethod
    def electing(self) -> bool:
        """Whether an election that this member takes part in goes on."""

    @abstractmethod
    def elect(self, now: float) -> list[Letter]:
        """Hold an election."""

    @abstractmethod
    def settled(self) -> None:
        """There is a leader: whatever election this member took part in is over."""

    def begin(self, now: float) -> list[Letter]:
        """Hold an election: who comes (back) does not know who leads, and may be the highest."""
        return self.elect(now)

    def lead(self, now: float) -> None:
        """Be the leader from now on."""
        self.settled()
        self.leader = self.me
        self._next_alive = now + self.timing.interval

    def told(self, leader: str, now: float, *, elected: bool) -> list[Letter]:
        """Hear that somebody leads: ``elected``, as the outcome of an election, or once more.

        A lower one is not accepted: this member is higher, and lives. A lower one than the leader that is known, and was
        heard a moment ago, is a message that was long on its way, or a leader that will hear of the other one.
        """
        known = self.leader
        fresh = known not in (None, self.me) and now < self.silent_at()
        if not self.above(leader, self.me):
            return [] if fresh or self.electing() or known == self.me else self.elect(now)
        if elected or not fresh or known is None or not self.above(known, leader):
            self.settled()
            self.leader, self._heard_at, self._next_alive = leader, now, NEVER
        return []

    def silent_at(self) -> float:
        """Return when the leader will have been silent for too long."""
        return NEVER if self.leader in (None, self.me) else self._heard_at + self.timing.patience

    def led(self, now: float) -> list[Letter]:
        """Say that this member leads, or hold an election when the leader has been silent for too long."""
        if now < self.silent_at():
            return self.signs_of_life(now)
        self.leader = None
        return [] if self.electing() else self.elect(now)

    def rank(self) -> int:
        """The leader first, then the next lower names in turn; nobody waits while no leader is known."""
        if self.leader in (None, self.me):
            return 0
        leader = str(self.leader)
        return 1 + sum(self.above(member, self.me) and self.above(leader, member) for member in self.others)
