"""One SQLite file for the slices of the store: opened and checked, with a writing and a reading thread."""

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Coroutine, Sequence
from contextlib import closing
from functools import partial, wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from makegood.base.clock import Clock
from makegood.base.file_paths import FileNumber, exists, number_of, unreachable
from makegood.base.sizes import KIB
from makegood.base.sqlite_log import WriteAheadLog
from makegood.base.sqlite_readonly import Glance, glance_at
from makegood.errors import StoreUnavailableError
from makegood.store import migrations, records, views
from makegood.store.sqlite import bulk_change, upkeep
from makegood.store.sqlite.connection import (
    Connect,
    examine,
    fsync_folder,
    is_damaged,
    open_database,
    translate,
)
from makegood.store.sqlite.decision_rows import CHANGES
from makegood.store.sqlite.file_identity import FileIdentity
from makegood.store.sqlite.store_threads import StoreClock, StoreThread
from makegood.store.sqlite.transaction import Action, SharedTx, WriteTransaction
from makegood.store.sqlite.wake_socket import WakeSocket
from makegood.store.transaction import ReadWork, Verbs, Work, binder
from makegood.transactions import at_once

_log = logging.getLogger("makegood.store")

T = TypeVar("T")
P = ParamSpec("P")

_BUSY = 5.0
_HEAVY = 64 * KIB  # bytes that weigh as much as one item, when calls share a transaction


