"""Tasks as people see them, in the form that the rules take: so the rules themselves say what comes next."""

from collections.abc import Mapping

from makegood import saga
from makegood.errors import StoreError
from makegood.model.plan import StepPlan
from makegood.model.shape import HeldTask
from makegood.model.task import Doing, Step, TaskRecord
from makegood.store.views import StepView, TaskDetail

_DOING: Mapping[str, Doing] = {"do": "do", "probe": "probe", "undo": "undo"}


def held_task_of(detail: TaskDetail) -> HeldTask:
    """Return a task in the form that the rules take.

    Raises ``StoreError`` when its rows cannot be read, or when only some of its steps were.
    """
    if detail.tally is not None:
        raise StoreError("what this would do takes all steps of the task, and only some of them were read")
    task = task_of(detail)
    steps: list[Step] = []
    for step in sorted(detail.steps, key=lambda step: step.idx):
        if step.plan is None:
            raise StoreError(
                f"what this would do cannot be known: {'; '.join(detail.unreadable) or f'step {step.name} has no plan'}"
            )
        steps.append(step_of(step, step.plan))
    return saga.hold(task, steps)


def task_of(detail: TaskDetail) -> TaskRecord:
    """Return the record of a task, without its steps."""
    view = detail.task
    return TaskRecord(
        view.id, view.app, view.workflow, view.key, view.state, view.goal, submission=view.submission, cause=view.cause,
        inputs=detail.inputs, returns=detail.returns, names=detail.names, lanes=tuple(place.name for place in detail.lanes),
    )  # fmt: skip


def step_of(step: StepView, plan: StepPlan) -> Step:
    """Return the record of a step."""
    return Step(
        plan, step.state, _DOING.get(step.doing or ""), step.waiting, step.attempt, step.round, step.failures,
        doubt=step.doubt, result=step.result, error=step.error, stood=step.stood, first_sent=step.first_sent or 0.0, loser=step.loser,
    )  # fmt: skip
