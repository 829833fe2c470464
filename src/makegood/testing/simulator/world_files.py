"""The place of worlds, one after another: a folder with a store's file in it, and the connections to that
file.

To copy an empty store into a new file for each small world, open it, set its connections up and recompile all
statements was a quarter of the work of a proof. So code that plays many worlds has ``Grounds``: it lends each
ground to one world and takes it back. The connections stay open with their compiled statements, and before
the next world all rows are replaced by those of the empty store. Numbers start again, so no world sees what
was there before.
"""

import os
import shutil
import sqlite3
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from makegood.store.sqlite import upkeep
from makegood.store.sqlite.connection import connect, set_up, uri_of
from makegood.testing.simulator.clocks import SimulatedClock
from makegood.testing.simulator.files import Files

_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - only the simulator's own files, in a folder of its own
_TABLES: Final = "select name from sqlite_master where type = 'table'"
_PAGE: Final = 1024  # bytes
_LOGS: Final = "select name from sqlite_temp_master where type = 'table'"

Rows = dict[str, list[tuple[Any, ...]]]


def empty_store(*, page: int = _PAGE) -> bytes:
    """Return the file of an empty store, to be copied into each world.

    ``page``: bytes. Small by default, as a world's few rows are: a commit writes and sums whole pages.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "empty.db"
        connection = connect(uri_of(path, create=True))
        connection.execute(f"pragma page_size = {page}")
        set_up(connection, path, busy=1.0)
        upkeep.migrate(connection, path, SimulatedClock(lambda: 0.0))
        connection.close()  # the last one: this merges the log
        return path.read_bytes()


def folder_in_memory(prefix: str) -> Path:
    """Make a folder for temporary files, in memory if possible; the caller removes it."""
    return Path(tempfile.mkdtemp(prefix=prefix, dir=_MEMORY if _MEMORY.is_dir() else None))


class Ground:
    """A folder, the file of a world's store in it, and the connections to that file. It is removed with its
    last reference.
    """

    def __init__(self, template: bytes) -> None:
        self.folder = folder_in_memory("makegood-world-")
        self.path = self.folder / "world.db"
        self.files = Files()
        self.process = os.getpid()
        self._template = template
        self._rows: Rows = {}
        weakref.finalize(self, _throw_away, self.folder, self.files, self.process)

    def lay(self, store_id: str) -> None:
        """Put an empty store of this identity there, replacing any other."""
        connection = self.files.idle()
        if connection is None:  # No world has opened it.
            self.path.write_bytes(self._template)
            with closing(connect(uri_of(self.path, create=False))) as fresh:
                self._rows = dict(_tables_with_rows(fresh))
                _name(fresh, store_id)
        else:
            _replace(connection, self._rows)
            _name(connection, store_id)


class Grounds:
    """Lends grounds to worlds: as many as live at a time, however many are played.

    ``template``: the file of an empty store; by default a new one.
    """

    def __init__(self, template: bytes | None = None) -> None:
        self._template = template
        self._free: list[Ground] = []

    def lend(self) -> Ground:
        """Return a free ground."""
        while self._free:
            ground = self._free.pop()
            if ground.process == os.getpid():  # Inherited by a fork, it remains the parent's.
                return ground
        if self._template is None:
            self._template = empty_store()
        return Ground(self._template)

    def take_back(self, ground: Ground) -> None:
        """Keep the ground of a world that is over for another one."""
        self._free.append(ground)


def _throw_away(folder: Path, files: Files, process: int) -> None:
    if process == os.getpid():
        files.close()
        shutil.rmtree(folder, ignore_errors=True)


def _tables_with_rows(connection: sqlite3.Connection) -> Iterator[tuple[str, list[tuple[Any, ...]]]]:
    """Return the tables of a store, with their rows."""
    for (table,) in connection.execute(_TABLES).fetchall():
        yield table, connection.execute(f"select * from {table}").fetchall()  # noqa: S608 - our own tables


def _replace(connection: sqlite3.Connection, rows: Rows) -> None:
    """Replace all rows of a store by these, and empty the log of its connection."""
    connection.execute("begin immediate")
    for table, table_rows in rows.items():
        connection.execute(f"delete from {table}")  # noqa: S608 - our own tables
        for row in table_rows:
            placeholders = ", ".join("?" * len(row))
            connection.execute(f"insert into {table} values ({placeholders})", row)  # noqa: S608 - our own tables
    for (table,) in connection.execute(_LOGS).fetchall():
        connection.execute(f"delete from {table}")  # noqa: S608 - our own tables
    connection.execute("commit")


def _name(connection: sqlite3.Connection, store_id: str) -> None:
    connection.execute("update makegood_generation set store_id = ?", (store_id,))
