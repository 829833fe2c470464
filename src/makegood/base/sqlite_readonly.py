"""Reading a file that its reader may not write, without leaving anything beside it.

SQLite keeps the log and its index in files of their own, and makes them when they are missing, also for somebody who may only
read. They belong to him then; he cannot take them away (SQLite wants the write lock for that), and the file's owner may not
write them: a look would lock the owner out of his own file. So whoever may not write the file has it opened in one of two ways:

*As it lies*, when there is no log or an empty one: all that was committed is in the file itself. SQLite is told that nobody
changes it (``immutable``), so it makes nothing, takes no lock, and hinders no writer. Whether somebody did change it is seen after
each look, by the file's times and the log's size; what was read is thrown away then and read anew.

*With its log*, when something is in it: whoever writes is there, or was killed, and the log and its index are his. SQLite would make a new
log if the last writer left, and took it away, before SQLite looks for it. So a lock of our own holds the writer's back meanwhile: the one that
every reader has, which a writer who leaves wants for himself before he takes the log away. It is one of the open file (OFD), since SQLite's own are
the process's, and would go when we close ours.

To let SQLite make the two files and remove them afterwards would be the other way. Nobody can do that safely without the write lock: a
writer may come between the look whether somebody uses them and the removal, and what he commits would go with the log. So
nothing is ever removed here. Where the system has no such locks (they are Linux's) SQLite may still make an empty log in that moment, and other
programs do: ``refusal`` then tells the owner what to do.
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
from makegood.base.file_paths import EFFECTIVE
from makegood.base.private_files import name_of
from makegood.errors import StoreUnavailableError

T = TypeVar("T")

_clock = SystemClock()  # the one that puts the times on files, whatever clock a store is given
_WAITS = 50
TIMES = 100
"""Looks at a file that is changed under each of them."""

_TICK = 0.02
"""Seconds: two writes that are closer may leave the same time on the file, so what was written just now is let rest so long."""
_READERS = struct.pack("hhqqi4x", fcntl.F_RDLCK, os.SEEK_SET, 0x40000000 + 2, 510, 0)
"""SQLite's lock of those who read, as its file format has it (SHARED_FIRST, SHARED_SIZE), in a ``struct flock``."""
_VERSIONS = slice(
    18, 20
)  # of the file's header, that a reader and a writer need: two say that there is a log
_WITH_LOG = b"\x02\x02"

READ_ONLY = "it is read-only: give this user write access to the file and its folder"

Marks = tuple[int, ...]


def may_write(path: Path) -> bool:
    """Whether this user may write a file that is there."""
    return os.access(path, os.W_OK, effective_ids=EFFECTIVE)


def denied(path: Path) -> str:
    """Return why this user may not write a file that is there, and what to do: it is somebody else's, or only to be read."""
    if os.access(path, os.R_OK, effective_ids=EFFECTIVE):
        return READ_ONLY
    owner = name_of(path.stat().st_uid)
    return (
        f"it cannot be opened: it belongs to {owner}, and this user may not read it. Run makegood as {owner}, or, to share the file on "
        "purpose, give a group of both users read and write access to the file and its folder (chgrp, chmod g+rw; the folder chmod g+rwxs)"
    )


