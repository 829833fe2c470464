"""The statements of shared verbs on a connection."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import asyncpg

from makegood.base.ids import show
from makegood.base.postgres_session import Connection
from makegood.store.postgres.errors import is_data
from makegood.store.transaction import EVENT, Sql

log = logging.getLogger("makegood.store")


@dataclass(slots=True)
class SharedTx:
    """Reads and writes on a connection, as shared verbs make them."""

    connection: Connection
    topics: set[str] = field(default_factory=set, kw_only=True)
    """Topics to wake after the commit."""
    again: bool = field(default=False, kw_only=True)
    """Whether an earlier try gave way, perhaps to a lock that is held for long."""
    wrote: bool = field(default=False, kw_only=True)
    """Whether rows were changed."""

    async def rows(self, sql: str | Sql, *values: Any) -> list[asyncpg.Record]:
        """Execute one statement; return all its rows."""
        if isinstance(sql, str):
            return await self.connection.fetch(sql, *values)
        rows: list[asyncpg.Record] = await self.connection.fetch(sql.postgres, *values)
        if rows and sql.writes:
            self.wrote = True
        return rows

    async def run(self, sql: str | Sql, *values: Any) -> int:
        """Execute one statement; return the number of rows that it changed."""
        status = await self.connection.execute(sql if isinstance(sql, str) else sql.postgres, *values)
        count = int(status.rpartition(" ")[2])
        if count:
            self.wrote = True
        return count

    async def many(self, sql: Sql, rows: Sequence[Sequence[Any]], *constants: Any) -> int:
        """Execute one statement for all of these rows."""
        return await self.run(sql, *map(list, zip(*rows, strict=True)), *constants) if rows else 0

    async def each(self, sql: Sql, rows: Sequence[Sequence[Any]], *constants: Any) -> list[asyncpg.Record]:
        """Execute one statement for all of these rows; return the rows that it returns."""
        return await self.rows(sql, *map(list, zip(*rows, strict=True)), *constants) if rows else []

    async def record(self, events: Sequence[tuple[int, bytes]]) -> None:
        """Add events (task, moves); if the database refuses that of one task, those of the others."""
        await self.connection.execute("SAVEPOINT recording")
        try:
            await self.many(EVENT, events)
        except Exception as fault:
            if not is_data(fault):
                raise
            await self.connection.execute("ROLLBACK TO SAVEPOINT recording")
            if len(events) == 1:
                log.warning("an event of task %s could not be added: %s", show(events[0][0]), fault)
                return
            middle = len(events) // 2
            await self.record(events[:middle])
            await self.record(events[middle:])
