"""A rule in an annotation is checked wherever a value is read, or refused at the declaration with the remedy."""

import dataclasses
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Final, Generic, NamedTuple, NewType, TypedDict, TypeVar

import annotated_types as at
import attrs
import msgspec
import pydantic
import pytest
import typing_extensions as te
from pydantic import Field
from pydantic.dataclasses import dataclass as pydantic_dataclass

import makegood as mg
from makegood.errors import DefinitionError, PayloadError
from makegood.payload.codec import decode, encode

T = TypeVar("T")
Positive = NewType("Positive", pydantic.PositiveInt)
Count = te.TypeAliasType("Count", Annotated[int, msgspec.Meta(gt=0)])
Many = te.TypeAliasType("Many", list[T], type_params=(T,))
Unchecked = te.TypeAliasType("Unchecked", Annotated[int, at.Gt(0)])
Nested = te.TypeAliasType("Nested", "dict[str, Nested] | int")


@pydantic_dataclass
class Line:
    count: int = Field(gt=0)
    data: bytes = b""
    names: Annotated[list[str], Field(max_length=2)] = Field(default_factory=list)
    limit: Annotated[int, msgspec.Meta(lt=10)] = 1
    doubled: int = dataclasses.field(init=False, default=0)

    def __post_init__(self) -> None:
        self.doubled += 2 * self.count

    @pydantic.field_validator("names")
    @classmethod
    def lower(cls, names: list[str]) -> list[str]:
        return [name.lower() for name in names]


@pydantic_dataclass(frozen=True)
class Order:
    lines: list[Line]
    parent: "Order | None" = None


@pydantic_dataclass(config={"extra": "forbid"})
class Strict:
    count: int


@pydantic_dataclass
class Page(Generic[T]):
    items: list[T]


@pydantic_dataclass
class Aliased:
    count: int = Field(alias="Count")


@pydantic_dataclass
class WithInitVar:
    count: dataclasses.InitVar[int]


class Basket(TypedDict, total=False):
    line: te.Required[Line]
    more: Line


@attrs.define
class Converted:
    name: str = attrs.field(converter=str)


@attrs.define
class OwnAttrsInit:
    count: int

    def __init__(self, count: int) -> None:
        raise ValueError(count)


@dataclasses.dataclass(init=False)
class OwnInit:
    count: int

    def __init__(self, count: int) -> None:
        raise ValueError(count)


@dataclasses.dataclass
class OwnNew:
    count: int

    def __new__(cls, count: int) -> te.Self:
        raise ValueError(count)


class Undecorated(Line):
    pass


@dataclasses.dataclass
class PlainChild(Strict):
    more: int = 1


@dataclasses.dataclass
class Plain:
    line: Line


class Named(NamedTuple):
    line: Line


@dataclasses.dataclass
class Ruled:
    count: Annotated[int, Field(gt=0)]


@dataclasses.dataclass
class Defaulted:
    count: int = Field(gt=0)


@dataclasses.dataclass
class Counting:
    count: int = attrs.field(validator=attrs.validators.gt(0))


class RuledDict(TypedDict):
    counts: list[pydantic.PositiveInt]


class RuledTuple(NamedTuple):
    least: Annotated[int, at.Ge(1)]


class RuledStruct(msgspec.Struct):
    count: int = Field(gt=0)


@attrs.define
class RuledAttrs:
    count: Annotated[int, at.Le(5)]


class Model(pydantic.BaseModel):
    count: pydantic.PositiveInt
    line: Line | None = None


LineBound = TypeVar("LineBound", bound=Line)
RuledBound = TypeVar("RuledBound", bound=Annotated[int, at.Gt(0)])
TextBound = TypeVar("TextBound", bound="Line")


@dataclasses.dataclass
class Box(Generic[T]):
    inside: T


@dataclasses.dataclass
class BoundBox(Generic[LineBound]):
    inside: list[LineBound]


class BoxDict(te.TypedDict, Generic[T]):
    inside: T


class BoxStruct(msgspec.Struct, Generic[T]):
    inside: T


@dataclasses.dataclass
class BoxOfLine(Box[Line]):
    count: int = 1


class BoxDictOfLine(BoxDict[Line]):
    count: te.NotRequired[int]


