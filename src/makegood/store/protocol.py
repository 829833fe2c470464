"""The state store as its readers see it: narrow slices, each actor asking only for its own.

Every write is a compare-and-set, held to the commit. A method either did all that it says, or raises and did nothing:
ambiguous commits are resolved inside the store (each commit carries a number by which it is found again) and no caller
ever sees one. Lengths of time are seconds; points in time are seconds since 1970 on *the store's* clock and come only
from the store.
"""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from makegood.election.protocol import Grant, LeaseView, PastTerm
from makegood.model.messages import Act, Alert, Answer, TaskMessage
from makegood.store.notice_records import Due, HostDue, ListenerView, Sending
from makegood.store.queue_records import Handed, MessageView, Outgoing, QueueView, Receipt, Returned, Sent
from makegood.store.records import (
    NO_LIMIT,
    Anew,
    Batch,
    Committed,
    Identity,
    Judged,
    Loaded,
    Offer,
    Pruned,
    Submission,
    Submitted,
    Taken,
    TaskMessages,
)
from makegood.store.views import (
    AlertView,
    AuditView,
    EventView,
    Filter,
    Finding,
    NodeInfo,
    NodeView,
    SchemaStatus,
    TaskDetail,
    TaskFigures,
    TaskView,
    Telling,
)
from makegood.transactions import Caller

T = TypeVar("T")


class Tasks(Protocol):
    """Tasks, their steps and their inboxes: submitted by clients, advanced by the Scheduler that holds them."""

    async def submit(self, drafts: Sequence[Submission]) -> list[Submitted]:
        """Insert tasks with all their steps, in one commit; one answer per draft, in order.

        A key that is taken gives the existing task (``created=False``; ``conflict=True`` when its fingerprint differs);
        an id that is taken gives ``collided=True`` and nothing is written for that draft.
        """
        ...

    async def join(self, caller: Caller, drafts: Sequence[Submission]) -> list[Submitted]:
        """Insert tasks as ``submit`` does, in a transaction that the caller began and will end, asking nothing but ``caller``.

        May run in any thread, and waits for nothing else. Raises ``TransactionError`` for a connection to another database, in
        autocommit, with less durability, or without rights; ``SchemaMismatchError``; ``PayloadError``; and whatever the
        caller's driver raises. It neither commits nor rolls back, and its own errors leave the transaction as it was.
        """
        ...

    async def commit(self, batch: Batch) -> Committed:
        """Write a Scheduler's Decisions and, in the same transaction, claim tasks and write what ``decide`` makes of them.

        Fences, per Decision: the task is locked by ``batch.node`` under ``before.epoch``, and every consumed request row is
        still there with its attempt. A Decision that fails them is *lost* and named in the answer; the rest is committed.
        A Decision whose values the database refuses is found by bisection and its task put to error with an alert.
        """
        ...

    async def load(self, node: int, tasks: Sequence[int]) -> list[Loaded]:
        """Return tasks that ``node`` still holds, as the store has them, with their inbox."""
        ...

    async def put_to_error(self, node: int, task: int, reason: str) -> None:
        """Put a task that ``node`` holds to error, with an alert and nothing in flight, whatever is in its rows; nothing when another
        holds it by now.
        """
        ...

    async def inbox(self, node: int, limit: int, room: int = NO_LIMIT) -> TaskMessages:
        """Return messages for tasks that ``node`` holds, and the unlocked tasks (not pending) that have messages; at most ``limit``
        messages, and no further one once they have ``room`` bytes.

        Nothing is removed: messages go with the commit that uses them up (``Decision.seqs``).
        """
        ...

    async def post(self, task: int, message: TaskMessage) -> None:
        """Leave an operator's act in a task's inbox. Raises ``TaskNotFoundError``."""
        ...

    async def answers(self, acts: Sequence[str]) -> dict[str, Answer]:
        """Return what became of acts, by act id; those not yet decided are missing."""
        ...

    async def find(self, wanted: Filter) -> list[TaskView]:
        """Return tasks that match, newest first, at most ``wanted.limit``."""
        ...

    async def count(self, wanted: Filter) -> int:
        """Return how many tasks match, whatever ``wanted.limit``."""
        ...

    async def detail(self, task: int, *, asked: bool = False) -> TaskDetail | None:
        """Return one task with its steps, or None; ``asked``: with the acts on it that are not decided."""
        ...

    async def history(self, task: int, after: int = 0) -> list[EventView]:
        """Return the events of a task in order, those with a sequence above ``after``."""
        ...


