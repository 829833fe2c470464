"""Opens SQLite files, and merges their write-ahead logs so that no version of SQLite loses a commit.

SQLite before 3.51.3, 3.50.7 and 3.44.6 has the WAL-reset bug (sqlite.org/wal.html#walresetbug). A checkpoint
reads the length of the log and, a moment later, how much of the log is merged. If another connection begins
the log again between the two, the checkpoint records the old length as merged, and SQLite ignores as many
frames of the new log: these commits are lost.

So SQLite never checkpoints by itself on a connection of ours (``wal_autocheckpoint = 0``), and each of our
checkpoints runs while another of our connections, the guard, has a transaction open that began before it. A
transaction that has read is enough:

- If the log was not completely merged when the guard began, the guard reads from the log. Nobody can begin a
  log again while somebody reads from it.
- If it was, the guard reads from the file alone. No checkpoint records anything while somebody does so.

The guard hinders no writer and no reader. When the last connection to a file is closed, SQLite merges the log
itself. That is safe, as nobody else is connected.
"""

import logging
import os
import re
import sqlite3
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from makegood.base.sparse_log import PAUSE, Sparing
from makegood.base.sqlite_readonly import log_of
from makegood.errors import MakegoodError

_log = logging.getLogger("makegood.store")

PAGES: Final = 4000
"""The length of a log that is merged, in pages: 16 MiB, the most that is written twice between two merges."""
SIZE_LIMIT: Final = 64 * 1024 * 1024
"""Bytes to which the file of a log is cut when the log begins again."""
LOST: Final = (
    "its write-ahead log has {length} pages and {merged} of them count as merged: commits are being lost"
)

_HEADER, _FRAME = 32, 24  # bytes, by SQLite's file format
_PAUSE = 0.02  # seconds between two looks at the log, which release the interpreter's lock
_RETRY = 0.2  # seconds, after a merge that left pages in the log
_GROWTH = 64  # pages, and a 32nd of the log: merged at once, whatever the time since such a merge
_LONG = 2  # times the length from which on a log is merged under the write lock


_NUMBERED = re.compile(r"\?\d")


class PlainConnection(sqlite3.Connection):
    """A connection that executes statements with numbered placeholders, such as ``?1``, as ones without.

    Python 3.12.0 to 3.12.3 take these placeholders for names: with a sequence of values, each of them costs
    a ``DeprecationWarning`` whenever the statement is executed (CPython issue 117995).
    """

    def execute(self, sql: str, values: Any = (), /) -> sqlite3.Cursor:
        """Execute a statement."""
        if not _NUMBERED.search(sql):
            return super().execute(sql, values)
        text, order = _plain(sql)
        return super().execute(text, [values[index] for index in order])

    def executemany(self, sql: str, rows: Iterable[Any], /) -> sqlite3.Cursor:
        """Execute a statement for each of several sequences of values."""
        if not _NUMBERED.search(sql):
            return super().executemany(sql, rows)
        text, order = _plain(sql)
        return super().executemany(text, ([values[index] for index in order] for values in rows))


@lru_cache(maxsize=1024)
def _plain(sql: str) -> tuple[str, list[int]]:
    """Return a statement with plain placeholders, and the index of the value for each.

    >>> _plain("select ?1, ?3, ?1, ?")
    ('select ?, ?, ?, ?', [0, 2, 0, 3])
    """
    order: list[int] = []

    def take(match: re.Match[str]) -> str:
        order.append(int(match[1]) - 1 if match[1] else max(order, default=-1) + 1)
        return "?"

    return re.sub(r"\?(\d*)", take, sql), order


if sys.version_info >= (3, 12) and sys.version_info < (3, 12, 4):
    Connection = PlainConnection
else:
    Connection = sqlite3.Connection


def connect(
    uri: str,
    *,
    timeout: float,
    factory: type[sqlite3.Connection] = Connection,
    cached_statements: int = 128,
) -> sqlite3.Connection:
    """Open ``uri`` in autocommit mode; SQLite never checkpoints by itself on this connection.

    ``timeout``: seconds that a statement waits for a lock.
    """
    connection = sqlite3.connect(
        uri,
        uri=True,
        timeout=timeout,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=cached_statements,
        factory=factory,
    )
    connection.execute("pragma wal_autocheckpoint = 0")
    connection.execute(f"pragma journal_size_limit = {SIZE_LIMIT}")
    return connection


def has_reset_bug(version: tuple[int, ...]) -> bool:
    """Whether this version of SQLite has the WAL-reset bug, unless its distribution has fixed it.

    >>> [has_reset_bug(v) for v in ((3, 44, 5), (3, 45, 1), (3, 50, 6), (3, 51, 2))]
    [True, True, True, True]
    >>> [has_reset_bug(v) for v in ((3, 44, 6), (3, 50, 7), (3, 51, 3), (3, 53, 4))]
    [False, False, False, False]
    """
    return version < (3, 44, 6) or (3, 45) <= version < (3, 50, 7) or (3, 51) <= version < (3, 51, 3)


