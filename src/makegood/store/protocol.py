"""The state store as its readers see it: narrow slices, each actor asking only for its own.

Every write is a compare-and-set, held to the commit. A method either did all that it says, or raises and did nothing:
ambiguous commits are resolved inside the store (each commit carries a number by which it is found again) and no caller
ever sees one. Lengths of time are seconds; points in time are seconds since 1970 on *the store's* clock and come only
from the store.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from makegood.messages import Alert, Answer, Message, Request
from makegood.store.records import (
    AlertView,
    Batch,
    Committed,
    Draft,
    EventView,
    Filter,
    Grant,
    Identity,
    Inbox,
    Judged,
    LeaseView,
    Loaded,
    NodeInfo,
    NodeView,
    Offer,
    SchemaStatus,
    Submitted,
    TaskDetail,
    TaskView,
)


class Tasks(Protocol):
    """Tasks and their steps: submitted by clients, advanced by the Scheduler that holds them."""

    async def submit(self, drafts: Sequence[Draft]) -> list[Submitted]:
        """Insert tasks with all their steps, in one commit; one answer per draft, in order.

        A key that is taken gives the existing task (``created=False``; ``conflict=True`` when its fingerprint differs);
        an id that is taken gives ``collided=True`` and nothing is written for that draft.
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

    async def find(self, wanted: Filter) -> list[TaskView]:
        """Return tasks that match, newest first, at most ``wanted.limit``."""
        ...

    async def detail(self, task: int) -> TaskDetail | None:
        """Return one task with its steps, or None."""
        ...

    async def history(self, task: int, after: int = 0) -> list[EventView]:
        """Return the events of a task in order, those with a sequence above ``after``."""
        ...


class Queues(Protocol):
    """Messages: requests to agents, replies and acts to tasks."""

    async def inbox(self, node: int, limit: int) -> Inbox:
        """Return messages for tasks that ``node`` holds, and the unlocked tasks (not pending) that have messages.

        Nothing is removed: messages go with the commit that uses them up (``Decision.seqs``).
        """
        ...

    async def post(self, task: int, message: Message) -> None:
        """Leave an operator's act in a task's inbox. Raises ``TaskNotFoundError``."""
        ...

    async def answers(self, acts: Sequence[str]) -> dict[str, Answer]:
        """Return what became of acts, by act id; those not yet decided are missing."""
        ...

    async def take(self, node: int, offers: Sequence[Offer], *, alone: bool = False) -> list[Request]:
        """Give up to ``slots`` waiting requests per offer to ``node``: highest priority, then oldest; complete-by starts now.

        Only actions that the offer names. Isolated requests (``isolate``) go to nodes without a Scheduler; ``alone=True`` (the
        caller has a Scheduler and nothing in flight) gives at most one isolated request, and only when no live node
        without a Scheduler offers that agent. ``Request.within`` is the seconds left.
        """
        ...

    async def answer(self, node: int, replies: Sequence[tuple[int, Message]]) -> list[bool]:
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
        """Free tasks held by nodes whose heartbeat has run out (locked_by null, state pending, lost + 1, failure_count + 1).

        A dead node's row is marked so that it learns of its death when it comes back. Returns the tasks freed.
        """
        ...

    async def release_deaf(self, term: Grant, older: float, limit: int) -> list[int]:
        """Free tasks whose Scheduler has left an ``expired`` message unanswered for more than ``older`` seconds."""
        ...

    async def expire_tasks(self, term: Grant, limit: int) -> list[int]:
        """Leave ``task_expired`` in the inbox of forward tasks past their own complete-by, once each; alert undos past undo_within."""
        ...

    async def starved(self, term: Grant, after: float, limit: int) -> list[int]:
        """Raise one alert per request that no agent has taken for ``after`` seconds. No failure is counted."""
        ...

    async def horizon(self, grace: float, most: float) -> float:
        """Return seconds until the earliest complete-by (+ grace), task complete-by or heartbeat end, at most ``most``, at least 0."""
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
        """Free the lease if it is still this grant's; otherwise nothing."""
        ...

    async def read(self, name: str) -> LeaseView | None:
        """Return who holds the lease, with epoch and seconds left."""
        ...


class Upkeep(Protocol):
    """Opening, closing, the clock, nodes, alerts, the schema."""

    @property
    def identity(self) -> Identity:
        """The store's own random id and its generation, read when it was opened and at each reconnection."""
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

    async def register(self, info: NodeInfo) -> int:
        """Insert a node row with its first heartbeat; returns the node's number, never given twice."""
        ...

    async def heartbeat(self, node: int, info: NodeInfo) -> bool:
        """Extend the node's life by ``info.ttl`` and publish ``info``; False: it was declared dead, register anew."""
        ...

    async def unregister(self, node: int) -> None:
        """Mark the node as stopped in good order."""
        ...

    async def nodes(self) -> list[NodeView]:
        """Return nodes alive or stopped within the last hour, and per-agent queue depth with them."""
        ...

    async def depths(self) -> dict[str, int]:
        """Return how many requests wait for each agent ("APP/AGENT"), whether a process runs it or not."""
        ...

    async def alert(self, alerts: Sequence[Alert]) -> None:
        """Write alerts that belong to no Decision (such as "no leader")."""
        ...

    async def alerts(self, limit: int = 100, task: int | None = None) -> list[AlertView]:
        """Return alerts, newest first."""
        ...

    async def schema(self) -> SchemaStatus:
        """Return schema version, migrations not applied, and row counts. Works on a store that needs migrating."""
        ...

    async def migrate(self) -> list[str]:
        """Apply missing migrations under a lock; returns the names of those applied."""
        ...

    async def check(self) -> list[str]:
        """Verify integrity and durability settings; returns findings in plain words, empty when all is well."""
        ...

    def subscribe(self, topic: str, ring: Callable[[], None]) -> Callable[[], None]:
        """Call ``ring`` (on the event loop) when something may have come for ``topic``, from this process or another.

        Topics: "pending" (tasks to claim), "inbox" (messages to tasks), "agent:APP/AGENT" (requests), "ended" (tasks came to
        rest), "answers" (acts decided). A ring may come for nothing and, on a broken connection, may be missed: poll slowly
        behind it. Returns a function that ends the subscription.
        """
        ...


class Store(Tasks, Queues, Supervision, Leases, Upkeep, Protocol):
    """All slices: what ``open_store`` returns. Actors name the slices they use in their constructors."""
