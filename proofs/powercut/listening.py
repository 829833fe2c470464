"""What SQLite really writes, and when it really waits for the disk.

The standard library's ``sqlite3`` is used unchanged, with the very SQLite library that it is linked with. A
file system layer of ours (a *VFS*) is registered in that library. It forwards everything to SQLite's own and
records each write with its place and bytes, each truncation, each sync, each file that is created or deleted.
Nothing is compiled, no process is started in a special way, and the engine does not know.

Alternatives that were weighed: a VFS of the apsw package belongs to apsw's own copy of SQLite, which is not
the one under test. A C library in front of libc's calls (LD_PRELOAD) needs a compiler, and a separate
process. Tracing the process needs permission, and slows it down. SQLite's table of system calls can be
changed too, but ``fdatasync`` is not in it. This way needs to find the library's functions by name. That
works in every Python that is linked with a shared SQLite, and in those that contain it without hiding it; if
it is hidden, it raises ``ListeningError``.

A folder's own sync (``os.fsync`` of a folder) does not pass through SQLite; it is recorded as well. The
shared-memory index beside a write-ahead log is not recorded: a crash discards it in any case.
"""

import _sqlite3
import contextlib
import ctypes
import os
import sqlite3
from collections.abc import Iterator
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_int, c_int64, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

_OK = 0
_TO_LOCK = 2  # SQLITE_SHM_LOCK
_CREATE = 0x4  # SQLITE_OPEN_CREATE
_NAME = b"makegood-listening"
_METHODS = (
    "close", "read", "write", "truncate", "sync", "file_size", "lock", "unlock", "check_reserved_lock", "file_control",
    "sector_size", "device_characteristics", "shm_map", "shm_lock", "shm_barrier", "shm_unmap", "fetch", "unfetch",
)  # fmt: skip
_KNOWN = {1: 12, 2: 16, 3: 18}
"""How many of its methods a file of each version has."""


class ListeningError(RuntimeError):
    """The SQLite of this Python cannot be listened to."""


class Noted(Protocol):
    """Receives what SQLite does with the files of one folder; ``name``: of the file, without the folder."""

    def created(self, name: str) -> None:
        """A file is opened that did not exist."""
        ...

    def wrote(self, name: str, offset: int, data: bytes) -> None:
        """Bytes were written at a place of a file."""
        ...

    def truncated(self, name: str, size: int) -> None:
        """A file was truncated or extended to a size."""
        ...

    def deleted(self, name: str, *, lasting: bool) -> None:
        """A file was deleted; ``lasting``: its folder was synced as well."""
        ...

    def locking(self, name: str, lock: int) -> None:
        """A lock of the log's index is requested, by SQLite's numbers: 0 to write, 1 to checkpoint, 2 to
        recover, from 3 on to read.
        """
        ...

    def checkpointing(self, name: str) -> None:
        """A checkpoint has read the length of the log, which others have changed since its connection last
        used the file. It has not read yet how much of the log is merged: here the WAL-reset bug strikes.
        """
        ...

    def syncing(self, name: str) -> object:
        """A sync of a file (of the folder: "") begins; ``synced`` gets the return value once it has
        succeeded.
        """
        ...

    def synced(self, name: str, mark: object) -> None:
        """A sync has succeeded: what was written before it began is on the disk."""
        ...


class _Vfs(ctypes.Structure):
    """``struct sqlite3_vfs``, as far as it matters here; the rest is copied unchanged."""

    _fields_ = (
        ("version", c_int),
        ("file_bytes", c_int),
        ("longest_path", c_int),
        ("next", c_void_p),
        ("name", c_char_p),
        ("own", c_void_p),
        ("open", c_void_p),
        ("delete", c_void_p),
        ("rest", c_void_p * 14),
    )


class _Methods(ctypes.Structure):
    """``struct sqlite3_io_methods``."""

    _fields_ = (("version", c_int), *((name, c_void_p) for name in _METHODS))


class _File(ctypes.Structure):
    """``struct sqlite3_file``: its first word points to its methods."""

    _fields_ = (("methods", POINTER(_Methods)),)