class Requests(Protocol):
    """Requests to agents, pulled by those who work, and their replies."""

    async def take(self, node: int, offers: Sequence[Offer], *, alone: bool = False) -> Taken:
        """Give up to ``slots`` waiting requests per offer to ``node``: highest priority, then oldest; complete-by starts now.

        Only actions that the offer names. Isolated requests (``isolate``) go to nodes without a Scheduler; ``alone=True`` (the
        caller has a Scheduler and nothing in flight) gives at most one isolated request, and only when no live node
        without a Scheduler offers that agent. ``Request.within`` is the seconds left.

        Of an offer with a ``rate`` no more are given than it allows, counted over all nodes: each with the ``delay`` after which it
        may begin, where its complete-by starts. Every ``priority_ageing`` that a request waits counts as one priority more.
        """
        ...

    async def answer(self, node: int, replies: Sequence[tuple[int, TaskMessage]]) -> list[bool]:
        """Leave replies (task, message) in the tasks' inboxes; True for each that came in time.

        In time: the request row is there with this attempt, taken by ``node``, complete-by not passed on the store's clock, not
        answered before (the same reply again is True and changes nothing). Others are recorded as late: in the history, and
        as a ``late`` message when the task has not ended and the reply says ``done``.
        """
        ...

    async def extend(self, node: int, task: int, idx: int, attempt: int, seconds: float) -> bool:
        """Move the attempt's complete-by to ``seconds`` from now if it is still ``node``'s and in time, never earlier."""
        ...

    async def give_back(self, node: int, requests: Sequence[tuple[int, int, int]]) -> None:
        """Make requests (task, idx, attempt) that were taken but not begun available again."""
        ...

    async def excuse(self, node: int, requests: Sequence[tuple[int, int, int]]) -> None:
        """Mark requests (task, idx, attempt) that ``node`` has taken and not answered: ``judge`` does not count their silence as a
        failure, unless ``node`` dies.
        """
        ...


class Supervision(Protocol):
    """What the leading Supervisor finds and asks for. Every write carries its term's epoch and is refused with
    ``FencedOffError`` when the lease has moved on or expired; the lease row is locked FOR SHARE as the last statement.
    """

    async def judge(self, term: Grant, grace: float, limit: int) -> Judged:
        """Judge at most ``limit`` requests whose complete-by passed more than ``grace`` ago without an answer.

        Per request, by compare-and-set on attempt and complete-by: the step's and the task's failure counts + 1, the request row is
        gone, ``expired`` (with the count and whether its node is dead) is in the task's inbox.
        """
        ...

    async def release_dead(self, term: Grant, limit: int) -> list[int]:
        """Free tasks held by nodes whose heartbeat has run out (locked_by null, state pending, failure_count + 1).

        ``lost`` + 1 for those of which the dead process was running an attempt, also one whose silence was judged since: only they
        may be what killed it.
        A dead node's row is marked so that it learns of its death when it comes back. Returns the tasks freed.
        """
        ...

    async def release_deaf(self, term: Grant, older: float, limit: int) -> list[int]:
        """Free tasks whose Scheduler has left an ``expired`` message unanswered for more than ``older`` seconds: lost + 1."""
        ...

    async def expire_tasks(self, term: Grant, limit: int) -> list[int]:
        """Leave ``task_expired`` in the inbox of forward tasks past their own complete-by, once each; alert undos past undo_within."""
        ...

    async def starved(self, term: Grant, after: float, limit: int, outage: float = 300.0) -> list[int]:
        """Find requests that no agent has taken for ``after`` seconds, each once; raise one alert per action that nobody takes. No
        failure is counted. An agent whose circuit is shut has an alert of its own, and another one, which names the tasks that wait, when
        that is so for ``outage`` seconds. Raises one alert when tasks have waited and no Scheduler has lived for ``after`` seconds. Ends
        those of actions that are taken again, of circuits that are not open, of no Scheduler or leader.
        """
        ...

    async def horizon(self, grace: float, most: float) -> float:
        """Return seconds until the earliest complete-by (+ grace), task complete-by or heartbeat end, at most ``most``, at least 0."""
        ...


