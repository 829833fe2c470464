"""What a transaction works with: a connection, one moment in time, and the topics to ring for when it is committed."""

import json
import sqlite3
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Concatenate, ParamSpec, TypeVar

import msgspec

from makegood.store.rows import Interner
from makegood.store.transaction import Sql, Tx
from makegood.transactions import at_once

T = TypeVar("T")
P = ParamSpec("P")
Row = tuple[Any, ...]
Action = Callable[["WriteTransaction"], T]
"""A transaction: a plain function. It runs in the store's thread, sees one moment, and is written whole or not at all."""

DATA_FAULTS = (
    sqlite3.DataError,
    sqlite3.IntegrityError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
    msgspec.MsgspecError,
    OverflowError,
    TypeError,
    ValueError,
)
"""What is raised for values that the database (or the encoding) refuses; trouble with the database is never among them."""

blob = bytearray
"""What to make of bytes that go into many rows: the driver first looks for an adapter for ``bytes``, each time, and not for
these. (For None and bool it does too: write them into the statement, or hand over 0 and 1.)
"""

_CHUNKS = (1, 8, 64, 128, 256, 512)


class CarefullyError(Exception):
    """Something failed that a savepoint would have undone alone: the whole is done again, carefully."""


def are_numbers(*values: object) -> bool:
    """Return whether columns hold what they are for: SQLite keeps a text in a column of numbers, if somebody writes one there."""
    return all(value is None or isinstance(value, int | float) for value in values)


def are_values(*values: object) -> bool:
    """Return whether columns hold bytes, or nothing: SQLite keeps a number in a column of values, if somebody writes one there."""
    return all(value is None or isinstance(value, bytes) for value in values)


def is_environment(fault: Exception) -> bool:
    """Whether the database itself is in trouble, and not what was asked of it."""
    return isinstance(fault, sqlite3.Error) and not isinstance(fault, DATA_FAULTS)


@dataclass(slots=True)
class WriteTransaction:
    """One transaction under way. ``now`` is the store's clock, read after the lock was taken.

    ``careful``: with savepoints. They cost a copy of each page that is changed, and nearly nothing ever fails: so a transaction of
    which all can be done again goes without at first.
    """

    connection: sqlite3.Connection
    now: float
    plans: Interner
    careful: bool = True
    topics: set[str] = field(default_factory=set)

    def run(self, sql: str, values: Sequence[Any] = ()) -> int:
        """Execute one statement; returns the number of rows that it changed."""
        return self.connection.execute(sql, values).rowcount

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Execute one statement; returns all its rows."""
        return self.connection.execute(sql, values).fetchall()

    def each(self, sql: str, values: Sequence[Any] = ()) -> Iterator[Row]:
        """Execute one statement; gives its rows one by one, as they are read."""
        return self.connection.execute(sql, values)

    def many(self, sql: str, values: Sequence[Row]) -> int:
        """Execute one statement for each tuple of ``values``; returns the rows changed in all."""
        return self.connection.executemany(sql, values).rowcount if values else 0

    def among(self, sql: str, members: Sequence[Any], *before: Any) -> list[Row]:
        """Return the rows of a statement whose ``{marks}`` stand for ``members``; ``before``: the values ahead of them.

        The number of marks is one of a few, filled up with the last member, so that each statement is compiled once.
        """
        found: list[Row] = []
        most = _CHUNKS[-1]
        for start in range(0, len(members), most):
            part = list(members[start : start + most])
            size = next(chunk for chunk in _CHUNKS if chunk >= len(part))
            part += part[-1:] * (size - len(part))
            marks = ",".join("?" * size)
            found += self.connection.execute(sql.format(marks=marks), (*before, *part)).fetchall()
        return found

    def do(
        self, verb: Callable[Concatenate[Tx, P], Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Do a verb that is written once for every store."""
        return at_once(verb(SharedTx(self), *args, **kwargs))

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Undo what was written inside when it fails, and leave what was written before. Raises ``CarefullyError``."""
        if not self.careful:
            try:
                yield
            except Exception as fault:
                if is_environment(fault):
                    raise
                raise CarefullyError from fault
            return
        self.connection.execute("savepoint makegood")
        try:
            yield
        except BaseException:
            if self.connection.in_transaction:  # some failures have ended the whole transaction
                self.connection.execute("rollback to makegood")
                self.connection.execute("release makegood")
            raise
        self.connection.execute("release makegood")


class SharedTx:
    """A transaction as verbs see it that are written once for every store. Nothing in them waits."""

    __slots__ = ("_now", "_tx", "topics")

    def __init__(self, tx: WriteTransaction) -> None:
        self._tx = tx
        self._now = (tx.now,)
        self.topics = tx.topics

    def _values(self, sql: Sql, values: Sequence[Any]) -> Sequence[Any]:
        if any(type(value) is list for value in values):
            values = [json.dumps(value) if type(value) is list else value for value in values]
        return (*values, *self._now) if sql.dated else values

    async def rows(self, sql: Sql, *values: Any) -> list[Row]:
        """Execute one statement; returns all its rows."""
        return self._tx.rows(sql.sqlite, self._values(sql, values))

    async def run(self, sql: Sql, *values: Any) -> int:
        """Execute one statement; returns the number of rows that it changed."""
        return self._tx.run(sql.sqlite, self._values(sql, values))

    async def many(self, sql: Sql, found: Sequence[Sequence[Any]], *more: Any) -> int:
        """Execute one statement for each of these rows."""
        behind = (*more, *self._now) if sql.dated else more
        return self._tx.many(sql.sqlite, [(*row, *behind) for row in found])
