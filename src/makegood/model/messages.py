"""The messages between actors.

An actor leaves a message in the transaction of the state change that the message announces, and the addressee
takes it by name. A ``Request`` goes from the Scheduler to an Agent. A ``TaskMessage`` goes to a *task*, from
agents (replies), the Supervisor (``expired``), the store (``withdrawn``), timers (``retry``) and operators
(their commands).
"""

from typing import Final, Literal, get_args

import msgspec

from makegood.model.attempt_end import AttemptEnd
from makegood.model.note import Note
from makegood.model.task import Doing, about

Outcome = Literal["done", "permanent", "refused", "later", "gave_up", "happened", "not_happened"]
"""An agent's answer. ``gave_up``: retries within the attempt ran out, or the result could not be encoded."""

REPLIES: Final = frozenset(get_args(Outcome))
"""The kinds of messages that are answers of agents: each uses up its request row."""

MessageKind = Literal[
    "claim",  # a Scheduler took the task from pending, or from sleeping at its moment
    "dead",  # its Scheduler is dead or releases it: back to pending, goal kept
    "rest",  # its Scheduler is nearly full, and lets it go with requests in flight
    "done", "permanent", "refused", "later", "gave_up", "happened", "not_happened",  # replies
    "expired",  # the Supervisor judged the silence of an attempt; failures carries the count
    "withdrawn",  # a request that no agent had taken was withdrawn
    "retry",  # a step's timer is due
    "late",  # a reply that came after its attempt was judged: kept for the undo, changes nothing else; or a note
    "task_expired",  # the task's own complete-by has passed
    "poison",  # the task lost its Scheduler three times in a row: to error with an alert
    "signal",  # somebody sent a value that a step waits for, or will wait for
    "lane_taken",  # a lane of it is taken, and it does not wait
    "cancel", "undo", "resubmit", "settle", "extend", "wake", "release_lane",  # operator commands
]  # fmt: skip

ACTS: frozenset[MessageKind] = frozenset(
    {"cancel", "undo", "resubmit", "settle", "extend", "wake", "release_lane"}
)
"""Operator commands on a task."""

MOST_EXTENSION: Final = 604_800.0
"""Seconds from now to which an operator may move a task's deadline: a week."""


class Request(msgspec.Struct, frozen=True, omit_defaults=True):
    """A Scheduler asks an Agent to do, probe or undo a step.

    The Agent derives key, token and scope from the store's id and generation and (task, step, round, doing,
    attempt).
    """

    task: int
    idx: int
    doing: Doing
    attempt: int
    app: str
    agent: str
    action: str
    step: str
    round: int
    within: float
    """Seconds from the taking to the attempt's deadline, ``delay`` included."""
    args: bytes
    """The action's arguments as one JSON object by parameter name."""
    priority: int = 0
    in_doubt: bool = False
    """For probe and undo: the outcome of the action is unknown."""
    result: bytes | None = None
    """For probe and undo: the action's result as JSON; None when in doubt."""
    late: bytes | None = None
    """For probe and undo: the value of a late reply."""
    isolate: bool = False
    """Its process died twice while running it: it must not run beside a Scheduler."""
    trace: str | None = None
    key_form: str = ""
    """As in ``Policy``."""
    keeps: float = 0.0
    """As in ``Policy``."""
    first_sent: float = 0.0
    """When an agent had the first request under the key of this one, on the store's clock.

    A Scheduler leaves it 0 in that very request: taking it from the store fills it in. One handed over in
    memory has it in ``Decision.handed_at``.
    """
    delay: float = 0.0
    """Seconds from the taking until its agent's rate lets it begin."""
    waited: float = 0.0
    """Seconds that it was in the store before it was taken."""
    taken_at: float = 0.0
    """When it was taken from the store, on the store's clock; 0 if it was handed over in memory."""
    failures: int = 0
    """Failures of its step that count in this direction, without those of processes that died."""


class Act(msgspec.Struct, frozen=True, omit_defaults=True):
    """The author of an operator command, and the reason."""

    id: str
    """The name under which its answer is looked up."""
    who: str = ""
    why: str = ""
    db_user: str = ""
    """The database login that asked, as PostgreSQL itself reports it; "" on SQLite, which has no logins."""