class Alerts(Protocol):
    """What operators are shown and what they did. An alert has a cause: (kind, task, step). While it stands it is one alert."""

    async def alert(self, alerts: Sequence[Alert]) -> None:
        """Raise alerts that belong to no Decision (such as "no leader"); one whose cause is known already gets the new text."""
        ...

    async def ease(self, causes: Sequence[Alert], why: str) -> None:
        """End the alerts of these causes (kind, task, step): they have gone. Those that do not stand do not matter."""
        ...

    async def views(
        self, limit: int = 100, task: int | None = None, *, ended: bool | None = None
    ) -> list[AlertView]:
        """Return alerts, newest first; ``ended``: only those that have ended, or (False) those that have not: of these the open
        ones first, then those that somebody has acknowledged.
        """
        ...

    async def acknowledge(self, ids: Sequence[int], act: Act) -> dict[int, AlertView]:
        """Acknowledge alerts that are open, with a row in the audit for each; returns all of ``ids`` that there are as they
        are now: who was first is in ``acked_by``. Alerts about what has happened (``UNTIL_SEEN``) end with it.
        """
        ...

    async def unlogged(self, limit: int) -> list[Telling]:
        """Return alerts that no process has logged; they count as logged from here on."""
        ...

    async def untold(self, hold: float, limit: int) -> list[Telling]:
        """Return alerts of the last day that no webhook was told of, oldest first; for ``hold`` seconds nobody else gets them."""
        ...

    async def told(self, done: Sequence[Telling], later: Mapping[int, float]) -> None:
        """Note what was told; ``later``: ids of alerts to be tried again in so many seconds."""
        ...


class Queues(Protocol):
    """Queues of messages that applications read and write.

    A message is lent to one receiver at a time, whose receipt (``seq``, ``tries``) is good until another has it.
    """

    async def send_messages(
        self, messages: Sequence[Outgoing], most: int, most_bytes: int = NO_LIMIT
    ) -> list[Sent]:
        """Put messages into their queues, in one commit; one answer each, in order.

        A queue that knows the id (a message that waits, is dead, or is remembered) keeps what it has: ``created=False``.
        Raises ``QueueFullError`` (``room``: how many would fit) when more than ``most`` would wait in a queue, or more than
        ``most_bytes`` of their values (an empty queue takes one of any size), ``PayloadError`` for values that the database refuses;
        then nothing was sent. Sends of one moment may not see each other, and all be taken; ``mail.Depths`` says when bytes are added up.
        """
        ...

    async def receive_messages(
        self, queue: str, taker: str, limit: int, lease: float, threshold: int
    ) -> Handed:
        """Give at most ``limit`` messages to ``taker``, those due the longest first, for ``lease`` seconds; tries + 1.

        A message of a task waits for those before it of the same task that are taken or delayed. One that was given out
        ``threshold`` times is put to the dead letters instead, with an alert. Any number of receivers may ask at once.
        """
        ...

    async def hold_messages(self, receipts: Sequence[Receipt], lease: float) -> list[bool]:
        """Make leases end ``lease`` seconds from now, never earlier; False for each message that is not the holder's any more."""
        ...

    async def acknowledge_messages(self, receipts: Sequence[Receipt]) -> list[bool]:
        """Take messages out of their queues: they are done. False for each that is not the holder's any more."""
        ...

    async def return_messages(self, returned: Sequence[Returned]) -> list[bool]:
        """Give messages back, or put them to the dead letters with an alert. False for each that is not the holder's any more."""
        ...

    async def accept(self, caller: Caller, receipt: Receipt) -> bool:
        """Acknowledge a message in a transaction, asking nothing but ``caller``; False: it is not the holder's any more.

        Raises what ``join`` raises for a connection that is not fit.
        """
        ...

    async def put(self, caller: Caller, message: Outgoing, most: int, most_bytes: int = NO_LIMIT) -> Sent:
        """Send a message in a transaction that the caller began and will end, asking nothing but ``caller``.

        Answers and raises as ``send_messages``, and what ``join`` raises; its own errors leave the transaction as it was.
        """
        ...

    async def messages(self, queue: str | None, limit: int = 100, *, dead: bool = False) -> list[MessageView]:
        """Return messages that wait, oldest first, or dead letters (of all queues: None); nobody takes them by that."""
        ...

    async def views(self) -> list[QueueView]:
        """Return the queues in which messages wait or are dead, by name."""
        ...

    async def replay_messages(
        self, queue: str, act: Act, ids: Sequence[str] | None = None, *, body: bytes | None = None
    ) -> list[str]:
        """Let dead letters be received again, without tries (None: all of the queue); their alerts end, each is audited. ``body``: what
        replaces that of the one message. Returns ids.
        """
        ...

    async def drop_messages(
        self, queue: str, act: Act, ids: Sequence[str] | None = None, *, waiting: bool = False
    ) -> list[str]:
        """Remove dead letters for good, or what waits and nobody has (``mail.MOST_DROPPED`` of all), as ``replay_messages``."""
        ...

    async def expire_messages(self, limit: int) -> int:
        """Remove messages that were not received in time and ids remembered for long enough; returns how many, at most ``limit``."""
        ...

    async def shorten_queues(self, most: int, limit: int, most_bytes: int = NO_LIMIT) -> int:
        """Drop the oldest notices of queues in which more than ``most`` messages or ``most_bytes`` wait, at most ``limit`` of each queue,
        with an alert for each; returns how many. What somebody sent, or has taken, stays.
        """
        ...


