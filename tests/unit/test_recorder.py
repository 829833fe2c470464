"""What calls of actions, parallel, branches, when and each record, and what of it is refused, with which remedy."""

# ruff: noqa: ARG005, PLW0108 - workflow functions are lambdas with parameters in common here
# mypy: disable-error-code="call-overload,call-arg,func-returns-value"

from dataclasses import dataclass, field
from typing import Any

import pytest

from makegood.base.sizes import PAYLOAD_LIMIT
from makegood.declare.outcomes import NOTHING
from makegood.errors import (
    DefinitionError,
    PayloadError,
    PromiseError,
)
from makegood.model.plan import Condition, Ref, StepPlan, Template
from makegood.model.policy import Policy
from makegood.payload.splice import PLAN_PAYLOADS
from makegood.workflow.app import App
from makegood.workflow.promise import all_of, any_of, not_
from makegood.workflow.step_drafts import StepDraft, step_plan
from makegood.workflow.verbs import branches, done, each, parallel, when
from makegood.workflow.workflow import Workflow

shop = App("shop")
desk = shop.agent("desk")


@dataclass
class Order:
    id: str
    cents: int = 1
    gift: bool = False
    tags: dict[str, int] = field(default_factory=dict)


@dataclass
class Parcel:
    no: str
    weight: int


@desk.action(complete_within="20s", undo=NOTHING)
async def reserve(order: Order) -> str:
    return order.id


@desk.action(complete_within="30s")
def charge(order: Order, hold: str, *, note: str = "") -> str:
    return hold


@charge.undo
def refund(order: Order, *, result: str | None) -> None: ...


@desk.action(complete_within="1m", no_return=True)
def ship(order: Order, hold: str) -> Parcel:
    return Parcel(hold, 1)


@desk.action(complete_within="1m", undo=NOTHING)
def email(order: Order, text: Any) -> None: ...


@desk.action(complete_within="1m")
def careless(order: Order) -> str:
    return ""


ORDER = Order("o-1")
POLICY = Policy(within=20.0, undoable=False, undo_within=20.0)


def workflow(fn: Any, **options: Any) -> Workflow[..., Any]:
    """Declare a workflow of the shop without keeping its name."""
    app = App("shop")
    app._registry = shop._registry
    flow: Workflow[..., Any] = app.workflow(name="order", **options)(fn)
    return flow


def steps(fn: Any, *inputs: Any) -> tuple[StepPlan, ...]:
    return workflow(fn).plan(*(inputs or (ORDER,))).steps


@desk.action(complete_within="1m", undo=NOTHING)
def parts(order: Order) -> list[Parcel]:
    return []


def small(**limits: Any) -> tuple[App, Any]:
    app = App("small", **limits)
    act = app.agent("a").action(complete_within=1, undo=NOTHING, name="act")(lambda value: value)
    return app, act


# -- control -------------------------------------------------------------------------------------------------------------------


def afters(fn: Any, *inputs: Any) -> dict[str, set[str]]:
    """Return, for each step, the names of those it waits for."""
    plans = steps(fn, *inputs)
    names = {s.idx: s.name for s in plans}
    return {s.name: {names[i] for i in s.after} for s in plans}


def test_parallel_puts_steps_side_by_side_with_what_only_they_need() -> None:
    def order(order: Order) -> None:
        reserve(order)
        parallel(email(order, "x"), ship(order, charge(order, reserve(order))))
        email(order, "end")

    assert afters(order) == {
        "reserve": set(), "email": {"reserve"}, "reserve-2": {"reserve"}, "charge": {"reserve-2"}, "ship": {"charge"},
        "email-2": {"email", "ship"},
    }  # fmt: skip


def test_what_the_first_of_parallel_needs_comes_before_all() -> None:
    def order(order: Order) -> None:
        hold = reserve(order)
        parallel(charge(order, hold), email(order, hold))

    assert afters(order) == {"reserve": set(), "charge": {"reserve"}, "email": {"reserve"}}


