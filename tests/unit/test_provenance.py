"""A plan says that a step takes an input only where the function passed that very parameter."""

import copy
import datetime as dt
import enum
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple

import attrs
import msgspec
import pydantic
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

import makegood as mg
from makegood.model.plan import Plan, Ref
from makegood.workflow.provenance import own_copies
from makegood.workflow.recorder import Recording

CONSTANT = "parcel service"


class Kind(enum.Enum):
    PLAIN = "plain"
    EXPRESS = "express"


class Size(enum.IntEnum):
    SMALL = 1


class Text(str):
    __slots__ = ()


class Point(NamedTuple):
    x: int


class Struct(msgspec.Struct):
    n: int


class Model(pydantic.BaseModel):
    n: int


@attrs.define
class Attrs:
    n: int


@dataclass
class Customer:
    name: str
    count: int = 1


@dataclass(frozen=True, slots=True)
class Frozen:
    n: int


@dataclass
class Order:
    customer: Customer
    lines: list[str] = field(default_factory=list)


@dataclass(eq=False)
class Entity:
    n: int


class Uncopied:
    """A class whose values refuse to be copied."""

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = None  # type: ignore[assignment]

    def __copy__(self) -> None:
        raise RuntimeError("not me")

    def __repr__(self) -> str:
        return "uncopied"


WITH_COPIES = [
    "text", "é…", 1_000_000, -1_000_000, 2.5, -0.0, b"bytes", Decimal("1.10"), Decimal("-0"), (1, 2), frozenset([1]),
    {}, [], set(), {"a": 1}, [1], {1}, dt.datetime(2026, 1, 1, tzinfo=dt.UTC), dt.date(2026, 1, 1), dt.time(12), dt.timedelta(1),
    uuid.UUID(int=1), Text("own"), Point(1), Struct(1), Model(n=1), Attrs(1), Customer("ada"), Frozen(1),
]  # fmt: skip
SHARED = [None, True, False, 0, 1, -1, 256, "", "a", b"", (), Kind.PLAIN, Size.SMALL, Entity(1), Uncopied()]


@pytest.mark.parametrize("value", WITH_COPIES, ids=repr)
def test_a_copy_is_equal_and_another_object(value: Any) -> None:
    """It has the type of the value, which the function may ask for; of numbers the sign and the digits too."""
    (own,), marks = own_copies([value], ())
    assert own is not value
    assert (own, type(own), repr(own)) == (value, type(value), repr(value))
    assert marks in {(type(value),), ((type(value), 0),)}


@pytest.mark.parametrize(
    "value",
    ["text", 1_000_000, 2.5, b"bytes", Decimal("1.10"), (1, 2), [], {}, dt.date(2026, 1, 1), Text("own")],
    ids=repr,
)
def test_an_object_that_an_expression_may_choose_is_ambiguous(value: Any) -> None:
    """``max(a, b)``, ``a or b`` and ``a.strip()`` may return the very object that is an input."""
    assert own_copies([value, value], ())[1] == ((type(value), 0), (type(value), 1))


@pytest.mark.parametrize("value", [Struct(1), Attrs(1), Customer("ada"), Frozen(1)], ids=repr)
def test_an_object_of_a_plain_class_is_not(value: Any) -> None:
    assert own_copies([value], ())[1] == (type(value),)


@pytest.mark.parametrize("value", SHARED, ids=repr)
def test_an_object_that_others_have_too_is_ambiguous(value: Any) -> None:
    (own, _, again), marks = own_copies([value, [], value], ())
    assert own is again is value
    assert marks == ((type(value), 0), (list, 1), (type(value), 0))
    assert own_copies([value], {id(value)})[1] == ((type(value), ~id(value)),)


# -- in a plan -------------------------------------------------------------------------------------------------

Source = Callable[[Any, Any, Any], Any]
"""What a program passes to a step, made of its three inputs."""

