"""Each rule matters in the real engine: switched off, the same worlds that are clean with it find a violation."""

import logging
import os
from collections.abc import Iterator

import pytest

from tests.simulation.mutants import MUTANTS, Worlds, killers, recorded
from tests.simulation.mutants_making import Mutant

NIGHT = "MAKEGOOD_NIGHT"


@pytest.fixture(scope="module")
def worlds() -> Iterator[Worlds]:
    """Worlds, whose noise is not printed."""
    logging.disable(logging.CRITICAL)
    yield Worlds()
    logging.disable(logging.NOTSET)


def seeds(found: Mutant) -> list[int]:
    """Return the seeds of a mutant, the recorded one first."""
    row = recorded().get(found.name)
    first = [int(row[2])] if row is not None and row[2].isdecimal() else []
    return first + [seed for seed in range(found.within) if seed not in first]


@pytest.mark.parametrize("name", MUTANTS)
def test_a_rule_that_is_switched_off_is_missed_and_its_twin_is_clean(worlds: Worlds, name: str) -> None:
    """Within the mutant's seeds a violation is found, and the same seed with every rule in force finds none."""
    found = MUTANTS[name]
    if found.night and not os.environ.get(NIGHT):
        pytest.skip(f"{found.within} seeds: too many for every run; set {NIGHT}=1")
    killed = next(killers(found, worlds, seeds(found)), None)
    if found.survives:
        assert killed is None, (
            f"{name} dies now, of seed {killed}: it is no survivor any more, say so where it is made"
        )
        return
    assert killed is not None, f"{name} lives through {found.within} seeds although {found.rule}"
    assert worlds.run(found, killed[0], sound=True).findings == []


def test_the_table_in_the_documentation_is_the_list_of_the_mutants() -> None:
    """Every mutant has its row with its rule, in order, and says whether it survives."""
    rows = recorded()
    assert list(rows) == list(MUTANTS)
    for name, (_, rule, first, of, killed, by) in rows.items():
        found = MUTANTS[name]
        assert rule == found.rule.replace("``", "`")
        assert int(of) >= 1
        assert found.survives is (first == "none") is (killed == "0") is by.startswith("survives"), name
