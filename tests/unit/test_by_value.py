"""Equal values have one text, whatever their spelling; the difference of two others is named."""

import datetime as dt
import enum
import os
import subprocess
import sys
import uuid
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Annotated, Any, NamedTuple, TypedDict

import attrs
import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

import makegood as mg
from makegood.client.submission import draft_of
from makegood.payload.by_value import ByValue, join_differences
from makegood.payload.codec import encode

CET = dt.timezone(dt.timedelta(hours=1))


class Kind(enum.Enum):
    PLAIN = "plain"


class Text(str):
    __slots__ = ()


@dataclass
class Order:
    id: str
    amount: Decimal = Decimal(1)
    at: dt.datetime | None = None
    password: str = ""
    tags: set[str] = field(default_factory=set)


@dataclass
class Plain:
    id: str
    count: int = 1


class Struct(msgspec.Struct, tag=True, omit_defaults=True):
    amount: float = 1.0


class Other(msgspec.Struct, tag=True):
    amount: float = 1.0


class Model(pydantic.BaseModel):
    amount: Decimal
    at: pydantic.AwareDatetime | None = None
    url: pydantic.HttpUrl | None = None
    names: set[str] = set()


@attrs.define
class Attrs:
    amount: float


class Typed(TypedDict, total=False):
    amount: Decimal


class Pair(NamedTuple):
    amount: float
    note: str


NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
EQUAL: list[tuple[Any, Any, Any]] = [
    (float, 10, 10.0),
    (float, 0.0, -0.0),
    (float, 1e22, 10**19 * 1000.0),
    (float | int, 10, 10.0),
    (Any, {"a": 10}, {"a": 10.0}),
    (list[float], [1, 2], [1.0, 2.0]),
    (dict[str, float], {"a": 1, "b": 2}, {"b": 2.0, "a": 1.0}),
    (dict[float, str], {1.0: "a"}, {1.0: "a"}),
    (Decimal, Decimal("1.1"), Decimal("1.10")),
    (Decimal, Decimal("1E+2"), Decimal(100)),
    (Decimal, 5, Decimal("5.00")),
    (Decimal, Decimal("-0"), Decimal("0.000")),
    (Annotated[Decimal | None, "euros"], Decimal("1.1"), Decimal("1.100")),
    (dt.datetime, NOON.astimezone(CET), NOON),
    (dt.datetime, dt.datetime.max.replace(tzinfo=CET), dt.datetime.max.replace(tzinfo=CET)),
    (dt.time, dt.time(13, tzinfo=CET), dt.time(12, tzinfo=dt.UTC)),
    (dt.timedelta, dt.timedelta(days=1), dt.timedelta(hours=24)),
    (uuid.UUID, str(uuid.UUID(int=10)).upper(), uuid.UUID(int=10)),
    (set[int], {1, 2, 3}, [3, 2, 1]),
    (set[float], {1, 2}, {2.0, 1.0}),
    (frozenset[Decimal], frozenset([Decimal("1.0"), Decimal(2)]), frozenset([Decimal("2.00"), Decimal(1)])),
    (tuple[float, ...], (1, 2), [1.0, 2.0]),
    (bytes, b"a", "YQ=="),
    (str, Text("a"), "a"),
    (Kind, Kind.PLAIN, "plain"),
    (Order, Order("a", Decimal("1.0"), NOON), Order("a", Decimal(1), NOON.astimezone(CET))),
    (Order, Order("a"), {"id": "a"}),
    (Plain, Plain("a"), {"id": "a"}),
    (list[Order], [Order("a", Decimal(2))], [Order("a", Decimal("2.0"))]),
    (Struct | Other, Struct(1), Struct(1.0)),
    (Model, Model(amount=Decimal("1.1"), at=NOON), Model(amount=Decimal("1.10"), at=NOON.astimezone(CET))),
    (Model, Model(amount=Decimal(1), url=pydantic.HttpUrl("https://a.example")), {"amount": "1.0", "url": "https://A.example/"}),
    (dict[str, Model], {"a": Model(amount=Decimal(1))}, {"a": Model(amount=Decimal("1.0"))}),
    (Attrs, Attrs(1), Attrs(1.0)),
    (Typed, {"amount": Decimal(1)}, {"amount": Decimal("1.0")}),
    (Pair, Pair(1, "a"), Pair(1.0, "a")),
]  # fmt: skip
DIFFERENT: list[tuple[Any, Any, Any, str]] = [
    (float, 10, 10.5, "v: 10.0 was submitted, now 10.5"),
    (Decimal, Decimal("1.1"), Decimal("1.2"), "v: 1.1 was submitted, now 1.2"),
    (bool | int, True, 1, "v: True was submitted, now 1"),
    (int | None, None, 1, "v: None was submitted, now 1"),
    (str, "Ada", "Bob", "v: another text"),
    (str | int, "Ada", 7, "v: a text was submitted, now 7"),
    (Any, "1", 1, "v: a text was submitted, now 1"),
    (Any, [], {}, "v: a list was submitted, now an object"),
    (dt.date, dt.date(2026, 1, 1), dt.date(2026, 1, 2), "v: 2026-01-01 was submitted, now 2026-01-02"),
    (dt.datetime, NOON, NOON.replace(tzinfo=None), "v: 2026-01-01T12:00:00+00:00 was submitted, now 2026-01-01T12:00:00"),
    (Order, Order("a"), Order("a", Decimal("2.50")), "v.amount: 1 was submitted, now 2.50"),
    (Order, Order("a", password="x"), Order("a", password="y"), "v.password: another value"),
    (Order, Order("a", tags={"a"}), Order("a", tags={"a", "b"}), "v.tags: a list of 1 was submitted, now of 2"),
    (list[Order], [Order("a")], [Order("b")], "v[0].id: another text"),
    (dict[str, int], {"a": 1}, {"b": 1}, "v.a: is missing now; v.b: was not submitted before"),
    (list[int], [1, 2, 3, 4, 5], [6, 7, 8, 9, 10], "v[0]: 1 was submitted, now 6; v[1]: 2 was submitted, now 7; v[2]: 3 was submitted, now 8; and 2 more"),
    (Struct | Other, Struct(), Other(), "v.type: another text"),
    (Model, Model(amount=Decimal(1)), Model(amount=Decimal(2)), "v.amount: 1 was submitted, now 2"),
    (dict[str, str], {"k" * 99: "a"}, {"k" * 99: "b"}, f"v.{'k' * 39}…: another text"),
    (Kind | None, Kind.PLAIN, None, "v: Kind.PLAIN was submitted, now None"),
]  # fmt: skip


