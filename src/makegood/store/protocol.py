"""The interface of the state store, in narrow slices: each actor receives only the slice that it uses.

Every write is a compare-and-set whose fence holds until the commit. A method either does all that its
docstring says, or raises and changes nothing. The store itself resolves ambiguous commits (each commit
carries a number by which the store finds it again), so callers never see one. Durations are in seconds.
Points in time are seconds since 1970 on *the store's* clock and come only from the store.
"""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from makegood.election.protocol import Grant, LeaseView, PastTerm
from makegood.model.messages import Act, Answer, TaskMessage
from makegood.model.schedule import ScheduleDraft
from makegood.store.alerts import AlertVerbs
from makegood.store.notice_operations import NoticeVerbs
from makegood.store.oversight import OversightVerbs
from makegood.store.protocol_parts import LaneLists, Queues, Signalling
from makegood.store.records import (
    IDLE,
    NO_LIMIT,
    Batch,
    Committed,
    Identity,
    Judged,
    Loaded,
    NewGeneration,
    Offer,
    Pruned,
    Submission,
    Submitted,
    Taken,
    TaskMessages,
)
from makegood.store.schedule_records import FiringPass, ScheduleView, ScheduleWork
from makegood.store.schedules import Following
from makegood.store.step_outcomes import AwaitedStep, StepOutcome
from makegood.store.views import (
    AuditView,
    EventView,
    Filter,
    Finding,
    Found,
    NodeInfo,
    NodeView,
    SchemaStatus,
    SignalWait,
    StepBrief,
    StepPage,
    Tally,
    TaskDetail,
    TaskEvents,
    TaskExcerpt,
    TaskFigures,
    TaskGroups,
    TaskView,
    UnendedTally,
)
from makegood.transactions import Caller

T = TypeVar("T")


