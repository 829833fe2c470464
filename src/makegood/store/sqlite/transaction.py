"""The transaction under way: a connection, one moment in time, and the topics to wake for after it
commits.
"""

import json
import sqlite3
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Concatenate, ParamSpec, TypeVar

import msgspec

from makegood.election.protocol import Grant
from makegood.store.rows import Interner
from makegood.store.transaction import EVENT, Sql, Tx, is_over
from makegood.transactions import at_once

T = TypeVar("T")
P = ParamSpec("P")
Row = tuple[Any, ...]
Action = Callable[["WriteTransaction"], T]
"""A transaction as a plain function. It runs in the store's thread, sees one moment, and is atomic."""

DATA_FAULTS = (
    sqlite3.DataError, sqlite3.IntegrityError, sqlite3.InterfaceError, sqlite3.ProgrammingError,
    msgspec.MsgspecError, OverflowError, TypeError, ValueError,
)  # fmt: skip
"""Errors for values that the database or the encoding refuses.

A failure of the database itself is never among them.
"""

blob = bytearray
"""The type for bytes that go into many rows.

For ``bytes`` the driver searches for an adapter each time, for a ``bytearray`` it does not. (For None and
bool it searches as well: write these into the statement, or pass 0 and 1.)
"""

_TERM = """
select 1 from makegood_lease where name = ? and nonce = ? and epoch = ? and holder is not null and expires_at > ?
"""
_CHUNKS = (1, 8, 64, 128, 256, 512)


class CarefullyError(Exception):
    """A part failed that a savepoint would have undone.

    The whole transaction is repeated, with savepoints.
    """


def are_numbers(*values: object) -> bool:
    """Whether values of number columns are numbers or None.

    SQLite also stores texts there, if somebody writes one.
    """
    return all(value is None or isinstance(value, int | float) for value in values)


def are_values(*values: object) -> bool:
    """Whether values of byte columns are bytes or None.

    SQLite also stores numbers there, if somebody writes one.
    """
    return all(value is None or isinstance(value, bytes) for value in values)


def is_environment(fault: Exception) -> bool:
    """Whether the database itself failed, rather than the request."""
    return isinstance(fault, sqlite3.Error) and not isinstance(fault, DATA_FAULTS)


@dataclass(slots=True)
class WriteTransaction:
    """One transaction under way."""

    connection: sqlite3.Connection
    """The connection on which it is open."""
    now: float
    """The store's clock, read after the lock was taken."""
    plans: Interner
    """Decodes step specs, each distinct one only once."""
    calendar: float = 0.0
    """The machine's wall clock, read with ``now``: for moments of the calendar."""
    careful: bool = True
    """Whether it uses savepoints.

    These cost a copy of each changed page, and failures are rare. So a transaction that can be repeated
    completely is first tried without them.
    """
    topics: set[str] = field(default_factory=set)
    """Topics to wake for after the commit."""

    def run(self, sql: str, values: Sequence[Any] = ()) -> int:
        """Execute one statement. Returns the number of rows that it changed."""
        return self.connection.execute(sql, values).rowcount

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Execute one statement. Returns all its rows."""
        return self.connection.execute(sql, values).fetchall()

    def each(self, sql: str, values: Sequence[Any] = ()) -> Iterator[Row]:
        """Execute one statement. Returns an iterator that reads its rows one by one."""
        return self.connection.execute(sql, values)

    def many(self, sql: str, values: Sequence[Row]) -> int:
        """Execute one statement for each tuple of ``values``. Returns the total number of rows changed."""
        return self.connection.executemany(sql, values).rowcount if values else 0

    def among(self, sql: str, members: Sequence[Any], *prefix: Any) -> list[Row]:
        """Return the rows of a statement in which ``{marks}`` is replaced by placeholders for ``members``.

        ``prefix``: the values that precede them. There are only a few counts of placeholders, filled up with
        the last member, so that each statement is compiled once.
        """
        rows: list[Row] = []
        limit = _CHUNKS[-1]
        for start in range(0, len(members), limit):
            part = list(members[start : start + limit])
            size = next(chunk for chunk in _CHUNKS if chunk >= len(part))
            part += part[-1:] * (size - len(part))
            marks = ",".join("?" * size)
            rows += self.connection.execute(sql.format(marks=marks), (*prefix, *part)).fetchall()
        return rows

    def do(
        self, verb: Callable[Concatenate[Tx, P], Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run an operation that is written once for all stores."""
        return at_once(verb(SharedTx(self), *args, **kwargs))

    def fence(self, term: Grant) -> None:
        """Refuse a write whose term is over. Raises ``FencedOffError``.

        Nobody else can write before the commit, so it is checked once, at the beginning.
        """
        if not self.rows(_TERM, (term.name, term.nonce, term.epoch, self.now)):
            raise is_over(term)

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Undo what was written inside if it fails, and keep what was written before.

        Raises ``CarefullyError`` in place of the failure if the transaction does not use savepoints.
        """
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
            if self.connection.in_transaction:  # some failures end the whole transaction
                self.connection.execute("rollback to makegood")
                self.connection.execute("release makegood")
            raise
        self.connection.execute("release makegood")


class SharedTx:
    """A transaction for operations that are written once for all stores. Nothing in it waits."""

    __slots__ = ("_now", "_tx", "topics")
    again = False

    def __init__(self, tx: WriteTransaction) -> None:
        self._tx = tx
        self._now = (tx.now,)
        self.topics = tx.topics

    def _values(self, sql: Sql, values: Sequence[Any]) -> Sequence[Any]:
        if any(type(value) is list for value in values):
            values = [json.dumps(value) if type(value) is list else value for value in values]
        return (*values, *self._now) if sql.needs_now else values

    async def rows(self, sql: Sql, *values: Any) -> list[Row]:
        """Execute one statement. Returns all its rows."""
        return self._tx.rows(sql.sqlite, self._values(sql, values))

    async def run(self, sql: Sql, *values: Any) -> int:
        """Execute one statement. Returns the number of rows that it changed."""
        return self._tx.run(sql.sqlite, self._values(sql, values))

    async def many(self, sql: Sql, rows: Sequence[Sequence[Any]], *constants: Any) -> int:
        """Execute one statement for each row of ``rows``, with the values ``constants`` after it."""
        behind = (*constants, *self._now) if sql.needs_now else constants
        return self._tx.many(sql.sqlite, [(*row, *behind) for row in rows])

    async def each(self, sql: Sql, rows: Sequence[Sequence[Any]], *constants: Any) -> list[Row]:
        """Execute one statement for each row of ``rows``; return all rows that they return."""
        return [result for row in rows for result in await self.rows(sql, *row, *constants)]

    async def record(self, events: Sequence[tuple[int, bytes]]) -> None:
        """Add events (task, moves)."""
        await self.many(EVENT, events)
