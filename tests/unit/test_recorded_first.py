"""What ``mg.first`` and ``mg.done`` record, what of it is refused, and which promises leave their branch."""

# ruff: noqa: ARG005 - workflow functions are lambdas with parameters in common here
# mypy: disable-error-code="func-returns-value,arg-type,call-overload"

from collections.abc import Callable
from typing import Any

import pytest

from makegood.declare.outcomes import NOTHING
from makegood.errors import DefinitionError, MakegoodError, PayloadError, PromiseError
from makegood.model.plan import Ref, StepPlan, Template, inside
from makegood.workflow.app import App
from makegood.workflow.verbs import branches, done, each, first, parallel, sleep, when

shop = App("shop")
desk = shop.agent("desk")


@desk.action(complete_within="20s", undo=NOTHING)
def load(order: str) -> str:
    return order


@desk.action(complete_within="20s")
def ups(order: str) -> str:
    return order


@desk.action(complete_within="20s")
def dhl(order: str) -> str:
    return order


@desk.action(complete_within="20s", undo=NOTHING)
def weigh(order: str) -> int:
    return len(order)


@desk.action(complete_within="20s", undo=NOTHING)
def lines(order: str) -> list[str]:
    return [order]


@desk.action(complete_within="20s", no_return=True)
def send(order: str) -> str:
    return order


@ups.undo
def ups_back(order: str, *, result: str | None) -> None: ...


@dhl.undo
def dhl_back(order: str, *, result: str | None) -> None: ...


def planned(fn: Callable[..., Any]) -> tuple[StepPlan, ...]:
    """Return the steps of a workflow function's plan for one order."""
    return shop.workflow(name=f"w{len(shop.workflows)}")(fn).plan("o").steps


def whole(index: int) -> Template:
    return Template(("", ""), (Ref("step", index),))


def order_of(steps: tuple[StepPlan, ...]) -> list[tuple[str, tuple[int, ...]]]:
    return [(step.name, step.after) for step in steps]


# -- first -------------------------------------------------------------------------------------------------------------


def test_steps_in_its_parentheses_are_branches() -> None:
    """They do not wait for each other; the step that decides comes after all, and has the value of each."""

    def flow(order: str) -> int:
        load(order)
        return weigh(first(ups(order), dhl(order)))

    steps = planned(flow)
    assert order_of(steps) == [
        ("load", ()),
        ("ups", (0,)),
        ("dhl", (0,)),
        ("first", (1, 2)),
        ("weigh", (3,)),
    ]
    assert (steps[3].branches, steps[3].sides) == ((1, 2), (whole(1), whole(2)))
    assert steps[4].args == Template(('{"order":', "}"), (Ref("step", 3),))


def test_functions_are_branches_of_several_steps() -> None:
    """Each records a sequence; what it returns is its value."""

    def later(order: str) -> str:
        sleep("3d")
        return ups(order)

    def flow(order: str) -> str:
        return first(lambda: dhl(load(order)), lambda: later(order))

    steps = planned(flow)
    assert order_of(steps) == [
        ("load", ()),
        ("dhl", (0,)),
        ("sleep", ()),
        ("ups", (2,)),
        ("first", (1, 3)),
    ]
    assert (steps[4].branches, steps[4].sides) == ((0, 2), (whole(1), whole(3)))


def test_a_step_that_another_one_needs_is_in_its_branch() -> None:
    """Except that of the first one, which comes before all, as in mg.parallel."""
    steps = planned(lambda order: first(ups(load(order)), dhl(load(order))))
    assert order_of(steps) == [
        ("load", ()),
        ("ups", (0,)),
        ("load-2", (0,)),
        ("dhl", (2,)),
        ("first", (1, 3)),
    ]
    assert steps[4].branches == (1, 2)


def test_one_branch_is_a_race_too() -> None:
    """The carriers may be a list that is known when the task is submitted."""
    carriers = [ups]
    assert planned(lambda order: first(*[carrier(order) for carrier in carriers]))[1].branches == (0,)


def test_a_first_within_a_body_a_side_and_another_one() -> None:
    """Indices are those of the body; guards are those of the side."""
    (_, each_, _) = planned(lambda order: each(lines(order), lambda line: first(ups(line), dhl(line))))
    inner = each_.body[2]
    assert (inner.after, inner.branches) == ((inside(0), inside(1)), (inside(0), inside(1)))
    steps = planned(
        lambda order: when(load(order) == "x", then=lambda: first(ups(order), dhl(order)), otherwise=None)
    )
    assert (steps[4].kind, steps[4].guards) == ("first", ((1, True),))
    steps = planned(lambda order: first(lambda: first(ups(order), dhl(order)), lambda: load(order)))
    assert [(step.name, step.branches) for step in steps if step.branches] == [
        ("first", (0, 1)),
        ("first-2", (0, 3)),
    ]


def test_a_wait_may_be_a_branch() -> None:
    """The first of an answer and a while."""
    steps = planned(lambda order: first(sleep("3d"), load(order)))
    assert [step.kind for step in steps] == ["sleep", "action", "first"]


