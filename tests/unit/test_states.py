"""The table of lawful moves: the drawing in the docs shows it, and what is not in it raises."""

import re
from pathlib import Path

import pytest

from makegood.errors import IllegalTransitionError
from makegood.model.states import CONTROL_MOVES, STEP_MOVES, TASK_MOVES, Moves, check_step, check_task

PAGE = Path(__file__).resolve().parents[2] / "docs/learn/lifecycle.md"
ARROW = re.compile(r"^\s*(\w+) --> (\w+): (.+)$")


def drawings() -> list[dict[tuple[str, str], str]]:
    """Return the arrows of each state diagram of the page, with what is written on them."""
    text = PAGE.read_text(encoding="utf-8")
    return [
        {(m[1], m[2]): m[3] for line in block.splitlines() if (m := ARROW.match(line))}
        for block in re.findall(r"^```mermaid\nstateDiagram-v2\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    ]


@pytest.mark.parametrize(
    ("drawing", "table"),
    [(0, TASK_MOVES), (1, STEP_MOVES), (2, CONTROL_MOVES)],
    ids=["tasks", "steps", "control steps"],
)
def test_the_drawing_is_the_table(drawing: int, table: Moves[str]) -> None:  # type: ignore[type-var]
    """Every lawful move is drawn, with its reason, and nothing else is."""
    moves = {(before, after): why for before, following in table.items() for after, why in following.items()}
    assert drawings()[drawing] == moves


def test_the_drawing_begins_and_ends_where_tasks_do() -> None:
    """Submission makes a task pending and its steps waiting."""
    text = PAGE.read_text(encoding="utf-8")
    assert "[*] --> pending: submitted" in text
    assert "[*] --> waiting: submitted" in text


@pytest.mark.parametrize("before", TASK_MOVES)
def test_task_moves_are_checked(before: str) -> None:
    """What is in the table passes, everything else raises."""
    for after in TASK_MOVES:
        if after in TASK_MOVES[before]:  # type: ignore[index]
            check_task(before, after)  # type: ignore[arg-type]
        else:
            with pytest.raises(IllegalTransitionError, match=f"from {before} to {after}"):
                check_task(before, after)  # type: ignore[arg-type]


@pytest.mark.parametrize("control", [False, True])
@pytest.mark.parametrize("before", STEP_MOVES)
def test_step_moves_are_checked(before: str, *, control: bool) -> None:
    """For control steps by their own, smaller table; states that they never have included."""
    table = CONTROL_MOVES if control else STEP_MOVES
    for after in STEP_MOVES:
        if after in table.get(before, {}):  # type: ignore[call-overload]
            check_step(before, after, control=control)  # type: ignore[arg-type]
        else:
            with pytest.raises(IllegalTransitionError, match=f"from {before} to {after}"):
                check_step(before, after, control=control)  # type: ignore[arg-type]


def test_tables_are_frozen() -> None:
    """Nobody changes them on the way."""
    with pytest.raises(TypeError):
        TASK_MOVES["pending"] = {}  # type: ignore[index]
    with pytest.raises(TypeError):
        STEP_MOVES["failed"]["done"] = ""  # type: ignore[index]


def test_control_moves_are_step_moves_but_for_deciding() -> None:
    """A control step does what steps do, and is decided without having been asked for."""
    for before, following in CONTROL_MOVES.items():
        for after in following:
            assert after in STEP_MOVES[before] or (before, after) == ("ready", "done")
