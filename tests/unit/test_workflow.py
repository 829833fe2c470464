"""Workflow functions: what they record, what they return, and what is refused at submission or before."""

# ruff: noqa: ARG005, PLW0108 - workflow functions are lambdas with parameters in common here
# mypy: disable-error-code="call-overload,call-arg,func-returns-value"

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from makegood.declare.outcomes import NOTHING, Happened, NotHappened
from makegood.errors import (
    DefinitionError,
    DuplicateNameError,
    PayloadError,
    PromiseError,
    UnknownActionError,
)
from makegood.model.plan import Ref, StepPlan, Template
from makegood.model.policy import Policy
from makegood.workflow.app import App
from makegood.workflow.verbs import branches, each, parallel, when
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


# -- a plan ------------------------------------------------------------------------------------------------------------------


@shop.workflow(complete_within="2h", on_failure="hold", undo_within="1h", formerly=("buy",))
def place_order(order: Order, text: str = "thanks") -> str:
    """Reserve, charge, ship and tell."""
    hold = reserve(order)
    payment = charge(order, hold=hold)
    parcel, _ = parallel(ship(order, hold), email(order, {"paid": payment, "text": [text, 1]}))
    return parcel.no


def test_a_plan_holds_all_that_a_task_needs() -> None:
    plan = place_order.plan(ORDER)
    assert (plan.app, plan.workflow, plan.within, plan.undo_within, plan.on_failure) == (
        "shop",
        "place_order",
        7200.0,
        3600.0,
        "hold",
    )
    assert plan.inputs == (b'{"id":"o-1","cents":1,"gift":false,"tags":{}}', b'"thanks"')
    assert plan.returns == Template(("", ""), (Ref("step", 2, ("no",)),))
    assert plan.returns_type is str
    assert plan.steps[0] == StepPlan(
        0,
        "action",
        "reserve",
        "desk",
        "reserve",
        Template(('{"order":', "}"), (Ref("input", 0),)),
        policy=POLICY,
    )
    assert [(s.idx, s.name, s.after) for s in plan.steps] == [
        (0, "reserve", ()), (1, "charge", (0,)), (2, "ship", (1,)), (3, "email", (1,)),
    ]  # fmt: skip
    assert plan.steps[1].args == Template(
        ('{"order":', ',"hold":', ',"note":""}'), (Ref("input", 0), Ref("step", 0))
    )
    assert plan.steps[3].args == Template(
        ('{"order":', ',"text":{"paid":', ',"text":["thanks",1]}}'), (Ref("input", 0), Ref("step", 1))
    )
    assert "charge" in str(plan)
    assert plan.with_(key="k").key == "k"


def test_the_steps_survive_being_stored() -> None:
    plan = place_order.plan(ORDER)
    assert msgspec.json.decode(msgspec.json.encode(plan.steps), type=tuple[StepPlan, ...]) == plan.steps


def test_the_fingerprint_stands_for_workflow_and_inputs() -> None:
    first = place_order.plan(Order("o", tags={"a": 1, "b": 2})).fingerprint
    assert place_order.plan(Order("o", tags={"b": 2, "a": 1}), "thanks").fingerprint == first
    assert place_order.plan(Order("o"), "thanks").fingerprint != first
    assert place_order.plan(Order("o", tags={"a": 1, "b": 2}), "bye").fingerprint != first
    assert len(first) == 16


def test_names_of_steps_are_unique() -> None:
    again = desk.action(complete_within=1, undo=NOTHING, name="reserve-2")(email.fn)

    def order(order: Order) -> None:
        again(order, 1)
        for _ in range(3):
            reserve(order)
        again(order, 1)

    assert [s.name for s in steps(order)] == ["reserve-2", "reserve", "reserve-3", "reserve-4", "reserve-2-2"]
    del desk.actions["reserve-2"]


def test_real_inputs_may_be_branched_and_looped_on() -> None:
    def order(orders: list[Order]) -> list[str]:
        return [charge(o, reserve(o)) if o.gift else reserve(o) for o in orders]

    plan = workflow(order).plan([Order("a"), Order("b", gift=True)])
    assert [s.name for s in plan.steps] == ["reserve", "reserve-2", "charge"]
    assert plan.returns == Template(("[", ",", "]"), (Ref("step", 0), Ref("step", 2)))
    assert plan.steps[0].args is not None
    assert plan.steps[0].args.refs == ()


@pytest.mark.parametrize(
    ("result", "template"),
    [
        (lambda h, o: None, Template(("null",))),
        (lambda h, o: h, Template(("", ""), (Ref("step", 0),))),
        (lambda h, o: o, Template(("", ""), (Ref("input", 0),))),
        (lambda h, o: (h, 1), Template(("[", ",1]"), (Ref("step", 0),))),
        (lambda h, o: {"a": [h]}, Template(('{"a":[', "]}"), (Ref("step", 0),))),
        (lambda h, o: Parcel(h, 2), Template(('{"no":', ',"weight":2}'), (Ref("step", 0),))),
        (lambda h, o: "h", Template(('"h"',))),
    ],
)
def test_what_a_workflow_returns_may_hold_promises(result: Any, template: Template) -> None:
    assert workflow(lambda order: result(reserve(order), order)).plan(ORDER).returns == template


