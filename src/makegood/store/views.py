"""Views: what readers of the store get, such as tasks, steps, alerts, nodes and agents."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

import msgspec

from makegood.base import ids
from makegood.base.arguments import checked_count, judge_calls
from makegood.base.durations import seconds
from makegood.base.process_identity import ProcessIdentity
from makegood.base.service_keys import KeyedRequest, in_form
from makegood.base.text import refuse_unstorable
from makegood.base.wall_times import by_present_rules
from makegood.base.zones import ZoneRules
from makegood.election.protocol import LeaseView as LeaseView  # noqa: PLC0414 - re-exported: a record like the others
from makegood.election.protocol import PastTerm as PastTerm  # noqa: PLC0414 - re-exported: a record like the others
from makegood.errors import ConfigError
from makegood.model.attempt_end import AttemptEnd
from makegood.model.attributes import Attribute
from makegood.model.blame import FailingStep
from makegood.model.messages import Act, AlertKind, MessageKind
from makegood.model.note import Note
from makegood.model.plan import StepPlan, Template
from makegood.model.states import Goal, Move, StepState, TaskState
from makegood.model.task import STANDING
from makegood.store.lane_views import TaskLane

Severity = Literal["ok", "note", "warning", "error"]
"""How bad a finding is.

note: good to know; warning: it works, but not always; error: a guarantee does not hold.
"""


class Finding(msgspec.Struct, frozen=True):
    """One result of an examination."""

    check: str
    """What was checked, one word."""
    severity: Severity
    what: str
    """What was found, a sentence."""
    remedy: str = ""
    """What to do, "" when ok."""


class SQLiteFinding(Finding, frozen=True, kw_only=True):
    """The finding about the SQLite library of this process."""

    version: str
    wal_reset_bug: bool
    """Whether this version can lose commits when several connections checkpoint; makegood avoids it."""


class AgentInfo(msgspec.Struct, frozen=True):
    """What a node publishes about one agent."""

    agent: str
    """The address, "APP/AGENT"."""
    slots: int
    """Slots in total."""
    used: int = 0
    """Slots in use."""
    calls: int = 0
    """Calls since the process started."""
    failed: int = 0
    """Failed calls since the process started."""
    seconds: float = 0.0
    """Mean seconds per call."""
    success: float | None = None
    """The answered share of about the latest twenty calls, None before the first. For
    people; it decides nothing.
    """
    circuit: str = ""
    """closed, open, half-open or release; "" without a breaker."""
    reset: float = 0.0
    """Seconds until an open circuit lets a call through."""
    most: int | None = None
    """The most calls in flight that the circuit allows now; without a breaker the slots."""
    rate: float | None = None
    """Calls a second over all processes."""
    overdue: int = 0
    """Slots in use by calls that run past their deadline."""
    heard: float | None = None
    """Seconds since the service last answered this process, as far as a breaker records it; None: never."""
    failing: tuple[FailingStep, ...] = ()
    """Steps that have failed in this process since the service last answered it, ten at most; their moments
    are seconds ago.
    """
    heard_action: float | None = None
    """As ``heard``, without the answers to probes."""


class SourceInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a process publishes about a place at a broker from which it takes orders."""

    address: str
    queue: str
    """The store's queue for what is taken."""
    waiting: int | None = None
    """Messages at the broker that nobody has acknowledged; None: it does not say."""
    oldest: float | None = None
    """Age of the oldest of them in seconds; None: unknown."""
    taken: int = 0
    """Messages put into the queue since the process started; a repetition is not counted."""
    refused: int = 0
    redelivered: int = 0
    """Deliveries of which the broker said that they were not the first."""
    error: str = ""
    """What keeps it from being read, or else why the latest message was refused; "" for neither."""
    away: float | None = None
    """Seconds for which the broker has not answered this process; None: it answers."""
    parameters: dict[str, str] = msgspec.field(default_factory=dict)
    """How it is read: those of the address."""
    group: str = ""
    """The name under which the processes of this store read it."""


class SenderInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a process publishes about a broker to which it sends notices."""

    broker: str
    """Such as "amqp:main"."""
    sent: int = 0
    """Notices that the broker has confirmed since the process started."""
    failed: int = 0
    error: str = ""
    """The last error since the last success, "" for none."""
    away: float | None = None
    """Seconds for which the broker has taken nothing from this process; None: it does."""
    last_try: float = 0.0
    """Seconds since this process last tried it."""


class SchedulerTally(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a Scheduler has done since its process started."""

    processed: int = 0
    undone: int = 0
    errors: int = 0
    """Tasks that came to rest in error."""
    steps: int = 0
    """Answers of agents that it used."""
    latencies: tuple[int, ...] = ()
    """A sample of the times from submission to end, in the buckets of ``oversight_records``."""


class NodeInfo(msgspec.Struct, frozen=True):
    """What a process publishes about itself."""

    name: str
    roles: tuple[str, ...]
    host: str
    pid: int
    ttl: float
    """Seconds after a heartbeat until the process counts as dead."""
    agents: tuple[AgentInfo, ...] = ()
    held: int = 0
    """Tasks that its Scheduler holds."""
    tally: SchedulerTally | None = None
    """What its Scheduler has done; None without one."""
    zone_rules: ZoneRules | None = None
    """The rules of time zones by which it computes; None if its machine has none."""
    kinds: tuple[str, ...] = ()
    """The kinds of steps that its Scheduler knows; () without one, and of a version that did not say so."""
    process: ProcessIdentity | None = None
    """Its identity, by which other processes of its host notice that it is gone; None: unknown."""
    sources: tuple[SourceInfo, ...] = ()
    """The places at brokers from which it takes orders."""
    senders: tuple[SenderInfo, ...] = ()
    """The brokers to which it has sent notices."""
    is_successor: bool = False
    """It began under a name that its operator gave it: whoever had the name before is dead. False if the name
    is made of the host's, and once it was declared dead itself.
    """

    @property
    def place(self) -> str:
        """Where it runs, for people."""
        return f"{self.name} (pid {self.pid} on {self.host})"


class NodeView(msgspec.Struct, frozen=True):
    """A node as others see it."""

    id: int
    info: NodeInfo
    started: float
    remaining: float
    """Seconds of life left; negative when dead."""
    is_stopped: bool
    """Whether the node stopped cleanly."""
    dead: bool
    """Whether a Supervisor has declared it dead."""
    waiting: dict[str, int] = {}

    @property
    def state(self) -> Literal["alive", "stopped", "dead"]:
        """Whether the process runs, stopped cleanly, or its heartbeat has run out."""
        if self.is_stopped:
            return "stopped"
        return "dead" if self.dead or self.remaining <= 0 else "alive"

    @property
    def silent(self) -> float:
        """Seconds since its last heartbeat."""
        return max(0.0, self.info.ttl - self.remaining)


class Prefix(msgspec.Struct, frozen=True, tag=True):
    """In a ``Filter``: all texts that begin so."""

    text: str


class Exact(msgspec.Struct, frozen=True, tag=True):
    """In a ``Filter``: this text alone, even if it ends with a ``*``."""

    text: str


Pattern = str | Prefix | Exact
"""What a text of a task must be. A str may not end with a ``*``, which looks like a prefix but is not one."""


