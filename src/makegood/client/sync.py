"""Blocking facades: ``SyncClient``, ``SyncTaskHandle`` and ``SyncQueue``, a line per method over asyncio.

Nothing is opened at construction; the first call starts a background loop in a thread of its own. Every call
checks the process id, so a forked child opens its own connection instead of sharing its parent's. Inside a
running event loop a blocking call would stop that loop, so it raises and names ``Client``. Any number of
threads may use one ``SyncClient``.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial, wraps
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, TypeVarTuple, Unpack, overload

from makegood.base.arguments import judge_calls
from makegood.base.durations import Duration
from makegood.base.loop_thread import Loop
from makegood.base.sizes import Size
from makegood.client.client import Client
from makegood.client.handle import TaskHandle
from makegood.client.lease_keeper import LeaseKeeper
from makegood.client.queues import LEASE, LIMIT, MOST_BYTES, TRIES, Queue, queue_name
from makegood.client.schedules import ScheduleHandle
from makegood.client.submission import SubmitOptions
from makegood.client.submit_many import Many, ManyOptions, SyncSubmissions, many_of
from makegood.errors import ClosedError, ConfigError, TransactionError
from makegood.model.plan import Plan
from makegood.model.queue_message import QueueMessage
from makegood.model.schedule import ScheduleOptions
from makegood.payload.envelopes import Codec
from makegood.store.records import Submitted
from makegood.store.views import EventView, Filter
from makegood.story.batch_progress import BatchProgress
from makegood.telemetry.hooks import Observer
from makegood.transactions import Caller, at_once, recognise
from makegood.transactions.transaction import Transaction

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")
Ts = TypeVarTuple("Ts")

P = ParamSpec("P")


async def _write(client: Client, plans: Sequence[Plan[Any]], caller: Caller | None) -> list[Submitted]:
    return await client.submitter.write(plans, caller)


async def _next(steps: AsyncIterator[T]) -> T | None:
    return await anext(steps, None)


def _blocking(connection: Any) -> Caller:
    caller = recognise(connection)
    if not caller.blocks:
        raise TransactionError(
            f"connection= is {caller.kind}, which wants to be awaited: use makegood.Client and await it"
        )
    return caller


def _call_inner(
    facade: Any,
    method: Callable[..., Coroutine[Any, Any, T]],
    *args: Any,
    connection: Any = None,
    **options: Any,
) -> T:
    """Call an asynchronous method on what a facade wraps, and wait for what it returns."""
    caller = None
    if connection is not None:
        caller = _blocking(connection)
        options["connection"] = Transaction(caller)
    result: T = facade._on(lambda inner: method(inner, *args, **options), caller)  # noqa: SLF001 - ours
    return result


def _blocks(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], T]:
    """Return the blocking form of an asynchronous method: the same parameters, result and documentation."""

    @wraps(method)
    def call(self: Any, /, *args: P.args, **options: P.kwargs) -> T:
        return _call_inner(self, method, *args, **options)

    return call


@judge_calls(ConfigError, values=True, own=("submit",))
class SyncClient:
    """``Client`` for blocking code: the same names and meanings.

    It closes at the end of a ``with`` block::

        with SyncClient("sqlite:///shop.db") as client:
            print(client.submit(place_order, order).result(timeout="1m"))
    """

    def __init__(
        self,
        store: str | None = None,
        *,
        poll_every: Duration = 1.0,
        migrate: bool = False,
        queue_limit: int = LIMIT,
        queue_bytes: Size = MOST_BYTES,
        telemetry: Observer | None = None,
        codec: Codec | None = None,
    ) -> None:
        self._options: dict[str, Any] = {
            "poll_every": poll_every, "migrate": migrate, "queue_limit": queue_limit, "queue_bytes": queue_bytes,
            "telemetry": telemetry, "codec": codec,
        }  # fmt: skip
        self._store = store
        self._loop = Loop(self._forget)
        self._client: Client | None = None
        self._is_closed = False
        self._opening = asyncio.Lock()
        self._parents: list[Client] = []

    def _forget(self) -> None:
        """Start on a new loop: the client of a parent process, if there was one, belongs to the parent.

        The object is kept, so that its collection in the child does not close what the parent still uses.
        """
        self._ready()
        if self._client is not None:
            self._parents.append(self._client)
        self._client, self._opening = None, asyncio.Lock()

    def _ready(self) -> None:
        """Raise ``ClosedError`` once the client was closed."""
        if self._is_closed:
            raise ClosedError(
                "this client was closed: `client.open()`, or another `with client:`, opens it again"
            )

    def _run(self, work: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        self._ready()

        async def call() -> T:
            client = self._client or await self._open()
            return await work(client)

        return self._loop.run(call, "makegood.Client")

    def _on(self, work: Callable[[Client], Coroutine[Any, Any, T]], connection: Caller | None = None) -> T:
        """Run work with the client; with the caller's connection in this thread, through its driver."""
        return self._run(work) if connection is None else at_once(work(self._here()))

    async def _open(self, *, looking: bool = False) -> Client:
        """Open a client, one for all threads that come at the same time."""
        async with self._opening:
            self._ready()
            if self._client is None:
                client = Client(self._store, **self._options)
                await client.open(looking=looking)
                self._client = client
            return self._client

    def _here(self) -> Client:
        """Return the client inside, opened without writing or waiting for a lock.

        The caller's transaction, in this thread, may have locked the store.
        """
        self._ready()

        async def itself() -> Client:
            return self._client or await self._open(looking=True)

        return self._loop.run(itself, "makegood.Client")

    def open(self) -> None:
        """Open the store now instead of at the first call; also again, after ``close``.

        May be called inside a running event loop, such as FastAPI's lifespan. It blocks that loop until the
        store is open.
        """
        self._is_closed = False
        self._loop.run(self._open, None)

    def close(self) -> None:
        """Close the store and end the background thread.

        Calls of other threads end with a ``ClosedError``; later calls raise it. A second ``close`` does
        nothing. May be called inside a running event loop.
        """
        self._is_closed = True
        client, self._client = self._client, None
        try:
            if client is not None and not self._loop.is_forked:
                self._loop.run(client.close, None)
        finally:
            self._loop.stop()

    def __enter__(self) -> Self:
        """Return the client; it opens at the first call."""
        self._is_closed = False
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the client."""
        self.close()

    @overload
    def submit(
        self, workflow: Callable[[Unpack[Ts]], R], /, *inputs: *Ts, **options: Unpack[SubmitOptions]
    ) -> "SyncTaskHandle[R]": ...

    @overload
    def submit(self, workflow: Plan[R], /, **options: Unpack[SubmitOptions]) -> "SyncTaskHandle[R]": ...

    def submit(self, workflow: Any, /, *inputs: Any, **options: Any) -> "SyncTaskHandle[Any]":  # type: ignore[misc]  # mypy takes *Ts and *Any for different
        """Submit a task: see ``Client.submit``.

        With ``connection=`` this happens in the calling thread, through the connection's driver.
        """
        return SyncTaskHandle(_call_inner(self, Client.submit, workflow, *inputs, **options), self._on)

    @overload
    def submit_many(
        self,
        workflow: Callable[[T], R],
        inputs: Iterable[T],
        /,
        **options: Unpack[ManyOptions[T]],
    ) -> "SyncSubmissions[SyncTaskHandle[R]]": ...

    @overload
    def submit_many(
        self,
        plans: Iterable[Plan[R]],
        /,
        **options: Unpack[ManyOptions[Plan[R]]],
    ) -> "SyncSubmissions[SyncTaskHandle[R]]": ...

    def submit_many(
        self, workflow: Any, inputs: Any = None, /, **options: Any
    ) -> "SyncSubmissions[SyncTaskHandle[Any]]":
        """Submit a task for each input, or each Plan: see ``Client.submit_many``.

        Iterate over the handles, or make a ``list`` of them; nothing is submitted before.
        """
        many = Many(workflow, **options)
        caller = None if many.connection is None else _blocking(many.connection)
        return SyncSubmissions(self._handles(many.batches(many_of(workflow, inputs)), caller))

    def _handles(
        self, batches: Iterator[list[Plan[Any]]], caller: Caller | None
    ) -> "Iterator[SyncTaskHandle[Any]]":
        for plans in batches:
            answers = self._on(partial(_write, plans=plans, caller=caller), caller)
            for plan, answer in zip(plans, answers, strict=True):
                handle = self._here().submitter.handle(plan, answer, exists=caller is None)
                yield SyncTaskHandle(handle, self._on)

    signal = _blocks(Client.signal)
    """Send a signal to a task."""

    def task(self, task_id: str | int, returns: Any = None) -> "SyncTaskHandle[Any]":
        """Return a handle to an existing task: see ``Client.task``."""

        async def find(client: Client) -> TaskHandle[Any]:
            return client.task(task_id, returns)

        return SyncTaskHandle(self._run(find), self._on)

    find = _blocks(Client.find)
    """Return tasks that match, newest first."""
    count = _blocks(Client.count)
    """Return how many tasks match."""

    def follow(
        self, wanted: Filter, *, expect: int | None = None, timeout: Duration | None = None
    ) -> Iterator[BatchProgress]:
        """Yield how far the tasks are that match, until all of them have ended: see ``Client.follow``."""

        async def begin(client: Client) -> AsyncIterator[BatchProgress]:
            return client.follow(wanted, expect=expect, timeout=timeout)

        steps = self._run(begin)
        while (progress := self._run(lambda _client: _next(steps))) is not None:
            yield progress

    # -- operating: ``progress`` is called on the background thread ------------------------------------------

    alerts = _blocks(Client.alerts)
    """Return alerts, open ones first."""
    acknowledge = _blocks(Client.acknowledge)
    """Acknowledge an alert."""
    acknowledge_all = _blocks(Client.acknowledge_all)
    """Acknowledge the open alerts of a kind or of a task."""
    audit = _blocks(Client.audit)
    """Return what operators did, newest first."""
    cancel_all = _blocks(Client.cancel_all)
    """Cancel all tasks that match."""
    undo_all = _blocks(Client.undo_all)
    """Undo all tasks that match."""
    resubmit_all = _blocks(Client.resubmit_all)
    """Start all tasks that match again."""
    signal_all = _blocks(Client.signal_all)
    """Send a signal to all tasks that match."""
    bulk = _blocks(Client.bulk)
    """Let the leading Supervisor send a command to all tasks that match."""
    bulk_acts = _blocks(Client.bulk_acts)
    """Return the latest commands on many tasks, newest first."""
    bulk_act = _blocks(Client.bulk_act)
    """Return how far a command on many tasks is."""
    stop_bulk = _blocks(Client.stop_bulk)
    """Let a command on many tasks reach no more of them."""
    brokers = _blocks(Client.brokers)
    """Return what waits at users' brokers."""
    lanes = _blocks(Client.lanes)
    """Return the lanes that tasks hold or wait for."""
    release_lane = _blocks(Client.release_lane)
    """Take the lanes of a task in error away."""
    step_down = _blocks(Client.step_down)
    """Ask the leading Supervisor to step down."""

    # -- schedules -------------------------------------------------------------------------------------------

    def schedule(
        self,
        name: str,
        workflow: Callable[[Unpack[Ts]], Any],
        /,
        *inputs: *Ts,
        **options: Unpack[ScheduleOptions],
    ) -> "SyncScheduleHandle":
        """Write a schedule, and return its handle once that is durable; the options are those of
        ``Client``.
        """
        handle = self._on(lambda client: client.schedule(name, workflow, *inputs, **options))
        return SyncScheduleHandle(handle, self._run)

    def schedules(self, app: str | None = None) -> "list[SyncScheduleHandle]":
        """Return all schedules in the store, or those of one app, by app and name."""
        handles = self._on(lambda client: client.schedules(app))
        return [SyncScheduleHandle(handle, self._run) for handle in handles]

    def find_schedule(self, name: str, *, app: str | None = None) -> "SyncScheduleHandle":
        """Return a schedule by its name."""
        return SyncScheduleHandle(self._on(lambda client: client.find_schedule(name, app=app)), self._run)

    # -- messages --------------------------------------------------------------------------------------------

    send = _blocks(Client.send)
    """Put a message in a queue. With ``connection=`` in the calling thread, through its driver."""

    def queue(self, name: str, *, lease: Duration = LEASE, tries: int = TRIES) -> "SyncQueue":
        """Return a queue for receiving from it: see ``Client.queue``."""
        return SyncQueue(self, queue_name(name), lease=lease, tries=tries)

    queues = _blocks(Client.queues)
    """Return the queues in which messages wait or are dead, by name."""
    messages = _blocks(Client.messages)
    """Return messages that wait, or dead letters."""
    replay_messages = _blocks(Client.replay_messages)
    """Return dead letters to their queue."""
    drop_messages = _blocks(Client.drop_messages)
    """Remove dead letters, or waiting messages, for good."""
    notices = _blocks(Client.notices)
    """Return the webhooks with unsent notices."""
    retry_notices = _blocks(Client.retry_notices)
    """Send again the notices that were given up."""
    drop_notices = _blocks(Client.drop_notices)
    """Drop notices that were given up."""


