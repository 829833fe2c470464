"""Reads a SQLite file that this user may not write, without leaving anything beside it.

SQLite keeps the log and its index in files of their own, and creates them if they are missing, even for a
read-only user. They would belong to that user, who cannot remove them (SQLite wants the write lock for that),
while the file's owner may not write them: a read would lock the owners out of their own file. So a user who
may not write the file opens it in one of two ways:

*Immutable*, when there is no log or an empty one: everything committed is in the file itself. With
``immutable`` SQLite assumes that nobody changes the file, so it creates nothing, takes no lock, and hinders
no writer. After each read the file's times and the log's size show whether somebody did change it; if so, the
result is thrown away and read again.

*With its log*, when the log has content: a writer is there, or was killed, and the log and its index are the
writer's. If the last writer left and removed the log before SQLite opens it, SQLite would create a new one.
So we hold back the writer meanwhile with a lock of our own: the one that every reader holds, and that a
leaving writer needs exclusively before it removes the log. It is a lock of the open file (OFD), because
SQLite's own belong to the process and would go when we close ours.

The alternative would be to let SQLite create the two files and remove them afterwards. Nobody can do that
safely without the write lock: a writer may come between the check that nobody uses them and the removal, and
its commits would go with the log. So nothing is ever removed here. Where the system does not have such locks
(they are Linux's), SQLite may still create an empty log in that moment, and other programs do: ``refusal``
then tells the owner what to do.
"""

import fcntl
import os
import shlex
import sqlite3
import struct
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from makegood.base.clock import SystemClock
from makegood.base.file_paths import EFFECTIVE, exists
from makegood.base.private_files import name_of
from makegood.errors import StoreUnavailableError

T = TypeVar("T")

_clock = SystemClock()  # the clock that the system stamps files with, whatever clock a store is given
_WAITS = 50
TIMES = 100
"""Reads of a file that changes during each of them."""

_TICK = 0.02
"""Seconds: two closer writes may leave the same time on the file, so a read waits this long after a write."""
_READERS = struct.pack("hhqqi4x", fcntl.F_RDLCK, os.SEEK_SET, 0x40000000 + 2, 510, 0)
"""SQLite's lock for readers, from its file format (SHARED_FIRST, SHARED_SIZE), in a ``struct flock``."""
_VERSIONS = slice(18, 20)
"""The header's bytes for the versions that a reader and a writer need."""
_WITH_LOG = b"\x02\x02"
"""Version 2 means that there is a log."""

READ_ONLY = "it is read-only: give this user write access to the file and its folder"

Marks = tuple[int, ...]


def may_write(path: Path) -> bool:
    """Whether this user may write an existing file."""
    return os.access(path, os.W_OK, effective_ids=EFFECTIVE)


def denial(path: Path) -> str:
    """Return why this user may not write an existing file, with the remedy: it is another user's, or
    read-only.
    """
    if os.access(path, os.R_OK, effective_ids=EFFECTIVE):
        return READ_ONLY
    owner = name_of(path.stat().st_uid)
    return (
        f"it cannot be opened: it belongs to {owner}, and this user may not read it. Run makegood as {owner}, or, to share the file on "
        "purpose, give a group of both users read and write access to the file and its folder (chgrp, chmod g+rw; the folder chmod g+rwxs)"
    )


def log_of(path: Path) -> Path:
    """Return the write-ahead log of a file. It is beside the file itself, even if ``path`` is a link."""
    return Path(f"{path.resolve()}-wal")


def index_of(path: Path) -> Path:
    """Return the index of a file's log."""
    return Path(f"{path.resolve()}-shm")