class MoreOfBoxDict(BoxDictOfLine):
    more: int


class Extended(te.TypedDict):
    """Of typing_extensions, as pydantic wants it."""

    counts: te.NotRequired[pydantic.PositiveInt]


class ExtendedBasket(te.TypedDict, total=False):
    line: te.Required[Line]


class Closed(te.TypedDict, closed=True):
    count: int


class Extra(te.TypedDict, extra_items=int):  # type: ignore[call-arg]  # as above
    count: int


class BoxStructOfRuled(BoxStruct[list[pydantic.PositiveInt]]):
    pass


@dataclasses.dataclass
class Inherits(BoxOfLine):
    pass


@dataclasses.dataclass
class BoxOfInt(Box[int]):
    pass


class ChildWithInit(BoxOfInt):
    def __init__(self, inside: int) -> None:
        raise ValueError(inside)


@pydantic_dataclass
class WithConstants:
    known: ClassVar[int] = 3
    count: Final[int] = Field(default=1, gt=0)


class Phone(str):
    """As in pydantic_extra_types: only pydantic knows its rules."""

    __slots__ = ()

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any: ...


class Marker:
    """Metadata of the user's own, which nobody calls."""


ALLOWED: list[Any] = [
    Annotated[int, "in cents"],
    Annotated[int, te.Doc("in cents"), Marker(), Marker],
    Annotated[int, at.doc("in cents")],
    Annotated[int, Field(description="in cents", title="Cents")],
    Annotated[int, msgspec.Meta(gt=0, description="in cents")],
    Annotated[Model, "an order"],
    list[Model],
    Model,
    Line,
    Basket,
    Many[Count],
    LineBound,
    Box[Line],
    BoundBox[Line],
    BoxDict[Line],
    BoxOfInt,
    WithConstants,
    ExtendedBasket,
]
REFUSED: list[tuple[Any, str]] = [
    (Annotated[int, Field(gt=0)], "pydantic's Field is a rule that nobody would check here: write Annotated[int, msgspec.Meta(gt=0)]"),
    (Annotated[int, Field(gt=0, description="n")], "write Annotated[int, msgspec.Meta(gt=0)]"),
    (pydantic.PositiveInt, "Gt is a rule"),
    (pydantic.StrictInt, "Strict is a rule"),
    (pydantic.conint(ge=1, lt=5), "write Annotated[int, msgspec.Meta(ge=1, lt=5)]"),
    (pydantic.constr(min_length=2, pattern="a+"), "write Annotated[str, msgspec.Meta(min_length=2, pattern='a+')]"),
    (pydantic.conlist(int, max_length=3), "[int], msgspec.Meta(min_length=0, max_length=3)]"),
    (Annotated[Decimal, at.Gt(0)], "make the value a pydantic model, or check it in the action"),
    (Annotated[str, pydantic.AfterValidator(str.strip)], "AfterValidator is a rule"),
    (Annotated[str, pydantic.BeforeValidator(str.strip)], "BeforeValidator is a rule"),
    (Annotated[Model, pydantic.AfterValidator(lambda v: v)], "AfterValidator is a rule"),
    (Annotated[str, at.Predicate(str.islower)], "Predicate is a rule"),
    (Annotated[int, at.Interval(gt=0, le=9)], "msgspec.Meta(gt=0, le=9)"),
    (Annotated[list[int], at.Len(1, 3)], "msgspec.Meta(min_length=1, max_length=3)"),
    (Annotated[str, re.compile("a+")], "Pattern is a rule"),
    (Annotated[int, attrs.validators.gt(0)], "is a rule"),
    (Annotated[int, lambda value: value > 0], "a function is a rule"),
    (Annotated[int, range(5)], "range is a rule"),
    (dict[str, list[pydantic.PositiveInt] | None], "Gt is a rule"),
    (tuple[int, pydantic.PositiveInt], "Gt is a rule"),
    (Positive, "Gt is a rule"),
    (Unchecked, "Gt is a rule"),
    (list[Many[Unchecked]], "Gt is a rule"),
    (Nested, "Nested"),
    (Ruled, "Ruled.count: pydantic's Field is a rule"),
    (Defaulted, "the default of Defaulted.count is pydantic's Field"),
    (Counting, "the default of Counting.count is _CountingAttr"),
    (RuledDict, "RuledDict.counts: Gt is a rule"),
    (list[RuledTuple], "RuledTuple.least: Ge is a rule"),
    (RuledStruct, "the default of RuledStruct.count is pydantic's Field"),
    (RuledAttrs | None, "RuledAttrs.count: Le is a rule"),
    (Plain, "Plain.line is a Line, a pydantic dataclass"),
    (list[Named], "Named.line is a Line, a pydantic dataclass"),
    (Aliased, "Aliased.count has an alias"),
    (WithInitVar, "WithInitVar.count is an InitVar"),
    (RuledBound, "Gt is a rule"),
    (TextBound, "the bound of ~TextBound is a text, which Python does not evaluate: write it without quotes"),
    (BoundBox, "BoundBox.inside is a Line, a pydantic dataclass"),
    (BoxOfLine, "a parameter of BoxOfLine's bases is a Line, a pydantic dataclass"),
    (list[BoxDictOfLine], "BoxDictOfLine.inside has its type from what a generic base was given"),
    (MoreOfBoxDict, "write the field out in MoreOfBoxDict"),
    (Extended, "Extended.counts: Gt is a rule"),
    (Closed, "Closed says which other keys it may have, and nobody would check that"),
    (Extra, "Extra says which other keys it may have"),
    (BoxStructOfRuled, "a parameter of BoxStructOfRuled's bases: Gt is a rule"),
    (Inherits, "a parameter of Inherits's bases is a Line, a pydantic dataclass"),
    (Converted, "Converted.name has a converter, which nobody would call when a value is read"),
    (OwnAttrsInit, "OwnAttrsInit has __init__ of its own, which nobody would call"),
    (OwnInit, "OwnInit has __init__ of its own"),
    (list[ChildWithInit], "ChildWithInit has __init__ of its own"),
    (OwnNew, "OwnNew has __new__ of its own"),
    (Undecorated, "Undecorated inherits from a pydantic dataclass, whose rules nobody would check in it"),
    (list[PlainChild], "PlainChild inherits from a pydantic dataclass"),
    (Phone, "Phone has rules that only pydantic knows"),
    (pydantic.ByteSize, "ByteSize has rules that only pydantic knows"),
]  # fmt: skip


