"""What people see of the store: tasks, steps, alerts, nodes and agents, as reads return them."""

from typing import Literal

import msgspec

from makegood.base.text import refuse_unstorable
from makegood.election.protocol import Grant as Grant  # noqa: PLC0414 - given on: a record like the others
from makegood.election.protocol import LeaseView as LeaseView  # noqa: PLC0414 - given on: a record like the others
from makegood.election.protocol import PastTerm as PastTerm  # noqa: PLC0414 - given on: a record like the others
from makegood.errors import ConfigError
from makegood.model.decision import Move
from makegood.model.messages import Act, AlertKind, MessageKind
from makegood.model.plan import StepPlan, Template
from makegood.model.states import Goal, StepState, TaskState
from makegood.model.task import STANDING

Severity = Literal["ok", "note", "warning", "error"]
"""How bad a finding is. note: good to know; warning: it works and will not always; error: it does not do what is promised."""


class Finding(msgspec.Struct, frozen=True):
    """What an examination found. ``check``: what was looked at, one word; ``what``: a sentence; ``remedy``: what to do, "" when ok."""

    check: str
    severity: Severity
    what: str
    remedy: str = ""


class AgentInfo(msgspec.Struct, frozen=True):
    """What a node publishes of one agent: "APP/AGENT", slots, slots in use, calls since start, failed ones, mean seconds a call.

    ``success``: the share that was answered of the latest twenty calls or so, None before the first; for people, nothing decides by it. ``circuit``: closed, open, half-open,
    release, "" without a breaker; ``reset``: seconds until an open one lets a call through; ``most``: calls that it lets be in
    flight. ``rate``: calls a second over all processes. ``overdue``: slots in use by calls that still run past their complete-by.
    ``heard``: seconds since the service answered this process last, as far as a breaker notes it; None: never.
    """

    agent: str
    slots: int
    used: int = 0
    calls: int = 0
    failed: int = 0
    seconds: float = 0.0
    success: float | None = None
    circuit: str = ""
    reset: float = 0.0
    most: int | None = None
    rate: float | None = None
    overdue: int = 0
    heard: float | None = None


class NodeInfo(msgspec.Struct, frozen=True):
    """What a process says of itself. ``ttl``: seconds until it counts as dead without a further heartbeat."""

    name: str
    roles: tuple[str, ...]
    host: str
    pid: int
    ttl: float
    agents: tuple[AgentInfo, ...] = ()
    held: int = 0


class NodeView(msgspec.Struct, frozen=True):
    """A node as others see it: ``remaining`` seconds of life (negative: dead), ``stopped`` in good order or not."""

    id: int
    info: NodeInfo
    started: float
    remaining: float
    stopped: bool
    dead: bool
    waiting: dict[str, int] = {}


class Filter(msgspec.Struct, frozen=True):
    """Which tasks: all conditions must hold, empty ones do not matter. ``before``: ids below this one (paging). ``older``,
    ``younger``: submitted at least, or at most, so many seconds ago.
    """

    ids: tuple[int, ...] = ()
    states: tuple[TaskState, ...] = ()
    app: str | None = None
    workflow: str | None = None
    key: str | None = None
    limit: int = 100
    before: int | None = None
    older: float | None = None
    younger: float | None = None

    def __post_init__(self) -> None:
        """Raise ``ConfigError`` for a text that no store has."""
        refuse_unstorable(ConfigError, app=self.app, workflow=self.workflow, key=self.key)


class TaskView(msgspec.Struct, frozen=True):
    """A task as people and handles see it."""

    id: int
    app: str
    workflow: str
    key: str | None
    state: TaskState
    goal: Goal
    submission: int
    priority: int
    cause: str
    failure_count: int
    locked_by: int | None
    epoch: int
    correlation_id: str | None
    created: float
    ended: float | None
    complete_by: float | None
    result: bytes | None = None


