"""Connects to the first of several PostgreSQL servers that can be used; each has its share of the time.

The driver has one time limit for all hosts, which a silent host uses up, and it gives up at hosts that hang
up or have no connection left. So makegood asks it for one host at a time, or for one address if the host's
name has several. The address that worked last comes first: after a failover only the first connection meets
the host that is gone.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol, TypeVar

import asyncpg
from asyncpg import exceptions as pg

from makegood.base.name_lookups import Lookups
from makegood.base.postgres_errors import PoolerSilentError, UnreachedError
from makegood.base.postgres_pooling import SharedSessionError, is_proxied, is_shared
from makegood.base.postgres_target import PostgresTarget, place_of
from makegood.base.public_networks import address_of
from makegood.errors import DeliveryError, StoreUnavailableError

C = TypeVar("C", bound=Any)
T = TypeVar("T")

_NEXT: Final = (
    OSError, EOFError, asyncpg.PostgresError, asyncpg.InterfaceError, pg.InternalClientError,
    StoreUnavailableError,
)  # fmt: skip
"""Faults after which the next host is tried. The driver's TimeoutError is an OSError."""


class Droppable(Protocol):
    """A connection, as far as this module needs it."""

    def terminate(self) -> None:
        """Drop it at once."""

    def is_closed(self) -> bool:
        """Return whether it was dropped."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where to connect. ``host``: None for the driver's search of the usual sockets, then localhost.

    ``address``: the one to use, of a host whose name has several; "" for any.
    """

    host: str | None
    port: int
    address: str = ""

    def __str__(self) -> str:
        return place_of(self.host, self.port) + (f" ({self.address})" if self.address else "")