def as_parameter(annotation: Any) -> None:
    def act(v: Any) -> str:
        return ""

    act.__annotations__ = {"v": annotation, "return": str}
    mg.App("shop").agent("desk").action(complete_within="5s", undo=mg.NOTHING)(act)


def as_result(annotation: Any) -> None:
    def act() -> Any: ...

    act.__annotations__ = {"return": annotation}
    mg.App("shop").agent("desk").action(complete_within="5s", undo=mg.NOTHING)(act)


def as_input(annotation: Any) -> None:
    def work(v: Any) -> None: ...

    work.__annotations__ = {"v": annotation, "return": None}
    flow = mg.App("shop").workflow()(work)
    flow._inputs._decode("v", None)  # what only reading shows


def as_workflow_result(annotation: Any) -> None:
    def work() -> Any: ...

    work.__annotations__ = {"return": annotation}
    mg.App("shop").workflow()(work)


def as_message(annotation: Any) -> None:
    def accept(v: Any, tx: mg.Transaction) -> None: ...

    accept.__annotations__ = {"v": annotation, "tx": mg.Transaction, "return": None}
    mg.App("shop").inbox("orders")(accept)


@pydantic_dataclass
class WithUrl:
    url: pydantic.HttpUrl


def test_a_field_that_json_does_not_keep_is_refused_at_the_declaration() -> None:
    with pytest.raises(DefinitionError, match="HttpUrl is none of the types that are kept"):
        as_parameter(list[WithUrl])


@pytest.mark.parametrize("declare", [as_parameter, as_result, as_message, as_input])
@pytest.mark.parametrize(("annotation", "hint"), REFUSED)
def test_a_rule_that_nobody_would_check_is_refused(
    declare: Callable[[Any], None], annotation: Any, hint: str
) -> None:
    with pytest.raises(DefinitionError) as error:
        declare(annotation)
    assert hint in str(error.value)


