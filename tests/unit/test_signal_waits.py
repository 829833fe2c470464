"""What ``app.signal`` and ``mg.wait_for`` declare and record, and what of it is refused, with which remedy."""

# ruff: noqa: ARG005, PLW0108 - workflow functions are lambdas with parameters in common here

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import pytest

from makegood.declare.call import _CALL
from makegood.declare.outcomes import NOTHING
from makegood.errors import DefinitionError, DuplicateNameError, PromiseError
from makegood.model.plan import Plan, StepPlan, Template
from makegood.workflow.app import App
from makegood.workflow.signal_waits import wait_for
from makegood.workflow.verbs import branches, each, parallel, when

shop = App("shop")
desk = shop.agent("desk")


@dataclass
class Approval:
    yes: bool
    note: str = ""


approval = shop.signal("approval", Approval)


@desk.action(complete_within="20s", undo=NOTHING)
def ask(trip: str) -> list[str]:
    return [trip]


@desk.action(complete_within="20s", undo=NOTHING)
def pay(trip: str, *, yes: bool) -> str:
    return trip


def plan(fn: Callable[[str], Any], **options: Any) -> Plan[Any]:
    """Return the plan of a workflow function for one input."""
    fn.__name__ = "travel"
    app = App("shop")
    app._registry = shop._registry
    return app.workflow(**options)(fn).plan("rome")


def step(name: str, fn: Callable[[str], Any]) -> StepPlan:
    """Return a step of a plan by its name."""
    return next(each for each in plan(fn).steps if each.name == name)


def test_a_wait_is_a_step_with_the_name_of_its_signal() -> None:
    def travel(trip: str) -> str:
        ask(trip)
        answer = wait_for(approval, timeout="7d")
        wait_for(approval)
        return pay(trip, yes=answer.yes)

    steps = plan(travel).steps
    assert [(s.name, s.kind, s.action) for s in steps[1:3]] == [
        ("approval", "wait_for", "approval"),
        ("approval-2", "wait_for", "approval"),
    ]
    assert steps[1].args == Template(("604800.0",))
    assert steps[2].args is None
    assert steps[1].after == (0,)
    assert steps[3].args is not None
    assert steps[3].args.refs[-1].path == ("yes",)


def test_otherwise_is_a_value_or_a_promise_and_gives_the_type_of_both() -> None:
    value = step("approval", lambda trip: wait_for(approval, timeout=60, otherwise=Approval(yes=False)))
    assert value.sides == (Template(('{"yes":false,"note":""}',)),)
    assert step("approval", lambda trip: wait_for(approval, timeout=60, otherwise=None)).sides == (
        Template(("null",)),
    )

    def promised(trip: str) -> Any:
        parts = ask(trip)
        return wait_for("part", str, timeout=60, otherwise=parts[0])

    (side,) = step("part", promised).sides
    assert side.refs[0].index == 0
    assert side.refs[0].path == (0,)


def test_a_plan_names_its_signals_with_their_schemas_those_in_bodies_too() -> None:
    def travel(trip: str) -> Any:
        when(wait_for("go", bool), then=lambda: wait_for(shop.signal("how", Literal["bus", "train"])))
        return each(ask(trip), lambda part: wait_for(approval))

    signals = dict(plan(travel).signals)
    assert list(signals) == ["go", "how", "approval"]
    assert msgspec.json.decode(signals["go"]) == {"type": "boolean"}
    assert msgspec.json.decode(signals["how"]) == {"enum": ["bus", "train"]}
    assert '"note"' in signals["approval"]
    assert plan(lambda trip: ask(trip)).signals == ()


def test_waits_stand_side_by_side_and_in_branches() -> None:
    def travel(trip: str) -> Any:
        one, two = parallel(wait_for("one", int), wait_for("two", int))
        branches(lambda: wait_for("three", int), lambda: ask(trip))
        return [one, two]

    after = {each.name: each.after for each in plan(travel).steps}
    assert after == {"one": (), "two": (), "three": (0, 1), "ask": (0, 1)}


def test_people_read_what_a_step_waits_for() -> None:
    text = str(plan(lambda trip: wait_for(approval, timeout="7d")))
    assert "(waits for approval, 7d)" in text


@pytest.mark.parametrize(
    ("fn", "text"),
    [
        (lambda trip: wait_for(approval, otherwise=None), "without timeout= the wait never ends"),  # type: ignore[call-overload]
        (lambda trip: wait_for(approval, timeout="7"), 'has no unit: write "7s"'),
        (lambda trip: wait_for(approval, timeout=-1), "is negative"),
        (lambda trip: wait_for(approval, timeout="4000d"), "longer than ten years"),
        (lambda trip: wait_for(approval, timeout=ask(trip)), "known when the task is submitted"),  # type: ignore[call-overload]
        (lambda trip: wait_for("approval"), "or a name and a type"),  # type: ignore[call-overload]
        (lambda trip: wait_for(approval, Approval), "leave out the second argument"),  # type: ignore[call-overload]
        (lambda trip: wait_for("a b", int), "not allowed"),
        (lambda trip: wait_for("approval", int), "a signal has one type"),
        (lambda trip: wait_for(App("bank").signal("yes", bool)), "declare the signal on shop"),
    ],
)  # fmt: skip
def test_a_wait_that_makes_no_sense_is_refused_with_the_remedy(fn: Any, text: str) -> None:
    with pytest.raises(DefinitionError, match=text):
        plan(fn)


def test_a_timeout_that_the_deadline_always_cuts_off_is_refused() -> None:
    with pytest.raises(
        DefinitionError, match=r"waits for up to 7d, and complete_within='2h' ends the task before"
    ):
        plan(lambda trip: wait_for(approval, timeout="7d"), complete_within="2h")
    plan(lambda trip: wait_for(approval, timeout="1h"), complete_within="2h")
    plan(lambda trip: wait_for(approval), complete_within="2h")
    plan(
        lambda trip: when(wait_for("go", bool), then=lambda: wait_for(approval, timeout="7d")),
        complete_within="2h",
    )


def test_a_wait_is_refused_where_no_plan_is_made() -> None:
    with pytest.raises(DefinitionError, match="no plan is being built here"):
        wait_for(approval)
    token = _CALL.set(object())  # type: ignore[arg-type]  # as in an action
    try:
        with pytest.raises(DefinitionError, match="an action keeps a slot for as long as it runs"):
            wait_for(approval)
    finally:
        _CALL.reset(token)


def test_a_signal_has_one_type_in_an_app() -> None:
    app = App("bank")
    first = app.signal("yes", bool)
    assert app.signal("yes", bool) is first
    assert app.signals == {"yes": first}
    with pytest.raises(DuplicateNameError, match="of bool, and here it is of int"):
        app.signal("yes", int)
    with pytest.raises(DefinitionError, match="not allowed"):
        app.signal("", int)
    with pytest.raises(DefinitionError):
        app.signal("socket", object())


def test_a_question_about_the_promise_of_a_wait_is_found_in_the_source() -> None:
    def travel(trip: str) -> str:
        answer = wait_for(approval)
        if answer is None:
            return ""
        return pay(trip, yes=True)

    with pytest.raises(PromiseError, match="answer is None asks about a promise"):
        plan(travel)
