"""The options of a storm's world: those of any simulated world, and its surroundings."""

import random
from dataclasses import dataclass, fields

from makegood.testing.simulator import swarm
from makegood.testing.simulator.swarm import LAYOUTS
from proofs.storms import surroundings, timetable
from proofs.storms.surroundings import Around
from proofs.storms.timetable import Timetable

_ASKING = 0.2
"""The share of worlds in which tasks wait for signals."""
_DELAYING = 0.2
"""The share of worlds in which tasks begin later."""
_NOTING = 0.1
"""The share of worlds in which actions write notes."""
_LANED = 0.2
"""The share of worlds in which tasks wait for lanes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StormSwarm(swarm.Swarm):
    """The options of one storm."""

    around: Around | None = None
    """The surroundings of the engine; None: there are none."""
    delayed: float = 0.0
    """The share of orders whose tasks begin later."""
    asking: float = 0.0
    """The share of orders whose tasks wait for signals."""
    laned: float = 0.0
    """The share of orders whose tasks have lanes."""
    noting: float = 0.0
    """The share of the moments of a call at which its action writes a note."""
    timetable: Timetable | None = None
    """The schedules; None: there are none."""


def drawn(seed: int) -> StormSwarm:
    """Draw the options of a seed, and the surroundings of its engine."""
    settings = swarm.draw(random.Random(f"{seed} swarm"))
    options = {field.name: getattr(settings, field.name) for field in fields(settings)}
    rng = random.Random(f"{seed} delays")
    delayed = rng.uniform(0.2, 1.0) if rng.random() < _DELAYING else 0.0
    rng = random.Random(f"{seed} signals")
    asking = rng.uniform(0.3, 1.0) if rng.random() < _ASKING else 0.0
    rng = random.Random(f"{seed} lanes")
    laned = rng.uniform(0.4, 1.0) if rng.random() < _LANED else 0.0
    rng = random.Random(f"{seed} notes")
    noting = rng.uniform(0.3, 1.0) if rng.random() < _NOTING else 0.0
    return StormSwarm(
        **options,
        around=surroundings.draw(seed),
        delayed=delayed,
        asking=asking,
        laned=laned,
        noting=noting,
        timetable=timetable.draw(seed, settings.storm),
    )


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
