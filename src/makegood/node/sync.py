"""``SyncNode``: a Node for blocking code, on an event loop in a thread of its own."""

from collections.abc import Callable, Coroutine
from typing import Any, Self, TypeVar

from makegood.base.loop_thread import Loop
from makegood.client.client import Client
from makegood.client.sync import SyncClient
from makegood.errors import ClosedError
from makegood.node.node import Node

T = TypeVar("T")


class SyncNode:
    """``Node`` for blocking code: ``with SyncNode(app, url) as node: node.client.submit(...)``."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._make: Callable[[], Node] = lambda: Node(*args, **options)
        self._loop = Loop()
        self._node: Node | None = None

    def _run(self, work: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        node = self._node
        if node is None or self._loop.forked:
            raise ClosedError(
                "this SyncNode is not started in this process, or was left: use it as `with SyncNode(...) as node:`"
            )
        return self._loop.run(lambda: work(node.client), "makegood.Node")

    def __enter__(self) -> Self:
        """Start the node on a background loop."""

        async def start() -> Node:
            node = self._make()
            await node.start()
            return node

        try:
            self._node = self._loop.run(start, "makegood.Node")
        except BaseException:
            self._loop.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
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
        self._ready()
        result: T = self._on_node(work)
        return result

    def _here(self) -> Client:
        async def itself(client: Client) -> Client:
            return client

        return self._run(itself)
