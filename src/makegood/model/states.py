"""States and the one table of allowed transitions.

``docs/learn/lifecycle.md`` draws it; a test keeps the two equal. Every move of a Decision is looked up
here, and one Decision may chain several. The reasons are next to the moves.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal, TypeVar

from makegood.errors import IllegalTransitionError

TaskState = Literal["pending", "processing", "processed", "undoing", "undone", "error"]
StepState = Literal[
    "waiting", "ready", "running", "done", "failed", "in_doubt", "undoing", "undone", "undo_failed", "kept",
    "skipped",
]  # fmt: skip
Goal = Literal["forward", "undo", "hold"]
"""Where a task is going: forward, taking its effects back, or waiting to be handed to an operator."""

AT_REST: Final[frozenset[TaskState]] = frozenset({"processed", "undone", "error"})
"""States of a task in which nothing moves until somebody acts."""

ENDED: Final[frozenset[TaskState]] = frozenset({"processed", "undone"})
"""States of a task that ended; one in error waits for an operator."""

S = TypeVar("S", TaskState, StepState)
Moves = Mapping[S, Mapping[S, str]]
"""From a state to the states that may follow, each with its reason."""


def _frozen(moves: dict[S, dict[S, str]]) -> Moves[S]:
    return MappingProxyType({state: MappingProxyType(following) for state, following in moves.items()})


TASK_MOVES: Moves[TaskState] = _frozen(
    {
        "pending": {
            "processing": "claimed",
            "undoing": "claimed with goal undo, or cancelled",
            "undone": "cancelled with nothing in place, in doubt or in flight",
        },
        "processing": {
            "processed": "every step done or skipped",
            "undoing": "cancelled, deadline passed, or a step failed for good",
            "error": "held, and nothing in flight",
            "pending": "its Scheduler is dead or releases it",
        },
        "undoing": {
            "undone": "nothing left to undo",
            "error": "an undo is stuck, and nothing in flight or due",
            "pending": "its Scheduler is dead or releases it",
        },
        "error": {
            "pending": "resubmitted",
            "processed": "held, and everything settled by hand",
            "undoing": "an operator's undo or cancel",
            "undone": "undo incomplete, and the last one settled by hand",
        },
        "processed": {"undoing": "an operator's undo"},
        "undone": {"pending": "resubmitted: submission + 1"},
    }
)

STEP_MOVES: Moves[StepState] = _frozen(
    {
        "waiting": {"ready": "predecessors done or skipped", "skipped": "its branch is not taken"},
        "ready": {
            "running": "dispatched",
            "waiting": "the goal is no longer forward",
            "failed": "its arguments cannot be put together",
        },
        "running": {
            "done": "a reply",
            "failed": "a certain refusal",
            "in_doubt": "silence, gave up, or taken back with an earlier attempt unanswered",
            "ready": "asked to come back later",
            "waiting": "taken back, or asked to come back later when the goal is no longer forward",
        },
        "in_doubt": {
            "running": "retry, or driven to a definite answer before its undo",
            "done": "a probe, or by hand",
            "failed": "a fencing probe, or by hand",
            "undoing": "undo",
            "kept": "nothing to undo",
        },
        "done": {"undoing": "undo", "kept": "nothing to undo, or past return"},
        "failed": {"done": "by hand, held only", "waiting": "resubmitted: round + 1"},
        "undoing": {
            "undone": "a reply",
            "undoing": "asked again: attempt + 1",
            "undo_failed": "past the threshold, or for good",
        },
        "undo_failed": {"undoing": "an operator's undo", "undone": "by hand"},
        "undone": {"waiting": "resubmitted: round + 1"},
        "kept": {"waiting": "resubmitted: round + 1"},
        "skipped": {"waiting": "decided again: round + 1"},
    }
)

CONTROL_MOVES: Moves[StepState] = _frozen(
    {
        "waiting": {"ready": "predecessors done or skipped", "skipped": "its branch is not taken"},
        "ready": {"done": "decided", "failed": "what it decides on is missing or over its limit"},
        "done": {"kept": "nothing to undo"},
        "failed": {"waiting": "resubmitted: round + 1"},
        "kept": {"waiting": "resubmitted: round + 1"},
        "skipped": {"waiting": "decided again: round + 1"},
    }
)
"""Moves of control steps (when, merge, each, gather): the rules do them themselves, so they are never in
flight.
"""


def check_task(before: TaskState, after: TaskState) -> None:
    """Raise ``IllegalTransitionError`` unless a task may go from ``before`` to ``after``."""
    if after not in TASK_MOVES[before]:
        raise IllegalTransitionError(
            f"a task cannot go from {before} to {after}; this is a defect of makegood, please report it"
        )


def check_step(before: StepState, after: StepState, *, control: bool = False) -> None:
    """Raise ``IllegalTransitionError`` unless a step (``control``: when, merge, each, gather) may make this
    move.
    """
    if after not in (CONTROL_MOVES if control else STEP_MOVES).get(before, ()):
        what = "control step" if control else "step"
        raise IllegalTransitionError(
            f"a {what} cannot go from {before} to {after}; this is a defect of makegood, please report it"
        )