class Tasks(Signalling, Protocol):
    """Tasks, their steps and their inboxes: clients submit tasks, and the Scheduler that
    holds one advances it.
    """

    def clock(self) -> float:
        """Return the time on the store's clock as this process knows it, without a call of the store.

        It is exact on SQLite. On PostgreSQL it is what the last heartbeat read, and the time since.
        """

    def calendar(self) -> float:
        """Return the wall clock by which moments of the calendar come, in seconds since 1970, without a call
        of the store: this machine's on SQLite, on PostgreSQL the server's, as ``clock`` knows it.
        """

    async def submit(self, drafts: Sequence[Submission]) -> list[Submitted]:
        """Insert tasks with all their steps in one commit; return one answer per draft, in order.

        If the task key exists, the answer names the existing task (``created=False``; ``conflict=True``
        and its inputs when its fingerprint differs). If the id exists, the answer has ``collided=True`` and
        nothing is written for that draft.
        """

    async def join(self, caller: Caller, drafts: Sequence[Submission]) -> list[Submitted]:
        """Insert tasks as ``submit`` does, in the caller's open transaction, using only ``caller``.

        May run in any thread and waits for nothing else. Raises ``TransactionError`` for a connection to
        another database, in autocommit, with less durability, or without rights; ``SchemaMismatchError``;
        ``PayloadError``; and whatever the caller's driver raises. It neither commits nor rolls back, and its
        own errors leave the transaction as it was.
        """

    async def commit(self, batch: Batch) -> Committed:
        """Write a Scheduler's Decisions, claim tasks, and write what ``decide`` returns for
        these: one transaction.

        A Decision is fenced twice: ``batch.node`` holds the task's lock under ``before.epoch``, and every
        consumed request row still exists with its attempt. A Decision that fails a fence is *lost* and named
        in the answer; the rest is committed. If the database refuses a value, the store finds the Decision by
        bisection and puts its task to error with an alert.
        """

    async def load(self, node: int, tasks: Sequence[int]) -> list[Loaded]:
        """Return those of ``tasks`` that ``node`` still holds, as stored, with their inboxes."""

    async def put_to_error(self, node: int, task: int, reason: str) -> None:
        """Put a task that ``node`` holds to error, with an alert and nothing in flight.

        Works whatever the task's rows contain. Does nothing if another node holds the task by now.
        """

    async def inbox(
        self, node: int, limit: int, room: int = NO_LIMIT, *, at_rest: bool = True
    ) -> TaskMessages:
        """Return messages for tasks that ``node`` holds, and unlocked tasks (not pending) with messages.

        ``at_rest``: False for the former only, whose cost does not grow with the number of the latter.
        Returns at most ``limit`` messages, and stops once they have ``room`` bytes. Nothing is removed: a
        message is deleted by the commit that uses it (``Decision.seqs``).
        """

    async def post(self, task: int, message: TaskMessage) -> None:
        """Put an operator command in a task's inbox. Raises ``TaskNotFoundError``."""

    async def answers(self, acts: Sequence[str]) -> dict[str, Answer]:
        """Return the answers to operator commands, by act id; undecided ones are missing."""

    async def find(self, condition: Filter) -> list[TaskView]:
        """Return matching tasks, newest first, at most ``condition.limit``."""

    async def count(self, condition: Filter) -> int:
        """Return the number of matching tasks; ``condition.limit`` is ignored."""

    async def search(self, condition: Filter, scan_limit: int = ...) -> Found:
        """Return a page of matching tasks, newest first, and where the next page begins.

        Looks at no more than ``scan_limit`` tasks, so a page may be short although more tasks match.
        """

    async def groups(
        self,
        condition: Filter,
        below: int | None = None,
        scan_limit: int = ...,
        sample_limit: int = ...,
        *,
        attribute: str | None = None,
    ) -> TaskGroups:
        """Return a page of matching tasks by their correlation ids, or by their values of an ``attribute``,
        and where the next page begins.

        Looks at no more than ``scan_limit`` tasks, in the same number of statements whatever the groups hold.
        ``below``: a page that begins there, as the one before says. Each group names at most ``sample_limit``
        tasks.
        """

    async def attribute_names(self, tasks: Sequence[int], limit: int = ...) -> list[str]:
        """Return the names of attributes that tasks have, those of the most tasks first."""
        ...

    async def keyed(self, app: str, workflow: str, keys: Sequence[str]) -> dict[str, int]:
        """Return the tasks of a workflow that have these keys."""
        ...

    async def tally(self, condition: Filter, scan_limit: int = ...) -> Tally:
        """Return the number of matching tasks, as far as ``scan_limit`` tasks show it."""

    async def states(self, condition: Filter) -> dict[str, int]:
        """Return the number of matching tasks by state: all of them, however many."""

    async def unended(self, scan_limit: int = ...) -> UnendedTally:
        """Return the number of tasks not ended, by state, as far as ``scan_limit`` tasks show it."""

    async def waits(self, scan_limit: int = ...) -> dict[str, int]:
        """Return how many steps wait because their service asked for it, by the first line of its text."""
        ...

    async def step_outcomes(self, steps: Sequence[AwaitedStep]) -> dict[AwaitedStep, StepOutcome]:
        """Return what became of these steps; those that the store does not have are missing."""
        ...

    async def signal_waits(self, scan_limit: int = ...) -> list[SignalWait]:
        """Return how many tasks wait for each signal, the most first, as far as ``scan_limit`` tasks that
        sleep, as many that are held and as many that are pending show it.
        """
        ...

    async def progress(self, tasks: Sequence[int]) -> dict[int, tuple[int, int, int]]:
        """Return how many actions of each task are done, are undone, and there are, without skipped ones."""
        ...

    async def lately(self, seconds: float, scan_limit: int = ...) -> tuple[dict[str, int], bool]:
        """Return the number of tasks submitted within ``seconds``, by state, and whether there may be
        more.
        """

    async def briefs(self, tasks: Sequence[int]) -> dict[int, list[StepBrief]]:
        """Return the first steps of each task, for lists."""

    async def detail(self, task: int, *, with_asked: bool = False) -> TaskDetail | None:
        """Return one task with its steps, or None; ``with_asked``: with its undecided operator commands."""

    async def history(self, task: int, after: int = 0) -> list[EventView]:
        """Return the events of a task with a sequence above ``after``, in order."""

    async def excerpt(self, task: int, page: StepPage | None = None) -> TaskExcerpt | None:
        """Return what a page shows of a task, or None: a bounded number of rows and bytes of it."""

    async def step_names(self, task: int, steps: Sequence[int]) -> dict[int, str]:
        """Return the names of these steps, by index."""

    async def recent(self, task: int, before: int | None = None) -> TaskEvents:
        """Return the newest events of a task with a sequence below ``before``, as many as a page shows."""

    async def events_after(self, task: int, after: int, limit: int, octets: int) -> TaskEvents:
        """Return events of a task with a sequence above ``after``, in order: at most ``limit``, and of
        ``octets`` bytes, but one at least.
        """

    async def value(self, task: int, what: str, number: int, most: int) -> tuple[int, bytes | None] | None:
        """Return the size and the content of one value of a task: "result" or "inputs", or of the
        step ``number`` its result ("step") or "error". None instead of a content above ``most`` bytes, and
        for a value that does not exist.
        """


