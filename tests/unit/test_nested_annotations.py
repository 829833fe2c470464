"""What is inside of a value is held to its annotation before it is kept: Python holds nobody to it."""

import collections
import datetime as dt
import decimal
import enum
import pathlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple, NewType, Protocol, TypedDict

import msgspec
import pydantic
import pytest

from makegood.declare.action import Action, Agent
from makegood.declare.outcomes import NOTHING
from makegood.errors import DefinitionError, PayloadError
from makegood.payload.annotations import certain, takes
from makegood.payload.codec import check_fits, decode, encode
from makegood.workflow.app import App
from makegood.workflow.verbs import when
from makegood.workflow.workflow import Workflow


@dataclass
class Order:
    id: str
    lines: list[int]


@dataclass
class Odd:
    at: complex | None = None


class Extra(TypedDict):
    gift: bool


class More(Extra, total=False):
    note: str


class Model(pydantic.BaseModel):
    n: int


class Struct(msgspec.Struct):
    n: int


class Pair(NamedTuple):
    a: int
    b: str


class Colour(enum.Enum):
    RED = "red"


class Named(Protocol):
    id: str


class Name(str):
    __slots__ = ()


class Flag(enum.Flag):
    OLD = 1
    SOLD = 2


@dataclass(frozen=True)
class Spot:
    x: int


class Moment(dt.datetime):
    pass


class Day(dt.date):
    pass


class Hour(dt.time):
    pass


class Span(dt.timedelta):
    pass


class Money(decimal.Decimal):
    pass


class Blob(bytes):
    pass


Small = Annotated[int, msgspec.Meta(lt=6)]
Few = NewType("Few", Small)


def any_(cls: Callable[..., object], *fields: object) -> object:
    """Return one of a class, as a program without a type checker may make it."""
    return cls(*fields)


FITS: list[tuple[Any, Any]] = [
    (str, "a"), (int | None, None), (float, 1), (Any, object), (list, ["a", 1]), (list[int], [1]), (dict[str, Any], {"a": None}),
    (dict[str, int], {"a": 1}), (Mapping[str, int], {"a": 1}), (Sequence[str], ["a"]), (tuple[int, ...], (1, 2)), (set[int], {1}),
    (Order, Order("o", [1])), (Order | None, Order("o", [])), (Extra, {"gift": True}), (More, {"gift": True, "note": "n"}), (Extra | None, None),
    (list[Extra], [{"gift": False}]), (Model, Model(n=1)), (Struct, Struct(1)), (Pair, Pair(1, "b")), (Colour, Colour.RED),
    (Literal["a", "b"], "b"), (object, {"a": [None, 1]}), (dict[str, object], {"a": 1}), (Small, 5), (Small | None, None), (list[Small], [5]),
    (Few, 5), (Annotated[int, "said"], 5), (Name, Name("n")), (dt.date, dt.date(2026, 1, 2)), (Named, Order("o", [])), (Order, {"id": "o", "lines": []}),
    (set[int | str], {1, "a"}), (set[int | None], {1, None}), (frozenset[Spot], frozenset({Spot(1), Spot(2)})), (set[Flag], {Flag.OLD, Flag.SOLD}), (set, {1, "a"}),
    (Flag, Flag.OLD | Flag.SOLD), (dt.datetime, Moment(2026, 1, 2, 3, 4, 5, 6, dt.UTC)), (dt.date, Day(2026, 1, 2)), (dt.time, Hour(1, 2)), (dt.timedelta, Span(1)),
    (decimal.Decimal, Money("1.10")), (bytes, Blob(b"a")), (dict[dt.date, int], {Day(2026, 1, 2): 1}), (Sequence[int], range(3)), (Sequence[int], collections.deque([1])),
    (Mapping[str, int], MappingProxyType({"a": 1})), (Mapping[str, int], collections.ChainMap({"a": 1})), (Collection[int], {1: 2}.keys()), (Collection[int], {1: 2}.values()),
    (dict[Name, int], {Name("a"): 1}),
]  # fmt: skip
UNFIT: list[tuple[Any, Any]] = [
    (list[int], ["a"]), (list[int], [1, None]), (dict[str, int], {"a": "b"}), (Mapping[str, int], {"a": "b"}), (tuple[int, str], (1,)),
    (set[int], {"a"}), (Order, any_(Order, 5, [])), (Order, any_(Order, "o", ["a"])), (list[Order], [any_(Order, "o", [None])]), (Extra, {}), (Extra, "gift"),
    (Extra, {"gift": 1}), (More, {"gift": True, "note": 3}), (Extra | None, {"gift": None}), (Struct, any_(Struct, "a")), (Pair, any_(Pair, "a", "b")),
    (Small, 6), (Small | None, 6), (list[Small], [6]), (Few, 6), (Name, 6), (Literal["a", "b"], "c"), (list[Extra], [{}]), (str, 1), (bool, 1), (int, True),
    (set, {(1, 2)}), (frozenset, frozenset({(1, 2)})),
]  # fmt: skip


