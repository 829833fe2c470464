"""Blocking facades: ``SyncClient``, ``SyncTaskHandle`` and ``SyncQueue``, a line per method over asyncio.

Nothing is opened at construction; the first call starts a background loop in a thread of its own. Every call
checks the process id, so a forked child opens its own connection instead of sharing its parent's. Inside a
running event loop a blocking call would stop that loop, so it raises and names ``Client``. Any number of
threads may use one ``SyncClient``.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, TypeVarTuple, Unpack, overload

from msgspec import UNSET

from makegood.base.durations import Duration
from makegood.base.loop_thread import Loop
from makegood.base.sizes import Size
from makegood.client.client import Client
from makegood.client.handle import TaskHandle
from makegood.client.operators import Acted, Progress
from makegood.client.queues import LEASE, LIMIT, MOST_BYTES, TRIES, Queue, named
from makegood.client.submit_many import BATCH, Many, SyncSubmissions
from makegood.errors import ClosedError, TransactionError
from makegood.model.messages import Answer
from makegood.model.plan import Plan
from makegood.model.queue_message import QueueMessage
from makegood.store.notice_records import ListenerView
from makegood.store.queue_records import MessageView, QueueView, Sent
from makegood.store.records import Submitted
from makegood.store.views import AlertView, AuditView, EventView, Filter, TaskDetail, TaskView
from makegood.telemetry.hooks import Observer
from makegood.transactions import Caller, Transaction, at_once, recognise
from makegood.workflow.workflow import Workflow

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_Work = Callable[[Queue, Transaction | None], Coroutine[Any, Any, Any]]


class SyncClient:
    """``Client`` for blocking code: the same names and meanings.

    >>> with SyncClient("sqlite:///shop.db") as client:  # doctest: +SKIP
    ...     print(client.submit(place_order, order).result(timeout="1m"))
    """

    def __init__(
        self,
        store: str | None = None,
        *,
        poll: Duration = 1.0,
        migrate: bool = False,
        queue_limit: int = LIMIT,
        queue_bytes: Size = MOST_BYTES,
        telemetry: Observer | None = None,
    ) -> None:
        self._options: dict[str, Any] = {
            "poll": poll, "migrate": migrate, "queue_limit": queue_limit, "queue_bytes": queue_bytes,
            "telemetry": telemetry,
        }  # fmt: skip
        self._store = store
        self._loop = Loop(self._forget)
        self._client: Client | None = None
        self._closed = False
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
        if self._closed:
            raise ClosedError(
                "this client was closed: `client.open()`, or another `with client:`, opens it again"
            )

    def _run(self, work: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        self._ready()

        async def call() -> T:
            client = self._client or await self._opened()
            return await work(client)

        return self._loop.run(call, "makegood.Client")

    def _in(self, connection: Any, work: Callable[[Client, Transaction], Coroutine[Any, Any, T]]) -> T:
        return at_once(work(self._here(), Transaction(_blocking(connection))))

    async def _opened(self, *, looking: bool = False) -> Client:
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
            return self._client or await self._opened(looking=True)

        return self._loop.run(itself, "makegood.Client")

    def open(self) -> None:
        """Open the store now instead of at the first call; also again, after ``close``.

        May be called inside a running event loop, such as FastAPI's lifespan. It blocks that loop until the
        store is open.
        """
        self._closed = False
        self._loop.run(self._opened, None)

    def close(self) -> None:
        """Close the store and end the background thread.

        Calls of other threads end with a ``ClosedError``; later calls raise it. A second ``close`` does
        nothing. May be called inside a running event loop.
        """
        self._closed = True
        client, self._client = self._client, None
        try:
            if client is not None and not self._loop.forked:
                self._loop.run(client.close, None)
        finally:
            self._loop.stop()

    def __enter__(self) -> Self:
        """Return the client; it opens at the first call."""
        self._closed = False
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the client."""
        self.close()

    @overload
    def submit(
        self,
        workflow: Callable[[Unpack[Ts]], R],
        /,
        *inputs: *Ts,
        key: str | None = None,
        priority: int | None = None,
        correlation_id: str | None = None,
        reply_to: str | None = None,
        connection: Any = None,
    ) -> "SyncTaskHandle[R]": ...

    @overload
    def submit(
        self,
        workflow: Plan[R],
        /,
        *,
        key: str | None = None,
        priority: int | None = None,
        correlation_id: str | None = None,
        reply_to: str | None = None,
        connection: Any = None,
    ) -> "SyncTaskHandle[R]": ...

    def submit(self, workflow: Any, /, *inputs: Any, **options: Any) -> "SyncTaskHandle[Any]":  # type: ignore[misc]  # mypy takes *Ts and *Any for different
        """Submit a task: see ``Client.submit``.

        With ``connection=`` this happens in the calling thread, through the connection's driver.
        """
        if options.get("connection") is None:
            made = self._run(lambda client: client.submit(workflow, *inputs, **options))
        else:
            connection = options.pop("connection")
            made = self._in(
                connection, lambda client, tx: client.submit(workflow, *inputs, connection=tx, **options)
            )
        return SyncTaskHandle(made, self._run)

    @overload
    def submit_many(
        self,
        workflow: Callable[[T], R],
        inputs: Iterable[T],
        /,
        *,
        key: Callable[[T], str | None] | None = None,
        priority: int | None = None,
        correlation_id: Callable[[T], str | None] | None = None,
        reply_to: str | None = None,
        batch: int = BATCH,
        connection: Any = None,
    ) -> "SyncSubmissions[SyncTaskHandle[R]]": ...

    @overload
    def submit_many(
        self,
        plans: Iterable[Plan[R]],
        /,
        *,
        key: Callable[[Plan[R]], str | None] | None = None,
        priority: int | None = None,
        correlation_id: Callable[[Plan[R]], str | None] | None = None,
        reply_to: str | None = None,
        batch: int = BATCH,
        connection: Any = None,
    ) -> "SyncSubmissions[SyncTaskHandle[R]]": ...

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
        batch: int = BATCH,
        connection: Any = None,
    ) -> "SyncSubmissions[SyncTaskHandle[Any]]":
        """Submit a task for each input, or each Plan: see ``Client.submit_many``.

        Iterate over the handles, or make a ``list`` of them; nothing is submitted before.
        """
        many = Many(
            workflow,
            key=key,
            priority=priority,
            correlation_id=correlation_id,
            reply_to=reply_to,
            batch=batch,
        )
        caller = None if connection is None else _blocking(connection)
        return SyncSubmissions(self._handles(many.batches(workflow if inputs is None else inputs), caller))

    def _handles(
        self, batches: Iterator[list[Plan[Any]]], caller: Caller | None
    ) -> "Iterator[SyncTaskHandle[Any]]":
        for plans in batches:
            if caller is None:
                answers = self._run(partial(_submit, plans=plans))
            else:
                answers = at_once(self._here().submitter.submit(plans, caller))
            for plan, answer in zip(plans, answers, strict=True):
                made = self._here().submitter.handle(plan, answer, known=caller is None)
                yield SyncTaskHandle(made, self._run)

    def task(self, task_id: str | int, returns: Any = None) -> "SyncTaskHandle[Any]":
        """Return a handle to an existing task: see ``Client.task``."""

        async def find(client: Client) -> TaskHandle[Any]:
            return client.task(task_id, returns)

        return SyncTaskHandle(self._run(find), self._run)

    def find(self, wanted: Filter | None = None) -> list[TaskView]:
        """Return tasks that match, newest first."""
        return self._run(lambda client: client.find(wanted))

    def count(self, wanted: Filter) -> int:
        """Return how many tasks match."""
        return self._run(lambda client: client.count(wanted))

    # -- operating: ``progress`` is called on the background thread ------------------------------------------

    def alerts(
        self, task: str | int | None = None, *, ended: bool = False, limit: int = 100
    ) -> list[AlertView]:
        """Return alerts, open ones first: see ``Client.alerts``."""
        return self._run(lambda client: client.alerts(task, ended=ended, limit=limit))

    def acknowledge(self, alert: int, *, who: str | None = None, why: str = "") -> AlertView:
        """Acknowledge an alert: see ``Client.acknowledge``."""
        return self._run(lambda client: client.acknowledge(alert, who=who, why=why))

    def audit(self, task: str | int | None = None, *, limit: int = 100) -> list[AuditView]:
        """Return what operators did, newest first."""
        return self._run(lambda client: client.audit(task, limit=limit))

    def cancel_all(
        self,
        wanted: Filter,
        *,
        why: str = "",
        who: str | None = None,
        limit: int | None = None,
        timeout: Duration | None = "30s",
        progress: Progress | None = None,
    ) -> list[Acted]:
        """Cancel all tasks that match: see ``Client.cancel_all``."""
        return self._run(
            lambda c: c.cancel_all(wanted, why=why, who=who, limit=limit, timeout=timeout, progress=progress)
        )

    def undo_all(
        self,
        wanted: Filter,
        *,
        why: str = "",
        who: str | None = None,
        limit: int | None = None,
        timeout: Duration | None = "30s",
        progress: Progress | None = None,
    ) -> list[Acted]:
        """Undo all tasks that match: see ``Client.undo_all``."""
        return self._run(
            lambda c: c.undo_all(wanted, why=why, who=who, limit=limit, timeout=timeout, progress=progress)
        )

    def resubmit_all(
        self,
        wanted: Filter,
        *,
        why: str = "",
        who: str | None = None,
        limit: int | None = None,
        timeout: Duration | None = "30s",
        progress: Progress | None = None,
    ) -> list[Acted]:
        """Start all tasks that match again: see ``Client.resubmit_all``."""
        return self._run(
            lambda c: c.resubmit_all(
                wanted, why=why, who=who, limit=limit, timeout=timeout, progress=progress
            )
        )

    # -- messages --------------------------------------------------------------------------------------------

    def send(
        self,
        queue: str,
        value: Any,
        *,
        id: str | None = None,  # noqa: A002 - what it is
        reply_to: str | None = None,
        correlation_id: str | None = None,
        kind: str = "",
        headers: Mapping[str, str] | None = None,
        delay: Duration = 0.0,
        expires: Duration | None = None,
        remember: Duration = "7d",
        connection: Any = None,
    ) -> Sent:
        """Put a message in a queue: see ``Client.send``.

        With ``connection=`` this happens in the calling thread, through its driver.
        """

        async def send(client: Client, tx: Transaction | None = None) -> Sent:
            return await client.send(
                queue, value, id=id, reply_to=reply_to, correlation_id=correlation_id, kind=kind, headers=headers, delay=delay,
                expires=expires, remember=remember, connection=tx,
            )  # fmt: skip

        return self._run(send) if connection is None else self._in(connection, send)

    def queue(self, name: str, *, lease: Duration = LEASE, tries: int = TRIES) -> "SyncQueue":
        """Return a queue for receiving from it: see ``Client.queue``."""

        def on(work: _Work, connection: Any) -> Any:
            async def call(client: Client, tx: Transaction | None = None) -> Any:
                return await work(client.queue(name, lease=lease, tries=tries), tx)

            return self._run(call) if connection is None else self._in(connection, call)

        return SyncQueue(on, named(name))

    def queues(self) -> list[QueueView]:
        """Return the queues in which messages wait or are dead, by name."""
        return self._run(lambda client: client.queues())

    def messages(
        self, queue: str | None = None, *, dead: bool = False, limit: int = 100
    ) -> list[MessageView]:
        """Return messages that wait, or dead letters: see ``Client.messages``."""
        return self._run(lambda client: client.messages(queue, dead=dead, limit=limit))

    def replay_messages(
        self,
        queue: str,
        ids: Sequence[str] | None = None,
        *,
        value: Any = UNSET,
        who: str | None = None,
        why: str = "",
    ) -> list[str]:
        """Let dead letters be received again: see ``Client.replay_messages``."""
        return self._run(lambda client: client.replay_messages(queue, ids, value=value, who=who, why=why))

    def drop_messages(
        self,
        queue: str,
        ids: Sequence[str] | None = None,
        *,
        waiting: bool = False,
        who: str | None = None,
        why: str = "",
    ) -> list[str]:
        """Remove dead letters, or waiting messages, for good: see ``Client.drop_messages``."""
        return self._run(lambda client: client.drop_messages(queue, ids, waiting=waiting, who=who, why=why))

    def notices(self, *, dead: bool = False, limit: int = 100) -> list[ListenerView]:
        """Return the webhooks with unsent notices: see ``Client.notices``."""
        return self._run(lambda client: client.notices(dead=dead, limit=limit))

    def retry_notices(
        self, task: str | int | None = None, *, who: str | None = None, why: str = ""
    ) -> list[str]:
        """Send again what was given up: see ``Client.retry_notices``."""
        return self._run(lambda client: client.retry_notices(task, who=who, why=why))

    def drop_notices(
        self, task: str | int | None = None, *, who: str | None = None, why: str = ""
    ) -> list[str]:
        """Drop what was given up: see ``Client.drop_notices``."""
        return self._run(lambda client: client.drop_notices(task, who=who, why=why))