@judge_calls(ConfigError, values=True)
@dataclass(frozen=True, slots=True)
class Filter:
    """Which tasks to find: all conditions must hold; empty ones are ignored.

    Raises ``ConfigError`` for values that make no sense.
    """

    ids: tuple[int, ...] = ()
    states: tuple[TaskState, ...] = ()
    app: str | None = None
    workflow: str | None = None
    key: str | Prefix | Exact | None = None
    limit: int = 100
    before: int | None = None
    """Only ids below this one, for paging."""
    older: float | None = None
    """Submitted at least so many seconds ago."""
    younger: float | None = None
    """Submitted at most so many seconds ago."""
    word: str | None = None
    """The task's id, as people see it, or its exact key."""
    step: str | None = None
    """Only tasks with a step of this name."""
    agent: str | None = None
    """Only tasks with a step of this agent."""
    error: str | None = None
    """Only tasks whose cause, or the error of one of whose steps, contains this text, in any case."""
    failing: bool | None = None
    """Whether a step that goes forward has failed, and is retried."""
    doubt: bool | None = None
    """Whether a step is in doubt."""
    failures: tuple[int, int] | None = None
    """The lowest and the highest failure count."""
    priority: tuple[int, int] | None = None
    """The lowest and the highest priority."""
    results: bool = False
    """Whether to read the results as well, which may be large."""
    correlation_id: str | Prefix | Exact | None = None
    """The correlation id with which it was submitted."""
    attributes: Mapping[str, Attribute | Prefix | Exact] | None = field(default=None, hash=False)
    """Attributes with which it was submitted: all of them."""
    waits: str | None = None
    """Only tasks with a step that waits now for a signal of this name."""
    lane: str | Prefix | Exact | None = None
    """Only tasks with a lane of this name, also those that have ended."""

    def __post_init__(self) -> None:
        """Raise ``ConfigError`` for a state that does not exist, for impossible numbers, and for text that no
        store can contain.
        """
        states = get_args(TaskState)
        if not set(self.states) <= set(states):
            raise ConfigError(
                f"Filter(states={self.states!r}): a tuple of states, which are {', '.join(states)}"
            )
        checked_count(self.limit, "Filter(limit)")
        for name in ("older", "younger"):
            if (age := getattr(self, name)) is not None:
                seconds(age, name=f"Filter({name})")
        for name in ("failures", "priority"):
            bounds = getattr(self, name)
            if bounds is not None and (len(bounds) != 2 or not all(type(n) is int for n in bounds)):
                raise ConfigError(f"Filter({name}={bounds!r}): the lowest and the highest, such as (3, 9)")
        if not all(type(n) is int for n in self.ids):
            raise ConfigError(f"Filter(ids={self.ids!r:.100}): numbers of tasks, as their handles have them")
        refuse_unstorable(
            ConfigError, app=self.app, workflow=self.workflow,
            word=self.word, step=self.step, agent=self.agent, waits=self.waits, error=self.error,
        )  # fmt: skip
        _refuse_misread("key", self.key)
        _refuse_misread("correlation_id", self.correlation_id)
        _refuse_misread("lane", self.lane)
        for name, value in (self.attributes or {}).items():
            refuse_unstorable(ConfigError, attributes=name)
            _refuse_misread(f"attributes[{name!r:.100}]", value)


def _refuse_misread(name: str, pattern: object) -> None:
    """Raise ``ConfigError`` for a text that no store contains, or that may be meant as a prefix."""
    if isinstance(pattern, str) and pattern.endswith("*"):
        raise ConfigError(
            f"Filter({name}={pattern!r:.100}): Prefix({pattern[:-1]!r:.100}) finds all that begin so; Exact({pattern!r:.100}) finds "
            "this text, with the star at its end"
        )
    text = pattern.text if isinstance(pattern, Prefix | Exact) else pattern
    if isinstance(pattern, Prefix) and not pattern.text:
        raise ConfigError(f"Filter({name}=Prefix('')): a prefix has at least one character")
    if isinstance(text, str):
        refuse_unstorable(ConfigError, **{name: text})


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
    start_at: float | None = None
    """When a task that sleeps begins, by the zone rules of its submission; see ``starts``."""
    start_wall: str | None = None
    """The wall time of its start with its zone, if it was submitted with one."""
    result: bytes | None = None
    """None also in a list that was read without results."""

    @property
    def starts(self) -> float | None:
        """When a task that sleeps begins, by the zone rules that this machine has now; None for others."""
        if self.state != "sleeping" or self.start_at is None:
            return None
        return by_present_rules(self.start_at, self.start_wall or "")


