"""The storm of a seed for a user's test: only the requested faults, and as long as the test takes."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from makegood.options import Options
from makegood.testing.simulator.swarm import Swarm, draw

FAULTS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "kill": frozenset({"kill", "orderly stop"}),
        "stop": frozenset({"stop"}),
        "ambiguous": frozenset({"ambiguous committed", "ambiguous not committed"}),
        "duplicate": frozenset({"duplicate", "service called twice"}),
        "late": frozenset(
            {"delay", "slow commit", "service slow", "service does it and times out", "service late"}
        ),
        "lost": frozenset({"drop"}),
        "outage": frozenset({"store down", "outage"}),
        "fails": frozenset({"service fails", "service hangs", "spell"}),
        "refuses": frozenset({"service refuses"}),
        "clock": frozenset({"clock jump"}),
    }
)
"""The faults of a storm, by the words of ``faults=``; "all" means all of them."""
_SHORT: Final = 20.0


def stormy(seed: int, faults: Sequence[str], lasts: float, *, leaps: bool) -> Swarm:
    """Return the options of a seed. ``faults``: words of ``FAULTS``; ``lasts``: seconds that the test takes
    in a calm world; ``leaps``: whether time leaps there, after which processes find what is due by a poll.
    """
    swarm = draw(random.Random(f"{seed} swarm"))
    if leaps and swarm.engine.poll_every is None:
        swarm = replace(swarm, engine=replace(swarm.engine, poll_every=Options().poll_every))
    kinds = frozenset[str]().union(*(FAULTS[name] for name in faults))
    longer = max(1.0, lasts / _SHORT)
    clock = "clock" in faults
    return replace(
        swarm,
        tasks=0,
        tidying=0,
        storm=swarm.storm * longer,
        points=_only(swarm.points, kinds),
        messages=_only(swarm.messages, kinds),
        services=_only(swarm.services, kinds),
        rates={kind: rate / longer for kind, rate in _only(swarm.rates, kinds).items()},
        skew=swarm.skew if clock else 0.0,
        drift=swarm.drift if clock else 0.0,
        client_apart=True,
        engine=swarm.engine if longer == 1.0 else slowly(swarm.engine, min(60.0, max(1.0, lasts / 100))),
    )


def _only(strengths: Mapping[str, float], kinds: frozenset[str]) -> dict[str, float]:
    return {kind: strength for kind, strength in strengths.items() if kind in kinds}


def slowly(engine: Options, pace: float) -> Options:
    """Return settings for a world in which everything takes ``pace`` times as long."""
    return replace(
        engine,
        heartbeat=pace,
        dead_after=5 * pace,
        supervise_every=5 * pace,
        lease=15 * pace,
        poll_every=pace,
    )
