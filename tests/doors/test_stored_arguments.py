"""What ``makegood check`` says of stored arguments: of steps that are done, that wait for others, and of an ``each``."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest

import makegood as mg
from makegood.cli.commands.check import STANDING
from makegood.cli.stored_arguments import Fault, Stored
from makegood.declare.action import Action
from makegood.model.plan import Plan
from makegood.model.states import StepState
from makegood.model.task import Doing
from makegood.store.views import StepView, TaskDetail, TaskView
from makegood.workflow.workflow import Workflow

VIEW = TaskView(1, "shop", "run", None, "processing", "forward", 1, 0, "", 0, None, 0, None, 0.0, None, None)


@dataclasses.dataclass
class Odd:
    id: str

    def __post_init__(self) -> None:
        raise KeyError(self.id)


def action(fn: Any, undo: Any = None) -> Action[..., Any]:
    """Return an action of the agent "desk"."""
    desk = mg.App("shop").agent("desk")
    declare = (
        desk.action(complete_within=1, undo=mg.NOTHING) if undo is None else desk.action(complete_within=1)
    )
    new_action: Action[..., Any] = declare(fn)
    if undo is not None:
        new_action.undo(undo)
    return new_action


def flow() -> Workflow[..., Any]:
    """Return the workflow whose tasks are in flight."""
    app = mg.App("shop")
    desk = app.agent("desk")

    @desk.action(complete_within=1, undo=mg.NOTHING)
    def find(x: int) -> dict[str, Any]:
        return {"n": x, "parts": ["a"]}

    @desk.action(complete_within=1, undo=mg.NOTHING)
    def use(x: int, found: dict[str, Any], part: Any) -> str:
        return str(part)

    @app.workflow
    def run(x: int) -> object:
        found = find(x)
        use(x, found, found["parts"][0])
        return mg.each(found["parts"], lambda part: use(x, found, part))

    return run


def detail(plan: Plan[Any], states: Mapping[str, tuple[StepState, bytes | None]]) -> TaskDetail:
    """Return the task of a plan, some of whose steps have a state and a result; the others wait."""
    steps = []
    for step in plan.steps:
        state, result = states.get(step.name, ("waiting", None))
        steps.append(
            StepView(
                step.idx, step.kind, step.name, step.agent, step.action, state, 0, 1, 0, doubt=False, undoable=True,
                result=result, plan=step,
            )
        )  # fmt: skip
    return TaskDetail(VIEW, steps, plan.inputs)


def faults(new: Action[..., Any], doing: Doing = "do", **ends: tuple[StepState, bytes]) -> list[Fault]:
    """Return what is wrong with the step ``use`` of a task under way; ``ends``: what became of ``find``."""
    task = detail(flow().plan(5), ends)
    return list(Stored(task, lambda _agent, _name: None).faults(new, doing, task.steps[1].plan.args))  # type: ignore[union-attr]


def test_what_is_not_known_yet_is_not_judged() -> None:
    """The names are; an input is; a result, or a part of one, is when it is there."""

    def use(x: str, found: list[str], part: int, more: int) -> None: ...

    early = faults(action(use))
    assert [fault.parameter for fault in early] == ["x", "more"]
    late = faults(action(use), find=("done", b'{"n":5,"parts":["a"]}'))
    assert [fault.parameter for fault in late] == ["x", "found", "part", "more"]
    assert late[2].why == "part does not fit int: Expected `int`, got `str`"


def test_what_fits_is_no_fault() -> None:
    """A wider type, one parameter less, one more that has a default."""

    def use(x: int | str, part: str, more: int = 3) -> None: ...

    assert faults(action(use), find=("done", b'{"n":5,"parts":["a"]}')) == []


@pytest.mark.parametrize("state", STANDING)
def test_an_undo_is_judged_by_what_it_takes_and_by_the_result(state: StepState) -> None:
    """It does not take what the action takes; a parameter with a default of the action's, or its own, may be missing."""

    def use(x: str, kind: str, more: int = 3) -> int:
        return 1

    def unuse(more: int, kind: str = "a", *, result: int | None) -> None: ...

    def unuse_x(x: str, *, result: int | None) -> None: ...

    assert faults(action(use, unuse), "undo", find=(state, b"{}")) == []
    assert [fault.parameter for fault in faults(action(use, unuse_x), "undo", find=(state, b"{}"))] == ["x"]
    values = Stored(detail(flow().plan(5), {}), lambda _agent, _name: None)
    assert list(values.result_faults(action(use, unuse), b"7")) == []
    assert list(values.result_faults(action(use, unuse), b"null")) == []
    assert [fault.parameter for fault in values.result_faults(action(use, unuse), b'"a"')] == ["result"]


def test_the_body_of_an_each_is_judged_by_what_is_known() -> None:
    """The items are not there yet, the inputs and what was done before are."""

    def use(x: int, found: str, part: int) -> None: ...

    task = detail(flow().plan(5), {"find": ("done", b'{"n":5,"parts":["a"]}')})
    each = next(step.plan for step in task.steps if step.kind == "each")
    assert each is not None
    misfits = Stored(task, lambda _agent, _name: None).faults(action(use), "do", each.body[0].args)
    assert [fault.parameter for fault in misfits] == ["found"]


def test_a_class_that_raises_anything_is_a_fault() -> None:
    """Not the end of the check."""

    def use(x: int, found: Odd, part: str) -> None: ...

    mismatches = faults(action(use), find=("done", b'{"id":"5","parts":["a"]}'))
    assert [fault.why for fault in mismatches] == ["found does not fit Odd: KeyError: '5'"]
