"""Resubmission with other inputs, and dry runs of operators' acts.

A dry run asks the same rules that will decide the act.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from makegood import saga
from makegood.base.ids import show
from makegood.base.sizes import PAYLOAD_LIMIT
from makegood.declare.action import Action
from makegood.declare.sealed_values import is_sealed
from makegood.errors import ConfigError
from makegood.model.messages import Answer, TaskMessage
from makegood.model.plan import Plan, StepPlan
from makegood.payload.codec import check_fits, encode
from makegood.payload.unknown_fields import refuse_unknown
from makegood.store.views import StepView, TaskDetail
from makegood.story.held_tasks import held_task_of
from makegood.workflow.workflow import Workflow


def replan(workflow: Workflow[..., Any], detail: TaskDetail, inputs: Sequence[Any] | Plan[Any]) -> bytes:
    """Return the ``value`` of a resubmission: all inputs in order, and the new plan.

    The plan is the one that the workflow function makes of the inputs, or the one that it has already made.
    Raises ``ConfigError`` for a workflow that is not the task's, and whatever ``Workflow.plan_from`` raises.
    """
    task = detail.task
    _refuse_another(workflow, detail)
    plan = inputs if isinstance(inputs, Plan) else workflow._plan_from(inputs)
    if (plan.app, plan.workflow) != (task.app, workflow.name):
        raise ConfigError(f"inputs= is a plan of {plan.app}.{plan.workflow}, not of {workflow.address}")
    stored_plans = [step.plan for step in detail.steps if step.plan is not None]
    steps = [_as_stored(workflow, old, new) for old, new in zip(stored_plans, plan.steps, strict=False)]
    whole = (*steps, *plan.steps[len(steps) :])
    return msgspec.json.encode(
        saga.Replanned(tuple(map(msgspec.Raw, plan.inputs)), tuple(map(_bare, whole)), plan.returns)
    )


async def stored_plan(
    workflow: Workflow[..., Any], detail: TaskDetail, inputs: Sequence[Any] | Plan[Any]
) -> Plan[Any]:
    """Return the plan that ``replan`` takes, encoded as the plan of the task is.

    Raises ``ConfigError`` for a workflow that is not the task's, or that has no codec here, and whatever
    ``Workflow.plan_from`` raises.
    """
    _refuse_another(workflow, detail)
    plan: Plan[Any] = inputs if isinstance(inputs, Plan) else workflow._plan_from(inputs)
    if not is_sealed(detail.returns):
        return plan
    name = show(detail.task.id)
    if plan.sealing is None:
        raise ConfigError(f"the values of task {name} are encoded: give its app the codec, mg.App(codec=...)")
    return await plan.sealing.seal(plan, name)


def _refuse_another(workflow: Workflow[..., Any], detail: TaskDetail) -> None:
    task, names = detail.task, (workflow.name, *workflow.formerly)
    if workflow.address != f"{task.app}.{workflow.name}" or task.workflow not in names:
        raise ConfigError(
            f"task {show(task.id)} is one of {task.app}.{task.workflow}, not of {workflow.address}: pass the workflow that it was "
            f"submitted with"
        )


def check_arguments(action: Action[..., Any], step: str, inputs: Mapping[str, Any]) -> None:
    """Raise ``PayloadError`` for an argument of a step that is not as its action's annotation says."""
    annotations = action._fit().annotations
    for name in inputs.keys() & annotations.keys():
        subject = f"the argument {name} of {step}"
        refuse_unknown(inputs[name], annotations[name], subject)
        data = encode(inputs[name], action.agent.registry.payload_limit, subject)
        check_fits(data, annotations[name], inputs[name], subject)


def payload_limit_of(steps: Sequence[StepView]) -> int:
    """Return how many bytes a payload of these steps may have: what their app allowed at submission."""
    return max((step.plan.payload_limit for step in steps if step.plan is not None), default=PAYLOAD_LIMIT)


def _as_stored(workflow: Workflow[..., Any], old: StepPlan, new: StepPlan) -> StepPlan:
    """Return a step under the name that its action had at submission, if it is the same action."""
    body = tuple(_as_stored(workflow, *pair) for pair in zip(old.body, new.body, strict=False))
    new = replace(new, body=(*body, *new.body[len(body) :]))
    if old.action == new.action or workflow._find_action(old.agent, old.action) is not workflow._find_action(
        new.agent, new.action
    ):
        return new
    return replace(new, agent=old.agent, action=old.action)


def _bare(plan: StepPlan) -> StepPlan:
    """Return a step without its failure policy: the task keeps its own."""
    return replace(plan, policy=None, body=tuple(map(_bare, plan.body)))


def try_act(detail: TaskDetail, message: TaskMessage) -> Answer:
    """Return what the rules would answer to an act now.

    Raises ``StoreError`` for a task whose rows cannot be read.
    """
    return saga.try_command(held_task_of(detail), message, detail.now)
