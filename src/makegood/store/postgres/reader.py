"""The connection for reads and for small writes that are safe to repeat (heartbeats, leases).

It runs one statement at a time. If the connection is lost, the statement is repeated once on a new one; a
server that is away is reported at once. The same connection can listen for wake-ups from other processes.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from makegood.base.pacing import event_within
from makegood.base.postgres_hosts import answer_within
from makegood.errors import StoreUnavailableError
from makegood.store.postgres.connection import Connection, Dialer, Link
from makegood.store.postgres.errors import PASSING, cause, is_lost, translate
from makegood.store.postgres.transaction import CHANNEL
from makegood.store.postgres.writers import BackgroundTasks, pauses_of

log = logging.getLogger("makegood.store")

T = TypeVar("T")

_TRIES = 3


class ReadConnection:
    """One connection.

    ``patience``: seconds that an answer may take before the connection is dropped. ``hear``: called with a
    topic when another process notifies, or with None when a wake-up may have been missed.
    """

    def __init__(
        self,
        dialer: Dialer,
        rng: random.Random,
        tasks: BackgroundTasks,
        *,
        patience: float,
        hear: Callable[[str | None], None] | None = None,
    ) -> None:
        self._dialer = dialer
        self._rng = rng
        self._tasks = tasks
        self._patience = patience
        self._hear = hear
        self._one = asyncio.Lock()
        self._link: Link | None = None
        self._is_closed = False
        self._loss = asyncio.Event()

    async def ask(self, question: Callable[[Connection], Awaitable[T]]) -> T:
        """Return the answer; retry on a new connection. Raises ``StoreUnavailableError``."""
        return await self._tasks.run(self._ask(question), writes=False)

    async def _ask(self, question: Callable[[Connection], Awaitable[T]]) -> T:
        async with self._one:
            pauses = pauses_of(self._rng)
            last: Exception = StoreUnavailableError(f"{self._dialer.address.where} did not answer")
            for _ in range(_TRIES):
                link = await self._open_link()
                impatience = asyncio.get_running_loop().call_later(self._patience, link.terminate)
                try:
                    answer = await question(link.connection)
                    await link.watch.settle()
                    return answer
                except Exception as fault:  # noqa: BLE001 - raised below, sorted
                    last = fault
                    if is_lost(fault):
                        link.terminate()
                    elif not isinstance(fault, PASSING):
                        raise translate(fault, self._dialer.address.where) from cause(fault)
                finally:
                    impatience.cancel()
                await asyncio.sleep(pauses.draw())
            raise translate(last, self._dialer.address.where) from cause(last)

    async def _open_link(self) -> Link:
        if self._link is None or not self._link.open:
            if self._is_closed:
                raise StoreUnavailableError(f"{self._dialer.address.where}: the store is closed")
            self._link = link = await self._dialer.dial()
            self._loss.clear()
            link.connection.add_termination_listener(lambda _: self._loss.set())
            if self._hear is not None:
                await self._listen(link, self._hear)
        return self._link

    async def _listen(self, link: Link, hear: Callable[[str | None], None]) -> None:
        """Listen for other processes. Announce every topic, since notifications were missed
        while nobody listened.
        """
        own = self._dialer.pids

        def relay(_: object, pid: int, __: str, payload: object) -> None:
            if pid not in own:
                hear(str(payload))

        try:
            await answer_within(link.connection, self._patience, link.connection.add_listener(CHANNEL, relay))
        except Exception as fault:  # noqa: BLE001 - raised below, sorted
            link.terminate()
            raise translate(fault, self._dialer.address.where) from cause(fault)
        hear(None)

    async def keep(self, every: float) -> None:
        """Keep the listening connection alive: check every ``every`` seconds, and at once when
        the connection is lost.
        """
        pauses = pauses_of(self._rng)
        while True:
            if not await event_within(self._loss, every):
                pauses.reset()
            try:
                await self.ask(lambda connection: connection.fetchval("select 1"))
            except StoreUnavailableError as away:
                log.info("wake-ups of other processes are not heard now: %s", away)
                await asyncio.sleep(pauses.draw())
            except Exception:
                log.exception("wake-ups of other processes are not heard now")
                await asyncio.sleep(every)

    async def close(self) -> None:
        """Close the connection."""
        self._is_closed = True
        if self._link is not None and self._link.open:
            if self._one.locked():
                self._link.terminate()
            else:
                await self._link.close(1.0)
