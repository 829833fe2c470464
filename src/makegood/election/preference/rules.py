"""The rules of an algorithm, without any I/O: what a member does at the start, on a message, and as time
passes.

Each call gets the time and returns the letters to send. So the same code runs over TCP, in memory, and in a
test that counts messages. ``due`` is the time of the next ``tick``.
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
"""How many messages in a row may be lost before silence counts as death, unless ``patience`` says
otherwise.
"""


@dataclass(frozen=True, slots=True)
class Timing:
    """Durations in seconds."""

    interval: float
    """Between two signs of life."""
    patience: float
    """Silence after which a member counts as dead."""
    timeout: float
    """How long to wait for an answer."""


def timing(
    interval: Duration, patience: Duration | None, timeout: Duration | None, answers: float = 1.0
) -> Timing:
    """Return checked settings; ``answers``: the default of ``timeout``, in intervals.

    Raises ``ConfigError`` if they cannot work together.
    """
    often = seconds(interval, name="interval", least=0.001)
    silence = _LOSSES * often if patience is None else seconds(patience, name="patience")
    answer = often * answers if timeout is None else seconds(timeout, name="timeout", least=0.001)
    if silence <= often:
        raise ConfigError(
            f"patience={silence:g} s is not longer than interval={often:g} s: every member would be taken for dead between two "
            "signs of life; use three intervals or more"
        )
    return Timing(often, silence, answer)


class Rules(ABC):
    """What one member knows. ``leader``: the member that it takes for the leader; None if it knows none."""

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
        self.prepare()

    @abstractmethod
    def prepare(self) -> None:
        """Set what this algorithm knows at the beginning."""

    @property
    @abstractmethod
    def due(self) -> float:
        """When ``tick`` must be called next."""

    @abstractmethod
    def begin(self, now: float) -> list[Letter]:
        """Begin."""

    @abstractmethod
    def hear(self, sender: str, message: Message, now: float) -> list[Letter]:
        """Handle a message."""

    @abstractmethod
    def tick(self, now: float) -> list[Letter]:
        """Do what is due."""

    @abstractmethod
    def rank(self) -> int:
        """Return how many members should try before this one."""

    def above(self, member: str, rival: str) -> bool:
        """Whether one member's name is the higher of two."""
        return bool(self._order(member) > self._order(rival))

    def number(self) -> int:
        """Return a number that was never used before, not even by this member in an earlier life."""
        return self._rng.getrandbits(53)

    def to(self, recipients: Iterable[str], message: Message) -> list[Letter]:
        """Return a letter for each."""
        return [(member, message) for member in recipients]

    def signs_of_life(self, now: float) -> list[Letter]:
        """Return the signs of life to all members, if they are due."""
        if now < self._next_alive:
            return []
        self._next_alive = now + self.timing.interval
        return self.to(self.others, Message("alive", self.me))


class Announced(Rules):
    """What bully and ring have in common: the highest name leads, announces that at each interval, and
    silence deposes it.

    The papers leave open how a dead leader is noticed, or poll it. Here it speaks by itself, n - 1 messages
    at each interval. That also heals partitions: when two leaders hear of each other, the lower one follows.
    """

    _heard_at = 0.0

    @abstractmethod
    def electing(self) -> bool:
        """Whether this member takes part in an unfinished election."""

    @abstractmethod
    def elect(self, now: float) -> list[Letter]:
        """Hold an election."""

    @abstractmethod
    def settle(self) -> None:
        """There is a leader: any election that this member took part in is over."""

    def begin(self, now: float) -> list[Letter]:
        """Hold an election: a member that comes (back) does not know who leads, and may be the highest."""
        return self.elect(now)

    def lead(self, now: float) -> None:
        """Be the leader from now on."""
        self.settle()
        self.leader = self.me
        self._next_alive = now + self.timing.interval

    def accept(self, leader: str, now: float, *, by_election: bool) -> list[Letter]:
        """Handle an announcement that ``leader`` leads; ``by_election``: it is the outcome of an election,
        not a repetition.

        A lower name is not accepted: this member is higher, and alive. A name lower than the known leader's,
        if that was heard recently, is a delayed message, or a leader that will hear of the other one.
        """
        current = self.leader
        fresh = current not in (None, self.me) and now < self.silent_at()
        if not self.above(leader, self.me):
            return [] if fresh or self.electing() or current == self.me else self.elect(now)
        if by_election or not fresh or current is None or not self.above(current, leader):
            self.settle()
            self.leader, self._heard_at, self._next_alive = leader, now, NEVER
        return []

    def silent_at(self) -> float:
        """Return when the leader will have been silent for too long."""
        return NEVER if self.leader in (None, self.me) else self._heard_at + self.timing.patience

    def announce_or_elect(self, now: float) -> list[Letter]:
        """Announce that this member leads, or hold an election if the leader has been silent for too long."""
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
