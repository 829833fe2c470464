"""What is written in a workflow function, and what its actions take when they are given nothing, is part of its trail."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from makegood.declare.outcomes import NOTHING
from makegood.errors import PayloadError
from makegood.model.plan import Plan
from makegood.workflow.app import App
from makegood.workflow.recorder import Recording
from makegood.workflow.workflow import Workflow

CARRIER = "parcel service"
WORDS: list[Any] = ["express", 1, True, None, 2.5, 300]


class Shop:
    """An app with a workflow that passes on inputs, constants of every kind, and nothing."""

    def __init__(self) -> None:
        desk = App("shop").agent("desk")
        self.rates = {"now": 3}

        @desk.action(complete_within="20s", undo=NOTHING)
        def send(what: Any, how: Any = "slowly", *, by: Any = None) -> str:
            return f"{what} {how} {by}"

        def run(order: Any, other: Any) -> Any:
            first = send(order, "express", by=CARRIER)
            send(first, 1, by=True)
            send(None, other)
            send(by=2.5, what=300)
            return send(first)

        def derived(order: Any, other: Any) -> Any:
            return send(order["id"], send(other, self.rates["now"]))

        self.workflow: Workflow[..., Any] = desk_workflow(desk, run)
        self.derived: Workflow[..., Any] = desk_workflow(desk, derived)


def desk_workflow(desk: Any, fn: Any) -> Workflow[..., Any]:
    return Workflow(
        fn, desk.registry, name=fn.__name__, formerly=(), within=None, undo_within=None, on_failure="undo"
    )


def lived(plan: Plan[Any]) -> Any:
    """Return what a store would keep of a plan."""
    return plan.steps, plan.inputs, plan.returns, plan.fingerprint


def arguments(plan: Plan[Any], step: int) -> str:
    """Return what is written down of a step's arguments."""
    args = plan.steps[step].args
    assert args is not None
    return "".join(args.parts)


@pytest.fixture
def recording(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The steps that were recorded instead of followed."""
    names: list[str] = []
    action = Recording.action

    def noting(self: Recording, action_: Any, args: Any, kwargs: Any) -> Any:
        names.append(action_.name)
        return action(self, action_, args, kwargs)

    monkeypatch.setattr(Recording, "action", noting)
    return names


def test_a_plan_with_constants_and_defaults_is_followed(recording: list[str]) -> None:
    """Literals, a name of the module, what an action takes by default, by position and by name."""
    shop = Shop()
    first = shop.workflow.plan("o7", 30)
    assert len(recording) == 5
    again = shop.workflow.plan("o8", 31)
    assert len(recording) == 5, "nothing was recorded anew"
    assert again.steps is first.steps
    assert arguments(first, 0) == '{"what":,"how":"express","by":"parcel service"}'
    assert arguments(first, 3) == '{"what":300,"how":"slowly","by":2.5}'


PAIRS = st.lists(
    st.sampled_from([*WORDS, CARRIER, "o7"]), min_size=2, max_size=2, unique_by=id
)  # one given twice may be either


@given(st.lists(PAIRS, min_size=2, max_size=5))
def test_inputs_that_are_constants_too_make_the_plan_that_they_make_alone(inputs: list[list[Any]]) -> None:
    """The very object: then the step is given the input, on a trail and without one."""
    shop = Shop()
    for values in inputs:
        assert lived(shop.workflow.plan(*values)) == lived(Shop().workflow.plan(*values))


def test_a_constant_that_is_another_one_by_now_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop()
    shop.workflow.plan("o7", 30)
    monkeypatch.setitem(globals(), "CARRIER", "bicycle")
    assert "bicycle" in arguments(shop.workflow.plan("o8", 31), 0)
    assert lived(shop.workflow.plan("o9", 31)) == lived(Shop().workflow.plan("o9", 31))


def test_what_was_taken_out_of_an_input_or_found_elsewhere_makes_no_trail() -> None:
    """It is another value each time. (Of the last plan alone the steps are kept, for the next one to share them if it is alike.)"""
    shop = Shop()
    for n in range(3):
        plan = shop.derived.plan({"id": f"a secret {n}"}, 30)
        assert f"a secret {n}" in str(plan.steps)
        fresh = Shop()
        fresh.rates |= shop.rates
        assert lived(plan) == lived(fresh.derived.plan({"id": f"a secret {n}"}, 30))
        shop.rates["now"] += 300
    assert [trail.calls for trail in shop.derived._trails.values()] == [()]


def test_a_default_is_no_input_even_if_it_is_the_same_object() -> None:
    """The first order's flag is the very False that the action takes by default; the second order's must not take its place."""
    desk = App("shop").agent("desk")
    tags = ["new"]

    @desk.action(complete_within="20s", undo=NOTHING)
    def send(order: str, express: bool = False, how: str = "slowly", tags: list[str] = tags) -> str:
        return order

    def run(order: str, gift: bool, how: str, tags_: list[str]) -> Any:
        return send(order)

    workflow = desk_workflow(desk, run)
    arguments_ = '{"order":,"express":false,"how":"slowly","tags":["new"]}'
    assert arguments(workflow.plan("o1", False, "slowly", tags), 0) == arguments_
    assert arguments(workflow.plan("o2", True, "quickly", ["old"]), 0) == arguments_
    assert arguments(workflow.plan("o3", False, "slowly", tags), 0) == arguments_


def test_a_default_that_can_be_changed_is_looked_at_each_time() -> None:
    """Nobody should, but a list can be appended to."""
    desk = App("shop").agent("desk")
    tags = ["new"]

    @desk.action(complete_within="20s", undo=NOTHING)
    def send(what: str, tags: list[str] = tags) -> str:
        return what

    def run(order: str) -> Any:
        return send(order)

    workflow = desk_workflow(desk, run)
    workflow.plan("o7")
    tags.append("late")
    assert "late" in arguments(workflow.plan("o8"), 0)


@pytest.mark.parametrize("constant", ["far too long " * 30, float("nan")])
def test_a_constant_that_cannot_be_kept_is_refused_each_time(
    constant: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It makes no trail that would let it pass."""
    desk = App("shop", payload_limit=200).agent("desk")

    @desk.action(complete_within="20s", undo=NOTHING)
    def send(what: Any) -> str:
        return str(what)

    def run(order: str) -> Any:
        send(order)
        return send(CARRIER)

    monkeypatch.setitem(globals(), "CARRIER", constant)
    workflow = desk_workflow(desk, run)
    for n in range(3):
        with pytest.raises(PayloadError, match="send-2"):
            workflow.plan(f"o{n}")
