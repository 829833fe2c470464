"""An outbox in a PostgreSQL database.

The entries that one relay sends are locked meanwhile; other relays take the next ones.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeAlias

import asyncpg
import msgspec
from asyncpg import exceptions as pg

from makegood.base.postgres_errors import UnreachedError, connect_error
from makegood.base.postgres_hosts import PostgresHosts
from makegood.base.postgres_target import target_of
from makegood.base.text import session_name
from makegood.errors import ConfigError, MakegoodError, StoreUnavailableError
from makegood.messaging.outbox.protocol import MISSING, MOST_BYTES, Entry

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

_LIMIT = 10.0
"""Seconds that a connection or a statement may take."""

EQ = "operator(pg_catalog.=)"

# Another role may make an operator or a function in a schema of the application's search path, and behind a
# proxy each transaction may have another session. So the search path is read once, to find the table, and
# each name here is the server's own. Parameters are sent as text: for arrays the driver would query the
# server with statements of its own.
_WHERE = f"""
select pg_catalog.format('%I.%I', n.nspname, c.relname) from pg_catalog.pg_class c
    join pg_catalog.pg_namespace n on n.oid {EQ} c.relnamespace
where c.oid {EQ} pg_catalog.to_regclass('makegood_outbox')
"""  # noqa: S608 - our own text
_FOUND = f"""
with found as materialized (
    select o.seq, pg_catalog.octet_length(o.payload::pg_catalog.text) as octets from @outbox o
    where o.error is null and not exists (
        select 1 from pg_catalog.jsonb_array_elements_text($1::pg_catalog.text::pg_catalog.jsonb) as x (queue) where x.queue {EQ} o.queue
    ) order by o.seq limit $2::int for update of o skip locked
),
placed as (
    select seq, pg_catalog.count(*) over () as met,
        pg_catalog.sum(octets) over (order by seq rows unbounded preceding) operator(pg_catalog.-) octets as before
    from found
)
select o.seq, o.key, o.queue, o.payload::pg_catalog.text, o.reply_to, o.correlation_id, p.met
from placed p join @outbox o on o.seq {EQ} p.seq where coalesce(p.before, 0) operator(pg_catalog.<) $3::bigint order by o.seq
"""  # noqa: S608 - our own text
_SETTLE = f"""
with aside as (
    update @outbox o set error = x.why
    from pg_catalog.jsonb_to_recordset($2::pg_catalog.text::pg_catalog.jsonb) as x (seq bigint, why pg_catalog.text)
    where o.seq {EQ} x.seq
)
delete from @outbox where seq {EQ} any (
    array(select x::bigint from pg_catalog.jsonb_array_elements_text($1::pg_catalog.text::pg_catalog.jsonb) as x)
)
"""  # noqa: S608 - our own text
# TimeoutError is an OSError
_GONE = (OSError, EOFError, asyncpg.PostgresError, asyncpg.InterfaceError, pg.InternalClientError)
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
    table: str
    entries: Sequence[Entry]
    more: bool

    async def settle(self, seqs: Sequence[int], refusals: Sequence[tuple[int, str]]) -> None:
        """Delete and set aside, in the transaction that holds the entries."""
        aside = [{"seq": seq, "why": why} for seq, why in refusals]
        await self.connection.execute(_SETTLE.replace("@outbox", self.table), _text(list(seqs)), _text(aside))


class PostgresOutbox:
    """The outbox in the database that ``url`` names."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: Connection | None = None
        self._table = ""
        self._reached = False
        self._target = target_of(url, "the outbox's URL")
        self._hosts = PostgresHosts(self._target)
        self._server = self._target.where
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
        """Return the oldest entries that no other relay has, and hold them until the context is left."""
        connection = await self._connect()
        try:
            async with asyncio.timeout(_LIMIT):
                transaction = connection.transaction()
                await transaction.start()
                self._table = self._table or await self._find_table(connection)
                sql = _FOUND.replace("@outbox", self._table)
                rows = await connection.fetch(sql, _text(list(without)), limit, MOST_BYTES)
            entries = [Entry(*row[:6]) for row in map(tuple, rows)]
            scan_count = rows[0]["met"] if rows else 0
            yield _Taking(
                connection, self._table, entries, more=scan_count == limit or scan_count > len(entries)
            )
            async with asyncio.timeout(_LIMIT):
                await transaction.commit()
        except BaseException as fault:
            self._drop()  # what was not committed is there again
            if (error := self._explanation(fault)) is not None:
                raise error from fault
            raise

    def _explanation(self, fault: BaseException) -> MakegoodError | None:
        """Return a database fault as an error of makegood's family, None for any other fault."""
        if isinstance(fault, pg.UndefinedTableError):
            return ConfigError(MISSING.format(where=self.where))
        if isinstance(fault, _WRONG):
            return ConfigError(f"{self.where}: {fault}")
        if isinstance(fault, _GONE):
            return StoreUnavailableError(f"{self.where} cannot be used now: {type(fault).__name__}: {fault}")
        return None

    async def _connect(self) -> Connection:
        if self._connection is None or self._connection.is_closed():
            try:
                connection = await self._hosts.connect(
                    asyncpg.connect,
                    limit=self._target.patience(_LIMIT),
                    ready=_answering,
                    private=False,  # nothing is set on it, so it may go through a proxy that shares sessions
                    session=session_name("relay"),
                    command_timeout=_LIMIT,
                    statement_cache_size=0,
                )
            except (ValueError, OverflowError, UnreachedError) as fault:
                raise connect_error(
                    fault, f"the outbox: {self._server}", url=self._url, reached=self._reached
                ) from None  # a cause might show the URL
            self._reached, self._connection = True, connection
        return self._connection

    async def _find_table(self, connection: Connection) -> str:
        """Return the table's name with its schema, found through the role's own search path."""
        table: str | None = await connection.fetchval(_WHERE)
        if table is None:
            raise ConfigError(MISSING.format(where=self.where))
        return table

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        self._table = ""
        if connection is not None:
            connection.terminate()


async def _answering(connection: Connection) -> Connection:
    """See that the server behind a connection answers."""
    await connection.execute("select 1")
    return connection


def _text(value: object) -> str:
    return msgspec.json.encode(value).decode()
