"""The client: submits tasks, waits for them, passes on operators' acts, and sends and receives messages.

A client needs no role in its own process: it only writes rows to the store and reads others.
"""

import random
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Mapping
from datetime import datetime
from types import TracebackType
from typing import Any, Final, Self, TypeVar, TypeVarTuple, Unpack, overload

from makegood.base import ids
from makegood.base.arguments import checked_count, judge_calls
from makegood.base.clock import Clock, SystemClock
from makegood.base.contexts import bare_context, within
from makegood.base.durations import Duration, seconds
from makegood.base.sizes import Size, size
from makegood.base.text import refuse_unstorable
from makegood.client import signals
from makegood.client.acknowledgements import acknowledge, acknowledge_all, checked_kind
from makegood.client.brokers import ClientBrokers
from makegood.client.follow import Follower
from makegood.client.handle import TaskAccess, TaskHandle, send_signal
from makegood.client.lanes import ClientLanes
from makegood.client.messages import ClientMessages
from makegood.client.opened_store import LocalScheduler, OpenedStore
from makegood.client.operators import Acted, Acts, Progress
from makegood.client.queues import LIMIT, MOST_BYTES
from makegood.client.schedules import ScheduleAccess, ScheduleHandle, draft_from
from makegood.client.signals import AnswerOptions, NumberedTask, SignalOptions
from makegood.client.step_waiters import StepWaiters
from makegood.client.submission import SubmitOptions, Submitter, plan_of, with_options
from makegood.client.submit_many import BATCH, Many, ManyOptions, Submissions, many_of, submissions
from makegood.client.waiters import Waiters
from makegood.declare.action import Action
from makegood.declare.signal import Signal
from makegood.errors import ActRefusedError, BulkNotFoundError, ConfigError
from makegood.model.lane import Lane
from makegood.model.plan import Plan
from makegood.model.schedule import Overlap
from makegood.payload.envelopes import Codec
from makegood.store import Store
from makegood.store.oversight_records import BulkKind, BulkView
from makegood.store.signals import Signalled
from makegood.store.step_down import LEADER
from makegood.store.views import AlertView, AuditView, Filter, TaskView
from makegood.story.batch_progress import BatchProgress
from makegood.telemetry.hooks import Observer
from makegood.transactions import recognise
from makegood.workflow.app import App
from makegood.workflow.workflow import Workflow

R = TypeVar("R")
MOST_RATE: Final = 1000.0
"""The most commands a second that a command on many tasks may ask for."""

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


