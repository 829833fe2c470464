"""``SyncNode``: a Node for blocking code, on an event loop in a thread of its own."""

from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from makegood.base.loop_thread import Loop
from makegood.client.client import Client
from makegood.client.sync import SyncClient
from makegood.errors import ClosedError, ConfigError
from makegood.node.node import Node
from makegood.supervisor.supervisor import Pass

T = TypeVar("T")

_INSTEAD: Final = "makegood.Node"


class SyncNode:
    """``Node`` for blocking code: ``with SyncNode(app, url) as node: node.client.submit(...)``.

    Or ``start()`` and ``stop()``, from the hooks that a server has for its workers.
    The node runs on an event loop in a thread of its own; its members may be used in any thread.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        self._make: Callable[[], Node] = lambda: Node(*args, **options)
        self._loop = Loop()
        self._node: Node | None = None
        self._parents: list[Node] = []  # kept: their collection would close what the parent uses

    def _run(self, work: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
        node = self._here()
        if node is None:
            raise ClosedError(
                "this SyncNode is not started in this process, or was left: use it as `with SyncNode(...) as node:`, or `start()` it"
            )
        return self._loop.run(lambda: work(node.client), _INSTEAD)

    def _here(self) -> Node | None:
        """Return the node that runs in this process; None before ``start``, after ``stop``, and in a forked
        child.
        """
        return None if self._loop.is_forked else self._node

    def start(self) -> None:
        """Start the node on a background loop; a forked child starts one of its own. See ``Node.start``.

        Raises ``ConfigError`` if it runs here already.
        """
        if self._here() is not None:
            raise ConfigError("this SyncNode runs already: `stop()` it first, or make another one")

        if self._node is not None:
            self._parents.append(self._node)

        async def begin() -> Node:
            node = self._make()
            await node.start()
            return node

        try:
            self._node = self._loop.run(begin, _INSTEAD)
        except BaseException:
            self._loop.stop()
            raise

    def stop(self, reason: str = "") -> None:
        """Drain and stop the node; does nothing if none runs here. See ``Node.stop``."""
        self._stop_node(lambda node: node.stop(reason))

    def _stop_node(self, end: Callable[[Node], Coroutine[Any, Any, None]]) -> None:
        node, self._node = self._here(), None
        try:
            if node is not None:
                self._loop.run(lambda: end(node), _INSTEAD)
        finally:
            self._loop.stop()

    def __enter__(self) -> Self:
        """Start the node."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Drain and stop the node; raises what an actor died of, if one did."""
        self._stop_node(lambda node: node.__aexit__(kind, error, trace))

    def supervise_once(self, wait: float | None = None) -> Pass | None:
        """Make one pass as the Supervisor, without starting the node: see ``Node.supervise_once``."""
        try:
            return self._loop.run(lambda: self._make().supervise_once(wait), _INSTEAD)
        finally:
            if self._here() is None:
                self._loop.stop()

    # -- how it is -------------------------------------------------------------------------------------------

    def _of(self, read: Callable[[Node], T], absent: T) -> T:
        """Return what ``read`` returns of the node that runs here; ``absent`` if none does."""
        node = self._here()
        return absent if node is None else read(node)

    def dead(self) -> str:
        """Return what of the node has died, "" when all of it lives or none was started here."""
        return self._of(Node.dead, "")

    def unready(self) -> str:
        """Return why the node is not ready, "" when it is ready. See ``Node.unready``."""
        return self._of(Node.unready, "not started in this process, or stopped")

    def leads(self) -> bool | None:
        """Return whether the node's Supervisor leads; None if it runs no Supervisor, or not here."""
        return self._of(Node.leads, None)

    @property
    def console(self) -> str:
        """Where the node serves the console; "" if it does not."""
        return self._of(lambda node: node.console, "")

    @property
    def console_link(self) -> str:
        """The address of the console to open; "" if the node serves none."""
        return self._of(lambda node: node.console_link, "")

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
