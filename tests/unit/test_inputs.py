"""What a workflow is submitted with: bound, encoded and held to the annotations of its function."""

import pytest

import makegood as mg
from makegood.workflow.inputs import WorkflowInputs


def inputs_of(fn: object) -> WorkflowInputs:
    return WorkflowInputs(fn, "flow", "shop.flow", limit=100, names={})  # type: ignore[arg-type]  # a function


def plain(order: str, cents: int = 5) -> str:
    """Take two inputs."""
    return order * cents


def open_ended(order: str, *more: str, rush: bool = False) -> None:
    """Take any number of inputs."""


def test_a_call_by_position_with_all_inputs_needs_no_binding() -> None:
    inputs = inputs_of(plain)
    assert inputs.plain == 2
    assert inputs.bind(("a",), {}) == (("a", 5), {})
    assert inputs_of(open_ended).plain == -1
    with pytest.raises(mg.DefinitionError, match=r"submit\(flow\.plan\(rush=\.\.\.\)\)"):
        inputs_of(open_ended).bind((), {"haste": True})


def test_an_input_is_held_to_its_annotation_and_to_the_limit() -> None:
    inputs = inputs_of(plain)
    assert [inputs.encode(0, "a"), inputs.encode(1, 7)] == [b'"a"', b"7"]
    for n, value in ((1, "7"), (0, "x" * 200)):
        with pytest.raises(mg.PayloadError, match=r"the input \w+ of shop\.flow"):
            inputs.encode(n, value)
    assert (inputs.constraint(1), inputs.annotation("return")) == (int, str)
    assert inputs_of(open_ended).constraint(1) is not str, "nobody knows which is which"


def test_all_inputs_in_order_are_told_apart_again() -> None:
    assert inputs_of(open_ended).in_order(["a", "b", "c", True]) == (["a", "b", "c"], {"rush": True})
    with pytest.raises(mg.PayloadError, match="takes 2 inputs, not 1"):
        inputs_of(plain).in_order(["a"])
