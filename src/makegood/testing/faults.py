"""Fault points, and what strikes there.

Every place at which a crash may matter tells the world that it is reached: before and after each operation on the store,
inside each writing transaction before and after the commit, when requests were taken and replies given, before and after
each call of a service. What strikes is decided by the seed's strengths or, run after run, by a *plan* that picks the n-th point.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

OF_PROCESSES = frozenset({"kill", "stop"})
"""What strikes more often at points that are seldom reached, or the rare ones would never be met."""
_RARE = 6.0


class Point(NamedTuple):
    """A fault point as it is reached: its number in this run (1 first), its name, the process, and what can strike there."""

    number: int
    name: str
    process: str
    able: tuple[str, ...]


Plan = Callable[[Point], str | None]
"""Says what strikes at a point; None: nothing."""


@dataclass(slots=True)
class Faults:
    """Decides what strikes where. ``on``: whether chance strikes; a ``plan`` is asked whether or not it does.

    ``met``: the names of the points reached and how often; ``counts``: the faults that struck, by kind.
    """

    rng: random.Random
    strengths: Mapping[str, float] = field(default_factory=dict)
    plan: Plan | None = None
    on: bool = True
    number: int = 0
    met: dict[str, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def strikes(self, name: str, process: str, able: tuple[str, ...]) -> str | None:
        """Return what strikes at this point, one of ``able``, or None."""
        self.number += 1
        self.met[name] = self.met.get(name, 0) + 1
        if self.plan is not None:
            return self.plan(Point(self.number, name, process, able))
        return self._chance(able, 1.0 + _RARE / self.met[name] ** 0.5) if self.on and self.strengths else None

    def _chance(self, able: tuple[str, ...], more: float) -> str | None:
        """Draw one of ``able`` by its strength, or None; ``more`` often at a point that is seldom reached."""
        drawn = self.rng.random()
        for kind in able:
            drawn -= self.strengths.get(kind, 0.0) * (more if kind in OF_PROCESSES else 1.0)
            if drawn < 0:
                return kind
        return None

    def struck(self, kind: str) -> None:
        """Count a fault."""
        self.counts[kind] = self.counts.get(kind, 0) + 1