async def _submit(client: Client, plans: Sequence[Plan[Any]]) -> list[Submitted]:
    return await client.submitter.submit(plans)


def _blocking(connection: Any) -> Caller:
    caller = recognise(connection)
    if not caller.blocks:
        raise TransactionError(
            f"connection= is {caller.kind}, which wants to be awaited: use makegood.Client and await it"
        )
    return caller


class SyncTaskHandle(Generic[R_co]):
    """``TaskHandle`` for blocking code: the same names and meanings."""

    def __init__(self, handle: TaskHandle[R_co], run: Callable[..., Any]) -> None:
        self._handle = handle
        self._call = run
        self.number = handle.number
        self.created = handle.created
        self.id = handle.id

    def __repr__(self) -> str:
        return f"<task {self.id}>"

    def _on(self, work: Callable[[TaskHandle[R_co]], Coroutine[Any, Any, T]]) -> T:
        async def call(client: Client) -> T:
            handle: TaskHandle[R_co] = client.task(self.number, self._handle.returns)
            return await work(handle)

        result: T = self._call(call)
        return result

    def status(self) -> TaskDetail:
        """Return the task with its steps."""
        return self._on(lambda handle: handle.status())

    def wait(self, timeout: Duration | None = None) -> TaskView:
        """Wait until the task is at rest."""
        return self._on(lambda handle: handle.wait(timeout))

    def result(self, timeout: Duration | None = None) -> R_co:
        """Wait for the end and return the result."""
        return self._on(lambda handle: handle.result(timeout))

    def events(self, *, follow: bool = True) -> Iterator[EventView]:
        """Yield the history; with ``follow`` until the task is at rest."""
        seen = 0
        while True:
            events, rests = self._on(lambda handle: handle.look(seen))  # noqa: B023 - it runs before seen changes
            for event in events:
                seen = event.seq
                yield event
            if rests or not follow:
                return
            self._on(lambda _handle: asyncio.sleep(0.1))

    def cancel(self, *, why: str = "", who: str | None = None, timeout: Duration | None = "30s") -> Answer:
        """Stop the task and undo what was done."""
        return self._on(lambda handle: handle.cancel(why=why, who=who, timeout=timeout))

    def undo(self, *, why: str = "", who: str | None = None, timeout: Duration | None = "30s") -> Answer:
        """Undo a task in error or one that was processed."""
        return self._on(lambda handle: handle.undo(why=why, who=who, timeout=timeout))

    def resubmit(
        self,
        *,
        step: str | None = None,
        inputs: Mapping[str, Any] | Sequence[Any] | Plan[Any] | None = None,
        workflow: Workflow[..., Any] | None = None,
        dry_run: bool = False,
        why: str = "",
        who: str | None = None,
        timeout: Duration | None = "30s",
    ) -> Answer:
        """Restart a task in error or an undone one, perhaps with other inputs: see
        ``TaskHandle.resubmit``.
        """
        return self._on(
            lambda handle: handle.resubmit(
                step=step,
                inputs=inputs,
                workflow=workflow,
                dry_run=dry_run,
                why=why,
                who=who,
                timeout=timeout,
            )
        )

    def settle(self, step: str, **stated: Any) -> Answer:
        """State the outcome of a step of a task in error: see ``TaskHandle.settle``."""
        return self._on(lambda handle: handle.settle(step, **stated))


