"""The store of a client: one that the client opened is closed with it, one that the caller opened is not."""

from collections.abc import Callable

from makegood.base.clock import Clock
from makegood.errors import ClosedError
from makegood.store import Store, open_store, store_given


class OpenedStore:
    """A client's ``store``, which can be used between ``open`` and ``shut``."""

    def __init__(self, store: str | Store | None, *, migrate: bool, clock: Clock) -> None:
        self._owned = store is None or isinstance(store, str)
        self.store: Store = (
            open_store(store, clock=clock) if store is None or isinstance(store, str) else store_given(store)
        )
        self._migrate = migrate
        self._open = False
        self._stops: list[Callable[[], None]] = []

    async def open(self, *, looking: bool) -> None:
        """Open the store: see ``Client.open``."""
        if self._owned:
            await self.store.open(migrate=self._migrate, looking=looking)
        self._open = True

    def ready(self) -> Store:
        """Return the store. Raises ``ClosedError`` unless the client is open."""
        if not self._open:
            raise ClosedError(
                "this client is not open: use it inside `async with mg.Client(...) as client:`, or `await client.open()` first"
            )
        return self.store

    def subscribe(self, topic: str, ring: Callable[[], None]) -> None:
        """Call ``ring`` when something of this topic has changed, until the store is ``shut``."""
        self._stops.append(self.store.subscribe(topic, ring))

    def shut(self) -> None:
        """Let nobody use the store from now on, and nobody hear of it."""
        self._open = False
        while self._stops:
            self._stops.pop()()

    async def close(self) -> None:
        """Close the store."""
        self.shut()
        if self._owned:
            await self.store.close()
