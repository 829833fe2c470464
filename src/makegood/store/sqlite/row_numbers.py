"""Finds tables whose row numbers are used up.

A table with AUTOINCREMENT never gives a number twice. After a row with the largest number, which only another
program can have written, SQLite inserts nothing more, and reports the same error as for a full disk.
"""

import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from makegood.base import sqlite_log

LARGEST: Final = 2**63 - 1
_REST: Final = 2**62  # above every number that makegood has given, and as many again are left

_COUNTS = "select 1 from sqlite_master where name = 'sqlite_sequence'"
_COUNTING = """
select distinct s.name from sqlite_sequence s join sqlite_master m on m.name = s.name and m.type = 'table' order by 1
"""
_COUNTER = "select max(seq) from sqlite_sequence where name = ?"


def find_exhausted(connection: sqlite3.Connection) -> list[str]:
    """Return the tables into which nothing can be inserted any more."""
    if not connection.execute(_COUNTS).fetchall():
        return []
    names = connection.execute(_COUNTING).fetchall()
    return [name for (name,) in names if _last(connection, name) == LARGEST]


def _last(connection: sqlite3.Connection, name: str) -> int:
    table = _quote(name)
    ((row,),) = connection.execute(f"select max(rowid) from {table}")  # noqa: S608 - a table's own name
    ((counter,),) = connection.execute(_COUNTER, (name,))
    return max(row or 0, counter if isinstance(counter, int) else 0)


def find_exhausted_in(path: Path) -> list[str]:
    """Return these tables of a file; none if it cannot be read."""
    with (
        suppress(sqlite3.Error),
        closing(sqlite_log.connect(f"{path.absolute().as_uri()}?mode=ro", timeout=1.0)) as connection,
    ):
        return find_exhausted(connection)
    return []


def trouble(name: str) -> str:
    """Return what is wrong with such a table, in words."""
    return f"{name} has had a row with the largest row number, {LARGEST}: SQLite inserts nothing more into it, whatever room the disk has"


def remedy(name: str) -> str:
    """Return what to do about it."""
    table = _quote(name)
    delete = f"delete from {table} where rowid = {LARGEST}"  # noqa: S608 - a table's own name; for people
    literal_table = name.replace("'", "''")
    counter = f"update sqlite_sequence set seq = {_REST} where name = '{literal_table}'"  # noqa: S608 - the same
    return f"stop all processes, and delete that row, which another program wrote: `{delete}; {counter}`"


def _quote(name: str) -> str:
    return '"{}"'.format(name.replace('"', '""'))
