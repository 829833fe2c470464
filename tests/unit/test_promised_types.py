"""A promise's annotation is held against the parameter's, as a plain value is: refused is only what can never run right."""

import datetime as dt
import decimal
import enum
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, NewType, TypedDict, TypeVar

import msgspec
import pytest

import makegood as mg
from makegood.errors import PayloadError

T = TypeVar("T")
Cents = NewType("Cents", int)


class Color(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


class Code(str):  # noqa: SLOT000 - as users write it
    """A text of its own class."""


class Pair(NamedTuple):
    one: int
    other: int


class Keys(TypedDict):
    one: int


class Row(msgspec.Struct, array_like=True):
    one: int


@dataclass
class Hold:
    id: str


@dataclass
class Claim:
    id: str


def flow(returns: Any, annotation: Any) -> Any:
    """Return a workflow that passes on what an action returns to one that wants something."""
    app = mg.App("shop")
    desk = app.agent("desk")

    def number(order: str) -> Any:
        return order

    def ok(x: Any) -> str:
        return "ok"

    number.__annotations__["return"], ok.__annotations__["x"] = returns, annotation
    if returns is ...:
        del number.__annotations__["return"]
    if annotation is ...:
        del ok.__annotations__["x"]
    first = desk.action(complete_within="5s", undo=mg.NOTHING)(number)
    second = desk.action(complete_within="5s", undo=mg.NOTHING)(ok)

    @app.workflow()
    def sell(order: str) -> str:
        return second(first(order))

    return sell


@pytest.mark.parametrize(
    ("returns", "annotation", "hint"),
    [
        (int, str, "int, its annotation says str"),
        (str, int, "str, its annotation says int"),
        (bool, int, "bool, its annotation says int"),
        (int, bool, "int, its annotation says bool"),
        (None, str, "NoneType, its annotation says str"),
        (int | None, str, "int | None, its annotation says str"),
        (str, float | list[int], "str, its annotation says float | list[int]"),
        (Hold, str, "Hold, its annotation says str"),
        (list[int], dict[str, int], "list[int], its annotation says dict[str, int]"),
        (Level, str, "Level, its annotation says str"),
        (Color, int, "Color, its annotation says int"),
        (int, dt.datetime, "int, its annotation says datetime"),
        (Row, Hold, "Row, its annotation says Hold"),
        (Annotated[int, msgspec.Meta(gt=1)], str, "its annotation says str"),
        (Cents, str, "its annotation says str"),
        (int, Literal["a", "b"], "int, its annotation says Literal['a', 'b']"),
    ],
)
def test_what_can_never_fit_is_refused_at_submission(returns: Any, annotation: Any, hint: str) -> None:
    with pytest.raises(PayloadError, match=r"x in step ok of shop\.sell is ") as error:
        flow(returns, annotation).plan("a")
    assert hint in str(error.value)
    assert "number returns" in str(error.value)


@pytest.mark.parametrize(
    ("returns", "annotation"),
    [
        (int, int), (int, float), (float, int), (int, Any), (int, object), (Any, str), (..., str), (int, ...),
        (int | None, int), (int, int | None), (int | str, str), (T, str), (int, T), (list[int], list[str]),
        (list[int], Sequence[int]), (dict[str, int], Mapping[str, int]), (Hold, Claim), (Hold, dict[str, str]),
        (dict[str, str], Hold), (Keys, dict[str, int]), (str, Color), (Color, str), (int, Level), (Level, float),
        (str, dt.datetime), (dt.date, str), (str, uuid.UUID), (bytes, str), (int, decimal.Decimal),
        (decimal.Decimal, str), (Code, str), (str, Code), (Pair, list[int]), (Pair, tuple[int, int]), (Row, list[int]),
        (Cents, int), (int, Annotated[int, msgspec.Meta(gt=5)]), (str, Literal["a"]), (set[int], list[int]), (None, int | None),
        (str, bytes),
    ],
)  # fmt: skip
def test_what_may_fit_is_taken(returns: Any, annotation: Any) -> None:
    assert len(flow(returns, annotation).plan("a").steps) == 2


def test_a_pydantic_model_is_not_compared() -> None:
    pydantic = pytest.importorskip("pydantic", reason="pydantic is not installed")

    class Many(pydantic.RootModel[list[int]]):  # type: ignore[name-defined,misc]  # of a module that may be absent
        pass

    assert len(flow(list[int], Many).plan("a").steps) == 2
    assert len(flow(Many, str).plan("a").steps) == 2


def test_parts_of_a_result_are_held_to_it_too() -> None:
    app = mg.App("shop")
    desk = app.agent("desk")

    @desk.action(complete_within="5s", undo=mg.NOTHING)
    def reserve(order: str) -> Hold:
        return Hold(order)

    @desk.action(complete_within="5s", undo=mg.NOTHING)
    def pay(cents: int) -> None: ...

    @app.workflow()
    def sell(order: str) -> None:
        pay(reserve(order).id)  # type: ignore[arg-type]  # the mistake

    with pytest.raises(
        PayloadError, match=r"cents in step pay of shop\.sell is str, .* says int: reserve\.id returns str"
    ):
        sell.plan("a")
