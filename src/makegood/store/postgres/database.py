"""A PostgreSQL database as the slices use it, over five connections.

    write, run_write, batcher ──► writers, 3    transactions; a lost commit is resolved (see ``writers``)
    read, run_read            ──► reader, 1     long reads, which delay nobody's heartbeat
    ask, run_ahead            ──► control, 1    heartbeats, leases and other small writes that are safe to
                                                repeat; it also listens for wake-ups of other processes

``on_separate_connection`` dials one more, for work that must not depend on the state of the store.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Sequence
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from makegood.base.cancelling import cancel_and_wait
from makegood.base.clock import Clock
from makegood.errors import StoreUnavailableError
from makegood.store import migrations, records
from makegood.store.postgres import joined_submit, upkeep
from makegood.store.postgres.batcher import Batcher, Flush
from makegood.store.postgres.connection import AwaitingError, Connection, Dialer
from makegood.store.postgres.errors import cause, translate
from makegood.store.postgres.inbox_work import Callers
from makegood.store.postgres.reader import ReadConnection
from makegood.store.postgres.server_clock import ServerClock
from makegood.store.postgres.statements import SharedTx
from makegood.store.postgres.transaction import Work as Write
from makegood.store.postgres.transaction import WriteTransaction, within
from makegood.store.postgres.writers import Writers, pauses_of
from makegood.store.subscribers import Subscribers
from makegood.store.transaction import ReadWork, Verbs, Work

log = logging.getLogger("makegood.store")

T = TypeVar("T")
P = ParamSpec("P")
ItemT = TypeVar("ItemT")
AnswerT = TypeVar("AnswerT")

_WRITERS = 3  # two commits of a Scheduler, and submissions
_CONTROL_PATIENCE = 5.0
"""The most seconds that an answer on the control connection may take: a heartbeat cannot wait longer."""
_KEEP_INTERVAL = 5.0
"""Seconds between two checks that the control connection still listens."""
_GENERATION_WAIT = 15.0
"""Seconds that a role with few rights waits at start for another process to begin a new generation."""
_NOW = "select extract(epoch from clock_timestamp())::float8"
_MOST_WEIGHT = 1000
"""The most that a batcher writes at once, in the weight that its caller defines: about one for each call."""


class Database:
    """The connections, and the subscribers to wake-ups.

    ``dialer``: opens the connections. ``clock``: for the time since the server's clock was read. ``rng``: for
    pauses before another try. ``patience``: seconds that an answer may take before its connection is dropped.
    ``generations``: the generation under which each node was registered.
    """

    def __init__(self, dialer: Dialer, clock: Clock, rng: random.Random, patience: float) -> None:
        self.dialer = dialer
        self.server_clock = ServerClock(clock)
        self.generations: dict[int, int] = {}
        self.subscribers = Subscribers()
        self.callers = Callers(dialer, patience, self.subscribers.announce)
        self._rng = rng
        self._patience = patience
        self._writers: Writers | None = None
        self._reader: ReadConnection | None = None
        self._control: ReadConnection | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._batchers: dict[Hashable, Batcher[Any, Any]] = {}

    @property
    def identity(self) -> records.Identity:
        """The store's random id and its generation, as read by the latest connection."""
        if self.dialer.identity is None:
            raise self._not_open()
        return self.dialer.identity

    @property
    def where(self) -> str:
        """The server and database, for messages."""
        return self.dialer.address.where

    @property
    def clock(self) -> Clock:
        """The clock of this process."""
        return self.server_clock.local

    def place(self) -> joined_submit.StorePlace:
        """Return the place that a caller's connection must be connected to."""
        return joined_submit.StorePlace(self.where, self.identity, self.dialer.database, self.dialer.system)

    async def open(self, *, migrate: bool) -> None:
        """Connect, verify settings and schema, listen for wake-ups.

        ``migrate``: bring the schema up to date first.
        """
        if self._writers is not None:
            return
        await self.on_separate_connection(partial(self._prepare, migrate=migrate))
        dialer = self.dialer
        dialer.compares_history, dialer.shut = True, False
        writers = Writers(
            dialer, self._rng, self.subscribers.announce, size=_WRITERS, patience=self._patience
        )
        connection = partial(ReadConnection, dialer, self._rng, writers.tasks)
        reader = connection(patience=self._patience)
        control = connection(patience=min(self._patience, _CONTROL_PATIENCE), hear=self._announce)
        try:
            await self._connect(control)
        except BaseException:
            await control.close()
            await writers.end(0.0)
            raise
        self._writers, self._reader, self._control = writers, reader, control
        self._batchers = {}
        self.callers.open()
        self._keeper = asyncio.get_running_loop().create_task(control.keep(_KEEP_INTERVAL))

    async def _connect(self, control: ReadConnection) -> None:
        """Connect; if a process with more rights must begin a new generation first, wait
        for it, up to a limit.
        """
        pauses = pauses_of(self._rng)
        loop = asyncio.get_running_loop()
        end = loop.time() + _GENERATION_WAIT
        has_warned = False
        while True:
            try:
                await control.ask(lambda connection: connection.fetchval("select 1"))
            except AwaitingError as error:
                if loop.time() >= end:
                    raise
                if not has_warned:
                    log.warning("%s", error)
                    has_warned = True
                await asyncio.sleep(pauses.draw())
            else:
                return

    async def _prepare(self, connection: Connection, *, migrate: bool) -> None:
        if migrate:
            await upkeep.migrate(connection, self.where)
        migrations.verify("postgres", await upkeep.version(connection, self.where), self.where)
        for finding in await upkeep.settings(connection, self.where):
            log.warning("%s", finding)

    async def on_separate_connection(self, question: Callable[[Connection], Awaitable[T]]) -> T:
        """Ask on a separate connection, whatever the state of the schema."""
        link = await self.separate_dialer().dial()
        try:
            answer = await question(link.connection)
            await link.watch.settle()
            return answer
        except Exception as fault:  # noqa: BLE001 - raised again, as an error of makegood
            raise translate(fault, self.where) from cause(fault)
        finally:
            await link.close(1.0)

    def separate_dialer(self, *, checks: bool = False) -> Dialer:
        """Return a dialer for separate connections to the same place.

        ``checks``: compare the database's history with what this process has seen.
        """
        return Dialer(self.dialer.address, self.dialer.driver, compares_history=checks)

    async def close(self) -> None:
        """Finish work under way, for some seconds, then close the connections."""
        writers, reader, control, keeper = self._writers, self._reader, self._control, self._keeper
        self._writers = self._reader = self._control = self._keeper = None
        self._batchers = {}
        await cancel_and_wait(keeper)
        await self.callers.close()
        if writers is not None:
            await writers.close(5.0)
        for connection in (reader, control):
            if connection is not None:
                await connection.close()
        if writers is not None:
            await writers.end(1.0)

    def _not_open(self) -> StoreUnavailableError:
        return StoreUnavailableError(f"{self.where}: the store is not open; `await store.open()` first")

    @property
    def writers(self) -> Writers:
        """The connections that write."""
        if self._writers is None:
            raise self._not_open()
        return self._writers

    async def write(self, work: Write[T], term: records.Grant | None = None) -> T:
        """Run ``work`` in an explicit transaction; with ``term``, under that lease."""
        writers = self.writers
        return await writers.tasks.run(explicit(writers, work, term), writes=True)

    async def read(self, question: Callable[[Connection], Awaitable[T]]) -> T:
        """Ask on the connection that reads."""
        if self._reader is None:
            raise self._not_open()
        return await self._reader.ask(question)

    async def ask(self, question: Callable[[Connection], Awaitable[T]]) -> T:
        """Ask, or make a write that is safe to repeat, on the control connection, where no batch is ahead."""
        if self._control is None:
            raise self._not_open()
        return await self._control.ask(question)

    def batcher(
        self,
        key: Hashable,
        flush: Flush[ItemT, AnswerT],
        weigh: Callable[[Sequence[ItemT]], int],
    ) -> Batcher[ItemT, AnswerT]:
        """Return the batcher that passes the items of concurrent calls of this ``key`` to ``flush``.

        There is a new batcher after each opening.
        """
        batcher = self._batchers.get(key)
        if batcher is None:
            batcher = self._batchers[key] = Batcher(self.writers.tasks, flush, _MOST_WEIGHT, weigh)
        return cast("Batcher[ItemT, AnswerT]", batcher)

    async def run_write(self, work: Work[T], term: records.Grant | None = None) -> T:
        """Run a shared verb that writes; with ``term``, under that lease."""

        async def run(tx: WriteTransaction) -> T:
            result = await work(tx)
            tx.idle = not (tx.wrote or tx.topics)
            return result

        return await self.write(run, term)

    async def run_ahead(self, work: Work[T]) -> T:
        """Run a shared verb that must not wait for a batch. Its topics wake this process alone."""

        async def run(connection: Connection) -> tuple[T, set[str]]:
            tx = SharedTx(connection)
            return await work(tx), tx.topics

        result, topics = await self.ask(run)
        if topics:
            self.subscribers.announce(topics)
        return result

    async def run_read(self, work: ReadWork[T]) -> T:
        """Run a shared verb that only reads."""
        return await self.read(lambda connection: work(SharedTx(connection)))

    async def read_clock(self) -> None:
        """Read the server's clock, on the control connection: no commit delays the answer."""
        begin = self.clock.monotonic()
        self.server_clock.set(await self.ask(lambda connection: connection.fetchval(_NOW)), begin)

    def _announce(self, topic: str | None) -> None:
        self.subscribers.announce(None if topic is None else {topic})


