"""Each rule matters in the real engine: switched off, the same worlds that are clean with it find a violation."""

import logging
import os
from collections.abc import Iterator

import pytest

from tests.simulation.mutants import MUTANTS, Worlds, killers, recorded, seeds

NIGHT = "MAKEGOOD_NIGHT"


@pytest.fixture(scope="module")
def worlds() -> Iterator[Worlds]:
    """Worlds, whose noise is not printed."""
    logging.disable(logging.CRITICAL)
    yield Worlds()
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_rule_that_is_switched_off_is_missed_and_its_twin_is_clean(worlds: Worlds, name: str) -> None:
    """Within the mutant's seeds a violation is found, and the same seed with every rule in force finds none."""
    mutant = MUTANTS[name]
    if mutant.night and not os.environ.get(NIGHT):
        pytest.skip(f"{mutant.within} seeds: too many for every run; set {NIGHT}=1")
    kill = next(killers(mutant, worlds, seeds(mutant)), None)
    assert kill is not None, f"{name} lives through {mutant.within} seeds although {mutant.rule}"
    assert worlds.run(mutant, kill[0], sound=True).findings == []


@pytest.mark.parametrize("seed", [0, 1, 24])
def test_the_second_copy_of_a_call_that_was_turned_away_is_turned_away_too(worlds: Worlds, seed: int) -> None:
    """In these worlds the network delivered twice what a gate had refused; the copy was let in after the refusal was believed."""
    assert worlds.run(MUTANTS["failed_on_doubt"], seed, sound=True).findings == []


def test_the_table_in_the_documentation_is_the_list_of_the_mutants() -> None:
    """Every mutant has its row with its rule, in order, and one of its seeds has killed it."""
    rows = recorded()
    assert list(rows) == list(MUTANTS)
    for name, (_, rule, first, of, kills, by) in rows.items():
        assert rule == MUTANTS[name].rule.replace("``", "`")
        assert 0 <= int(first) < int(of)
        assert 1 <= int(kills) <= int(of)
        assert by