def log_of(path: Path) -> Path:
    """Return the write-ahead log of a file; it lies beside the file itself, also where ``path`` is a link."""
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
        """Whether the file was opened as one that nobody changes."""
        return self._marks is not None

    def uri(self) -> str:
        """Return how to open the file now; raises ``StoreUnavailableError`` when that takes somebody who may write it."""
        self.forget()
        if not os.access(self.path, os.R_OK, effective_ids=EFFECTIVE):
            raise StoreUnavailableError(f"{self.path}: {denied(self.path)}")
        file = f"{self.path.absolute().as_uri()}?mode=ro"
        for _ in range(_WAITS):
            marks = self._marked()
            if not marks[-1] and not self._logs():
                return file
            if not marks[-1] and not 0 <= _clock.wall() - self.path.stat().st_mtime < _TICK:
                self._marks = marks
                return f"{file}&immutable=1"
            if marks[-1] and self._held() and self._marked()[-1] and index_of(self.path).exists():
                self._logged = True
                return f"{file}&readonly_shm=1"
            self.release()
            time.sleep(_TICK)  # somebody has just written, or is leaving: the index goes before the log
        alone = not self._held()
        self.release()
        if alone:
            raise StoreUnavailableError(
                f"{self.path}: a process that may write it has it for itself, such as one that is leaving and brings in a long log: "
                "try again"
            )
        raise StoreUnavailableError(
            f"{self.path}: {log_of(self.path).name} holds commits and its index is missing, which only a user who may write the "
            f"file should make: run `makegood store status` as {name_of(self.path.stat().st_uid)} first"
        )

    def forget(self) -> None:
        """Watch nothing: the file is to be opened anew, or this user may write it by now and has it opened as any writer has."""
        self.release()
        self._marks, self._logged = None, False

    def release(self) -> None:
        """Let go of the lock, once the connection is closed."""
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)

    def _held(self) -> bool:
        """Hold a reader's lock on the file; False while a writer who is leaving has it for himself."""
        if sys.platform != "linux":
            return True
        self.release()
        self._lock = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.fcntl(self._lock, fcntl.F_OFD_SETLK, _READERS)
        except BlockingIOError:
            return False
        return True

    def again(self, *, failed: bool) -> bool:
        """Whether to open and read once more: what was read may be half of one state and half of another; or reading has
        ``failed`` because the log was taken away when it was to be opened.
        """
        try:
            if self._marks is not None:
                return self._marked() != self._marks
            return failed and self._logged and not index_of(self.path).exists()
        except OSError:  # the file is gone, or its folder may not be entered any more: what asks for its place next says so
            return False

    def _marked(self) -> Marks:
        """Return what changes with every commit; the last is the size of the log."""
        try:
            log = log_of(self.path).stat().st_size
        except FileNotFoundError:
            log = 0
        found = self.path.stat()
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns, log

    def _logs(self) -> bool:
        """Whether the file is one with a log; a file without may have a journal that must be rolled back first."""
        with self.path.open("rb") as file:
            return file.read(_VERSIONS.stop)[_VERSIONS] == _WITH_LOG


def journal_mode(connection: sqlite3.Connection, glance: Glance | None) -> str:
    """Return the file's journal mode; SQLite knows of none where it was told that nobody changes the file."""
    if glance is not None and glance.still:  # so opened only when the file's header says that there is a log
        return "wal"
    mode: str = connection.execute("pragma journal_mode").fetchone()[0]
    return mode


def glanced(path: Path, look: Callable[[Glance | None], T]) -> T:
    """Return what ``look`` finds on a connection of its own, opened as its argument says; looked for again when it is outdated."""
    if may_write(path):
        return look(None)
    glance = Glance(path)
    for _ in range(TIMES):
        try:
            found = look(glance)
        except (sqlite3.Error, StoreUnavailableError):
            if not glance.again(failed=True):
                raise
            continue
        finally:
            glance.release()
        if not glance.again(failed=False):
            return found
    raise restless(path)


def restless(path: Path) -> StoreUnavailableError:
    """Return the error of a file that was written under every look at it."""
    return StoreUnavailableError(
        f"{path}: it was changed {TIMES} times while it was read, and this user may not write it: try again, or as a user who may"
    )


def refusal(path: Path, general: str) -> str:
    """Return why SQLite may not write: the log's files when they are not this user's to write, otherwise what is said in ``general``."""
    foreign = [file for file in (log_of(path), index_of(path)) if file.exists() and not may_write(file)]
    if not foreign or not may_write(path):
        return general
    names = " and ".join(file.name for file in foreign)
    owners = " and ".join(sorted({name_of(file.stat().st_uid) for file in foreign}))
    told = (
        f"this user may write the file, but not {names} beside it, made by {owners}: give them to the file's owner (as root, "
        f"`chown --reference={shlex.quote(str(path))} {shlex.join(map(str, foreign))}`)"
    )
    log = log_of(path)
    if log.exists() and log.stat().st_size:
        return f"{told}; do not remove the log, it holds commits"
    return f"{told}, or remove them while no process has the file open: they hold nothing"
