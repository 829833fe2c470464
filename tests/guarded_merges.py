"""Records what makegood's SQLite connections do with the write-ahead log, whoever opens them: no connection that writes may let SQLite
checkpoint by itself, and each checkpoint needs a guard (see ``makegood.base.sqlite_log``).
"""

import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from makegood.base import sqlite_log
from makegood.base.sqlite_log import Connection

_READS = ("select", "with", "insert", "update", "delete", "create")


@dataclass
class MergeRecord:
    """What was seen: the checkpoints, and what was wrong."""

    checkpoints: int = 0
    writers: int = 0
    wrong: list[str] = field(default_factory=list)
    connections: list["RecordedConnection"] = field(default_factory=list)

    def guards(self, merger: "RecordedConnection") -> list[tuple["RecordedConnection", int]]:
        """Return the other connections to this file with an open transaction that has read, and the number of that transaction."""
        return [
            (each, each.transactions)
            for each in self.connections
            if each is not merger and each.file == merger.file and each.read_once and each.in_transaction
        ]


class RecordedConnection(Connection):
    """A connection of makegood's."""

    record: MergeRecord
    file: str
    transactions = recorded_changes = 0
    read_once = False

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        """Execute a statement, and note what it means for the log."""
        if "wal_checkpoint" in sql:
            return self._checkpoint(sql)
        result = super().execute(sql, *values)
        self._note(sql)
        return result

    def executemany(self, sql: str, *values: Any) -> sqlite3.Cursor:
        """Execute a statement several times."""
        result = super().executemany(sql, *values)
        self._note(sql)
        return result

    def executescript(self, script: str) -> sqlite3.Cursor:
        """Execute a script."""
        result = super().executescript(script)
        self._note("create")
        return result

    def close(self) -> None:
        """Close."""
        if self in self.record.connections:
            self.record.connections.remove(self)
        super().close()

    def _note(self, sql: str) -> None:
        word = sql.split(None, 1)[0].lower()
        if word == "begin":
            self.transactions += 1
            self.read_once = "immediate" in sql
        elif word in _READS and self.in_transaction:
            self.read_once = True
        if self.total_changes != self.recorded_changes or word == "create":
            self.record.writers += not self.recorded_changes
            self.recorded_changes = self.total_changes
            (pages,) = sqlite3.Connection.execute(self, "pragma wal_autocheckpoint").fetchone()
            if pages:
                self.record.wrong.append(f"{self.file}: wal_autocheckpoint is {pages} after {sql!r:.60}")

    def _checkpoint(self, sql: str) -> sqlite3.Cursor:
        self.record.checkpoints += 1
        before = self.record.guards(self)
        result = super().execute(sql)
        if not set(before) & set(self.record.guards(self)):
            self.record.wrong.append(f"{self.file}: {sql!r} without a guard from before it until after it")
        return result


@contextmanager
def recorded_merges() -> Iterator[MergeRecord]:
    """Record every connection that a module of makegood opens meanwhile."""
    record, original = MergeRecord(), sqlite3.connect

    def connect(database: Any, *arguments: Any, **options: Any) -> Any:
        caller = sys._getframe(1).f_globals["__name__"]
        if caller.partition(".")[0] != "makegood":
            return original(database, *arguments, **options)
        factory = options.pop("factory", sqlite3.Connection)
        recorder_class = type("Recorded" + factory.__name__, (RecordedConnection, factory), {})
        connection: RecordedConnection = original(database, *arguments, factory=recorder_class, **options)
        connection.record, connection.file = record, str(database).partition("?")[0]
        record.connections.append(connection)
        return connection

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite3, "connect", connect)
        yield record
    assert record.wrong == []


@contextmanager
def short_logs() -> Iterator[None]:
    """Merge a log of 8 pages already, and look after each commit."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite_log, "PAGES", 8)
        patch.setattr(sqlite_log, "_PAUSE", 0.0)
        yield