class Notices(Protocol):
    """What submitters are told, on its way to webhooks. It is written by ``submit`` and ``commit``, with the state changes.

    Notices of one task leave in order: the next one can be taken only when the one before is settled as *sent*. A task with
    a listener (``listeners``) has unsent notices and must not be removed.
    """

    async def notices_due(self) -> list[HostDue]:
        """Return the hosts that something is to be sent to, and when the first of it is due. Writes nothing."""
        ...

    async def take_notices(self, node: int, room: Sequence[tuple[str, int]], lease: float) -> list[Due]:
        """Take notices that are due, at most so many of each host, longest due first; for ``lease`` seconds nobody else gets them,
        nor any other of their tasks.
        """
        ...

    async def settle_notices(self, node: int, outcomes: Sequence[Sending]) -> list[bool]:
        """Write down what became of notices that ``node`` took; False for each that it lost to another meanwhile.

        ``dead`` raises an alert in the same transaction.
        """
        ...

    async def listeners(self, limit: int = 100, *, dead: bool = False) -> list[ListenerView]:
        """Return webhooks that are still to be told something, those given up first; ``dead``: only those."""
        ...

    async def retry_notices(self, act: Act, task: int | None = None) -> list[int]:
        """Let what was given up be sent again, of one task or of all; its alerts end, each task is audited. Returns the tasks."""
        ...

    async def drop_notices(self, act: Act, task: int | None = None) -> list[int]:
        """Drop what was given up of all tasks, or whatever is unsent of one, as ``retry_notices``."""
        ...


class Leases(Protocol):
    """Leases with epochs: the record is never deleted, so an epoch never comes again."""

    async def acquire(self, name: str, holder: str, nonce: str, ttl: float) -> Grant | None:
        """Take a free or expired lease, epoch + 1; the same ``nonce`` again gives the same epoch. None: somebody holds it."""
        ...

    async def renew(self, grant: Grant) -> bool:
        """Extend a lease that is still held and not expired; False: the term is over."""
        ...

    async def release(self, grant: Grant) -> None:
        """Free the lease if it still bears this grant's nonce; otherwise nothing."""
        ...

    async def read(self, name: str) -> LeaseView | None:
        """Return who holds the lease, with epoch and seconds left."""
        ...

    async def past_terms(self, name: str, limit: int = 100) -> list[PastTerm]:
        """Return the latest terms of a lease, newest first."""
        ...


class Nodes(Protocol):
    """Processes: their numbers, their heartbeats, and what they run."""

    async def register(self, info: NodeInfo) -> int:
        """Insert a node row with its first heartbeat; returns the node's number, never given twice."""
        ...

    async def heartbeat(self, node: int, info: NodeInfo) -> bool:
        """Extend the node's life by ``info.ttl`` and publish ``info``; False: it was declared dead, register anew."""
        ...

    async def unregister(self, node: int) -> None:
        """Mark the node as stopped in good order."""
        ...

    async def views(self) -> list[NodeView]:
        """Return nodes alive or stopped within the last hour, and per-agent queue depth with them."""
        ...

    async def depths(self) -> dict[str, int]:
        """Return how many requests wait for each agent ("APP/AGENT"), whether a process runs it or not."""
        ...


