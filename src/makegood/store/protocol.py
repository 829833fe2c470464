"""The interface of the state store, in narrow slices: each actor receives only the slice that it uses.

Every write is a compare-and-set whose fence holds until the commit. A method either does all that its
docstring says, or raises and changes nothing. The store itself resolves ambiguous commits (each commit
carries a number by which the store finds it again), so callers never see one. Durations are in seconds.
Points in time are seconds since 1970 on *the store's* clock and come only from the store.

A slice is a class of verbs that are written once for both stores; their docstrings are the contract. Where
each store writes some verbs itself, a class of this module adds them to the slice.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar

from makegood.election.protocol import LeaseStore
from makegood.model.messages import Act, Alert, FreshMessage, TaskMessage
from makegood.store.alerts import AlertVerbs
from makegood.store.lanes import LaneVerbs
from makegood.store.notice_operations import NoticeVerbs
from makegood.store.operator_commands import TaskVerbs
from makegood.store.oversight import OversightVerbs
from makegood.store.queue_operations import QueueVerbs
from makegood.store.queue_records import DeadLetter, Outgoing, Receipt, Sent
from makegood.store.records import (
    IDLE,
    NO_LIMIT,
    Batch,
    Committed,
    Identity,
    Loaded,
    NewGeneration,
    Offer,
    Submission,
    Submitted,
    Taken,
    TaskMessages,
)
from makegood.store.requests import RequestVerbs
from makegood.store.schedule_verbs import ScheduleVerbs
from makegood.store.signals import OutgoingSignal, Signalled
from makegood.store.supervision import SupervisionVerbs
from makegood.store.upkeep import NodeVerbs, UpkeepVerbs
from makegood.store.views import Finding, NodeInfo, SchemaStatus, StepPage, TaskDetail, TaskExcerpt
from makegood.transactions import Caller

T = TypeVar("T")


class Tasks(TaskVerbs, ABC):
    """Tasks, their steps and their inboxes: clients submit tasks, and the Scheduler that
    holds one advances it.
    """

    clock: Callable[[], float]
    """Returns the time on the store's clock as this process knows it, without a call of the store.

    It is exact on SQLite. On PostgreSQL it is what the last heartbeat read, and the time since.
    """
    calendar: Callable[[], float]
    """Returns the wall clock by which moments of the calendar come, in seconds since 1970, without a call
    of the store: this machine's on SQLite, on PostgreSQL the server's, as ``clock`` knows it.
    """

    @abstractmethod
    async def submit(self, drafts: Sequence[Submission]) -> list[Submitted]:
        """Insert tasks with all their steps in one commit; return one answer per draft, in order.

        If the task key exists, the answer names the existing task (``created=False``; ``conflict=True``
        and its inputs when its fingerprint differs). If the id exists, the answer has ``collided=True`` and
        nothing is written for that draft.
        """

    @abstractmethod
    async def join(self, caller: Caller, drafts: Sequence[Submission]) -> list[Submitted]:
        """Insert tasks as ``submit`` does, in the caller's open transaction, using only ``caller``.

        May run in any thread and waits for nothing else. Raises ``TransactionError`` for a connection to
        another database, in autocommit, with less durability, or without rights; ``SchemaMismatchError``;
        ``PayloadError``; and whatever the caller's driver raises. It neither commits nor rolls back, and its
        own errors leave the transaction as it was.
        """

    @abstractmethod
    async def commit(self, batch: Batch) -> Committed:
        """Write a Scheduler's Decisions, claim tasks, and write what ``decide`` returns for
        these: one transaction.

        A Decision is fenced twice: ``batch.node`` holds the task's lock under ``before.epoch``, and every
        consumed request row still exists with its attempt. A Decision that fails a fence is *lost* and named
        in the answer; the rest is committed. If the database refuses a value, the store finds the Decision by
        bisection and puts its task to error with an alert.
        """

    @abstractmethod
    async def load(self, node: int, tasks: Sequence[int]) -> list[Loaded]:
        """Return those of ``tasks`` that ``node`` still holds, as stored, with their inboxes."""

    @abstractmethod
    async def put_to_error(self, node: int, task: int, reason: str) -> None:
        """Put a task that ``node`` holds to error, with an alert and nothing in flight.

        Works whatever the task's rows contain. Does nothing if another node holds the task by now.
        """

    @abstractmethod
    async def inbox(
        self, node: int, limit: int, room: int = NO_LIMIT, *, at_rest: bool = True
    ) -> TaskMessages:
        """Return messages for tasks that ``node`` holds, and unlocked tasks (not pending) with messages.

        ``at_rest``: False for the former only, whose cost does not grow with the number of the latter.
        Returns at most ``limit`` messages, and stops once they have ``room`` bytes. Nothing is removed: a
        message is deleted by the commit that uses it (``Decision.seqs``).
        """

    @abstractmethod
    async def detail(self, task: int, *, with_asked: bool = False) -> TaskDetail | None:
        """Return one task with its steps, or None; ``with_asked``: with its undecided operator commands."""

    @abstractmethod
    async def excerpt(self, task: int, page: StepPage | None = None) -> TaskExcerpt | None:
        """Return what a page shows of a task, or None: a bounded number of rows and bytes of it."""

    @abstractmethod
    async def signal(self, signal: OutgoingSignal, act: Act | None = None) -> Signalled:
        """Send a signal in one commit; ``act``: an operator's, which is audited.

        If the task knows a signal of this name and id, it keeps what it has: ``created=False``, whatever
        became of the task meanwhile. Raises ``TaskNotFoundError``, and ``SignalRefused`` when the task has
        ended or is being undone, no step of it waits for this name, or ``signals.MOST_BACKLOG`` signals are
        unused: then nothing was sent. Concurrent sends may not see each other, and all be accepted.
        """

    @abstractmethod
    async def join_signal(self, caller: Caller, signal: OutgoingSignal) -> Signalled:
        """Send a signal in the caller's open transaction, using only ``caller``.

        Returns and raises as ``signal``, and raises what ``join`` raises. Its own errors leave the
        transaction as it was.
        """


class Requests(RequestVerbs, ABC):
    """Requests to agents, which agents pull, and the agents' replies."""

    @abstractmethod
    async def take(self, node: int, offers: Sequence[Offer], *, alone: bool = False) -> Taken:
        """Claim up to ``slots`` waiting requests per offer for ``node``: by priority, then by age.

        Each request's deadline starts now, and ``Request.within`` is the seconds left. Only actions that the
        offer names are claimed. Isolated requests (``isolate``) go to nodes without a Scheduler.
        ``alone=True`` means that the caller has a Scheduler and nothing in flight: it gets at most one
        isolated request, and only when no live node without a Scheduler offers that agent.

        For an offer with a ``rate``, the store hands out no more requests than the rate allows, counted over
        all nodes. Each request carries the ``delay`` after which it may begin; its deadline starts then.
        Every ``priority_ageing`` seconds of waiting raise a request's priority by one.
        """

    @abstractmethod
    async def answer(self, node: int, replies: Sequence[tuple[int, TaskMessage]]) -> list[bool]:
        """Put replies (task, message) in the tasks' inboxes; return True for each that came in time.

        A reply is in time if the request row exists with this attempt, ``node`` has claimed it, its deadline
        has not passed on the store's clock, and it has no answer yet. Repeating the same reply returns True
        and changes nothing. Any other reply is recorded as late: in the history, and as a ``late`` message if
        the task has not ended and the reply is ``done``.
        """

    @abstractmethod
    async def turn(self, agent: str, rate: float, most: float) -> float | None:
        """Reserve a turn of an agent's rate for a further try within an attempt.

        Returns the seconds until it, None if they would be more than ``most`` or than a minute: then
        nothing is reserved. Turns count over all nodes, like the requests of ``take``.
        """


