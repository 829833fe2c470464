"""Fault points, and the faults that strike there.

Every place where a crash may matter reports to the world that it is reached: before and after each operation
on the store, inside each writing transaction before and after the commit, when requests were taken and
replies given, before and after each call of a service. The seed's strengths decide what strikes or, run after
run, a *plan* that picks the n-th point.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

OF_PROCESSES = frozenset({"kill", "stop"})
"""Faults that strike more often at points that are rarely reached; otherwise no run would hit those."""
_RARE = 6.0


class FaultPoint(NamedTuple):
    """A fault point as it is reached."""

    number: int
    """Its number in this run, from 1."""
    name: str
    process: str
    """The name of the process."""
    able: tuple[str, ...]
    """The faults that can strike here."""


Plan = Callable[[FaultPoint], str | None]
"""Chooses the fault that strikes at a point; None: nothing strikes."""


class InjectedFault(NamedTuple):
    """A fault that chance let happen in a world."""

    where: str
    """The fault point."""
    who: str
    """The process."""
    nth: int
    """How often ``who`` had reached ``where`` before: 0 at the first time."""
    what: str
    """The fault."""

    def __str__(self) -> str:
        """Return it as a line of text."""
        owner = f" of {self.who}" if self.who else ""
        return f"{self.what} at {self.where}{owner}, number {self.nth + 1}"


@dataclass(slots=True)
class Faults:
    """Decides what strikes where."""

    rng: random.Random
    strengths: Mapping[str, float] = field(default_factory=dict)
    plan: Plan | None = None
    """Chooses the faults instead of chance, even if ``on`` is false."""
    on: bool = True
    """Whether chance strikes."""
    number: int = 0
    visits: dict[str, int] = field(default_factory=dict)
    """How often each point was reached, by name."""
    counts: dict[str, int] = field(default_factory=dict)
    """Faults that struck, by kind."""
    only: frozenset[InjectedFault] | None = None
    """Just these blows strike: some of the ``blows`` of a run of chance."""
    blows: list[InjectedFault] = field(default_factory=list)
    """What chance let happen."""
    _times: dict[tuple[str, str], int] = field(default_factory=dict)

    def strikes(self, name: str, process: str, able: tuple[str, ...]) -> str | None:
        """Return the fault that strikes at this point, one of ``able``, or None."""
        self.number += 1
        count = self.visits[name] = self.visits.get(name, 0) + 1
        if self.plan is not None:
            return self.plan(FaultPoint(self.number, name, process, able))
        if not self.on:
            return None
        nth = self._come(name, process)
        if self.only is not None:
            return next((kind for kind in able if InjectedFault(name, process, nth, kind) in self.only), None)
        if not self.strengths:
            return None
        fault = self._chance(able, count)
        if fault is not None:
            self.blows.append(InjectedFault(name, process, nth, fault))
        return fault

    def happens(self, what: str, who: str = "") -> bool:
        """Return whether something due happens, an order or a driven fault: always, unless ``only`` leaves it
        out.
        """
        blow = InjectedFault("its time", who, self._come(what, who), what)
        if self.only is not None:
            return blow in self.only
        self.blows.append(blow)
        return True

    def _come(self, point: str, process: str) -> int:
        """Count that ``process`` reached ``point``; returns how often it had before."""
        nth = self._times.get((point, process), 0)
        self._times[point, process] = nth + 1
        return nth

    def _chance(self, able: tuple[str, ...], count: int) -> str | None:
        """Draw one of ``able`` by its strength, or None; faults of processes strike more often at rarely
        reached points.
        """
        roll = self.rng.random()
        for kind in able:
            strength = self.strengths.get(kind)
            if not strength:
                continue
            roll -= strength * (1.0 + _RARE / count**0.5 if kind in OF_PROCESSES else 1.0)
            if roll < 0:
                return kind
        return None

    def count_fault(self, kind: str) -> None:
        """Count a fault."""
        self.counts[kind] = self.counts.get(kind, 0) + 1
