"""A step whose longest key is longer than its service takes is refused when its plan is made, wherever its name comes from."""

from collections.abc import Callable
from typing import Any

import pytest

from makegood.base.service_keys import MOST_STEPS
from makegood.declare.outcomes import NOTHING
from makegood.errors import DefinitionError
from makegood.workflow.app import App
from makegood.workflow.verbs import each, parallel, when

LIMIT = 44
"""The key of the undo of a step of six letters just fits."""


def plan(body: Callable[..., object], **options: Any) -> Any:
    """Return the plan of a workflow that is given three actions: with an undo, without one, and one that returns a list."""
    app = App("shop")
    desk = app.agent("desk")
    options = {"key_limit": LIMIT, **options}

    @desk.action(complete_within="20s", **options)
    def charge(order: str) -> str:
        return order

    @charge.undo
    def refund(order: str, *, result: str | None) -> None: ...

    @desk.action(complete_within="20s", undo=NOTHING, **options)
    def tell(order: str) -> bool:
        return bool(order)

    @desk.action(complete_within="20s", undo=NOTHING)
    def lines(order: str) -> list[str]:
        return [order]

    @app.workflow
    def buy(order: str) -> None:
        body(order, charge, tell, lines)

    return buy.plan("o1")


def once(order: str, charge: Any, tell: Any, lines: Any) -> None:
    charge(order)


def twice(order: str, charge: Any, tell: Any, lines: Any) -> None:
    charge(order)
    charge(order)


def side_by_side(order: str, charge: Any, tell: Any, lines: Any) -> None:
    parallel(charge(order), charge(order))


def of_items(order: str, charge: Any, tell: Any, lines: Any) -> None:
    each(lines(order), charge)


def of_few_items(order: str, charge: Any, tell: Any, lines: Any) -> None:
    each(lines(order), tell, limit=100)


def of_items_of_items(order: str, charge: Any, tell: Any, lines: Any) -> None:
    each(lines(order), lambda line: each(lines(line), tell, limit=10), limit=10)


def of_a_side(order: str, charge: Any, tell: Any, lines: Any) -> None:
    charge(order)
    when(tell(order), then=lambda: charge(order))


REFUSED = [
    (twice, "step charge-2 may get a key of 46 characters"),
    (side_by_side, "step charge-2 may get a key of 46 characters"),
    (of_items, r"step charge\[999\] may get a key of 49 characters"),
    (of_items_of_items, r"step tell\[9\]\[9\] may get a key of 46 characters"),
    (of_a_side, "step charge-2 may get a key of 46 characters"),
]


@pytest.mark.parametrize(("body", "pattern"), REFUSED)
def test_a_name_that_makes_the_key_too_long_is_refused_with_the_remedy(body: Any, pattern: str) -> None:
    with pytest.raises(
        DefinitionError, match=rf'{pattern}, and the service of desk\.\w+ takes 44: .*key="uuid"'
    ):
        plan(body)


@pytest.mark.parametrize("body", [body for body, _ in REFUSED])
def test_with_a_form_or_room_enough_no_name_is_too_long(body: Any) -> None:
    assert plan(body, key="uuid").steps
    assert plan(body, key_limit=50).steps


def test_a_name_that_just_fits_is_taken() -> None:
    assert plan(once).steps
    assert plan(of_few_items).steps, "tell[99] has no undo, and just fits"


def test_a_task_has_no_more_steps_than_a_key_can_tell() -> None:
    App("shop", step_limit=MOST_STEPS)
    with pytest.raises(DefinitionError, match="a task has at most 1,048,576 steps"):
        App("shop", step_limit=MOST_STEPS + 1)
