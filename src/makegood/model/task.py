"""Tasks and steps: frozen records.

Running a workflow function once, at submission, gives a *plan*: steps with their dependencies, their
arguments as templates, and the template of the result. A *task* is a submitted plan with its state; a *step*
is one row of it. What a step declares (``StepPlan``) never changes and is shared between tasks of one shape;
what changes (``Step``) is small.

Arguments are JSON with holes: ``Template.parts`` are the pieces of text around the holes, ``Template.refs``
say what goes into them. So a user's data needs no escaping, and filling in is one join of bytes.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec

from makegood.model.plan import OnFailure, Signals, StepPlan, Template
from makegood.model.states import Goal, StepState, TaskState

Doing = Literal["do", "probe", "undo"]
"""What an agent is asked for. (A timer is a row of its own kind, never sent to an agent.)"""


def about(doing: str, what: str) -> str:
    """Return what an attempt is about, for people.

    >>> about("do", "step 3"), about("undo", "step 3")
    ('step 3', 'the undo of step 3')
    """
    return what if doing == "do" else f"the {doing} of {what}"


STANDING = frozenset({"done", "in_doubt", "kept", "undoing", "undo_failed", "running"})
"""States of a step whose effect is, or may be, still in place."""


class FailureTally(msgspec.Struct, frozen=True, array_like=True):
    """How many of a step's failures in the present direction have words.

    A silence has none, and does not hide the reason that an earlier failure gave.
    """

    with_words: int
    """How many came with an error's text; the step's ``error`` is the last one's."""
    silences: int = 0
    """How many came after it, without one."""
    by_death: bool = False
    """The last of these was the death of the process that ran the step."""


class Step(msgspec.Struct, frozen=True):
    """A step of a task, with its state."""

    plan: StepPlan
    state: StepState = "waiting"
    doing: Doing | None = None
    """The kind of the one request in flight; None if there is none."""
    waiting: bool = False
    """Its timer row exists."""
    attempt: int = 0
    """Counts every request, be it do, probe or undo; never reset."""
    round: int = 1
    """Rises when a resubmission restarts the step."""
    failures: int = 0
    """Failures in the present direction."""
    asked: int = 0
    """The last attempt that needs no probe: that of the last probe, or the one after which this round
    began.
    """
    deaths: int = 0
    """Times that the process running it died."""
    doubt: bool = False
    """An earlier try or attempt of this round is unanswered."""
    final: bool = False
    """Permanent was answered while the step was in doubt."""
    stuck: bool = False
    """Its undo cannot continue without an operator."""
    again: bool = False
    """An operator wants the undo tried again.

    With a request in flight: the request was sent before the task turned to undo, so its failure does not
    count there.
    """
    result: bytes | None = None
    """JSON."""
    late: bytes | None = None
    """A late reply's value as JSON, for the undo."""
    error: str | None = None
    stood: bool = False
    """It was kept in an earlier round, so that effect is in place whatever becomes of this round."""
    first_sent: float = 0.0
    """When an agent had the first request of this round in the present direction, on the store's clock.

    0: none was had yet, or only the one in flight, whose row has the time.
    """
    probe_answer: bool = False
    """Its probe was answered after the action's last failure, so the service is there."""
    tally: FailureTally | None = None
    """None: no failure that counts has words."""
    runs_until: float = 0.0
    """Until when, on the store's clock, an earlier attempt may still run: its process seemed dead, and may
    only be slow. No undo begins before that. 0: there is none.
    """
    loser: bool = False
    """It is of a branch that has lost: it is skipped, or undone while the task goes forward."""

    @property
    def idx(self) -> int:
        """Position in the task."""
        return self.plan.idx

    @property
    def name(self) -> str:
        """Name, unique in the task."""
        return self.plan.name


class ReplyTo(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """Where a task's submitter wants to be notified of its states."""

    to: str
    """"queue:NAME" or a URL."""
    correlation_id: str | None = None
    """Sent along with every notice."""
    notes: bool = False
    """Whether the notes of its actions are wanted too."""


class TaskRecord(msgspec.Struct, frozen=True):
    """A task, without its steps."""

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
    """Seconds from the first claim to its deadline; None: no limit."""
    timed: bool = False
    """Its deadline is set."""
    undo_within: float | None = None
    """Seconds after which an unfinished undo raises an alert."""
    cause: str = ""
    """Why the goal is no longer forward."""
    failure_count: int = 0
    """Failures of all its steps, and lost locks."""
    lost: int = 0
    """Schedulers lost in a row while the task may have been the reason."""
    inputs: tuple[bytes, ...] = ()
    """The workflow's inputs as JSON."""
    returns: Template | None = None
    result: bytes | None = None
    """The value of ``returns`` as JSON, once processed."""
    trace: str | None = None
    reply: ReplyTo | None = None
    """Whom to notify; None: nobody."""
    told: str = ""
    """The last state that the submitter was notified of."""
    notified: int = 0
    """Number of notices so far."""
    names: tuple[str, ...] = ()
    """The names of the workflow's parameters, one for each input."""
    signals: Signals = ()
    """The signals that its steps wait for."""
    lanes: tuple[str, ...] = ()
    """The names of its lanes."""


def standing(steps: Sequence[Step]) -> list[Step]:
    """Return the steps whose effect is, or may be, still in place.

    These are done, in doubt, kept (in an earlier round too), running, being undone, or their undo failed.
    """
    return [s for s in steps if s.plan.kind == "action" and (s.state in STANDING or s.stood)]
