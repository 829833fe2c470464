"""The ladder of three thousand random plans: every step has its place, behind those it waits for."""

import pytest

from tests.console.plans import check


@pytest.mark.parametrize("hundred", range(30))
def test_the_layout_holds_for_random_plans(hundred: int) -> None:
    """No lane is used twice, none is missing, and nothing of the plan is lost."""
    for seed in range(hundred * 100, hundred * 100 + 100):
        check(seed)