@pytest.mark.parametrize(("annotation", "one", "other"), EQUAL)
def test_equal_values_have_one_text(annotation: Any, one: Any, other: Any) -> None:
    comparison = ByValue(annotation, "v")
    assert comparison.text(encode(one)) == comparison.text(encode(other))
    assert join_differences(comparison.differences("v", encode(one), encode(other))) == ""


@pytest.mark.parametrize(("annotation", "one", "other", "differences"), DIFFERENT)
def test_what_differs_is_named(annotation: Any, one: Any, other: Any, differences: str) -> None:
    """Texts and secrets are not shown; what is shown has a limit."""
    comparison = ByValue(annotation, "v")
    assert comparison.text(encode(one)) != comparison.text(encode(other))
    assert join_differences(comparison.differences("v", encode(one), encode(other))) == differences


def test_no_input_with_a_secret_name_is_shown() -> None:
    """Nor what may be a value: the key of a mapping."""
    comparison = ByValue(int, "api_key")
    assert join_differences(comparison.differences("api_key", b"1", b"2")) == "api_key: another value"
    of_cards = ByValue(dict[str, int], "v")
    assert (
        join_differences(of_cards.differences("v", b'{"4242 4242":1}', b"{}")) == "v.an entry: is missing now"
    )


@given(
    st.lists(st.tuples(st.integers(-999, 999), st.integers(-3, 3), st.integers(0, 4)), max_size=4), st.data()
)
def test_numbers_are_compared_by_value(numbers: list[tuple[int, int, int]], data: st.DataObject) -> None:
    """Two lists of decimals have one text exactly if they are equal."""
    one = [Decimal(digits).scaleb(exponent) for digits, exponent, _ in numbers]
    spellings = [Decimal(digits * 10**zeros).scaleb(exponent - zeros) for digits, exponent, zeros in numbers]
    other = data.draw(st.permutations(spellings))
    comparison = ByValue(list[Decimal], "v")
    assert comparison.text(encode(one)) == comparison.text(encode(spellings))
    assert (comparison.text(encode(one)) == comparison.text(encode(other))) == (one == other)


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_is_the_same_as_a_float_and_as_a_decimal(one: float, other: float) -> None:
    """So that a deploy that writes Decimal instead of float makes no other inputs."""
    as_float, as_decimal = ByValue(float, "v"), ByValue(Decimal, "v")
    assert as_float.text(encode(one)) == as_decimal.text(encode(one))
    assert (as_float.text(encode(one)) == as_float.text(encode(other))) == (one == other)