async def explicit(writers: Writers, work: Write[T], term: records.Grant | None = None) -> T:
    """Run an explicit transaction. Its answer is known before its commit is sent, so it needs no recovery."""
    answer: list[T] = []

    async def keep(tx: WriteTransaction) -> T:
        answer[:] = [await work(tx)]
        return answer[0]

    async def run(tx: WriteTransaction) -> T:
        return await within(tx, keep, term)

    async def recover(_: WriteTransaction, __: Sequence[int] | None) -> T:
        return answer[0]

    return await writers.write_here(run, recover)


class Slice(Verbs):
    """Verbs over one database."""

    _db: Database


Method = Callable[Concatenate[Slice, P], Coroutine[Any, Any, T]]


def writes(function: Callable[Concatenate[WriteTransaction, P], Awaitable[T]]) -> Method[P, T]:
    """Make a method of a function that writes in a transaction."""

    @wraps(function)
    async def method(self: Slice, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._db.write(lambda tx: function(tx, *args, **kwargs))

    return method


def asks(function: Callable[Concatenate[Connection, P], Awaitable[T]]) -> Method[P, T]:
    """Make a method of a function that must not wait for a batch: a read, or a small write
    that is safe to repeat.
    """

    @wraps(function)
    async def method(self: Slice, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._db.ask(lambda connection: function(connection, *args, **kwargs))

    return method
