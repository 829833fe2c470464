"""Leases in a SQLite file: for candidates on one host, such as two copies of a service or several cron lines.

``begin immediate`` lets one writer in at a time, so every call is exact. CLOCK_BOOTTIME judges expiry: all
processes of a host share it, and it runs through suspend. The boot's id is kept beside it: after a restart of
the host every holder is gone. Commits reach the disk before they are answered; otherwise an epoch could
repeat after a power cut.

The leader's own work may be committed in the same file: ``term.guard(connection)`` then fences it exactly.
"""

import asyncio
import contextlib
import logging
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from makegood.base import sqlite_log
from makegood.base.clock import Clock, SystemClock
from makegood.base.daemon_threads import DaemonThreads
from makegood.base.durations import Duration, seconds
from makegood.base.file_paths import FileNumber, check_searchable, exists, file_of, number_of, unreachable
from makegood.base.private_files import make as make_file
from makegood.base.sqlite_log import WriteAheadLog
from makegood.base.sqlite_readonly import Glance, denial, glance_at, may_write, refusal
from makegood.election.protocol import Fence, Grant, LeaseView, PastTerm
from makegood.election.stores.base import Closing, lasting
from makegood.election.stores.sqlite_table import Moment, SQLiteLeaseTable
from makegood.errors import ConfigError, StoreUnavailableError

T = TypeVar("T")

log = logging.getLogger("makegood.election")

_SWITCH_TRIES, _SWITCH_PAUSE = 1000, 0.005
_LOCK_PAUSE = 0.001
"""Seconds between two tries for the lock: beside a busy process it is free only for moments."""
_MERGE_WAIT = 0.04
"""Seconds to wait for the lock that keeps others from extending a long log during its merge."""

# ``expires`` is on the boot's clock; the other times are seconds since 1970, for people.
_SCHEMA = """
create table if not exists makegood_election_lease (
    name text primary key,
    holder text,
    nonce text not null,
    epoch integer not null,
    ttl real not null,
    boot text not null,
    expires real not null,
    since real not null
) without rowid;
create table if not exists makegood_election_term (
    name text not null,
    epoch integer not null,
    holder text not null,
    began real not null,
    ended real,
    released integer not null,
    primary key (name, epoch)
) without rowid;
"""
_KNOWN = "select 1 from sqlite_master where name = 'makegood_election_lease'"
_LEASES = SQLiteLeaseTable(
    {
        "LEASE": "makegood_election_lease", "TERM": "makegood_election_term", "expires_at": "expires", "taken_at": "since",
        "began_at": "began", "ended_at": "ended",
    },
    boot=True,
)  # fmt: skip


