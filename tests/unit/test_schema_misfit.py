"""What a JSON schema surely refuses, and that it refuses nothing that the type itself would write."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Literal
from uuid import UUID

import msgspec
import pytest

from makegood.payload.schema_misfit import fill_defaults, misfit


class Colour(Enum):
    """An enum of texts."""

    RED = "red"


@dataclass
class Part:
    """Inside another one."""

    cents: int
    price: Decimal = Decimal("1.5")


@dataclass
class Whole:
    """Of every kind that a schema says something of."""

    yes: bool
    part: Part
    parts: list[Part]
    note: str | None = None
    rate: float = 1.0
    level: Literal["low", "high", 3] = "low"
    colour: Colour = Colour.RED
    by_name: dict[str, int] | None = None
    pair: tuple[int, str] = (1, "a")


def schema(kind: Any) -> str:
    """Return the schema of a type, as a plan stores it."""
    return msgspec.json.encode(msgspec.json.schema(kind)).decode()


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Whole, Whole(True, Part(1), [Part(2)], rate=2, by_name={"a": 1})), (Whole, Whole(False, Part(1), [], "n", level=3)),
        (int | None, None), (int, 7), (float, 7), (bool, False), (str, ""), (list[int], [1]), (dict[int, str], {1: "a"}),
        (datetime, datetime.now(UTC)), (timedelta, timedelta(1)), (Decimal, Decimal("1.5")), (UUID, UUID(int=7)), (bytes, b"a"),
        (Any, [1, {"a": None}]), (int | str, "a"), (list[Part] | None, [Part(1)]),
    ],
)  # fmt: skip
def test_what_a_type_writes_fits_its_schema(kind: Any, value: Any) -> None:
    assert misfit(schema(kind), msgspec.json.encode(value)) == ""


RIGHT = {"yes": True, "part": {"cents": 1}, "parts": []}


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        (bool, "true", "the value is a text, and must be true or false"),
        (bool, 1, "the value is a whole number, and must be true or false"),
        (int, True, "the value is true, and must be a whole number"),
        (int, 1.5, "the value is a number, and must be a whole number"),
        (int, 1.0, "the value is a number, and must be a whole number"),
        (int | None, "x", "the value is a text, and must be a whole number"),
        (int | str, [1], "the value is a list, and must be one of its types"),
        (str, None, "the value is null, and must be a text"),
        (Whole, [], "the value is a list, and must be an object"),
        (Whole, {}, "yes is missing"),
        (Whole, RIGHT | {"yes": "no"}, "yes is a text, and must be true or false"),
        (Whole, RIGHT | {"part": {}}, "part.cents is missing"),
        (Whole, RIGHT | {"parts": [{"cents": 1}, {"cents": "2"}]}, "parts[1].cents is a text, and must be a whole number"),
        (Whole, RIGHT | {"level": "middle"}, 'level must be one of 3, "high", "low"'),
        (Whole, RIGHT | {"note": 7}, "note is a whole number, and must be a text"),
        (Whole, RIGHT | {"leevel": 3}, "leevel is unknown; did you mean 'level'?"),
        (Whole, RIGHT | {"part": {"cents": 1, "x": 2}}, "part.x is unknown; there are cents, price"),
    ],
)  # fmt: skip
def test_what_it_refuses_is_named(kind: Any, value: Any, reason: str) -> None:
    assert misfit(schema(kind), msgspec.json.encode(value)) == reason


@pytest.mark.parametrize(
    "text",
    ["", "null", "[]", "7", "{", '{"type":7}', '{"$ref":"#/$defs/x"}', '{"anyOf":7}', '{"enum":7}', '{"type":"strange"}',
     '{"$ref":"#/$defs/x","$defs":{"x":{"$ref":"#/$defs/x"}}}', '{"required":7}', '{"properties":7}', "{" * 5000],
)  # fmt: skip
def test_a_schema_that_is_none_refuses_nothing(text: str) -> None:
    assert misfit(text, b'{"a":1}') == ""


@pytest.mark.parametrize(
    ("kind", "value", "members"),
    [
        (Whole, RIGHT, {"note": None, "rate": 1.0, "level": "low", "colour": "red", "by_name": None, "pair": [1, "a"]}),
        (Whole, RIGHT | {"note": "n", "level": 3}, {"note": "n", "level": 3, "rate": 1.0}),
        (Whole | None, RIGHT, {"rate": 1.0}),
    ],
)  # fmt: skip
def test_members_that_are_left_out_get_their_defaults(
    kind: Any, value: dict[str, Any], members: dict[str, Any]
) -> None:
    whole = msgspec.json.decode(fill_defaults(schema(kind), msgspec.json.encode(value)))
    assert {name: whole[name] for name in members} == members
    assert whole["part"]["price"] == "1.5"


@pytest.mark.parametrize("value", [b"7", b"null", b'[{"a":1}]', b'{"yes":true}', b"{"])
def test_a_value_without_a_schema_stays_as_it_is(value: bytes) -> None:
    assert (
        fill_defaults("", value)
        == fill_defaults("{", value)
        == fill_defaults('{"$ref":"#/$defs/x"}', value)
        == value
    )


def test_parts_of_a_list_are_completed_too() -> None:
    text = fill_defaults(schema(list[Part]), b'[{"cents":1},{"cents":2,"price":"3"}]')
    assert msgspec.json.decode(text) == [{"cents": 1, "price": "1.5"}, {"cents": 2, "price": "3"}]
