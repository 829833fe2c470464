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


class FaultPoint(NamedTuple):
    """A fault point as it is reached: its number in this run (1 first), its name, the process, and what can strike there."""

    number: int
    name: str
    process: str
    able: tuple[str, ...]


Plan = Callable[[FaultPoint], str | None]
"""Says what strikes at a point; None: nothing."""


class InjectedFault(NamedTuple):
    """Something that chance let happen in a world: the ``nth`` time (0 first) that ``who`` came to ``where``, ``what`` struck."""

    where: str
    who: str
    nth: int
    what: str

    def __str__(self) -> str:
        """Say it in a line."""
        who = f" of {self.who}" if self.who else ""
        return f"{self.what} at {self.where}{who}, number {self.nth + 1}"


@dataclass(slots=True)
class Faults:
    """Decides what strikes where. ``on``: whether chance strikes; a ``plan`` is asked whether or not it does.

    ``only``: a plan of its own sort: just these blows, which a run of chance has left in ``blows``. ``met``: the names of the points
    reached and how often; ``counts``: the faults that struck, by kind.
    """

    rng: random.Random
    strengths: Mapping[str, float] = field(default_factory=dict)
    plan: Plan | None = None
    on: bool = True
    number: int = 0
    met: dict[str, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    only: frozenset[InjectedFault] | None = None
    blows: list[InjectedFault] = field(default_factory=list)
    _times: dict[tuple[str, str], int] = field(default_factory=dict)

    def strikes(self, name: str, process: str, able: tuple[str, ...]) -> str | None:
        """Return what strikes at this point, one of ``able``, or None."""
        self.number += 1
        met = self.met[name] = self.met.get(name, 0) + 1
        if self.plan is not None:
            return self.plan(FaultPoint(self.number, name, process, able))
        if not self.on:
            return None
        nth = self._come(name, process)
        if self.only is not None:
            return next((kind for kind in able if InjectedFault(name, process, nth, kind) in self.only), None)
        if not self.strengths:
            return None
        struck = self._chance(able, met)
        if struck is not None:
            self.blows.append(InjectedFault(name, process, nth, struck))
        return struck

    def happens(self, what: str, who: str = "") -> bool:
        """Return whether something happens that is due, an order or a driven fault: always, but for what ``only`` leaves out."""
        blow = InjectedFault("its time", who, self._come(what, who), what)
        if self.only is not None:
            return blow in self.only
        self.blows.append(blow)
        return True

    def _come(self, where: str, who: str) -> int:
        """Count who comes where; returns how often that was before."""
        nth = self._times.get((where, who), 0)
        self._times[where, who] = nth + 1
        return nth

    def _chance(self, able: tuple[str, ...], met: int) -> str | None:
        """Draw one of ``able`` by its strength, or None; what strikes processes strikes more often at a point that was seldom met."""
        drawn = self.rng.random()
        for kind in able:
            strength = self.strengths.get(kind)
            if not strength:
                continue
            drawn -= strength * (1.0 + _RARE / met**0.5 if kind in OF_PROCESSES else 1.0)
            if drawn < 0:
                return kind
        return None

    def struck(self, kind: str) -> None:
        """Count a fault."""
        self.counts[kind] = self.counts.get(kind, 0) + 1
