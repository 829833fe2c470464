"""Random plans, as ``mg.parallel`` and ``mg.branches`` can make them, and what must hold for their ladders."""

import random

from makegood.console.ladder import (
    MOST_LANES,
    Branches,
    LadderRow,
    LadderStep,
    Part,
    Tangle,
    ladder,
    rows_of,
    series,
)

STATES = ("done", "waiting", "undone", "undo_failed", "kept", "in_doubt")


def grow(rng: random.Random, steps: list[LadderStep], front: list[int], depth: int) -> list[int]:
    """Add a series of steps and branches behind ``front``; return its last steps."""
    for _ in range(rng.randint(1, 4)):
        if depth and rng.random() < 0.4:
            front = [end for _ in range(rng.randint(2, 4)) for end in grow(rng, steps, front, depth - 1)]
        else:
            steps.append(
                LadderStep(
                    idx=len(steps), name=f"s{len(steps)}", after=tuple(front), state=rng.choice(STATES)
                )
            )
            front = [steps[-1].idx]
    return front


def tangles(parts: list[Part]) -> int:
    """Return how many parts fell back to one row per rank."""
    return sum(
        isinstance(p, Tangle) or (sum(map(tangles, p.series)) if isinstance(p, Branches) else 0)
        for p in parts
    )


def check(seed: int) -> None:
    """Lay out one random plan and look at it."""
    rng = random.Random(seed)
    steps: list[LadderStep] = []
    grow(rng, steps, [], 3)
    parts = series(steps)
    assert not tangles(parts), seed
    place: dict[int, int] = {}
    for n, row in enumerate(rows_of(parts)):
        lanes: list[int] = []
        for cell in row.cells:
            assert cell.lane + cell.span - 1 <= cell.lanes <= MOST_LANES, seed
            lanes += range(cell.lane, cell.lane + cell.span)
            if cell.step is not None:
                assert cell.step.idx not in place, seed
                place[cell.step.idx] = n
        assert lanes == list(range(1, len(lanes) + 1)), seed
    assert len(place) == len(steps), seed
    for step in steps:
        assert all(place[p] < place[step.idx] for p in step.after), seed
    for goal in ("forward", "undo"):
        assert shown(ladder(steps, goal=goal)) == {step.name for step in steps}, seed


def shown(rows: list[LadderRow]) -> set[str]:
    """Return the steps that a ladder shows, folded or not."""
    return {
        *(step.name for row in rows for step in row.steps),
        *(name for row in rows for name in row.names),
    }  # fmt: skip