INSTANTS = st.datetimes(
    dt.datetime.fromisoformat("1901-01-01"),
    dt.datetime.fromisoformat("2199-12-31"),
    timezones=st.just(dt.UTC),
)


@given(INSTANTS, INSTANTS, st.integers(-23 * 60, 23 * 60))
def test_instants_are_compared_by_value(one: dt.datetime, other: dt.datetime, minutes: int) -> None:
    comparison = ByValue(dict[str, dt.datetime], "v")
    there = one.astimezone(dt.timezone(dt.timedelta(minutes=minutes)))
    assert comparison.text(encode({"at": one})) == comparison.text(encode({"at": there}))
    assert (comparison.text(encode({"at": other})) == comparison.text(encode({"at": there}))) == (
        one == other
    )


# -- of a workflow ---------------------------------------------------------------------------------------------


def workflow(annotation: Any) -> Any:
    app = mg.App("shop")

    def pay(v: Any, note: str = "") -> None: ...

    pay.__annotations__ = {"v": annotation, "note": str, "return": None}
    return app.workflow()(pay)


VECTORS: list[tuple[Any, Any, str]] = [
    (str, "o-1", "521b08f497b3678bd8ff191d45676a10"),
    (int, 10, "a8a349b327380454d2585be9ae7fde37"),
    (float, 10, "a8a349b327380454d2585be9ae7fde37"),
    (Decimal, Decimal("1.10"), "c6ec213551e27eb80de60e19b366ed07"),
    (dt.datetime, NOON, "ff020b3724bbc68c1291724da8ec13be"),
    (set[str], {"a", "b", "c"}, "63769f91d3ba5905eed8c5efecb5cc86"),
    (Order, Order("a", Decimal("1.50"), NOON, tags={"x", "y"}), "262a345d4379a923755a736a2af4aeff"),
    (Any, {"b": [1.5, None], "a": True}, "fceab181e610a4adc497804b6320c9dd"),
]


@pytest.mark.parametrize(("annotation", "value", "fingerprint"), VECTORS)
def test_fingerprints_never_change(annotation: Any, value: Any, fingerprint: str) -> None:
    """They are stored: a submission is repeated across an upgrade."""
    assert workflow(annotation).plan(value).fingerprint.hex() == fingerprint


def test_fingerprints_do_not_depend_on_the_process() -> None:
    """Sets and dicts have another order in each."""
    code = (
        "from tests.unit.test_by_value import *\n"
        "print([workflow(annotation).plan(value).fingerprint.hex() for annotation, value, _ in VECTORS])"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "4711"}
    ran = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == str([fingerprint for *_, fingerprint in VECTORS])


def test_a_plan_without_a_key_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its inputs are decoded for nobody."""
    monkeypatch.setattr(ByValue, "text", lambda *_: pytest.fail("compared"))
    assert draft_of(workflow(Decimal).plan(1), 7).fingerprint == b""


@pytest.mark.parametrize(("annotation", "one", "other"), EQUAL)
def test_equal_inputs_have_one_fingerprint(annotation: Any, one: Any, other: Any) -> None:
    flow = workflow(annotation)
    assert flow.plan(one).fingerprint == flow.plan(other, note="").fingerprint
    assert flow.plan(one, "x").fingerprint != flow.plan(one).fingerprint
