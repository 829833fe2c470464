"""What is wrong with a task, in a sentence."""

from makegood.base import ids
from makegood.base.counts import quantity
from makegood.model.states import Move
from makegood.payload.envelopes import describe
from makegood.store.views import StepView, TaskDetail
from makegood.story.undo_preview import undone_text

MOST = 5
"""Steps that are named one by one, at most; the others are only counted."""


def trouble(detail: TaskDetail) -> list[str]:
    """Return, for each step with a problem, its state and the reason."""
    texts = [
        text
        for step in detail.steps
        if step.kind == "action" and (text := trouble_of(step, detail.task.cause))
    ]
    surplus = len(texts) - MOST
    return [*texts[:MOST], f"and {surplus} more"] if surplus > 0 else texts


def reasons(detail: TaskDetail) -> str:
    """Return why a task is in its state: its cause, and the problems of its steps; "" when nothing is
    known.
    """
    return "; ".join(text for text in (describe(detail.task.cause), *trouble(detail)) if text)


def trouble_of(step: StepView, cause: str = "") -> str:
    """Return what is wrong with a step, unless the task's cause says it already; "" for nothing."""
    if step.state == "undo_failed":
        return f"the undo of {step.name} failed: {step.error or 'no reason recorded'}"
    if step.state == "undoing" and step.failures:
        times = f"has failed {quantity(step.failures, 'time')}"
        return f"the undo of {step.name} {times}: {step.error or 'no reason recorded'}"
    if step.state != "in_doubt":
        return ""
    repeats_cause = step.error is None or step.error in cause  # the cause is often just this
    return f"nobody knows whether {step.name} happened" + ("" if repeats_cause else f": {step.error}")


def ending(detail: TaskDetail) -> str:
    """Return one sentence on how a task that was not processed ended, or on its state while it runs."""
    task = ids.show(detail.task.id)
    in_place = [s for s in detail.steps if s.stands]
    cause = describe(detail.task.cause) or "no cause recorded"
    if detail.task.state == "undone":
        return undone_text(detail.task.id, detail.task.cause, detail.steps)
    how = "in error" if detail.task.state == "error" else detail.task.state
    text = "; ".join(
        [cause, *trouble(detail)] if detail.task.cause or detail.task.state == "error" else trouble(detail)
    )
    standing = ", ".join(s.name for s in in_place) or "nothing"
    return f"task {task} is {how}{': ' if text else ''}{text}; in place or in doubt: {standing}"


def cause_sentence(cause: str, move: Move | None) -> str:
    """Return a task's cause as a sentence. ``move``: the task's move that says why, None if it was not read.

    A cause that begins with a step's name keeps its letters.

    >>> cause_sentence("the deadline passed", Move("task", "processing", "undoing", "deadline"))
    'The deadline passed.'
    """
    if not cause:
        return ""
    has_name = move is None or move.step != "" or move.reason == "held"
    text = cause if has_name else cause[:1].upper() + cause[1:]
    return text if text.endswith(".") else f"{text}."