def accepting(annotation: Any) -> Workflow[..., Any]:
    """Return a workflow that takes this, and does nothing with it."""

    def take(value):  # type: ignore[no-untyped-def]  # noqa: ANN001
        return None

    take.__annotations__ = {"value": annotation}
    return App("shop").workflow(name="take")(take)


def returning(annotation: Any) -> Action[..., Any]:
    """Return an action that returns this."""

    def give():  # type: ignore[no-untyped-def]
        return None

    give.__annotations__ = {"return": annotation}
    agent: Agent = App("shop").agent("desk")
    action: Action[..., Any] = agent.action(complete_within=1, undo=NOTHING)(give)
    return action


@pytest.mark.parametrize(("annotation", "value"), [case for case in FITS if case[0] is not Any])
def test_what_fits_is_taken_as_an_input_and_as_a_result(annotation: Any, value: Any) -> None:
    """Twice: what was learnt of the first is used for the second."""
    for _ in range(2):
        assert accepting(annotation).plan(value).inputs == (encode(value),)
    if annotation is not Named:
        action = returning(annotation)
        assert [action._encode(value) for _ in range(2)] == [encode(value)] * 2


@pytest.mark.parametrize(("annotation", "value"), UNFIT)
def test_what_does_not_fit_is_refused_as_an_input_and_as_a_result(annotation: Any, value: Any) -> None:
    """Nothing is written of a task that could not be done; and a result that the next step could not read is none. Also when a value
    of the same type did fit before.
    """
    flow, action = accepting(annotation), returning(annotation)
    for kind, fitting in FITS:
        if kind == annotation and type(fitting) is type(value):
            flow.plan(fitting)
            action._encode(fitting)
    with pytest.raises(PayloadError, match=r"^the input value of shop\.take is "):
        flow.plan(value)
    with pytest.raises(PayloadError, match=r"^the result of shop/desk/give is "):
        action._encode(value)


@pytest.mark.parametrize(
    ("annotation", "pattern"),
    [
        (collections.Counter, r"Counter is none of the types that are kept; write dict\[str, int\]"), (collections.Counter[str], r"write dict\[str, int\]"),
        (collections.OrderedDict[str, int], r"write dict\[\.\.\.\]"), (collections.defaultdict[str, list[int]], r"write dict"), (collections.deque, "write list"),
        (Iterable[int], "write Sequence"), (list[Iterable[int]], "write Sequence"), (Iterator[int], "write list"), (range, r"write list\[int\]"),
        (pathlib.Path | None, "write str, and make the Path of it"), (complex, "complex is none .* write a dataclass"), (Named, "Named is none"),
        (dict[str, complex], "complex"), (Odd, "complex"),
    ],
)  # fmt: skip
def test_what_no_json_is_decoded_to_is_refused_where_the_action_is_declared(
    annotation: Any, pattern: str
) -> None:
    """It passed until the agent was to give it to the action, and the task was undone."""
    with pytest.raises(
        DefinitionError, match=rf"^the result of shop/desk/give: JSON cannot be decoded to .*{pattern}"
    ):
        returning(annotation)


def test_what_is_none_of_msgspecs_own_comes_back_as_its_annotation_says() -> None:
    """Not as the library's own class, of which only the workflow's process may know."""
    moment = dt.datetime(2026, 1, 2, 3, 4, 5, 6, dt.UTC)
    back = decode(encode(Moment(2026, 1, 2, 3, 4, 5, 6, dt.UTC)), dt.datetime)
    assert (back, type(back)) == (moment, dt.datetime)
    assert decode(encode({Day(2026, 1, 2): range(2)}), dict[dt.date, list[int]]) == {
        dt.date(2026, 1, 2): [0, 1]
    }
    assert decode(encode([Hour(1, 2), Span(1), Money("1.10"), Blob(b"a")]), None) == [
        "01:02:00",
        "P1D",
        "1.10",
        "YQ==",
    ]


def test_promises_are_found_in_any_mapping_and_sequence() -> None:
    app = App("shop")

    @app.agent("desk").action(complete_within=1, undo=NOTHING)
    def count(numbers: Sequence[int]) -> int:
        return sum(numbers)

    flow = app.workflow(name="run")(lambda: count(collections.deque([count([1])])))
    args = flow.plan().steps[1].args
    assert args is not None
    assert args.parts == ('{"numbers":[', "]}")