class StepView(msgspec.Struct, frozen=True):
    """A step as people see it."""

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
    """Whether it can be undone; True if there is no readable ``plan``."""
    result: bytes | None = None
    error: str | None = None
    doing: str | None = None
    """What the request in flight asks for."""
    waiting: bool = False
    """Whether it waits for a timer, as between two attempts."""
    taken_by: int | None = None
    """The node that has claimed the request in flight."""
    due: float | None = None
    """Seconds until the deadline of the request in flight, or until its timer fires when ``waiting``."""
    plan: StepPlan | None = None
    """What the step declares: the steps that it follows, its policy, the body of an ``each``."""
    stood: bool = False
    """Whether its effect was kept in an earlier round."""
    first_sent: float | None = None
    """When an agent took the first request under the present key; None if no agent has, and again once the
    request was answered.
    """
    loser: bool = False
    """Whether it belongs to a branch of ``mg.first`` that has lost."""
    taken_at: float | None = None
    """When ``taken_by`` took the request in flight, by the store's clock."""

    @property
    def stands(self) -> bool:
        """Whether an effect of the step is, or may be, in place: of this round, or
        kept from an earlier one.
        """
        return self.kind == "action" and (self.state in STANDING or self.stood)

    @property
    def no_return(self) -> bool:
        """Whether the step's effect, once in place, can never be taken back and is not harmless."""
        return self.plan is not None and self.plan.policy is not None and self.plan.policy.no_return


class StepKeys(msgspec.Struct, frozen=True):
    """The idempotency keys of a step in its present round."""

    key: str
    """The key of the action, as we write it."""
    service_key: str
    """The same as its service gets it: in the form that the action declares."""
    undo_key: str | None = None
    """The key of its undo; None if it cannot be undone."""
    undo_service_key: str | None = None


class Asked(msgspec.Struct, frozen=True):
    """An undecided operator command: no Scheduler has claimed its message."""

    kind: MessageKind
    act: Act
    idx: int
    """The step that it is about, -1 for none."""
    at: float


class SignalView(msgspec.Struct, frozen=True):
    """A signal that was sent to a task. Its value is the result of the step that used it."""

    name: str
    id: str
    at: float
    """When it was sent."""
    who: str = ""
    """The operator who sent it; "" for an application."""
    used: str | None = None
    """The step that used it; None: none has."""
    used_at: float | None = None
    step: str = ""
    """The only step that may use it; "": any that waits for ``name``."""
    kept: bool = False
    """Its task has read it, and keeps it for a step that has not begun to wait."""


class SignalWait(msgspec.Struct, frozen=True):
    """How many tasks wait for a signal."""

    name: str
    tasks: int
    since: float
    """When the first of them began to wait, or a little later."""


class TaskDetail(msgspec.Struct, frozen=True):
    """A task with its steps and inputs."""

    task: TaskView
    steps: list[StepView]
    inputs: tuple[bytes, ...] = ()
    reply_to: str | None = None
    """Where its submitter is notified of its states."""
    unreadable: tuple[str, ...] = ()
    """Which of its rows cannot be read, in words; such a step has no ``plan``."""
    asked: tuple[Asked, ...] = ()
    """Undecided operator commands, oldest first, if they were requested."""
    returns: Template | None = None
    """The template of the result."""
    trace: str | None = None
    """The ``traceparent`` of its submission."""
    store_id: str = ""
    """The store's own id, with which keys begin."""
    now: float = 0.0
    """When it was read, on the store's clock."""
    names: tuple[str, ...] = ()
    """The names of the workflow's parameters, one for each input."""

    attributes: Mapping[str, str] = {}
    """The attributes with which it was submitted: it can be found by them."""
    tally: Mapping[str, int] | None = None
    """How many actions are in which state, if ``steps`` are only some of the task's steps; else None."""
    signals: tuple[SignalView, ...] = ()
    """The signals that were sent to it, newest first."""
    signal_types: Mapping[str, str] = {}
    """The signals that its steps wait for by name, each with the JSON schema of its values, "" if that is not
    known; empty if the names are not known.
    """
    lanes: tuple[TaskLane, ...] = ()
    """Its places in its lanes, by name."""

    @property
    def named_inputs(self) -> list[tuple[str, bytes]]:
        """The inputs in order, each with the name of its parameter, "" if that is not known."""
        names = (*self.names, *[""] * len(self.inputs))
        return list(zip(names, self.inputs, strict=False))

    def count(self, *states: str) -> int:
        """Return how many of all actions of the task are in one of these states."""
        if self.tally is not None:
            return sum(self.tally.get(state, 0) for state in states)
        return sum(step.kind == "action" and step.state in states for step in self.steps)

    def keys(self, step: StepView) -> StepKeys | None:
        """Return the keys of a step; None for one without an effect, such as a ``when``."""
        if step.kind != "action":
            return None
        key, service_key = self.keys_of(step, step.round, undo=False)
        undo = self.keys_of(step, step.round, undo=True) if step.undoable else (None, None)
        return StepKeys(key, service_key, *undo)

    def keys_of(self, step: StepView, round_: int, *, undo: bool) -> tuple[str, str]:
        """Return the key of a round and direction of a step, as we write it and as its service gets it."""
        key = ids.key(self.store_id, self.task.id, step.name, round_, "undo" if undo else "do")
        form = step.plan.policy.key_form if step.plan is not None and step.plan.policy is not None else ""
        if not form:
            return key, key
        return key, in_form(self.store_id, KeyedRequest(self.task.id, step.idx, round_, undo), form)


