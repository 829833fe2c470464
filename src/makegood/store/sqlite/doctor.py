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

from makegood.base.file_paths import check_searchable, exists
from makegood.base.private_files import exposures, name_of
from makegood.base.sqlite_log import LOST, SIZE_LIMIT, checkpoint, has_reset_bug
from makegood.base.sqlite_readonly import Glance, glance_at, journal_mode, log_of
from makegood.store.soundness import unknown_state
from makegood.store.sqlite.connection import (
    REMOTE,
    Connect,
    filesystem,
    is_damaged,
    open_database,
    translate,
    uri_of,
)
from makegood.store.sqlite.load import COLUMNS, read
from makegood.store.sqlite.row_numbers import find_exhausted, remedy, trouble
from makegood.store.sqlite.transaction import WriteTransaction
from makegood.store.sqlite.wake_socket import folder_of
from makegood.store.task_rows import Raw
from makegood.store.views import Finding, SQLiteFinding

MOUNTS = Path("/proc/self/mountinfo")
_SHARED = frozenset({"9p", "virtiofs", "vboxsf", "prl_fs", "fuse.grpcfuse", "fuse.osxfs", "fuse.vmhgfs-fuse"})
_VOLATILE = frozenset({"tmpfs", "ramfs"})
_MIN_FREE = 1024**3
"""Bytes that should be free on the file system."""


def judge_file_system(kind: str) -> Finding:
    """Judge the type of file system that holds a store, as the mount table names it; "" if it is not known.

    >>> [judge_file_system(kind).severity for kind in ("ext4", "nfs4", "tmpfs", "overlay")]
    ['ok', 'error', 'warning', 'warning']
    """
    if kind in REMOTE:
        text = f"the file is on a network file system ({kind}): SQLite's locks are not safe there, and the file will be damaged"
        return Finding(
            "place", "error", text, "put it on a local disk, or use PostgreSQL for several machines"
        )
    if kind in _SHARED:
        text = f"the file is in a folder that a virtual machine shares with its host ({kind}): both may use it, but not at the same time"
        return Finding("place", "warning", text, "put it on a disk, or in a volume, of this machine alone")
    if kind in _VOLATILE:
        text = f"the file is in memory ({kind}): a reboot deletes every task"
        return Finding("place", "warning", text, "put it on a disk; in a test this does not matter")
    if kind == "overlay":
        text = "the file is in a container's own layer (overlay): removing the container deletes it"
        return Finding("place", "warning", text, "mount a volume and put the file there")
    if kind.startswith("fuse"):
        text = f"the file is on a file system in user space ({kind}): its program may implement locks and fsync badly"
        return Finding("place", "warning", text, "put it on a local disk")
    return Finding(
        "place", "ok", f"a local file system ({kind})" if kind else "the file system is unknown here"
    )


def judge_access(path: Path) -> list[Finding]:
    """Judge what other users may do with an existing file, and who owns the folder of its wake sockets."""
    findings = [Finding("rights", "warning", text, remedy) for text, remedy in exposures(path)]
    socket_folder, owner = folder_of(path), path.stat().st_uid
    with contextlib.suppress(FileNotFoundError):
        status = socket_folder.lstat()
        if status.st_uid != owner or status.st_mode & 0o077:
            text = f"{socket_folder} belongs to {name_of(status.st_uid)}, mode {status.st_mode & 0o777:o}: processes of {name_of(owner)} cannot wake each other, and only poll"
            shell_name = shlex.quote(str(socket_folder))
            remedy = f"as root: `chown {owner} {shell_name} && chmod 700 {shell_name}`, then start those processes again"
            findings.append(Finding("doorbell", "warning", text, remedy))
    return findings or [Finding("rights", "ok", f"only {name_of(owner)} may open the file")]


def judge_free_space(free: int) -> Finding:
    """Judge the free space, in bytes, on the store's file system."""
    text = f"{free / 1024**2:,.0f} MiB free"
    if free >= _MIN_FREE:
        return Finding("room", "ok", text)
    remedy = "free some space: on a full disk nothing is lost, and nothing can be written; `makegood store prune` removes old tasks"
    return Finding("room", "warning", text, remedy)


def judge_log_size(size: int) -> Finding:
    """Judge the size of the write-ahead log, in bytes."""
    text = f"the write-ahead log has {size / 1024**2:,.1f} MiB"
    if size <= 2 * SIZE_LIMIT:
        return Finding("log", "ok", text)
    remedy = "a long transaction reads an old state and keeps makegood from truncating the log: end such transactions of other programs on this file"
    return Finding("log", "warning", text, remedy)


