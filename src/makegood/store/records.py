"""The records that go into and come out of the state store.

Durations are in seconds; points in time are seconds since 1970 on the store's clock.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from makegood.base.sizes import LARGEST
from makegood.election.protocol import Grant as Grant  # noqa: PLC0414 - re-exported: a record like the others
from makegood.errors import StoreError
from makegood.model.attributes import Attributes
from makegood.model.decision import Decision
from makegood.model.lane import NO_LANES, Lanes
from makegood.model.messages import Request, TaskMessage
from makegood.model.plan import OnFailure, Signals, Start, Template
from makegood.model.shape import HeldTask, KeptSignal, Shape
from makegood.model.task import ReplyTo, Step, TaskRecord

NO_LIMIT: Final = LARGEST

IDLE: Final = 60.0
"""Seconds for which a transaction of the store may execute no statement, unless its work says otherwise."""
"""A limit in bytes that limits nothing."""


class Submission(msgspec.Struct, frozen=True):
    """A submission, ready to insert."""

    id: int
    app: str
    workflow: str
    steps: Shape
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
    """The node whose Scheduler holds the task from the beginning, under epoch 1; None: any may claim it."""
    reply_to: str | None = None
    """Where to send notices of the task's states. The first, *received*, is written with the task."""
    names: tuple[str, ...] = ()
    """The names of the workflow's parameters, one for each input."""
    first: Decision | None = None
    """The holder's first Decision, written with the task.

    It only moves the task forward and dispatches its first steps (``saga.first_decision``). Either all its
    requests are handed over in memory, or none.
    """
    start: Start | None = None
    """When the task may begin: it sleeps until then; None: at once. Then nobody holds it from the beginning.
    """
    attributes: Attributes = ()
    """By which people find the task: names and values."""
    signals: Signals = ()
    """The signals that its steps wait for."""
    lanes: Lanes = NO_LANES
    """The lanes that it waits for. Then nobody holds it from the beginning."""
    notes: bool = False
    """Whether ``reply_to`` gets the notes of its actions too."""

    @property
    def octets(self) -> int:
        """The total size of its inputs in bytes."""
        return sum(map(len, self.inputs))

    @property
    def reply(self) -> ReplyTo | None:
        """Whom to notify of the task's states."""
        return None if self.reply_to is None else ReplyTo(self.reply_to, self.correlation_id, self.notes)

    @property
    def told(self) -> str:
        """The event of the notice that is written with the submission itself; "" for none."""
        return "" if self.reply_to is None else "received"

    @property
    def notified(self) -> int:
        """The number of notices that are written with the submission itself."""
        return 0 if self.reply_to is None else 1


class Submitted(msgspec.Struct, frozen=True):
    """The result of a submission."""

    id: int
    """Its id, or the id of the existing task with its key."""
    is_new: bool
    conflict: bool = False
    key_collision: bool = False
    inputs: tuple[bytes, ...] = ()
    """In a conflict: the inputs of the existing task."""


class Loaded(msgspec.Struct):
    """A task as stored."""

    task: TaskRecord
    steps: list[Step]
    """The steps, with ``doing`` and ``waiting`` from the request rows."""
    messages: list[TaskMessage]
    """The task's inbox, oldest first."""
    due: dict[int, float] = {}
    """Seconds until the timer of each waiting step fires (0 when past)."""
    signals: Sequence[KeptSignal] = ()
    """Signals that no step has used yet, in the order in which they came."""
    sleeps: bool = False
    """It was claimed for its messages alone: its start has not come, or its lanes are taken. (One that was
    let go continues with any message.)
    """
    lane_taken: bool = False
    """A lane of it is taken, and it does not wait: it is to end unless something of it was done."""


NO_MOMENT: Final = 2**63 - 1
"""The ``ready_seq`` of a task that sleeps until a message comes."""

MOST_LOST: Final = 3
"""A task that lost its Scheduler this many times in a row is claimed alone: it may be what kills them."""


class Claim(msgspec.Struct, frozen=True):
    """What a Scheduler wants to claim.

    A task with ``lost`` >= 3 may be what kills its Schedulers: it is claimed only as
    the one claim of a batch.
    """

    limit: int
    """Pending tasks to claim at most, and tasks that sleep and are due: highest priority first, then the
    longest waiting.
    """
    at_rest: tuple[int, ...] = ()
    """Tasks in error, undone, processed or asleep, without a lock, for which a message waits."""
    room: int = NO_LIMIT
    """Bytes of large values to read for all of them; the first task is claimed whatever its size."""
    sleepers: bool = False
    """Whether to look for tasks that sleep and are due."""
    lanes: bool = False
    """Whether to look for tasks whose lanes may be free."""
    eager: int | None = None
    """One of ``at_rest`` that may be claimed without a message: the batch may bring a signal for it. A store
    may leave it if the claim cannot be made at once.
    """


Decide = Callable[[Sequence[Loaded]], Sequence[tuple[HeldTask, Decision]]]
"""Called inside the transaction with the claimed tasks: locked, epoch already raised,
``task.state`` as it was.

Returns a Decision for each task that can be decided. It is pure and quick: it may run on
the store's own thread.
"""


