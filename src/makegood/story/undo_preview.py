"""Undo previews: what an undo would take back, and in which order, according to the rules that will do it."""

from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from makegood.base.ids import show
from makegood.model.policy import Policy
from makegood.payload.envelopes import describe
from makegood.store.views import StepView, TaskDetail
from makegood.story.held_tasks import held_task_of

TOUCHED = ("done", "in_doubt", "running", "undoing", "undo_failed")
"""States of steps whose effect is, or may be, in place.

``kept`` is settled: whatever is in place of such a step stays.
"""


class Fate(NamedTuple):
    """What an undo does with a step."""

    text: str
    """In a few words."""
    short: str = ""
    """The same where its state is written beside it; "" if the text says more than the state."""
    stays: bool = False
    """Its effect stays in place."""
    stuck: bool = False
    """Its undo waits until an operator has settled it."""


class Preview(NamedTuple):
    """A step that an undo deals with."""

    turn: int
    """Steps of one number may be undone at the same time."""
    step: StepView
    happens: str
    stays: bool
    """Its effect stays in place."""


def undo_order(detail: TaskDetail) -> list[Preview]:
    """Return the steps that an undo of the task deals with, in order.

    No step comes before all that followed it are settled; of those that are free the later one comes first.
    Steps that an undo leaves alone (without an effect, undone, kept) are not listed.
    """
    views = {view.idx: view for view in detail.steps}
    followers = _followers(detail)
    turns = _turns(views, followers)
    order = sorted(
        (view for view in detail.steps if view.kind == "action" and _is_touched(view)),
        key=lambda view: (turns[view.idx] + (not _holds_up(view)), -view.idx),
    )
    obstacles = _blockers(views, followers)
    previews: list[Preview] = []
    for view in order:
        ahead, once = fate(view), f", once {obstacles[view.idx]} is settled" if view.idx in obstacles else ""
        turn = turns[view.idx] + (not _holds_up(view))
        previews.append(Preview(turn, view, ahead.text + once, ahead.stays))
    return previews


def turns(detail: TaskDetail) -> dict[int, int]:
    """Return the turn of each step that is, will be or was undone, by index.

    ``undo_order`` counts turns from now on; here they count from the end of the task, steps that are undone
    already included.
    """
    views = {view.idx: view for view in detail.steps}
    turn_numbers = _turns(views, _followers(detail), also=("undone",))
    return {idx: turn for idx, turn in turn_numbers.items() if _holds_up(views[idx], also=("undone",))}


def span_text(turn_numbers: Collection[int]) -> str:
    """Return turns as people read them: "3", or from the first to the last; "" for none."""
    first, last = min(turn_numbers, default=0), max(turn_numbers, default=0)
    return f"{first}–{last}" if first != last else str(first or "")


def _turns(
    views: Mapping[int, StepView], followers: Mapping[int, AbstractSet[int]], also: Collection[str] = ()
) -> dict[int, int]:
    turn_numbers: dict[int, int] = {}
    for idx in _backward(followers):
        after = max((turn_numbers[follower] for follower in followers[idx]), default=0)
        turn_numbers[idx] = after + _holds_up(views[idx], also)
    return turn_numbers


def _holds_up(view: StepView, also: Collection[str] = ()) -> bool:
    """Whether the steps before this one wait for its undo.

    They do not wait for a step that stays, once that is answered.
    """
    stays = not view.undoable or view.no_return
    is_touched = _is_touched(view) or view.state in also
    return view.kind == "action" and is_touched and (not stays or view.state in ("running", "ready"))


def _blockers(views: Mapping[int, StepView], followers: Mapping[int, AbstractSet[int]]) -> dict[int, str]:
    """Return the steps whose undo is blocked, each with the name of the step that blocks it.

    The blocking step cannot be undone without an operator.
    """
    blockers: dict[int, str] = {}
    for idx in _backward(followers):
        for follower in sorted(followers[idx]):
            if follower in blockers:
                blockers[idx] = blockers[follower]
            elif _is_touched(views[follower]) and fate(views[follower]).stuck:
                blockers[idx] = views[follower].name
    return blockers


def _backward(followers: Mapping[int, AbstractSet[int]]) -> list[int]:
    """Return the steps so that each comes after all that follow it."""
    left = {idx: len(after) for idx, after in followers.items()}
    before: dict[int, list[int]] = {idx: [] for idx in followers}
    for idx, after in followers.items():
        for follower in after:
            before[follower].append(idx)
    order = [idx for idx, count in left.items() if count == 0]
    for idx in order:
        for predecessor in before[idx]:
            left[predecessor] -= 1
            if left[predecessor] == 0:
                order.append(predecessor)
    return order


def _is_touched(view: StepView) -> bool:
    return view.state in TOUCHED or (view.state == "ready" and view.doubt)


def _followers(detail: TaskDetail) -> dict[int, set[int]]:
    """Return the followers of each step, as the rules see them."""
    return {idx: set(after) for idx, after in enumerate(held_task_of(detail).followers)}


def needs_settling(detail: TaskDetail) -> list[str]:
    """Return the steps whose undo waits until an operator has settled them."""
    return [view.name for view in detail.steps if _is_touched(view) and fate(view).stuck]


def undone_text(task: int, cause: str, steps: Sequence[StepView]) -> str:
    """Return one sentence on why a task was undone, and which effects are in place all the same."""
    final = ", ".join(step.name for step in steps if step.stands and step.no_return)
    harmless = ", ".join(step.name for step in steps if step.stands and not step.no_return)
    return (
        f"task {show(task)} was undone: {describe(cause) or 'no cause recorded'}"
        + (f"; {final} cannot be undone and is still in place" if final else "")
        + (f"; harmless effects in place: {harmless}" if harmless else "")
    )


def fate(view: StepView) -> Fate:
    """Return what an undo does with a step."""
    policy = view.plan.policy if view.plan is not None else None
    if view.state == "undoing":
        return Fate("its undo is under way")
    if policy is not None and policy.no_return:
        return Fate("no way back: stays", stays=True)
    if not view.undoable:
        return Fate("nothing to undo: stays", stays=True)
    if view.state == "running" and view.taken_by is None and view.doing is not None and not view.doubt:
        return Fate("no process has claimed it: withdrawn, nothing to undo")
    if view.state in ("running", "ready"):
        return Fate("makegood waits for its answer or deadline, then undoes it")
    if view.state == "in_doubt" and policy is not None:
        return _in_doubt(policy)
    if view.state == "undo_failed":
        return Fate("its undo is tried again")
    return Fate("undone")


def _in_doubt(policy: Policy) -> Fate:
    """Return what an undo does with a step of which it is unknown whether it happened."""
    if policy.never and not policy.probe:
        alone = "must not be repeated: stuck until it is settled by hand"
        return Fate(f"in doubt, and {alone}", alone, stuck=True)
    short = "makegood asks its probe, then " if policy.probe else ""
    if policy.never:
        short += "undone if it happened"
        short += "" if policy.fences else ", else stuck until it is settled by hand"
    elif policy.remembers:
        short += "driven to a definite answer under its key, and undone if it happened"
    else:
        short += "undone if it happened" if policy.fences else "undone as if it were done"
    return Fate(f"in doubt: {short}", short, stuck=policy.never and not policy.fences)
