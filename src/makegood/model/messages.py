"""What the actors say to each other.

There is one kind of arrow: an actor leaves a message in the transaction of the state change that it announces, and the
addressee takes it by name. ``Request`` goes from the Scheduler to an Agent; ``Message`` goes to a *task*, from
agents (replies), the Supervisor (``expired``), the store (``withdrawn``), timers (``retry``) and operators (acts).
"""

from typing import Literal

import msgspec

from makegood.model.task import Doing

Outcome = Literal["done", "permanent", "refused", "later", "gave_up", "happened", "not_happened"]
"""How an agent answers. ``gave_up``: retries within the attempt ran out, or the result could not be encoded."""

MessageKind = Literal[
    "claim",  # a Scheduler took the task from pending
    "dead",  # its Scheduler is dead or gives it back: back to pending, goal kept
    "done", "permanent", "refused", "later", "gave_up", "happened", "not_happened",  # replies
    "expired",  # the Supervisor judged the silence of an attempt; failures carries the count
    "withdrawn",  # a request that no agent had taken was taken back
    "retry",  # a step's timer is due
    "late",  # a reply that came after its attempt was judged: kept for the undo, changes nothing else
    "task_expired",  # the task's own complete-by has passed
    "poison",  # the task lost its Scheduler three times in a row: to error with an alert
    "cancel", "undo", "resubmit", "settle",  # operators' acts
]  # fmt: skip

ACTS: frozenset[MessageKind] = frozenset({"cancel", "undo", "resubmit", "settle"})
"""What operators ask of a task."""


class Request(msgspec.Struct, frozen=True, omit_defaults=True):
    """A Scheduler asks an Agent to do, probe or undo a step.

    ``args`` are the action's arguments as one JSON object by parameter name. For probe and undo: ``in_doubt`` says that
    the outcome of the do is unknown, ``result`` is its result (None when in doubt), ``late`` a late reply's value.
    ``final``: the result cannot be had. ``within``: seconds from the taking to the attempt's complete-by. ``isolate``: its
    process died twice under it; it must not run beside a Scheduler. ``delay``: seconds from the taking to where its agent's rate lets
    it begin (``within`` includes them). ``waited``: seconds that it lay in the store before it was taken. Key, token and scope are made by the Agent from the
    store's id and generation and (task, step, round, doing, attempt).
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
    args: bytes
    priority: int = 0
    in_doubt: bool = False
    result: bytes | None = None
    late: bytes | None = None
    isolate: bool = False
    trace: str | None = None
    delay: float = 0.0
    waited: float = 0.0


class Act(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who asked for an operator's act, when the answer is looked for under ``id``, and why. ``db_user``: the login of the database
    under which it was asked for, as PostgreSQL itself says; "" on SQLite, which has no logins.
    """

    id: str
    who: str = ""
    why: str = ""
    db_user: str = ""


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """One event in the life of a task, addressed to the task.

    ``idx``, ``doing`` and ``attempt`` name the request a reply, ``expired`` or ``withdrawn`` is about (idx -1: the task).
    ``value``: a result as JSON bytes (done, happened, settle done). ``unclear``: an earlier try of this attempt is
    unanswered. ``final``: do not try again although the outcome is in doubt (a result that cannot be encoded). ``excused``: with
    ``gave_up``, no failure is counted: it says nothing about the step, as its agent's circuit judges (see ``breaker``).
    ``wait``: seconds (later). ``failures``, ``died``: with ``expired``, the step's count after it, and whether the process
    that ran it is dead; ``node``: that process, written last, where the stores look for it. ``settled``: what an operator
    states. ``value`` of a resubmission: the inputs that replace those of the step ``idx`` (an object by name) or of the task
    (an array). ``seq``: row in the task's inbox, 0 when handed over in memory.
    """

    kind: MessageKind
    idx: int = -1
    doing: Doing = "do"
    attempt: int = 0
    value: bytes | None = None
    error: str | None = None
    unclear: bool = False
    final: bool = False
    excused: bool = False
    wait: float = 0.0
    failures: int = 0
    died: bool = False
    settled: Literal["", "done", "failed", "undone"] = ""
    act: Act | None = None
    seq: int = 0
    node: int = 0


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of an operator's act: its verdict is ``applied``, ``noop`` (it was so already) or ``refused``.

    Written as an audit row in the transaction of the act. ``outcome``: what came of it, in words (``act.why`` is what the operator
    said). ``state`` is the task's state after it. ``change``: what the act replaced, as JSON: {"step": name or null, "was": ...,
    "now": ...}; of inputs also "steps" that run with other arguments, steps that are "kept" as they were done, and the "result".
    """

    act: Act
    kind: MessageKind
    verdict: Literal["applied", "noop", "refused"]
    outcome: str = ""
    state: str = ""
    change: bytes | None = None


AlertKind = Literal[
    "step_failed",  # a step failed for good: silent or given up past its threshold, or it cannot even be asked
    "undo_stuck",  # the undo of a step failed for good or past its threshold, or cannot be asked
    "held",  # the task is in error: held for an operator
    "undo_incomplete",  # the task is in error: not all of it could be undone
    "poison",  # the task is put to error: it may be what kills its Schedulers
    "guilty",  # the task is put to error: its data do not read, or are refused; without a task: a role meets an exception at each turn
    "late_undo",  # an undo goes on for longer than ``undo_within``
    "starved",  # no process takes the requests for an action
    "circuit_open",  # an agent's service fails: its circuit breaker is open
    "outage",  # it has been for long, and tasks wait for it
    "no_scheduler",  # tasks wait and no process claims them
    "no_leader",  # nobody leads: what is overdue is not found
    "dead_letter",  # a message, or a notification, that could not be delivered
    "generation",  # the store may have gone back in time: a promotion or a restore
    "test",
]

UNTIL_SEEN: frozenset[AlertKind] = frozenset({"generation", "dead_letter", "test"})
"""Alerts about what has happened rather than about what is so: they end when somebody acknowledges them."""


class Alert(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something an operator must see. ``step`` is a step's name, "" for the task; of an alert that belongs to no task, what it
    is about: an agent ("APP/AGENT"), a message's id. One cause (kind, task, step) is raised once while it stands.
    """

    kind: AlertKind
    task: int = 0
    step: str = ""
    text: str = ""
