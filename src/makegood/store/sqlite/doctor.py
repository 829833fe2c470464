"""The checks of ``makegood doctor`` on a SQLite store: the file's location, its durability, and orphaned
tasks.
"""

import contextlib
import shlex
import shutil
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path

from makegood.base.private_files import exposed, name_of
from makegood.base.sqlite_readonly import Glance, glanced, journal_mode, log_of
from makegood.store.soundness import unknown_state
from makegood.store.sqlite.connection import (
    REMOTE,
    WAL_LIMIT,
    Connect,
    filesystem,
    is_damaged,
    translated,
    uri_of,
)
from makegood.store.sqlite.doorbell import folder_of
from makegood.store.sqlite.load import COLUMNS, read
from makegood.store.sqlite.transaction import WriteTransaction
from makegood.store.task_rows import Raw
from makegood.store.views import Finding

MOUNTS = Path("/proc/self/mountinfo")
_SHARED = frozenset({"9p", "virtiofs", "vboxsf", "prl_fs", "fuse.grpcfuse", "fuse.osxfs", "fuse.vmhgfs-fuse"})
_VOLATILE = frozenset({"tmpfs", "ramfs"})
_ROOM = 1024**3


def placed(kind: str) -> Finding:
    """Judge the type of file system that holds a store; "" if it is not known.

    >>> placed("ext4").severity, placed("nfs4").severity, placed("tmpfs").severity, placed("overlay").severity
    ('ok', 'error', 'warning', 'warning')
    """
    if kind in REMOTE:
        what = f"the file lies on a network file system ({kind}): SQLite's locks are not safe there, and the file will be damaged"
        return Finding(
            "place", "error", what, "put it on a local disk, or use PostgreSQL for several machines"
        )
    if kind in _SHARED:
        what = f"the file lies in a folder that a virtual machine shares with its host ({kind}): both may use it, but not at once"
        return Finding("place", "warning", what, "put it on a disk, or in a volume, of this machine alone")
    if kind in _VOLATILE:
        what = f"the file lies in memory ({kind}): a reboot takes every task away"
        return Finding("place", "warning", what, "put it on a disk; in a test this does not matter")
    if kind == "overlay":
        what = "the file lies in a container's own layer (overlay): it goes when the container is removed"
        return Finding("place", "warning", what, "mount a volume and put the file there")
    if kind.startswith("fuse"):
        what = f"the file lies on a file system in user space ({kind}), whose locks and fsync are as good as its program"
        return Finding("place", "warning", what, "put it on a local disk")
    return Finding(
        "place", "ok", f"a local file system ({kind})" if kind else "the file system is unknown here"
    )


def private(path: Path) -> list[Finding]:
    """Judge what other users may do with an existing file, and who owns the folder of its sockets."""
    found = [Finding("rights", "warning", what, remedy) for what, remedy in exposed(path)]
    bell, owner = folder_of(path), path.stat().st_uid
    with contextlib.suppress(FileNotFoundError):
        held = bell.lstat()
        if held.st_uid != owner or held.st_mode & 0o077:
            what = f"{bell} belongs to {name_of(held.st_uid)}, mode {held.st_mode & 0o777:o}: processes of {name_of(owner)} see each other by polling only"
            quoted = shlex.quote(str(bell))
            remedy = (
                f"as root: `chown {owner} {quoted} && chmod 700 {quoted}`, then start those processes again"
            )
            found.append(Finding("doorbell", "warning", what, remedy))
    return found or [Finding("rights", "ok", f"only {name_of(owner)} may open the file")]


def roomy(free: int) -> Finding:
    """Judge the free space, in bytes, on the store's file system."""
    told = f"{free / 1024**2:,.0f} MiB free"
    if free >= _ROOM:
        return Finding("room", "ok", told)
    remedy = "make room: on a full disk nothing is lost, and nothing is written; `makegood store prune` removes old tasks"
    return Finding("room", "warning", told, remedy)


def logged(size: int) -> Finding:
    """Judge the size of the write-ahead log, in bytes."""
    told = f"the write-ahead log has {size / 1024**2:,.1f} MiB"
    if size <= 2 * WAL_LIMIT:
        return Finding("log", "ok", told)
    remedy = "somebody reads from an old state and hinders its clearing: end long transactions of other programs on this file"
    return Finding("log", "warning", told, remedy)


def look(path: Path, open_connection: Connect) -> list[Finding]:
    """Examine the file: its file system, and if it exists its rights, free space, log and content."""
    found = []
    with contextlib.suppress(OSError):  # this system has no mount table: the type stays unknown
        found.append(placed(filesystem(path.resolve(), MOUNTS.read_text(encoding="utf-8"))))
    if not path.exists():
        return found
    found += private(path)
    found.append(roomy(shutil.disk_usage(path.parent).free))
    log = log_of(path)
    found.append(logged(log.stat().st_size if log.exists() else 0))
    return found + glanced(path, partial(_kept, path, open_connection))


def _kept(path: Path, open_connection: Connect, glance: Glance | None) -> list[Finding]:
    """Examine the content of a file."""
    try:
        with closing(
            open_connection(uri_of(path, create=False) if glance is None else glance.uri())
        ) as connection:
            mode = journal_mode(connection, glance)
            broken = [text for (text,) in connection.execute("pragma quick_check(20)") if text != "ok"]
    except sqlite3.DatabaseError as failure:
        if not is_damaged(failure):  # its rights, its lock, the disk: opening the store reports these
            raise
        return [Finding("file", "error", str(translated(failure, path)), "then `makegood store restored`")]
    if not broken:
        return [_ahead(mode), Finding("file", "ok", "its structure is sound")]
    remedy = "stop all processes and restore a backup; then `makegood store restored`"
    return [_ahead(mode), *(Finding("file", "error", text, remedy) for text in broken)]


def _ahead(mode: str) -> Finding:
    if mode == "wal":
        return Finding("durability", "ok", "write-ahead log, synchronous=FULL in every process of makegood")
    what = f"journal_mode is {mode}: another program has changed it"
    remedy = "makegood sets wal again when it opens the file; keep other programs from changing it"
    return Finding("durability", "warning", what, remedy)


UNFINISHED = f"""
select {COLUMNS} from makegood_task where id > ? and coalesce(state, '') not in ('processed', 'undone') order by id limit ?
"""  # noqa: S608 - our own columns


def unread(tx: WriteTransaction, after: int, limit: int) -> tuple[int | None, list[tuple[int, str]]]:
    """Read unfinished tasks as a Scheduler does; see ``soundness.Read``."""
    found = tx.rows(UNFINISHED, (after, limit))
    wrong = [(row[0], why) for row in found if (why := unknown_state(row[4])) is not None]
    wrong += read(tx, [Raw(row, row[9], row[11] is not None) for row in found]).unreadable
    return found[-1][0] if len(found) == limit else None, wrong
