"""Questions that a promise answers wrongly in silence are found in the source, when the workflow is decorated, and nothing else is."""

# ruff: noqa: A001, ARG005, E721, F841, PLW0127, RUF059, SIM108 - workflow functions are written here the way people get them wrong
# mypy: disable-error-code="func-returns-value,assignment,no-untyped-call"

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

from makegood.declare.action import Agent, Shared
from makegood.declare.outcomes import NOTHING
from makegood.errors import DefinitionError, PromiseError
from makegood.workflow import verbs
from makegood.workflow.app import App
from makegood.workflow.misuse import check_source
from makegood.workflow.verbs import branches, each, parallel, when

agent = Agent("a", Shared("shop"))


@dataclass
class Order:
    id: str
    gift: bool = False
    note: str | None = None


@dataclass
class Parcel:
    no: str | None


@agent.action(complete_within=1, undo=NOTHING)
def reserve(order: Order) -> str:
    return order.id


@agent.action(complete_within=1, undo=NOTHING)
def ship(order: Order, hold: str | None = None) -> Parcel:
    return Parcel(order.id)


@agent.action(complete_within=1, undo=NOTHING)
def parts(order: Order) -> list[Parcel]:
    return []


# -- wrong: the marked line is named -------------------------------------------------------------------------------------------


def is_none(order: Order) -> None:
    hold = reserve(order)
    if hold is None:  # wrong
        ship(order)


def is_not_none_of_a_part(order: Order) -> None:
    parcel = ship(order)
    answer = parcel.no is not None  # wrong


def instance(order: Order) -> None:
    if isinstance(ship(order), Parcel):  # wrong
        pass


def kind(order: Order) -> None:
    p = ship(order)
    assert type(p) == Parcel  # wrong


def matched(order: Order) -> None:
    p = ship(order)
    match p:  # wrong
        case Parcel():
            pass


def matched_in_a_tuple(order: Order) -> None:
    p = ship(order)
    match (order.gift, p.no):  # wrong
        case (True, None):
            pass


def unpacked(order: Order) -> None:
    one, two = parallel(ship(order), reserve(order))
    print(two is None)  # wrong


def unpacked_by_hand(order: Order) -> None:
    one, two = reserve(order), order.id
    print(two is None)
    print(one is None)  # wrong


def both_ways(order: Order) -> None:
    if order.gift:
        hold = reserve(order)
    else:
        hold = ship(order).no or ""
    hold = reserve(order)


def both_branches(order: Order) -> None:
    hold = reserve(order) if order.gift else ship(order).no
    print(hold is None)  # wrong


def walrus(order: Order) -> None:
    print((hold := reserve(order)) is None)  # wrong


def nested_function(order: Order) -> None:
    hold = reserve(order)

    def inner() -> None:
        print(hold is None)  # wrong

    inner()


def through_lambda(order: Order) -> None:
    hold = reserve(order)
    when(hold == "x", then=lambda: ship(order) if hold is None else None)  # wrong


def decided(order: Order) -> None:
    answer = when(reserve(order) == "x", then=lambda: ship(order))
    if answer is None:  # wrong
        pass


def gathered(order: Order) -> None:
    answer = each(parts(order), lambda part: part.no)
    if answer[0] is None:  # wrong
        pass


def by_module(order: Order) -> None:
    answer = verbs.when(reserve(order) != "x", then=lambda: ship(order))
    verbs.each(parts(order), lambda _: answer is None)  # wrong


def chained(order: Order) -> None:
    hold = reserve(order)
    other = hold
    print(order.note == other is None)  # wrong


WRONG = [
    is_none, is_not_none_of_a_part, instance, kind, matched, matched_in_a_tuple, unpacked, unpacked_by_hand, both_branches, walrus,
    nested_function, through_lambda, decided, gathered, by_module, chained,
]  # fmt: skip


def check(fn: Callable[..., Any]) -> None:
    check_source(fn, verbs._MAKERS, f"shop.{fn.__name__}")


