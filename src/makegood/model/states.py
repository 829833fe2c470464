"""States and the one table of allowed transitions.

``docs/learn/lifecycle.md`` draws it; a test keeps the two equal. Every move of a Decision is looked up
here, and one Decision may chain several. The reasons that a move may have are next to it.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, Literal, TypeVar, get_args, overload

import msgspec

from makegood.errors import IllegalTransitionError

TaskState = Literal["pending", "sleeping", "queued", "processing", "processed", "undoing", "undone", "error"]
StepState = Literal[
    "waiting", "ready", "running", "done", "failed", "in_doubt", "undoing", "undone", "undo_failed", "kept",
    "skipped",
]  # fmt: skip
Goal = Literal["forward", "undo", "hold"]
"""Where a task is going: forward, taking its effects back, or waiting to be handed to an operator."""

AT_REST: Final[frozenset[TaskState]] = frozenset({"processed", "undone", "error"})
"""States of a task in which nothing moves until somebody acts."""

UNBEGUN: Final[frozenset[TaskState]] = frozenset({"pending", "sleeping", "queued"})
"""States of a task that a claim begins, or continues: no Scheduler holds it."""

ENDED: Final[frozenset[TaskState]] = frozenset({"processed", "undone"})
"""States of a task that ended; one in error waits for an operator."""

TaskReason = Literal[
    "claimed", "woken", "complete", "cancelled", "untouched", "deadline", "step_failed", "result_missing", "operator_undo", "held", "reverted",
    "undo_incomplete", "settled", "resubmitted", "released", "suspended", "rested", "scheduler_dead", "scheduler_silent", "new_generation", "unreadable",
    "due", "lane_taken",
]  # fmt: skip
StepReason = Literal[
    "preceded", "branch_not_taken", "item_gone", "branch_lost", "ended_early", "dispatched", "goal_changed", "arguments_missing", "key_too_old", "decided", "reply",
    "refused", "permanent", "permanent_after_silence", "gave_up", "expired", "process_died", "undecided", "later", "withdrawn", "retry", "definite",
    "probe", "fenced", "by_hand", "undo", "undo_again", "nothing_to_undo", "past_return", "undo_failed", "new_round", "put_to_error",
    "signal_came", "timed_out", "no_signal", "moment_came", "woken_early", "workflow_fails", "all_failed", "over_limit",
]  # fmt: skip
Reason = TaskReason | StepReason
"""Why a task or a step moved: a fact of the history. Programs read the code, people its text (``words``)."""

TASK_REASONS: Final[frozenset[str]] = frozenset(get_args(TaskReason))

TEXTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "claimed": "claimed", "woken": "woken before its start", "complete": "every step done or skipped", "cancelled": "cancelled",
        "untouched": "cancelled with nothing in place, in doubt or in flight", "deadline": "the deadline passed",
        "step_failed": "a step failed for good", "result_missing": "the result cannot be put together", "operator_undo": "undo requested",
        "held": "held, and nothing in flight", "reverted": "nothing left to undo",
        "undo_incomplete": "an undo is stuck, and nothing in flight or due", "settled": "the last one settled by hand",
        "resubmitted": "resubmitted", "released": "released by its Scheduler", "suspended": "suspended, it only waits",
        "rested": "let go to make room, its requests wait", "scheduler_dead": "the heartbeat of its scheduler ran out",
        "scheduler_silent": "its scheduler does not answer", "new_generation": "the store began a new generation",
        "unreadable": "it cannot be decided", "due": "its start has come", "lane_taken": "its lane is taken",
        "preceded": "predecessors done or skipped", "branch_not_taken": "its branch is not taken", "item_gone": "no such item any more",
        "branch_lost": "its branch has lost", "ended_early": "the workflow is done",
        "dispatched": "dispatched", "goal_changed": "the goal is no longer forward",
        "arguments_missing": "its arguments cannot be put together", "key_too_old": "its key is too old to be sent again",
        "decided": "decided", "reply": "reply", "refused": "the service reports that nothing is in place", "permanent": "a permanent error",
        "permanent_after_silence": "a permanent error, after an unanswered try", "gave_up": "gave up after its tries", "expired": "no answer by its deadline",
        "process_died": "its process died", "undecided": "undecided", "later": "later", "withdrawn": "withdrawn", "retry": "retry",
        "definite": "driven to a definite answer", "probe": "probe", "fenced": "a fencing probe", "by_hand": "by hand", "undo": "undo",
        "undo_again": "asked again", "nothing_to_undo": "nothing to undo", "past_return": "past return",
        "undo_failed": "the undo failed", "new_round": "a new round", "put_to_error": "put to error",
        "signal_came": "its signal has come", "timed_out": "no signal has come in time", "no_signal": "no signal has come in time",
        "moment_came": "its moment has come", "woken_early": "woken before its moment", "workflow_fails": "the workflow fails there",
        "all_failed": "every branch has failed", "over_limit": "more than its limit",
    }
)  # fmt: skip
"""What people read for a reason, everywhere."""

_TELLING: Final = frozenset(
    {
        "no_signal",
        "step_failed",
        "undo_failed",
        "arguments_missing",
        "unreadable",
        "workflow_fails",
        "all_failed",
        "over_limit",
    }
)
"""Reasons for which the detail says all."""


def words(reason: str, *, step: str = "", detail: str = "", who: str = "") -> str:
    """Return a reason as people read it. A code of another version is shown as it is.

    >>> words("step_failed", step="charge", detail="HTTP 402"), words("cancelled", who="ann", detail="a typo")
    ('charge: HTTP 402', 'cancelled by ann: a typo')
    """
    text = "" if detail and reason in _TELLING else TEXTS.get(reason, reason.replace("_", " "))
    if who:
        text = f"{text} by {who}"
    return ": ".join(filter(None, (step, text, detail)))


class Move(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True, cache_hash=True):
    """One allowed transition of a task or a step.

    It is also the sequence (name, before, after, why).
    """

    name: str
    """ "task", or the step's name."""
    before: str
    after: str
    reason: str
    """A ``Reason``; one of another version is possible, and is shown as it is."""
    step: str = ""
    """Of a task's move: the step that decided it."""
    detail: str = ""
    """An error's text, the number of a round, or what an operator gave as the reason."""
    who: str = ""
    """The operator."""

    @property
    def why(self) -> str:
        """The reason as people read it."""
        return words(self.reason, step=self.step, detail=self.detail, who=self.who)

    @property
    def of_task(self) -> bool:
        """Whether the task moved: a step may be called "task" too."""
        return self.name == "task" and self.reason in TASK_REASONS

    def __iter__(self) -> Iterator[str]:
        """Yield its name, both states, and why."""
        return iter(self[:])

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> tuple[str, ...]: ...
    def __getitem__(self, place: int | slice) -> str | tuple[str, ...]:
        """Return its name, a state, or why, by place."""
        return (self.name, self.before, self.after, self.why)[place]


