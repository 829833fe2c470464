"""What waits at the demo's broker, and for it: read for the stage."""

import asyncio
import time
from typing import Final

from makegood import Client
from makegood.brokers import KINDS, Reader, address_of, open_source, targets_of
from makegood.errors import MakegoodError

from .private_servers import PrivateServer
from .waits import QUEUE

READ_EVERY: Final = 1.0
_PATIENCE: Final = 1.0
"""Seconds to wait for a broker, which may be stopped."""


class BrokerWatch:
    """Asks the broker and the store, once a second at most."""

    def __init__(self, server: PrivateServer, client: Client) -> None:
        self.title = server.title
        self.waiting: int | None = None
        """Orders that nobody has acknowledged; None: the broker does not answer."""
        self.notices = 0
        """Tasks with notices to send."""
        self._client = client
        group = f"makegood-{client.store.identity.store_id}-{QUEUE}"
        address = address_of(f"{server.kind}:main/orders?queue={QUEUE}{server.parameters}", KINDS)
        self._source = open_source(address, targets_of({"main": server.url}), Reader(group, "stage"))
        self._read = -READ_EVERY

    async def look(self) -> None:
        """Read again, if that is due. Raises ``StoreUnavailableError``."""
        if time.monotonic() - self._read < READ_EVERY:
            return
        self._read = time.monotonic()
        try:
            async with asyncio.timeout(_PATIENCE):
                self.waiting = (await self._source.backlog()).waiting
        except (MakegoodError, TimeoutError):  # it was killed, is stopped, or starts
            self.waiting = None
        self.notices = sum(each.waiting for each in (await self._client.brokers()).receivers)
