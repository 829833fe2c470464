"""The records that go in and out of the state store.

Seconds for lengths of time; points in time are seconds since 1970 on the store's clock.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import msgspec

from makegood.decision import Decision, Move
from makegood.election.protocol import Grant as Grant  # noqa: PLC0414 - given on: a record like the others
from makegood.election.protocol import LeaseView as LeaseView  # noqa: PLC0414 - given on: a record like the others
from makegood.election.protocol import PastTerm as PastTerm  # noqa: PLC0414 - given on: a record like the others
from makegood.errors import ConfigError
from makegood.messages import Act, AlertKind, Message, MessageKind, Request
from makegood.states import Goal, StepState, TaskState
from makegood.task import STANDING, Held, OnFailure, Reply, Step, StepPlan, Task, Template
from makegood.texts import refuse_unstorable

NO_LIMIT: Final = (1 << 63) - 1
"""As a limit in bytes: none."""


class Draft(msgspec.Struct, frozen=True):
    """A submission, ready to insert. ``holder``: the node whose Scheduler holds the task from the beginning, under epoch 1;
    None: any may claim it. ``reply_to``: where to tell of the task's states; the first of them, *received*, is written with it.
    ``first``: what its holder decided on it already, written with it: the task goes forward and its first steps are dispatched,
    nothing else (``saga.begun``). ``handed``: those requests are handed over in memory.
    """

    id: int
    app: str
    workflow: str
    steps: tuple[StepPlan, ...]
    inputs: tuple[bytes, ...]
    returns: Template
    fingerprint: bytes
    key: str | None = None
    priority: int = 0
    correlation_id: str | None = None
    within: float | None = None
    undo_within: float | None = None
    on_failure: OnFailure = "undo"
    trace: str | None = None
    holder: int | None = None
    reply_to: str | None = None
    first: Decision | None = None
    handed: bool = False

    @property
    def octets(self) -> int:
        """The bytes of its inputs."""
        return sum(map(len, self.inputs))

    @property
    def reply(self) -> Reply | None:
        """Whom to tell of the task's states."""
        return None if self.reply_to is None else Reply(self.reply_to, self.correlation_id)

    @property
    def told(self) -> str:
        """What the submitter is told with the submission itself."""
        return "" if self.reply_to is None else "received"

    @property
    def notified(self) -> int:
        """How many notices are written with the submission itself."""
        return 0 if self.reply_to is None else 1


class Submitted(msgspec.Struct, frozen=True):
    """What became of a Draft: its id, or the id of the task that has its key already."""

    id: int
    created: bool
    conflict: bool = False
    collided: bool = False


class Loaded(msgspec.Struct):
    """A task as the store has it. ``steps`` carry ``doing`` and ``waiting`` from the request rows; ``due`` says in how many
    seconds each waiting step's timer fires (0 when past); ``messages`` are the task's inbox, oldest first.
    """

    task: Task
    steps: list[Step]
    messages: list[Message]
    due: dict[int, float] = {}


class Claim(msgspec.Struct, frozen=True):
    """What a Scheduler wants: up to ``limit`` pending tasks (highest priority, then the longest waiting), and the tasks
    ``at_rest`` (error, undone, processed; no lock) that an operator's message is waiting for.

    A task with ``lost`` >= 3 (it may be what kills its Schedulers) is claimed only as the one claim of a batch.
    ``room``: bytes that may be read of them all, beside what is small; the first is claimed whatever its size.
    """

    limit: int
    at_rest: tuple[int, ...] = ()
    room: int = NO_LIMIT


Decide = Callable[[Sequence[Loaded]], Sequence[tuple[Held, Decision]]]
"""Called inside the transaction with what was claimed (locks taken, epoch already raised, ``task.state`` as it was);
returns a Decision for each that can be decided. Pure and quick: it may run on the store's own thread."""


@dataclass(slots=True)
class Batch:
    """One commit of a Scheduler. Requests that are handed over in memory are all those of a Decision that is ``handed``, and those of others whose
    (task, idx, attempt) stands in ``local``: their rows are born taken by ``node``, without a body. ``decide`` may change it. ``decisions``: at most one per task. ``unfit``: why each of the tasks
    cannot be decided that were handed to ``decide`` and are not in its answer; it may change it, and they are put to error.
    """

    node: int
    decisions: Sequence[Decision] = ()
    local: set[tuple[int, int, int]] = field(default_factory=set)
    claim: Claim | None = None
    decide: Decide | None = None
    unfit: dict[int, str] = field(default_factory=dict)


@dataclass(slots=True)
class Committed:
    """What came of a Batch: tasks whose Decision was lost, (task, idx, attempt) of requests taken back, what was claimed with
    what was decided on it, whether more pending tasks wait, and (task, reason) put to error because of their data. A task may be
    lost and claimed: what was decided on it as its earlier owner is lost, the claim stands. ``left``: some were not claimed for want
    of room.
    """

    lost: set[int] = field(default_factory=set)
    withdrawn: list[tuple[int, int, int]] = field(default_factory=list)
    claimed: list[tuple[Held, Decision]] = field(default_factory=list)
    more: bool = False
    guilty: list[tuple[int, str]] = field(default_factory=list)
    left: bool = False


class Inbox(msgspec.Struct):
    """Messages by task for tasks a Scheduler holds, and unlocked tasks at rest that have messages. ``more``: there may be others."""

    messages: dict[int, list[Message]]
    at_rest: list[int]
    more: bool = False


class Offer(msgspec.Struct, frozen=True):
    """What a process can run for one agent: its address "APP/AGENT", the names of the actions it knows, free slots.

    ``rate``: calls a second over all processes, None = as they come. ``spent``: calls made beside those taken, which the rate
    counts as well. ``trial``: its circuit is half-open: what is given is its canary, whose silence counts no failure, and which is drawn
    in turn, the request that was sent first, whatever its priority.
    """

    agent: str
    actions: tuple[str, ...]
    slots: int
    rate: float | None = None
    spent: int = 0
    trial: bool = False


class Taken(list[Request]):
    """Requests that were taken. ``again``: for each agent whose rate held some back, in how many seconds to ask for more."""

    def __init__(self, requests: Iterable[Request] = (), again: Mapping[str, float] | None = None) -> None:
        super().__init__(requests)
        self.again = dict(again or {})


class Pruned(msgspec.Struct, frozen=True):
    """One window of ended tasks: how many were removed, how many were old enough and are kept, where the next one begins."""

    removed: int = 0
    kept: int = 0
    next: int | None = None


class Judged(msgspec.Struct, frozen=True):
    """Requests judged in one pass: (task, idx, attempt, failures); ``full`` says that more may wait."""

    requests: list[tuple[int, int, int, int]]
    full: bool = False


class Identity(msgspec.Struct, frozen=True):
    """The store's random id, made at its creation, and its generation: raised when it may have gone back in time."""

    store_id: str
    generation: int


class Anew(msgspec.Struct, frozen=True):
    """What beginning a new generation did: its number, how many tasks under way were freed, how many requests are in doubt."""

    generation: int
    freed: int
    doubtful: int


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


class Figures(msgspec.Struct, frozen=True):
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