@judge_calls(ConfigError, values=True, constructor=False)
class SyncTaskHandle(Generic[R_co]):
    """``TaskHandle`` for blocking code: the same names and meanings."""

    def __init__(self, handle: TaskHandle[R_co], on: Callable[..., Any]) -> None:
        self._handle = handle
        self._call = on
        self.number = handle.number
        self.created = handle.created
        self.id = handle.id

    def __repr__(self) -> str:
        return f"<task {self.id}>"

    def _on(
        self, work: Callable[[TaskHandle[R_co]], Coroutine[Any, Any, T]], connection: Caller | None = None
    ) -> T:
        async def call(client: Client) -> T:
            handle: TaskHandle[R_co] = client.task(self.number, self._handle.returns)
            return await work(handle)

        result: T = self._call(call, connection)
        return result

    status = _blocks(TaskHandle.status)
    """Return the task with its steps."""
    wait = _blocks(TaskHandle.wait)
    """Wait until the task is at rest."""

    def result(self, timeout: Duration | None = None) -> R_co:
        """Wait for the end and return the result."""
        return self._on(lambda handle: handle.result(timeout))

    def events(self, *, follow: bool = True) -> Iterator[EventView]:
        """Yield the history; with ``follow`` until the task is at rest."""
        last_seq = 0
        while True:
            events, rests = self._on(lambda handle: handle._look(last_seq))  # noqa: B023, SLF001 - it runs before last_seq changes
            for event in events:
                last_seq = event.seq
                yield event
            if rests or not follow:
                return
            self._on(lambda _handle: asyncio.sleep(0.1))

    cancel = _blocks(TaskHandle.cancel)
    """Stop the task and undo what was done."""
    undo = _blocks(TaskHandle.undo)
    """Undo a task in error or one that was processed."""
    resubmit = _blocks(TaskHandle.resubmit)
    """Restart a task in error or an undone one, perhaps with other inputs."""
    settle = _blocks(TaskHandle.settle)
    """State the outcome of a step of a task in error."""
    extend = _blocks(TaskHandle.extend)
    """Move the deadline of a task that goes forward."""
    release_lane = _blocks(TaskHandle.release_lane)
    """Take the lanes of a task in error away."""
    wake = _blocks(TaskHandle.wake)
    """Let a task that sleeps continue now."""
    signal = _blocks(TaskHandle.signal)
    """Send a signal to the task."""