# A path is passed as the bare pointer: SQLite keeps it, and reads beyond its end.
_OPEN = CFUNCTYPE(c_int, c_void_p, c_void_p, POINTER(_File), c_int, POINTER(c_int))
_DELETE = CFUNCTYPE(c_int, c_void_p, c_void_p, c_int)
_CLOSE = CFUNCTYPE(c_int, c_void_p)
_WRITE = CFUNCTYPE(c_int, c_void_p, c_void_p, c_int, c_int64)
_TRUNCATE = CFUNCTYPE(c_int, c_void_p, c_int64)
_SYNC = CFUNCTYPE(c_int, c_void_p, c_int)
_LOCK = CFUNCTYPE(c_int, c_void_p, c_int, c_int, c_int)
_UNFETCH = CFUNCTYPE(c_int, c_void_p, c_int64, c_void_p)


def library() -> ctypes.CDLL:
    """Return the SQLite library that ``sqlite3`` uses. Raises ``ListeningError`` if it cannot be reached."""
    sqlite = ctypes.CDLL(
        getattr(_sqlite3, "__file__", None)
    )  # The module, or this program itself, and all that they are linked with.
    try:
        find, identify = sqlite.sqlite3_vfs_find, sqlite.sqlite3_sourceid
    except AttributeError as error:
        raise ListeningError(
            "this Python carries SQLite inside and hides its functions: use one that is linked with the system's SQLite, such as Debian's"
        ) from error
    find.restype, find.argtypes = POINTER(_Vfs), [c_char_p]
    identify.restype = c_char_p
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        (source_id,) = connection.execute("select sqlite_source_id()").fetchone()
    if identify().decode() != source_id:
        raise ListeningError(
            f"Python's sqlite3 uses SQLite {source_id}, and another one was found: {identify().decode()}"
        )
    return sqlite


@dataclass(slots=True)
class _Kept:
    """A copy of a table of methods with ours in it, and what must live as long: the functions behind the
    pointers.
    """

    table: _Methods
    functions: tuple[Any, ...]


