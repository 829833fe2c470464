"""Lease stores on real servers: private ones, reached through a forwarder that can break connections and let bytes vanish."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Protocol

from redis.asyncio import Redis

from makegood.election import OpenLeases, open_leases
from makegood.testing.forwarder import Forwarder
from makegood.testing.leases import LeaseWorld
from proofs.election_groups import behind
from proofs.servers import LeaseServer
from tests.clocks import AheadClock


class Server(Protocol):
    """What a world needs of a server."""

    port: int

    @property
    def url(self) -> str:
        """What ``open_leases`` takes."""
        ...


class ServerWorld(LeaseWorld):
    """A private server. Everything goes through ``way``, which is open within ``ready``."""

    ttl = 15.0
    slack = 5.0

    def __init__(self, server: Server) -> None:
        super().__init__()
        self.server = server
        self.clock = AheadClock()
        self.way: Forwarder | None = None

    @asynccontextmanager
    async def ready(self) -> AsyncIterator[None]:
        """Open the way to the server."""
        async with Forwarder(self.server.port) as self.way:
            yield

    def open(self) -> OpenLeases:
        return self.opened(self.way)

    def opened(self, way: Forwarder | None, timeout: float = 60.0) -> OpenLeases:
        """Open the leases behind a forwarder."""
        assert way is not None
        return open_leases(behind(self.server.url, way.port), timeout=timeout, clock=self.clock)

    @asynccontextmanager
    async def opened_later(self, way: Forwarder) -> AsyncIterator[OpenLeases]:
        """Open the leases when the forwarder has its port, with a short time-out."""
        async with self.opened(way, 0.3) as leases:
            yield leases

    async def restart(self) -> None:
        assert isinstance(self.server, LeaseServer)
        await asyncio.to_thread(self.server.restart)

    async def recycle(self) -> None:
        assert self.way is not None
        self.way.sever()

    @asynccontextmanager
    async def black_hole(self) -> AsyncIterator[tuple[OpenLeases, Callable[[], None]]]:
        between = Forwarder(self.server.port)
        async with between, self.opened_later(between) as leases:
            yield leases, partial(setattr, between, "swallow", "everything")
            between.heal()


class RedisWorld(ServerWorld):
    """Time passes by setting back what was written."""

    async def elapse(self, seconds: float) -> None:
        redis: Any = Redis.from_url(self.server.url, decode_responses=True)
        async with redis:
            for key in await redis.keys(f"*{self.prefix}*}}"):
                await redis.hincrby(key, "expires", round(-1000 * seconds))


class AzureWorld(ServerWorld):
    """The emulator's clock is set forward, and this process's with it."""

    rounds = 8
    longest = 60.0

    async def elapse(self, seconds: float) -> None:
        self.clock.ahead += seconds
        assert isinstance(self.server, LeaseServer)
        self.server.run_ahead(seconds)


class ObservedWorld(ServerWorld):
    """Observers judge by their own clocks: those run ahead."""

    observed = True

    async def elapse(self, seconds: float) -> None:
        self.clock.ahead += seconds


class NatsWorld(ObservedWorld):
    """A name's first epoch is above the bucket's last revision."""

    first = None


class EtcdWorld(ServerWorld):
    """Its clock cannot be set, so real time passes. ``late``: by how much more than it should have, on a machine that is busy."""

    first = None
    ttl = 3.0
    slack = 1.2
    rounds = 6

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self._began = self.clock.monotonic()
        self._elapsed = 0.0

    async def elapse(self, seconds: float) -> None:
        self._elapsed += seconds
        await LeaseWorld.elapse(self, seconds)

    def late(self) -> float:
        """Return the seconds that passed beside those which were let pass."""
        return self.clock.monotonic() - self._began - self._elapsed