@dataclass(slots=True)
class Batch:
    """One commit of a Scheduler."""

    node: int
    decisions: Sequence[Decision] = ()
    """At most one per task."""
    claim: Claim | None = None
    decide: Decide | None = None
    unfit: dict[int, str] = field(default_factory=dict)
    """Why tasks cannot be decided that ``decide`` was given and left out of its answer.

    ``decide`` may change it. The store puts these tasks to error.
    """

    def decided(self, loads: Sequence[Loaded]) -> dict[int, tuple[HeldTask, Decision]]:
        """Return what ``decide`` makes of claimed tasks, by task."""
        if self.decide is None:
            raise StoreError("a Batch that claims tasks needs a `decide`: it says what becomes of them")
        pairs = {pair[1].task.id: pair for pair in self.decide(loads)}
        strange = pairs.keys() - {load.task.id for load in loads}
        if strange:
            raise StoreError(f"`decide` returned Decisions for tasks {sorted(strange)} that were not claimed")
        return pairs


@dataclass(slots=True)
class Committed:
    """The result of a Batch.

    A task may be both lost and claimed: the Decision made as its earlier owner is lost,
    and the claim is valid.
    """

    losses: set[int] = field(default_factory=set)
    """Tasks whose Decision was lost."""
    lock_conflicts: set[int] = field(default_factory=set)
    """Those of them that were not overtaken: somebody else's transaction holds one of their rows."""
    withdrawals: list[tuple[int, int, int]] = field(default_factory=list)
    """Withdrawn requests: (task, idx, attempt)."""
    claims: list[tuple[HeldTask, Decision]] = field(default_factory=list)
    """Claimed tasks, each with the Decision on it."""
    more: bool = False
    """Whether more tasks wait to be claimed."""
    next_start: float | None = None
    """Seconds from ``looked_at`` until the next task that sleeps is due; None: there is none, or the claim
    did not look.
    """
    looked_at: float = 0.0
    """When the claim looked for tasks that sleep, on the store's clock."""
    rejections: list[tuple[int, str]] = field(default_factory=list)
    """Tasks put to error because of their data: (task, reason)."""
    left: bool = False
    """Whether tasks were not claimed for lack of room."""
    more_queued: bool = False
    """Whether more tasks wait whose lanes may be free."""
    lanes_busy: bool = False
    """Whether tasks were not claimed because another transaction decides on their lanes just now."""

    def seconds_to_start(self, now: float) -> float | None:
        """Return in how many seconds the next task that sleeps is due; ``now``: the store's clock."""
        return None if self.next_start is None else self.next_start - max(0.0, now - self.looked_at)

    def settle(self, decisions: Mapping[int, tuple[HeldTask, Decision]], stale: set[int]) -> None:
        """Name the claimed tasks that were written, and as lost the earlier Decisions (``stale``) on them."""
        losses = self.losses | {task for task, _ in self.rejections}
        self.claims = [pair for task, pair in decisions.items() if task not in losses]
        self.losses |= stale


class TaskMessages(msgspec.Struct):
    """Messages from the inboxes of tasks."""

    messages: dict[int, list[TaskMessage]]
    """Messages by task, for tasks that the Scheduler holds."""
    at_rest: list[int]
    """Unlocked tasks at rest that have messages."""
    more: bool = False
    """Whether there may be more."""


class Offer(msgspec.Struct, frozen=True):
    """What a process can run for one agent."""

    agent: str
    """The agent's address, "APP/AGENT"."""
    actions: tuple[str, ...]
    """The names of the actions that the process knows."""
    slots: int
    """Free slots."""
    rate: float | None = None
    """Calls a second over all processes; None: unlimited."""
    trial: bool = False
    """Whether the agent's circuit is half-open: a claimed request is its trial call.

    It is the request that was sent first, whatever its priority. The silence of a trial call counts no
    failure, unless its step has failed while others were answered (``blame.ONCE``): then the agent decides.
    """


class Taken(list[Request]):
    """Claimed requests. ``again``: for each agent whose rate held requests back, seconds
    until to ask for more.
    """

    def __init__(self, requests: Iterable[Request] = (), again: Mapping[str, float] | None = None) -> None:
        super().__init__(requests)
        self.again = dict(again or {})


class Pruned(msgspec.Struct, frozen=True):
    """The result of pruning one window of ended tasks."""

    removals: int = 0
    """Tasks removed."""
    survivors: int = 0
    """Tasks that were old enough but are kept."""
    next: int | None = None
    """Where the next window begins."""


class Judged(msgspec.Struct, frozen=True):
    """Requests judged in one pass."""

    requests: list[tuple[int, int, int, int]]
    """(task, idx, attempt, failures) of each."""
    full: bool = False
    """Whether more may wait."""


class Identity(msgspec.Struct, frozen=True):
    """Which store this is."""

    store_id: str
    """A random id, made when the store was created."""
    generation: int
    """A number, raised when the store may have gone back in time."""


class NewGeneration(msgspec.Struct, frozen=True):
    """What beginning a new generation did."""

    generation: int
    """The new generation's number."""
    freed: int
    """How many tasks under way were freed."""
    doubtful: int
    """How many requests are in doubt."""