@pytest.mark.parametrize("declare", [as_parameter, as_result, as_message, as_workflow_result])
@pytest.mark.parametrize("annotation", ALLOWED)
def test_what_only_describes_or_is_checked_is_allowed(
    declare: Callable[[Any], None], annotation: Any
) -> None:
    declare(annotation)


READ: list[tuple[Any, Any, Any]] = [
    (Line, {"count": 1, "names": ["A"]}, {"count": -1}),
    (Line, {"count": 1, "data": "YQ=="}, {}),
    (Line, {"count": 1}, {"count": 1, "names": ["a", "b", "c"]}),
    (Line, {"count": 1}, {"count": 1, "limit": 10}),
    (list[Line | None], [None, {"count": 1}], [{"count": 0}]),
    (dict[str, list[Line]], {"a": [{"count": 1}]}, {"a": [{"count": 0}]}),
    (tuple[int, Line], [1, {"count": 1}], [1, {"count": 0}]),
    (Annotated[Line, "described"], {"count": 1}, {"count": 0}),
    (NewType("Own", Line), {"count": 1}, {"count": 0}),
    (te.TypeAliasType("Lines", list[Line]), [{"count": 1}], [{"count": 0}]),
    (Order, {"lines": [{"count": 1}], "parent": {"lines": []}}, {"lines": [{"count": 0}]}),
    (Order, {"lines": []}, {"lines": [], "parent": {"lines": [{"count": 0}]}}),
    (Strict, {"count": 1}, {"count": 1, "other": 2}),
    (Page[Line], {"items": [{"count": 1}]}, {"items": [{"count": 0}]}),
    (Page[int], {"items": [1]}, {"items": ["a"]}),
    (Basket, {"line": {"count": 1}}, {"line": {"count": 0}}),
    (list[Basket], [{"line": {"count": 1}, "more": {"count": 1}}], [{"line": {"count": 1}, "more": {"count": 0}}]),
    (Basket, {"line": {"count": 1}}, {"more": {"count": 1}}),
    (Model, {"count": 1, "line": {"count": 1}}, {"count": 1, "line": {"count": 0}}),
    (LineBound, {"count": 1}, {"count": 0}),
    (list[LineBound], [{"count": 1}], [{"count": 0}]),  # type: ignore[valid-type]  # as in a generic function
    (Box[Line], {"inside": {"count": 1}}, {"inside": {"count": 0}}),
    (BoundBox[Line], {"inside": [{"count": 1}]}, {"inside": [{"count": 0}]}),
    (BoxDict[Line], {"inside": {"count": 1}}, {"inside": {"count": 0}}),
    (WithConstants, {"count": 1}, {"count": 0}),
    (ExtendedBasket, {"line": {"count": 1}}, {"line": {"count": 0}}),
    (Count, 1, 0),
    (Many[Count], [1], [0]),
    (dict[str, list[Annotated[str, msgspec.Meta(max_length=1)]]], {"a": ["a"]}, {"a": ["ab"]}),
]  # fmt: skip


@pytest.mark.parametrize(("annotation", "good", "bad"), READ)
def test_rules_hold_wherever_a_value_is_read(annotation: Any, good: Any, bad: Any) -> None:
    """What was read is written and read again as the same value."""
    value = decode(encode(good), annotation)
    assert decode(encode(value), annotation) == value
    with pytest.raises(PayloadError):
        decode(encode(bad), annotation)


def test_a_pydantic_dataclass_is_made_once_by_its_own_code() -> None:
    """Validators and ``__post_init__`` run once for each reading."""
    line = decode(b'{"count":2,"names":["A"],"data":"YQ=="}', Line)
    assert (type(line), line.names, line.data, line.doubled) == (Line, ["a"], b"a", 4)
    order = decode(b'{"lines":[{"count":2}]}', Order)
    assert (type(order.lines[0]), order.lines[0].doubled) == (Line, 4)


def test_an_error_of_pydantic_does_not_show_the_value() -> None:
    with pytest.raises(PayloadError) as error:
        decode(b'{"count":-4711}', Line)
    assert "count: Input should be greater than 0" in str(error.value)
    assert "4711" not in str(error.value)


def flow(annotation: Any) -> Any:
    def work(v: Any) -> None: ...

    work.__annotations__ = {"v": annotation, "return": None}
    return mg.App("shop").workflow()(work)


