"""Equal values are written alike whatever order their sets are gone through in, so that the same key finds the same task."""

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import attrs
import msgspec
import pydantic
import pytest

from makegood.payload import codec
from makegood.payload.set_order import holds_sets, sorted_as, without_sets


class Size(enum.Enum):
    S = "s"
    M = "m"


@dataclass(frozen=True)
class Spot:
    x: int | None


class Kind(msgspec.Struct, frozen=True, tag=True):
    n: int


class Sort(msgspec.Struct, frozen=True, tag=True):
    n: int


class Label(pydantic.BaseModel, frozen=True):
    text: str


class Tagged(pydantic.BaseModel):
    numbers: set[int] = pydantic.Field(alias="Numbers", default=set())
    labels: dict[str, frozenset[Label]] = {}
    left: int = pydantic.Field(default=1, exclude=True)


@attrs.frozen
class Held:
    sizes: frozenset[Any]


def either_way(*elements: Any) -> list[set[Any]]:
    """Return the set of these, which are to have one hash in a small table, put in from either end: two sets that are equal, and are
    gone through in another order.
    """
    other = elements[::-1]
    return [set(elements), set(other)]


@pytest.mark.parametrize(
    "make",
    [
        set, frozenset, lambda numbers: Tagged(Numbers=numbers), lambda numbers: [{"a": Tagged(Numbers=numbers)}], pydantic.RootModel[set[int]],
        lambda numbers: Tagged(labels={"a": frozenset(Label(text=str(n)) for n in numbers)}), lambda numbers: Held({*numbers, None}),  # type: ignore[arg-type]
        lambda numbers: {1: {*numbers, "a"}}, lambda numbers: {Spot(n) for n in [*numbers, None]}, lambda numbers: [(n, {Kind(n), Sort(n)}) for n in sorted(numbers)],
        lambda numbers: {*numbers, Size.S, Size.M}, lambda numbers: {(n, None if n else 1) for n in numbers},
    ],
)  # fmt: skip
def test_sets_are_the_same_whatever_order_they_are_gone_through_in(make: Callable[[set[int]], Any]) -> None:
    """Also of what has no order, and in pydantic models: the same key with the same inputs is no conflict, whichever process submits."""
    one, other = map(make, either_way(0, 8, 16))
    assert codec.canonical(one) == codec.canonical(other)
    assert codec.canonical(one) != codec.canonical(make({1, 8, 16}))


def test_what_stands_for_a_set_tells_its_objects_apart() -> None:
    assert codec.canonical({Kind(1), Sort(2), 3}) != codec.canonical({Sort(1), Kind(2), 3})
    assert codec.canonical({Spot(1), Spot(None), Size.S}) != codec.canonical({Spot(1), Spot(None), Size.M})


def test_models_without_sets_are_left_alone() -> None:
    """They cost nothing more."""
    assert [holds_sets(model) for model in (Tagged, Label, pydantic.RootModel[frozenset[int]])] == [
        True,
        False,
        True,
    ]


def test_what_a_serializer_made_of_it_is_left_as_it_is() -> None:
    assert sorted_as({"numbers": "3 1"}, {"numbers": {3, 1}}, msgspec.json.encode) == {"numbers": "3 1"}
    assert sorted_as([3, 1], None, msgspec.json.encode) == [3, 1]


def test_what_is_unset_is_left_out() -> None:
    class Maybe(msgspec.Struct):
        n: int | msgspec.UnsetType = msgspec.UNSET

    assert without_sets([Maybe(), {Size.S}], codec.canonical) == [{}, [Size.S]]