class _Ear:
    """The VFS: SQLite's own with ``open`` and ``delete`` replaced, and files with ``write``, ``truncate``,
    ``sync`` and ``unfetch`` replaced.
    """

    def __init__(self, sqlite: ctypes.CDLL, folder: Path, tape: Noted) -> None:
        self._library = sqlite
        self._place = folder.resolve()
        self._folder = os.fsencode(self._place) + b"/"
        self._noted = tape
        self._under = sqlite.sqlite3_vfs_find(None)
        if not self._under:
            raise ListeningError("this Python's SQLite has no file system layer")
        self._open = _OPEN(self._under.contents.open)
        self._delete = _DELETE(self._under.contents.delete)
        self._names: dict[int, str] = {}
        self._tables: dict[int, _Kept] = {}
        self._functions = (_OPEN(self._opening), _DELETE(self._deleting))
        self.vfs = _Vfs()
        ctypes.pointer(self.vfs)[0] = self._under.contents
        self.vfs.next = None
        self.vfs.name = _NAME
        self.vfs.open, self.vfs.delete = (
            ctypes.cast(function, c_void_p).value for function in self._functions
        )

    def register(self) -> None:
        """Make this the VFS of every connection that is opened from now on."""
        self._checked(self._library.sqlite3_vfs_register(ctypes.byref(self.vfs), 1))

    def unregister(self) -> None:
        """Make SQLite's own VFS the default again; open connections continue unchanged."""
        self._checked(self._library.sqlite3_vfs_unregister(ctypes.byref(self.vfs)))
        self._checked(self._library.sqlite3_vfs_register(self._under, 1))

    def _checked(self, code: int) -> None:
        if code != _OK:
            raise ListeningError(f"SQLite does not take another file system layer: error {code}")

    # -- what SQLite calls: an exception here would be lost, so nothing is done that could fail -----

    def _name(self, path: int | None) -> str | None:
        name = ctypes.string_at(path) if path else b""
        return os.fsdecode(name[len(self._folder) :]) if name.startswith(self._folder) else None

    def _opening(self, _vfs: Any, path: int | None, file: Any, flags: int, actual: Any) -> int:
        name = self._name(path)
        fresh = name is not None and bool(flags & _CREATE) and not (self._place / name).exists()
        code = self._open(_vfs, path, file, flags, actual)
        if code == _OK and name is not None and file.contents.methods:
            if fresh:
                self._noted.created(name)
            self._names[ctypes.addressof(file.contents)] = name
            file.contents.methods = ctypes.pointer(self._heard(file.contents.methods))
        return int(code)

    def _deleting(self, _vfs: Any, path: int | None, lasting: int) -> int:
        code = self._delete(_vfs, path, lasting)
        name = self._name(path)
        if code == _OK and name is not None:
            self._noted.deleted(name, lasting=bool(lasting))
        return int(code)

    def _heard(self, methods: Any) -> _Methods:
        """Return a table of methods like this one, with ours in it; made once for each table that SQLite
        has.
        """
        where = ctypes.addressof(methods.contents)
        if where not in self._tables:
            self._tables[where] = self._made(methods.contents)
        return self._tables[where].table

    def _made(self, under: _Methods) -> _Kept:
        table = _Methods(version=min(under.version, max(_KNOWN)))
        for name in _METHODS[: _KNOWN[table.version]]:
            setattr(table, name, getattr(under, name))
        close, write, truncate, sync = (
            _CLOSE(under.close), _WRITE(under.write), _TRUNCATE(under.truncate), _SYNC(under.sync),
        )  # fmt: skip
        names, tape = self._names, self._noted

        def closing(file: int) -> int:
            names.pop(file, None)
            return int(close(file))

        def writing(file: int, data: int, amount: int, offset: int) -> int:
            code = write(file, data, amount, offset)
            if code == _OK:
                tape.wrote(names[file], offset, ctypes.string_at(data, amount))
            return int(code)

        def truncating(file: int, size: int) -> int:
            code = truncate(file, size)
            if code == _OK:
                tape.truncated(names[file], size)
            return int(code)

        def syncing(file: int, flags: int) -> int:
            mark = tape.syncing(names[file])
            code = sync(file, flags)
            if code == _OK:
                tape.synced(names[file], mark)
            return int(code)

        def locking(file: int, first: int, count: int, flags: int) -> int:
            if flags & _TO_LOCK:
                tape.locking(names[file], first)
            return int(lock(file, first, count, flags))

        def unfetching(file: int, offset: int, page: int | None) -> int:
            tape.checkpointing(names[file])  # without mmap, SQLite calls it nowhere else
            return int(unfetch(file, offset, page))

        ours: tuple[Any, ...] = (_CLOSE(closing), _WRITE(writing), _TRUNCATE(truncating), _SYNC(syncing))
        table.close, table.write, table.truncate, table.sync = (
            ctypes.cast(function, c_void_p).value for function in ours
        )
        if table.version >= 3:
            lock, unfetch = _LOCK(under.shm_lock), _UNFETCH(under.unfetch)
            ours = (*ours, _LOCK(locking), _UNFETCH(unfetching))
            table.shm_lock, table.unfetch = (ctypes.cast(function, c_void_p).value for function in ours[-2:])
        return _Kept(table, ours)


@contextlib.contextmanager
def listening(folder: Path, tape: Noted) -> Iterator[None]:
    """Report to ``tape`` what happens to the SQLite files in ``folder``, for connections that are opened and
    closed inside the block.

    Raises ``ListeningError`` if that is impossible.
    """
    ear = _Ear(library(), folder, tape)
    true_fsync, true_open = os.fsync, os.open
    where = folder.resolve().stat()

    def fsync(handle: Any) -> None:
        number = handle if isinstance(handle, int) else handle.fileno()
        stat = os.fstat(number)
        if (stat.st_dev, stat.st_ino) != (where.st_dev, where.st_ino):
            true_fsync(handle)
            return
        mark = tape.syncing("")
        true_fsync(handle)
        tape.synced("", mark)

    def opened(path: Any, flags: int, *rest: Any, **more: Any) -> int:
        handle = true_open(path, flags, *rest, **more)
        if flags & os.O_CREAT and flags & os.O_EXCL and Path(path).parent.resolve() == folder.resolve():
            tape.created(Path(path).name)
        return handle

    ear.register()
    os.fsync = fsync  # type: ignore[assignment]  # the name is used with numbers and files alike
    os.open = opened
    try:
        yield
    finally:
        os.fsync, os.open = true_fsync, true_open
        ear.unregister()