class SQLiteLeases(Closing):
    """A lease store in the SQLite file ``path``, created if it is missing. ``timeout``: how long a call may
    take.
    """

    def __init__(self, path: str | Path, *, clock: Clock | None = None, timeout: Duration = 5) -> None:
        self._path = Path(path)
        self._clock = clock or SystemClock()
        self._timeout = seconds(timeout, name="timeout", least=0.01)
        self._threads = DaemonThreads(1, "election")
        self._open: sqlite3.Connection | None = None
        self._log = WriteAheadLog(self._path, self._open_merger, self._clock.monotonic)
        self._has_tables = False
        self._number: FileNumber | None = None

    async def acquire(self, name: str, holder: str, nonce: str, ttl: float) -> Grant | None:
        """Take a lease that is free, expired or ours already (the same nonce)."""
        lasting(ttl)
        grant = Grant(name, holder, nonce, 0, ttl)
        return await self._do(lambda connection: self._acquire(connection, grant))

    async def renew(self, grant: Grant) -> bool:
        """Extend a lease that is still held; False if the term is over, as it is if the file was removed or
        replaced.
        """
        return bool(await self._do(lambda connection: self._renew(connection, grant)))

    async def release(self, grant: Grant) -> None:
        """Free a lease that is still this grant's."""
        await self._do(lambda connection: self._release(connection, grant))

    async def read(self, name: str) -> LeaseView | None:
        """Return who holds a lease."""
        return await self._do(lambda connection: _LEASES.read(connection, self._moment(), name), make=False)

    async def past_terms(self, name: str, limit: int = 100) -> list[PastTerm]:
        """Return the latest terms, newest first."""
        terms = await self._do(lambda connection: _LEASES.past_terms(connection, name, limit), make=False)
        return terms or []

    def fence(self, grant: Grant) -> Fence:
        """Return the statement that checks the grant in a transaction on the same file."""
        values: dict[str, str | int | float] = {
            "name": grant.name, "nonce": grant.nonce, "epoch": grant.epoch,
            "boot": self._clock.boot_id(), "now": self._clock.monotonic(),
        }  # fmt: skip
        return Fence("sqlite", _LEASES.fence, values)

    async def close(self) -> None:
        """Close the file."""
        await self._in_thread(self._shut)

    def _moment(self) -> Moment:
        return Moment(self._clock.monotonic(), self._clock.wall(), self._clock.boot_id())

    # -- in the thread, which is the only one that uses the connection -----------------------------

    def _acquire(self, connection: sqlite3.Connection, grant: Grant) -> Grant | None:
        self._verify()
        with _writing(connection, self._timeout):
            return _LEASES.acquire(connection, self._moment(), grant)

    def _renew(self, connection: sqlite3.Connection, grant: Grant) -> bool:
        if self._number != number_of(self._path):
            log.error("%s was removed or replaced: who opens it now does not see this lease", self._path)
            return False
        with _writing(connection, self._timeout):
            return _LEASES.renew(connection, self._moment(), grant)

    def _release(self, connection: sqlite3.Connection, grant: Grant) -> None:
        with _writing(connection, self._timeout):
            _LEASES.release(connection, self._moment(), grant)

    def _connect(self, *, make: bool) -> sqlite3.Connection:
        if self._open is None:
            if not self._path.absolute().parent.is_dir():
                raise ConfigError(
                    f"{self._path}: the folder {self._path.parent} does not exist; create it, or name another file"
                )
            make_file(self._path)
            connection = sqlite_log.connect(self._path.absolute().as_uri(), timeout=self._timeout)
            self._open, self._has_tables, number = connection, False, number_of(self._path)
            self._number = self._number or number
        if make and not self._has_tables:
            self._verify()
            self._ahead(self._open)
            _durable(self._open)
            new = not self._open.execute(_KNOWN).fetchone()
            self._open.executescript(_SCHEMA)
            if new:
                log.info("created the tables of the leases in %s", self._path.absolute())
            self._has_tables = True
        return self._open

    def _glance(self, work: Callable[[sqlite3.Connection], T], *, make: bool) -> T:
        """Work on a file that this user may not write: SQLite must not create a log there that its owner may
        not write.
        """
        if make:
            raise StoreUnavailableError(f"the leases in {self._path}: {denial(self._path)}")

        def look(glance: Glance | None) -> T:
            uri = self._path.absolute().as_uri() if glance is None else glance.uri()
            with contextlib.closing(sqlite_log.connect(uri, timeout=self._timeout)) as connection:
                return work(connection)

        return glance_at(self._path, look)

    def _missing(self) -> bool:
        return self._path.absolute().parent.is_dir() and not exists(self._path)

    def _verify(self) -> None:
        """Check that the name still has the file that was opened first: another file knows nothing of our
        epochs.
        """
        if self._number != number_of(self._path):
            raise StoreUnavailableError(
                f"{self._path} was removed or replaced while this process had it open, and the epochs with it: put that very file "
                "back, or restart all candidates"
            )

    def _ahead(self, connection: sqlite3.Connection) -> None:
        """Switch to the write-ahead log. If two processes switch a new file at once, SQLite reports to one
        that it is locked.
        """
        until = self._clock.monotonic() + self._timeout
        for _ in range(_SWITCH_TRIES):
            try:
                connection.execute("pragma journal_mode = wal")
            except sqlite3.OperationalError:
                if self._clock.monotonic() >= until:
                    raise
                time.sleep(_SWITCH_PAUSE)
            else:
                return
        raise sqlite3.OperationalError("the write-ahead log could not be switched on")

    def _open_merger(self) -> sqlite3.Connection:
        merger = sqlite_log.connect(self._path.absolute().as_uri(), timeout=self._timeout)
        try:
            self._verify()  # a checkpoint is guarded only in the file that the other connection has open
            _durable(merger)
        except BaseException:
            merger.close()
            raise
        return merger

    def _lock(self) -> sqlite3.Connection:
        """Begin a write transaction without a long wait: somebody waits for the answer."""
        connection = self._connect(make=True)
        _begin(connection, _MERGE_WAIT)
        return connection

    def _shut(self) -> None:
        self._log.close()
        connection, self._open = self._open, None
        if connection is not None:
            connection.close()

    async def _do(self, work: Callable[[sqlite3.Connection], T], *, make: bool = True) -> T | None:
        """Work on the file; ``make`` it, or its tables, if they are missing. Reads write nothing: None."""

        def call() -> T | None:
            try:
                if self._open is None:
                    check_searchable(self._path)
                    if not make and self._missing():
                        return None
                    if exists(self._path) and not may_write(self._path):
                        return self._glance(work, make=make)
                connection = self._connect(make=make)
                answer = work(connection)
                if make:
                    self._log.merge_if_long(connection, self._lock)
                return answer
            except sqlite3.Error as fault:
                if not make and "no such table" in str(fault):
                    return None
                self._shut()
                if getattr(fault, "sqlite_errorcode", 0) == sqlite3.SQLITE_NOTADB:
                    raise ConfigError(f"{self._path} is not a SQLite database: name another file") from fault
                raise StoreUnavailableError(
                    f"the leases in {self._path}: {refusal(self._path, str(fault))}"
                ) from fault
            except OSError as denial:
                raise unreachable(f"the leases in {self._path}", denial) from denial

        return await self._in_thread(call)

    async def _in_thread(self, call: Callable[[], T]) -> T:
        try:
            async with asyncio.timeout(self._timeout):
                return await asyncio.get_running_loop().run_in_executor(self._threads, call)
        except TimeoutError as silent:
            raise StoreUnavailableError(
                f"the leases in {self._path}: no answer within {self._timeout:g} s; is another process stopped in the "
                "middle of a transaction?"
            ) from silent


