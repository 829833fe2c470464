"""What is wrong with a task, in a sentence, and what can be done about it, as words of commands.

The rules that decide on acts say which acts are allowed now (``saga.lawful``). The command line prints them,
and the console offers them.
"""

import shlex
from collections.abc import Mapping
from typing import NamedTuple

from makegood import saga
from makegood.base import ids
from makegood.base.counts import counted
from makegood.client.replanning import held
from makegood.client.undo_preview import needs_settling, undone_text
from makegood.model.messages import TaskMessage
from makegood.model.states import AT_REST
from makegood.store.views import StepView, TaskDetail

MOST = 5
"""Steps that are named one by one, at most; the others are only counted."""

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
    settled: str | None = None
    """The outcome that a settlement states."""


# -- what is wrong -------------------------------------------------------------------------------------------


def trouble(found: TaskDetail) -> list[str]:
    """Return, for each step with a problem, its state and the reason."""
    said = [
        text for step in found.steps if step.kind == "action" and (text := trouble_of(step, found.task.cause))
    ]
    more = len(said) - MOST
    return [*said[:MOST], f"and {more} more"] if more > 0 else said


def reasons(found: TaskDetail) -> str:
    """Return why a task is in its state: its cause, and the problems of its steps; "" when nothing is
    known.
    """
    return "; ".join(text for text in (found.task.cause, *trouble(found)) if text)


def trouble_of(step: StepView, cause: str = "") -> str:
    """Return what is wrong with a step, unless the task's cause says it already; "" for nothing."""
    if step.state == "undo_failed":
        return f"the undo of {step.name} failed: {step.error or 'no reason recorded'}"
    if step.state == "undoing" and step.failures:
        times = f"has failed {counted(step.failures, 'time')}"
        return f"the undo of {step.name} {times}: {step.error or 'no reason recorded'}"
    if step.state != "in_doubt":
        return ""
    told = step.error is None or step.error in cause  # the cause is often just this
    return f"nobody knows whether {step.name} happened" + ("" if told else f": {step.error}")


def ending(found: TaskDetail) -> str:
    """Return one sentence on how a task that was not processed ended, or on its state while it runs."""
    task = ids.show(found.task.id)
    stands = [s for s in found.steps if s.stands]
    cause = found.task.cause or "no cause recorded"
    if found.task.state == "undone":
        return undone_text(found.task.id, found.task.cause, found.steps)
    how = "in error" if found.task.state == "error" else found.task.state
    told = "; ".join(
        [cause, *trouble(found)] if found.task.cause or found.task.state == "error" else trouble(found)
    )
    standing = ", ".join(s.name for s in stands) or "nothing"
    return f"task {task} is {how}{': ' if told else ''}{told}; in place or in doubt: {standing}"


# -- what can be done ----------------------------------------------------------------------------------------


def remedies(found: TaskDetail) -> list[Remedy]:
    """Return what can be done about a task in error, or with a step in doubt or one that cannot be undone.

    Nothing for any other task.
    """
    if found.unreadable or not (found.task.state == "error" or trouble(found)):
        return []
    task = ids.show(found.task.id)
    names = {step.idx: step.name for step in found.steps}
    made = [_remedy(found, task, message, names) for message in saga.lawful(held(found))]
    if found.task.state not in AT_REST:
        made.append(Remedy("watch", ("task", "watch", task), "it continues by itself: follow it to its end"))
    if needs_settling(found):  # until then an undo, or a resubmission, would come to the same end
        made.sort(key=lambda remedy: remedy.act != "settle")
    return made


def _remedy(found: TaskDetail, task: str, message: TaskMessage, names: Mapping[int, str]) -> Remedy:
    kind = message.kind
    if kind == "settle":
        flags, means = _OUTCOMES[message.settled]
        name = names[message.idx]
        words = ("task", "settle", task, "--step", name, *flags, "--reason", "HOW YOU KNOW")
        return Remedy(kind, words, means, name, message.settled)
    means = {
        "undo": _undo_means(found),
        "cancel": "end it: undo what it did",
        "resubmit": "send it forward again: what failed or was undone runs again" + _correction(found),
    }[kind]
    return Remedy(kind, ("task", kind, task), means)


def _correction(found: TaskDetail) -> str:
    """Return how to correct a step's arguments: a refused step that is sent again unchanged is refused
    again.
    """
    failed = next(
        (step.name for step in found.steps if step.kind == "action" and step.state == "failed"), None
    )
    return "" if failed is None else f", corrected by --step {shlex.quote(failed)} --input JSON"


def _undo_means(found: TaskDetail) -> str:
    if stuck := needs_settling(found):
        return f"undo what is left, once {', '.join(stuck[:MOST])} is settled"
    if failed := [step.name for step in found.steps if step.state == "undo_failed"]:
        return f"try the undo of {', '.join(failed[:MOST])} again, then undo what is left"
    return "undo what is left" if found.task.goal == "undo" else "end it: undo what it did"