class Requests(Protocol):
    """Requests to agents, which agents pull, and the agents' replies."""

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

    async def answer(self, node: int, replies: Sequence[tuple[int, TaskMessage]]) -> list[bool]:
        """Put replies (task, message) in the tasks' inboxes; return True for each that came in time.

        A reply is in time if the request row exists with this attempt, ``node`` has claimed it, its deadline
        has not passed on the store's clock, and it has no answer yet. Repeating the same reply returns True
        and changes nothing. Any other reply is recorded as late: in the history, and as a ``late`` message if
        the task has not ended and the reply is ``done``.
        """

    async def extend(self, node: int, task: int, idx: int, attempt: int, seconds: float) -> bool:
        """Move the attempt's deadline to ``seconds`` from now, never earlier.

        Returns whether ``node`` still has the request and is in time.
        """

    async def turn(self, agent: str, rate: float, most: float) -> float | None:
        """Reserve a turn of an agent's rate for a further try within an attempt.

        Returns the seconds until it, None if they would be more than ``most`` or than a minute: then
        nothing is reserved. Turns count over all nodes, like the requests of ``take``.
        """

    async def give_back(self, node: int, requests: Sequence[tuple[int, int, int]]) -> None:
        """Release requests (task, idx, attempt) that were claimed but not begun."""

    async def excuse(self, node: int, requests: Sequence[tuple[int, int, int]]) -> None:
        """Mark requests (task, idx, attempt) that ``node`` has claimed and not answered as excused.

        ``judge`` does not count their silence as a failure, unless ``node`` dies.
        """

    async def cancels(self, node: int) -> list[tuple[int, int, int]]:
        """Return the requests (task, idx, attempt) that ``node`` has claimed and not answered, and that
        nobody needs any more (``Decision.cancels``).
        """


class Supervision(Protocol):
    """What the leading Supervisor finds and changes.

    Every write carries the term's epoch. It raises ``FencedOffError`` when the lease has moved on or expired:
    the last statement locks the lease row FOR SHARE.
    """

    async def judge(self, term: Grant, grace: float, limit: int) -> Judged:
        """Judge at most ``limit`` unanswered requests, ``grace`` seconds after their deadlines.

        Each request is judged by compare-and-set on attempt and deadline. Judging adds 1 to the failure
        counts of step and task, deletes the request row, and puts ``expired`` (with the count, and whether
        its node is dead) in the task's inbox.
        """

    async def judge_dead(self, term: Grant, grace: float, limit: int) -> Judged:
        """Judge, before their deadlines, at most ``limit`` attempts of nodes marked as dead: those of actions
        whose services honour keys (``Policy.resumes``), in tasks that go forward.

        As ``judge``, and ``expired`` says until when the attempt would have been awaited, ``grace`` included:
        it may still run if its process was only slow.
        """

    async def release_dead(self, term: Grant, limit: int, *, marks: bool = True) -> list[int]:
        """Free tasks held by nodes whose heartbeat has run out; without ``marks``, only by marked nodes.

        A freed task gets locked_by null, state pending and failure_count + 1. ``lost`` + 1 only for tasks
        of which the dead process was running an attempt, even one judged as silent since: only these tasks
        may have killed it. A dead node's row is marked, so the node learns of its death when it returns.
        Returns the tasks freed.
        """

    async def release_unresponsive(self, term: Grant, older: float, limit: int) -> list[int]:
        """Free tasks with an ``expired`` message left undecided for more than ``older``
        seconds; ``lost`` + 1.
        """

    async def expire_tasks(self, term: Grant, limit: int) -> list[int]:
        """Put ``task_expired`` in the inbox of forward tasks past their deadline, once each.

        Raises an alert for undos past undo_within.
        """

    async def starved(self, term: Grant, after: float, limit: int, outage: float = 300.0) -> list[int]:
        """Find requests that no agent has claimed for ``after`` seconds, each once, and keep the
        alerts about them current.

        Raises one alert per action that nobody claims; counts no failure. An agent whose circuit is open
        has an alert of its own, and after ``outage`` seconds a second one, which names the waiting tasks.
        Raises one alert if tasks have waited for ``after`` seconds and no Scheduler was alive in that
        time. Ends these alerts when actions are claimed again, circuits are no longer open, or a
        Scheduler or leader is back.
        """

    async def horizon(self, grace: float, most: float) -> float:
        """Return seconds until the earliest deadline (+ grace), task deadline or
        heartbeat end: 0 to ``most``.
        """


