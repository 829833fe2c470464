"""A Scheduler's decision on a task that is still being submitted.

Tasks of one ``Shape`` begin alike: with the same dispatched steps and the same moves. The decision on the
second of them is kept as the shape's ``Opening``, and only what differs is built again: the task and the
arguments.
"""

from msgspec.structs import replace

from makegood.errors import MissingValueError
from makegood.model.decision import Decision
from makegood.model.messages import TaskMessage
from makegood.model.shape import HeldTask, Opening, Shape
from makegood.model.task import Step, TaskRecord
from makegood.saga.decisions import decide
from makegood.saga.fast_path import fills, request_of, shape_request_of
from makegood.saga.held import hold


def opening_decision(held_task: HeldTask) -> Decision | None:
    """Return the Decision that begins a task, if all it does is to dispatch its first steps; None otherwise.

    Such a Decision needs no existing row, so it can be written together with the task itself.
    """
    decision = decide(held_task, [TaskMessage("claim")])
    if (
        decision.task.state != "processing"
        or decision.release
        or len(decision.requests) != len(decision.steps)
        or not all(map(_is_first_attempt, decision.steps.values()))
        or decision.failure_counts
        or decision.new_steps
        or decision.timers
        or decision.alerts
    ):
        return None
    return decision


def _is_first_attempt(step: Step) -> bool:
    return step.state == "running" and step.doing == "do" and step.attempt == 1 and step.result is None


def begin(task: TaskRecord, shape: Shape) -> tuple[HeldTask, Decision | None]:
    """Return a task that is being submitted as it is to be held, and its ``begun`` Decision.

    Raises what ``decide`` raises.
    """
    opening = shape.opening
    if opening is not None and _alike(opening.alike, task):
        try:
            requests = [
                request_of(shape_request, task, opening.waiting, {}) for shape_request in opening.sends
            ]
        except (MissingValueError, IndexError):  # decided as any other: such a step fails
            requests = []
        if requests:
            held_task = HeldTask(
                task, opening.waiting.copy(), opening.followers, opening.open.copy(), opening.left,
                shape if shape.plain else None,
            )  # fmt: skip
            after = replace(task, state="processing", timed=opening.starts_clock)
            return held_task, Decision(task, after, opening.changes, requests=requests, moves=opening.moves)
    held_task = hold(task, map(Step, shape))
    decision = opening_decision(held_task)
    if decision is not None and shape.again():
        if shape.plain:
            held_task.shape = shape
        steps = [held_task.steps[request.idx] for request in decision.requests]
        if all(map(fills, steps)):
            shape.opening = Opening(
                replace(task, inputs=()),  # what is kept for others has no values of this one
                decision.task.timed, held_task.steps.copy(), held_task.followers, held_task.open.copy(), held_task.left,
                decision.steps, decision.moves, [shape_request_of(task, step) for step in steps],
            )  # fmt: skip
    return held_task, decision


def apply_first(held_task: HeldTask, first: Decision) -> None:
    """Apply the committed Decision of ``begin`` to the held task, in place: it has only dispatched steps, so
    none has passed.
    """
    held_task.task = first.task
    for idx, step in first.steps.items():
        held_task.steps[idx] = step


def _alike(one: TaskRecord, other: TaskRecord) -> bool:
    """Return whether two tasks with the same steps begin alike: in everything that the rules read before any
    answer.
    """
    return (
        one.app == other.app
        and one.on_failure == other.on_failure
        and (one.within is None) == (other.within is None)
        and one.epoch == other.epoch
        and other.state == "pending"
        and other.goal == "forward"
        and not other.timed
        and not other.lost
    )