def test_parallel_takes_decisions_and_lists_as_a_whole() -> None:
    def order(order: Order) -> None:
        hold = reserve(order)
        parallel(
            when(hold == "x", then=lambda: charge(order, hold)),
            each([1, 2], lambda n: email(order, n))[0],
            email(order, "z"),
        )

    with pytest.raises(PromiseError, match="was not just recorded"):
        afters(order)

    def better(order: Order) -> None:
        hold = reserve(order)
        parallel(when(hold == "x", then=lambda: charge(order, hold)), email(order, "z"), None, "known")
        email(order, "end")

    assert afters(better) == {
        "reserve": set(), "when": {"reserve"}, "charge": {"when"}, "merge": {"charge"}, "email": {"reserve"},
        "email-2": {"merge", "email"},
    }  # fmt: skip


def test_parallel_within_parallel_needs_branches() -> None:
    def order(order: Order) -> None:
        branches(lambda: parallel(email(order, 1), email(order, 2)), lambda: charge(order, reserve(order)))
        email(order, 3)

    assert afters(order) == {
        "email": set(), "email-2": set(), "reserve": set(), "charge": {"reserve"}, "email-3": {"email", "email-2", "charge"},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("fn", "pattern"),
    [
        (lambda o, a, b: (email(o, 1), parallel(a, b)), "with no step after them"),
        (lambda o, a, b: parallel(b, a), "in the order in which they were recorded"),
        (lambda o, a, b: parallel(b, b), "each once"),
        (lambda o, a, b: parallel(b, charge(o, b)), "charge uses the result of another of its steps"),
        (lambda o, a, b: parallel(b, email(o, 1), charge(o, b)), "charge uses the result of another"),
        (
            lambda o, a, b: parallel(email(o, 1), (reserve(o), email(o, 2))[1]),
            "reserve-3 was recorded between its steps",
        ),
        (lambda o, a, b: parallel(parallel(a, b), email(o, 1)), r"write mg\.branches"),
        (lambda o, a, b: parallel(lambda: a, lambda: b), r"write mg\.branches"),
        (lambda o, a, b: parallel([a], b), r"write mg\.branches"),
        (
            lambda o, a, b: when(a == "x", then=lambda: parallel(a, email(o, 1))),
            "reserve was not just recorded in this sequence",
        ),
        (
            lambda o, a, b: branches(a, b),
            r"mg\.branches\(fn, fn, \.\.\.\) takes functions, not a promise: write lambda:",
        ),
        (lambda o, a, b: branches(a == "x"), "takes functions, not PromiseCondition"),
        (lambda o, a, b: when(a == "x", then=b), r"mg\.when.* takes functions, not a promise"),
        (lambda o, a, b: when(a == "x", then=lambda: 1, otherwise=3), "takes functions, not int"),
        (lambda o, a, b: when(a, then=lambda: b), "reserve will be no bool: compare it"),
        (lambda o, a, b: when("x", then=lambda: b), "takes a condition on a promise"),
        (lambda o, a, b: each(a, lambda item: item), r"mg\.each\(reserve, \.\.\.\): it will be no list"),
        (lambda o, a, b: each([1], b), r"mg\.each\(items, body\) takes functions"),
        (
            lambda o, a, b: each([1, 2, 3], lambda n: n, limit=2),
            r"3 items, the limit is 2: raise mg\.each\(limit=\.\.\.\)",
        ),
        (lambda o, a, b: each([1], lambda n: n, limit=0), r"limit=0\): a whole number from 1"),
        (lambda o, a, b: each([1], lambda n: n, at_once=0), "at_once=0"),
        (lambda o, a, b: email(o, a == "x"), "a comparison of promises is not a value.*then=lambda: True"),
        (lambda o, a, b: email(o, [object()]), r"text in step email of shop\.order cannot be kept as JSON"),
        (lambda o, a, b: email(o), r"shop/desk/email\(order: .*: text is missing; there are order, text"),
        (lambda o, a, b: email(o, 1, 2), "it takes 2 parameters by position, not 3"),
        (lambda o, a, b: email(o, text=1, x=3), "there is no parameter 'x'; there are order, text"),
        (
            lambda o, a, b: email(o, txt=1),  # neither hides the other
            r"there is no parameter 'txt' \(did you mean 'text'\?\); text is missing",
        ),
        (
            lambda o, a, b: careless(o),
            r"shop/desk/careless does not declare how it is undone: add @careless\.undo, or undo=mg\.NOTHING",
        ),
        (lambda o, a, b: Parcel(a, 1).no.upper(), "do this in an action"),
        (lambda o, a, b: f"{a}", "made a text"),
    ],
)
def test_misuse_is_refused_with_the_remedy(fn: Any, pattern: str) -> None:
    with pytest.raises((DefinitionError, PayloadError), match=pattern):
        steps(lambda order: fn(order, reserve(order), reserve(order)))


