"""What ``mg.when`` compares is JSON: what Python would answer otherwise is refused when the plan is made."""

import datetime as dt
import decimal
import enum
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypedDict

import pytest

from makegood.declare.outcomes import NOTHING
from makegood.errors import PromiseError
from makegood.workflow.annotation_paths import variously_written
from makegood.workflow.app import App
from makegood.workflow.promise import all_of, not_
from makegood.workflow.verbs import when


@dataclass
class Quote:
    """With an amount, a text, and more of its kind."""

    amount: decimal.Decimal
    state: str
    better: "Quote | None" = None


@dataclass
class Plain:
    """Nothing in it is written in more than one way."""

    state: str
    more: "Plain | None" = None


class Stamped(TypedDict):
    at: dt.datetime


class Colour(enum.Enum):
    RED = "red"


def planned(annotation: Any, condition: Callable[[Any], Any]) -> object:
    """Return the plan of a workflow that decides on the result of an action that returns this."""
    app = App("shop")
    desk = app.agent("desk")

    def give():  # type: ignore[no-untyped-def]
        return None

    give.__annotations__ = {"return": annotation}
    action: Any = desk.action(complete_within=1, undo=NOTHING)(give)
    flow = app.workflow(name="run")(lambda: when(condition(action()), then=action))
    return flow.plan()


@pytest.mark.parametrize(
    ("annotation", "condition", "names"),
    [
        (decimal.Decimal, lambda p: p == decimal.Decimal(0), "Decimal"),
        (decimal.Decimal, lambda p: p != 0, "Decimal"),
        (decimal.Decimal | None, lambda p: not_(p == 0), "Decimal"),
        (Any, lambda p: p == decimal.Decimal(0), "Decimal"),
        (Quote, lambda p: p.amount == 1, "Decimal"),
        (Quote, lambda p: all_of(p.state == "open", p == Quote(decimal.Decimal(1), "open")), "Decimal"),
        (dict[str, Annotated[list[dt.datetime], "times"]], lambda p: p["a"] == [], "datetime"),
        (Stamped, lambda p: p["at"] == dt.datetime(2026, 1, 2, tzinfo=dt.UTC), "datetime"),
        (str, lambda p: p == dt.time(12), "time"),
        (set[str], lambda p: p == {"a"}, "set"),
        (frozenset, lambda p: p == frozenset(), "frozenset"),
    ],
)  # fmt: skip
def test_a_comparison_whose_answer_hangs_on_how_a_value_is_written_is_refused(
    annotation: Any, condition: Callable[[Any], Any], names: str
) -> None:
    with pytest.raises(
        PromiseError, match=rf"equal values of {names} may have different ones: compare in an action"
    ):
        planned(annotation, condition)


@pytest.mark.parametrize(
    ("annotation", "condition"),
    [
        (decimal.Decimal | None, lambda p: p == None),  # noqa: E711 - a promise is never `is` None
        (Quote, lambda p: p.better != None),  # noqa: E711 - as above
        (Quote, lambda p: p.state == "open"), (Plain, lambda p: p == Plain("open")), (float, lambda p: p == 1), (bool, lambda p: p),
        (dt.date, lambda p: p == dt.date(2026, 1, 2)), (dt.timedelta, lambda p: p == dt.timedelta(1)), (bytes, lambda p: p == b"a"),
        (Colour, lambda p: p == Colour.RED), (uuid.UUID, lambda p: p == uuid.UUID(int=1)), (Literal["a", "b"], lambda p: p == "a"),
        (list[int], lambda p: p == [1]), (tuple[int, str], lambda p: p == (1, "a")), (Any, lambda p: p == "a"),
    ],
)  # fmt: skip
def test_others_may_be_compared(annotation: Any, condition: Callable[[Any], Any]) -> None:
    """Among them None with anything."""
    assert planned(annotation, condition)


def test_a_class_that_holds_its_own_kind_is_looked_through_once() -> None:
    assert variously_written(Plain) is None
    assert variously_written(list[Quote]) is decimal.Decimal