@pytest.mark.parametrize("fn", WRONG, ids=lambda fn: fn.__name__)
def test_the_wrong_line_is_named_with_the_remedy(fn: Callable[..., Any]) -> None:
    first = fn.__code__.co_firstlineno
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()[first - 1 :]
    wrong = first + next(n for n, line in enumerate(lines) if "# wrong" in line)
    with pytest.raises(
        PromiseError,
        match=rf"shop\.{fn.__name__} \(.*test_misuse\.py, line {wrong}\): .*mg\.when\(promise == x",
    ):
        check(fn)


def test_the_decorator_checks() -> None:
    with pytest.raises(DefinitionError, match="hold is None asks about a promise"):
        App("shop").workflow()(is_none)


# -- right: no false alarm -----------------------------------------------------------------------------------------------------


def real_inputs(order: Order, note: str | None = None) -> None:
    if note is None or order.note is None or isinstance(order, Order):
        note = reserve(order)
    match order:
        case Order(gift=True):
            pass
    print(note is None)


def maybe(order: Order) -> None:
    hold = None
    if order.gift:
        hold = reserve(order)
    if hold is not None:
        ship(order, hold)


def conditional(order: Order) -> None:
    hold = reserve(order) if order.gift else None
    ship(order, hold) if hold is not None else None


def short_circuit(order: Order) -> None:
    hold = order.gift and reserve(order)
    print(hold is False)


def known_condition(order: Order) -> None:
    answer = when(order.gift, then=lambda: ship(order))
    items = each([1, 2], lambda n: ship(order))
    print(answer is None, isinstance(items, list))


def tuple_itself(order: Order) -> None:
    both = parallel(ship(order), reserve(order))
    several = branches(lambda: 1, lambda: reserve(order))
    first, second = branches(lambda: None, lambda: reserve(order))
    print(isinstance(both, tuple), several is None, first is None)


def shadowed(order: Order) -> None:
    def reserve(order: Order) -> None:
        return None

    hold = reserve(order)
    print(hold is None)


def parameter_of_a_lambda(order: Order) -> None:
    hold = reserve(order)
    find = lambda hold: hold is None  # noqa: E731
    print(find(None), hold)


def looped(order: Order) -> None:
    for hold in (None, reserve(order)):
        print(hold is None)
    with open(order.id) as hold:  # noqa: PTH123
        print(hold is None)


def comprehension(order: Order) -> None:
    hold = reserve(order)
    print([hold for hold in [None] if hold is None])


def deleted(order: Order) -> None:
    hold = reserve(order)
    del hold
    try:
        pass
    except ValueError as hold:
        print(hold is None)


def augmented(order: Order) -> None:
    hold = reserve(order)
    hold += "x"
    print(hold is None)


def other_isinstance(order: Order) -> None:
    def isinstance(*_: object) -> bool:
        return True

    print(isinstance(reserve(order), str))


def itself(order: Order) -> None:
    value = order.note
    value = value
    print(value is None)


RIGHT = [
    real_inputs, maybe, conditional, short_circuit, known_condition, tuple_itself, shadowed, parameter_of_a_lambda, looped,
    comprehension, deleted, augmented, other_isinstance, itself, both_ways,
]  # fmt: skip


@pytest.mark.parametrize("fn", RIGHT, ids=lambda fn: fn.__name__)
def test_what_may_be_real_is_left_alone(fn: Callable[..., Any]) -> None:
    check(fn)


def test_without_a_source_there_is_no_check() -> None:
    check(len)
    typed_at_a_prompt = FunctionType(is_none.__code__.replace(co_filename="<stdin>"), is_none.__globals__)
    check(typed_at_a_prompt)


def test_decorated_methods_and_closures_are_read_too() -> None:
    def made(action: Any) -> Callable[[Order], None]:
        def inner(order: Order) -> None:
            print(action(order) is None)

        return inner

    with pytest.raises(PromiseError, match="action\\(order\\) is None"):
        check(made(reserve))
    check(made(len))