class SignalRef(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """Which signal of a task a message brings. Its value is the message's."""

    name: str
    id: str
    """Unique in the task for its name: a sender that repeats itself uses it again."""
    step: str = ""
    """The only step that may use it; "": any that waits for ``name``."""


class TaskMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """One event in the life of a task, addressed to the task.

    ``idx``, ``doing`` and ``attempt`` name the request that a reply, ``expired`` or ``withdrawn`` is about.
    """

    kind: MessageKind
    idx: int = -1
    """-1: the task."""
    doing: Doing = "do"
    attempt: int = 0
    value: bytes | None = None
    """A result as JSON (done, happened, settle done), or what a signal brings.

    In a resubmission: the inputs that replace those of the step ``idx`` (an object by name) or of the task
    (an array).
    """
    error: str | None = None
    unclear: bool = False
    """An earlier try of this attempt is unanswered."""
    final: bool = False
    """Do not try again although the outcome is in doubt (a result that cannot be encoded)."""
    excused: bool = False
    """With ``gave_up`` and ``expired``: no failure is counted, since the agent's circuit judges that it says
    nothing about the step (see ``breaker``).
    """
    wait: float = 0.0
    """Seconds: until it may be asked again (later), or by which to move the deadline (extend)."""
    failures: int = 0
    """With ``expired``: the step's count after it."""
    died: bool = False
    """With ``expired``: the process that ran the attempt is dead."""
    settled: Literal["", "done", "failed", "undone"] = ""
    """The outcome that an operator states."""
    act: Act | None = None
    seq: int = 0
    """Row in the task's inbox; 0 if handed over in memory."""
    took: float = 0.0
    """Seconds from the taking of a request to the answer, with ``expired`` to its deadline; 0 if unknown."""
    frame: str | None = None
    """With an error: the innermost line of the user's own code."""
    traceback: str | None = None
    first_sent: float = 0.0
    """With a reply other than ``done``, and with ``expired``: the ``first_sent`` of its request; 0 if no
    agent had it.
    """
    signal: SignalRef | None = None
    """With ``signal``."""
    runs_until: float = 0.0
    """With ``expired``, of an attempt whose process died before its deadline: until when it would have been
    awaited, on the store's clock. 0: that time has passed.
    """
    since_cancel: float | None = None
    """With a reply: seconds from the moment when the attempt heard that nobody needs it to its end; None: it
    did not hear of it.
    """
    automatic: bool = False
    """With ``cancel``: no person asked, but a schedule for its next moment, or a task for its lane. These
    have no say in a task that an operator has to decide about.
    """
    note: Note | None = None
    """With ``late``: what a running attempt says of its progress, and no reply. Schedulers of a version that
    knows no notes take it for a late reply that brings nothing.
    """
    due: float = 0.0
    """With ``expired``: the attempt's deadline, as it was last extended, on the store's clock; 0 if unknown.
    """
    node: int = 0
    """The process that ran the attempt, with ``expired`` and with replies through the store. Written last,
    where the stores look for it.
    """


def attempt_end(message: TaskMessage) -> AttemptEnd:
    """Return how the attempt ended that a reply or ``expired`` is about."""
    m = message
    return AttemptEnd(
        m.idx,
        m.attempt,
        m.doing,
        m.kind,
        m.node or None,
        m.took or None,
        m.error,
        m.frame,
        m.traceback,
        due=m.due or None,
    )


def cancel_noted(message: TaskMessage) -> str:
    """Return in words how a reply ended whose attempt heard that nobody needs it; "" for any other.

    >>> cancel_noted(TaskMessage("gave_up", 0, since_cancel=0.412)), cancel_noted(TaskMessage("done", 0))
    ('heard the cancel, ended after 0.4 s', '')
    """
    after = message.since_cancel
    return "" if after is None else f"heard the cancel, ended after {after:.1f} s"


def lateness(end: AttemptEnd, step: str) -> str:
    """Return a late reply in words. ``step``: what they call its step."""
    return f"{end.kind} came too late for {about(end.doing, step)}, attempt {end.attempt}"


class FreshMessage(msgspec.Struct, frozen=True):
    """A message that this process has just put into the inbox of a task, where no other one was."""

    task: int
    node: int | None
    """The node that held the task; None: it was at rest, or asleep."""
    message: TaskMessage


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer to an operator command, written as an audit row in the transaction of the command."""

    act: Act
    kind: MessageKind
    verdict: Literal["applied", "noop", "refused"]
    """``noop``: it was so already."""
    outcome: str = ""
    """What came of it, in words. (``act.why`` is what the operator said.)"""
    state: str = ""
    """The task's state after it."""
    change: bytes | None = None
    """What the command replaced, as JSON: {"step": name or null, "was": ..., "now": ...}.

    For inputs also "steps" that run with other arguments, steps that are "kept" as they were done, and the
    "result".
    """


AlertKind = Literal[
    "step_gave_up",  # a step failed for good: silent or given up past its threshold, or it cannot even be requested
    "undo_stuck",  # the undo of a step failed for good or past its threshold, or cannot be asked
    "near_limit",  # a task has more than 80% of the steps that its app allows
    "held",  # the task is in error: it waits for an operator
    "undo_incomplete",  # the task is in error: not all of it could be undone
    "poison",  # the task was put in error: it may be what kills its Schedulers
    "unreadable",  # the task was put in error: its data is unreadable or refused
    "late_undo",  # an undo is taking longer than ``undo_within``
    "lane_held",  # the task is in error and holds a lane that others wait for
    "starved",  # no process takes the requests for an action
    "circuit_open",  # an agent's service fails: its circuit breaker is open
    "outage",  # it has been for long, and tasks wait for it
    "no_scheduler",  # tasks are waiting and no process claims them
    "no_leader",  # nobody leads: what is overdue is not found
    "dead_letter",  # a message, or a notification, that could not be delivered
    "source_away",  # a broker that orders come from does not answer, or refuses us
    "source_refused",  # messages of a broker that no queue could take: they are dead letters
    "receiver_away",  # a receiver of notices, a broker or a host, takes none
    "schedule",  # a schedule cannot be fired: the database refuses its task, or its row or zone cannot be read
    "role_failing",  # a role of a process meets an exception at each turn
    "generation",  # the store may have gone back in time: a promotion or a restore
    "test",
]


UNTIL_SEEN: frozenset[AlertKind] = frozenset(
    {"generation", "dead_letter", "source_refused", "near_limit", "test"}
)
"""Alerts about something that happened, not about a present state: they end when somebody acknowledges
them.
"""


class Alert(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something an operator must see. While an alert is open, its cause (kind, task, step) raises no
    other.
    """

    kind: AlertKind
    task: int = 0
    step: str = ""
    """A step's name, or "" for the task. Without a task, what the alert is about: an agent ("APP/AGENT"), a
    message's id.
    """
    text: str = ""