@judge_calls(ConfigError, values=True, constructor=False)
class SyncScheduleHandle:
    """``ScheduleHandle`` for blocking code: the same names and meanings."""

    def __init__(self, handle: ScheduleHandle, run: Callable[..., Any]) -> None:
        self._call = run
        self.view = handle.view
        self.app = handle.app
        self.name = handle.name

    def __repr__(self) -> str:
        return f"<schedule {self.app}/{self.name}>"

    def _on(self, work: Callable[[ScheduleHandle], Coroutine[Any, Any, T]], _: object = None) -> T:
        async def call(client: Client) -> T:
            return await work(ScheduleHandle(client._schedules, self.view))  # noqa: SLF001 - of this client

        result: T = self._call(call)
        return result

    status = _blocks(ScheduleHandle.status)
    """Return the schedule as it is now."""
    next = _blocks(ScheduleHandle.next)
    """Return its next moments."""
    pause = _blocks(ScheduleHandle.pause)
    """Let it fire no more."""
    resume = _blocks(ScheduleHandle.resume)
    """Let it fire again."""
    delete = _blocks(ScheduleHandle.delete)
    """Remove it; its tasks stay."""

    def trigger(self, *, why: str = "", who: str | None = None) -> SyncTaskHandle[Any]:
        """Submit a task of it now."""
        return SyncTaskHandle(self._on(lambda handle: handle.trigger(why=why, who=who)), self._call)

    def backfill(
        self, since: datetime, until: datetime, *, limit: int = 1000, why: str = "", who: str | None = None
    ) -> list[SyncTaskHandle[Any]]:
        """Submit a task for each moment of a range that has none yet."""
        tasks = self._on(lambda handle: handle.backfill(since, until, limit=limit, why=why, who=who))
        return [SyncTaskHandle(task, self._call) for task in tasks]