@pytest.mark.parametrize(
    ("fn", "error", "text"),
    [
        (lambda order: first(), DefinitionError, "has no branch"),
        (
            lambda order: first(ups(order), lambda: dhl(order)),
            DefinitionError,
            "steps or functions, not both",
        ),
        (lambda order: first(ups(order), "known"), PromiseError, "known now"),
        (
            lambda order: first([ups(order), dhl(order)]),
            PromiseError,
            r"mg\.first takes steps, mg\.first\(a\(\.\.\.\), b\(\.\.\.\)\).* write mg\.first\(lambda: \.\.\., lambda",
        ),
        (lambda order: first(lambda: ups(order), lambda: "known"), DefinitionError, "branch 2 .* has no step"),
        (lambda order: first(ups(order), send(order)), DefinitionError, "no_return=True"),
        (
            lambda order: first(
                lambda: ups(order),
                lambda: each(lines(order), lambda line: first(lambda: [send(line), dhl(line)][1])),
            ),
            DefinitionError,
            "no_return=True",
        ),
        (
            lambda order: [one := ups(order), load(order), first(one, dhl(order))],
            PromiseError,
            r"mg\.first: load was recorded between its steps",
        ),
        (
            lambda order: [one := ups(order), first(one, dhl(order)), load(one)],
            PromiseError,
            r"ups was made in branch 1 of mg\.first, and promises do not leave their branch",
        ),
        (
            lambda order: [promises := [], first(lambda: [promises.append(load(order)), ups(order)][1]), dhl(promises[0])],
            PromiseError,
            r"branch 1 of mg\.first",
        ),
    ],
)  # fmt: skip
def test_what_makes_no_race_is_refused(fn: Any, error: type[MakegoodError], text: str) -> None:
    """With the remedy."""
    with pytest.raises(error, match=text):
        planned(fn)


# -- done --------------------------------------------------------------------------------------------------------------


def test_done_is_a_step_of_a_side() -> None:
    """With the result; the when has the value of the other side."""

    def flow(order: str) -> int:
        parcel = when(load(order) == "x", then=lambda: done(weigh(order)), otherwise=lambda: load(order))
        return weigh(parcel)

    steps = planned(flow)
    assert [step.kind for step in steps] == ["action", "when", "action", "done", "action", "merge", "action"]
    assert (steps[3].args, steps[3].guards) == (whole(2), ((1, True),))


@pytest.mark.parametrize(
    ("fn", "error", "text"),
    [
        (lambda order: done(1), DefinitionError, "ends every task: put it in a side of mg.when"),
        (
            lambda order: first(
                ups(order), lambda: when(load(order) == "x", then=lambda: done(1), otherwise=None)
            ),
            DefinitionError,
            "steps or functions",
        ),
        (
            lambda order: first(
                lambda: ups(order), lambda: when(load(order) == "x", then=lambda: done("a"), otherwise=None)
            ),
            DefinitionError,
            "return the value from its branch",
        ),
        (
            lambda order: first(
                ups(order), when(load(order) == "x", then=lambda: done("a"), otherwise=None)
            ),
            DefinitionError,
            "return the value from its branch",
        ),
    ],
)  # fmt: skip
def test_done_where_it_makes_no_sense_is_refused(fn: Any, error: type[MakegoodError], text: str) -> None:
    """With the remedy."""
    with pytest.raises(error, match=text):
        planned(fn)


@pytest.mark.parametrize("value", ["text", weigh, None])
def test_done_gives_what_the_workflow_returns(value: Any) -> None:
    """A value that the workflow does not return is refused when the task is planned."""

    def flow(order: str) -> list[str]:
        result = value(order) if value is weigh else value
        when(load(order) == "x", then=lambda: done(result), otherwise=None)
        return lines(order)

    with pytest.raises(PayloadError, match=r"the result of mg\.done in shop\.w"):
        planned(flow)


# -- promises that leave branches which always run ---------------------------------------------------------------------


def test_promises_of_branches_may_be_used_after_them() -> None:
    """Those steps wait for all branches; nested ones, and lists that are known, are the same."""

    def flow(order: str) -> int:
        promises: list[Any] = []
        branches(
            lambda: promises.append(ups(order)),
            lambda: branches(lambda: promises.append(dhl(order)), lambda: load(order)),
        )
        each([1, 2], lambda n: promises.append(load(order)))
        return weigh(first(*[ups(one) for one in promises]))

    steps = planned(flow)
    assert [step.args for step in steps if step.name.startswith("ups-")] == [
        Template(('{"order":', "}"), (Ref("step", n),)) for n in (0, 1, 3, 4)
    ]


@pytest.mark.parametrize(
    "fn",
    [
        lambda order, keep: branches(lambda: keep.append(ups(order)), lambda: load(keep[0])),
        lambda order, keep: [
            when(load(order) == "x", then=lambda: branches(lambda: keep.append(ups(order)), lambda: load(order))),
            load(keep[0]),
        ],
        lambda order, keep: [each(lines(order), lambda line: keep.append(ups(line))), load(keep[0])],
        lambda order, keep: [
            first(lambda: branches(lambda: keep.append(ups(order)), lambda: load(order))[1]), load(keep[0])
        ],
    ],
)  # fmt: skip
def test_promises_of_what_may_not_run_stay_there(fn: Any) -> None:
    """In a sibling that runs at the same time, after a side, a body, or a branch that may lose."""
    with pytest.raises(PromiseError, match="promises do not leave their branch"):
        planned(lambda order: fn(order, []))


def test_parallel_says_parallel() -> None:
    """Its messages have its own name."""
    with pytest.raises(PromiseError, match=r"mg\.parallel: load was recorded between its steps"):
        planned(lambda order: [one := ups(order), load(order), parallel(one, dhl(order))])