class SyncQueue:
    """``Queue`` for blocking code, with the same names and meanings.

    ``for message in queue`` does what ``async for`` does there.
    """

    def __init__(self, run: Callable[[_Work, Any], Any], name: str) -> None:
        """``run``: does work with the queue, in the transaction of a connection if there is one."""
        self.name = name
        self._run = run
        self._turns: set[tuple[int, int]] = set()

    def __repr__(self) -> str:
        return f"<queue {self.name}>"

    def _on(self, work: Callable[[Queue], Coroutine[Any, Any, Any]]) -> Any:
        return self._run(lambda queue, _: work(queue), None)

    def receive(self, limit: int = 1, *, timeout: Duration | None = None) -> list[QueueMessage]:
        """Wait until there is a message: see ``Queue.receive``."""
        found: list[QueueMessage] = self._on(lambda queue: queue.receive(limit, timeout=timeout))
        return found

    def acknowledge(self, *messages: QueueMessage, connection: Any = None) -> bool:
        """Acknowledge messages: see ``Queue.acknowledge``.

        With ``connection=`` this happens in the calling thread, through its driver.
        """
        self._settled(messages)
        return bool(self._run(lambda queue, tx: queue.acknowledge(*messages, connection=tx), connection))

    def give_back(
        self, *messages: QueueMessage, wait: Duration = 0.0, error: str = "", dead: bool = False
    ) -> bool:
        """Give messages back unhandled: see ``Queue.give_back``."""
        self._settled(messages)
        return bool(self._on(lambda queue: queue.give_back(*messages, wait=wait, error=error, dead=dead)))

    def hold(self, *messages: QueueMessage, lease: Duration) -> bool:
        """Keep messages for longer: see ``Queue.hold``."""
        return bool(self._on(lambda queue: queue.hold(*messages, lease=lease)))

    def _settled(self, messages: Sequence[QueueMessage]) -> None:
        self._turns.difference_update((message.seq, message.tries) for message in messages)

    def __iter__(self) -> Iterator[QueueMessage]:
        """Yield messages as they arrive, forever; each is acknowledged when the next one is requested."""
        while True:
            for message in self.receive():
                receipt = (message.seq, message.tries)
                self._turns.add(receipt)
                try:
                    yield message
                    unsettled = receipt in self._turns
                finally:
                    self._turns.discard(receipt)
                if unsettled:
                    self.acknowledge(message)
