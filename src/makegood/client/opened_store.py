"""The store of a client: one that the client opened is closed with it, one that the caller opened is not."""

from collections.abc import Awaitable, Callable
from typing import Protocol

from makegood.base import ids
from makegood.base.clock import Clock
from makegood.base.contexts import HomeLoop
from makegood.base.service_keys import SHORTEST, task_of
from makegood.errors import ClosedError, TaskNotFoundError
from makegood.store import Store, open_store, store_given
from makegood.store.records import Submission, Submitted
from makegood.store.signals import OutgoingSignal, Signalled


class LocalScheduler(Protocol):
    """What a client needs from a Scheduler in the same process."""

    def holds(self, task: int) -> bool:
        """Return whether it holds a task, and so reports the task's end."""

    def submit(self, draft: Submission) -> Awaitable[Submitted]:
        """Submit a task as the store does; the Scheduler holds it from the beginning if it can."""

    async def signal(self, signal: OutgoingSignal) -> Signalled | None:
        """Send a signal to a task that it holds as the store does; None: the store has to send it."""


class OpenedStore:
    """A client's ``store``, which can be used between ``open`` and ``shut``."""

    def __init__(self, store: str | Store | None, *, migrate: bool, clock: Clock) -> None:
        self._owns_store = store is None or isinstance(store, str)
        self.store: Store = (
            open_store(store, clock=clock) if store is None or isinstance(store, str) else store_given(store)
        )
        self._migrate = migrate
        self.home: HomeLoop | None = None
        """Where it was opened; None while it is not open."""
        self._stops: list[Callable[[], None]] = []
        self.near: LocalScheduler | None = None
        """The Scheduler of the same process."""

    async def open(self, *, looking: bool) -> None:
        """Open the store: see ``Client.open``. Raises ``ClosedError`` if it is open on another event loop."""
        home = self.home or HomeLoop("this client")
        home.check()
        if self._owns_store:
            await self.store.open(migrate=self._migrate, looking=looking)
        self.home = home

    def ready(self, *, anywhere: bool = False) -> Store:
        """Return the store. Raises ``ClosedError`` unless the client is open, on the running event loop.

        ``anywhere``: on any loop and in any thread, for work on the caller's connection.
        """
        home = self.home
        if home is None:
            raise ClosedError(
                "this client is not open: use it inside `async with mg.Client(...) as client:`, or `await client.open()` first"
            )
        if not anywhere:
            home.check()
        return self.store

    def number(self, task: str | int) -> int:
        """Return the task that an id names, or an idempotency key of one of its steps in whichever form.

        Raises ``TaskNotFoundError`` for any other text, and for a number that no task has.
        """
        if isinstance(task, int):
            return ids.checked_id(task)
        if len(task) < SHORTEST:
            return ids.parse(task)
        if (task_id := task_of(self.ready().identity.store_id, task)) is None:
            raise TaskNotFoundError(
                f"{task!r} is neither the id of a task nor an idempotency key that a step of this store has: `makegood task list` "
                "shows ids, `makegood task list key:KEY` finds a task by its key",
                task_id=task,
            )
        return task_id

    def subscribe(self, topic: str, wake: Callable[[], None]) -> None:
        """Call ``wake`` when something of this topic has changed, until the store is ``shut``."""
        self._stops.append(self.store.subscribe(topic, wake))

    def shut(self) -> None:
        """Let nobody use the store from now on, and nobody hear of it.

        Raises ``ClosedError`` on an event loop other than that of ``open``.
        """
        if self.home is not None:
            self.home.check()
        self.home = None
        while self._stops:
            self._stops.pop()()

    async def close(self) -> None:
        """Close the store."""
        self.shut()
        if self._owns_store:
            await self.store.close()