def checkpoint(guard: sqlite3.Connection, merger: sqlite3.Connection) -> tuple[int, int]:
    """Merge what can be merged on ``merger``, then roll the open transaction of ``guard`` back.

    Returns the number of pages in the log, and how many of them are merged; (-1, -1) if another connection
    is merging, or the file has no log. If the second number is the larger one, commits are being lost.
    """
    try:
        guard.execute("select 1 from sqlite_master limit 1").fetchall()  # the first read begins it for SQLite
        _busy, length, merged_pages = merger.execute("pragma wal_checkpoint(passive)").fetchone()
    finally:
        if guard.in_transaction:
            guard.execute("rollback")
    return length, merged_pages


@dataclass(slots=True)
class WriteAheadLog:
    """The log of one file, as the one thread uses it that writes into the file."""

    path: Path
    open_merger: Callable[[], sqlite3.Connection]
    """Opens a second connection to the file, whose settings decide how a merge reaches the disk."""
    now: Callable[[], float]
    """Returns seconds on a monotonic clock."""
    pages: int = field(default_factory=lambda: PAGES)
    """The length from which on the log is merged."""
    _merger: sqlite3.Connection | None = None
    _file: int | None = None
    _next_look: float = float("-inf")
    _next_try: float = float("-inf")
    _due: int = 0
    _rest: int = 0
    _sparing: Sparing = field(default_factory=Sparing)

    def merge_if_long(
        self, connection: sqlite3.Connection, lock: Callable[[], sqlite3.Connection] | None = None
    ) -> None:
        """Merge the log if it is long. Called after a commit; a failure is logged, as nothing is lost by it.

        ``connection``: it guards the merge, and has no open transaction. ``lock``: begins a write transaction
        on it without a long wait, and returns it.
        """
        now = self.now()
        if now < self._next_look:
            return
        self._next_look = now + _PAUSE
        try:
            if self._is_due(now):
                self._merge(connection, lock, now)
        except (sqlite3.Error, OSError, MakegoodError) as failure:
            self._next_look = now + _RETRY
            if getattr(failure, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY:
                self._rest = self._due  # the rest grows: the next merge is one without the write lock
                return
            self.close()
            if (note := self._sparing.due(now)) is not None:
                _log.warning("%s: the write-ahead log could not be merged (%s)%s", self.path, failure, note)

    def close(self) -> None:
        """Close what is open here; the next use opens it again."""
        merger, self._merger = self._merger, None
        if merger is not None:
            merger.close()
        self._close_file()

    def __del__(self) -> None:
        """Close the file of a log that nobody closed: simulated processes are killed, Python goes on."""
        self._close_file()

    def _close_file(self) -> None:
        """SQLite locks the file and the index, never the log: this releases no lock of SQLite."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def _is_due(self, now: float) -> bool:
        if not self._reaches(self.pages):
            self._due = self._rest = 0
            self._next_try = now  # another log: nothing of it was left by a merge
            return False
        return now >= self._next_try or self._reaches(self._due)

    def _merge(
        self, connection: sqlite3.Connection, lock: Callable[[], sqlite3.Connection] | None, now: float
    ) -> None:
        if self._merger is None:
            self._merger = self.open_merger()
        # Others extend a long log during each merge: this time they wait, unless most of it is left to merge.
        if lock is not None and self._due > _LONG * self.pages and 2 * self._rest <= self._due:
            connection = lock()
        else:
            connection.execute("begin")
        length, merged_pages = checkpoint(connection, self._merger)
        if merged_pages > length:
            _log.error("%s: %s", self.path, LOST.format(length=length, merged=merged_pages))
            self._next_look = now + PAUSE  # a merge gains nothing now
        length = max(length, self.pages)
        self._rest = length - merged_pages
        self._due = length + max(_GROWTH, length // 32) if self._rest > 0 else 0
        self._next_try = now + _RETRY if self._rest > 0 else now

    def _reaches(self, pages: int) -> bool:
        """Whether the log has so many pages since it began: that frame bears the salts of the log's header.

        Nothing else may be opened to look at it: to close the file or the index would release SQLite's locks.
        """
        try:
            if self._file is None:
                self._file = os.open(log_of(self.path), os.O_RDONLY | os.O_CLOEXEC)
            header = os.pread(self._file, _HEADER, 0)
            size = int.from_bytes(header[8:12], "big")
            frame = os.pread(self._file, _FRAME, _HEADER + (pages - 1) * (size + _FRAME))
        except FileNotFoundError:
            return False
        return len(frame) == _FRAME and frame[8:16] == header[16:24]
