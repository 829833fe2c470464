"""The members of a group and a network between them, in virtual time: the real rules, every message counted."""

import heapq
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from makegood.election.preference.bully import BullyRules
from makegood.election.preference.lowest import LowestRules
from makegood.election.preference.ring import RingRules
from makegood.election.preference.rules import Announced, Rules, Timing
from makegood.election.preference.transport import Letter, Message, natural

TIMING = Timing(interval=1.0, patience=3.0, timeout=0.5)
QUIET = Timing(interval=1e6, patience=3e6, timeout=100.0)
"""No signs of life: what is left are the messages of elections."""
ALGORITHMS: dict[str, type[Rules]] = {"lowest": LowestRules, "bully": BullyRules, "ring": RingRules}


class Exchange:
    """Members by name. ``loss``, ``repeat``: shares of messages; ``slowest``: seconds that one takes at most; ``sides``: who can
    reach whom. ``step`` counts what has happened.
    """

    def __init__(
        self, make: type[Rules], members: Sequence[str], timing: Timing = TIMING, seed: int = 0
    ) -> None:
        self._make, self.members, self._timing = make, list(members), timing
        self.rng = random.Random(f"{seed} {make} {members}")
        self.now = 0.0
        self.alive: dict[str, Rules] = {}
        self.sent: Counter[str] = Counter()
        self.loss = self.repeat = 0.0
        self.slowest = self.quickest = 0.01
        self.sides: list[set[str]] = [set(members)]
        self.step = 0
        self._under_way: list[tuple[float, int, str, Letter]] = []
        self._letters = 0

    def join(self, *names: str, begins: bool = True) -> None:
        """Let members come, or come back: they know nothing."""
        for name in names:
            self.alive[name] = self._make(name, self.members, self._timing, natural, self.rng)
            if begins:
                self._send(name, self.alive[name].begin(self.now))

    def elect(self, *names: str) -> None:
        """Let members hold an election."""
        for name in names:
            rules = self.alive[name]
            assert isinstance(rules, Announced)
            self._send(name, rules.elect(self.now))

    def kill(self, name: str) -> None:
        """Let a member die."""
        self.alive.pop(name, None)

    def part(self, *sides: Iterable[str]) -> None:
        """Cut the network."""
        self.sides = [set(side) for side in sides]

    def heal(self) -> None:
        """End all faults."""
        self.sides = [set(self.members)]
        self.loss = self.repeat = 0.0
        self.slowest = self.quickest = 0.01

    def leaders(self) -> set[str | None]:
        """Return whom the living take for the leader."""
        return {rules.leader for rules in self.alive.values()}

    def believers(self) -> list[str]:
        """Return who believes to lead."""
        return sorted(name for name, rules in self.alive.items() if rules.leader == name)

    def run(self, seconds: float, until: Callable[[], bool] = lambda: False) -> bool:
        """Let time pass; return whether ``until`` came true."""
        end = self.now + seconds
        while not until():
            due, who = min(
                ((max(rules.due, self.now), name) for name, rules in self.alive.items()),
                default=(float("inf"), ""),
            )
            arrives = self._under_way[0][0] if self._under_way else float("inf")
            if min(due, arrives) > end:
                self.now = end
                return until()
            self.step += 1
            if arrives <= due:
                self.now, _, to, (sender, message) = heapq.heappop(self._under_way)
                if to in self.alive:
                    self._send(to, self.alive[to].hear(sender, message, self.now))
            else:
                self.now = due
                self._send(who, self.alive[who].tick(self.now))
        return True

    def agree(self, leader: str, seconds: float) -> bool:
        """Let time pass until all the living follow this one; return whether they do in time."""
        return self.run(seconds, lambda: self.leaders() == {leader})

    def _send(self, sender: str, letters: list[Letter]) -> None:
        for to, message in letters:
            assert to != sender
            assert to in self.members
            self.sent[message.kind] += 1
            self._carry(sender, to, message)
            if self.rng.random() < self.repeat:
                self._carry(sender, to, message)

    def _carry(self, sender: str, to: str, message: Message) -> None:
        path_open = any(sender in side and to in side for side in self.sides)
        if path_open and self.rng.random() >= self.loss:
            self._letters += 1
            at = self.now + self.rng.uniform(self.quickest, self.slowest)
            heapq.heappush(self._under_way, (at, self._letters, to, (sender, message)))
