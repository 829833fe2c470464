"""What ``lane=`` may be: each mistake is an error of the family, at the declaration where it can be known, else at the plan."""

from collections.abc import Callable, Iterator
from enum import Enum, StrEnum
from typing import Any

import pytest

import makegood as mg
from makegood.model.lane import lane_names


class Color(str, Enum):  # noqa: UP042 - it is what users write
    """A text that Python would show as Color.RED."""

    RED = "red"


class Tone(StrEnum):
    """A text."""

    LOUD = "loud"


async def later(order: str) -> str:
    return order


async def many(order: str) -> Any:
    yield order


class Asks:
    """Something to call that is async."""

    async def __call__(self, order: str) -> str:
        return order


def workflow_with(lane: Any, **options: Any) -> mg.Workflow[[str, int], None]:
    """Return a workflow of two inputs."""

    @mg.App("shop").workflow(lane=lane, **options)
    def buy(order: str, count: int = 1) -> None: ...

    return buy


AT_DECLARATION: list[tuple[Any, str]] = [
    (
        lambda: "x",
        r"the function lane= takes \(\), and is called with all inputs of the workflow, \(order: str, count: int = 1\)",
    ),
    (lambda order: order, "count"),
    (lambda order, _, more: [order, more], "more is missing"),
    (lambda *, order, count: [order, count], "takes .* and is called with all inputs"),
    (later, "lane= is an async function"),
    (Asks(), "lane= is an async function"),
    (b"ada", r"lane=b'ada': a lane is a text or a whole number, or a list of these"),
    ({"ada": 1}, "a lane is a text or a whole number, or a list of these"),
    (1.5, "a lane is a text or a whole number, or a list of these"),
    (True, "a lane is a text of 1 to 200 characters, or a whole number"),
    ("", "a lane is a text of 1 to 200 characters"),
]


@pytest.mark.parametrize(("lane", "text"), AT_DECLARATION)
def test_what_can_be_known_is_refused_at_the_declaration(lane: Any, text: str) -> None:
    with pytest.raises(mg.DefinitionError, match=text) as wrong:
        workflow_with(lane)
    assert "shop.buy" in str(wrong.value)


@pytest.mark.parametrize("at_once", [0, -1, True, "2", 1.0, 10_001])
def test_a_lane_has_room_for_a_whole_number_of_tasks(at_once: Any) -> None:
    with pytest.raises(mg.DefinitionError, match=r"shop.buy: at_once=.*: a whole number from 1 to 10,000"):
        workflow_with("ada", at_once=at_once)


@pytest.mark.parametrize("when_taken", ["Wait", "", None, True, ["wait"]])
def test_a_task_waits_or_is_refused_or_cancels(when_taken: Any) -> None:
    with pytest.raises(mg.DefinitionError, match=r'shop.buy: when_taken=.*: "wait", "refuse" or "cancel"'):
        workflow_with("ada", when_taken=when_taken)


def fails_halfway(order: str, count: int) -> Iterator[str]:
    yield order
    raise KeyError("customer")


def lookup(order: str, count: int) -> str:
    return {"a": "b"}[order]


AT_THE_PLAN: list[tuple[Callable[[str, int], Any], str]] = [
    (lookup, "the function lane= raised KeyError: 'o-1'; nothing was submitted"),
    (fails_halfway, "the function lane= raised KeyError: 'customer'"),
    (
        lambda order, _: order.encode(),
        "returned what is not a lane: lane=b'o-1': a lane is a text or a whole number",
    ),
    (lambda *_: bytearray(b"a"), "returned what is not a lane"),
    (lambda _, count: {"ada": count}, "returned what is not a lane: lane={'ada': 1}"),
    (lambda *_: [None], "returned what is not a lane: lane=None"),
    (lambda order, _: [order, 1.5], "returned what is not a lane: lane=1.5"),
    (lambda *_: object(), "returned what is not a lane"),
    (
        lambda *_: "x" * 201,
        "a lane is a text of 1 to 200 characters, or a whole number; this one has 201",
    ),
    (lambda *_: [str(n) for n in range(11)], "11 lanes, and a task has at most 10"),
    (lambda *_: "\x00", "texts must be Unicode without NUL"),
    (lambda *_: "\ud800", "texts must be Unicode without NUL"),
    (lambda order, _: later(order), "returned a coroutine: it runs at submission"),
    (lambda order, _: many(order), "returned what is not a lane"),
]


@pytest.mark.parametrize(("lane", "text"), AT_THE_PLAN)
def test_the_rest_is_refused_when_a_task_is_planned(lane: Callable[[str, int], Any], text: str) -> None:
    buy = workflow_with(lane)
    with pytest.raises(mg.DefinitionError) as wrong:
        buy.plan("o-1", 1)
    assert str(wrong.value).startswith("shop.buy: the function lane= ")
    assert text in str(wrong.value)


@pytest.mark.parametrize("lane", [None, (), [], lambda *_: None, lambda *_: [], lambda _, __=1: ()])
def test_no_key_is_no_lane(lane: Any) -> None:
    assert workflow_with(lane).plan("o-1", 1).lanes.names == ()


@pytest.mark.parametrize("lane", [max, str.join, lambda *inputs: inputs[0], lambda order, _, __="x": order])
def test_a_function_that_takes_more_or_cannot_be_asked_is_a_lane(lane: Any) -> None:
    @mg.App("shop").workflow(lane=lane)
    def buy(order: str, count: str = "z") -> None: ...

    assert len(buy.plan("o-1").lanes.names) == 1


def test_inputs_by_name_and_of_any_number_reach_the_function() -> None:
    app = mg.App("shop")

    @app.workflow(lane=lambda order, *, customer: [order, customer])
    def buy(order: str, *, customer: str) -> None: ...

    @app.workflow(lane=lambda *orders: orders)
    def buy_all(*orders: str) -> None: ...

    assert buy.plan("o-1", customer="ada").lanes.names == ("ada", "o-1")
    assert buy_all.plan("b", "a").lanes.names == ("a", "b")


def test_a_member_of_an_enum_is_its_value() -> None:
    """However Python shows it."""
    assert lane_names([Color.RED, Tone.LOUD]) == ("loud", "red")


@pytest.mark.parametrize("option", ["key", "lane", "attributes", "correlation_id"])
async def test_submit_many_takes_plain_functions(option: str, tmp_path: Any) -> None:
    async with mg.Client(f"sqlite:///{tmp_path}/shop.db", migrate=True) as client:
        any_client: Any = client
        with pytest.raises(
            mg.ConfigError, match=f"{option}=an async function: submit_many takes a plain function"
        ):
            await any_client.submit_many(workflow_with(None), ["a"], **{option: later})
        assert await client.find() == []
