"""The task that a Scheduler holds: built from rows, updated by committed Decisions, repaired after a
crash.
"""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from makegood.model.decision import Decision
from makegood.model.messages import TaskMessage
from makegood.model.plan import StepPlan
from makegood.model.shape import HeldTask
from makegood.model.states import AT_REST
from makegood.model.task import Doing, Step, TaskRecord
from makegood.saga import rules


def predecessors(plan: StepPlan) -> Sequence[int]:
    """Return the steps that must be done or skipped first, each once (except a gather's items, which come
    later).
    """
    if not plan.guards and plan.of < 0 and plan.item_of < 0:
        return plan.after if len(plan.after) < 2 else tuple(dict.fromkeys(plan.after))
    named = (*plan.after, *(when for when, _ in plan.guards), plan.of, plan.item_of)
    return tuple(dict.fromkeys(i for i in named if i >= 0))


def hold(task: TaskRecord, steps: Iterable[Step]) -> HeldTask:
    """Return a task with its steps, ready for ``decide``: with each step's followers and number of open
    predecessors.
    """
    ordered = sorted(steps, key=lambda s: s.plan.idx)
    gathers = {s.plan.of: s.plan.idx for s in ordered if s.plan.kind == "gather"}
    followers: list[list[int]] = [[] for _ in ordered]
    opened = [0] * len(ordered)
    left = 0
    for step in ordered:
        idx, passed = step.plan.idx, step.state in rules.PASSED
        left += not passed
        for before in predecessors(step.plan):
            followers[before].append(idx)
            opened[idx] += ordered[before].state not in rules.PASSED
        gather = gathers.get(rules.owner(step.plan), -1) if gathers else -1
        if gather >= 0:
            followers[idx].append(gather)
            opened[gather] += not passed
    return HeldTask(task, ordered, [tuple(f) for f in followers], opened, left)


def apply(held: HeldTask, decision: Decision) -> None:
    """Apply a committed Decision to the held task, in place."""
    held.task, known = decision.task, decision.shape_step
    steps, opened = held.steps, held.open
    if known is not None:  # exactly one step has passed
        for idx, step in decision.steps.items():
            steps[idx] = step
        held.left -= 1
        for sent in known.sent:
            opened[sent.idx] -= 1
        return
    followers, passed = held.followers, rules.PASSED
    for idx, step in decision.steps.items():
        was, now = steps[idx].state in passed, step.state in passed
        steps[idx] = step
        if was != now:
            change = -1 if now else 1
            held.left += change
            for follower in followers[idx]:
                opened[follower] += change
    if decision.added:
        _extend(held, decision.added)


def _extend(held: HeldTask, added: Sequence[Step]) -> None:
    """Add the items of an ``each``: their steps follow it, and its gather follows them."""
    steps, opened = held.steps, held.open
    steps.extend(added)
    # A new list: tasks of the same shape share the old one.
    held.followers = followers = held.followers + [()] * len(added)
    opened.extend(0 for _ in added)
    gathers = {s.plan.of: s.plan.idx for s in steps if s.plan.kind == "gather"}
    for step in added:
        idx, passed = step.plan.idx, step.state in rules.PASSED
        held.left += not passed
        for before in predecessors(step.plan):
            followers[before] += (idx,)
            opened[idx] += steps[before].state not in rules.PASSED
        gather = gathers.get(rules.owner(step.plan), -1)
        if gather >= 0:
            followers[idx] += (gather,)
            opened[gather] += not passed


def repair(held: HeldTask, messages: Iterable[TaskMessage]) -> list[TaskMessage]:
    """Return the messages that a dead Scheduler missed, to fold in after the claim, before those of the
    inbox.

    ``held`` was loaded from rows, where a step whose request row is gone has ``doing=None``. If the commit
    that deleted the row also moved its step, nothing is missing. Otherwise the row was deleted

    - by a Supervisor's verdict: then ``expired`` is among ``messages``, and nothing is added to it;
    - by a withdrawal, whose Scheduler died before folding it in. Only a request that nobody had taken is
      withdrawn, and only when the goal is no longer forward: so the attempt certainly did nothing. It was the
      action's if the step is running, and the probe's if the step is in doubt and its last attempt was a
      probe's. (If that probe had its outcome after all, this costs one more request, never an effect);
    - for an unknown reason, under a forward goal or in a task at rest: that proves nothing, so it counts as
      silence. (An undo is asked again at once, under its key and with a higher token; silence leads to the
      same.)

    What was in flight is written back into ``held``, so that these messages find their request.
    """
    judged = {(m.idx, m.attempt): m.doing for m in messages if m.kind == "expired"}
    sure = held.task.goal != "forward" and held.task.state not in AT_REST
    found: list[TaskMessage] = []
    for idx, step in enumerate(held.steps):
        if not rules.idle(step):
            continue
        heard = judged.get((idx, step.attempt))
        doing = heard or _lost(held.task, step)
        if doing is None:
            continue
        held.steps[idx] = replace(step, doing=doing)
        if heard is not None:
            continue
        if sure:
            found.append(TaskMessage("withdrawn", idx, doing, step.attempt))
        else:
            found.append(TaskMessage("expired", idx, doing, step.attempt, failures=step.failures))
    return found


def _lost(task: TaskRecord, step: Step) -> Doing | None:
    """Return what must have been in flight for an idle step; None if it may be idle."""
    if step.state == "running":
        return "do"
    if step.state == "undoing":
        return "undo"
    asked = step.state == "in_doubt" and step.doubt and step.asked == step.attempt and not step.stuck
    undoing = task.goal == "undo" and task.state not in AT_REST
    return "probe" if asked and undoing and rules.policy(step).probe else None