def test_each_action_is_made_good_or_refused_wherever_it_stands() -> None:
    with pytest.raises(DefinitionError, match="does not declare how it is undone"):
        steps(lambda order: when(reserve(order) == "x", then=lambda: careless(order)))


def test_a_body_inside_a_body_counts_its_places_from_the_inside() -> None:
    """What names a step of the same body, and of the body around it, is what the rules read."""
    outer = StepDraft(None, "outer", depth=1, position=2, serial=5)
    inner = StepDraft(None, "inner", depth=2, position=0, serial=6)
    inner.guards = ((StepDraft(None, "when", depth=2, position=4, serial=7), True),)
    outer.body = (inner,)
    assert step_plan(outer) == StepPlan(
        -3, name="outer", body=(StepPlan(-1, name="inner", guards=((-5, True),)),)
    )


def test_branches_return_promises_and_keep_the_others() -> None:
    def order(order: Order) -> Any:
        one, (two, rest), three = branches(
            lambda: charge(order, reserve(order)), lambda: (ship(order, "h"), {"a": 1}), lambda: 3
        )
        assert (rest, three) == ({"a": 1}, 3)
        return email(order, [one, two.no])

    by_name = {s.name: s for s in steps(order)}
    assert by_name["email"].after == (1, 2)
    assert by_name["email"].args is not None
    assert by_name["email"].args.refs[1:] == (Ref("step", 1), Ref("step", 2, ("no",)))


@pytest.mark.parametrize(
    ("hide", "pattern"),
    [
        (lambda o, keep: when(reserve(o) == "x", then=lambda: keep(reserve(o)) and None), "then of when"),
        (
            lambda o, keep: when(
                reserve(o) == "x", then=lambda: 1, otherwise=lambda: keep(reserve(o)) and None
            ),
            "otherwise of when",
        ),
        (lambda o, keep: each(parts(o), keep), "the body of each"),
    ],
)
def test_promises_do_not_leave_a_branch_that_may_not_run(hide: Any, pattern: str) -> None:
    promises: list[Any] = []

    def order(order: Order) -> None:
        hide(order, lambda p: promises.append(p) or True)
        email(order, promises[0])

    with pytest.raises(PromiseError, match=f"was made in .*{pattern}.*return it from there"):
        steps(order)


def test_branches_do_not_use_each_others_promises() -> None:
    promises: list[Any] = []
    with pytest.raises(PromiseError, match="promises do not leave their branch"):
        steps(
            lambda order: branches(lambda: promises.append(reserve(order)), lambda: email(order, promises[0]))
        )


def test_a_promise_of_another_plan_is_refused() -> None:
    promises: list[Any] = []
    steps(lambda order: promises.append(reserve(order)))
    with pytest.raises(PromiseError, match="reserve is a promise of another plan"):
        steps(lambda order: email(order, promises[0]))


def test_when_records_both_sides_and_merges_them() -> None:
    def order(order: Order) -> str:
        hold = reserve(order)
        way = when(
            all_of(hold == "x", any_of(hold != order.id, not_(ship(order, hold).weight == 3))),
            then=lambda: ship(order, "a").no,
            otherwise=lambda: charge(order, hold),
        )
        return charge(order, way)

    by_name = {s.name: s for s in steps(order)}
    choice, merge = by_name["when"], by_name["merge"]
    assert choice.condition is not None
    hold = Template(("", ""), (Ref("step", 0),))
    weight = Template(("", ""), (Ref("step", 1, ("weight",)),))
    three = Condition("not", parts=(Condition("eq", weight, Template(("3",))),))
    different = Condition("any", parts=(Condition("ne", hold, Template(('"o-1"',))), three))
    assert choice.condition == Condition("all", parts=(Condition("eq", hold, Template(('"x"',))), different))
    assert by_name["ship-2"].guards == ((choice.idx, True),)
    assert by_name["charge"].guards == ((choice.idx, False),)
    assert (merge.of, merge.after) == (choice.idx, (by_name["ship-2"].idx, by_name["charge"].idx))
    assert merge.sides == (
        Template(("", ""), (Ref("step", by_name["ship-2"].idx, ("no",)),)), Template(("", ""), (Ref("step", by_name["charge"].idx),)),
    )  # fmt: skip
    assert by_name["charge-2"].after == (merge.idx,)
    assert by_name["charge-2"].guards == ()


