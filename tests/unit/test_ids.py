"""Ids rise, survive being shown, and keys can never be shared by two tasks."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from makegood.base import ids
from makegood.errors import DefinitionError, TaskNotFoundError
from tests.clocks import HandClock


def test_ids_rise_within_a_process_even_when_the_clock_goes_back() -> None:
    clock = HandClock()
    drawer = ids.TaskIdSource(clock, random.Random(1))
    numbers = [drawer.draw() for _ in range(100)]
    clock.wall_seconds -= 3600
    numbers += [drawer.draw() for _ in range(100)]
    assert numbers == sorted(set(numbers))
    assert all(0 < one < 2**63 for one in numbers)


@given(st.integers(min_value=0, max_value=2**63 - 1))
def test_an_id_survives_being_shown_and_read(number: int) -> None:
    text = ids.show(number)
    assert len(text) == 13
    assert ids.parse(text) == ids.parse(text.upper()) == number


def test_a_long_decimal_is_taken_as_an_id_too() -> None:
    assert ids.parse("384838483848384838") == 384838483848384838


@pytest.mark.parametrize(
    "wrong",
    ["", "42", "order-1", "0d3k9q2m7xabu", "x" * 14, "99999999999999999999", "zzzzzzzzzzzzz", "9" * 5000],
)
def test_what_cannot_be_an_id_says_how_one_looks(wrong: str) -> None:
    with pytest.raises(TaskNotFoundError, match="13 letters and digits") as error:
        ids.parse(wrong)
    assert error.value.task_id == wrong


def test_the_key_is_the_same_for_every_attempt_and_differs_by_store_step_round_and_direction() -> None:
    base = ids.key("s1", 7, "charge", 1, "do")
    others = {
        ids.key("s2", 7, "charge", 1, "do"),
        ids.key("s1", 8, "charge", 1, "do"),
        ids.key("s1", 7, "refund", 1, "do"),
        ids.key("s1", 7, "charge", 2, "do"),
        ids.key("s1", 7, "charge", 1, "undo"),
    }
    assert base == ids.key("s1", 7, "charge", 1, "do")
    assert len(others | {base}) == 6
    assert base.isascii()


def test_a_scope_holds_all_rounds_and_directions_of_one_step() -> None:
    assert ids.key("s1", 7, "charge", 3, "undo").startswith(ids.scope("s1", 7, "charge") + "/")


@pytest.mark.parametrize("name", ["charge", "charge-2", "_x", "a.b"])
def test_names_that_travel_in_headers_are_allowed(name: str) -> None:
    assert ids.checked_name(name, "action") == name


@pytest.mark.parametrize("name", ["", "2fast", "größe", "a b", "a/b", "x" * 101])
def test_other_names_are_refused_with_the_remedy(name: str) -> None:
    with pytest.raises(DefinitionError, match="pass name="):
        ids.checked_name(name, "action")


def test_a_queue_may_be_named_after_a_host() -> None:
    """Which may begin with a digit; a name that an option could be taken for may not."""
    for name in ("2fast", "10.0.0.7", "web-1", "_x", "7"):
        assert ids.checked_queue(name) == name
    wrong: tuple[Any, ...] = ("", "-x", ".x", "größe", "a b", "a/b", "x" * 101, None)
    for name in wrong:
        with pytest.raises(DefinitionError, match="beginning with a letter, a digit or '_'"):
            ids.checked_queue(name)
