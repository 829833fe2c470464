"""An outbox in a PostgreSQL database. The entries that one relay sends are locked meanwhile; others take the next ones."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeAlias

import asyncpg
from asyncpg import exceptions as pg

from makegood.errors import ConfigError, MakegoodError, StoreUnavailableError
from makegood.outbox.protocol import MISSING, Entry
from makegood.reaching import refused, server_of

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

_LIMIT = 10.0
"""Seconds that a connection or a statement may take."""

_FOUND = """
select seq, key, queue, payload::text, reply_to, correlation_id from makegood_outbox
where error is null and queue <> all ($1::text[]) order by seq limit $2 for update skip locked
"""
_SETTLE = """
with aside as (
    update makegood_outbox o set error = x.why from unnest($2::bigint[], $3::text[]) as x (seq, why) where o.seq = x.seq
)
delete from makegood_outbox where seq = any ($1::bigint[])
"""
_GONE = (
    OSError,
    EOFError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    pg.InternalClientError,
    TimeoutError,
)
_WRONG = (
    pg.InvalidPasswordError,
    pg.InvalidAuthorizationSpecificationError,
    pg.InvalidCatalogNameError,
    pg.InsufficientPrivilegeError,
    pg.UndefinedColumnError,
    asyncpg.ClientConfigurationError,
)


@dataclass(slots=True)
class _Taking:
    connection: Connection
    entries: Sequence[Entry]

    async def settle(self, done: Sequence[int], refused: Sequence[tuple[int, str]]) -> None:
        """Delete and set aside, in the transaction that holds the entries."""
        seqs, whys = [seq for seq, _ in refused], [why for _, why in refused]
        await self.connection.execute(_SETTLE, list(done), seqs, whys)


class PostgresOutbox:
    """The outbox in the database that ``url`` names."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: Connection | None = None
        self._reached = False
        self._server = server_of(url)
        self.where = f"the outbox in {self._server}"

    async def open(self) -> None:
        """See that it can be read."""
        async with self.take(1, ()):
            return

    async def close(self) -> None:
        """Let go of the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(*_GONE):
                await connection.close(timeout=1.0)

    @asynccontextmanager
    async def take(self, limit: int, without: Sequence[str]) -> AsyncIterator[_Taking]:
        """Give the oldest entries that no other relay has, and hold them until it is left."""
        connection = await self._dialled()
        try:
            async with asyncio.timeout(_LIMIT):
                transaction = connection.transaction()
                await transaction.start()
                rows = await connection.fetch(_FOUND, list(without), limit)
            yield _Taking(connection, [Entry(*row) for row in rows])
            async with asyncio.timeout(_LIMIT):
                await transaction.commit()
        except BaseException as fault:
            self._drop()  # what was not committed is there again
            if (told := self._told(fault)) is not None:
                raise told from fault
            raise

    def _told(self, fault: BaseException) -> MakegoodError | None:
        """Return a fault of the database as an error of the family, None for any other."""
        if isinstance(fault, pg.UndefinedTableError):
            return ConfigError(MISSING.format(where=self.where))
        if isinstance(fault, _WRONG):
            return ConfigError(f"{self.where}: {fault}")
        if isinstance(fault, _GONE):
            return StoreUnavailableError(f"{self.where} cannot be used now: {type(fault).__name__}: {fault}")
        return None

    async def _dialled(self) -> Connection:
        if self._connection is None or self._connection.is_closed():
            try:
                self._connection = await asyncpg.connect(
                    self._url,
                    timeout=_LIMIT,
                    command_timeout=_LIMIT,
                    statement_cache_size=0,  # it may go through a proxy
                    server_settings={"application_name": "makegood relay"},
                )
            except (ValueError, OverflowError) as fault:
                raise refused(fault, f"the outbox: {self._server}") from None  # a cause might show the URL
            except (*_GONE, *_WRONG) as fault:
                raise refused(fault, f"the outbox: {self._server}", reached=self._reached) from fault
            self._reached = True
        return self._connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.terminate()
