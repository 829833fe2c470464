"""Opens the file: sets and verifies durability, and turns SQLite's errors into ours, with a remedy in the
message.
"""

import contextlib
import os
import re
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

from makegood.base import sqlite_log
from makegood.base.file_paths import EFFECTIVE, check_searchable, exists
from makegood.base.private_files import make
from makegood.base.sqlite_readonly import READ_ONLY, Glance, denial, may_write, refusal
from makegood.errors import ConfigError, StoreError, StoreUnavailableError
from makegood.store.sqlite.row_numbers import find_exhausted_in, remedy, trouble

Connect = Callable[[str], sqlite3.Connection]
"""Opens a connection to a ``file:`` URI in autocommit mode. Tests pass one that counts or fails."""

_OLDEST = (3, 35, 0)  # RETURNING
_BUSY_SECONDS = 5.0
_SWITCH_TRIES, _SWITCH_PAUSE = 1000, 0.005
_STATEMENTS = 256  # more than makegood has, so that each is compiled only once per connection
_CACHE_KIB = 24 * 1024
_FULL = 2
_CLOSED = "it cannot be opened: give this user read and write access to the file and its folder"
_RIGHTS = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN)
REMOTE = frozenset((
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ceph", "glusterfs", "fuse.glusterfs", "fuse.sshfs", "lustre", "beegfs",
    "fuse.s3fs", "fuse.rclone", "fuse.davfs", "davfs", "ncpfs", "coda",
))  # fmt: skip
"""File systems on which several machines may change a file: SQLite's locks are not safe there."""
_ESCAPED = re.compile(r"\\([0-7]{3})")


def connect(uri: str, *, factory: type[sqlite3.Connection] = sqlite_log.Connection) -> sqlite3.Connection:
    """Open ``uri`` without transaction handling by the driver. A statement waits for a lock for up to 5 s."""
    return sqlite_log.connect(uri, timeout=_BUSY_SECONDS, factory=factory, cached_statements=_STATEMENTS)


def uri_of(path: Path, *, create: bool) -> str:
    """Return the URI of a file. Without ``create``, opening it does not create a missing file."""
    return f"{path.absolute().as_uri()}?mode={'rwc' if create else 'rw'}"


def filesystem(path: Path, mounts: str) -> str:
    """Return the type of the file system that holds ``path``; "" if unknown.

    ``mounts``: the text of ``/proc/self/mountinfo``.
    """
    best, kind = -1, ""
    above = {str(folder) for folder in (path, *path.parents)}
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        fields, types = left.split(), right.split()
        if len(fields) < 5 or not types:
            continue
        point = _ESCAPED.sub(lambda match: chr(int(match[1], 8)), fields[4])
        if point in above and len(point) >= best:
            best, kind = len(point), types[0]
    return kind


def examine(path: Path) -> None:
    """Verify that a store can be at this path. Raises ``ConfigError``."""
    if sqlite3.sqlite_version_info < _OLDEST:
        raise ConfigError(
            f"this Python has SQLite {sqlite3.sqlite_version}; makegood needs 3.35 or newer: use a newer Python"
        )
    check_searchable(path)
    if not path.parent.is_dir():
        raise ConfigError(
            f"{path}: the folder {path.parent} does not exist; create it, or name another file (--store or MAKEGOOD_STORE)"
        )
    if path.is_dir():
        raise ConfigError(
            f"{path} is a folder; name a file in it, such as {path}/makegood.db (--store or MAKEGOOD_STORE)"
        )
    with contextlib.suppress(OSError):  # this system has no mount table: the type stays unknown
        kind = filesystem(path.resolve(), Path("/proc/self/mountinfo").read_text(encoding="utf-8"))
        if kind in REMOTE:
            raise ConfigError(
                f"{path} is on a network file system ({kind}), where SQLite's locks are not safe: "
                "use a local disk, or PostgreSQL for several machines"
            )


def open_database(
    path: Path, connect: Connect, *, create: bool = False, glance: Glance | None = None
) -> sqlite3.Connection:
    """Return a connection that is set up.

    A file that this user may not write is opened read-only, as ``glance`` says. Without a ``glance`` it is
    refused before SQLite opens it, since SQLite would create a log that the file's owner may not write.
    """
    is_present = exists(path)
    if is_present and not os.access(path, os.R_OK, effective_ids=EFFECTIVE):
        raise StoreUnavailableError(f"{path}: {denial(path)}")
    if not is_present or may_write(path):
        if glance is not None:
            glance.forget()
        glance = None
    elif glance is None:
        raise StoreUnavailableError(f"{path}: {READ_ONLY}")
    if create and not is_present:
        try:
            make(path)
        except OSError as failure:
            folder = path.resolve().parent
            raise StoreUnavailableError(
                f"{path}: it cannot be created ({failure.strerror}): give this user write access to the folder {folder}, or name "
                f"another file"
            ) from failure
    connection = connect(uri_of(path, create=create) if glance is None else glance.uri())
    try:
        set_up(connection, path, busy=_BUSY_SECONDS, still=glance is not None and glance.still)
    except BaseException:
        connection.close()
        raise
    return connection