class Queues(QueueVerbs, ABC):
    """Queues of messages that applications read and write.

    A message is leased to one receiver at a time. The receipt (``seq``, ``tries``) is valid until another
    receiver gets the message.
    """

    @abstractmethod
    async def send_messages(
        self, messages: Sequence[Outgoing], most: int, most_bytes: int = NO_LIMIT
    ) -> list[Sent]:
        """Add messages to their queues in one commit; return one answer each, in order.

        If a queue knows the id (of a waiting, dead or remembered message), it keeps what it has:
        ``created=False``. Raises ``QueueFullError`` (``room``: how many would fit) when more than
        ``most`` messages, or ``most_bytes`` of values, would wait in a queue; an empty queue accepts one
        message of any size. Raises ``PayloadError`` for values that the database refuses. After an error
        nothing was sent. Concurrent sends may not see each other, and all be accepted.
        ``queue_records.Depths`` describes when bytes are summed.
        """

    @abstractmethod
    async def keep_dead_letters(self, letters: Sequence[DeadLetter], alert: Alert) -> list[Sent]:
        """Add messages as dead letters, with one alert about all of them, in one commit; no limit of a queue
        counts.

        If a queue knows the id, it keeps what it has; if it knows all, there is no alert. Bodies may be any
        bytes. Raises ``PayloadError``.
        """

    @abstractmethod
    async def acknowledge_messages(self, receipts: Sequence[Receipt]) -> list[bool]:
        """Remove processed messages from their queues; False for each message that the holder has lost."""

    @abstractmethod
    async def accept(self, caller: Caller, receipt: Receipt) -> bool:
        """Acknowledge a message in the caller's transaction, using only ``caller``; False if the
        holder has lost the message.

        Raises what ``join`` raises for an unfit connection.
        """

    @abstractmethod
    async def put(self, caller: Caller, message: Outgoing, most: int, most_bytes: int = NO_LIMIT) -> Sent:
        """Send a message in the caller's open transaction, using only ``caller``.

        Returns and raises as ``send_messages``, and raises what ``join`` raises. Its own errors leave the
        transaction as it was.
        """


