"""The records that go in and out of the state store.

Seconds for lengths of time; points in time are seconds since 1970 on the store's clock.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from makegood.election.protocol import Grant as Grant  # noqa: PLC0414 - given on: a record like the others
from makegood.election.protocol import LeaseView as LeaseView  # noqa: PLC0414 - given on: a record like the others
from makegood.election.protocol import PastTerm as PastTerm  # noqa: PLC0414 - given on: a record like the others
from makegood.model.decision import Decision
from makegood.model.messages import Request, TaskMessage
from makegood.model.plan import OnFailure, StepPlan, Template
from makegood.model.shape import HeldTask
from makegood.model.task import ReplyTo, Step, TaskRecord

NO_LIMIT: Final = (1 << 63) - 1
"""As a limit in bytes: none."""


class Submission(msgspec.Struct, frozen=True):
    """A submission, ready to insert. ``holder``: the node whose Scheduler holds the task from the beginning, under epoch 1;
    None: any may claim it. ``reply_to``: where to tell of the task's states; the first of them, *received*, is written with it.
    ``first``: what its holder decided on it already, written with it: the task goes forward and its first steps are dispatched,
    nothing else (``saga.begun``); all its requests are handed over in memory, or none.
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

    @property
    def octets(self) -> int:
        """The bytes of its inputs."""
        return sum(map(len, self.inputs))

    @property
    def reply(self) -> ReplyTo | None:
        """Whom to tell of the task's states."""
        return None if self.reply_to is None else ReplyTo(self.reply_to, self.correlation_id)

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

    task: TaskRecord
    steps: list[Step]
    messages: list[TaskMessage]
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


Decide = Callable[[Sequence[Loaded]], Sequence[tuple[HeldTask, Decision]]]
"""Called inside the transaction with what was claimed (locks taken, epoch already raised, ``task.state`` as it was);
returns a Decision for each that can be decided. Pure and quick: it may run on the store's own thread."""


@dataclass(slots=True)
class Batch:
    """One commit of a Scheduler. ``decisions``: at most one per task. ``unfit``: why each of the tasks cannot be decided that were handed to ``decide`` and are not in its answer; it may change it, and they are put to error."""

    node: int
    decisions: Sequence[Decision] = ()
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
    claimed: list[tuple[HeldTask, Decision]] = field(default_factory=list)
    more: bool = False
    guilty: list[tuple[int, str]] = field(default_factory=list)
    left: bool = False


class TaskMessages(msgspec.Struct):
    """Messages by task for tasks a Scheduler holds, and unlocked tasks at rest that have messages. ``more``: there may be others."""

    messages: dict[int, list[TaskMessage]]
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
