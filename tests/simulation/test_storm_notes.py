"""Storms in which actions write notes: calm ones keep each, and in rough weather everything happens that the rule looks at."""

import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from proofs.seeds import Storms
from proofs.storms.swarm import calm, drawn
from tests.simulation.mutants_worlds import APART

ROUGH = (12, 20, 36)
"""Seeds of worlds in which all actions write notes."""


@pytest.fixture(scope="module")
def storms() -> Iterator[Storms]:
    """Worlds over all workflows, whose noise is not printed."""
    logging.disable(logging.CRITICAL)
    yield Storms()
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("apart", [False, True])
def test_in_a_calm_world_every_note_is_kept_or_counted(storms: Storms, *, apart: bool) -> None:
    world = replace(calm(tasks=8), noting=1.0)
    outcome = storms.run(1, replace(world, layout=APART) if apart else world)
    assert outcome.findings == []
    assert outcome.report.checks["I33"] > 0
    events = Counter(event.kind for event in outcome.history.events)
    skips = sum(event["skipped"] for event in outcome.history.events if event.kind == "noted")
    assert events["wrote"] == events["noted"] + skips > 0


@pytest.mark.parametrize("seed", ROUGH)
def test_in_storms_notes_come_late_are_skipped_and_die_with_their_process(storms: Storms, seed: int) -> None:
    outcome = storms.run(seed, replace(drawn(seed), tasks=10, noting=1.0))
    assert outcome.findings == []


def test_storms_have_notes_of_every_kind(storms: Storms) -> None:
    counts: Counter[str] = Counter()
    for seed in ROUGH:
        outcome = storms.run(seed, replace(drawn(seed), tasks=10, noting=1.0))
        lines = [event for event in outcome.history.events if event.kind == "noted"]
        counts["late"] += sum(event["late"] for event in lines)
        counts["skipped"] += sum(event["skipped"] for event in lines)
        counts["undo"] += sum(event["doing"] == "undo" for event in lines)
    assert min(counts.values()) > 0


def test_one_world_of_ten_has_notes() -> None:
    worlds = [drawn(seed) for seed in range(500)]
    assert 30 < sum(world.noting > 0 for world in worlds) < 70