class StepView(msgspec.Struct, frozen=True):
    """A step as people see it. ``doing`` and ``taken_by`` describe the request in flight; ``due``: seconds until its complete-by
    (or its timer, when ``waiting``). ``plan`` is what the step declares: whom it follows, its policy, the body of an ``each``.
    ``stood``: it was kept in an earlier round. Without a ``plan`` that reads it counts as ``undoable``.
    """

    idx: int
    kind: str
    name: str
    agent: str
    action: str
    state: StepState
    attempt: int
    round: int
    failures: int
    doubt: bool
    undoable: bool
    result: bytes | None = None
    error: str | None = None
    doing: str | None = None
    waiting: bool = False
    taken_by: int | None = None
    due: float | None = None
    plan: StepPlan | None = None
    stood: bool = False

    @property
    def stands(self) -> bool:
        """Whether an effect of the step stands or may stand: of this round, or of an earlier one that was kept."""
        return self.kind == "action" and (self.state in STANDING or self.stood)

    @property
    def no_return(self) -> bool:
        """Whether the step's effect can never be taken back: where it stands, it is no harmless one."""
        return self.plan is not None and self.plan.policy is not None and self.plan.policy.no_return


class Asked(msgspec.Struct, frozen=True):
    """An operator's act that is not decided: no Scheduler has taken its message. ``idx``: the step that it is about, -1 for none."""

    kind: MessageKind
    act: Act
    idx: int
    at: float


class TaskDetail(msgspec.Struct, frozen=True):
    """A task with its steps and inputs. ``reply_to``: where its submitter is told of its states. ``unreadable``: what of its rows does
    not read, in words; such a step has no ``plan``. ``asked``: acts that are not decided, oldest first, if they were asked for.
    ``returns``: what the result is made of.
    """

    task: TaskView
    steps: list[StepView]
    inputs: tuple[bytes, ...] = ()
    reply_to: str | None = None
    unreadable: tuple[str, ...] = ()
    asked: tuple[Asked, ...] = ()
    returns: Template | None = None


class EventView(msgspec.Struct, frozen=True):
    """One row of a task's history: what one commit moved. ``node`` wrote it; ``note``: late replies, acts."""

    seq: int
    task: int
    at: float
    node: int | None
    moves: list[Move]
    note: str = ""


class AlertView(msgspec.Struct, frozen=True):
    """An alert as stored. ``ended``: when its cause had gone, and why; ``acked``: when somebody acknowledged it, who, why.
    ``logged``, ``told`` (by webhook): 0 not yet, 1 that it was raised, 2 that it ended as well. ``tries``: posts since it was last told
    that the webhook did not take.
    """

    id: int
    kind: AlertKind
    task: int | None
    step: str
    text: str
    at: float
    ended: float | None = None
    ended_why: str = ""
    acked: float | None = None
    acked_by: str = ""
    acked_why: str = ""
    logged: int = 0
    told: int = 0
    tries: int = 0

    @property
    def open(self) -> bool:
        """Whether its cause stands and nobody has acknowledged it."""
        return self.ended is None and self.acked is None


class Telling(msgspec.Struct, frozen=True):
    """An alert that is to be told: that it was ``raised``, that it has ended (``alert.ended``), or both. ``tries`` so far."""

    alert: AlertView
    raised: bool
    tries: int = 0


class AuditView(msgspec.Struct, frozen=True):
    """An operator's act and what became of it. ``task``: None when it is about none, such as an alert that belongs to no task.
    ``why``: what the operator said; ``outcome``: what came of it. ``change``: what it replaced, as JSON: see ``Answer``. ``db_user``: the
    login of the database under which it was asked for; None on SQLite, and for acts of an older version.
    """

    act: str
    task: int | None
    kind: str
    who: str
    why: str
    verdict: str
    outcome: str
    state: str
    at: float
    change: bytes | None = None
    db_user: str | None = None


class TaskFigures(msgspec.Struct, frozen=True):
    """How much there is, for those who watch: tasks that have not ended, by (app, workflow, state); for each agent ("APP/AGENT") how
    many requests wait and the seconds that the oldest has waited; alerts that stand, by kind.
    """

    tasks: dict[tuple[str, str, str], int]
    queues: dict[str, tuple[int, float]]
    alerts: dict[str, int]


class SchemaStatus(msgspec.Struct, frozen=True):
    """Where a store's schema stands: its version (0: empty), the one this code needs, migrations missing, rows per table.

    ``others``: tables of somebody else among which makegood's are, or will be put.
    """

    dialect: str
    version: int
    needed: int
    missing: list[str]
    rows: dict[str, int] = {}
    others: list[str] = []