def test_what_is_written_in_a_workflow_is_looked_at_whatever_an_input_was() -> None:
    """A list is as good as its numbers."""
    app = App("shop")

    @app.agent("desk").action(complete_within=1, undo=NOTHING)
    def count(numbers: list[int]) -> int:
        return sum(numbers)

    def run(amount: Any) -> int:
        return count([amount])

    flow = app.workflow(name="run")(run)
    assert flow.plan(3).steps
    with pytest.raises(
        PayloadError, match=r"numbers in step count of shop\.run is list, its annotation says list\[int\]"
    ):
        flow.plan("3")


def test_an_input_is_held_to_the_limits_of_the_action_that_it_is_given_to() -> None:
    """Also when the workflow says nothing of them, and the input before was within them."""
    app = App("shop")

    @app.agent("desk").action(complete_within=1, undo=NOTHING)
    def count(small: Small) -> int:
        return small

    flow = app.workflow(name="run")(lambda amount: [count(amount)])
    assert [flow.plan(amount).inputs for amount in (4, 5)] == [(b"4",), (b"5",)]
    with pytest.raises(PayloadError, match=r"small in step count of shop\.run is int, .*Expected `int` <= 5"):
        flow.plan(6)


@pytest.mark.parametrize(
    ("annotation", "good", "bad"),
    [
        (list[int], [1], ["a"]),
        (Order, Order("o", [1]), any_(Order, 5, [])),
        (dict[str, int], {"a": 1}, {"a": None}),
    ],
)
def test_an_input_is_held_to_what_the_action_says_that_it_is_given_to(
    annotation: Any, good: Any, bad: Any
) -> None:
    """A workflow may say less of its input, or nothing. Also when the same plan was made before, and when only the first of two calls was."""
    app = App("shop")
    desk = app.agent("desk")

    def use(thing):  # type: ignore[no-untyped-def]  # noqa: ANN001
        return None

    use.__annotations__ = {"thing": annotation}
    action = desk.action(complete_within=1, undo=NOTHING)(use)
    pattern = r"^thing in step use of shop\.run is .*, its annotation says "

    def run(thing, twice=False):  # type: ignore[no-untyped-def]  # noqa: ANN001
        action(thing)
        if twice:
            action(thing)

    def one(thing):  # type: ignore[no-untyped-def]  # noqa: ANN001
        return [when(action(thing) == 1, then=lambda: action(thing))]

    for fn in (run, one):
        flow = app.workflow(fn)
        with pytest.raises(PayloadError, match=pattern.replace("run", fn.__name__)):
            flow.plan(bad)
        assert [flow.plan(good).inputs[0] for _ in range(3)] == [encode(good)] * 3
        with pytest.raises(PayloadError, match=pattern.replace("run", fn.__name__)):
            flow.plan(bad)
    twice: Workflow[..., Any] = app.workflows["run"]
    assert len(twice.plan(good, twice=True).steps) == 2
    with pytest.raises(PayloadError, match=pattern):
        twice.plan(bad, twice=True)


def test_an_input_by_name_is_held_to_its_annotation() -> None:
    """As one by position is."""
    app = App("shop")

    @app.workflow
    def run(n: int, *, many: list[int]) -> int:
        return n

    assert run.plan(1, many=[2]).inputs == (b"1", b"[2]")
    with pytest.raises(
        PayloadError, match=r"the input many of shop\.run is list, its annotation says list\[int\]"
    ):
        run.plan(1, many=["a"])  # type: ignore[list-item]  # as a program without a type checker does


@pytest.mark.parametrize(("annotation", "value"), FITS + UNFIT)
def test_what_is_certain_needs_no_look(annotation: Any, value: Any) -> None:
    """Otherwise the look would have found that it fits."""
    if certain(annotation, type(value)) and annotation not in (Any, Named):
        check_fits(encode(value), annotation, value, "it")


@pytest.mark.parametrize(
    ("target", "source", "fits"),
    [
        (Extra, More, True), (Extra, dict, True), (Extra, dict[str, bool], True), (dict, Extra, True), (Mapping[str, object], Extra, True),
        (Extra, str, False), (str, Extra, False), (Order, Extra, False), (Extra | None, Extra, True),
    ],
)  # fmt: skip
def test_the_values_of_a_typed_dict_are_dicts(target: Any, source: Any, fits: bool) -> None:
    assert takes(target, source) is fits


def test_a_typed_dict_goes_from_step_to_step() -> None:
    """As an input, as a promise, and where the next step takes any dict."""
    app = App("shop")
    desk = app.agent("desk")

    def look(extra: Extra) -> More:
        return {**extra, "note": "n"}

    def note(more: More, loose: dict[str, Any]) -> None: ...

    actions: list[Callable[..., Any]] = [
        desk.action(complete_within=1, undo=NOTHING)(fn) for fn in (look, note)
    ]
    flow = app.workflow(name="run")(lambda extra: actions[1](result := actions[0](extra), result))
    assert [step.name for step in flow.plan({"gift": True}).steps] == ["look", "note"]
