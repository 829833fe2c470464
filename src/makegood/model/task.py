"""Tasks, steps and plans: frozen records.

A *plan* is what a workflow function yields when it is run once, at submission: steps with their dependencies,
their arguments as templates, and the template of the result. A *task* is a submitted plan with its state; a *step*
is one row of it. Everything a step declares (``StepPlan``) never changes and is shared between tasks of one shape;
what changes (``Step``) is small.

Arguments are JSON with holes: ``Template.parts`` are the pieces of text around the holes, ``Template.refs`` say what
goes into them, so a user's data needs no escaping and filling in is one join of bytes.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec

from makegood.model.plan import OnFailure, StepPlan, Template
from makegood.model.states import Goal, StepState, TaskState

Doing = Literal["do", "probe", "undo"]
"""What an agent is asked for. (A timer is a row of its own kind, never sent to an agent.)"""

STANDING = frozenset({"done", "in_doubt", "kept", "undoing", "undo_failed", "running"})
"""States of a step whose effect stands, or may stand."""


class Step(msgspec.Struct, frozen=True):
    """A step of a task, with its state.

    ``doing`` is the kind of the one request in flight, None when none is; ``waiting`` says that its timer row exists.
    ``attempt`` counts every hand-out of do, probe and undo alike and is never reset; ``round`` rises when a resubmission
    starts it again. ``failures`` count for the present direction. ``doubt``: an earlier try or attempt of this round is
    unanswered. ``final``: Permanent was answered while in doubt. ``asked``: the last attempt that needs no probe: that of the
    last probe, or the one after which this round began.
    ``stuck``: its undo cannot go on without an operator. ``again``: an operator wants the undo tried again; of a step with a
    request in flight: it was sent before the task turned to undo, so its failure does not count there.
    ``deaths``: times that the process running it died. ``stood``: it was kept in an earlier round, so that effect stands
    whatever becomes of this one.
    ``result`` and ``late`` (a late reply's value, for the undo) are JSON bytes.
    """

    plan: StepPlan
    state: StepState = "waiting"
    doing: Doing | None = None
    waiting: bool = False
    attempt: int = 0
    round: int = 1
    failures: int = 0
    asked: int = 0
    deaths: int = 0
    doubt: bool = False
    final: bool = False
    stuck: bool = False
    again: bool = False
    result: bytes | None = None
    late: bytes | None = None
    error: str | None = None
    stood: bool = False

    @property
    def idx(self) -> int:
        """Position in the task."""
        return self.plan.idx

    @property
    def name(self) -> str:
        """Name, unique in the task."""
        return self.plan.name


class Reply(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """Where a task's submitter wants to hear of its states: ``to`` is "queue:NAME" or a URL; told with ``correlation_id``."""

    to: str
    correlation_id: str | None = None


class Task(msgspec.Struct, frozen=True):
    """A task, without its steps.

    ``within``: seconds from the first claim to its complete-by, None = no limit; ``timed``: its complete-by is set.
    ``undo_within``: seconds after which an undo that is not finished raises an alert. ``cause``: why the goal is no longer
    forward. ``failure_count``: failures of all its steps and lost locks; ``lost``: Schedulers lost in a row, while the
    task may have been the reason.
    ``inputs`` are the workflow's inputs, ``result`` the value of ``returns`` once processed: JSON bytes.
    ``reply``: whom to tell, None = nobody; ``told``: the state that was told last, as the ``notified``-th notice.
    """

    id: int
    app: str
    workflow: str
    key: str | None = None
    state: TaskState = "pending"
    goal: Goal = "forward"
    on_failure: OnFailure = "undo"
    submission: int = 1
    priority: int = 0
    epoch: int = 0
    within: float | None = None
    timed: bool = False
    undo_within: float | None = None
    cause: str = ""
    failure_count: int = 0
    lost: int = 0
    inputs: tuple[bytes, ...] = ()
    returns: Template | None = None
    result: bytes | None = None
    trace: str | None = None
    reply: Reply | None = None
    told: str = ""
    notified: int = 0


def standing(steps: Sequence[Step]) -> list[Step]:
    """Return the steps whose effect stands or may stand: done, in doubt, kept (in an earlier round too), being undone, or
    whose undo failed.
    """
    return [s for s in steps if s.plan.kind == "action" and (s.state in STANDING or s.stood)]
