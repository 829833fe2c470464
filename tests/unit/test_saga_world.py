"""Property runs of the rules: random plans, random orders, services that misbehave, Schedulers that die, operators.

What must hold is in ``saga_checks`` (after every commit) and in ``World._end`` (the record against the services' own books).
"""

import random
from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from makegood.model.states import CONTROL_MOVES, STEP_MOVES, TASK_MOVES, Moves
from tests.unit.saga_rows import Record
from tests.unit.saga_world import World

SEEDS = 1500


@cache
def record_of_all_seeds() -> Record:
    """Run every seed once; raises ``AssertionError`` with the seed of a run that goes wrong."""
    record = Record()
    for seed in range(SEEDS):
        try:
            World(random.Random(seed), record, hostile=seed % 2 == 1).run()
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    return record


def test_every_run_ends_whole() -> None:
    """1,500 seeds, half of them with operators: none violates anything, and every kind of end is met."""
    ends = record_of_all_seeds().ends
    assert sum(ends.values()) == SEEDS
    for end in (("processed", "forward"), ("undone", "undo"), ("error", "hold"), ("error", "undo")):
        assert ends[end] > SEEDS // 20, f"hardly any run ends {end}: {ends}"


ELSEWHERE = frozenset({"scheduler_silent", "new_generation", "unreadable", "undecided", "result_missing"})
"""Reasons of what stores do themselves, and of defects."""
FINAL_PROBE = ("in_doubt", "failed", "probe")
"""No service of these worlds knows that nothing will ever be in place."""
RARE = frozenset({("ready", "skipped", "branch_lost"), ("ready", "skipped", "ended_early")})
"""A service that asks to come back later is rare beside these: ``test_saga_first`` and ``test_saga_early_end`` make them."""


def rows(moves: Moves[str]) -> set[tuple[str, str, str]]:  # type: ignore[type-var]
    """Return a table's rows, with each reason, but for lanes: these worlds have none, ``test_saga_lanes`` has."""
    return {
        (before, after, reason)
        for before, following in moves.items()
        for after, reasons in following.items()
        for reason in reasons
        if reason not in ELSEWHERE
        and (before, after, reason) != FINAL_PROBE
        and "queued" not in (before, after)
    }


@pytest.mark.parametrize(
    ("kind", "table"), [("task", TASK_MOVES), ("action", STEP_MOVES), ("control", CONTROL_MOVES)]
)
def test_every_row_of_the_tables_is_reached(kind: str, table: Moves[str]) -> None:  # type: ignore[type-var]
    """The runs prove something: they make every move of the table, for every reason, and no other."""
    moves = {tuple(row) for what, *row in record_of_all_seeds().moves if what == kind}
    assert moves | RARE == rows(table) | RARE


@pytest.mark.parametrize(
    "what",
    [
        "late reply",
        "heard",
        "kept signal",
        "used signal",
        "late value",
        "lost decision",
        "undo in doubt",
        "isolated",
        "poison",
        "repaired do withdrawn",
        "repaired probe withdrawn",
        "alert held",
        "alert undo_stuck",
        "alert undo_incomplete",
        "alert step_gave_up",
        "alert poison",
        "key too old",
        "not sent",
    ],
)
def test_the_rare_is_met(what: str) -> None:
    """The runs prove something: what is rare in life is not rare here."""
    assert record_of_all_seeds().seen[what] >= 3, record_of_all_seeds().seen


@pytest.mark.parametrize("act", ["cancel", "undo", "resubmit", "settle"])
@pytest.mark.parametrize("verdict", ["applied", "refused"])
def test_acts_are_applied_and_refused(act: str, verdict: str) -> None:
    """Operators act when it is lawful and when it is not."""
    assert record_of_all_seeds().acts[act, verdict] >= 20


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
@given(r=st.randoms(use_true_random=False), hostile=st.booleans())
def test_no_choice_of_events_breaks_a_rule(r: random.Random, hostile: bool) -> None:
    """The same runs with every choice made, and shrunk, by hypothesis."""
    World(r, Record(), hostile=hostile).run()
