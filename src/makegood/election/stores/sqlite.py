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

from makegood.base.clock import Clock, SystemClock
from makegood.base.daemon_threads import DaemonThreads
from makegood.base.durations import Duration, seconds
from makegood.base.file_paths import entered, file_of, unreachable
from makegood.base.private_files import make as make_file
from makegood.base.sqlite_readonly import Glance, denied, glanced, may_write, refusal
from makegood.election.protocol import Fence, Grant, LeaseView, PastTerm
from makegood.election.stores.base import Closing, lasting
from makegood.errors import ConfigError, StoreUnavailableError

T = TypeVar("T")

log = logging.getLogger("makegood.election")

KEPT = 1000
"""Terms remembered per lease."""

_SWITCH_TRIES, _SWITCH_PAUSE = 1000, 0.005

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
_FIND = "select holder, nonce, epoch, ttl, boot, expires, since from makegood_election_lease where name = ?"
_TAKE = """
insert into makegood_election_lease (name, holder, nonce, epoch, ttl, boot, expires, since)
values (:name, :holder, :nonce, :epoch, :ttl, :boot, :expires, :since)
on conflict (name) do update set holder = :holder, nonce = :nonce, epoch = :epoch, ttl = :ttl, boot = :boot,
    expires = :expires, since = :since
"""
_END = "update makegood_election_term set ended = ?, released = ? where name = ? and ended is null"
_BEGIN = "insert into makegood_election_term (name, epoch, holder, began, released) values (?, ?, ?, ?, 0)"
_TRIM = "delete from makegood_election_term where name = ? and epoch <= ?"
_RENEW = """
update makegood_election_lease set expires = :now + ttl
where name = :name and nonce = :nonce and epoch = :epoch and holder is not null and boot = :boot and expires > :now
"""
_RELEASE = "update makegood_election_lease set holder = null, nonce = '' where name = ? and nonce = ? and holder is not null"
_PAST = """
select epoch, holder, began, ended, released from makegood_election_term where name = ? order by epoch desc limit ?
"""
# It writes, so that it takes the write lock in any kind of transaction.
_FENCE = """
update makegood_election_lease set epoch = epoch
where name = :name and nonce = :nonce and epoch = :epoch and holder is not null and boot = :boot and expires > :now
returning 1
"""


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
        self._made = False
        self._number: tuple[int, int] | None = None

    async def acquire(self, name: str, holder: str, nonce: str, ttl: float) -> Grant | None:
        """Take a lease that is free, expired or ours already (the same nonce)."""
        lasting(ttl)
        return await self._do(
            lambda connection: self._acquire(connection, Grant(name, holder, nonce, 0, ttl))
        )

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
        return await self._do(lambda connection: self._read(connection, name), make=False)

    async def past_terms(self, name: str, limit: int = 100) -> list[PastTerm]:
        """Return the latest terms, newest first."""
        rows = await self._do(
            lambda connection: connection.execute(_PAST, (name, limit)).fetchall(), make=False
        )
        return [PastTerm(e, holder, began, ended, bool(back)) for e, holder, began, ended, back in rows or ()]

    def fence(self, grant: Grant) -> Fence:
        """Return the statement that checks the grant in a transaction on the same file."""
        return Fence("sqlite", _FENCE, self._values(grant))

    async def close(self) -> None:
        """Close the file."""
        await self._in_thread(self._shut)

    def _values(self, grant: Grant) -> dict[str, str | int | float]:
        return {
            "name": grant.name, "nonce": grant.nonce, "epoch": grant.epoch,
            "boot": self._clock.boot_id(), "now": self._clock.monotonic(),
        }  # fmt: skip

    # -- in the thread, which is the only one that uses the connection -----------------------------

    def _acquire(self, connection: sqlite3.Connection, wanted: Grant) -> Grant | None:
        self._verify()
        name, boot = wanted.name, self._clock.boot_id()
        with _writing(connection):
            now, wall = self._clock.monotonic(), self._clock.wall()
            found = connection.execute(_FIND, (name,)).fetchone()
            epoch, since = 1, wall
            if found is not None:
                holder, nonce, epoch, _ttl, then, expires, since = found
                if nonce != wanted.nonce:
                    if holder is not None and then == boot and expires > now:
                        return None
                    ended = wall - (now - expires) if then == boot else since
                    connection.execute(_END, (ended, 0, name))
                    epoch, since = epoch + 1, wall
            if found is None or found[1] != wanted.nonce:
                connection.execute(_BEGIN, (name, epoch, wanted.holder, wall))
                connection.execute(_TRIM, (name, epoch - KEPT))
            row = {
                "name": name, "holder": wanted.holder, "nonce": wanted.nonce, "epoch": epoch, "ttl": wanted.ttl,
                "boot": boot, "expires": now + wanted.ttl, "since": since,
            }  # fmt: skip
            connection.execute(_TAKE, row)
        return Grant(name, wanted.holder, wanted.nonce, epoch, wanted.ttl)

    def _renew(self, connection: sqlite3.Connection, grant: Grant) -> bool:
        if self._number != _number(self._path):
            log.error("%s was removed or replaced: who opens it now does not see this lease", self._path)
            return False
        with _writing(connection):
            return connection.execute(_RENEW, self._values(grant)).rowcount == 1

    def _release(self, connection: sqlite3.Connection, grant: Grant) -> None:
        with _writing(connection):
            if connection.execute(_RELEASE, (grant.name, grant.nonce)).rowcount == 1:
                connection.execute(_END, (self._clock.wall(), 1, grant.name))

    def _read(self, connection: sqlite3.Connection, name: str) -> LeaseView | None:
        found = connection.execute(_FIND, (name,)).fetchone()
        if found is None:
            return None
        holder, _nonce, epoch, ttl, boot, expires, since = found
        remaining = expires - self._clock.monotonic() if boot == self._clock.boot_id() else -1.0
        return LeaseView(name, holder, epoch, ttl, since, remaining)

    def _connected(self, *, make: bool) -> sqlite3.Connection:
        if self._open is None:
            if not self._path.absolute().parent.is_dir():
                raise ConfigError(
                    f"{self._path}: the folder {self._path.parent} does not exist; create it, or name another file"
                )
            make_file(self._path)
            made = sqlite3.connect(
                self._path, timeout=self._timeout, isolation_level=None, check_same_thread=False
            )
            self._open, self._made, number = made, False, _number(self._path)
            self._number = self._number or number
        if make and not self._made:
            self._verify()
            self._ahead(self._open)
            self._open.execute("pragma synchronous = full")
            self._open.execute("pragma fullfsync = on")  # macOS: fsync alone does not reach the disk
            self._open.executescript(_SCHEMA)
            self._made = True
        return self._open

    def _glance(self, work: Callable[[sqlite3.Connection], T], *, make: bool) -> T:
        """Work on a file that this user may not write: SQLite must not create a log there that its owner may
        not write.
        """
        if make:
            raise StoreUnavailableError(f"the leases in {self._path}: {denied(self._path)}")

        def look(glance: Glance | None) -> T:
            uri = self._path.absolute().as_uri() if glance is None else glance.uri()
            with contextlib.closing(
                sqlite3.connect(uri, uri=True, timeout=self._timeout, isolation_level=None)
            ) as connection:
                return work(connection)

        return glanced(self._path, look)

    def _missing(self) -> bool:
        return self._path.absolute().parent.is_dir() and not self._path.exists()

    def _verify(self) -> None:
        """Check that the name still has the file that was opened first: another file knows nothing of our
        epochs.
        """
        if self._number != _number(self._path):
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

    def _shut(self) -> None:
        connection, self._open = self._open, None
        if connection is not None:
            connection.close()

    async def _do(self, work: Callable[[sqlite3.Connection], T], *, make: bool = True) -> T | None:
        """Work on the file; ``make`` it, or its tables, if they are missing. Reads write nothing: None."""

        def call() -> T | None:
            try:
                if self._open is None:
                    entered(self._path)
                    if not make and self._missing():
                        return None
                    if self._path.is_file() and not may_write(self._path):
                        return self._glance(work, make=make)
                return work(self._connected(make=make))
            except sqlite3.Error as fault:
                if not make and "no such table" in str(fault):
                    return None
                self._shut()
                if getattr(fault, "sqlite_errorcode", 0) == sqlite3.SQLITE_NOTADB:
                    raise ConfigError(f"{self._path} is not a SQLite database: name another file") from fault
                raise StoreUnavailableError(
                    f"the leases in {self._path}: {refusal(self._path, str(fault))}"
                ) from fault
            except OSError as barred:
                raise unreachable(f"the leases in {self._path}", barred) from barred

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


def _number(path: Path) -> tuple[int, int] | None:
    """Return the identity of the file that has this name now, whatever its name was before; None: there is
    none.
    """
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


@contextlib.contextmanager
def _writing(connection: sqlite3.Connection) -> Iterator[None]:
    """A transaction that no other write can interleave with."""
    connection.execute("begin immediate")
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
