"""``PostgresStore``: the slices over a few connections to one database."""

import random
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import asyncpg

from makegood.base.clock import Clock, SystemClock
from makegood.store import records
from makegood.store.alerts import AlertVerbs
from makegood.store.lanes import LaneVerbs
from makegood.store.notice_operations import NoticeVerbs
from makegood.store.oversight import OversightVerbs
from makegood.store.postgres import slices, upkeep
from makegood.store.postgres.connection import Address, Connection, Dialer, Driver
from makegood.store.postgres.database import Database
from makegood.store.priority_ageing import Ageing
from makegood.store.records import IDLE
from makegood.store.subscribers import Receive
from makegood.store.supervision import SupervisionVerbs
from makegood.transactions import Caller

T = TypeVar("T")

_PARALLEL_FROM = 64
_PATIENCE = 30.0


class PostgresStore:
    """The store in a PostgreSQL database, in its schema ``makegood``.

    ``url``: as libpq's, several hosts included.
    ``clock``: for pauses only; the server's clock judges everything.
    ``patience``: seconds that a statement may take; then its connection is dropped and another one asks for
    the outcome.
    ``ageing``: seconds of waiting that count as one priority; None: never.
    ``session``: the name that the server shows for its connections, if the URL does not set application_name.
    ``driver``: makes connections, for tests that count or fail.

    An object belongs to the event loop on which it was opened.
    """

    def __init__(
        self,
        url: str,
        *,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        patience: float = _PATIENCE,
        ageing: float | None = 60.0,
        driver: Driver = asyncpg.connect,
        session: str | None = None,
    ) -> None:
        self.parallel_from: int | None = _PARALLEL_FROM
        dialer = Dialer(Address(url, session), driver)
        self._database = database = Database(dialer, clock or SystemClock(), rng or random.Random(), patience)
        ageing_policy = Ageing(ageing)
        self.tasks = slices.TaskSlice(database, ageing_policy)
        self.requests = slices.RequestSlice(database, ageing_policy)
        self.supervision = SupervisionVerbs(database, database.clock)
        self.alerts = AlertVerbs(database)
        self.queues = slices.QueueSlice(database)
        self.notices = NoticeVerbs(database)
        self.leases = slices.LeaseSlice(database)
        self.nodes = slices.NodeSlice(database)
        self.admin = slices.AdminSlice(database)
        self.oversight = OversightVerbs(database)

    @property
    def lanes(self) -> LaneVerbs:
        """Lanes: who holds them, and who waits."""
        return LaneVerbs(self._database)

    @property
    def schedules(self) -> slices.ScheduleSlice:
        """Schedules and their firings."""
        return slices.ScheduleSlice(self._database)

    @property
    def identity(self) -> records.Identity:
        """The store's random id and its generation, as read by the latest connection."""
        return self._database.dialer.identity or self._database.identity

    @property
    def label(self) -> str:
        """Which store it is, for people."""
        return self._database.dialer.address.target.label

    async def open(self, *, migrate: bool = False, looking: bool = False) -> None:  # noqa: ARG002 - nothing is written either way
        """Connect, verify settings and schema, listen for wake-ups."""
        await self._database.open(migrate=migrate)

    async def close(self) -> None:
        """Finish work under way, for some seconds, then close the connections."""
        await self._database.close()

    async def now(self) -> float:
        """Return the time on the server's clock."""

        async def ask(connection: Connection) -> float:
            now: float = await connection.fetchval(upkeep.NOW)
            return now

        return await self._database.ask(ask)

    def subscribe(self, topic: str, wake: Callable[[], None]) -> Callable[[], None]:
        """Call ``wake`` when there may be something new on ``topic``; return a function that
        ends the subscription.
        """
        return self._database.subscribers.subscribe(topic, wake)

    def receive(self, take: Receive) -> Callable[[], None]:
        """Offer ``take`` the messages of signals that this process sends."""
        return self._database.subscribers.receive(take)

    def joined(self, *keys: int | tuple[str, str] | tuple[int, str, str]) -> None:
        """Do nothing: the caller's commit notifies subscribers."""

    async def transact(
        self,
        work: Callable[[Caller], Coroutine[Any, Any, T]],
        *,
        waits: bool,  # noqa: ARG002 - on a loop either way
        idle: float = IDLE,
    ) -> T:
        """Run ``work`` in a transaction on a connection of its own."""
        return await self._database.callers.transact(work, idle)
