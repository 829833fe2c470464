"""The context of a write on PostgreSQL: a connection, its writer's row and number, and the topics to wake
after the commit.

A connection may be lost after its commit was sent, and then nobody knows whether the write happened. So each
connection that writes, a *writer*, has a row with a number that every write raises by one: whoever reads that
row later knows.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import asyncpg

from makegood.election.protocol import Grant
from makegood.store.postgres.statements import SharedTx
from makegood.store.rows import Interner
from makegood.store.transaction import is_over

T = TypeVar("T")
Row = asyncpg.Record

CHANNEL = "makegood"

_MARK = """
update makegood.writer set number = $3, outcome = null, at = extract(epoch from clock_timestamp())::float8
where id = $1 and number = $2
returning (select count(pg_notify('makegood', topic)) from unnest($4::text[]) topic)
"""
_TERM = """
select 1 from makegood.lease
where name = $1 and nonce = $2 and epoch = $3 and holder is not null
    and expires_at > extract(epoch from clock_timestamp())::float8
for share
"""


class WriterGoneError(Exception):
    """The writer's row is not as its connection left it. Nothing was written; the writer needs a new row."""


@dataclass(slots=True)
class WriteTransaction(SharedTx):
    """One write under way."""

    plans: Interner
    writer: int
    before: int
    """The writer's number so far."""
    number: int
    """The number that this write carries."""
    is_sent: bool = False
    """Whether the committing statement has been sent, so the outcome is unknown if the
    connection is lost now.
    """
    has_mark: bool = False
    """Whether the number is written."""
    idle: bool = False
    """Whether there was nothing to write."""

    async def row(self, sql: str, *values: Any) -> Row | None:
        """Execute one statement; return its first row."""
        return await self.connection.fetchrow(sql, *values)

    async def mark(self) -> None:
        """Write the number into the writer's row and notify other processes. The last
        write before the commit.
        """
        if await self.row(_MARK, self.writer, self.before, self.number, sorted(self.topics)) is None:
            raise WriterGoneError
        self.has_mark = True

    async def fence(self, term: Grant) -> None:
        """Refuse a write whose term is over; hold the term until the commit. Raises ``FencedOffError``."""
        if await self.row(_TERM, term.name, term.nonce, term.epoch) is None:
            raise is_over(term)


Work = Callable[[WriteTransaction], Awaitable[T]]
"""A write. It may be tried again, so it affects only the database, and nothing else before it returns."""

Recover = Callable[[WriteTransaction, Sequence[int] | None], Awaitable[T]]
"""Makes a write's answer from the writer's ``outcome``, if the write was committed but its answer lost."""


async def within(tx: WriteTransaction, work: Work[T], term: Grant | None = None) -> T:
    """Run ``work`` in an explicit transaction; with ``term``, under that lease. ``work`` may have
    marked the number itself.
    """
    connection = tx.connection
    await connection.execute("BEGIN")
    try:
        value = await work(tx)
        if not (tx.has_mark or tx.idle):
            await tx.mark()
        if term is not None:
            await tx.fence(term)
    except Exception:
        if not connection.is_closed():
            await connection.execute("ROLLBACK")
        raise
    tx.is_sent = tx.has_mark
    if await connection.execute("COMMIT") != "COMMIT":
        raise WriterGoneError  # a statement had failed unnoticed, and the server rolled back
    return value