class PostgresHosts:
    """The hosts of a target, in the order in which they are tried.

    The connections made here share what is known of the hosts.
    """

    def __init__(self, target: PostgresTarget) -> None:
        self.target = target
        hosts = target.hosts or (None,)
        self._places = [Place(host, port) for host, port in zip(hosts, target.ports, strict=True)]
        self._first: Place | None = None
        self._last: Place | None = None
        self._proxies: set[Place] = set()
        """Places at which a proxy answers."""
        self._own: set[Place] = set()
        """Places where each connection has a session of its own."""

    @property
    def has_proxy(self) -> bool:
        """Whether a proxy has answered at one of them."""
        return bool(self._proxies)

    async def connect(
        self,
        driver: Callable[..., Awaitable[C]],
        *,
        limit: float,
        ready: Callable[[C], Awaitable[T]],
        private: bool = True,
        session: str | None = None,
        **how: Any,
    ) -> T:
        """Return what ``ready`` makes of a connection to the first host that can be used.

        ``driver`` makes the connection, ``ready`` prepares it; a host for which either fails is passed over.
        ``limit``: seconds for all hosts together, each of which has its share. ``private``: whether to refuse
        a proxy that shares sessions. ``session``: the connection's
        application_name, unless the target has one. ``how``: whatever else the driver takes. Raises
        ``UnreachedError``, ``SharedSessionError``.
        """
        loop = asyncio.get_running_loop()

        async def dial(place: Place, share: float) -> T:
            until = loop.time() + share
            arguments = self.target.arguments(place.host, place.port, session)
            if place.address:
                arguments["loop"] = LoopTo(place.address)

            async def another(**more: Any) -> C:
                connection = await driver(**arguments, timeout=until - loop.time(), **(how | more))
                if place.address:  # from here on the driver's tasks are those of the loop itself
                    connection._loop = loop  # noqa: SLF001 - the driver has no other way
                return connection

            try:
                connection = await (self._private(place, another, until) if private else another())
                try:
                    self.target.keep_alive(connection)
                    return await answer_within(connection, until - loop.time(), ready(connection))
                except BaseException:
                    await drop(connection)
                    raise
            except TimeoutError as silent:
                if place in self._proxies:
                    raise PoolerSilentError from silent
                raise

        return await self._in_turn(limit, dial)

    async def _private(self, place: Place, dial: Callable[..., Awaitable[C]], until: float) -> C:
        """Return a connection with a session of its own.

        Raises ``SharedSessionError`` if a proxy hands out another session for each transaction.
        """
        loop = asyncio.get_running_loop()
        connection = await dial()
        if place in self._own:
            return connection
        try:
            is_proxy = await answer_within(connection, until - loop.time(), is_proxied(connection))
        except BaseException:
            await drop(connection)
            raise
        if is_proxy:
            self._proxies.add(place)
            connection.terminate()  # so that two connections are enough
            if await is_shared(partial(dial, statement_cache_size=0), until - loop.time()):
                raise SharedSessionError(self.target.where)
            connection = await dial()
        self._own.add(place)
        return connection

    async def _in_turn(self, limit: float, dial: Callable[[Place, float], Awaitable[T]]) -> T:
        """Return what ``dial`` returns for the first place that it can use.

        ``limit``: seconds for all of them. ``dial`` takes a place and its share of the time. Raises
        ``UnreachedError``, and what ``dial`` raises if that concerns every host.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + limit
        faults: list[tuple[str, BaseException]] = []
        hosts = sorted(self._places, key=lambda place: place != self._first)
        for host_index, host in enumerate(hosts):
            share = (end - loop.time()) / (len(hosts) - host_index)
            until = loop.time() + share
            try:
                places = await self._addresses(host, share)
            except OSError as fault:
                faults.append((str(host), fault))
                continue
            for place_index, place in enumerate(places):
                try:
                    result = await dial(place, (until - loop.time()) / (len(places) - place_index))
                except _NEXT as fault:
                    faults.append((str(place), fault))
                else:
                    self._first, self._last = host, place
                    return result
        raise UnreachedError(faults)

    async def _addresses(self, place: Place, limit: float) -> list[Place]:
        """Return a place for each address of a host, the one that worked last first."""
        if place.host is None or place.host.startswith(("/", "@")) or address_of(place.host) is not None:
            return [place]
        try:
            addresses = dict.fromkeys(await Lookups(limit=limit).resolve(place.host, place.port))
        except DeliveryError as fault:
            raise (
                fault.__cause__ if isinstance(fault.__cause__, OSError) else TimeoutError(str(fault))
            ) from None
        if len(addresses) < 2:
            return [place]
        places = [Place(place.host, place.port, address) for address in addresses]
        return sorted(places, key=lambda candidate: candidate != self._last)


class LoopTo:
    """An event loop that connects to one address, whatever host the driver names.

    The driver takes a name or an address, and with the name it searches ~/.pgpass and verifies the server's
    certificate.
    """

    def __init__(self, address: str) -> None:
        self._loop: Any = asyncio.get_running_loop()
        self._address = address

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._loop, name)
        setattr(self, name, value)  # the driver asks again for each query
        return value

    async def create_connection(
        self, factory: Callable[[], Any], host: str, port: int, *, ssl: Any = None
    ) -> Any:
        """Connect to the address."""
        options = {"server_hostname": host} if ssl else {}
        return await self._loop.create_connection(factory, self._address, port, ssl=ssl, **options)


async def answer_within(connection: Droppable, limit: float, ask: Awaitable[T]) -> T:
    """Return the answer; drop a connection that takes longer than ``limit`` seconds.

    Raises ``TimeoutError``. Nothing is cancelled at the server.
    """
    loop = asyncio.get_running_loop()
    alarm = loop.call_later(limit, connection.terminate)
    try:
        return await ask
    except Exception as fault:
        if not connection.is_closed():
            raise
        if loop.time() >= alarm.when():
            raise TimeoutError from fault
        if isinstance(fault, AttributeError):  # the driver looked up a method on None
            raise ConnectionResetError from fault
        raise
    finally:
        alarm.cancel()


async def drop(connection: Droppable) -> None:
    """Drop a connection whose query may have been cancelled.

    The driver's task that asks the server to cancel the query ends here too.
    """
    connection.terminate()
    await asyncio.sleep(0)
