"""Payloads survive being kept, what cannot be kept is refused with the reason, promises leave holes."""

import datetime as dt
import decimal
import enum
import math
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NotRequired, TypedDict

import attrs
import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from makegood.base import sizes
from makegood.errors import DefinitionError, PayloadError
from makegood.payload import codec
from tests.unit.test_nested_annotations import accepting


@dataclass
class Order:
    id: str
    cents: int = 1
    tags: list[str] = field(default_factory=list)


@attrs.define
class Box:
    width: float
    order: Order


class Point(msgspec.Struct, tag=True):
    x: int
    y: int


class Pair(NamedTuple):
    left: int
    right: str


class Note(TypedDict):
    text: str
    author: NotRequired[str]


class Colour(enum.Enum):
    RED = "red"


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)
    at: dt.datetime
    ratio: float = 0.5
    weight: int = pydantic.Field(default=1, alias="Weight")


class Text(str):
    __slots__ = ()


WHEN = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        (Order("o", 5, ["a"]), Order),
        (Box(1.5, Order("o")), Box),
        (Point(1, 2), Point),
        (Pair(1, "b"), Pair),
        ({"text": "x"}, Note),
        (Colour.RED, Colour),
        (WHEN, dt.datetime),
        (dt.timedelta(seconds=90), dt.timedelta),
        (decimal.Decimal("0.10"), decimal.Decimal),
        (uuid.UUID(int=7), uuid.UUID),
        (b"\x00\xff", bytes),
        (Model(at=WHEN, Weight=3), Model),
        ([Model(at=WHEN)], list[Model]),
        ({Colour.RED: {1: Order("o")}}, dict[Colour, dict[int, Order]]),
        ({"a", "b"}, set[str]),
        ((1, "a"), tuple[int, str]),
        (None, type(None)),
        (2**70, int),
        (Text("x"), Text),
        ("€\x00 null", str),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_what_is_kept_comes_back_as_it_was(value: object, annotation: Any) -> None:
    data = codec.encode(value)
    assert codec.decode(data, annotation) == value
    assert codec.decoder(annotation, "it")(data) == value
    assert type(codec.decode(data, annotation)) is type(value)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(st.characters(codec="utf-8")),
        st.lists,
        max_leaves=20,
    )
)
def test_json_values_come_back_without_an_annotation(value: object) -> None:
    assert codec.decode(codec.encode(value), None) == value


def endless() -> list[object]:
    loop_list: list[object] = []
    loop_list.append(loop_list)
    return loop_list


@pytest.mark.parametrize(
    ("make", "pattern"),
    [
        (lambda: math.nan, "nan, which JSON does not have"),
        (lambda: {"a": [Box(math.inf, Order("o"))]}, "inf, which JSON does not have"),
        (lambda: Model(at=WHEN, ratio=math.nan), "nan, which JSON does not have"),
        (lambda: (n for n in range(3)), "generator is not known to JSON: dataclasses"),
        (lambda: {"a": object()}, "object is not known to JSON: dataclasses"),
        (lambda: {(1, 2): 3}, r"a tuple is not known to JSON as a key: write list\[tuple\[K, V\]\]"),
        (lambda: "\ud800", "surrogates not allowed"),
        (endless, "nested too deeply, or holds itself"),
        (lambda: Order, "type is not known to JSON"),
    ],
)
def test_what_json_cannot_hold_is_refused_with_the_reason(make: Callable[[], object], pattern: str) -> None:
    with pytest.raises(PayloadError, match=rf"^the input order cannot be kept as JSON: .*({pattern})"):
        codec.encode(make(), subject="the input order")
    with pytest.raises(PayloadError, match=pattern):
        codec.encode_with_holes([make()], lambda _: None, subject="the arguments")


def test_null_is_not_taken_for_nan() -> None:
    assert codec.encode({"a": None, "b": "null"}) == b'{"a":null,"b":"null"}'


def test_a_payload_over_the_limit_names_size_limit_and_remedy() -> None:
    assert len(codec.encode("x" * 98, limit=100)) == 100
    with pytest.raises(
        PayloadError, match=r"101 bytes as JSON, the limit is 100: keep the data elsewhere"
    ) as error:
        codec.encode("x" * 99, limit=100, subject="the result of charge")
    assert (error.value.size, error.value.limit) == (101, 100)
    fixed = "the fixed limit is 1,048,576: keep the data elsewhere and pass its address on$"  # of a message
    with pytest.raises(PayloadError, match=fixed):
        codec.encode("x" * sizes.PAYLOAD_LIMIT)


