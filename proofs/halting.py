"""SIGSTOP for a process while it is outside of every transaction on a SQLite file.

A process that is stopped inside a transaction keeps the file's lock, and no process can write until it
resumes: a limit of SQLite. A test of leases and locks is about something else, yet from outside, or from
another thread, nobody can choose the moment. So the file is checked once the process has stopped; if it is
locked, the process runs for a moment and is stopped again.
"""

import contextlib
import os
import signal
import sqlite3
import time
from pathlib import Path

from makegood.store.sqlite.connection import is_busy

_PATIENCE = 120.0
_LOOK = 0.005
_RUN_ON = 0.01
_ANOTHER = 0.1
"""Seconds for which another process may hold the lock. After that the lock counts as the stopped process's,
and another check does no harm.
"""


def halt(pid: int, store: str) -> int:
    """Stop a child of this process, which uses ``store`` (a URL); return how often it was inside a
    transaction.

    Raises ``TimeoutError`` if it does not stop, or never leaves its transaction.
    """
    os.kill(pid, signal.SIGSTOP)
    return settle(pid, store)


def settle(pid: int, store: str) -> int:
    """Do the same with a child that was already asked to stop, or stopped itself."""
    end = time.monotonic() + _PATIENCE
    file = Path(store.removeprefix("sqlite:///")) if store.startswith("sqlite:///") else None
    inside = 0
    while True:
        while not halted(pid):
            _before(end, f"process {pid} does not stop")
            time.sleep(_LOOK)
        if file is None or not locked(file):
            return inside
        inside += 1
        _before(end, f"process {pid} does not leave its transaction on {file}, or another one keeps its lock")
        os.kill(pid, signal.SIGCONT)
        time.sleep(_RUN_ON)
        os.kill(pid, signal.SIGSTOP)


def halted(pid: int) -> bool:
    """Whether all threads of a child of this process are stopped, as the system says."""
    status = os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT | os.WEXITED)
    return status is not None and status.si_code == os.CLD_STOPPED


def locked(file: Path) -> bool:
    """Whether no process can start to write to a SQLite file now; a missing file is not locked."""
    if not file.exists():
        return False
    with contextlib.closing(sqlite3.connect(file, timeout=_ANOTHER, isolation_level=None)) as connection:
        try:
            connection.execute("begin immediate")
        except sqlite3.OperationalError as error:
            if not is_busy(error):
                raise
            return True
        connection.execute("rollback")
        return False


def _before(end: float, what: str) -> None:
    if time.monotonic() > end:
        raise TimeoutError(what)
