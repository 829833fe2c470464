"""Shrinks a failing world: which of its faults, and which orders, are needed for it to fail?

Everything that chance let happen in a world is a list of blows (``faults.Blow``): faults at fault points,
events that happen now and then, orders. The world runs again and again with fewer of them (delta debugging)
until each of the rest is needed. A run with fewer blows takes another course, so a blow may strike elsewhere
or never; what counts is only whether the same invariant is still violated.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from makegood.testing.simulator.faults import InjectedFault
from makegood.testing.simulator.world import Outcome
from proofs.storms.world import StormWorld

Item = TypeVar("Item")

MOST = 500
"""Most runs."""


def minimal(items: Sequence[Item], fails: Callable[[Sequence[Item]], bool], most: int = MOST) -> list[Item]:
    """Return some of ``items``, in their order, for which ``fails`` is still true; each of them is needed.

    After ``most`` questions, it returns the fewest found so far. ``fails`` is true of all items.

    >>> minimal(range(100), lambda some: {3, 57} <= set(some))
    [3, 57]
    """
    left, parts = list(items), 2
    while len(left) >= 1 and most > 0:
        size = max(1, -(-len(left) // parts))
        for start in range(0, len(left), size):
            fewer = left[:start] + left[start + size :]
            most -= 1
            if fails(fewer):
                left, parts = fewer, max(2, parts - 1)
                break
            if most <= 0:
                break
        else:
            if size == 1:
                break
            parts = min(len(left), parts * 2)
    return left


@dataclass(frozen=True, slots=True)
class Shrunk:
    """What remains of a failing world."""

    whole: int
    """How many blows there were."""
    blows: list[InjectedFault]
    """The blows that are needed."""
    outcome: Outcome
    """The outcome of the run with them."""
    runs: int
    """How many runs it took."""


def shrunk(make: Callable[[], StormWorld], most: int = MOST) -> Shrunk | None:
    """Shrink the world that ``make`` makes, the same each time; None if it does not fail. ``most``: limit of
    runs.
    """
    first = make()
    outcome = first.run()
    target = violated(outcome)
    if not target:
        return None
    runs = 1

    def run(blows: Sequence[InjectedFault]) -> Outcome:
        nonlocal runs
        runs += 1
        world = make()
        world.faults.only = frozenset(blows)
        return world.run()

    whole = list(first.faults.blows)
    left = minimal(whole, lambda blows: bool(target & violated(run(blows))), most)
    return Shrunk(len(whole), left, run(left), runs)


def violated(outcome: Outcome) -> frozenset[str]:
    """Return the names of the invariants that a world violates, and the first words of its other findings."""
    return frozenset(re.split(r"[: ]", finding, maxsplit=1)[0] for finding in outcome.findings)