def test_a_workflow_inside_another_is_inlined() -> None:
    def order(order: Order) -> str:
        return charge(order, place_order(order))

    plan = workflow(order).plan(ORDER)
    assert [s.name for s in plan.steps] == ["reserve", "charge", "ship", "email", "charge-2"]
    assert plan.steps[4].after == (2, 3)
    assert plan.workflow == "order"


def test_inputs_by_name_defaults_and_keyword_only() -> None:
    def order(order: Order, *more: int, gift: bool = False, **rest: str) -> None:
        email(order, gift)

    plan = workflow(order).plan(ORDER, 1, 2, gift=True, to="you")
    assert plan.inputs[1:] == (b"1", b"2", b"true", b'"you"')
    assert plan.steps[0].args is not None
    assert plan.steps[0].args.refs == (Ref("input", 0), Ref("value", 3))


def test_a_workflow_without_a_step_is_a_plan_too() -> None:
    assert workflow(lambda order: None).plan(ORDER).steps == ()


def test_bare_decorator_and_options() -> None:
    app = App("a")

    @app.workflow
    def one() -> None:
        """Do nothing."""

    assert (one.name, one.within, one.on_failure, one.__doc__) == ("one", None, "undo", "Do nothing.")
    assert one.plan().returns_type is type(None)
    assert app.workflows == {"one": one}
    assert app._find_workflow("one") is one
    assert shop._find_workflow("buy") is place_order
    assert app._find_workflow("two") is None
    assert place_order.fn(ORDER) if False else place_order.fn.__name__ == "place_order"


def small(**limits: Any) -> tuple[App, Any]:
    app = App("small", **limits)
    act = app.agent("a").action(complete_within=1, undo=NOTHING, name="act")(lambda value: value)
    return app, act


# -- what is no workflow -------------------------------------------------------------------------------------------------------


async def waits(order: Order) -> None: ...


def yields(order: Order) -> Any:
    yield order


@pytest.mark.parametrize(
    ("fn", "options", "pattern"),
    [
        (waits, {}, "is an async def: a workflow function is a plain def"),
        (yields, {}, "has a yield in it"),
        (reserve, {}, "declared already"),
        (place_order, {}, "declared already"),
        (Order, {"name": "x"}, "decorate a function"),
        (len, {"on_failure": "stop"}, r'on_failure=.stop.: "undo" or "hold"'),
        (steps, {"complete_within": 0}, "complete_within=0 must be"),
        (steps, {"undo_within": "soon"}, "undo_within='soon' is not a duration"),
        (steps, {"name": "a b"}, "workflow name 'a b' is not allowed"),
        (steps, {"formerly": "x"}, "pass a tuple of names"),
        (lambda: None, {}, "'<lambda>' is not allowed"),
    ],
)
def test_what_cannot_be_a_workflow_is_refused(fn: Any, options: Any, pattern: str) -> None:
    with pytest.raises(DefinitionError, match=pattern):
        App("shop").workflow(**options)(fn)


def test_a_coroutine_that_is_returned_is_refused() -> None:
    with pytest.raises(DefinitionError, match="returned a coroutine"):
        steps(lambda order: waits(order))


def test_calls_that_do_not_fit_are_refused() -> None:
    with pytest.raises(
        DefinitionError, match=r"shop\.place_order\(order: .*: order is missing; there are order"
    ):
        place_order.plan()
    with pytest.raises(DefinitionError, match="it takes 2 parameters by position, not 3"):
        place_order.plan(ORDER, "a", "b")
    wrong: Any = {"ordr": ORDER}
    with pytest.raises(
        DefinitionError, match=r"no parameter 'ordr' \(did you mean 'order'\?\); order is missing"
    ):
        place_order.plan(**wrong)


def test_a_plan_inside_a_plan_is_a_plan_of_its_own() -> None:
    inner: list[Any] = []
    plan = workflow(lambda order: (inner.append(place_order.plan(order)), reserve(order))[1]).plan(ORDER)
    assert (len(plan.steps), len(inner[0].steps)) == (1, 4)
    with pytest.raises(
        PromiseError,
        match=r"the input order of shop\.place_order is a promise: call place_order\(\.\.\.\) itself",
    ):
        workflow(lambda order: place_order.plan(reserve(order))).plan(ORDER)  # type: ignore[arg-type]


