"""A process forks while its threads are in SQLite: the child can use SQLite too."""

import os
import signal
import sqlite3
import threading
import time
from contextlib import closing

import pytest

from makegood.base import forks

FORKS = 10


def child() -> int:
    """Fork; return the child, which opens a database and ends with 0."""
    pid = os.fork()
    if pid == 0:
        try:
            with closing(sqlite3.connect(":memory:")) as connection:
                connection.execute("select zeroblob(100000)").fetchone()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return pid


def ended_well(pid: int) -> bool:
    """Wait for a child; one that hangs is killed."""
    deadline = time.monotonic() + 30
    while not (status := os.waitpid(pid, os.WNOHANG))[0]:
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return False
        time.sleep(0.001)
    return os.waitstatus_to_exitcode(status[1]) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_child_finds_no_mutex_of_sqlite_locked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forks, "PATIENCE", 60.0)  # two threads that never rest leave a fork little room
    over = threading.Event()

    def work() -> None:
        lock = forks.fork_lock()
        with closing(sqlite3.connect(":memory:")) as connection:
            while not over.is_set():
                with lock:
                    connection.execute(
                        "with recursive n (i) as (select 1 union all select i + 1 from n where i < 2000) "
                        "select count(printf('%d %s', i, randomblob(50))) from n"
                    ).fetchone()

    threads = [threading.Thread(target=work, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        assert all(ended_well(child()) for _ in range(FORKS))
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_a_thread_that_stays_inside_holds_up_no_fork_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forks, "PATIENCE", 0.05)
    with forks.fork_lock():
        assert ended_well(child())
