"""The file of a world's store, and the connections to it that all its processes share in turn."""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, TypeAlias

from makegood.base.sqlite_log import Connection
from makegood.store.sqlite.connection import connect

Role: TypeAlias = Literal["writer", "reader", "merger"]
_ONCE = ("pragma fullfsync =", "pragma checkpoint_fullfsync =", "pragma cache_size =", "create temp ")


class WatchedConnection(Connection):
    """A connection whose commits the world sees. The current writer sets ``on_commit`` on the one that
    writes.
    """

    on_commit: "Callable[[WatchedConnection], None] | None" = None

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        """Execute a statement; a commit goes through the world."""
        if sql == "commit" and self.on_commit is not None:
            self.on_commit(self)
            return self.cursor()
        return super().execute(sql, parameters)

    def commit_truly(self) -> None:
        """Commit."""
        super().execute("commit")


class SharedConnection(WatchedConnection):
    """A connection that outlives the processes that use it: ``close`` only rolls back an open transaction.

    Each process that starts sets it up. Repeated flags and existing triggers would change nothing, but for a
    flag SQLite recompiles all its statements, a fifteenth of a world's work. So repeated statements are
    skipped.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.preparations: set[str] = set()
        """The statements that have prepared it."""

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        """Execute a statement; one that prepares the connection runs only once."""
        if sql[0] in "pc":  # pragma, create, commit
            if sql in self.preparations:
                return self.cursor()
            if sql.startswith(_ONCE):
                self.preparations.add(sql)
            return super().execute(sql, parameters)
        # Not a commit: call SQLite directly, because a world executes thousands.
        return sqlite3.Connection.execute(self, sql, parameters)

    def close(self) -> None:
        """Roll back, as the system does for a process that closes a file."""
        if self.in_transaction:
            self.rollback()

    def close_truly(self) -> None:
        """Close."""
        super().close()


class Files:
    """The connections to a world's file: one writes, one reads, one merges the log. All processes
    share them in turn.

    A transaction runs in one go, so no two ever overlap, and it makes no difference whose connection it is.
    To open a file, compile all statements and set up the log for each process that starts was a quarter of a
    world's work. No other program opens the file, so SQLite may keep its locks in memory (``unix-excl``)
    instead of using the system's.
    """

    def __init__(self) -> None:
        self._role: Role = "writer"
        self._open: dict[Role, SharedConnection] = {}

    @contextmanager
    def opening(self, role: Role) -> Iterator[None]:
        """Let ``open`` return the connection of this role meanwhile."""
        before, self._role = self._role, role
        try:
            yield
        finally:
            self._role = before

    def open(self, uri: str) -> sqlite3.Connection:
        """Return the connection of the present role."""
        if self._role not in self._open:
            alone = f"{uri}&vfs=unix-excl" if os.name == "posix" else uri
            connection = connect(alone, factory=SharedConnection)
            assert isinstance(connection, SharedConnection)
            self._open[self._role] = connection
        return self._open[self._role]

    def idle(self) -> sqlite3.Connection | None:
        """Roll back what a world left open. Return the connection that writes, or None if there never was
        one.
        """
        for connection in self._open.values():
            connection.close()
        return self._open.get("writer")

    def close(self) -> None:
        """Close all: the file is not used any more."""
        for connection in self._open.values():
            connection.close_truly()
        self._open.clear()
