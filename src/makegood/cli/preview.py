"""What an undo would take back, and in which order: asked of the same rules that will do it."""

import heapq
from collections.abc import Sequence

from makegood import saga
from makegood.errors import StoreError
from makegood.store.records import StepView, TaskDetail
from makegood.task import Step, Task

TOUCHED = ("done", "in_doubt", "running", "undoing", "undo_failed")
"""States of steps with an effect that stands or may stand; ``kept`` is settled, whatever stands of it stays."""


def undo_order(found: TaskDetail) -> list[StepView]:
    """Return the steps that an undo of the task would deal with, in order: nothing before all that followed it is settled,
    and of those that are free the later one first. (Independent ones run at the same time.)
    """
    views = {view.idx: view for view in found.steps}
    followers = _followers(found)
    open_followers = {idx: len(after) for idx, after in followers.items()}
    before: dict[int, list[int]] = {idx: [] for idx in followers}
    for idx, after in followers.items():
        for follower in after:
            before[follower].append(idx)
    free = [-idx for idx, count in open_followers.items() if count == 0]
    heapq.heapify(free)
    ordered: list[StepView] = []
    while free:
        idx = -heapq.heappop(free)
        ordered.append(views[idx])
        for predecessor in before[idx]:
            open_followers[predecessor] -= 1
            if open_followers[predecessor] == 0:
                heapq.heappush(free, -predecessor)
    return [view for view in ordered if view.kind == "action" and _touched(view)]


def _touched(view: StepView) -> bool:
    return view.state in TOUCHED or (view.state == "ready" and view.doubt)


def _followers(found: TaskDetail) -> dict[int, set[int]]:
    """Return who follows whom, as the rules see it."""
    task = Task(found.task.id, found.task.app, found.task.workflow)
    steps: list[Step] = []
    for view in sorted(found.steps, key=lambda view: view.idx):
        if view.plan is None:
            raise StoreError(
                f"the store does not tell what step {view.name} declares: its order cannot be known"
            )
        steps.append(Step(view.plan, view.state))
    held = saga.hold(task, steps)
    return {idx: set(after) for idx, after in enumerate(held.followers)}


def what_happens(view: StepView) -> str:
    """Say what an undo does with a step, in a few words."""
    policy = view.plan.policy if view.plan is not None else None
    if policy is not None and policy.no_return:
        return "no way back: stays"
    if not view.undoable:
        return "nothing to undo: stays"
    if view.state in ("running", "ready"):
        return "its answer or complete-by is awaited, then undone"
    if view.state == "in_doubt" and policy is not None and policy.never:
        return "in doubt, at a service without keys: undone only if a probe says that it happened"
    if view.state == "in_doubt":
        return "in doubt: undone as if it were done"
    if view.state == "undo_failed":
        return "its undo is tried again"
    return "undone"


def listed(found: TaskDetail) -> Sequence[tuple[int, StepView, str]]:
    """Return the preview: position, step, what happens to it."""
    return [(n, view, what_happens(view)) for n, view in enumerate(undo_order(found), 1)]