def test_a_value_that_is_submitted_directly_is_checked() -> None:
    """An object can be changed after pydantic has checked it, or be made without a check."""
    line = Line(count=1)
    line.count = -1
    with pytest.raises(PayloadError, match="count: Input should be greater than 0"):
        flow(Line).plan(line)
    with pytest.raises(PayloadError, match="count: Input should be greater than 0"):
        flow(list[Line]).plan([line])
    with pytest.raises(PayloadError, match="count: Input should be greater than 0"):
        flow(Model).plan(Model.model_construct(count=-1))
    with pytest.raises(PayloadError, match=">= 1"):
        flow(Count).plan(0)


def test_a_default_that_stands_for_a_rule_is_refused() -> None:
    def act(v: int = Field(gt=0)) -> None: ...

    with pytest.raises(
        DefinitionError, match=r"shop/desk/act: the default of its parameter v is pydantic's Field"
    ):
        mg.App("shop").agent("desk").action(complete_within="5s", undo=mg.NOTHING)(act)
    with pytest.raises(
        DefinitionError, match=r"shop\.act: the default of its parameter v is pydantic's Field"
    ):
        mg.App("shop").workflow()(act)


def test_a_parameter_is_not_final() -> None:
    with pytest.raises(DefinitionError, match=r"shop/desk/act: .*typing\.Final\[int\]"):
        as_parameter(Final[int])


def charge() -> Any:
    @mg.App("shop").agent("desk").action(complete_within="5s")
    def charge(cents: Annotated[int, msgspec.Meta(gt=0)]) -> int:
        return cents

    return charge


def test_limits_of_an_undo_and_a_probe_are_those_of_the_action() -> None:
    """Values are checked by the action's annotations alone."""
    low, other = Annotated[int, msgspec.Meta(gt=0)], Annotated[int, msgspec.Meta(gt=5)]

    def undo(cents: Any, *, result: Any) -> None: ...

    def probe(cents: Any) -> Any: ...

    for annotations in (
        {"cents": other, "result": int | None},
        {"cents": low, "result": other | None},
        {"cents": Annotated[int, Field(gt=0)], "result": int | None},
    ):
        undo.__annotations__ = {**annotations, "return": None}
        with pytest.raises(DefinitionError, match=r"annotate both alike|is a rule that nobody would check"):
            charge().undo(undo)
    for returns in (other, Annotated[int, Field(gt=0)]):
        probe.__annotations__ = {"cents": low, "return": mg.Happened[returns] | mg.NotHappened}  # type: ignore[valid-type]
        with pytest.raises(DefinitionError, match=r"annotate both alike|is a rule that nobody would check"):
            charge().probe(probe)
    undo.__annotations__ = {"cents": low, "result": int | None, "return": None}
    probe.__annotations__ = {"cents": low, "return": mg.Happened[int] | mg.NotHappened}
    action = charge()
    action.undo(undo)
    action.probe(probe)


@mg.App("shop").workflow(name="work")
def late(v: "Later") -> None: ...


Later = pydantic.PositiveInt


def test_an_annotation_that_is_known_later_is_refused_when_it_is_needed() -> None:
    """The name is defined further down in its module."""
    with pytest.raises(DefinitionError, match=r"the input v of shop\.work: Gt is a rule"):
        late.plan(1)


@dataclasses.dataclass
class Holder:
    inner: "Nowhere"  # type: ignore[name-defined]  # noqa: F821 - that is the case


def test_an_annotation_inside_a_type_is_refused_with_the_same_remedy() -> None:
    """As for one of a name that is imported under `if TYPE_CHECKING:`."""

    def work(v: Holder) -> None: ...

    with pytest.raises(
        DefinitionError,
        match=r"inside Holder cannot be evaluated \(name 'Nowhere'.*define or import that name",
    ):
        mg.App("shop").workflow()(work).plan(Holder(1))


def test_an_annotation_that_nobody_ever_defines_is_refused_with_the_remedy() -> None:
    def work(v: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821 - that is the case

    with pytest.raises(DefinitionError, match=r"cannot be evaluated .*define or import that name"):
        mg.App("shop").workflow()(work).plan(1)
