"""A run that follows the trail of an earlier one records what it would have recorded without."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from makegood.answers import NOTHING
from makegood.errors import DefinitionError, MakegoodError
from makegood.following import Called, Together
from makegood.task import Plan
from makegood.workflow import App, Workflow, parallel, when

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
        except (MakegoodError, AttributeError) as refused:
            return type(refused), str(refused)


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
        kept = data.draw(st.integers(0, len(first)))
        program = first[:kept] + data.draw(st.lists(_LINES, max_size=3))
        inputs = data.draw(st.tuples(st.sampled_from(["o7", "o8", 3]), st.sampled_from([3, 4])))
        assert lived(shop.plan(*program, inputs=inputs)) == lived(Shop().plan(*program, inputs=inputs))


def test_tasks_of_one_shape_share_steps_and_trail() -> None:
    """Nothing is recorded again: steps, template of the result and trail are those of the run before."""
    shop = Shop()
    program: tuple[Line, ...] = (("ship", 0, 0), ("pack", 2, 1), ("parallel", 2, 3), ("named", 3, 4))
    first = shop.plan(*program)
    trail = shop.workflow._trail
    assert [type(call) for call in trail.calls] == [Called, Called, Called, Called, Together, Called]
    again = shop.plan(*program, inputs=("o8", 4))
    assert isinstance(first, Plan)
    assert isinstance(again, Plan)
    assert again.steps is first.steps
    assert again.returns is first.returns
    assert shop.workflow._trail is trail
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
    assert "secret" not in repr(shop.workflow._trail)
    assert "promise of" not in repr(shop.workflow._trail)


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
