"""Promises can be passed on, taken apart and compared; everything else raises at once and says what to write instead."""

# ruff: noqa: FURB171, UP031, UP032, PLW0108, FLY002, SIM201 - misuse is written here the way people write it

import copy
import dataclasses
import datetime as dt
import enum
import json
import math
import operator
import re
import uuid
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Generic, Literal, NamedTuple, NotRequired, TypedDict, TypeVar

import attrs
import msgspec
import pydantic
import pytest

from makegood.errors import PromiseError
from makegood.workflow import annotation_paths
from makegood.workflow.promise import (
    Origin,
    Promise,
    PromiseCondition,
    Promised,
    Scope,
    all_of,
    any_of,
    as_condition,
    content_of,
    not_,
)

T = TypeVar("T")


@dataclasses.dataclass
class Parcel:
    no: str
    weight: int
    inside: "list[Parcel]" = dataclasses.field(default_factory=list)
    _secret: str = ""

    @property
    def label(self) -> str:
        return self.no + "!"

    def weigh(self) -> int:
        return self.weight


@dataclasses.dataclass
class Page(Generic[T]):
    items: list[T]
    first: T
    count: int


class Renamed(msgspec.Struct, rename="camel"):
    order_id: str


class Packed(msgspec.Struct, array_like=True, tag=True):
    x: int
    y: str


class Sparse(msgspec.Struct, omit_defaults=True):
    id: str
    note: str = ""


class Pair(NamedTuple):
    left: int
    right: str


class Note(TypedDict):
    text: str
    author: NotRequired[str]


@attrs.define
class Box:
    width: int


class Model(pydantic.BaseModel):
    total: int = pydantic.Field(default=0, alias="Total")
    tags: list[str] = []

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def twice(self) -> int:
        return self.total * 2


class Colour(enum.Enum):
    RED = "red"


def promise(annotation: Any = Any) -> Any:
    scope = Scope("workflow shop.order", None)
    return Promise(Promised(Origin(None, "ship", depth=0, position=1, serial=1), annotation, scope))


def part(value: Any) -> tuple[tuple[str | int, ...], Any]:
    what = content_of(value)
    return what.path, what.annotation


# -- parts -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("annotation", "take", "path", "of"),
    [
        (Parcel, lambda p: p.no, ("no",), str),
        (Parcel, lambda p: p.inside[0].weight, ("inside", 0, "weight"), int),
        (Parcel | None, lambda p: p.weight, ("weight",), int),
        (Annotated[Parcel, "x"], lambda p: p.no, ("no",), str),
        (Parcel, lambda p: p._secret, ("_secret",), str),
        (Page[int], lambda p: p.items, ("items",), Any),
        (Page[int], lambda p: p.count, ("count",), int),
        (Renamed, lambda p: p.order_id, ("orderId",), str),
        (Packed, lambda p: p.y, (2,), str),
        (Pair, lambda p: p.right, (1,), str),
        (Pair, lambda p: p[-1], (1,), str),
        (Note, lambda p: p["author"], ("author",), str),
        (Box, lambda p: p.width, ("width",), int),
        (Model, lambda p: p.total, ("Total",), int),
        (Model, lambda p: p.tags[2], ("tags", 2), str),
        (Any, lambda p: p.any.thing[3]["k"], ("any", "thing", 3, "k"), Any),
        (dict[str, Parcel], lambda p: p["a b"].no, ("a b", "no"), str),
        (dict[int, str], lambda p: p[7], ("7",), str),
        (dict[Colour, str], lambda p: p[Colour.RED], ("red",), str),
        (dict[uuid.UUID, int], lambda p: p[uuid.UUID(int=1)], (str(uuid.UUID(int=1)),), int),
        (list[str], lambda p: p[-1], (-1,), str),
        (tuple[int, Parcel], lambda p: p[1].no, (1, "no"), str),
        (tuple[int, str], lambda p: p[-2], (0,), int),
        (tuple[int, ...], lambda p: p[9], (9,), int),
        (Parcel | Box, lambda p: p.width, ("width",), Any),
        (list[str] | None, lambda p: p[0], (0,), str),
    ],
)
def test_parts_are_promises_with_the_place_in_the_json_and_their_annotation(
    annotation: Any, take: Callable[[Any], Any], path: tuple[str | int, ...], of: Any
) -> None:
    assert part(take(promise(annotation))) == (path, of)