def set_up(connection: sqlite3.Connection, path: Path, *, busy: float, still: bool = False) -> None:
    """Apply the settings that durability and speed need, and verify them.

    ``busy``: seconds that a statement waits for a lock. ``still``: the file was opened as one that nobody
    changes, so that SQLite ignores any log.

    Raises ``ConfigError`` if the file cannot meet these requirements.
    """
    # Fails here if the file is not a database.
    connection.execute("select count(*) from sqlite_master").fetchall()
    try:
        connection.execute("select x.value from json_each('[]') x").fetchall()
    except sqlite3.OperationalError as failure:
        if "json_each" not in str(failure):
            raise
        raise ConfigError(
            f"this Python's SQLite {sqlite3.sqlite_version} was built without JSON, which makegood needs: use another Python"
        ) from failure
    encoding = connection.execute("pragma encoding").fetchone()[0]
    if encoding != "UTF-8":  # texts are cut out of byte strings, which SQLite reads in the file's encoding
        raise ConfigError(
            f"{path} keeps its texts as {encoding}, makegood needs UTF-8: name another file, or copy this one into a new one "
            "(sqlite3 OLD .dump | sqlite3 NEW)"
        )
    mode = "wal" if still else _ahead(connection)
    if mode != "wal":
        raise ConfigError(
            f"{path}: SQLite's write-ahead log cannot be used here (journal mode {mode!r}): put the file on a local disk"
        )
    connection.execute("pragma synchronous = full")
    connection.execute("pragma fullfsync = on")  # macOS: fsync alone does not reach the disk
    connection.execute("pragma checkpoint_fullfsync = on")
    connection.execute(f"pragma cache_size = -{_CACHE_KIB}")
    connection.execute("pragma temp_store = memory")
    connection.execute(f"pragma busy_timeout = {round(busy * 1000)}")
    level = connection.execute("pragma synchronous").fetchone()[0]
    if level != _FULL:
        raise ConfigError(f"{path}: synchronous is {level}, it must be 2 (FULL), or commits could be lost")


def _ahead(connection: sqlite3.Connection) -> str:
    """Switch to the write-ahead log and return the journal mode.

    Two processes that switch a new file at the same time would deadlock. So SQLite reports to one of them,
    without waiting, that the file is locked; it tries again here.
    """
    last = sqlite3.OperationalError("database is locked")
    for _ in range(_SWITCH_TRIES):
        try:
            mode: str = connection.execute("pragma journal_mode = wal").fetchone()[0]
            return mode
        except sqlite3.OperationalError as failure:
            if not is_busy(failure):
                raise
            last = failure
        time.sleep(_SWITCH_PAUSE)
    raise last


def fsync_folder(path: Path) -> None:
    """Make a file's name durable. Without this, a power cut may remove a new file completely."""
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def is_garbled(failure: sqlite3.Error) -> bool:
    """Whether a column holds a text that is not UTF-8."""
    return isinstance(failure, sqlite3.OperationalError) and str(failure).startswith(
        "Could not decode to UTF-8"
    )


def legible(text: bytes) -> str:
    r"""Return a text that may not be UTF-8, with each undecodable byte escaped.

    >>> print(legible(b"a\xff"))
    a\xff
    """
    return text.decode(errors="backslashreplace")


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another connection holds the lock that was requested."""
    return _primary(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def is_broken(error: sqlite3.Error) -> bool:
    """Whether the connection must not be used again.

    The disk failed, or the file cannot be trusted, or it could not be written when it was opened: then SQLite
    opens it to read, and the connection never writes (https://sqlite.org/c3ref/open.html).
    """
    return _primary(error) in (
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_MISUSE,
    )


def is_damaged(error: sqlite3.Error) -> bool:
    """Whether the file's structure is damaged."""
    return _primary(error) == sqlite3.SQLITE_CORRUPT


def _primary(error: sqlite3.Error) -> int:
    code: int = getattr(error, "sqlite_errorcode", 0) or 0
    return code & 0xFF


def translate(error: sqlite3.Error, path: Path) -> StoreError | ConfigError:
    """Return our error for an error of SQLite, with a remedy."""
    code = _primary(error)
    if code == sqlite3.SQLITE_NOTADB:
        return ConfigError(
            f"{path} is not a SQLite database: name another file (--store or MAKEGOOD_STORE), or move this one away"
        )
    lock_remedy = (
        "another connection, perhaps of this very process, held its lock all the time: is a transaction left open, or a process stopped in "
        "the middle of one?"
    )
    remedies = {
        sqlite3.SQLITE_BUSY: lock_remedy,
        sqlite3.SQLITE_LOCKED: lock_remedy,
        sqlite3.SQLITE_READONLY: READ_ONLY,
        sqlite3.SQLITE_PERM: "access was denied: give this user write access to the file and its folder",
        sqlite3.SQLITE_CANTOPEN: _CLOSED,
        sqlite3.SQLITE_FULL: "the disk is full: make room, nothing was lost",
        sqlite3.SQLITE_IOERR: "the disk failed to read or write: check the system log",
        sqlite3.SQLITE_CORRUPT: "the file is damaged: stop all processes and restore a backup",
        sqlite3.SQLITE_NOMEM: "memory ran out",
    }
    if code == sqlite3.SQLITE_FULL and (tables := find_exhausted_in(path)):
        return StoreUnavailableError(f"{path}: {trouble(tables[0])}; {remedy(tables[0])} ({error})")
    if code in _RIGHTS:
        return StoreUnavailableError(f"{path}: {refusal(path, remedies[code])} ({error})")
    if code in remedies:
        return StoreUnavailableError(f"{path}: {remedies[code]} ({error})")
    return StoreError(f"{path}: {error}")