def test_when_without_otherwise_and_with_plain_values() -> None:
    merge = steps(lambda order: when(reserve(order) == "x", then=lambda: {"a": 1}))[-1]
    assert (merge.kind, merge.sides, merge.after) == (
        "merge",
        (Template(('{"a":1}',)), Template(("null",))),
        (1,),
    )


def test_a_condition_known_now_decides_now() -> None:
    def order(order: Order) -> str:
        assert when(order.gift, then=lambda: reserve(order)) is None
        return when(not order.gift, then=lambda: reserve(order), otherwise=lambda: charge(order, "h"))

    assert [s.name for s in steps(order)] == ["reserve"]


def test_whens_nest_and_guards_are_outermost_first() -> None:
    def order(order: Order) -> None:
        hold = reserve(order)
        when(hold == "a", then=lambda: when(hold == "b", then=lambda: email(order, 1)))

    by_name = {s.name: s for s in steps(order)}
    assert by_name["email"].guards == ((by_name["when"].idx, True), (by_name["when-2"].idx, True))
    assert by_name["merge"].guards == ((by_name["when"].idx, True),)
    assert by_name["merge-2"].guards == ()


def test_a_merge_may_be_taken_apart_when_both_sides_agree() -> None:
    def order(order: Order) -> None:
        hold = reserve(order)
        both = when(hold == "a", then=lambda: ship(order, "1"), otherwise=lambda: ship(order, "2"))
        one = when(hold == "b", then=lambda: ship(order, "3"))
        email(order, [both.no, one.no])  # type: ignore[union-attr]
        with pytest.raises(PromiseError, match="Parcel has no field nope"):
            print(both.nope)  # type: ignore[attr-defined]

    steps(order)


# -- each ----------------------------------------------------------------------------------------------------------------------


def test_each_keeps_its_body_as_a_template() -> None:
    def order(order: Order) -> Any:
        hold = reserve(order)
        return each(parts(order), lambda p: charge(order, ship(Order(p.no), hold).no), limit=7, at_once=2)

    plan = workflow(order).plan(ORDER)
    by_name = {s.name: s for s in plan.steps}
    loop, gather = by_name["each"], by_name["gather"]
    assert (loop.args, loop.limit, loop.at_once) == (Template(("", ""), (Ref("step", 1),)), 7, 2)
    inner, last = loop.body
    assert (inner.idx, inner.after, last.idx, last.after) == (-1, (), -2, (-1,))
    assert inner.args is not None
    assert inner.args.refs == (Ref("item", loop.idx, ("no",)), Ref("step", 0))
    assert last.args is not None
    assert last.args.refs == (Ref("input", 0), Ref("step", -1, ("no",)))
    assert (gather.of, gather.sides) == (loop.idx, (Template(("", ""), (Ref("step", -2),)),))
    assert plan.returns.refs == (Ref("step", gather.idx),)


def test_an_each_may_stand_inside_an_each_and_inside_a_when() -> None:
    def order(order: Order) -> None:
        def body(part: Parcel) -> Any:
            hold = charge(order, part.no)
            return each(parts(order), lambda inner: email(order, [part.no, inner.no, hold]))

        when(reserve(order) == "x", then=lambda: each(parts(order), body))

    by_name = {s.name: s for s in steps(order)}
    outer = by_name["each"]
    assert outer.guards == ((by_name["when"].idx, True),)
    names = [s.name for s in outer.body]
    assert names == ["charge", "parts-2", "each-2", "gather"]
    inner = outer.body[2]
    assert inner.guards == ()
    (template,) = inner.body
    assert template.args is not None
    level = 1 << 20
    assert template.args.refs == (
        Ref("input", 0), Ref("item", outer.idx, ("no",)), Ref("item", -3 - level, ("no",)), Ref("step", -1 - level),
    )  # fmt: skip
    assert outer.body[3].of == -3