S = TypeVar("S", TaskState, StepState)
Moves = Mapping[S, Mapping[S, tuple[Reason, ...]]]
"""From a state to the states that may follow, each with the reasons that it may have."""


def _freeze(moves: dict[S, dict[S, tuple[Reason, ...]]]) -> Moves[S]:
    return MappingProxyType({state: MappingProxyType(following) for state, following in moves.items()})


_NOWHERE: Final[Mapping[str, tuple[Reason, ...]]] = MappingProxyType({})
_FREED: Final[tuple[Reason, ...]] = ("released", "scheduler_dead", "scheduler_silent", "new_generation")

TASK_MOVES: Moves[TaskState] = _freeze(
    {
        "pending": {
            "processing": ("claimed",),
            "undoing": ("claimed", "cancelled"),
            "undone": ("untouched",),
        },
        "sleeping": {
            "processing": ("claimed", "woken"),
            "undoing": ("claimed", "cancelled"),
            "undone": ("untouched",),
            "queued": ("due", "woken"),
        },
        "queued": {
            "processing": ("claimed",),
            "undoing": ("claimed",),
            "undone": ("untouched", "lane_taken"),
        },
        "processing": {
            "processed": ("complete",),
            "undoing": ("cancelled", "deadline", "step_failed", "result_missing"),
            "error": ("held", "unreadable"),
            "pending": _FREED,
            "sleeping": ("suspended", "rested", "released"),
        },
        "undoing": {
            "undone": ("reverted",),
            "error": ("undo_incomplete", "unreadable"),
            "pending": _FREED,
            "sleeping": ("suspended", "rested", "released"),
        },
        "error": {
            "pending": ("resubmitted",),
            "processed": ("complete",),
            "undoing": ("operator_undo",),
            "undone": ("settled",),
            "queued": ("resubmitted", "operator_undo"),
        },
        "processed": {"undoing": ("operator_undo",), "queued": ("operator_undo",)},
        "undone": {"pending": ("resubmitted",), "queued": ("resubmitted",)},
    }
)