@judge_calls(ConfigError, values=True, constructor=False)
class SyncQueue:
    """``Queue`` for blocking code, with the same names and meanings.

    ``for message in queue`` does what ``async for`` does there.
    """

    def __init__(self, client: SyncClient, name: str, *, lease: Duration, tries: int) -> None:
        self.name = name
        self._client = client
        self._lease, self._tries = lease, tries
        self._turns: dict[tuple[int, int], LeaseKeeper] = {}

    def __repr__(self) -> str:
        return f"<queue {self.name}>"

    def _on(self, work: Callable[[Queue], Coroutine[Any, Any, T]], connection: Caller | None = None) -> T:
        """Run work with the queue; with the caller's connection in this thread, through its driver."""

        async def call(client: Client) -> T:
            queue = client.queue(self.name, lease=self._lease, tries=self._tries)
            queue.turns = self._turns
            return await work(queue)

        return self._client._on(call, connection)  # noqa: SLF001 - the queue of this client

    receive = _blocks(Queue.receive)
    """Wait until there is a message."""
    acknowledge = _blocks(Queue.acknowledge)
    """Acknowledge messages. With ``connection=`` in the calling thread, through its driver."""
    give_back = _blocks(Queue.give_back)
    """Give messages back unhandled."""
    extend = _blocks(Queue.extend)
    """Keep messages for longer."""

    def __iter__(self) -> Iterator[QueueMessage]:
        """Yield messages as they arrive, forever; each is acknowledged when the next one is requested."""
        while True:
            message = self._on(Queue._begin_turn)  # noqa: SLF001 - the same queue, for blocking code
            receipt = (message.seq, message.tries)
            try:
                yield message
            except BaseException:
                if (keeper := self._turns.pop(receipt, None)) is not None:
                    keeper.stop()
                raise
            if receipt in self._turns:
                self.acknowledge(message)
