"""From a failing world to the little of it that fails: which of its faults, and which orders, are needed?

Everything that chance let happen in a world is a list of blows (``faults.InjectedFault``): faults at fault points, what simply
happens now and then, orders. The world is run again and again with fewer of them (delta debugging) until none of those that
are left can be spared. A run with fewer blows takes another way, so a blow may strike elsewhere or never; what counts is only
whether the same invariant is violated still.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from makegood.testing.simulator.faults import InjectedFault
from makegood.testing.simulator.world import Outcome, SimulatedWorld

Item = TypeVar("Item")

MOST = 500
"""So many runs at most."""


def minimal(items: Sequence[Item], fails: Callable[[Sequence[Item]], bool], most: int = MOST) -> list[Item]:
    """Return some of ``items``, in their order, with which ``fails`` is true still and of which none can be spared; after ``most``
    questions, the fewest found so far. ``fails`` is true of all items.

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
    """What is left of a failing world. ``whole``: how many blows there were; ``blows``: those needed; ``outcome``: of the run with
    them; ``runs``: how many it took.
    """

    whole: int
    blows: list[InjectedFault]
    outcome: Outcome
    runs: int


def shrunk(make: Callable[[], SimulatedWorld], most: int = MOST) -> Shrunk | None:
    """Shrink what ``make`` makes, the same world each time; None when it does not fail. ``most``: so many runs at most."""
    first = make()
    outcome = first.run()
    wanted = violated(outcome)
    if not wanted:
        return None
    runs = 1

    def run(blows: Sequence[InjectedFault]) -> Outcome:
        nonlocal runs
        runs += 1
        world = make()
        world.faults.only = frozenset(blows)
        return world.run()

    whole = list(first.faults.blows)
    left = minimal(whole, lambda blows: bool(wanted & violated(run(blows))), most)
    return Shrunk(len(whole), left, run(left), runs)


def violated(outcome: Outcome) -> frozenset[str]:
    """Return the names of the invariants that a world violates, and the first words of what else is wrong with it."""
    return frozenset(re.split(r"[: ]", finding, maxsplit=1)[0] for finding in outcome.findings)