class Nodes(NodeVerbs, ABC):
    """Processes: their numbers, their heartbeats, and what they run."""

    @abstractmethod
    async def register(self, info: NodeInfo) -> int:
        """Insert a node row with its first heartbeat; return the node's number, which is never reused."""

    @abstractmethod
    async def heartbeat(self, node: int, info: NodeInfo) -> bool:
        """Extend the node's life by ``info.ttl`` and publish ``info``; False if it was declared dead
        and must register again.

        Wakes the topic "cancel:NODE" of a process with agents if it has such requests: the wake-up of the
        commit may be lost.
        """


class Admin(UpkeepVerbs, ABC):
    """Operations on the store as a whole: schema, checks, figures, audit, removal of ended
    tasks, a new generation.
    """

    @abstractmethod
    async def schema(self) -> SchemaStatus:
        """Return schema version, missing migrations and row counts. Works on a store that needs migrating."""

    @abstractmethod
    async def migrate(self) -> list[str]:
        """Apply missing migrations under a lock; return their names."""

    @abstractmethod
    async def check(self) -> list[str]:
        """Verify integrity and durability settings; return findings in plain words, empty if all is well."""

    @abstractmethod
    async def examine(self) -> list[Finding]:
        """Check everything that durability and speed depend on: location, settings, connection.
        The store may be closed.
        """

    @abstractmethod
    async def broken_rows(self, limit: int) -> list[str]:
        """Return at most ``limit`` unreadable rows, one sentence each that names the row.

        Covers unfinished tasks, queues, notices, alerts and processes, and reads page by page.
        """

    @abstractmethod
    async def touch(self) -> None:
        """Commit a small write, as durably as any other, to measure how long a commit takes."""

    @abstractmethod
    async def begin_generation(self, act: Act) -> NewGeneration:
        """Raise the generation of a store that was restored and may have gone back in time; write an
        audit row and an alert.

        In the same transaction every process counts as dead and every lock is released. Requests that nobody
        has claimed may have been carried out in the lost stretch: they are judged as silent, without counting
        a failure. Numbers that may have been issued (processes, messages, lease epochs) are skipped. Running
        processes learn of it when they register again.
        """