def judge_version(version: str) -> SQLiteFinding:
    """Judge the version of SQLite.

    >>> judge_version("3.40.1").severity, judge_version("3.53.4").severity
    ('warning', 'ok')
    """
    bug = has_reset_bug(tuple(map(int, version.split("."))))
    if not bug:
        return SQLiteFinding("sqlite", "ok", f"SQLite {version}", version=version, wal_reset_bug=bug)
    text = f"SQLite {version} has the WAL-reset bug: a checkpoint by another program can lose commits; makegood's own processes avoid it"
    remedy = (
        "if anything else writes this file (your own connections, the sqlite3 shell, litestream): execute `pragma wal_autocheckpoint = 0` "
        "on each of its connections, or let it use SQLite 3.51.3 (3.50.7, 3.44.6) or newer; your distribution may have fixed it under the "
        "old number"
    )
    return SQLiteFinding("sqlite", "warning", text, remedy, version=version, wal_reset_bug=bug)


def examine(path: Path, open_connection: Connect) -> list[Finding]:
    """Examine the library; the file's file system; and if the file exists its rights, free space, log and
    content.
    """
    findings: list[Finding] = [judge_version(sqlite3.sqlite_version)]
    with contextlib.suppress(OSError):  # this system has no mount table: the type stays unknown
        findings.append(judge_file_system(filesystem(path.resolve(), MOUNTS.read_text(encoding="utf-8"))))
    check_searchable(path)
    if not exists(path):
        return findings
    findings += judge_access(path)
    findings.append(judge_free_space(shutil.disk_usage(path.parent).free))
    log = log_of(path)
    findings.append(judge_log_size(log.stat().st_size if exists(log) else 0))
    return findings + glance_at(path, partial(_examine_content, path, open_connection))


def _examine_content(path: Path, open_connection: Connect, glance: Glance | None) -> list[Finding]:
    """Examine the content of a file.

    ``glance``: how to read the file without writing beside it; None: this user may write.
    """
    try:
        with closing(
            open_connection(uri_of(path, create=False) if glance is None else glance.uri())
        ) as connection:
            mode = journal_mode(connection, glance)
            log_findings = (
                _merge_log(path, open_connection, connection) if mode == "wal" and glance is None else []
            )
            faults = [text for (text,) in connection.execute("pragma quick_check(20)") if text != "ok"]
            tables = [] if faults else find_exhausted(connection)
    except sqlite3.DatabaseError as failure:
        if not is_damaged(failure):  # its rights, its lock, the disk: opening the store reports these
            raise
        return [Finding("file", "error", str(translate(failure, path)), "then `makegood store restored`")]
    ends = [Finding("file", "error", trouble(table), remedy(table)) for table in tables]
    if not faults:
        return [
            _judge_journal_mode(mode),
            *log_findings,
            *(ends or [Finding("file", "ok", "its structure is sound")]),
        ]
    backup = "stop all processes and restore a backup; then `makegood store restored`"
    return [
        _judge_journal_mode(mode),
        *log_findings,
        *(Finding("file", "error", text, backup) for text in faults),
    ]


def _merge_log(path: Path, open_connection: Connect, guard: sqlite3.Connection) -> list[Finding]:
    """Merge the log. Returns a finding if its index says more than the log has."""
    with closing(open_database(path, open_connection)) as merger:
        guard.execute("begin")
        length, index_length = checkpoint(guard, merger)
    if index_length <= length:
        return []
    remedy = (
        "kill all processes that use the file (with SIGKILL, so that none merges the log) and copy the file and its -wal; then restore a "
        "backup, or open the copy without a -shm, from which SQLite makes a new index"
    )
    return [Finding("log", "error", LOST.format(length=length, merged=index_length), remedy)]


def _judge_journal_mode(mode: str) -> Finding:
    if mode == "wal":
        return Finding("durability", "ok", "write-ahead log, synchronous=FULL in every process of makegood")
    text = f"journal_mode is {mode}: another program has changed it"
    remedy = "makegood sets wal again when it opens the file; keep other programs from changing it"
    return Finding("durability", "warning", text, remedy)


UNFINISHED = f"""
select {COLUMNS} from makegood_task where id > ? and coalesce(state, '') not in ('processed', 'undone') order by id limit ?
"""  # noqa: S608 - our own columns


def unreadable_tasks(
    tx: WriteTransaction, after: int, limit: int
) -> tuple[int | None, list[tuple[int, str]]]:
    """Read unfinished tasks as a Scheduler does; see ``soundness.Read``."""
    rows = tx.rows(UNFINISHED, (after, limit))
    faults: list[tuple[int, str]] = []
    raw_tasks = []
    for row in rows:  # in the order of COLUMNS
        task, state, epoch, complete_by = row[0], row[4], row[9], row[11]
        if (reason := unknown_state(state)) is not None:
            faults.append((task, reason))
        raw_tasks.append(Raw(row, epoch, complete_by is not None))
    faults += read(tx, raw_tasks).unreadable
    return rows[-1][0] if len(rows) == limit else None, faults
