"""A run that follows the trail of an earlier one records what it would have recorded without."""

import contextlib
import datetime as dt
import threading
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from makegood.declare.outcomes import NOTHING
from makegood.errors import DefinitionError, MakegoodError, PayloadError, PromiseError
from makegood.model.plan import Plan
from makegood.workflow.app import App
from makegood.workflow.plan_cache import Called, ParallelGroup
from makegood.workflow.promise import content_of
from makegood.workflow.verbs import parallel, when
from makegood.workflow.workflow import Workflow

Line = tuple[str, int, int]
"""What a program does: which call, and which of the values so far are its arguments."""


@dataclass
class Parcel:
    no: str


class Shop:
    """An app with a workflow that does what its ``program`` says."""

    def __init__(self) -> None:
        self.program: tuple[Line, ...] = ()
        self.runs = 0
        app = App("shop")
        desk = app.agent("desk")

        @desk.action(complete_within="20s", undo=NOTHING)
        def pack(one: Any, other: Any = None) -> Parcel:
            return Parcel(str(one))

        @desk.action(complete_within="20s", undo=NOTHING)
        def ship(one: Any) -> str:
            return str(one)

        self.pack, self.ship = pack, ship

        @app.workflow(complete_within="1h")
        def run(order: str, count: int) -> Any:
            return self.run(order, count)

        self.workflow: Workflow[..., Any] = run

    def run(self, order: str, count: int) -> Any:
        """Do what the program says, each line with values that are there already."""
        self.runs += 1
        values: list[Any] = [order, count]
        for call, one, other in self.program:
            a, b = values[one % len(values)], values[other % len(values)]
            match call:
                case "pack":
                    values.append(self.pack(a, b))
                case "named":
                    values.append(self.pack(a, other=b))
                case "turned":
                    values.append(self.pack(other=b, one=a))
                case "short":
                    values.append(self.pack(a))
                case "ship":
                    values.append(self.ship(a))
                case "part":
                    values.append(a.no)
                case "list":
                    values.append(self.ship([a, b]))
                case "constant":
                    values.append(self.ship("constant"))
                case "parallel":
                    values += parallel(self.ship(a), self.ship(b))
                case "when":
                    values.append(when(a == "x", then=partial(self.ship, a), otherwise=partial(self.ship, b)))
                case _:
                    parallel(a, b)
        return values[-1] if self.program and self.program[-1][1] % 4 else None

    def plan(self, *program: Line, inputs: tuple[Any, Any] = ("o7", 3)) -> Plan[Any] | tuple[type, str]:
        """Return the plan of a program, or what refused it."""
        self.program = program
        try:
            return self.workflow.plan(*inputs)
        except (MakegoodError, AttributeError) as error:
            return type(error), str(error)


_CALLS = ("pack", "named", "turned", "short", "ship", "part", "list", "constant", "parallel", "when", "late")
_LINES = st.tuples(st.sampled_from(_CALLS), st.integers(0, 9), st.integers(0, 9))


def lived(plan: Any) -> Any:
    """Return a plan without what differs between two apps alike: the functions behind its steps."""
    return plan if isinstance(plan, tuple) else (plan.steps, plan.inputs, plan.returns, plan.fingerprint)


@given(st.lists(_LINES, max_size=6), st.data())
def test_with_or_without_a_trail_the_plan_is_the_same(first: list[Line], data: st.DataObject) -> None:
    """Programs that begin alike and go on as they like, one after the other in one app; each for itself in a new one."""
    shop = Shop()
    shop.plan(*first)
    for _ in range(3):
        prefix = data.draw(st.integers(0, len(first)))
        program = first[:prefix] + data.draw(st.lists(_LINES, max_size=3))
        inputs = data.draw(st.tuples(st.sampled_from(["o7", "o8", 5]), st.sampled_from([3, 4])))
        assert lived(shop.plan(*program, inputs=inputs)) == lived(Shop().plan(*program, inputs=inputs))


def test_tasks_of_one_shape_share_steps_and_trail() -> None:
    """Nothing is recorded again: steps, template of the result and trail are those of the run before."""
    shop = Shop()
    program: tuple[Line, ...] = (("ship", 0, 0), ("pack", 2, 1), ("parallel", 2, 3), ("named", 3, 4))
    first = shop.plan(*program)
    (trail,) = shop.workflow._trails.values()
    assert [type(call) for call in trail.calls] == [Called, Called, Called, Called, ParallelGroup, Called]
    again = shop.plan(*program, inputs=("o8", 4))
    assert isinstance(first, Plan)
    assert isinstance(again, Plan)
    assert again.steps is first.steps
    assert again.returns is first.returns
    assert len(shop.workflow._trails) == 1
    assert next(iter(shop.workflow._trails.values())) is trail
    assert again.inputs != first.inputs
    assert again.fingerprint != first.fingerprint


def test_a_run_that_leaves_the_trail_runs_once() -> None:
    """The function is not run again for it: what it did so far is put down."""
    shop = Shop()
    shop.plan(("ship", 0, 0), ("ship", 2, 0))
    runs = shop.runs
    shop.plan(("ship", 0, 0), ("pack", 2, 1))
    assert shop.runs == runs + 1


def test_a_trail_keeps_no_inputs_and_no_promises() -> None:
    """It lives as long as the workflow: what one task was submitted with must not."""
    shop = Shop()
    shop.plan(("ship", 0, 0), ("pack", 2, 1), inputs=("a secret", 3))
    assert "secret" not in repr(shop.workflow._trails)
    assert "promise of" not in repr(shop.workflow._trails)