class Store(Protocol):
    """The state store, in slices, as ``open_store`` returns it. Opening, closing, clock and wake-ups
    are on the store itself.
    """

    parallel_from: int | None
    """Decisions that must be ready to start another commit while one is under way; None: never start one."""

    @property
    def tasks(self) -> Tasks:
        """Tasks, their steps and their inboxes."""

    @property
    def requests(self) -> Requests:
        """Requests to agents."""

    @property
    def supervision(self) -> SupervisionVerbs:
        """What the Supervisor finds and changes."""

    @property
    def alerts(self) -> AlertVerbs:
        """Alerts to operators, and the audit."""

    @property
    def queues(self) -> Queues:
        """Message queues of applications."""

    @property
    def notices(self) -> NoticeVerbs:
        """Notifications to submitters."""

    @property
    def schedules(self) -> ScheduleVerbs:
        """Schedules and their firings."""

    @property
    def lanes(self) -> LaneVerbs:
        """Lanes: who holds them, and who waits."""

    @property
    def leases(self) -> LeaseStore:
        """Leases with epochs."""

    @property
    def nodes(self) -> Nodes:
        """Processes and their heartbeats."""

    @property
    def admin(self) -> Admin:
        """The store as a whole."""

    @property
    def oversight(self) -> OversightVerbs:
        """Records for people to review, acts on many tasks, and requests to the leader."""

    @property
    def identity(self) -> Identity:
        """The store's random id and its generation, read at opening, at each
        reconnection and by ``register``.
        """

    @property
    def label(self) -> str:
        """Which store it is, for people: "SQLite shop.db", "PostgreSQL db/shop"; no user, no password."""

    async def open(self, *, migrate: bool = False, looking: bool = False) -> None:
        """Connect and verify durability settings and schema; with ``migrate``, apply
        missing migrations first.

        ``looking``: the caller will only read, and opening writes nothing. So a store that may not be written
        now can be opened. Raises ``StoreUnavailableError``, ``SchemaMismatchError``, ``ConfigError``. An
        empty store without ``migrate`` raises ``SchemaMismatchError``, which names the command to run.
        """

    async def close(self) -> None:
        """Finish work under way, then close files and connections."""

    async def now(self) -> float:
        """Return the time on the store's clock."""

    def subscribe(self, topic: str, wake: Callable[[], None]) -> Callable[[], None]:
        """Call ``wake`` (on the event loop) when there may be something new on ``topic``, from
        this process or another.

        Topics: "pending" (tasks to claim), "sleeping" (tasks to claim later), "queued" (tasks whose
        lanes may be free), "inbox" (messages to tasks), "agent:APP/AGENT" (requests), "cancel:NODE"
        (``cancels`` of a process), "ended" (tasks at rest), "answers" (decided operator commands), "steps"
        (outcomes of steps in tasks that take signals), "queue:NAME" (messages), "schedule" (schedules that
        have changed), "notice" (notices to send), "bulk" (acts on many tasks), "nodes" (processes that begin,
        end or are marked as dead). A wake-up may be spurious, and may be lost on a broken connection: also
        poll slowly. Returns a function that ends the subscription.
        """

    def receive(self, take: Callable[[FreshMessage], bool]) -> Callable[[], None]:
        """Offer ``take`` (on the event loop) messages that this process puts into inboxes, once they are
        committed: whoever holds the task need not read them.

        If it returns False, whoever listens to the topic "inbox" reads the message. A store may offer none.
        Returns a function that ends this.
        """

    def joined(self, *references: int | tuple[str, str] | tuple[int, str, str]) -> None:
        """Watch for a task that ``join`` inserted (its id), a message of ``put`` (its queue and id), or a
        signal (its task, name and id).

        Subscribers are woken soon after the caller's commit. One item stands for all that is committed with
        it. May be called in any thread.
        """

    async def transact(
        self, work: Callable[[Caller], Coroutine[Any, Any, T]], *, waits: bool, idle: float = IDLE
    ) -> T:
        """Run ``work`` in a transaction of the store's own database; commit when it returns, roll back and
        reraise when it raises.

        ``waits``: the work awaits something other than its own statements; only then is it certain to
        run on the event loop.

        ``idle``: seconds for which the work may execute no statement, before PostgreSQL ends its session.

        If the answer to the commit is lost, raises ``StoreUnavailableError``. The work itself must then make
        the outcome visible, such as by redelivery of a message.
        """