class Schedules(Protocol):
    """Schedules: moments at which a workflow becomes a task. The leading Supervisor fires them.

    Their times are of the calendar: the server's clock on PostgreSQL, the machine's wall clock on SQLite.
    """

    async def apply(self, drafts: Sequence[ScheduleDraft]) -> list[str]:
        """Write schedules; return "new", "changed" or "same" for each. Writes nothing if all are the same.

        What they have fired, and a pause, stay. The next moment is computed again if the times have changed.
        """

    async def views(
        self,
        limit: int = 100,
        app: str | None = None,
        name: str | None = None,
        after: tuple[str, str] = ("", ""),
    ) -> list[ScheduleView]:
        """Return schedules by app and name, those behind ``after``, which is an app and a name."""

    async def pause(self, act: Act, app: str, name: str, length: float | None) -> None:
        """Pause a schedule for ``length`` seconds, None: until it is resumed; audit it.

        Raises ``ScheduleNotFoundError``.
        """

    async def resume(self, act: Act, app: str, name: str) -> bool:
        """Resume a schedule; False if it was not paused. The moments of the pause are skipped for good.

        Raises ``ScheduleNotFoundError``.
        """

    async def delete(self, act: Act, app: str, name: str) -> None:
        """Remove a schedule and audit it; its tasks stay. Raises ``ScheduleNotFoundError``."""

    async def launch(
        self, act: Act, app: str, name: str, drafts: Sequence[Submission], *, is_backfill: bool
    ) -> list[Submitted]:
        """Insert tasks of a schedule that an operator asked for, in one commit, and audit it.

        Keys that exist are left as they are. Raises ``ScheduleNotFoundError``.
        """

    async def fire(self, term: Grant, limit: int, following: Following) -> FiringPass:
        """Fire what is due of at most ``limit`` schedules, in one transaction under ``term``.

        The rows are locked, and those that another transaction has locked are left out. ``following`` says
        what becomes of each. Its tasks are inserted under their keys, where an existing key means that the
        moment was fired before; the row moves on if it is still as it was read.

        Raises ``FencedOffError`` and, if the database refuses a value, ``PayloadError``: then nothing is
        written.
        """

    async def fail(self, term: Grant, work: ScheduleWork) -> None:
        """Keep the moment of a schedule that could not be fired, for ``work.wait`` seconds, with an alert."""

    async def retime(self, term: Grant, after: tuple[str, str], limit: int = ...) -> tuple[str, str] | None:
        """Compute the next moments of schedules by this machine's zone rules, in the order of app and name.

        Returns the last one, or None if there are no more.
        """

    async def ahead(self, most: float) -> tuple[float, bool]:
        """Return the seconds until a schedule is due, 0 to ``most``, and whether a moment waits for the end
        of a task.
        """


class Leases(Protocol):
    """Leases with epochs. A lease's record is never deleted, so an epoch is never reused."""

    async def acquire(self, name: str, holder: str, nonce: str, ttl: float) -> Grant | None:
        """Take a free or expired lease, with epoch + 1; the same ``nonce`` gets the same
        epoch. None if it is held.
        """

    async def renew(self, grant: Grant) -> bool:
        """Extend a lease that is held and not expired; False if the term is over."""

    async def release(self, grant: Grant) -> None:
        """Free the lease if it still has this grant's nonce; otherwise do nothing."""

    async def read(self, name: str) -> LeaseView | None:
        """Return the holder of the lease, with epoch and seconds left."""

    async def past_terms(self, name: str, limit: int = 100) -> list[PastTerm]:
        """Return the latest terms of a lease, newest first."""


class Nodes(Protocol):
    """Processes: their numbers, their heartbeats, and what they run."""

    async def register(self, info: NodeInfo) -> int:
        """Insert a node row with its first heartbeat; return the node's number, which is never reused."""

    async def heartbeat(self, node: int, info: NodeInfo) -> bool:
        """Extend the node's life by ``info.ttl`` and publish ``info``; False if it was declared dead
        and must register again.

        Wakes the topic "cancel:NODE" of a process with agents if it has such requests: the wake-up of the
        commit may be lost.
        """

    async def unregister(self, node: int) -> None:
        """Mark the node as stopped cleanly."""

    async def processes(self) -> list[tuple[int, NodeInfo]]:
        """Return the numbers of the nodes that have not stopped and are not marked as dead, in order, and
        what they publish. The heartbeat of one that is dead may have run out while nobody led.
        """

    async def mark_dead(self, nodes: Sequence[int]) -> list[int]:
        """Mark nodes as dead, whose processes are known to be gone, and end the Supervisor's lease if it is
        theirs.

        Returns those marked now. One that lives all the same registers again under another number.
        """

    async def views(self) -> list[NodeView]:
        """Return nodes that are alive or stopped within the last hour, with the queue
        depth of their agents.
        """

    async def living(self) -> list[NodeInfo]:
        """Return what the processes that are alive publish about themselves."""

    async def depths(self) -> dict[str, int]:
        """Return how many requests wait for each agent ("APP/AGENT"), including
        agents that no process runs.
        """

    async def waiting(self, scan_limit: int = ...) -> dict[str, tuple[int, float]]:
        """Return ``depths`` as far as ``scan_limit`` requests show them, each with the seconds that the
        oldest request has waited.
        """