def _durable(connection: sqlite3.Connection) -> None:
    """Let commits and merges reach the disk; on macOS fsync alone does not."""
    for setting in ("synchronous = full", "fullfsync = on", "checkpoint_fullfsync = on"):
        connection.execute(f"pragma {setting}")


def _begin(connection: sqlite3.Connection, wait: float) -> None:
    """Begin a transaction that no other write can interleave with; try for so many seconds."""
    (before,) = connection.execute("pragma busy_timeout").fetchone()
    connection.execute("pragma busy_timeout = 0")
    try:
        for _ in range(int(wait / _LOCK_PAUSE)):
            try:
                connection.execute("begin immediate")
            except sqlite3.OperationalError as busy:
                if getattr(busy, "sqlite_errorcode", 0) & 0xFF != sqlite3.SQLITE_BUSY:
                    raise
                time.sleep(_LOCK_PAUSE)
            else:
                return
        connection.execute("begin immediate")
    finally:
        connection.execute(f"pragma busy_timeout = {before}")


@contextlib.contextmanager
def _writing(connection: sqlite3.Connection, wait: float) -> Iterator[None]:
    """A transaction that no other write can interleave with."""
    _begin(connection, wait)
    try:
        yield
        connection.execute("commit")
    finally:
        if connection.in_transaction:
            connection.execute("rollback")


def from_url(url: str, *, clock: Clock, timeout: float) -> SQLiteLeases:
    """Open ``sqlite:///relative.db`` or ``sqlite:////absolute.db``. Raises ``ConfigError`` for another
    form.
    """
    return SQLiteLeases(file_of(url), clock=clock, timeout=timeout)