SOURCES: dict[str, Source] = {
    "first": lambda a, b, c: a,  # noqa: ARG005 - each takes all inputs
    "second": lambda a, b, c: b,  # noqa: ARG005
    "third": lambda a, b, c: c,  # noqa: ARG005
    "one": lambda a, b, c: 1,  # noqa: ARG005
    "nothing": lambda a, b, c: None,  # noqa: ARG005
    "constant": lambda a, b, c: CONSTANT,  # noqa: ARG005
    "member": lambda a, b, c: Kind.PLAIN,  # noqa: ARG005
    "part": lambda a, b, c: getattr(c, "customer", c),  # noqa: ARG005
    "part of a part": lambda a, b, c: c.customer.count if isinstance(c, Order) else c,  # noqa: ARG005
    "same text": lambda a, b, c: str(a),  # noqa: ARG005
    "copy": lambda a, b, c: copy.copy(b),  # noqa: ARG005
}
PLACES = {"first": 0, "second": 1, "third": 2}
ALIASES = {**PLACES, "part": 2, "part of a part": 2, "same text": 0, "copy": 1}
"""Each of these may pass on an input itself: ``str`` returns a text as it is."""
CUSTOMER = Customer("ada")
VALUES: list[Any] = [
    1, 2, 1_000_000, True, None, CONSTANT, "a", "word", Kind.PLAIN, Size.SMALL, (), (1,), CUSTOMER, Order(CUSTOMER), 1.0,
]  # fmt: skip


def program(*sources: str) -> Any:
    """Return a workflow whose steps take what the sources name, two each, in order."""
    app = mg.App("shop")

    @app.agent("desk").action(complete_within="20s", undo=mg.NOTHING)
    def send(what: Any, how: Any) -> str:
        return ""

    @app.workflow()
    def run(a: Any, b: Any, c: Any) -> None:
        values = [SOURCES[source](a, b, c) for source in sources]
        while values:
            how = values.pop()
            send(values.pop(), how)

    return run


def origins(plan: Plan[Any]) -> list[Ref | None]:
    """Return what fills each argument of the steps: the ref of a whole one, None for one that is written."""
    refs_found: list[Ref | None] = []
    for step in reversed(plan.steps):
        assert step.args is not None
        args = step.args
        text = "".join(f"{part}{'@' if n < len(args.refs) else ''}" for n, part in enumerate(args.parts))
        refs = iter(args.refs)
        refs_found += [next(refs) if f'"{name}":@' in text else None for name in ("what", "how")]
    return refs_found


@given(
    st.lists(st.sampled_from([*SOURCES]), min_size=2, max_size=6).filter(lambda names: len(names) % 2 == 0),
    st.lists(st.tuples(*[st.sampled_from(VALUES)] * 3), min_size=1, max_size=4),
)
def test_what_is_an_input_in_a_plan_was_passed_as_that_input(
    names: list[str], tasks: list[tuple[Any, Any, Any]]
) -> None:
    """Whatever equals it; and the plan of a task is the one of a process that has planned nothing before."""
    run = program(*names)
    for inputs in tasks:
        plan = run.plan(*inputs)
        fresh = program(*names).plan(*inputs)
        assert (plan.steps, plan.returns) == (fresh.steps, fresh.returns)
        for name, ref in zip(names, origins(plan), strict=True):
            event(f"{name}: {ref and ref.of}")
            if ref is not None and ref.of == "input":
                assert ref.index == ALIASES[name]
            if ref is not None and ref.of == "value":
                assert plan.inputs[ref.index] == msgspec.json.encode(SOURCES[name](*inputs))
            if name in PLACES and own_copies([inputs[PLACES[name]]], ())[1][0] is type(inputs[PLACES[name]]):
                assert ref == Ref("input", PLACES[name])


def test_one_object_that_is_passed_twice_is_two_inputs() -> None:
    order = Order(CUSTOMER)
    run = program("second", "first", "part", "third")
    assert origins(run.plan(order, order, order)) == [
        Ref("input", 1), Ref("input", 0), None, Ref("input", 2),
    ]  # fmt: skip
    assert origins(run.plan(CUSTOMER, CUSTOMER, order))[2] is None, "a part of an input is not another input"