class Database:
    """The file, its clock and identity, and the two threads.

    ``open_connection``: opens connections; tests pass one that counts or fails. ``line``: creates the two
    threads.
    """

    def __init__(
        self, path: Path, clock: Clock, open_connection: Connect, line: Callable[..., StoreThread]
    ) -> None:
        self.path = path
        self.clock = StoreClock(clock)
        self.connect = open_connection
        self.writer: StoreThread | None = None
        self.reader: StoreThread | None = None
        self.stored_identity: records.Identity | None = None
        self._make_line = line
        self._main: FileNumber | None = None

    @property
    def identity(self) -> records.Identity:
        """The store's own random id and its generation."""
        if self.stored_identity is None:
            raise self._not_open()
        return self.stored_identity

    def now(self) -> float:
        """Return the store's clock."""
        self._open(self.writer)
        return self.clock.now()

    async def prepare(self, *, migrate: bool, looking: bool) -> None:
        """Verify settings and schema."""
        await self.apart(partial(self._prepare, migrate=migrate, looking=looking))

    async def start(self, wake_socket: WakeSocket, announce: Callable[[set[str]], None]) -> None:
        """Start the threads; ``announce`` is called with the topics of each commit."""
        loop = asyncio.get_running_loop()
        self.writer = self._line("writer", loop, busy=0.0, wake_socket=wake_socket, announce=announce)
        self.reader = self._line("reader", loop, busy=_BUSY, wake_socket=None, announce=None)
        # Connect now, not at the first use: the writer would wait for the lock.
        await self.reader.ask(data_version)

    def _line(
        self,
        name: str,
        loop: asyncio.AbstractEventLoop,
        *,
        busy: float,
        wake_socket: WakeSocket | None,
        announce: Callable[[set[str]], None] | None,
    ) -> StoreThread:
        glance = Glance(self.path) if wake_socket is None else None
        line = self._make_line(
            name,
            self.path,
            partial(self._open_connection, busy=busy, glance=glance),
            self.clock,
            loop,
            on_commit=wake_socket.wake if wake_socket is not None else None,
            announce=announce,
            writes=wake_socket is not None,
            place=FileIdentity(self.path, self._main),
            glance=glance,
            log=None
            if wake_socket is None
            else WriteAheadLog(self.path, self._open_merger, self.clock.clock.monotonic),
        )
        line.start()
        return line

    def _open_connection(self, *, busy: float = _BUSY, glance: Glance | None = None) -> sqlite3.Connection:
        connection = open_database(self.path, self.connect, glance=glance)
        try:
            if glance is None:
                bulk_change.install(connection, CHANGES)
            connection.execute(f"pragma busy_timeout = {round(busy * 1000)}")
        except BaseException:
            connection.close()
            raise
        return connection

    def _open_merger(self) -> sqlite3.Connection:
        connection = open_database(self.path, self.connect)
        try:
            FileIdentity(
                self.path, self._main
            ).verify()  # a checkpoint is guarded only in the writer's own file
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, *, migrate: bool, looking: bool) -> None:
        """Verify that the file meets our requirements.

        With ``migrate``, create or migrate it first if needed.
        """
        examine(self.path)
        _log.debug("%s: opened with SQLite %s", self.path, sqlite3.sqlite_version)
        if not exists(self.path):
            if not migrate:
                migrations.verify("sqlite", 0, f"{self.path} (no such file yet)")
            self._migrate()

        def look(glance: Glance | None) -> tuple[float, records.Identity]:
            with closing(open_database(self.path, self.connect, glance=glance)) as connection:
                version = upkeep.version(connection, str(self.path))
                if migrate and version != migrations.latest_version("sqlite"):  # checked without the lock
                    self._migrate()
                    version = upkeep.version(connection, str(self.path))
                migrations.verify("sqlite", version, str(self.path))
                if not looking:
                    upkeep.forget_statistics(connection)
                shift = upkeep.agree_on_clock(connection, self.clock.clock, looking=looking)
                return shift, upkeep.identity(connection)

        self.clock.shift, self.stored_identity = glance_at(self.path, look) if looking else look(None)
        self._main = number_of(str(self.path))

    def _migrate(self) -> list[str]:
        examine(self.path)
        new = not exists(self.path)
        with closing(open_database(self.path, self.connect, create=True)) as connection:
            names = upkeep.migrate(connection, self.path, self.clock.clock)
        if new:
            fsync_folder(self.path)
        return names

    async def close(self) -> None:
        """Finish the operations asked for, then close the file."""
        writer, reader = self.writer, self.reader
        self.writer = self.reader = None
        for line in (writer, reader):
            if line is not None:
                await line.stop()

    async def apart(self, action: Callable[[], T]) -> T:
        """Run an action that opens its own connection, outside the two threads."""
        try:
            return await asyncio.get_running_loop().run_in_executor(None, action)
        except sqlite3.Error as failure:
            raise translate(failure, self.path) from failure
        except OSError as failure:
            raise unreachable(f"{self.path}: it", failure) from failure

    def _not_open(self) -> StoreUnavailableError:
        return StoreUnavailableError(f"{self.path}: the store is not open; `await store.open()` first")

    def _open(self, line: StoreThread | None) -> StoreThread:
        if line is None:
            raise self._not_open()
        return line

    async def write(self, action: Action[T], *, weight: int = 1, again: bool = False) -> T:
        """Run ``action`` in the writing thread, in a transaction shared with the other operations of the
        moment.
        """
        return cast("T", await self._open(self.writer).ask(action, weight=weight, again=again))

    async def together(
        self, action: Callable[..., list[T]], items: Sequence[object], *, octets: int = 0, again: bool = False
    ) -> list[T]:
        """Run ``action`` once for the items of all callers of the moment."""
        weight = len(items) + octets // _HEAVY
        return cast("list[T]", await self._open(self.writer).ask(action, items, weight=weight, again=again))

    async def read(self, action: Action[T]) -> T:
        """Run ``action`` in the reading thread, where it sees one moment."""
        return cast("T", await self._open(self.reader).ask(action))

    async def run_write(self, work: Work[T], term: records.Grant | None = None) -> T:
        """Run an operation that is written once for all stores; with ``term``, under that lease."""

        def act(tx: WriteTransaction, term: records.Grant | None) -> T:
            if term is not None:
                tx.fence(term)
            return at_once(work(SharedTx(tx)))

        # The name that shows when transactions are watched.
        act.__name__ = getattr(work, "func", work).__name__
        return await self.write(partial(act, term=term))

    async def run_ahead(self, work: Work[T]) -> T:
        """Run a shared operation that is safe to repeat, and record that the clock has passed this moment."""

        def act(tx: WriteTransaction) -> T:
            upkeep.pass_by(tx)
            return at_once(work(SharedTx(tx)))

        act.__name__ = getattr(work, "func", work).__name__
        return await self.write(act, again=True)

    async def run_read(self, work: ReadWork[T]) -> T:
        """Run an operation that is written once for all stores and only reads."""
        return await self.read(lambda tx: at_once(work(SharedTx(tx))))

    # Operations that do not need an open store

    async def schema(self) -> views.SchemaStatus:
        """Return the status of the schema."""

        def look(glance: Glance | None) -> views.SchemaStatus:
            with closing(open_database(self.path, self.connect, glance=glance)) as connection:
                return upkeep.schema(connection, str(self.path))

        def there() -> views.SchemaStatus:
            examine(self.path)
            if exists(self.path):
                return glance_at(self.path, look)
            missing = [migration.name for migration in migrations.plan("sqlite", 0)]
            return views.SchemaStatus("sqlite", 0, migrations.latest_version("sqlite"), missing)

        return await self.apart(there)

    async def migrate(self) -> list[str]:
        """Apply missing migrations. Returns their names."""
        return await self.apart(self._migrate)

    async def check(self) -> list[str]:
        """Verify integrity and durability settings. Returns findings."""

        def look(glance: Glance | None) -> list[str]:
            try:
                with closing(open_database(self.path, self.connect, glance=glance)) as connection:
                    return upkeep.check(connection, self.path, glance)
            except sqlite3.DatabaseError as failure:
                if not is_damaged(failure):
                    raise
                return [str(translate(failure, self.path))]

        def there() -> list[str]:
            examine(self.path)
            return glance_at(self.path, look)

        return await self.apart(there)


def data_version(tx: WriteTransaction) -> int:
    """Return the number that changes with each commit of another connection."""
    number: int = tx.rows("pragma data_version")[0][0]
    return number


class Slice(Verbs):
    """A group of the store's operations on one database."""

    _db: Database


def writes(
    function: Callable[Concatenate[WriteTransaction, P], T], *, again: bool = False
) -> Callable[Concatenate[Slice, P], Coroutine[Any, Any, T]]:
    """Make a method from a transaction that writes. ``again``: it can be repeated after a rollback."""
    bind = binder(function)

    @wraps(function)
    async def method(self: Slice, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._db.write(bind(*args, **kwargs), again=again)

    return method


def reads(
    function: Callable[Concatenate[WriteTransaction, P], T],
) -> Callable[Concatenate[Slice, P], Coroutine[Any, Any, T]]:
    """Make a method from a transaction that reads."""

    @wraps(function)
    async def method(self: Slice, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._db.read(lambda tx: function(tx, *args, **kwargs))

    return method
