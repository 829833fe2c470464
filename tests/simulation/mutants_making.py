"""What a mutant is, and how a function becomes one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType

import pytest

from makegood.testing.simulator.world import Outcome
from proofs.storms.services import Kind
from proofs.storms.swarm import StormSwarm
from tests.simulation.mutants_worlds import Twist

Patch = Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True, slots=True)
class Mutant:
    """One rule switched off. ``rule``: which; ``swarm``, ``only``, ``services``, ``twist``: the worlds in which it must die, from seed 0
    on; ``look``: looks at their history beside the checker; ``within``: so many seeds are tried. ``night``: too many for every
    run.
    """

    name: str
    rule: str
    patch: Patch
    swarm: StormSwarm
    only: str | None = None
    services: Mapping[str, Kind] | None = None
    twist: Twist | None = None
    look: Callable[[Outcome], list[str]] | None = None
    within: int = 12
    night: bool = False


def mutant(
    swarm: StormSwarm,
    only: str | None = None,
    *,
    services: Mapping[str, Kind] | None = None,
    twist: Twist | None = None,
    look: Callable[[Outcome], list[str]] | None = None,
    within: int = 12,
    night: bool = False,
) -> Callable[[Patch], Mutant]:
    """Name a mutant by its function; the docstring says which rule is off."""

    def named(patch: Patch) -> Mutant:
        rule = (patch.__doc__ or "").strip().rstrip(".")
        return Mutant(patch.__name__, rule, patch, swarm, only, services, twist, look, within, night)

    return named


def named_in(module: ModuleType) -> dict[str, Mutant]:
    """Return the mutants of a module, in the order in which they stand there.

    >>> named_in(ModuleType("empty"))
    {}
    """
    return {name: mutant for name, mutant in vars(module).items() if isinstance(mutant, Mutant)}
