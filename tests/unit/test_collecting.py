"""The collector looks less often in a role's process; a program's own choice stands."""

import gc
from collections.abc import Iterator

import pytest

from makegood.cli.gc_tuning import RARER, collect_rarely


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[None]:
    """Leave the interpreter as it was."""
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


@pytest.mark.parametrize("usual", [700, 2000])
def test_it_looks_less_often(usual: int) -> None:
    gc.set_threshold(usual, 10, 10)
    collect_rarely()
    collect_rarely()
    assert gc.get_threshold() == (RARER, 10, 10)


@pytest.mark.parametrize("own", [(0, 10, 10), (12_345, 7, 7)])
def test_thresholds_that_somebody_has_set_are_left_alone(own: tuple[int, int, int]) -> None:
    gc.set_threshold(*own)
    collect_rarely()
    assert gc.get_threshold() == own
