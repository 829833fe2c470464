"""What can be done about a task, as words of commands.

The rules that decide on acts say which acts are allowed now (``saga.possible_commands``). The command line
prints them, and the console offers them.
"""

import shlex
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from makegood import saga
from makegood.base import ids
from makegood.errors import StoreError
from makegood.model.messages import TaskMessage
from makegood.model.states import AT_REST, UNBEGUN
from makegood.saga.acts import may_settle
from makegood.store.views import TaskDetail
from makegood.story.held_tasks import held_task_of, step_of, task_of
from makegood.story.trouble import MOST, trouble
from makegood.story.undo_preview import needs_settling

_OUTCOMES: Mapping[str, tuple[tuple[str, ...], str]] = {
    "done": (("--done", "VALUE"), "it happened; VALUE is its result, as JSON"),
    "failed": (("--not-done",), "it did not happen, and certainly cannot any more"),
    "undone": (("--undone",), "somebody has undone its effect by hand"),
}


class Remedy(NamedTuple):
    """A command that makes sense now."""

    act: str
    words: tuple[str, ...]
    """The words after ``makegood``."""
    means: str
    step: str | None = None
    outcome: str | None = None
    """The outcome that a settlement states."""


# -- what can be done ----------------------------------------------------------------------------------------


def remedies(detail: TaskDetail) -> list[Remedy]:
    """Return what can be done about a task in error, or with a step in doubt or one that cannot be undone.

    Nothing for any other task.
    """
    if detail.unreadable or not (detail.task.state == "error" or trouble(detail)):
        return []
    task = ids.show(detail.task.id)
    names = {step.idx: step.name for step in detail.steps}
    choices = [_remedy(detail, task, message, names) for message in allowed_commands(detail)]
    if detail.task.state not in AT_REST:
        choices.append(
            Remedy("watch", ("task", "watch", task), "it continues by itself: follow it to its end")
        )
    if detail.task.state == "error" and (waits := sum(place.behind for place in detail.lanes)):
        means = f"let {'one' if waits == 1 else 'those'} continue that {'waits' if waits == 1 else 'wait'} for its lanes"
        choices.append(Remedy("release_lane", ("lane", "release", task), means))
    if needs_settling(detail):  # until then an undo, or a resubmission, would come to the same end
        choices.sort(key=lambda remedy: remedy.act != "settle")
    return choices


_BY_STATE: Mapping[str, tuple[Literal["wake", "cancel", "undo", "resubmit"], ...]] = {
    "pending": ("cancel",), "sleeping": ("wake", "cancel"), "queued": ("cancel",), "processing": ("cancel",), "processed": ("undo",), "undone": ("resubmit",), "error": ("undo", "resubmit"),
}  # fmt: skip


def allowed_commands(detail: TaskDetail) -> list[TaskMessage]:
    """Return the commands that the rules would carry out now. Raises ``StoreError`` for unreadable rows.

    If only some of the task's steps were read: those that its state allows, and settlements of these steps.
    """
    if detail.unreadable:
        raise StoreError("; ".join(detail.unreadable))
    if detail.tally is None:
        return saga.possible_commands(held_task_of(detail))
    task = task_of(detail)
    settlements = [
        TaskMessage("settle", step.idx, settled=outcome)
        for step in detail.steps
        if step.plan is not None
        for outcome in may_settle(task, step_of(step, step.plan))
    ]
    kinds = _BY_STATE.get(task.state, ()) if task.goal == "forward" or task.state not in UNBEGUN else ()
    if detail.task.state == "sleeping" and detail.task.starts is None:  # only a start is brought forward
        kinds = kinds[1:]
    return [*map(TaskMessage, kinds), *settlements]


def _remedy(detail: TaskDetail, task: str, message: TaskMessage, names: Mapping[int, str]) -> Remedy:
    kind = message.kind
    if kind == "settle":
        flags, means = _OUTCOMES[message.settled]
        name = names[message.idx]
        words = ("task", "settle", task, "--step", name, *flags, "--reason", "HOW YOU KNOW")
        return Remedy(kind, words, means, name, message.settled)
    cautions = [] if detail.tally is not None else saga.warnings(held_task_of(detail), kind, detail.now)
    means = {
        "undo": _undo_means(detail, cautions),
        "cancel": "end it: undo what it did",
        "wake": "end its sleep now",
        "resubmit": "send it forward again: what failed or was undone runs again" + _correction(detail),
    }[kind]
    return Remedy(kind, ("task", kind, task), "; ".join([means, *cautions]))


def _correction(detail: TaskDetail) -> str:
    """Return how to correct a step's arguments: a refused step that is sent again unchanged is refused
    again.
    """
    step_name = next(
        (step.name for step in detail.steps if step.kind == "action" and step.state == "failed"), None
    )
    return "" if step_name is None else f", corrected by --step {shlex.quote(step_name)} --input JSON"


def _undo_means(detail: TaskDetail, cautions: Sequence[str]) -> str:
    if stuck_steps := needs_settling(detail):
        return f"undo what is left, once {', '.join(stuck_steps[:MOST])} is settled"
    if step_names := [step.name for step in detail.steps if step.state == "undo_failed"]:
        return f"try the undo of {', '.join(step_names[:MOST])} again, then undo what is left"
    if detail.task.goal != "undo":
        return "end it: undo what it did"
    doubts = [] if cautions else [step.name for step in detail.steps if step.state == "in_doubt"]
    question = f"find out again whether {', '.join(doubts[:MOST])} happened, then " if doubts else ""
    return f"{question}undo what is left"
