"""DNS lookups in threads of their own: a silent name server delays only what needs its names.

A lookup cannot be stopped: where no name server answers, the system's resolver may be busy for half a minute.
So lookups stay out of the event loop's threads, which everything else in the process uses. Each lookup has a
thread while it lasts. Hosts of one group share a limited number of threads. Names that were found in time
before use other threads than names that were not (yet).
"""

import asyncio
import contextlib
import ipaddress
import socket
import threading
from collections.abc import Callable
from typing import Final

from makegood.errors import DeliveryError

SHARE: Final = 16
"""Threads of a group at most for names that were found in time, and as many for the others."""

MOST_KNOWN: Final = 10_000
"""Names remembered as found in time."""


class Lookups:
    """Looks up names.

    ``limit``: seconds for one lookup. ``group``: returns the group of a host; by default all share one.
    """

    def __init__(self, *, limit: float, group: Callable[[str], str] = lambda _: "") -> None:
        self._limit = limit
        self._group_of = group
        self._slots: dict[tuple[str, bool], asyncio.Semaphore] = {}
        self._known: dict[str, None] = {}
        self._under_way: dict[tuple[str, int], asyncio.Future[list[str] | Exception]] = {}

    async def resolve(self, host: str, port: int) -> list[str]:
        """Return the addresses of a host, best first.

        Raises ``DeliveryError`` if it has none, or none is found in time.
        """
        with contextlib.suppress(ValueError):
            return [str(ipaddress.ip_address(host))]
        is_familiar = host in self._known
        self._known.pop(host, None)  # until it is found again
        slots = self._slots.setdefault((self._group_of(host), is_familiar), asyncio.Semaphore(SHARE))
        try:
            async with asyncio.timeout(self._limit):
                addresses = await self._in_group(host, port, slots)
        except TimeoutError:
            raise DeliveryError(
                f"{host} was not looked up within {self._limit:g} s: do its name servers answer?"
            ) from None
        except (OSError, ValueError) as fault:  # ValueError: a name that cannot be one
            raise DeliveryError(f"{host} cannot be looked up: {fault}") from fault
        self._known[host] = None
        if len(self._known) > MOST_KNOWN:
            del self._known[next(iter(self._known))]
        return addresses

    async def _in_group(self, host: str, port: int, slots: asyncio.Semaphore) -> list[str]:
        if (host, port) not in self._under_way:
            await slots.acquire()
            if (host, port) in self._under_way:
                slots.release()
            else:
                self._begin(host, port, slots)
        result = await asyncio.shield(self._under_way[host, port])
        if isinstance(result, Exception):
            raise result
        return result

    def _begin(self, host: str, port: int, slots: asyncio.Semaphore) -> None:
        """Look a name up in a thread, which releases its place in the group when it ends, even if nobody
        waits then.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[list[str] | Exception] = loop.create_future()

        def settle(result: list[str] | Exception) -> None:
            slots.release()
            del self._under_way[host, port]
            future.set_result(result)  # a failure too: perhaps nobody waits for it any more

        def look() -> None:
            result: list[str] | Exception
            try:
                result = [str(at[0]) for *_, at in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
            except Exception as fault:  # noqa: BLE001 - any exception belongs to the caller
                result = fault
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(settle, result)

        try:
            threading.Thread(target=look, name=f"look up {host}", daemon=True).start()
        except RuntimeError as none:  # the system gives no thread
            slots.release()
            raise OSError(str(none)) from none
        self._under_way[host, port] = future