_PRECEDED: Final[dict[StepState, tuple[Reason, ...]]] = {
    "ready": ("preceded",), "skipped": ("branch_not_taken", "item_gone", "branch_lost", "ended_early"),
}  # fmt: skip
_ROUND: Final[tuple[Reason, ...]] = ("new_round",)

STEP_MOVES: Moves[StepState] = _freeze(
    {
        "waiting": _PRECEDED,
        "ready": {
            "running": ("dispatched",),
            "waiting": ("goal_changed",),
            "skipped": ("branch_lost", "ended_early"),
            "failed": ("arguments_missing",),
            "in_doubt": ("key_too_old",),
        },
        "running": {
            "done": ("reply",),
            "failed": ("refused", "permanent"),
            "in_doubt": (
                "gave_up",
                "expired",
                "process_died",
                "permanent_after_silence",
                "later",
                "withdrawn",
                "undecided",
            ),
            "ready": ("later",),
            "waiting": ("withdrawn", "later"),
        },
        "in_doubt": {
            "running": ("retry", "definite"),
            "done": ("probe", "by_hand"),
            "failed": ("fenced", "probe", "by_hand"),
            "undoing": ("undo",),
            "kept": ("nothing_to_undo", "past_return"),
        },
        "done": {"undoing": ("undo",), "kept": ("nothing_to_undo", "past_return")},
        "failed": {"done": ("by_hand",), "waiting": _ROUND},
        "undoing": {
            "undone": ("reply",),
            "undoing": ("undo_again",),
            "undo_failed": ("undo_failed",),
        },
        "undo_failed": {"undoing": ("undo",), "undone": ("by_hand",)},
        "undone": {"waiting": _ROUND},
        "kept": {"waiting": _ROUND},
        "skipped": {"waiting": _ROUND},
    }
)

CONTROL_MOVES: Moves[StepState] = _freeze(
    {
        "waiting": _PRECEDED,
        "ready": {
            "done": ("decided", "moment_came", "woken_early", "signal_came", "timed_out"),
            "failed": ("arguments_missing", "workflow_fails", "no_signal", "all_failed", "over_limit"),
            "waiting": ("goal_changed",),
            "skipped": ("branch_lost", "ended_early"),
        },
        "done": {"kept": ("nothing_to_undo",)},
        "failed": {"waiting": _ROUND, "done": ("by_hand",)},
        "kept": {"waiting": _ROUND},
        "skipped": {"waiting": _ROUND},
    }
)
"""Moves of control steps (when, merge, each, first and so on): the rules do them themselves, so they are
never in flight.
"""


def check_task(move: Move) -> None:
    """Raise ``IllegalTransitionError`` unless a task may make this move for this reason."""
    _check("task", TASK_MOVES, move)


def check_step(move: Move, *, control: bool = False) -> None:
    """Raise ``IllegalTransitionError`` unless a step (``control``: any but an action) may make this
    move for this reason.
    """
    if control:
        _check("control step", CONTROL_MOVES, move)
    else:
        _check("step", STEP_MOVES, move)


def _check(kind: str, moves: Mapping[Any, Mapping[Any, tuple[Reason, ...]]], move: Move) -> None:
    if move.reason not in moves.get(move.before, _NOWHERE).get(move.after, ()):
        raise IllegalTransitionError(
            f"a {kind} cannot go from {move.before} to {move.after} ({move.reason}); this is a defect of makegood, please report it"
        )
