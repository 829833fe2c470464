"""The ladder's layout: what is cut where, who stands beside whom, how far the rails go, what is folded."""

import pytest

from makegood.console import looks
from makegood.console.ladder import LadderStep, Tangle, ladder, letters, series
from tests.console.plans import check, tangles


def chain(*states: str) -> list[LadderStep]:
    """Return steps that follow each other."""
    return [
        LadderStep(idx=n, name=f"s{n}", state=state, after=(n - 1,) if n else ())
        for n, state in enumerate(states)
    ]


@pytest.mark.parametrize("seed", range(60))
def test_a_random_plan_is_laid_out(seed: int) -> None:
    """The first sixty; `make proof` lays out three thousand."""
    check(seed)


def test_what_is_neither_series_nor_branches_has_a_row_for_each_rank() -> None:
    """The smallest such plan: the letter N."""
    steps = [
        LadderStep(idx=0, name="a"), LadderStep(idx=1, name="b"), LadderStep(idx=2, name="c", after=(0,)),
        LadderStep(idx=3, name="d", after=(0, 1)),
    ]  # fmt: skip
    parts = series(steps)
    assert tangles(parts) == 1
    assert isinstance(parts[0], Tangle)
    assert [[step.name for step in row.steps] for row in ladder(steps)] == [["a", "b"], ["c", "d"]]


def test_more_than_three_branches_are_stacked_and_lettered() -> None:
    """Thirty of them: the letters go on after z."""
    steps = [LadderStep(idx=n, name=f"b{n}") for n in range(4)]
    rows = ladder(steps)
    assert [row.kind for row in rows] == ["stackhead", "steps", "steps", "steps", "steps"]
    assert [row.cells[0].label for row in rows[1:]] == ["a", "b", "c", "d"]
    assert letters(29) == "ad"


def test_the_right_rail_is_solid_up_to_the_first_rung_that_is_not_settled() -> None:
    """From the bottom: settled, then half, then ahead."""
    rows = ladder(chain("done", "undo_failed", "undone", "failed"), goal="undo")
    assert [row.cells[0].up for row in rows if row.kind == "steps"] == ["ahead", "half", "", ""]


def test_what_never_began_is_folded_behind_the_turn() -> None:
    """A task that is undone shows how far it came."""
    rows = ladder(chain("undone", "failed", "waiting", "waiting"), goal="undo")
    assert [row.kind for row in rows] == ["steps", "steps", "turn", "beyond"]
    assert rows[-1].names == ("s2", "s3")


def test_the_point_of_no_return_is_a_line_of_its_own() -> None:
    """It says whether the task is past it."""
    steps = chain("done", "waiting")
    steps[0].no_return = steps[1].no_return = True
    assert [(row.kind, row.passed) for row in ladder(steps) if row.kind == "noreturn"] == [
        ("noreturn", True),
        ("noreturn", False),
    ]


def test_a_long_ladder_folds_what_is_quiet_except_beside_what_is_not() -> None:
    """Up to 24 rungs nothing is folded."""
    assert len(ladder(chain(*["done"] * 24))) == 24
    rows = ladder(chain(*["done"] * 20, "running", *["waiting"] * 20))
    assert [row.kind for row in rows] == ["fold", "steps", "steps", "steps", "fold"]
    assert [row.steps[0].name for row in rows[1:4]] == ["s19", "s20", "s21"]
    assert [len(row.names) for row in rows if row.kind == "fold"] == [19, 19]
    rungs = chain(*["done"] * 40)
    rungs[17].now = "doubt"
    assert ladder(rungs)[2].steps[0].name == "s17", "a rung to look at is never folded"


def test_a_plan_of_a_thousand_steps_is_cut_at_once() -> None:
    """Sets of steps are numbers: neither a chain nor a thousand branches take long."""
    assert len(series(chain(*["done"] * 1000))) == 1000
    assert len(series([LadderStep(idx=n, name=str(n)) for n in range(1000)])) == 1


@pytest.mark.parametrize(
    "state",
    [
        "waiting",
        "ready",
        "running",
        "done",
        "failed",
        "in_doubt",
        "undoing",
        "undone",
        "undo_failed",
        "kept",
        "skipped",
    ],
)
@pytest.mark.parametrize("goal", ["forward", "undo"])
@pytest.mark.parametrize("kind", ["action", "when"])
def test_every_state_has_a_look(state: str, goal: str, kind: str) -> None:
    """Solid red, the tone "need", means that somebody is needed: it is an undo that failed, and nothing else."""
    step = LadderStep(
        idx=0,
        name="s",
        state=state,
        kind=kind,
        forward="done" if state in ("undoing", "undone", "undo_failed", "kept") else "",
    )
    sides = [looks.left_look(step), looks.right(step, goal)]
    assert all(side is None or side.icon or side.bare for side in sides)
    needs = any(side is not None and side.tone == "need" for side in sides)
    assert needs == (state == "undo_failed" and goal == "undo" and kind == "action")
