"""The storm of a seed: its processes, the faults that are on and their strengths, and the engine's settings.

A swarm: each seed first draws *which* faults are on at all, then the strength of each, so that rare
combinations occur and no fault hides another forever. Everything stays within what must be survivable.
"""

import random
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from makegood.options import Options

LAYOUTS = (
    (("scheduler", "agent", "supervisor"), ("scheduler", "agent", "supervisor")),
    (("scheduler", "agent", "supervisor"),),
    (("scheduler",), ("agent",), ("supervisor",)),
    (("scheduler",), ("scheduler",), ("agent",), ("agent",), ("supervisor",), ("supervisor",)),
    (("scheduler", "agent"), ("scheduler", "agent"), ("supervisor",)),
    (("scheduler", "supervisor"), ("scheduler", "supervisor"), ("agent",), ("agent",)),
    (("scheduler", "agent", "supervisor"), ("scheduler",), ("agent",)),
    (*[("scheduler",)] * 3, ("agent",), *[("supervisor",)] * 3),
)
"""The roles of each process."""

SPELLS = (
    "service fails", "service refuses", "service hangs", "service does it and times out", "service late", "service late",
    "service late",
)  # fmt: skip
"""What a remote service can do to every call for a while."""
_UNWATCHED = 0.6
"""The share of worlds without a poll behind the wake-ups, of those in which none is lost, not even with the
process that was to send it. There, nothing makes up for a forgotten wake-up.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Swarm:
    """The options of one world. Probabilities are per fault point, message or call; rates are per virtual
    second.
    """

    layout: tuple[tuple[str, ...], ...] = LAYOUTS[0]
    """The roles of each process."""
    tasks: int = 4
    """How many submissions."""
    storm: float = 20.0
    """Seconds of faults."""
    calm_down: float = 900.0
    """Seconds within which everything must have ended once the faults are over."""
    points: dict[str, float] = field(default_factory=dict)
    messages: dict[str, float] = field(default_factory=dict)
    services: dict[str, float] = field(default_factory=dict)
    rates: dict[str, float] = field(default_factory=dict)
    pace: float = 0.02
    """Most seconds that a call travels to a service when nothing is wrong."""
    tombstones: bool = True
    """Whether fenced services remember what was undone."""
    tidying: int = 0
    """How often an operator goes through the tasks in error after the storm."""
    skew: float = 0.0
    """Most seconds that a process's wall clock is off."""
    drift: float = 0.0
    """How far its clocks run too fast or slow."""
    wake_loss: float = 0.0
    client_apart: bool = False
    parallel_from: int | None = None
    """See the store's ``parallel_from``."""
    engine: Options = field(default_factory=Options)
    """The settings of every Node."""

    def as_json(self) -> dict[str, Any]:
        """Return the options as plain values, for a report."""
        return asdict(self)


def draw(rng: random.Random) -> Swarm:
    """Draw the options of a seed."""
    apart = random.Random()  # For later additions, so that the recorded seeds keep their meaning.
    apart.setstate(rng.getstate())
    engine = Options(
        heartbeat=1.0,
        dead_after=rng.choice((3.0, 5.0)),
        supervise_every=rng.choice((1.0, 2.0, 5.0)),
        lease=rng.choice((5.0, 15.0)),
        late_after=rng.choice((0.0, 0.5, 2.0)),
        starved_after=rng.choice((5.0, 30.0)),
        poll_every=rng.choice((1.0, 2.0, 5.0)),
        slots=rng.choice((None, None, 1, 2)),
        max_tasks=rng.choice((10_000, 10_000, 2)),
        claim_batch=rng.choice((500, 500, 1)),
    )
    swarm = Swarm(
        layout=rng.choice(LAYOUTS),
        tasks=rng.randint(2, 7),
        storm=rng.choice((10.0, 20.0, 40.0)),
        points=_some(rng, {
            "kill": 0.01, "stop": 0.006, "store down": 0.05, "ambiguous committed": 0.02, "ambiguous not committed": 0.02,
            "slow commit": 0.03,
        }),
        messages=_some(rng, {"drop": 0.1, "duplicate": 0.2, "delay": 0.4}),
        services=_some(rng, {
            "service called twice": 0.2, "service slow": 0.3, "service fails": 0.3, "service refuses": 0.2, "service hangs": 0.1,
            "service does it and times out": 0.2, "service late": 0.3,
        }),
        rates=_some(rng, {
            "kill": 0.3, "stop": 0.3, "outage": 0.1, "clock jump": 0.2, "orderly stop": 0.1, "operator": 1.0, "spell": 0.4,
        }),
        pace=rng.choice((0.02, 0.2, 1.0, 2.0)),
        tombstones=rng.random() < 0.3,
        tidying=rng.choice((0, 1, 2)),
        skew=rng.choice((0.0, 1.0, 3600.0)),
        drift=rng.choice((0.0, 0.004)),
        wake_loss=rng.choice((0.0, 0.0, 0.3, 1.0)),
        client_apart=rng.random() < 0.5,
        parallel_from=apart.choice((None, 1, 2)),
        engine=engine,
    )  # fmt: skip
    lingers = random.Random(repr(apart.getstate()))
    swarm = replace(swarm, engine=replace(swarm.engine, linger=0.1 * 50.0 ** lingers.random()))
    reliable = not swarm.wake_loss and "kill" not in swarm.points and "kill" not in swarm.rates
    if reliable and apart.random() < _UNWATCHED:
        return replace(swarm, engine=replace(engine, poll_every=None))
    return swarm


def _some(rng: random.Random, strengths: dict[str, float]) -> dict[str, float]:
    """Return about half of the faults, each weak or strong; sometimes none of a kind or all of it."""
    share = rng.choice((0.0, 0.3, 0.5, 0.5, 0.7, 1.0))
    return {
        name: strength * rng.choice((0.1, 0.3, 1.0))
        for name, strength in strengths.items()
        if rng.random() < share
    }