def test_ambiguous_inputs_are_followed_on_the_trail(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flag or a small number costs no plan its trail, whatever its value; nor do two that take turns."""
    count = 0
    action = Recording.action

    def counting(self: Recording, action_: Any, args: Any, kwargs: Any) -> Any:
        nonlocal count
        count += 1
        return action(self, action_, args, kwargs)

    monkeypatch.setattr(Recording, "action", counting)
    run = program("first", "second", "third", "first")
    first = run.plan(True, 5, None)
    run.plan(True, 1_000_000, None)
    assert count == 2
    for n in range(6, 9):
        assert run.plan(False, n, None).steps is first.steps
        run.plan(False, n * 1_000_000, None)
    assert count == 2


def direct() -> tuple[mg.App, dict[str, Any]]:
    """Return workflows whose source shows, or hides, which parameter a step takes."""
    app, flag = mg.App("shop"), True

    @app.agent("desk").action(complete_within="20s", undo=mg.NOTHING)
    def send(what: Any, how: Any = None) -> str:
        return ""

    @app.workflow()
    def turned(a: Any, b: Any) -> None:
        send(b, how=a)

    @app.workflow()
    def inside(a: Any, *, b: Any = 1) -> None:
        mg.branches(lambda: send(how=b, what=a), lambda: send(1, b))

    @app.workflow()
    def either(a: Any, b: Any, first: bool) -> None:
        if first:
            send(a, "x")
        else:
            send(b, "x")

    @app.workflow()
    def bound_again(a: Any, b: Any) -> None:
        if flag:
            a = b
        send(a, b)

    @app.workflow()
    def other_parameter(a: Any, b: Any) -> None:
        mg.branches(*[lambda a=a: send(a, b) for a in (a, b)])

    @app.workflow()
    def by_map(a: Any, b: Any) -> None:
        list(map(send, [b], [a]))

    @app.workflow()
    def unpacked(a: Any, b: Any) -> None:
        send(*(b, a))
        names = {"what": b, "how": a}
        send(**names)

    return app, app.workflows


def test_the_source_says_which_of_equal_inputs_a_step_takes() -> None:
    workflows = direct()[1]
    assert origins(workflows["turned"].plan(1, 1)) == [Ref("input", 1), Ref("input", 0)]
    assert origins(workflows["inside"].plan(1))[2:] == [Ref("input", 0), Ref("input", 1)]
    assert origins(workflows["inside"].plan(2, b=1))[:2] == [Ref("value", 1), Ref("input", 1)]


def test_a_plan_does_not_follow_another_line_of_the_source() -> None:
    """The arguments are the same objects, and other inputs."""
    either = direct()[1]["either"]
    assert origins(either.plan(5, 5, True))[0] == Ref("input", 0)
    assert origins(either.plan(5, 5, False))[0] == Ref("input", 1)
    assert origins(either.plan(5, 5, True))[0] == Ref("input", 0)


@pytest.mark.parametrize("name", ["bound_again", "other_parameter", "by_map", "unpacked"])
def test_where_the_source_does_not_say_it_the_input_is_ambiguous(name: str) -> None:
    plan = direct()[1][name].plan(5, 5)
    assert {ref and ref.of for ref in origins(plan)} <= {"value", "input"}
    assert Ref("value", 0) in origins(plan)
    assert all(ref != Ref("input", 0) for ref in origins(plan))


def test_trails_are_limited() -> None:
    run = program("first", "second")
    for n in range(40):
        run.plan(msgspec.defstruct(f"Kind{n}", [("n", int)])(1), 2, 3)
    assert len(run._trails) == 32


def test_the_caller_keeps_its_object_as_it_was() -> None:
    """The function has a list of its own."""
    app = mg.App("shop")

    @app.workflow()
    def run(lines: list[str]) -> None:
        lines.append("more")

    lines = ["one"]
    run.plan(lines)
    assert lines == ["one"]