class Admin(Protocol):
    """Operations on the store as a whole: schema, checks, figures, audit, removal of ended
    tasks, a new generation.
    """

    async def schema(self) -> SchemaStatus:
        """Return schema version, missing migrations and row counts. Works on a store that needs migrating."""

    async def migrate(self) -> list[str]:
        """Apply missing migrations under a lock; return their names."""

    async def check(self) -> list[str]:
        """Verify integrity and durability settings; return findings in plain words, empty if all is well."""

    async def examine(self) -> list[Finding]:
        """Check everything that durability and speed depend on: location, settings, connection.
        The store may be closed.
        """

    async def orphans(self, limit: int) -> list[int]:
        """Return unfinished tasks that nothing will advance: without a request (in flight or timer) and
        without a live holder.
        """

    async def late_starts(self, calendar: float, grace: float, limit: int) -> list[tuple[int, float]]:
        """Return tasks that sleep although their moment passed more than ``grace`` seconds ago, the latest
        first, and by how many seconds each is late. ``calendar``: the caller's wall clock.
        """

    async def broken(self, limit: int) -> list[str]:
        """Return at most ``limit`` unreadable rows, one sentence each that names the row.

        Covers unfinished tasks, queues, notices, alerts and processes, and reads page by page.
        """

    async def touch(self) -> None:
        """Commit a small write, as durably as any other, to measure how long a commit takes."""

    async def figures(
        self,
        sleepers: Mapping[tuple[str, str], int] | None = None,
        count_limit: int = ...,
        calendar: float = 0.0,
    ) -> TaskFigures:
        """Return how much work there is and what is wrong. The cost grows with unended tasks,
        never with ended ones. ``calendar``: the caller's wall clock, for what is due by the calendar.

        If more than ``count_limit`` tasks sleep, ``sleepers``, the field of that name of earlier figures,
        spares the count of them all.
        """

    async def sizes(self, scan_limit: int = ...) -> dict[str, Tally]:
        """Return the number of rows of each table, as far as ``scan_limit`` rows of it show."""

    async def audit(
        self,
        limit: int = 100,
        task: int | None = None,
        *,
        before: float | None = None,
        beyond: str | None = None,
        who: str | None = None,
        kind: str | None = None,
        act: str | None = None,
        change: int = ...,
    ) -> list[AuditView]:
        """Return operator commands, newest first; of the same time, by the ids of their requests.

        ``before``: only those before this point in time, and with ``beyond`` those of that time behind this
        request. ``who``, ``kind`` and ``act`` (the id of a request: with all commands of a bulk act) are
        looked for among the latest 20,000. ``change``: bytes above which what a command replaced is left out.
        """

    async def prune(self, older: float, after: int, limit: int, *, dry: bool = False) -> Pruned:
        """Remove tasks that were processed or undone more than ``older`` seconds ago,
        with all rows about them.

        Reads ``limit`` tasks with an id above ``after``; ids follow the order of submission. Never removed:
        tasks in error, tasks with a waiting message, tasks with an unsent notice, and tasks with an open or
        unreported alert. The first window (``after`` = 0) also removes at most ``limit`` alerts and operator
        commands of that age that belong to no task. ``dry``: count only.
        """

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
    def supervision(self) -> Supervision:
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
    def schedules(self) -> Schedules:
        """Schedules and their firings."""

    @property
    def lanes(self) -> LaneLists:
        """Lanes: who holds them, and who waits."""

    @property
    def leases(self) -> Leases:
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
        have changed), "notice" (notices to send), "bulk" (acts on many tasks). A wake-up may be spurious, and
        may be lost on a broken connection: also poll slowly. Returns a function that ends the subscription.
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
