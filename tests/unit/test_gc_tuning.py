"""The collector looks less often while a Node runs, and as before afterwards; a program's own choice stands."""

import gc
from collections.abc import Iterator

import pytest

from makegood.node.gc_tuning import RARER, Collecting


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[None]:
    """Leave the interpreter as it was."""
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def test_it_looks_less_often_between_begin_and_end_and_nested_nodes_do_not_mind() -> None:
    gc.set_threshold(700, 10, 10)
    outer, inner = Collecting(), Collecting()
    outer.begin()
    inner.begin()
    assert gc.get_threshold() == (RARER, 10, 10)
    inner.end()
    assert gc.get_threshold() == (RARER, 10, 10)
    outer.end()
    assert gc.get_threshold() == (700, 10, 10)


@pytest.mark.parametrize("own", [(0, 10, 10), (12_345, 7, 7)])
def test_a_programs_own_thresholds_are_left_alone(own: tuple[int, int, int]) -> None:
    gc.set_threshold(*own)
    collecting = Collecting()
    collecting.begin()
    assert gc.get_threshold() == own
    collecting.end()
    assert gc.get_threshold() == own


def test_a_choice_made_meanwhile_stands() -> None:
    gc.set_threshold(700, 10, 10)
    collecting = Collecting()
    collecting.begin()
    gc.set_threshold(5000, 5, 5)
    collecting.end()
    assert gc.get_threshold() == (5000, 5, 5)