class Admin(Protocol):
    """What operators do to the store as a whole: schema, examination, figures, audit, removal of what ended, a new generation."""

    async def schema(self) -> SchemaStatus:
        """Return schema version, migrations not applied, and row counts. Works on a store that needs migrating."""
        ...

    async def migrate(self) -> list[str]:
        """Apply missing migrations under a lock; returns the names of those applied."""
        ...

    async def check(self) -> list[str]:
        """Verify integrity and durability settings; returns findings in plain words, empty when all is well."""
        ...

    async def examine(self) -> list[Finding]:
        """Look at all that durability and speed need around the store: place, settings, the way to it. It need not be open."""
        ...

    async def orphans(self, limit: int) -> list[int]:
        """Return tasks under way that nothing will move: neither a request (in flight or timer) nor a live process that holds them."""
        ...

    async def broken(self, limit: int) -> list[str]:
        """Return which rows of unfinished tasks, of queues, notices, alerts and processes do not read: a sentence each that names the
        row, at most ``limit``. Pages are read one after another.
        """
        ...

    async def touch(self) -> None:
        """Commit a small write as durably as every other, for whoever measures how long that takes."""
        ...

    async def figures(self) -> TaskFigures:
        """Return how much there is to do, and what is wrong. Its cost grows with what is unended or in flight, never with what ended."""
        ...

    async def audit(
        self, limit: int = 100, task: int | None = None, *, before: float | None = None
    ) -> list[AuditView]:
        """Return operators' acts, newest first; ``before``: those earlier than this point in time."""
        ...

    async def prune(self, older: float, after: int, limit: int, *, dry: bool = False) -> Pruned:
        """Remove tasks processed or undone more than ``older`` seconds ago, with all rows about them.

        Looks at ``limit`` tasks with an id above ``after``, which is the order of submission. Kept are those for which a message
        waits, whose submitter is still to be told, or about which an alert stands or was not told; tasks in error never count as
        ended. With the first window (``after`` = 0) go at most ``limit`` alerts and acts as old that belong to no task.
        ``dry``: nothing is removed.
        """
        ...

    async def begin_anew(self, act: Act) -> Anew:
        """Raise the generation, because the store was restored and may have gone back in time, with a row in the audit and an alert.

        In the same transaction every process counts as dead and every lock is gone; requests that nobody has taken may have been
        carried out in the lost stretch, and are judged as silence without counting a failure; numbers that were perhaps given
        out (processes, messages, epochs of leases) are skipped. Processes that run learn of it when they register anew.
        """
        ...


class Store(Protocol):
    """The state store, in slices: what ``open_store`` returns. On itself are opening and closing, its clock and its doorbell.

    ``abreast``: of how many Decisions a further commit is worth while one is under way; None: of none.
    """

    abreast: int | None

    @property
    def tasks(self) -> Tasks:
        """Tasks, their steps and their inboxes."""
        ...

    @property
    def requests(self) -> Requests:
        """Requests to agents."""
        ...

    @property
    def supervision(self) -> Supervision:
        """What the Supervisor finds."""
        ...

    @property
    def alerts(self) -> Alerts:
        """What operators are shown."""
        ...

    @property
    def queues(self) -> Queues:
        """Messages of applications."""
        ...

    @property
    def notices(self) -> Notices:
        """What submitters are told."""
        ...

    @property
    def leases(self) -> Leases:
        """Leases with epochs."""
        ...

    @property
    def nodes(self) -> Nodes:
        """Processes."""
        ...

    @property
    def admin(self) -> Admin:
        """The store as a whole."""
        ...

    @property
    def identity(self) -> Identity:
        """The store's own random id and its generation, read when it was opened, at each reconnection and by ``register``."""
        ...

    async def open(self, *, migrate: bool = False, looking: bool = False) -> None:
        """Connect and verify durability settings and schema; ``migrate`` applies missing migrations first.

        ``looking``: the caller will only read; then nothing is written at opening, so that it works on a store that may not
        be written now.
        Raises ``StoreUnavailableError``, ``SchemaMismatchError``, ``ConfigError``. An empty store without ``migrate`` is a
        ``SchemaMismatchError`` that names the command to type.
        """
        ...

    async def close(self) -> None:
        """Finish what is under way and let go of files and connections."""
        ...

    async def now(self) -> float:
        """Return the store's clock."""
        ...

    def subscribe(self, topic: str, ring: Callable[[], None]) -> Callable[[], None]:
        """Call ``ring`` (on the event loop) when something may have come for ``topic``, from this process or another.

        Topics: "pending" (tasks to claim), "inbox" (messages to tasks), "agent:APP/AGENT" (requests), "ended" (tasks came to
        rest), "answers" (acts decided), "queue:NAME" (messages), "notice" (something to be sent). A ring may come for nothing and, on a broken connection, may be missed: poll slowly
        behind it. Returns a function that ends the subscription.
        """
        ...

    def joined(self, *written: int | tuple[str, str]) -> None:
        """Look out for a task that ``join`` inserted (its id), or a message of ``put`` (its queue and id), so that those who listen
        hear of it soon after the caller's commit. One tells of all that is committed with it. May be called in any thread.
        """
        ...

    async def transact(self, work: Callable[[Caller], Coroutine[Any, Any, T]], *, waits: bool) -> T:
        """Do ``work`` in a transaction of the store's own database: committed when it returns, rolled back when it raises, which
        is then raised. ``waits``: it waits for other things than the statements that it executes; only then it is run on
        the event loop for certain.

        When the answer to its commit is lost that is a ``StoreUnavailableError``, and what was done in it has to tell whether
        it stands, such as a message by coming again.
        """
        ...
