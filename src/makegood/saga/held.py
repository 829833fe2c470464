"""The task that a Scheduler holds: built from rows, updated by committed Decisions, repaired after a
crash.
"""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from makegood.model.decision import Decision
from makegood.model.messages import TaskMessage
from makegood.model.plan import StepPlan
from makegood.model.shape import HeldTask, KeptSignal
from makegood.model.states import AT_REST
from makegood.model.task import Doing, Step, TaskRecord
from makegood.saga import rules


def predecessors(plan: StepPlan) -> Sequence[int]:
    """Return the steps that must be done or skipped first, each once (except a gather's items, which come
    later).
    """
    if not plan.guards and plan.of < 0 and plan.item_of < 0:
        return plan.after if len(plan.after) < 2 else tuple(dict.fromkeys(plan.after))
    indices = (*plan.after, *(when for when, _ in plan.guards), plan.of, plan.item_of)
    return tuple(dict.fromkeys(i for i in indices if i >= 0))


def hold(task: TaskRecord, steps: Iterable[Step], signals: Sequence[KeptSignal] = ()) -> HeldTask:
    """Return a task with its steps, ready for ``decide``: with each step's followers and number of open
    predecessors. ``signals``: those that it keeps.
    """
    in_order = sorted(steps, key=lambda s: s.plan.idx)
    gathers = {s.plan.of: s.plan.idx for s in in_order if s.plan.kind == "gather"}
    followers: list[list[int]] = [[] for _ in in_order]
    counts = [0] * len(in_order)
    left = losers = 0
    for step in in_order:
        idx, passes = step.plan.idx, rules.passes(step)
        left += not passes
        losers += step.loser and not passes
        for before in predecessors(step.plan):
            followers[before].append(idx)
            counts[idx] += not rules.passes(in_order[before])
        gather = gathers.get(rules.owner(step.plan), -1) if gathers else -1
        if gather >= 0:
            followers[idx].append(gather)
            counts[gather] += not passes
    return HeldTask(task, in_order, [tuple(f) for f in followers], counts, left, None, signals, losers)


def apply(held_task: HeldTask, decision: Decision) -> None:
    """Apply a committed Decision to the held task, in place."""
    held_task.task, shape_step = decision.task, decision.shape_step
    steps, counts = held_task.steps, held_task.open
    if shape_step is not None:  # exactly one step has passed
        for idx, step in decision.steps.items():
            steps[idx] = step
        held_task.left -= 1
        for request in shape_step.sends:
            counts[request.idx] -= 1
        return
    followers = held_task.followers
    for idx, step in decision.steps.items():
        was, now = rules.passes(steps[idx]), rules.passes(step)
        if step.loser or steps[idx].loser:
            held_task.losers += (step.loser and not now) - (steps[idx].loser and not was)
        steps[idx] = step
        if was != now:
            change = -1 if now else 1
            held_task.left += change
            for follower in followers[idx]:
                counts[follower] += change
    if decision.new_steps:
        _extend(held_task, decision.new_steps)
    if decision.kept_signals or decision.used_signals:
        uses = {(name, signal) for name, signal, _ in decision.used_signals}
        held_task.signals = [
            *(each for each in held_task.signals if (each.name, each.id) not in uses), *decision.kept_signals
        ]  # fmt: skip


def _extend(held_task: HeldTask, new_steps: Sequence[Step]) -> None:
    """Add the items of an ``each``: their steps follow it, and its gather follows them."""
    steps, counts = held_task.steps, held_task.open
    steps.extend(new_steps)
    # A new list: tasks of the same shape share the old one.
    held_task.followers = followers = held_task.followers + [()] * len(new_steps)
    counts.extend(0 for _ in new_steps)
    gathers = {s.plan.of: s.plan.idx for s in steps if s.plan.kind == "gather"}
    for step in new_steps:
        idx, passes = step.plan.idx, rules.passes(step)
        held_task.left += not passes
        held_task.losers += step.loser and not passes
        for before in predecessors(step.plan):
            followers[before] += (idx,)
            counts[idx] += not rules.passes(steps[before])
        gather = gathers.get(rules.owner(step.plan), -1)
        if gather >= 0:
            followers[idx] += (gather,)
            counts[gather] += not passes


def repair(held_task: HeldTask, messages: Iterable[TaskMessage]) -> list[TaskMessage]:
    """Return the messages that a dead Scheduler missed, to fold in after the claim, before those of the
    inbox.

    ``held_task`` was loaded from rows: a step whose request row is gone has ``doing=None``. If the commit
    that deleted the row also moved its step, nothing is missing. Otherwise the row was deleted

    - by a Supervisor's verdict: then ``expired`` is among ``messages``, and nothing is added to it;
    - by a withdrawal, whose Scheduler died before folding it in. Only a request that nobody had taken is
      withdrawn, and only when its step goes no longer forward: so the attempt certainly did nothing. It was
      the action's if the step is running, and the probe's if the step is in doubt and its last attempt was a
      probe's. (If that probe had its outcome after all, this costs one more request, never an effect);
    - for an unknown reason, under a forward goal or in a task at rest: that proves nothing, so it counts as
      silence. (An undo is asked again at once, under its key and with a higher token; silence leads to the
      same.)

    What was in flight is written back into ``held_task``, so that these messages find their request.
    """
    verdicts = {(m.idx, m.attempt): m.doing for m in messages if m.kind == "expired"}
    at_rest = held_task.task.state in AT_REST
    lost_messages: list[TaskMessage] = []
    for idx, step in enumerate(held_task.steps):
        if not rules.idle(step):
            continue
        verdict = verdicts.get((idx, step.attempt))
        doing = verdict or _missing_request(held_task.task, step)
        if doing is None:
            continue
        held_task.steps[idx] = replace(step, doing=doing)
        if verdict is not None:
            continue
        if not at_rest and not rules.goes_forward(held_task.task, step):
            lost_messages.append(TaskMessage("withdrawn", idx, doing, step.attempt))
        else:
            lost_messages.append(TaskMessage("expired", idx, doing, step.attempt, failures=step.failures))
    return lost_messages


def _missing_request(task: TaskRecord, step: Step) -> Doing | None:
    """Return what must have been in flight for an idle step; None if it may be idle."""
    if step.state == "running":
        return "do"
    if step.state == "undoing":
        return "undo"
    was_probing = step.state == "in_doubt" and step.doubt and step.asked == step.attempt and not step.stuck
    undoing = (task.goal == "undo" or step.loser) and task.state not in AT_REST
    return "probe" if was_probing and undoing and rules.policy(step).probe else None
