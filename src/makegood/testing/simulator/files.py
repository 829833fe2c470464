"""The file of a world's store, and the connections to it that all its processes use in turn."""

import os
import sqlite3
from collections.abc import Callable
from typing import Any

from makegood.store.sqlite.connection import connect

_ONCE = ("pragma fullfsync =", "pragma checkpoint_fullfsync =", "pragma cache_size =", "create temp ")


class WatchedConnection(sqlite3.Connection):
    """A connection whose commits the world sees. ``watched`` is set on those that write, by whoever writes just now."""

    watched: "Callable[[WatchedConnection], None] | None" = None

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        """Execute a statement; a commit goes through the world."""
        if sql == "commit" and self.watched is not None:
            self.watched(self)
            return self.cursor()
        return super().execute(sql, parameters)

    def commit_truly(self) -> None:
        """Commit."""
        super().execute("commit")


class SharedConnection(WatchedConnection):
    """One that outlives the processes which use it: to close it is to undo what is open.

    Each process that starts sets it up. Flags that are set again, and triggers that are there, would change nothing, but for a flag
    SQLite compiles all its statements anew, a fifteenth of a world's work: so what was said before is not said again.
    """

    said: set[str]
    """What has prepared it."""

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        """Execute a statement, one that prepares the connection only once."""
        if sql[0] in "pc":  # pragma, create, commit
            if sql in self.said:
                return self.cursor()
            if sql.startswith(_ONCE):
                self.said.add(sql)
            return super().execute(sql, parameters)
        return sqlite3.Connection.execute(
            self, sql, parameters
        )  # no commit: straight, as a world executes thousands

    def close(self) -> None:
        """Undo what was not committed, as the system does for whoever lets go of a file."""
        if self.in_transaction:
            self.rollback()

    def close_truly(self) -> None:
        """Close."""
        super().close()


class Files:
    """The connections to a world's file: one that writes and one that reads, used by all processes in turn.

    A transaction is done in one go, so no two of them ever meet, and whose connection it is makes no difference. To open a
    file, compile all statements and set up the log for each process that starts was a quarter of a world's work. Nor does any
    other program of the machine open it, so SQLite may keep its locks in memory (``unix-excl``) instead of asking the system.
    """

    def __init__(self) -> None:
        self.reading = False
        self._open: dict[bool, SharedConnection] = {}

    def open(self, uri: str) -> sqlite3.Connection:
        """Return the connection that reads, or the one that writes."""
        if self.reading not in self._open:
            alone = f"{uri}&vfs=unix-excl" if os.name == "posix" else uri
            made = connect(alone, factory=SharedConnection)
            assert isinstance(made, SharedConnection)
            made.said = set()
            self._open[self.reading] = made
        return self._open[self.reading]

    def idle(self) -> sqlite3.Connection | None:
        """Let go of what a world left open, and return the connection that writes, None before there was one."""
        for connection in self._open.values():
            connection.close()
        return self._open.get(False)

    def close(self) -> None:
        """Close them: nothing is to be done with the file any more."""
        for connection in self._open.values():
            connection.close_truly()
        self._open.clear()