def test_outside_of_a_plan_nothing_happens_but_errors_with_the_remedy() -> None:
    with pytest.raises(DefinitionError, match=r"submit it with client\.submit\(place_order, \.\.\.\)"):
        place_order(ORDER)
    with pytest.raises(DefinitionError, match=r"charge\.fn\(\.\.\.\)"):
        charge(ORDER, "h")
    calls: list[Any] = [
        lambda: parallel(1), lambda: branches(lambda: 1), lambda: when(True, then=lambda: 1), lambda: each([1], str),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(DefinitionError, match=r"belongs in a @app\.workflow function"):
            call()


def test_an_action_of_another_app_is_refused() -> None:
    _, act = small()
    with pytest.raises(DefinitionError, match=r"shop\.order calls small/a/act, an action of another app"):
        steps(lambda order: act(1))


def test_whatever_the_function_raises_is_passed_on_and_leaves_nothing_behind() -> None:
    with pytest.raises(ZeroDivisionError):
        steps(lambda order: reserve(order) and 1 if False else 1 / 0)
    with pytest.raises(DefinitionError, match="outside a workflow"):
        reserve(ORDER)
    assert not shop._registry.plans


# -- threads -------------------------------------------------------------------------------------------------------------------


def in_thread(order: Order) -> None:
    errors: list[BaseException] = []

    def call() -> None:
        try:
            reserve(order)
        except DefinitionError as error:
            errors.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert errors


def in_pool(order: Order) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(copy_context().run, reserve, order).exception()


def test_actions_called_in_threads_are_refused_even_when_their_error_is_lost() -> None:
    for fn in (in_thread, in_pool):
        with pytest.raises(
            DefinitionError, match=r"was called in another thread: such a call records no step.*parallel"
        ):
            steps(fn)


def test_a_plan_that_is_finished_takes_no_more_steps() -> None:
    async def main() -> None:
        later: list[asyncio.Task[None]] = []

        async def call(order: Order) -> None:
            reserve(order)

        steps(lambda order: later.append(asyncio.get_running_loop().create_task(call(order))))
        with pytest.raises(PromiseError, match="in another thread or after its end"):
            await later[0]

    asyncio.run(main())


def test_plans_in_several_threads_do_not_disturb_each_other() -> None:
    with ThreadPoolExecutor(4) as pool:
        plans = list(pool.map(lambda n: place_order.plan(Order(str(n))), range(50)))
    assert len({plan.fingerprint for plan in plans}) == 50
    assert {len(plan.steps) for plan in plans} == {4}


# -- apps ----------------------------------------------------------------------------------------------------------------------


def test_an_app_knows_its_agents_actions_and_workflows() -> None:
    app, act = small()
    new = app.agents["a"].action(complete_within=1, undo=NOTHING, name="new", formerly=("old",))(lambda: 1)
    assert app._find_action("a", "act") is act
    assert app._find_action("a", "old") is new
    assert repr(app) == "<app small>"
    for agent, name in (("a", "gone"), ("b", "act")):
        with pytest.raises(
            UnknownActionError,
            match=rf"declares no action {agent}/{name}: declare it again, or pass formerly=",
        ):
            app._find_action(agent, name)


def test_names_are_unique_and_allowed() -> None:
    app, _ = small()
    with pytest.raises(DuplicateNameError, match="has an agent 'a' already"):
        app.agent("a")
    app.workflow(name="w", formerly=("v",))(lambda: None)
    for options in ({"name": "w"}, {"name": "v"}, {"name": "x", "formerly": ("w",)}):
        with pytest.raises(DuplicateNameError, match=r'two workflows named .*pass name="\.\.\."'):
            app.workflow(**options)(lambda: None)
    for wrong in ("", "a b", "1a", "ä"):
        with pytest.raises(DefinitionError, match="app name"):
            App(wrong)
        with pytest.raises(DefinitionError, match="agent name"):
            app.agent(wrong)


def test_a_probe_shows_in_the_policy_of_the_step() -> None:
    app = App("p")

    @app.agent("a").action(complete_within="5s", no_return=True, remembers=True)
    def act() -> str:
        return ""

    @act.probe(fences=True)
    def find() -> Happened[str] | NotHappened:
        return Happened("x")

    (step,) = app.workflow(name="w")(lambda: act()).plan().steps
    assert step.policy == Policy(
        within=5.0,
        undo_within=5.0,
        undoable=False,
        no_return=True,
        remembers=True,
        probe=True,
        fences=True,
        resumes=True,
    )


def test_an_input_that_is_not_what_its_annotation_says_is_refused_before_anything_is_written() -> None:
    def order(order: Order, count: int = 1) -> None:
        email(order, False)

    flow = workflow(order)
    with pytest.raises(
        PayloadError, match=r"the input order of shop\.order is str, its annotation says Order"
    ):
        flow.plan("o-1")  # as a program without a type checker would
    with pytest.raises(PayloadError, match=r"the input count of shop\.order is str, its annotation says int"):
        flow.plan(ORDER, "2")  # the same
    plan = flow.plan({"id": "o-1"})  # its JSON is that of an Order
    assert plan.inputs == (b'{"id":"o-1"}', b"1")


def test_an_argument_that_is_known_now_and_does_not_fit_is_refused() -> None:
    def order(order: Order) -> None:
        charge(order, 7)  # type: ignore[arg-type]  # wrong on purpose

    with pytest.raises(
        PayloadError, match=r"hold in step charge of shop\.order is int, its annotation says str"
    ):
        workflow(order).plan(ORDER)