@dataclass(slots=True)
class Glance:
    """How one connection reads a file that its user may not write. Only one thread uses it."""

    path: Path
    _marks: Marks | None = None
    _logged: bool = False
    _lock: int | None = None

    @property
    def still(self) -> bool:
        """Whether the file was opened as immutable."""
        return self._marks is not None

    def uri(self) -> str:
        """Return the URI to open the file with now.

        Raises ``StoreUnavailableError`` if only a user who may write the file can open it.
        """
        self.forget()
        if not os.access(self.path, os.R_OK, effective_ids=EFFECTIVE):
            raise StoreUnavailableError(f"{self.path}: {denial(self.path)}")
        file = f"{self.path.absolute().as_uri()}?mode=ro"
        for _ in range(_WAITS):
            marks = self._current_marks()
            if not marks[-1] and not self._has_log():
                return file
            if not marks[-1] and not 0 <= _clock.wall() - self.path.stat().st_mtime < _TICK:
                self._marks = marks
                return f"{file}&immutable=1"
            if (
                marks[-1]
                and self._lock_as_reader()
                and self._current_marks()[-1]
                and exists(index_of(self.path))
            ):
                self._logged = True
                return f"{file}&readonly_shm=1"
            self.release()
            time.sleep(_TICK)  # somebody has just written, or is leaving: the index goes before the log
        alone = not self._lock_as_reader()
        self.release()
        if alone:
            raise StoreUnavailableError(
                f"{self.path}: another process has locked the file, such as one that is shutting down and merging its log: "
                "try again"
            )
        raise StoreUnavailableError(
            f"{self.path}: {log_of(self.path).name} holds commits and its index is missing, which only a user who may write the "
            f"file should make: run `makegood store status` as {name_of(self.path.stat().st_uid)} first"
        )

    def forget(self) -> None:
        """Watch nothing: the file will be reopened, or this user may write it by now and opens it as any
        writer does.
        """
        self.release()
        self._marks, self._logged = None, False

    def release(self) -> None:
        """Release the lock, once the connection is closed."""
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)

    def _lock_as_reader(self) -> bool:
        """Take a reader's lock on the file; False while a leaving writer has it exclusively."""
        if sys.platform != "linux":
            return True
        self.release()
        self._lock = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.fcntl(self._lock, fcntl.F_OFD_SETLK, _READERS)
        except BlockingIOError:
            return False
        return True

    def again(self, failure: BaseException | None = None) -> bool:
        """Whether to open and read once more.

        The result may mix two states of the file; or there is a ``failure`` because the log was removed
        before it was opened, or because its index was read while a writer changed it.
        """
        try:
            if self._marks is not None:
                return self._current_marks() != self._marks
            if failure is None or not self._logged:
                return False
            return _meets_a_writer(failure) or not exists(index_of(self.path))
        except OSError:  # the file is gone, or its folder is barred now: the next use of the path reports it
            return False

    def _current_marks(self) -> Marks:
        """Return values that change with every commit; the last is the size of the log."""
        try:
            log = log_of(self.path).stat().st_size
        except FileNotFoundError:
            log = 0
        status = self.path.stat()
        return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns, log

    def _has_log(self) -> bool:
        """Whether the file uses a log; one without may have a journal that must be rolled back first."""
        with self.path.open("rb") as file:
            return file.read(_VERSIONS.stop)[_VERSIONS] == _WITH_LOG


def _meets_a_writer(failure: BaseException) -> bool:
    """Whether SQLite took the index for broken, since a writer changed it at that moment.

    It would repair the index, may not, and reports an attempt to write instead (SQLITE_READONLY_RECOVERY):
    one read in 200 beside a writer that commits without a pause. The next read finds the index whole.
    """
    cause = failure if isinstance(failure, sqlite3.Error) else failure.__cause__
    return getattr(cause, "sqlite_errorcode", 0) == sqlite3.SQLITE_READONLY_RECOVERY


def journal_mode(connection: sqlite3.Connection, glance: Glance | None) -> str:
    """Return the file's journal mode. SQLite reports none for a file opened as immutable."""
    if glance is not None and glance.still:  # opened so only if the file's header says that there is a log
        return "wal"
    mode: str = connection.execute("pragma journal_mode").fetchone()[0]
    return mode


def glance_at(path: Path, look: Callable[[Glance | None], T]) -> T:
    """Return the result of ``look`` on a connection of its own, opened as its argument says.

    Calls ``look`` again if the file changed meanwhile.
    """
    if may_write(path):
        return look(None)
    glance = Glance(path)
    for _ in range(TIMES):
        try:
            result = look(glance)
        except (sqlite3.Error, StoreUnavailableError) as failure:
            if not glance.again(failure):
                raise
            continue
        finally:
            glance.release()
        if not glance.again():
            return result
    raise restless(path)


def restless(path: Path) -> StoreUnavailableError:
    """Return the error for a file that changed during every attempt to read it."""
    return StoreUnavailableError(
        f"{path}: it was changed {TIMES} times while it was read, and this user may not write it: try again, or as a user who may"
    )


def refusal(path: Path, general: str) -> str:
    """Return why SQLite may not write: the log's files, if this user may not write them, otherwise
    ``general``.
    """
    foreign = [file for file in (log_of(path), index_of(path)) if exists(file) and not may_write(file)]
    if not foreign or not may_write(path):
        return general
    names = " and ".join(file.name for file in foreign)
    owners = " and ".join(sorted({name_of(file.stat().st_uid) for file in foreign}))
    text = (
        f"this user may write the file, but not {names} beside it, made by {owners}: give them to the file's owner (as root, "
        f"`chown --reference={shlex.quote(str(path))} {shlex.join(map(str, foreign))}`)"
    )
    log = log_of(path)
    if exists(log) and log.stat().st_size:
        return f"{text}; do not remove the log, it holds commits"
    return f"{text}, or remove them while no process has the file open: they hold nothing"
