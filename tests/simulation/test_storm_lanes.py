"""Storms over tasks with lanes: calm ones go in order, and in rough weather everything happens that the rules look at."""

import logging
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from proofs.run_counts import occurrences
from proofs.seeds import Storms
from proofs.storms.lanes import LANED, laned
from proofs.storms.shop import orders, storm_app
from proofs.storms.swarm import calm, drawn

ROUGH = (7, 101)
"""Seeds of worlds in which all tasks have lanes."""


@pytest.fixture(scope="module")
def storms() -> Iterator[Storms]:
    """Worlds over all workflows, whose noise is not printed."""
    logging.disable(logging.CRITICAL)
    yield Storms()
    logging.disable(logging.NOTSET)


def test_in_a_calm_world_tasks_of_a_lane_go_one_after_the_other(storms: Storms) -> None:
    outcome = storms.run(1, replace(calm(tasks=8), laned=1.0))
    assert outcome.findings == []
    assert all(outcome.report.checks[rule] > 0 for rule in ("I29", "I30", "I31", "L9"))


def test_in_storms_tasks_wait_for_their_lanes_are_refused_and_released(storms: Storms) -> None:
    counts: Counter[str] = Counter()
    for seed in ROUGH:
        swarm = replace(
            drawn(seed),
            tasks=12,
            laned=1.0,
            tidying=1,
            rates={"kill": 0.1, "operator": 2.0},
            services={"service refuses": 0.2, "service hangs": 0.1},
        )
        outcome = storms.run(seed, swarm)
        assert outcome.findings == []
        counts += occurrences(outcome.history)
    assert min(counts[name] for name in ("lane wait", "lane refusal", "lane release")) > 0


def test_one_world_of_five_has_lanes_of_every_kind() -> None:
    worlds = [drawn(seed) for seed in range(500)]
    assert 75 < sum(world.laned > 0 for world in worlds) < 125
    app = storm_app()
    names = {
        order.workflow.name
        for seed in range(40)
        for order in laned(app, orders(app, random.Random(seed), 5), 1.0, random.Random(seed))
    }
    assert set(LANED) == names
