"""Connections to SQLite whose statements fail as a test wishes."""

import sqlite3
from typing import Any

from makegood.base.sqlite_log import Connection
from makegood.store.sqlite.connection import connect


def failure(code: int, text: str) -> sqlite3.OperationalError:
    """Return an error of SQLite's."""
    error = sqlite3.OperationalError(text)
    error.sqlite_errorcode = code
    return error


BUSY = failure(sqlite3.SQLITE_BUSY, "database is locked")
FULL = failure(sqlite3.SQLITE_FULL, "database or disk is full")
IOERR = failure(sqlite3.SQLITE_IOERR | 4 << 8, "disk I/O error")


class Faults:
    """Makes statements fail: ``arm("commit", error, times)`` for those that begin like this."""

    def __init__(self) -> None:
        self.armed: dict[str, list[Exception]] = {}
        self.opened = 0

    def arm(self, start: str, error: Exception, times: int = 1) -> None:
        """Let the next statements that begin with ``start`` fail."""
        self.armed[start] = [error] * times

    def connect(self, uri: str) -> sqlite3.Connection:
        """Open a connection whose statements may fail."""
        faults = self
        faults.opened += 1

        class Failing(Connection):
            def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
                faults.look(sql)
                return super().execute(sql, *values)

            def executemany(self, sql: str, values: Any) -> sqlite3.Cursor:
                faults.look(sql)
                return super().executemany(sql, values)

        return connect(uri, factory=Failing)

    def look(self, sql: str) -> None:
        """Fail, if this statement is to."""
        for start, errors in self.armed.items():
            if errors and sql.strip().startswith(start):
                raise errors.pop()
