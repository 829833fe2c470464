"""What a resubmission with other inputs says, and what it would do: without a store."""

import json
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

import makegood as mg
from makegood.client.replanning import replan, try_act
from makegood.errors import ConfigError, DefinitionError, PayloadError, StoreError
from makegood.model.messages import TaskMessage
from makegood.saga import Replanned
from makegood.store.views import StepView, TaskDetail, TaskView
from makegood.story.held_tasks import held_task_of


def shop(name: str = "charge", **terms: Any) -> Any:
    """Return a workflow with one step, whose arguments it makes of its inputs."""
    app = mg.App("shop")

    @app.agent("desk").action(complete_within="5s", undo=mg.NOTHING, name=name, **terms)
    def charge(cents: int, note: str = "") -> str:
        return note

    @app.workflow()
    def sell(order: str, *cents: int, note: str = "") -> str:
        return charge(sum(cents), note)

    return sell


def undone(workflow: Any, *inputs: Any) -> TaskDetail:
    """Return a task of a workflow that was undone, as the store shows it."""
    plan = workflow.plan(*inputs)
    view = TaskView(7, "shop", "sell", None, "undone", "undo", 1, 0, "", 0, None, 1, None, 0.0, None, None)
    steps = [
        StepView(
            p.idx, p.kind, p.name, p.agent, p.action, "undone", 1, 1, 0, doubt=False, undoable=True, plan=p
        )
        for p in plan.steps
    ]
    return TaskDetail(view, steps, plan.inputs, returns=plan.returns)


def test_the_message_has_the_inputs_and_what_is_planned_with_them() -> None:
    sell = shop()
    value = replan(sell, undone(sell, "a", 1, 2), ["a", 3, 4, "late"])
    message = msgspec.json.decode(value, type=Replanned)
    assert [bytes(raw) for raw in message.inputs] == [b'"a"', b"3", b"4", b'"late"']
    assert message.steps[0].args is not None
    assert message.steps[0].args.parts[0] == '{"cents":7,"note":'
    assert message.steps[0].policy is None, "what was declared of failures stays the task's"


def test_an_act_is_tried_without_a_store() -> None:
    sell = shop()
    detail = undone(sell, "a", 1, 2)
    answer = try_act(detail, TaskMessage("resubmit", value=replan(sell, detail, ["a", 3, 4, ""])))
    assert (answer.verdict, answer.outcome) == ("applied", "submission 2, with corrected inputs")
    (step,) = json.loads(answer.change or b"")["steps"]
    assert (step["was"]["cents"], step["now"]["cents"]) == (3, 7)
    assert held_task_of(detail).task.inputs == detail.inputs


def test_a_renamed_action_keeps_the_name_that_the_task_knows() -> None:
    value = replan(shop("pay", formerly=("charge",)), undone(shop(), "a", 1), ["a", 2, ""])
    assert msgspec.json.decode(value, type=Replanned).steps[0].action == "charge"


def test_what_cannot_be_planned_says_why() -> None:
    sell = shop()
    detail = undone(sell, "a", 1)
    with pytest.raises(PayloadError, match="takes 2 inputs or more, not 1"):
        replan(sell, detail, ["a"])
    with pytest.raises(PayloadError, match="the input cents does not fit int"):
        replan(sell, detail, ["a", "b", ""])
    with pytest.raises(ConfigError, match=r"is one of shop\.give, not of shop\.sell"):
        replan(sell, replace(detail, task=replace(detail.task, workflow="give")), ["a"])
    damage = replace(
        detail, steps=[replace(detail.steps[0], plan=None)], unreadable=("step 0 does not read",)
    )
    with pytest.raises(StoreError, match="cannot be known: step 0 does not read"):
        try_act(damage, TaskMessage("resubmit"))


def test_inputs_without_names_that_are_needed_are_refused() -> None:
    app = mg.App("shop")

    @app.workflow()
    def sell(**more: int) -> None: ...

    with pytest.raises(DefinitionError, match="takes any names"):
        sell._plan_from([1])