@pytest.mark.parametrize(
    ("data", "annotation", "pattern"),
    [
        (b'{"id":3}', Order, r"the result does not fit Order: Expected `str`, got `int` - at `\$.id`"),
        (b"{", Order, "does not fit Order"),
        (b'"3"', int, "does not fit int: Expected `int`, got `str`"),
        (b'{"at":"secret"}', Model, r"does not fit Model: at: Input should be a valid datetime"),
        (b"[1]", Text, "does not fit Text: Text cannot be made of list"),
        (b"1", object, None),
    ],
)
def test_what_does_not_fit_is_refused_with_the_place(
    data: bytes, annotation: Any, pattern: str | None
) -> None:
    if pattern is None:
        assert codec.decode(data, Any) == 1
        return
    with pytest.raises(PayloadError, match=pattern) as error:
        codec.decode(data, annotation, "the result")
    assert "secret" not in str(error.value), "payloads do not belong into messages"


def test_an_annotation_that_json_cannot_be_decoded_to_is_a_mistake_in_the_code() -> None:
    with pytest.raises(DefinitionError, match=r"x: JSON cannot be decoded to .*Order.*Box.*unions"):
        codec.decoder(Order | Box, "x")
    with pytest.raises(DefinitionError, match="cannot be decoded"):
        codec.decode(b"{}", Order | Box, "x")


def test_canonical_json_does_not_know_the_order_of_dicts_and_sets() -> None:
    assert codec.canonical({"b": {"z", "a"}, "a": 1}) == codec.canonical({"a": 1, "b": {"a", "z"}})
    assert codec.canonical([1, 2]) != codec.canonical([2, 1])
    with pytest.raises(PayloadError, match="the input"):
        codec.canonical(object(), subject="the input")


@dataclass
class Shelf:
    places: dict[int, set[str]]


@pytest.mark.parametrize(
    ("annotation", "value", "other", "text"),
    [
        (dict[int, str], {2: "b", 10: "a"}, {10: "a", 2: "b"}, b'{"10":"a","2":"b"}'),
        (
            Shelf,
            Shelf({2: {"b", "a"}, 1: set()}),
            Shelf({1: set(), 2: {"a", "b"}}),
            b'{"places":{"1":[],"2":["a","b"]}}',
        ),
        (
            list[dict[dt.date, int]],
            [{dt.date(2026, 1, 2): 1, dt.date(2025, 1, 2): 2}],
            [{dt.date(2025, 1, 2): 2, dt.date(2026, 1, 2): 1}],
            b'[{"2025-01-02":2,"2026-01-02":1}]',
        ),
    ],
)
def test_keys_that_are_no_texts_are_sorted_as_the_texts_they_become(
    annotation: Any, value: Any, other: Any, text: bytes
) -> None:
    """As an input of a workflow too: its fingerprint is the same whatever the order; and the action is given what was submitted."""
    assert codec.canonical(value) == codec.canonical(other) == text
    flow = accepting(annotation)
    plan = flow.plan(value)
    assert plan.fingerprint == flow.plan(other).fingerprint
    assert codec.decode(plan.inputs[0], annotation) == value


# -- holes -------------------------------------------------------------------------------------------------------------


class Hole:
    def __init__(self, name: str) -> None:
        self.name = name


def name_of(value: object) -> str | None:
    return value.name if isinstance(value, Hole) else None


def test_objects_become_holes_in_the_order_of_the_json() -> None:
    value = {"a": [Hole("x"), "\x00"], "b": Order(Hole("y")), "c": Hole("x"), "d": None}  # type: ignore[arg-type]
    parts, holes = codec.encode_with_holes(value, name_of)
    assert holes == ("x", "y", "x")
    assert parts == ('{"a":[', ',"\\u0000"],"b":{"id":', ',"cents":1,"tags":[]},"c":', ',"d":null}')


def test_a_raw_value_that_is_not_json_is_refused() -> None:
    with pytest.raises(PayloadError, match="not JSON"):
        codec.encode_with_holes([msgspec.Raw(b"\x00")], name_of)


def test_objects_are_found_wherever_they_are() -> None:
    one, two = Hole("x"), Hole("y")
    assert codec.objects_in([one, {"a": Order(two)}]) == [one, two]  # type: ignore[arg-type]
    assert codec.objects_in("text") == []