class EventView(msgspec.Struct, frozen=True):
    """One row of a task's history: what one commit moved."""

    seq: int
    task: int
    at: float
    node: int | None
    """The node that wrote the row."""
    moves: list[Move]
    note: str = ""
    """Late replies and operator commands."""
    attempts: tuple[AttemptEnd, ...] = ()
    """The ends of the attempts whose answers the commit used.

    An attempt that was answered in memory and did not fail is not listed: the process of this row ran it.
    """
    octets: int = 0
    """Bytes of its moves and attempts, if they were left out for their size."""
    notes: tuple[Note, ...] = ()
    """What actions wrote of their progress (``call.note``), in order."""


class StepPage(msgspec.Struct, frozen=True):
    """Which steps of a long task to read."""

    first: int
    """Steps from this index on."""
    state: str | None = None
    """Only those in this state."""


class StepBlock(msgspec.Struct, frozen=True):
    """A run of steps of a long task, of which only the number in each state is read."""

    first: int
    last: int
    states: Mapping[str, int] = {}
    """How many of its steps are in which state, without those that only join what others decided."""
    actions: Mapping[str, int] = {}
    """How many of its actions are in which state."""


class TaskExcerpt(msgspec.Struct, frozen=True):
    """What a page shows of a task."""

    detail: TaskDetail
    """With a ``tally`` if its steps are only some of the task's."""
    total: int
    """Steps of the task."""
    blocks: Sequence[StepBlock] = ()
    """All its steps in blocks; none if ``detail`` holds each of them."""
    page: Sequence[int] | None = None
    """The indices of the steps on the page that was asked for."""
    next: int | None = None
    """Where the next page begins; None: there is none."""
    sizes: Mapping[str, int] = {}
    """Bytes of what was left out: "inputs", "result", "step-IDX"."""


class TaskEvents(msgspec.Struct, frozen=True):
    """Some events of a task, in order."""

    events: Sequence[EventView]
    more: bool = False
    """Whether there are others beyond them."""


class AlertView(msgspec.Struct, frozen=True):
    """An alert as stored."""

    id: int
    kind: AlertKind
    task: int | None
    step: str
    text: str
    at: float
    ended: float | None = None
    """When its cause had gone."""
    ended_why: str = ""
    """Why its cause had gone."""
    acked: float | None = None
    """When somebody acknowledged it."""
    acked_by: str = ""
    """Who acknowledged it."""
    acked_why: str = ""
    """Why it was acknowledged."""
    logged: int = 0
    """What was logged: 0 nothing, 1 that it was raised, 2 also that it ended."""
    told: int = 0
    """What the webhook received: 0 nothing, 1 that it was raised, 2 also that it ended."""
    tries: int = 0
    """Posts since the last successful one that the webhook did not accept."""
    acked_db_user: str | None = None
    """The login of the database under which it was acknowledged."""

    @property
    def open(self) -> bool:
        """Whether its cause persists and nobody has acknowledged it."""
        return self.ended is None and self.acked is None


