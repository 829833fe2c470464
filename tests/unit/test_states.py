"""The table of lawful moves: the drawing in the docs shows it, and what is not in it raises."""

import re
from pathlib import Path
from typing import Any, get_args

import pytest

from makegood.errors import IllegalTransitionError
from makegood.model.states import (
    CONTROL_MOVES,
    STEP_MOVES,
    TASK_MOVES,
    TEXTS,
    Move,
    Moves,
    StepReason,
    TaskReason,
    check_step,
    check_task,
)

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
    moves = {
        (before, after): " or ".join(TEXTS[reason] for reason in reasons)
        for before, following in table.items()
        for after, reasons in following.items()
    }
    assert drawings()[drawing] == moves


def test_every_reason_has_a_text_and_is_of_a_move() -> None:
    """No code without words, no words without a code; only what a store does itself is of no move."""
    tables: list[Any] = [TASK_MOVES, STEP_MOVES, CONTROL_MOVES]
    moves = [following for table in tables for following in table.values()]
    reasons = {reason for following in moves for some in following.values() for reason in some}
    assert set(TEXTS) == {*get_args(TaskReason), *get_args(StepReason)} == reasons | {"put_to_error"}


def test_the_reference_lists_every_reason() -> None:
    """Each with its text, and whose it is."""
    text = PAGE.parents[1].joinpath("reference/records.md").read_text(encoding="utf-8")
    for whose, kind in (("a task", TaskReason), ("a step", StepReason)):
        reasons = dict(re.findall(rf"^\| {whose} \| `(\w+)` \| (.+) \|$", text, re.MULTILINE))
        assert reasons == {reason: TEXTS[reason] for reason in get_args(kind)}


def test_a_code_of_another_version_is_shown_as_it_is() -> None:
    """A console that is older than the Scheduler names what it does not know."""
    assert Move("task", "pending", "processing", "picked_up", detail="early").why == "picked up: early"


def test_the_drawing_begins_and_ends_where_tasks_do() -> None:
    """Submission makes a task pending and its steps waiting."""
    text = PAGE.read_text(encoding="utf-8")
    assert "[*] --> pending: submitted" in text
    assert "[*] --> waiting: submitted" in text


@pytest.mark.parametrize("before", TASK_MOVES)
def test_task_moves_are_checked(before: str) -> None:
    """What is in the table passes, everything else raises."""
    for after in TASK_MOVES:
        for reason in get_args(TaskReason):
            move = Move("task", before, after, reason)
            if reason in TASK_MOVES[before].get(after, ()):  # type: ignore[index]
                check_task(move)
            else:
                with pytest.raises(IllegalTransitionError, match=f"from {before} to {after}"):
                    check_task(move)


@pytest.mark.parametrize("control", [False, True])
@pytest.mark.parametrize("before", STEP_MOVES)
def test_step_moves_are_checked(before: str, *, control: bool) -> None:
    """For control steps by their own, smaller table; states that they never have included."""
    table: Any = CONTROL_MOVES if control else STEP_MOVES
    for after in STEP_MOVES:
        for reason in get_args(StepReason):
            move = Move("s", before, after, reason)
            if reason in table.get(before, {}).get(after, ()):
                check_step(move, control=control)
            else:
                with pytest.raises(IllegalTransitionError, match=f"from {before} to {after}"):
                    check_step(move, control=control)


def test_tables_are_frozen() -> None:
    """Nobody changes them on the way."""
    with pytest.raises(TypeError):
        TASK_MOVES["pending"] = {}  # type: ignore[index]
    with pytest.raises(TypeError):
        STEP_MOVES["failed"]["done"] = ()  # type: ignore[index]


def test_control_moves_are_step_moves_but_for_deciding() -> None:
    """A control step does what steps do, and is decided without having been asked for."""
    for before, following in CONTROL_MOVES.items():
        for after in following:
            assert after in STEP_MOVES[before] or (before, after) == ("ready", "done")
