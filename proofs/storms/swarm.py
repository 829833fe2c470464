"""The options of a storm's world: those of any simulated world, and its surroundings."""

import random
from dataclasses import dataclass, fields

from makegood.testing.simulator import swarm
from makegood.testing.simulator.swarm import LAYOUTS
from proofs.storms import surroundings
from proofs.storms.surroundings import Around


@dataclass(frozen=True, slots=True, kw_only=True)
class StormSwarm(swarm.Swarm):
    """The options of one storm."""

    around: Around | None = None
    """The surroundings of the engine; None: there are none."""


def drawn(seed: int) -> StormSwarm:
    """Draw the options of a seed, and the surroundings of its engine."""
    settings = swarm.draw(random.Random(f"{seed} swarm"))
    options = {field.name: getattr(settings, field.name) for field in fields(settings)}
    return StormSwarm(**options, around=surroundings.draw(seed))


def calm(*, tasks: int = 1, layout: tuple[tuple[str, ...], ...] = LAYOUTS[0]) -> StormSwarm:
    """Return a world without faults."""
    return StormSwarm(layout=layout, tasks=tasks, storm=0.0)


def kills(
    *, tasks: int = 4, layout: tuple[tuple[str, ...], ...] = LAYOUTS[0], strength: float = 1.0
) -> StormSwarm:
    """Return a world in which processes are killed, and nothing else happens."""
    return StormSwarm(
        layout=layout, tasks=tasks, points={"kill": 0.004 * strength}, rates={"kill": 0.1 * strength}
    )
