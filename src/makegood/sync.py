"""Blocking facades: ``SyncClient`` and ``SyncNode``, one line per method over the asyncio core.

Nothing is opened at construction; the first call starts a background loop in a thread of its own. Every call checks the
process id, so a forked child opens its own connection instead of sharing its parent's. Inside a running event loop a
blocking call would stop that loop: it raises and names ``Client``.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, TypeVarTuple, Unpack, overload

from makegood.client import Client
from makegood.durations import Duration
from makegood.errors import MakegoodError
from makegood.handle import TaskHandle
from makegood.messages import Answer
from makegood.node import Node
from makegood.store.records import EventView, Filter, TaskDetail, TaskView
from makegood.task import Plan

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Loop:
    """An event loop in a daemon thread of its own. Made at the first call, and anew in a forked child.

    ``begins``: called whenever one is made, before anything runs on it.
    """

    def __init__(self, begins: Callable[[], None] | None = None) -> None:
        self._begins = begins
        self._pid = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()

    @property
    def forked(self) -> bool:
        """Whether this process is a child of the one in which the loop was started (or none was)."""
        return self._pid != os.getpid()

    def start(self) -> None:
        """Start the thread if this process has none yet."""
        with self._lock:
            if not self.forked:
                return
            ready: Future[asyncio.AbstractEventLoop] = Future()
            threading.Thread(target=_serve, args=(ready,), name="makegood", daemon=True).start()
            self._loop = ready.result()
            if self._begins is not None:
                self._begins()
            self._pid = os.getpid()

    def run(self, work: Callable[[], Coroutine[Any, Any, T]], instead: str) -> T:
        """Run a coroutine in the thread and return its result; ``instead`` names what to use inside a running loop."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            raise MakegoodError(
                f"a blocking call inside a running event loop would stop it: use {instead} and await it"
            )
        self.start()
        assert self._loop is not None
        future = asyncio.run_coroutine_threadsafe(work(), self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        """End the thread, unless a fork left it behind in the parent."""
        with self._lock:
            if self._loop is not None and not self.forked:
                self._loop.call_soon_threadsafe(self._loop.stop)
            self._loop, self._pid = None, 0


def _serve(ready: "Future[asyncio.AbstractEventLoop]") -> None:
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    ready.set_result(loop)
    try:
        loop.run_forever()
    finally:
        loop.close()


class SyncClient:
    """``Client`` for blocking code: the same names and meanings.

    >>> with SyncClient("sqlite:///shop.db") as client:  # doctest: +SKIP
    ...     print(client.submit(place_order, order).result(timeout="1m"))
    """

    def __init__(self, store: str | None = None, *, poll: Duration = 1.0, migrate: bool = False) -> None:
        self._options: dict[str, Any] = {"poll": poll, "migrate": migrate}
        self._store = store
        self._loop = Loop(self._forget)
        self._client: Client | None = None
        self._opening = asyncio.Lock()

    def _forget(self) -> None:
        """Begin anew on a new loop: the client of a parent process, if there was one, is the parent's."""
        self._client, self._opening = None, asyncio.Lock()

    def _run(self, work: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        async def call() -> T:
            client = self._client or await self._opened()
            return await work(client)

        return self._loop.run(call, "makegood.Client")

    async def _opened(self) -> Client:
        """Open a client, one for all threads that come at the same time."""
        async with self._opening:
            if self._client is None:
                client = Client(self._store, **self._options)
                await client.open()
                self._client = client
            return self._client

    def open(self) -> None:
        """Open the store now instead of at the first call."""
        self._run(lambda _client: asyncio.sleep(0))

    def close(self) -> None:
        """Close the store and end the background thread."""
        client, self._client = self._client, None
        if client is not None and not self._loop.forked:
            self._loop.run(client.close, "makegood.Client")
        self._loop.stop()

    def __enter__(self) -> Self:
        """Return the client; it opens at the first call."""
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
    ) -> "SyncTaskHandle[R]": ...

    def submit(self, workflow: Any, /, *inputs: Any, **options: Any) -> "SyncTaskHandle[Any]":  # type: ignore[misc]  # mypy takes *Ts and *Any for different
        """Submit a task: see ``Client.submit``."""
        return SyncTaskHandle(
            self._run(lambda client: client.submit(workflow, *inputs, **options)), self._run
        )

    def task(self, task_id: str | int, returns: Any = None) -> "SyncTaskHandle[Any]":
        """Return a handle to an existing task: see ``Client.task``."""

        async def find(client: Client) -> TaskHandle[Any]:
            return client.task(task_id, returns)

        return SyncTaskHandle(self._run(find), self._run)

    def find(self, wanted: Filter | None = None) -> list[TaskView]:
        """Return tasks that match, newest first."""
        return self._run(lambda client: client.find(wanted))


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

    def resubmit(self, *, why: str = "", who: str | None = None, timeout: Duration | None = "30s") -> Answer:
        """Start a task in error, or an undone one, again."""
        return self._on(lambda handle: handle.resubmit(why=why, who=who, timeout=timeout))

    def settle(self, step: str, **stated: Any) -> Answer:
        """State the outcome of a step of a task in error: see ``TaskHandle.settle``."""
        return self._on(lambda handle: handle.settle(step, **stated))


class SyncNode:
    """``Node`` for blocking code: ``with SyncNode(app, url) as node: node.client.submit(...)``."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._make: Callable[[], Node] = lambda: Node(*args, **options)
        self._loop = Loop()
        self._node: Node | None = None

    def _run(self, work: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        async def call() -> T:
            if self._node is None or self._loop.forked:
                raise MakegoodError(
                    "this SyncNode is not started in this process: use it as `with SyncNode(...) as node:`"
                )
            return await work(self._node.client)

        return self._loop.run(call, "makegood.Node")

    def __enter__(self) -> Self:
        """Start the node on a background loop."""

        async def start() -> Node:
            node = self._make()
            await node.start()
            return node

        self._node = self._loop.run(start, "makegood.Node")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Drain and stop the node."""
        node, self._node = self._node, None
        if node is not None and not self._loop.forked:
            self._loop.run(node.stop, "makegood.Node")
        self._loop.stop()

    @property
    def client(self) -> SyncClient:
        """A client on the node's own store and loop."""
        return _NodeClient(self._run)


class _NodeClient(SyncClient):
    """A SyncClient that runs on a SyncNode's loop."""

    def __init__(self, run: Callable[..., Any]) -> None:
        super().__init__()
        self._on_node = run

    def _run(self, work: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        result: T = self._on_node(work)
        return result