@judge_calls(ConfigError, values=True, own=("submit",))
class Client(ClientBrokers, ClientLanes, ClientMessages):
    """A connection to a store, for submitting and operating tasks, and for sending and receiving messages.

    ``store`` is a URL (default: MAKEGOOD_STORE, else ``sqlite:///makegood.db``), or an open store, which the
    client does not close. ``poll_every``: seconds between polls when nothing wakes it. ``migrate``:
    bring an old or empty store up to date. ``telemetry``: adds submissions to its traces, such as
    ``makegood.telemetry.Telemetry(traces=True)``. ``queue_limit``: the most messages that may wait in a queue
    to which this client sends. ``queue_bytes``: the most bytes of their values, as whole bytes or "64MiB".
    ``codec``: opens results of tasks whose app this process has not submitted to, and encodes and decodes the
    messages that this client sends and receives, such as ``mg.codecs.Encrypted(keys)``.

    >>> async def place(order):
    ...     async with Client("sqlite:///shop.db") as client:
    ...         task = await client.submit(place_order, order, key=order.id)
    ...         return await task.result(timeout="1m")
    """

    def __init__(
        self,
        store: str | Store | None = None,
        *,
        poll_every: Duration = 1.0,
        migrate: bool = False,
        queue_limit: int = LIMIT,
        queue_bytes: Size = MOST_BYTES,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        telemetry: Observer | None = None,
        codec: Codec | None = None,
    ) -> None:
        clock, rng = clock or SystemClock(), rng or random.Random()
        self._opened_store = OpenedStore(store, migrate=migrate, clock=clock)
        self._poll = seconds(poll_every, name="poll_every", least=0.001)
        checked_count(queue_limit, "queue_limit")
        self._queue_limit = queue_limit
        self._queue_bytes = size(queue_bytes, name="queue_bytes")
        self._rng = rng
        self._clock = clock
        self._telemetry = telemetry
        self.waiters = Waiters(self._opened_store, poll=self._poll, clock=clock, rng=rng)
        self.acts = Acts(self._opened_store, self.waiters.recent, poll=self._poll, rng=rng)
        steps = StepWaiters(self._opened_store, poll=self._poll, rng=rng)
        self._access = TaskAccess(self._opened_store, self.waiters, self.acts, steps, codec=codec)
        self.submitter = Submitter(
            self._access,
            ids.TaskIdSource(clock, rng).draw,
            None if telemetry is None else telemetry.submitted,
        )
        self._schedules = ScheduleAccess(self._access, ids.TaskIdSource(clock, rng), clock)

    @property
    def _codec(self) -> Codec | None:
        if self._access.codec is None:
            return next((app.codec for app in self._access.apps), None)  # of a node, which runs one app
        return self._access.codec

    async def open(self, *, looking: bool = False) -> None:
        """Open the store. Raises ``StoreUnavailableError``, ``SchemaMismatchError`` or ``ConfigError``.

        ``looking``: do not write and do not wait for a lock, which the caller may hold.
        """
        # it may be open for longer than the request that opens it
        await within(bare_context(), self._open(looking=looking))

    async def _open(self, *, looking: bool) -> None:
        await self._opened_store.open(looking=looking)
        for topic in ("ended", "answers"):
            self._opened_store.subscribe(topic, self._wake)
        self.waiters.open()

    async def close(self) -> None:
        """Stop waiting, and close the store if this client opened it.

        Callers that still wait get a ``ClosedError``.
        """
        self._opened_store.shut()
        await self.waiters.close()
        await self._access.steps.close()
        await self._opened_store.close()

    def _wake(self) -> None:
        self.waiters.wake()
        self.acts.wake()

    def _beside(self, scheduler: LocalScheduler) -> None:
        """Let a Scheduler of the same process take tasks and signals from here, and report the end of
        tasks that it holds.
        """
        self._opened_store.near = scheduler
        self.waiters.beside(scheduler.holds)

    def _declares(self, app: App) -> None:
        """Note that the code of an app is in this process."""
        self._access.apps.append(app)
        if app.codec is not None:
            self._access.codecs[app.name] = app.codec

    async def __aenter__(self) -> Self:
        """Open the client."""
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the client."""
        await self.close()

    # -- submitting ------------------------------------------------------------------------------------------

    @overload
    async def submit(
        self, workflow: Callable[[Unpack[Ts]], R], /, *inputs: *Ts, **options: Unpack[SubmitOptions]
    ) -> "TaskHandle[R]": ...

    @overload
    async def submit(self, workflow: Plan[R], /, **options: Unpack[SubmitOptions]) -> "TaskHandle[R]": ...

    async def submit(  # type: ignore[misc]  # mypy takes *Ts and *Any for different
        self,
        workflow: Any,
        /,
        *inputs: Any,
        key: str | None = None,
        priority: int | None = None,
        correlation_id: str | None = None,
        reply_to: str | None = None,
        notes: bool | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
        attributes: Mapping[str, str | int | bool] | None = None,
        lane: Lane | None = None,
        connection: Any = None,
    ) -> "TaskHandle[Any]":
        """Run the workflow function once, record its plan as a task, and return a handle once that is
        durable.

        ``workflow``: a workflow with its inputs by position, or a Plan. ``key``: a second call with the same
        key and inputs returns the existing task (``created`` is False); with other inputs it raises
        ``KeyConflict``. Once the task has ended and ``retention`` (30 days by default) has passed, its key is
        free: the same call is then a new task. ``priority``: 0 to 9, 9 first. ``correlation_id`` is kept with
        the task for the caller. ``reply_to``: where to send notices of the task's states, "queue:NAME" or a
        webhook's "https://…"; ``notes=True``: also the notes of its actions (``call.note``). ``delay``: begin
        after this length of time; until then the task sleeps, and costs no process anything. ``at``: begin at
        this moment, an aware datetime, in place of ``delay``; one that has passed delays nothing.
        ``attributes``: by which people find the task, such as ``{"customer": "ada"}``: 16 at most, texts,
        whole numbers or booleans, kept as text. ``lane``: the task's lane, or several, in place of those that
        its workflow names. A task that already has the key keeps all of these as they were first submitted.

        Raises ``DefinitionError`` or ``SubmissionError`` for misuse, ``LaneTakenError`` for a workflow with
        ``when_taken="refuse"``, and ``StoreUnavailableError`` when nothing could be written: it is then
        certain that there is no task.

        ``connection``: record the task in the transaction that is open on this connection to the store's own
        database (sqlite3, asyncpg, psycopg, SQLAlchemy, Django). The task exists once that transaction is
        committed; after a rollback it never existed. Raises ``TransactionError`` for a connection that cannot
        carry the task, and whatever its driver raises.
        """
        __tracebackhide__ = True  # pytest shows the line that submitted
        self._opened_store.ready(anywhere=connection is not None)
        plan = with_options(
            plan_of(workflow, inputs),
            key=key,
            priority=priority,
            correlation_id=correlation_id,
            reply_to=reply_to,
            notes=notes,
            delay=delay,
            at=at,
            attributes=attributes,
            lane=lane,
        )
        return await self.submitter.submit(plan, None if connection is None else recognise(connection))

    @overload
    def submit_many(
        self,
        workflow: Callable[[T], R],
        inputs: Iterable[T] | AsyncIterable[T],
        /,
        **options: Unpack[ManyOptions[T]],
    ) -> Submissions[R]: ...

    @overload
    def submit_many(
        self,
        plans: Iterable[Plan[R]] | AsyncIterable[Plan[R]],
        /,
        **options: Unpack[ManyOptions[Plan[R]]],
    ) -> Submissions[R]: ...

    def submit_many(
        self,
        workflow: Any,
        inputs: Any = None,
        /,
        *,
        key: Any = None,
        priority: int | None = None,
        correlation_id: Any = None,
        reply_to: str | None = None,
        notes: bool | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
        attributes: Any = None,
        lane: Any = None,
        batch: int = BATCH,
        connection: Any = None,
    ) -> Submissions[Any]:
        """Submit a task for each input, or each Plan, with ``batch`` of them in one commit and in bounded
        memory.

        Of an iterable that is not asynchronous, two batches are in memory: the next batch is planned while
        one is written.

        ``async for task in client.submit_many(...)`` yields the handles in order;
        ``await client.submit_many(...)`` returns all of them. Nothing is submitted before that. ``inputs``
        may be any iterable, or an asynchronous one. ``key``, ``correlation_id``, ``attributes`` and
        ``lane`` are functions of the input; ``reply_to``, ``notes``, ``delay`` and ``at`` are the same for
        all. The rest is as in ``submit``. A call with keys that failed half way can simply be repeated.

        >>> async def import_orders(client, orders):
        ...     async for task in client.submit_many(place_order, orders, key=lambda order: order.id):
        ...         print(task.id, task.created)
        """
        self._opened_store.ready(anywhere=connection is not None)
        many = Many(
            workflow,
            key=key,
            priority=priority,
            correlation_id=correlation_id,
            reply_to=reply_to,
            notes=notes,
            delay=delay,
            at=at,
            attributes=attributes,
            lane=lane,
            batch=batch,
        )
        caller = None if connection is None else recognise(connection)
        return submissions(self.submitter, many, many_of(workflow, inputs), caller)

    # -- signals ---------------------------------------------------------------------------------------------

    @overload
    async def signal(
        self,
        task: NumberedTask | str,
        signal: Signal[T],
        value: T,
        /,
        **options: Unpack[SignalOptions],
    ) -> Signalled: ...

    @overload
    async def signal(
        self,
        task: NumberedTask | str,
        signal: Signal[None] | str,
        value: Any = None,
        /,
        **options: Unpack[SignalOptions],
    ) -> Signalled: ...

    @overload
    async def signal(
        self,
        workflow: Workflow[..., Any],
        signal: Signal[T],
        value: T,
        /,
        *,
        key: str,
        **options: Unpack[SignalOptions],
    ) -> Signalled: ...

    @overload
    async def signal(
        self,
        workflow: Workflow[..., Any],
        signal: Signal[None] | str,
        value: Any = None,
        /,
        *,
        key: str,
        **options: Unpack[SignalOptions],
    ) -> Signalled: ...

    @overload
    async def signal(
        self,
        task: NumberedTask | str | Workflow[..., Any],
        signal: Signal[T],
        value: T,
        /,
        *,
        key: str | None = None,
        until: Action[..., R],
        **options: Unpack[AnswerOptions],
    ) -> R: ...

    @overload
    async def signal(
        self,
        task: NumberedTask | str | Workflow[..., Any],
        signal: Signal[T],
        value: T,
        /,
        *,
        key: str | None = None,
        until: str,
        **options: Unpack[AnswerOptions],
    ) -> Any: ...

    @overload
    async def signal(
        self,
        task: NumberedTask | str | Workflow[..., Any],
        signal: Signal[None] | str,
        value: Any = None,
        /,
        *,
        key: str | None = None,
        until: Action[..., R],
        **options: Unpack[AnswerOptions],
    ) -> R: ...

    @overload
    async def signal(
        self,
        task: NumberedTask | str | Workflow[..., Any],
        signal: Signal[None] | str,
        value: Any = None,
        /,
        *,
        key: str | None = None,
        until: str,
        **options: Unpack[AnswerOptions],
    ) -> Any: ...

    async def signal(
        self,
        task: Any,
        signal: Any,
        value: Any = None,
        /,
        *,
        key: str | None = None,
        id: str | None = None,  # noqa: A002 - what it is
        step: str | None = None,
        who: str | None = None,
        why: str = "",
        connection: Any = None,
        until: Any = None,
        timeout: Duration | None = None,
    ) -> Any:
        """Send a signal with a value to a task, by its handle or id, or by its workflow and ``key``.

        The first step that waits for a signal of this name gets the value. If none waits yet, the task keeps
        the signal for the step that will. Returns, once that is durable, the signal's id, whether it was
        ``created``, and whether it is in ``conflict``: a signal of that id is known with another value, and
        stays.

        ``signal``: what ``app.signal`` returned, or its name; then the type of ``value`` is not checked.
        ``id``: a task takes a signal of the same name and id only once, for as long as the store has the
        task; None draws an id. ``step``: the only step that may use it, such as "approval[3]". ``who``,
        ``why``: an operator's signal, which the audit keeps (default of ``who``: user@host).

        ``until``: wait for the result of the step that this signal makes ready, and return that: the step's
        name (then the result is JSON), or its action (then it is of the action's type). With the same ``id``
        the call waits again. ``timeout``: how long, None: as long as it takes; then ``WaitExpiredError``, and
        the signal stays sent. Raises also ``StepFailedError``, if the step gets no result.

        Raises ``TaskNotFoundError``, ``SignalRefused`` (the task has ended or is being undone, no step waits
        for this name, or 1,000 signals are unused), ``PayloadError``, ``ConfigError`` or
        ``StoreUnavailableError``: then nothing was sent.

        ``connection``: send the signal in the transaction that is open on this connection to the store's own
        database, of the kinds that ``submit`` takes. The task gets it once that is committed; after a
        rollback it was never sent. Raises also ``TransactionError``, and whatever the connection's driver
        raises.

        >>> async def approve(client, trip):
        ...     await client.signal(travel, approval, Approval(yes=True), key=trip.id, id="click-1")
        """
        to = signals.address(self._opened_store, task, key)
        return await send_signal(
            self._access, to, signal, value,
            id=id, step=step, connection=connection, who=who, why=why, until=until, timeout=timeout,
        )  # fmt: skip

    # -- finding ---------------------------------------------------------------------------------------------

    def task(self, task_id: str | int, returns: Any = None) -> "TaskHandle[Any]":
        """Return a handle to an existing task, without reading the store.

        ``task_id`` may also be an idempotency key of one of its steps, in the form that a service shows.
        ``returns``: type to decode the result to.
        """
        return TaskHandle(self._access, self._opened_store.number(task_id), returns, created=False)

    async def find(self, wanted: Filter | None = None) -> list[TaskView]:
        """Return tasks that match, newest first.

        An encoded cause is decoded if the client has its codec and key.
        """
        views = await self._opened_store.ready().tasks.find(wanted or Filter())
        return [await self._access.legible(view) for view in views]

    async def count(self, wanted: Filter) -> int:
        """Return how many tasks match, ignoring the filter's ``limit``: for use before an act on all of
        them.
        """
        return await self._opened_store.ready().tasks.count(wanted)

    def follow(
        self, wanted: Filter, *, expect: int | None = None, timeout: Duration | None = None
    ) -> AsyncIterator[BatchProgress]:
        """Yield how far the tasks are that match, at first and at each change, until all of them have ended.

        ``expect``: and until at least so many match, for a batch that is still being submitted. ``timeout``:
        wait at most this long. Times such as ``younger`` count from the call. A task in error has ended: a
        person must see to it.

        Raises ``TaskNotFoundError`` if no task matches and none is expected, ``WaitExpiredError`` after
        ``timeout``, and ``ConfigError`` for a condition that holds for a task only for some time, such as a
        state.

        >>> async def night(client):
        ...     async for progress in client.follow(Filter(correlation_id="2026-11-28"), expect=300):
        ...         print(progress.text)
        """
        follower = Follower(self._opened_store, wanted, expect, poll=self._poll, clock=self._clock)
        return follower.progress(timeout)

    # -- operating -------------------------------------------------------------------------------------------

    async def alerts(
        self, task: str | int | None = None, *, ended: bool = False, limit: int = 100, kind: str | None = None
    ) -> list[AlertView]:
        """Return alerts: open ones first, then those that somebody has acknowledged, each newest first.

        ``task``, ``kind``: only alerts of this task, of this kind. ``ended``: append those whose cause has
        gone. ``limit``: the most alerts in all. Raises ``ConfigError`` for an unknown kind.

        >>> async def look(client):
        ...     return [alert.text for alert in await client.alerts() if alert.open]
        """
        self._opened_store.ready()
        checked_count(limit)
        of, kind = self._number(task), checked_kind(kind)
        views = await self.store.alerts.views(limit, of, ended=False, kind=kind)
        rest = limit - len(views) if ended else 0
        return views + (await self.store.alerts.views(rest, of, ended=True, kind=kind) if rest > 0 else [])

    async def acknowledge(self, alert: int, *, who: str | None = None, why: str = "") -> AlertView:
        """Acknowledge an alert: somebody takes care of it, so it is no longer open.

        Returns the alert as it is now.

        Raises ``AlertNotFoundError``, and ``ActRefusedError`` when somebody else was first or its cause has
        gone.
        """
        checked_count(alert, "alert")
        self._opened_store.ready()
        return await acknowledge(self.store, alert, self.acts.new(who, why))

    async def acknowledge_all(
        self, *, kind: str | None = None, task: str | int | None = None, who: str | None = None, why: str = ""
    ) -> list[AlertView]:
        """Acknowledge the open alerts of a ``kind``, of a ``task``, or of both; returns them as they are now.

        Those that somebody has already are left alone. Raises ``ConfigError`` without a kind or a task, and
        for an unknown kind.
        """
        self._opened_store.ready()
        return await acknowledge_all(self.store, self.acts.new(who, why), kind, self._number(task))

    async def audit(self, task: str | int | None = None, *, limit: int = 100) -> list[AuditView]:
        """Return operators' acts, newest first: who, when, why, and the outcome.

        ``task``: only acts on this task.
        """
        checked_count(limit)
        return await self._opened_store.ready().admin.audit(limit, self._number(task))

    async def cancel_all(
        self,
        wanted: Filter,
        *,
        why: str = "",
        who: str | None = None,
        limit: int | None = None,
        timeout: Duration | None = "30s",
        progress: Progress | None = None,
    ) -> list[Acted]:
        """Cancel all tasks that match.

        ``limit``: the most tasks, newest first; the filter's own ``limit`` is ignored.

        ``timeout``: for the answers to one batch of a hundred. ``progress`` is called with each answer. If
        one task does not allow the command, the others are not affected.

        >>> async def stop(client):
        ...     pending = Filter(states=("pending",), workflow="place_order")
        ...     return await client.cancel_all(pending, why="wrong price")
        """
        act = self.acts.new(who, why)
        return await self.acts.leave_all(
            "cancel", wanted, act, limit=limit, timeout=timeout, progress=progress
        )

    async def undo_all(
        self,
        wanted: Filter,
        *,
        why: str = "",
        who: str | None = None,
        limit: int | None = None,
        timeout: Duration | None = "30s",
        progress: Progress | None = None,
    ) -> list[Acted]:
        """Undo all tasks that match, those in error or processed: see ``cancel_all``."""
        act = self.acts.new(who, why)
        return await self.acts.leave_all("undo", wanted, act, limit=limit, timeout=timeout, progress=progress)

    async def resubmit_all(
        self,
        wanted: Filter,
        *,
        why: str = "",
        who: str | None = None,
        limit: int | None = None,
        timeout: Duration | None = "30s",
        progress: Progress | None = None,
    ) -> list[Acted]:
        """Start all tasks that match again, those in error or undone: see ``cancel_all``."""
        act = self.acts.new(who, why)
        return await self.acts.leave_all(
            "resubmit", wanted, act, limit=limit, timeout=timeout, progress=progress
        )

    async def signal_all(
        self,
        wanted: Filter,
        signal: Signal[Any] | str,
        value: Any = None,
        *,
        id: str | None = None,  # noqa: A002 - what it is
        why: str = "",
        who: str | None = None,
        limit: int | None = None,
        progress: Progress | None = None,
    ) -> list[Acted]:
        """Send a signal to all tasks that match, each in a commit of its own: see ``signal`` and
        ``cancel_all``.

        ``id``: the first part of each signal's id, "ID/TASK"; None draws one. The same call with the same id
        sends each task its signal once. A task that takes no such signal refuses it, and the others get it.

        >>> async def approve_all(client):
        ...     everyone = Filter(waits="approval")
        ...     return await client.signal_all(everyone, approval, Approval(yes=True), id="night-1")
        """
        draft = signals.SignalToMany(signal, value, self.acts.new(who, why, id))
        return await signals.send_all(self._access.sender, draft, wanted, limit, progress)

    async def bulk(
        self,
        kind: BulkKind,
        wanted: Filter,
        *,
        signal: Signal[Any] | str | None = None,
        value: Any = None,
        why: str = "",
        who: str | None = None,
        limit: int | None = None,
        rate: float | None = None,
        id: str | None = None,  # noqa: A002 - what it is
    ) -> BulkView:
        """Let the leading Supervisor send a command ("cancel", "undo" or "resubmit"), or a "signal" with its
        ``value``, to all tasks that match now.

        It continues after a restart, and where nobody leads, it waits. ``limit``: the most tasks, newest
        first; the filter's own ``limit`` is ignored. ``rate``: the most commands a second.
        ``id``: the same call with the same id is one act; with another command, filter, value, ``limit`` or
        ``rate`` it raises ``ActRefusedError``. ``bulk_act`` returns its progress.
        With a codec, a new act whose signal is only named raises ``ConfigError`` if no task matches.

        >>> async def repair(client):
        ...     found = Filter(states=("error",), workflow="place_order")
        ...     return await client.bulk("resubmit", found, why="the bank is back", rate=10)
        """
        if (limit is not None and limit < 1) or (rate is not None and not 0 < rate <= MOST_RATE):
            raise ConfigError(
                f"limit={limit!r}, rate={rate!r}: a limit is 1 or more, a rate above 0 and at most {MOST_RATE}"
            )
        if limit is not None:
            checked_count(limit)
        act = self.acts.new(who, why, None if id is None else ids.checked_bulk(id))
        draft = signals.BulkDraft(act, kind, wanted, limit, rate)
        return await signals.bulk(self._access.sender, draft, signal, value)

    async def bulk_acts(self, limit: int = 50) -> list[BulkView]:
        """Return the latest commands on many tasks, newest first."""
        checked_count(limit)
        return await self._opened_store.ready().oversight.bulk_acts(limit)

    async def bulk_act(self, id: str) -> BulkView:  # noqa: A002 - what it is
        """Return how far a command on many tasks is. Raises ``BulkNotFoundError``."""
        refuse_unstorable(ConfigError, id=id)
        view = await self._opened_store.ready().oversight.bulk_act(id)
        if view is None:
            raise BulkNotFoundError(f"there is no command on many tasks {id!r} in this store")
        return view

    async def stop_bulk(self, id: str, *, why: str = "", who: str | None = None) -> BulkView:  # noqa: A002 - what it is
        """Let a command on many tasks reach no more of them.

        Raises ``BulkNotFoundError``, and ``ActRefusedError`` when it has ended or somebody else stopped it.
        """
        refuse_unstorable(ConfigError, id=id)
        before = await self.bulk_act(id)
        act = self.acts.new(who, why)
        view = await self.store.oversight.stop_bulk(id, act)
        if before.state != "running" or view is None or view.stopped_by != act.who:
            now = before if view is None else view
            by = f" by {now.stopped_by}" if now.stopped_by else ""
            raise ActRefusedError(f"{id} is {now.state}{by} already", act="bulk stop", state=now.state)
        return view

    async def step_down(self, *, epoch: int, why: str = "", who: str | None = None) -> str:
        """Ask the leading Supervisor of this epoch to step down, so that another one leads.

        It does so after its present pass, and then rests for two lengths of its lease. Returns its name.

        Raises ``ActRefusedError`` when it leads no more.
        """
        checked_count(epoch, "epoch")
        self._opened_store.ready()
        leader = await self.store.oversight.ask_step_down(LEADER, epoch, self.acts.new(who, why))
        if leader is None:
            raise ActRefusedError(
                f"nobody leads under epoch {epoch}: see `makegood leader`", act="step_down", state=""
            )
        return leader

    # -- schedules -------------------------------------------------------------------------------------------

    async def schedule(
        self,
        name: str,
        workflow: Callable[[Unpack[Ts]], Any],
        /,
        *inputs: *Ts,
        cron: str | None = None,
        every: Duration | None = None,
        timezone: str = "UTC",
        overlap: Overlap = "skip",
        catch_up: Duration = "1d",
        coalesce: bool = True,
        jitter: Duration = 0,
        start: datetime | None = None,
        end: datetime | None = None,
    ) -> ScheduleHandle:
        """Write a schedule, such as one for each customer, and return its handle once that is durable.

        Options and inputs are those of ``App.schedule``; ``mg.MOMENT`` among the inputs stands for the
        moment. A second call changes the schedule; an equal one writes nothing. What it has fired, and a
        pause, stay. Raises ``ConfigError``, ``DefinitionError``, ``PayloadError`` or ``PromiseError`` for
        misuse.

        >>> async def bill_monthly(client, customer):
        ...     inputs = customer.id, mg.MOMENT
        ...     await client.schedule(f"bill/{customer.id}", bill, *inputs, cron="0 6 1 * *")
        """
        options: dict[str, Any] = {
            "cron": cron, "every": every, "timezone": timezone, "overlap": overlap, "catch_up": catch_up,
            "coalesce": coalesce, "jitter": jitter, "start": start, "end": end,
        }  # fmt: skip
        self._opened_store.ready()
        draft = draft_from(name, workflow, inputs, options)
        await self._schedules.write(draft)
        return await self.find_schedule(name, app=draft.spec.app)

    async def schedules(self, app: str | None = None) -> list[ScheduleHandle]:
        """Return all schedules in the store, or those of one app, by app and name."""
        return [ScheduleHandle(self._schedules, view) for view in await self._schedules.views(app)]

    async def find_schedule(self, name: str, *, app: str | None = None) -> ScheduleHandle:
        """Return a schedule by its name, or by APP/NAME. Raises ``ScheduleNotFoundError``, and
        ``ConfigError`` if several apps have one of this name and ``app`` is not given.
        """
        return ScheduleHandle(self._schedules, await self._schedules.find(name, app))