def test_each_over_a_known_list_records_each_item_side_by_side() -> None:
    def order(order: Order) -> None:
        reserve(order)
        results = each([1, 2, 3], lambda n: charge(order, str(n)), at_once=2)
        email(order, results)

    assert afters(order) == {
        "reserve": set(), "charge": {"reserve"}, "charge-2": {"reserve"}, "charge-3": {"charge"},
        "email": {"charge-3", "charge-2"},
    }  # fmt: skip
    assert steps(lambda order: each([], lambda n: email(order, n))) == ()


def test_an_action_may_be_the_body_itself() -> None:
    fetch = App("other")
    agent = fetch.agent("a")
    names = agent.action(complete_within=1, undo=NOTHING, name="names")(lambda: ["a"])
    get = agent.action(complete_within=1, undo=NOTHING, name="get")(lambda name: name)
    plan = fetch.workflow(name="all")(lambda: each(names(), get)).plan()
    assert [s.kind for s in plan.steps] == ["action", "each", "gather"]


# -- limits --------------------------------------------------------------------------------------------------------------------


def test_the_number_of_steps_is_limited_control_steps_included() -> None:
    app, act = small(step_limit=4)
    assert len(app.workflow(name="four")(lambda: [act(n) for n in range(4)]).plan().steps) == 4
    with pytest.raises(DefinitionError, match=r"more than 4 steps: write mg\.each.*App\(step_limit=\.\.\.\)"):
        app.workflow(name="five")(lambda: [act(n) for n in range(5)]).plan()
    with pytest.raises(DefinitionError, match="more than 4 steps"):
        app.workflow(name="body")(lambda: each(act(1), lambda x: [act(x), act(x), act(x)])).plan()


def test_payloads_are_limited_each_and_together() -> None:
    app, act = small(payload_limit=100)
    with pytest.raises(
        PayloadError, match=r"the input text of small\.one has 102 bytes as JSON, the limit is 100"
    ):
        app.workflow(name="one")(lambda text: act(text)).plan("x" * 100)
    with pytest.raises(PayloadError, match=r"value in step act of small\.two has 102 bytes"):
        app.workflow(name="two")(lambda: act("x" * 100)).plan()
    with pytest.raises(PayloadError, match=r"step act of small\.three has 107 bytes"):
        app.workflow(name="three")(lambda: act(["€" * 31])).plan()
    with pytest.raises(
        PayloadError, match="more than 1,600 bytes together: pass on the workflow's inputs"
    ) as error:
        app.workflow(name="four")(lambda: [act("x" * 80) for _ in range(30)]).plan()
    assert error.value.limit == PLAN_PAYLOADS * 100


def test_an_app_may_have_a_higher_limit_for_all_that_its_workflows_write() -> None:
    app = App("large", payload_limit=2 * PAYLOAD_LIMIT)

    @app.agent("a").action(complete_within=1, undo=NOTHING)
    def act(texts: list[str]) -> bool:
        return False

    @app.workflow
    def flow(size: int) -> list[str]:
        when(act(["x" * size]), then=lambda: done(["y" * size]))
        return ["z" * size]

    assert "done" in [step.kind for step in flow.plan(PAYLOAD_LIMIT).steps]


@pytest.mark.parametrize("options", [{"payload_limit": 0}, {"step_limit": True}, {"step_limit": 1.5}])
def test_limits_are_whole_numbers(options: Any) -> None:
    with pytest.raises(DefinitionError, match="a whole number from 1"):
        App("a", **options)


def test_an_input_that_was_changed_on_the_way_is_not_passed_on_unchanged() -> None:
    def order(order: Order) -> None:
        order.cents += 1
        reserve(order)

    with pytest.raises(
        DefinitionError, match=r"shop\.order changed its input order and passed it on: make a copy"
    ):
        steps(order, Order("o"))

    def harmless(order: Order, todo: list[int]) -> None:
        while todo:
            email(order, todo.pop())

    assert len(steps(harmless, Order("o"), [1, 2])) == 2


@pytest.mark.parametrize("value", [object(), float("nan"), {"a": {1, 2}, "b": object()}])
def test_inputs_that_cannot_be_kept_are_refused(value: Any) -> None:
    with pytest.raises(PayloadError, match=r"the input order of shop\.order cannot be kept as JSON"):
        steps(lambda order: None, value)