@pytest.mark.parametrize(
    ("annotation", "take", "pattern"),
    [
        (
            Parcel,
            lambda p: p.label,
            r"ship\.label: Parcel\.label is computed, only fields are stored \(no, weight,.*in an action",
        ),
        (Parcel, lambda p: p.weigh(), "Parcel.weigh is computed"),
        (Parcel, lambda p: p.nope, "Parcel has no field nope; it has no, weight, inside"),
        (Parcel, lambda p: p["no"], r"it will be a Parcel: write \.no for a field"),
        (Model, lambda p: p.twice, "Model.twice is computed"),
        (Sparse, lambda p: p.note, "Sparse"),
        (
            str,
            lambda p: p.upper(),
            r"ship\.upper: it will be a str, which is not known yet: do this in an action",
        ),
        (str, lambda p: p[0], "it will be a str, which is not known yet"),
        (Literal["a", "b"], lambda p: p.upper(), "do this in an action"),
        (Colour, lambda p: p.value, "it will be a Colour"),
        (dt.datetime, lambda p: p.year, "it will be a datetime"),
        (Note, lambda p: p.text, r'it will be a Note: write \["text"\]'),
        (Note, lambda p: p["tex"], "Note has no such key; it has text, author"),
        (dict[str, int], lambda p: p.items(), r'it will be a dict\[str, int\]: write \["items"\]'),
        (list[str], lambda p: p.append(1), r"it will be a list\[str\]: write \[0\] for an element, mg\.each"),
        (list[str], lambda p: p["a"], "an element has a number"),
        (list[str], lambda p: p[1:3], "only a key or an index can be taken"),
        (list[str], lambda p: p[True], "only a key or an index"),
        (tuple[int, str], lambda p: p[2], "with 2 elements"),
        (Any, lambda p: p._private, "value's JSON has no such part"),
        (Any, lambda p: p[promise()], "only a key or an index"),
        (type(None), lambda p: p.x, "it will be a NoneType"),
    ],
)
def test_what_leads_nowhere_is_refused_at_once(
    annotation: Any, take: Callable[[Any], Any], pattern: str
) -> None:
    with pytest.raises(PromiseError, match=pattern):
        take(promise(annotation))


@pytest.mark.parametrize(
    ("annotation", "element"),
    [
        (list[str], str), (tuple[int, ...], int), (set[Parcel], Parcel), (Iterable[int], int), (list, Any), (Any, Any),
        (list[int] | None, int), (tuple[int, str], Any), (str, None), (dict[str, int], None), (Parcel, None), (int, None),
    ],
)  # fmt: skip
def test_elements_of_lists(annotation: Any, element: Any) -> None:
    assert annotation_paths.elements(annotation) == element


# -- what cannot be done -----------------------------------------------------------------------------------------------------


def looped(value: Any) -> None:
    for _ in value:
        pass


def unpacked(value: Any) -> None:
    _, _ = value


def matched(value: Any) -> None:
    match value:
        case "a":
            pass


async def awaited(value: Any) -> None:
    await value


@pytest.mark.parametrize(
    ("misuse", "remedy"),
    [
        (lambda p: "yes" if p else "no", r"used as a condition.*mg\.when"),
        (lambda p: not p, r"mg\.when"),
        (lambda p: p and 1, r"mg\.when"),
        (lambda p: "yes" if p == "x" else "no", r"mg\.when\(promise == x, then=.*mg\.all_of"),
        (lambda p: p == "x" and p != "y", r"mg\.all_of"),
        (lambda p: "yes" if p != "x" else "no", r"mg\.when"),
        (matched, r"mg\.when"),
        (looped, r"iterated over or unpacked.*mg\.each"),
        (unpacked, r"promise\[0\]"),
        (list, r"mg\.each"),
        (lambda p: [*p], r"mg\.each"),
        (reversed, r"mg\.each"),
        (len, r"in an action"),
        (lambda p: "x" in p, r"in an action"),
        (lambda p: p in ["a", "b"], r"mg\.when"),
        (lambda p: p in {"a"}, r"set"),
        (lambda p: {p: 1}, r"as a key"),
        (str, r"made a text.*in an action"),
        (lambda p: f"{p}", r"made a text"),
        (lambda p: f"{p:>3}", r"made a text"),
        (lambda p: "%s" % p, r"made a text"),
        (lambda p: "{}".format(p), r"made a text"),
        (bytes, r"made a text"),
        (lambda p: p + 1, r"calculated with"),
        (lambda p: 1 + p, r"calculated with"),
        (lambda p: "a" + p, r"calculated with"),
        (lambda p: -p, r"calculated with"),
        (lambda p: p * 2, r"calculated with"),
        (lambda p: p % 2, r"calculated with"),
        (lambda p: p / 2, r"calculated with"),
        (lambda p: p**2, r"calculated with"),
        (lambda p: p.__iadd__(1), r"calculated with"),
        (int, r"calculated with"),
        (float, r"calculated with"),
        (round, r"calculated with"),
        (abs, r"calculated with"),
        (math.floor, r"calculated with"),
        (lambda p: [1, 2][p], r"calculated with"),
        (lambda p: p < 3, r"compared with <.*returns a bool"),
        (lambda p: p <= 3, r"compared with <"),
        (lambda p: max(p, 3), r"compared with <"),
        (lambda p: sorted([p, p]), r"compared with <"),
        (lambda p: p & True, r"mg\.all_of"),
        (lambda p: True | p, r"mg\.any_of"),
        (lambda p: p(), r"called"),
        (lambda p: awaited(p).send(None), r"leave out await"),
        (lambda p: p.__enter__(), r"with statement"),
        (lambda p: setattr(p, "x", 1), r"changed"),
        (lambda p: operator.setitem(p, "x", 1), r"changed"),
        (lambda p: operator.delitem(p, "x"), r"changed"),
        (lambda p: p.__reduce_ex__(2), r"pickled"),
    ],
)
def test_every_use_of_the_value_raises_with_the_remedy(
    misuse: Callable[[Any], Any], remedy: str | None
) -> None:
    """Where the value will be of any kind; each message names the step."""
    with pytest.raises(PromiseError, match=remedy) as error:
        misuse(promise())
    assert re.search("ship|compared", str(error.value))


