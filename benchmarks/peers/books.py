"""The table in which a reader from a broker makes each message durable: one row, in a transaction of its own, synced to the disk."""

import os
import sqlite3
import threading
from functools import cache

PATH = "BENCH_BOOKS"
TABLE = "create table if not exists made (row integer primary key, n int not null)"


@cache
def _books(_process: int, _thread: int) -> sqlite3.Connection:
    connection = sqlite3.connect(os.environ[PATH], timeout=60, isolation_level=None)
    connection.execute("pragma synchronous = full")
    return connection


def write(number: int) -> None:
    """Write a row and commit it. Each thread, also of a forked process, has a connection of its own."""
    _books(os.getpid(), threading.get_ident()).execute("insert into made (n) values (?)", (number,))
