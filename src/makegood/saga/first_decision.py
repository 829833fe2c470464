"""A Scheduler's decision on a task that is still being submitted.

Most tasks of a workflow have the same steps, and then they begin alike: with the same dispatched steps and
the same moves. The decision on the first of them is remembered for the following ones, and only what differs
is built again: the task and the arguments.
"""

from collections import OrderedDict
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from makegood.errors import MissingValueError
from makegood.model.decision import Decision
from makegood.model.messages import TaskMessage
from makegood.model.plan import StepPlan
from makegood.model.shape import HeldTask, ShapeRequest
from makegood.model.task import Step, TaskRecord
from makegood.saga.decisions import decide
from makegood.saga.fast_path import SHAPES, bulky, fills, request_of, sent_of
from makegood.saga.held import hold


def begun(held: HeldTask) -> Decision | None:
    """Return the Decision that begins a task, if all it does is to dispatch its first steps; None otherwise.

    Such a Decision needs no existing row, so it can be written together with the task itself.
    """
    decision = decide(held, [TaskMessage("claim")])
    if (
        decision.task.state != "processing"
        or decision.release
        or len(decision.requests) != len(decision.steps)
        or not all(map(_dispatched, decision.steps.values()))
        or decision.counted
        or decision.added
        or decision.timers
        or decision.alerts
    ):
        return None
    return decision


def _dispatched(step: Step) -> bool:
    return step.state == "running" and step.doing == "do" and step.attempt == 1 and step.result is None


class _Shape(msgspec.Struct):
    """What tasks with these very steps have in common when they begin."""

    plans: Sequence[StepPlan]
    held: HeldTask
    begun: Decision
    sent: Sequence[ShapeRequest]
    """The steps that are dispatched, in their order."""


class Beginnings:
    """Remembers how tasks of a shape begin, from the second one on. ``begin`` is still a pure function of its
    arguments.

    (If values were computed during planning, each task has its own shape, and nothing of it is worth
    keeping.)
    """

    def __init__(self) -> None:
        self._shapes: OrderedDict[int, _Shape] = OrderedDict()
        self._met: OrderedDict[int, Sequence[StepPlan]] = OrderedDict()

    def begin(self, task: TaskRecord, plans: Sequence[StepPlan]) -> tuple[HeldTask, Decision | None]:
        """Return a task that is being submitted as it is to be held, and its ``begun`` Decision.

        Raises what ``decide`` raises.
        """
        shape = self._shapes.get(id(plans))
        if shape is not None and shape.plans is plans and _alike(shape.begun.before, task):
            try:
                requests = [request_of(sent, task, shape.held.steps, {}) for sent in shape.sent]
            except (MissingValueError, IndexError):  # decided as any other: such a step fails
                requests = []
            if requests:
                known, first = shape.held, shape.begun
                held = HeldTask(
                    task, known.steps.copy(), known.followers, known.open.copy(), known.left, known.strides
                )
                after = replace(task, state="processing", timed=first.task.timed)
                return held, Decision(task, after, first.steps, requests=requests, moves=first.moves)
        held = hold(task, map(Step, plans))
        decision = begun(held)
        if decision is not None and self._again(plans):
            if all(plan.kind == "action" for plan in plans):
                held.strides = {}
            dispatched = [held.steps[request.idx] for request in decision.requests]
            if all(map(fills, dispatched)):
                small = replace(task, inputs=())  # what is kept for others has no values of this one
                copied = HeldTask(
                    small, held.steps.copy(), held.followers, held.open.copy(), held.left, held.strides
                )
                after = replace(decision.task, inputs=())
                kept = Decision(small, after, decision.steps, moves=decision.moves)
                sent = [sent_of(task, step) for step in dispatched]
                self._shapes[id(plans)] = _Shape(plans, copied, kept, sent)
            if len(self._shapes) > SHAPES:
                self._shapes.popitem(last=False)
        return held, decision

    def _again(self, plans: Sequence[StepPlan]) -> bool:
        """Whether a task with these very steps came before, and they are small enough to be kept."""
        if self._met.get(id(plans)) is plans:
            return True
        if bulky(plans):
            return False
        self._met[id(plans)] = plans
        if len(self._met) > SHAPES:
            self._met.popitem(last=False)
        return False


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