def test_with_statements_are_refused() -> None:
    with pytest.raises(PromiseError, match="with statement"), promise():
        pass


def test_other_libraries_fail_aloud_too() -> None:
    with pytest.raises(TypeError):
        json.dumps({"a": promise()})
    with pytest.raises(TypeError):
        ", ".join([promise()])
    with pytest.raises(TypeError):
        msgspec.json.encode(promise())
    with pytest.raises(pydantic.ValidationError):
        Model(Total=promise())


def test_a_promise_can_be_shown_and_copied_with_what_holds_it() -> None:
    one = promise(Parcel).inside[0]
    assert repr(one) == "<promise of ship.inside[0]>"
    assert copy.copy(one) is one
    assert copy.deepcopy([one])[0] is one
    assert dataclasses.asdict(Parcel(one, 1))["no"] is one
    assert not hasattr(one, "__array__")


# -- conditions ----------------------------------------------------------------------------------------------------------------


def shape(condition: Any) -> Any:
    if not isinstance(condition, PromiseCondition):
        return condition
    if condition.op in ("all", "any", "not"):
        return (condition.op, *map(shape, condition.values))
    return condition.op


def test_comparisons_become_conditions() -> None:
    p: Any = promise()
    assert shape(p == "x") == "eq"
    assert shape(p != "x") == "ne"
    assert shape("x" == p) == "eq"  # noqa: SIM300 - reflected on purpose
    assert shape(all_of(p == 1, any_of(p == 2, not_(p == 3)), promise(bool))) == (
        "all",
        "eq",
        ("any", "eq", ("not", "eq")),
        "true",
    )


def test_what_is_known_now_is_decided_now() -> None:
    p: Any = promise()
    assert all_of() is True
    assert any_of() is False
    assert all_of(True, p == 1, False) is False
    assert any_of(False, p == 1, True) is True
    assert shape(all_of(True, p == 1)) == ("all", "eq")
    assert shape(any_of(False, p == 1)) == ("any", "eq")
    assert not_(True) is False
    assert as_condition(True, "mg.when") is True


@pytest.mark.parametrize(
    ("make", "pattern"),
    [
        (
            lambda: as_condition("yes", "mg.when"),
            r"mg\.when takes a condition on a promise, as in promise == x.*not str: write bool",
        ),
        (lambda: as_condition(promise(str), "mg.when"), r"ship will be no bool: compare it"),
        (lambda: all_of(1), r"mg\.all_of takes a condition"),  # type: ignore[arg-type]
        (lambda: any_of(promise(Parcel)), "will be no bool"),
        (lambda: not_(None), r"mg\.not_ takes"),  # type: ignore[arg-type]
        (lambda: (promise() == 1) == (promise() == 2), "a condition on a promise was compared"),
        (lambda: not (promise() == 1), r"mg\.not_"),
    ],
)
def test_what_is_no_condition_is_refused(make: Callable[[], Any], pattern: str) -> None:
    with pytest.raises(PromiseError, match=pattern):
        make()


def test_a_promise_of_a_bool_or_of_anything_may_decide() -> None:
    for annotation in (bool, bool | None, Any, object):
        assert shape(as_condition(promise(annotation), "mg.when")) == "true"


def test_scopes_lie_within_each_other() -> None:
    outer = Scope("outer", None)
    inner = Scope("inner", outer)
    assert inner.within(outer)
    assert inner.within(inner)
    assert not outer.within(inner)
    assert repr(promise() == 1).startswith("<condition eq <promise of ship>")
    assert isinstance(hash(promise() == 1), int)
