"""Where worlds stand, one after another: a folder with a store's file in it, and the connections to that.

To copy an empty store into a new file for each small world, to open it, to set its connections up and to have all statements compiled
again was a quarter of the work of a proof. So who plays many worlds has ``Grounds``: each ground is lent to one world and taken
back, its connections stay open with the statements that they have compiled, and before the next world all its rows are
replaced by those of the empty store. Numbers are given from the start again, so no world sees what stood there before.
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
    """Return the file of a store into which nothing was written yet, to be copied into each world.

    ``page``: bytes. Small by default, as a world's few rows are: a commit writes and sums whole pages.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "empty.db"
        connection = connect(uri_of(path, create=True))
        connection.execute(f"pragma page_size = {page}")
        set_up(connection, path, busy=1.0)
        upkeep.migrate(connection, path, SimulatedClock(lambda: 0.0))
        connection.execute("pragma wal_checkpoint(truncate)")
        connection.close()
        return path.read_bytes()


def folder_in_memory(prefix: str) -> Path:
    """Make a folder for files that need not last, in memory where there is such a thing; whoever asks removes it."""
    return Path(tempfile.mkdtemp(prefix=prefix, dir=_MEMORY if _MEMORY.is_dir() else None))


class Ground:
    """A folder of its own, the file of a world's store in it, and the connections to that. It goes with the last who knows it."""

    def __init__(self, template: bytes) -> None:
        self.folder = folder_in_memory("makegood-world-")
        self.path = self.folder / "world.db"
        self.files = Files()
        self.process = os.getpid()
        self._template = template
        self._rows: Rows = {}
        weakref.finalize(self, _thrown_away, self.folder, self.files, self.process)

    def lay(self, store_id: str) -> None:
        """Put an empty store of this identity there, whatever was there before."""
        connection = self.files.idle()
        if connection is None:  # no world has opened it
            self.path.write_bytes(self._template)
            with closing(sqlite3.connect(self.path, isolation_level=None)) as fresh:
                self._rows = dict(_filled(fresh))
                _name(fresh, store_id)
        else:
            _replace(connection, self._rows)
            _name(connection, store_id)


class Grounds:
    """Lends grounds to worlds: as many as live at a time, however many are played. ``template``: the file of an empty store, if not just any."""

    def __init__(self, template: bytes | None = None) -> None:
        self._template = template
        self._free: list[Ground] = []

    def lend(self) -> Ground:
        """Return a ground on which no world stands."""
        while self._free:
            ground = self._free.pop()
            if ground.process == os.getpid():  # what a fork inherits stays its parent's
                return ground
        if self._template is None:
            self._template = empty_store()
        return Ground(self._template)

    def take_back(self, ground: Ground) -> None:
        """Keep the ground of a world that is over for another one."""
        self._free.append(ground)


def _thrown_away(folder: Path, files: Files, process: int) -> None:
    if process == os.getpid():
        files.close()
        shutil.rmtree(folder, ignore_errors=True)


def _filled(connection: sqlite3.Connection) -> Iterator[tuple[str, list[tuple[Any, ...]]]]:
    """Return the tables of a store, with their rows."""
    for (table,) in connection.execute(_TABLES).fetchall():
        yield table, connection.execute(f"select * from {table}").fetchall()  # noqa: S608 - our own tables


def _replace(connection: sqlite3.Connection, rows: Rows) -> None:
    """Put these rows into a store instead of all that are there, and empty what its connection has logged."""
    connection.execute("begin immediate")
    for table, wanted in rows.items():
        connection.execute(f"delete from {table}")  # noqa: S608 - our own tables
        for row in wanted:
            placeholders = ", ".join("?" * len(row))
            connection.execute(f"insert into {table} values ({placeholders})", row)  # noqa: S608 - our own tables
    for (table,) in connection.execute(_LOGS).fetchall():
        connection.execute(f"delete from {table}")  # noqa: S608 - our own tables
    connection.execute("commit")


def _name(connection: sqlite3.Connection, store_id: str) -> None:
    connection.execute("update makegood_generation set store_id = ?", (store_id,))
