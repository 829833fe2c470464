"""Blocking facades: ``SyncClient`` and ``SyncNode``, one line per method over the asyncio core.

Nothing is opened at construction; the first call starts a background loop in a thread of its own. Every call checks the
process id, so a forked child opens its own connection instead of sharing its parent's. Inside a running event loop a
blocking call would stop that loop: it raises and names ``Client``. Any number of threads may use one ``SyncClient``.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, TypeVarTuple, Unpack, overload

from makegood.base.durations import Duration
from makegood.base.loop_thread import Loop
from makegood.base.sizes import Size
from makegood.client.client import Client
from makegood.client.handle import TaskHandle
from makegood.client.queues import LIMIT, MOST_BYTES
from makegood.client.submit_many import BATCH, Many, SyncSubmissions
from makegood.client.sync_operators import BlockingCorrespondent, BlockingOperators
from makegood.errors import ClosedError, TransactionError
from makegood.model.messages import Answer
from makegood.model.plan import Plan
from makegood.store.views import EventView, Filter, TaskDetail, TaskView
from makegood.telemetry.hooks import Observer
from makegood.transactions import Caller, Transaction, at_once, recognise
from makegood.workflow.workflow import Workflow

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class SyncClient(BlockingOperators, BlockingCorrespondent):
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
        """Begin on a new loop: the client of a parent process, if there was one, is the parent's.

        It is kept, so that nobody closes in the child what the parent goes on using.
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
        """Return the client inside, open, for what it may do in this thread, in whose transaction the store may be locked."""
        self._ready()

        async def itself() -> Client:
            return self._client or await self._opened(looking=True)

        return self._loop.run(itself, "makegood.Client")

    def open(self) -> None:
        """Open the store now instead of at the first call; also again, after ``close``.

        May be called inside a running event loop, such as FastAPI's lifespan, which it then blocks until the store is open.
        """
        self._closed = False
        self._loop.run(self._opened, None)

    def close(self) -> None:
        """Close the store and end the background thread. Calls of other threads end with a ``ClosedError``, later ones raise it.

        Closing again does nothing. May be called inside a running event loop.
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
        """Submit a task: see ``Client.submit``. With ``connection=`` that happens in this thread, by the connection's driver."""
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
        """Submit a task for each input, or each Plan: see ``Client.submit_many``. Go through the handles, or make a ``list`` of them;
        nothing is submitted before.
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
                answers = self._run(partial(Client.submit_plans, plans=plans))
            else:
                answers = at_once(self._here().submit_plans(plans, caller))
            for plan, answer in zip(plans, answers, strict=True):
                made = self._here().handle(plan, answer, known=caller is None)
                yield SyncTaskHandle(made, self._run)

    def task(self, task_id: str | int, returns: Any = None) -> "SyncTaskHandle[Any]":
        """Return a handle to an existing task: see ``Client.task``."""

        async def find(client: Client) -> TaskHandle[Any]:
            return client.task(task_id, returns)

        return SyncTaskHandle(self._run(find), self._run)

    def find(self, wanted: Filter | None = None) -> list[TaskView]:
        """Return tasks that match, newest first."""
        return self._run(lambda client: client.find(wanted))


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
        """Start a task in error, or an undone one, again, with other inputs perhaps: see ``TaskHandle.resubmit``."""
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