class Telling(msgspec.Struct, frozen=True):
    """An alert to report: that it was raised, that it has ended, or both. It has ended if
    ``alert.ended`` is set.
    """

    alert: AlertView
    is_start: bool
    """Whether to report that it was raised."""
    tries: int = 0
    """Tries so far."""


class AuditView(msgspec.Struct, frozen=True):
    """An operator command and its result."""

    act: str
    task: int | None
    """None when it concerns no task, such as an alert that belongs to no task."""
    kind: str
    who: str
    why: str
    """The reason that the operator gave."""
    verdict: str
    outcome: str
    """The result."""
    state: str
    at: float
    change: bytes | None = None
    """What it replaced, as JSON: see ``Answer``."""
    db_user: str | None = None
    """The database login that requested it; None on SQLite."""


class TaskFigures(msgspec.Struct, frozen=True):
    """How much work there is, for monitoring."""

    tasks: dict[tuple[str, str, str], int]
    """Tasks that have not ended, by (app, workflow, state)."""
    queues: dict[str, tuple[int, float]]
    """For each agent ("APP/AGENT"), how many requests wait, and the seconds that the oldest has waited."""
    alerts: dict[str, int]
    """Open alerts, by kind."""
    sleepers: Mapping[tuple[str, str], int] | None = None
    """Sleeping tasks by (app, workflow), if they are too many to be counted at each look."""
    due_lag: float = 0.0
    """For how many seconds the first task that sleeps, or schedule, has been due; 0 if none is."""


class Found(msgspec.Struct, frozen=True):
    """A page of tasks, newest first."""

    tasks: list[TaskView]
    older: int | None = None
    """The next page holds tasks with ids below this one; None: there is none."""


class TaskGroup(msgspec.Struct, frozen=True):
    """Tasks with one correlation id, or one value of an attribute; or a single task that has none."""

    newest: int
    name: str | None
    states: dict[TaskState, int]
    """How many are in each state."""
    sample: tuple[int, ...] = ()
    """Some of them: those in error first, then the newest."""


class TaskGroups(msgspec.Struct, frozen=True):
    """A page of groups, those with the newest tasks first."""

    groups: list[TaskGroup]
    below: int | None = None
    """The next page holds the groups whose newest task has an id below this one; None: there is none among
    the tasks that were looked at.
    """
    older: int | None = None
    """The tasks that were not looked at have ids below this one; None: all were."""


class Tally(msgspec.Struct, frozen=True):
    """How many of the tasks that were looked at match."""

    count: int
    more: bool = False
    """Whether there may be more: not all tasks were looked at."""


class UnendedTally(msgspec.Struct, frozen=True):
    """Tasks that have not ended."""

    states: dict[TaskState, int]
    failing: int = 0
    """Those with a step that has failed, and is retried."""
    doubt: int = 0
    """Those with a step in doubt."""
    more: bool = False
    """Whether there may be more: not all tasks were looked at."""

    @property
    def in_flight(self) -> int:
        """Pending, processing and undoing tasks."""
        return sum(
            count for state, count in self.states.items() if state not in ("error", "sleeping", "queued")
        )


class StepBrief(msgspec.Struct, frozen=True):
    """A step in a list of tasks."""

    idx: int
    kind: str
    name: str
    agent: str
    state: StepState
    attempt: int
    round: int
    failures: int
    error: str | None
    doing: str | None = None
    """What the request in flight asks for, "timer" when the step waits for its time."""
    taken_by: int | None = None
    """The node that has claimed the request in flight."""
    due: float | None = None
    """Seconds until the deadline of the request in flight, or until the timer fires."""
    wait: float | None = None
    """Seconds since the request in flight was sent."""


class SchemaStatus(msgspec.Struct, frozen=True):
    """The state of a store's schema."""

    dialect: str
    version: int
    """The schema's version; 0: empty."""
    needed: int
    """The version that this code needs."""
    missing: list[str]
    """Missing migrations."""
    rows: dict[str, int] = {}
    """Rows per table."""
    others: list[str] = []
    """Tables of other software in the place where the tables of makegood are, or will be."""