def test_an_input_that_was_changed_is_found_on_a_trail_too() -> None:
    """What is passed on as an input is kept as it was submitted."""
    app = App("shop")

    @app.agent("desk").action(complete_within="20s", undo=NOTHING)
    def pack(order: dict[str, int]) -> str:
        return str(order)

    changes = False

    @app.workflow(complete_within="1h")
    def run(order: dict[str, int]) -> str:
        if changes:
            order["more"] = 1
        return pack(order)

    run.plan({"a": 1})
    run.plan({"a": 2})
    changes = True
    with pytest.raises(DefinitionError, match="changed its input order"):
        run.plan({"a": 3})


@pytest.fixture
def left() -> tuple[Shop, list[Any]]:
    """A shop with a trail, and where its workflow leaves the promises that it is given."""
    shop, promises = Shop(), list[Any]()
    run = shop.run

    def leaving(order: str, count: int) -> Any:
        promises[:] = [run(order, count)]
        return None

    shop.run = leaving  # type: ignore[method-assign]
    shop.plan(("ship", 0, 0), ("pack", 2, 1))
    shop.plan(("ship", 0, 0), ("pack", 2, 1), inputs=("o8", 4))
    return shop, promises


def test_a_promise_that_is_left_behind_on_a_trail_still_names_its_step(left: tuple[Shop, list[Any]]) -> None:
    """Nobody has asked it before: it says what it says of a run that was recorded."""
    _, (promise,) = left
    assert repr(promise) == "<promise of pack>"
    assert repr(promise.no) == "<promise of pack.no>"
    with pytest.raises(PromiseError, match="pack is not known yet"):
        bool(promise)


def test_a_promise_that_is_left_behind_on_a_trail_fits_into_no_other_plan(
    left: tuple[Shop, list[Any]],
) -> None:
    shop, (promise,) = left
    shop.run = lambda order, count: shop.ship(promise)  # type: ignore[method-assign]  # noqa: ARG005 - as it is called
    with pytest.raises(PromiseError, match="pack is a promise of another plan"):
        shop.workflow.plan("o9", 5)


def test_to_look_at_a_promise_on_a_trail_changes_nothing() -> None:
    """In the run itself and in another thread: the plan is the same, and so are the promises."""
    shop, texts = Shop(), list[str]()
    pack, looks = shop.pack, False

    def looked_at(*args: Any, **kwargs: Any) -> Any:
        promise: Any = pack(*args, **kwargs)
        if looks:
            other = threading.Thread(target=lambda: texts.append(repr(promise)))
            other.start()
            other.join()
            texts.append(repr(promise))
            assert content_of(promise) is content_of(promise)
        return promise

    shop.pack = looked_at  # type: ignore[assignment]
    program: tuple[Line, ...] = (("ship", 0, 0), ("pack", 2, 1), ("ship", 3, 0))
    first = shop.plan(*program)
    looks = True
    assert lived(shop.plan(*program)) == lived(first)
    assert texts == ["<promise of pack>"] * 2


def test_a_value_that_had_to_be_looked_at_makes_no_trail() -> None:
    """Another one of its type may not fit."""
    app = App("shop")

    @app.agent("desk").action(complete_within="20s", undo=NOTHING)
    def pack(day: dt.date) -> str:
        return str(day)

    @app.workflow(complete_within="1h")
    def run(day: Any) -> str:
        return pack(day)

    run.plan("2026-11-22")
    run.plan("2026-11-23")
    with pytest.raises(PayloadError, match="day in step pack"):
        run.plan("tomorrow")


def packing() -> tuple[App, Any]:
    """Return an app, and its action that packs an order."""
    app = App("shop")

    @app.agent("desk").action(complete_within="20s", undo=NOTHING)
    def pack(order: str) -> str:
        return order

    return app, pack


def test_a_call_that_failed_makes_no_trail() -> None:
    """It has used up its name: a later run without it names its steps anew."""
    app, pack = packing()
    fails = True

    @app.workflow(complete_within="1h")
    def run(order: str) -> str:
        if fails:
            with contextlib.suppress(MakegoodError, TypeError):
                pack(nope=order)
        return pack(order)  # type: ignore[no-any-return]

    first = [step.name for step in run.plan("o7").steps]
    fails = False
    assert ([step.name for step in run.plan("o8").steps], first) == (["pack"], ["pack-2"])


def test_inputs_of_other_types_are_no_trail() -> None:
    """What an argument's annotation says of them was not looked at."""
    app, pack = packing()

    @app.workflow(complete_within="1h")
    def run(order: Any) -> str:
        return pack(order)  # type: ignore[no-any-return]

    run.plan("o7")
    run.plan("o8")
    with pytest.raises(PayloadError, match="order in step pack"):
        run.plan(7)


def test_a_misused_promise_names_the_line_of_the_workflow_function() -> None:
    """The innermost line of the user's own, also in a function that the workflow calls; ``--debug`` is not needed to see it."""
    shop = App("shop")

    @shop.agent("stock").action(complete_within="30s", undo=NOTHING)
    def lines(count: int) -> list[int]:
        return [count]

    def outer(count: int) -> None:
        for _ in lines(count):
            raise AssertionError

    with pytest.raises(PromiseError) as error:
        shop.workflow()(outer).plan(1)
    line = outer.__code__.co_firstlineno + 1
    assert str(error.value).endswith(f"({__file__}, line {line})")
