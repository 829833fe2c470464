"""Leases in PostgreSQL: a row per name in a schema of its own, ``makegood_election``, created if it is
missing.

It uses a row and not an advisory lock: a row survives poolers and lost connections, it has an epoch, and the
leader's own transaction can check it (``term.guard(connection)``). The server's clock judges expiry. A server
whose wall clock is set *forward* by more than the ttl lets the lease run out early, so let it be slewed, as
chrony and ntpd do.

Every call is one statement on one connection, opened when it is needed. A call without an answer is never
cancelled at the server: that takes a second connection, which a black hole swallows as well. The connection
is dropped.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

import asyncpg
from asyncpg import exceptions as pg
from asyncpg.connect_utils import SessionAttribute

from makegood.base.clock import Clock
from makegood.base.durations import Duration, seconds
from makegood.base.postgres_errors import OWN_PATH, refused, server_of
from makegood.base.text import session_name
from makegood.election.protocol import Fence, Grant, LeaseView, PastTerm
from makegood.election.stores.base import Closing, lasting
from makegood.election.stores.postgres_sql import statements
from makegood.errors import ConfigError, StoreUnavailableError

T = TypeVar("T")
Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

SCHEMA = "makegood_election"
_SQL = statements(f"{SCHEMA}.lease", f"{SCHEMA}.term")
_FENCE = _SQL.fence.replace("$1", ":name").replace("$2", ":nonce").replace("$3", ":epoch")
_KNOWN = f"select pg_catalog.to_regclass('{SCHEMA}.term') is not null"
_LOCK = 6_081_967
"""The number of an advisory lock: two processes that create the tables at the same time would collide."""

_TABLES = f"""
select pg_catalog.pg_advisory_xact_lock({_LOCK});
create schema if not exists {SCHEMA};
create table if not exists {SCHEMA}.lease (
    name text primary key,
    holder text,
    nonce text not null,
    epoch bigint not null,
    ttl double precision not null,
    expires_at double precision not null,
    taken_at double precision not null
) with (fillfactor = 50);
create table if not exists {SCHEMA}.term (
    name text not null,
    epoch bigint not null,
    holder text not null,
    began_at double precision not null,
    ended_at double precision,
    released boolean not null,
    primary key (name, epoch)
);
"""
_DURABLE = (
    "select set_config('synchronous_commit', 'on', false) where current_setting('synchronous_commit') = 'off'"
)
_WRONG = (pg.InvalidCatalogNameError, pg.InsufficientPrivilegeError, pg.UndefinedObjectError)
_GONE = (OSError, asyncpg.PostgresConnectionError, asyncpg.InterfaceError, pg.InternalClientError)


@dataclass(slots=True, eq=False)
class _Line:
    """A connection, for one call at a time."""

    connection: "Connection | None" = None
    made: bool = False
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    def drop(self) -> None:
        """Drop the connection without notice; nothing is cancelled at the server."""
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.terminate()


class PostgresLeases(Closing):
    """A lease store in the database that ``url`` names. ``timeout``: how long a call may take."""

    def __init__(self, url: str, *, timeout: Duration = 5) -> None:
        self._url = url
        self._timeout = seconds(timeout, name="timeout", least=0.01)
        self._line = _Line()
        self._taking: dict[str, asyncio.Task[Any]] = {}
        self._leaving: dict[asyncio.Task[None], tuple[_Line, asyncio.Task[Any]]] = {}
        self._reached = False
        self._server = server_of(url, "the URL of the leases")
        self._where = f"the leases in {self._server}"

    async def acquire(self, name: str, holder: str, nonce: str, ttl: float) -> Grant | None:
        """Take a lease that is free, expired or ours already. It waits for a transaction that guards the
        lease.
        """
        lasting(ttl)

        async def take(connection: Connection) -> Grant | None:
            try:
                row = await connection.fetchrow(_SQL.acquire, name, holder, nonce, ttl)
            except pg.LockNotAvailableError:
                return None  # It is held: a transaction guards it.
            return None if row is None else Grant(name, holder, nonce, row["epoch"], ttl)

        return await self._do(take, nonce=nonce)

    async def renew(self, grant: Grant) -> bool:
        """Extend a lease that is still held; False if the term is over."""
        values = (grant.name, grant.nonce, grant.epoch)
        return await self._do(lambda connection: connection.fetchrow(_SQL.renew, *values)) is not None

    async def release(self, grant: Grant) -> None:
        """Free a lease that is still this grant's. It waits for a take under way, which might otherwise come
        later.
        """
        taking = self._taking.get(grant.nonce)
        if taking is not None:
            await asyncio.wait([taking], timeout=self._timeout)
        await self._do(lambda connection: connection.execute(_SQL.release, grant.name, grant.nonce))

    async def read(self, name: str) -> LeaseView | None:
        """Return who holds a lease."""

        async def look(connection: Connection) -> asyncpg.Record | None:
            with contextlib.suppress(pg.UndefinedTableError):
                return await connection.fetchrow(_SQL.read, name)
            return None

        row = await self._do(look, make=False)
        if row is None:
            return None
        return LeaseView(name, row["holder"], row["epoch"], row["ttl"], row["taken_at"], row["remaining"])

    async def past_terms(self, name: str, limit: int = 100) -> list[PastTerm]:
        """Return the latest terms, newest first."""

        async def look(connection: Connection) -> list[asyncpg.Record]:
            with contextlib.suppress(pg.UndefinedTableError):
                return await connection.fetch(_SQL.past, name, limit)
            return []

        rows = await self._do(look, make=False)
        return [PastTerm(*row) for row in rows]

    def fence(self, grant: Grant) -> Fence:
        """Return the statement that checks the grant in a transaction on the same database."""
        return Fence("postgresql", _FENCE, {"name": grant.name, "nonce": grant.nonce, "epoch": grant.epoch})

    async def close(self) -> None:
        """Close the connections."""
        line, self._line = self._line, _Line()
        for left, going in self._leaving.values():
            left.drop()
            going.cancel()
        await asyncio.gather(*self._leaving)
        if line.connection is not None:
            with contextlib.suppress(TimeoutError, asyncpg.PostgresError, *_GONE):
                await line.connection.close(timeout=self._timeout)

    async def _do(
        self, work: Callable[[Connection], Awaitable[T]], *, make: bool = True, nonce: str = ""
    ) -> T:
        """Run one call while the others wait; ``make`` the tables, if they are missing: reads write nothing.

        ``nonce``: of a take. When its caller is cancelled, the call's connection is dropped; a take keeps it
        to its end, since ``release`` waits for it.
        """
        line = self._line
        going = asyncio.get_running_loop().create_task(self._call(line, work, make=make))
        if nonce:
            self._taking[nonce] = going
            going.add_done_callback(lambda done: self._taken(nonce, done))
        try:
            async with asyncio.timeout(self._timeout):
                return await asyncio.shield(going)
        except TimeoutError as silent:
            if going.done() and not going.cancelled() and going.exception() is silent:
                raise StoreUnavailableError(f"{self._where}: {silent}") from silent
            await _ended(line, going)
            raise StoreUnavailableError(f"{self._where}: no answer within {self._timeout:g} s") from silent
        finally:
            if not going.done() and nonce:
                self._leave(line, going)
            elif not going.done():
                await _ended(line, going)

    def _leave(self, line: _Line, going: "asyncio.Task[Any]") -> None:
        """Abandon a call and its connection; the next call gets another connection."""
        if self._line is line:
            self._line = _Line()
        leaving = asyncio.get_running_loop().create_task(self._left(line, going))
        self._leaving[leaving] = line, going
        leaving.add_done_callback(self._leaving.pop)

    async def _left(self, line: _Line, going: "asyncio.Task[Any]") -> None:
        """Let an abandoned call end, within its time-out, then the calls that wait for its connection."""
        await asyncio.wait([going], timeout=self._timeout)
        if not going.done():
            await _ended(line, going)
        async with line.turn:
            line.drop()

    def _taken(self, nonce: str, done: "asyncio.Task[Any]") -> None:
        if self._taking.get(nonce) is done:
            del self._taking[nonce]

    async def _call(self, line: _Line, work: Callable[[Connection], Awaitable[T]], *, make: bool) -> T:
        async with line.turn:
            try:
                connection = await self._dialled(line)
                if make and not line.made:
                    if not await connection.fetchval(_KNOWN):
                        await connection.execute(_TABLES)
                    line.made = True
                return await work(connection)
            except _GONE as lost:
                line.drop()
                raise StoreUnavailableError(f"{self._where}: {str(lost) or type(lost).__name__}") from lost
            except pg.InvalidAuthorizationSpecificationError as barred:
                raise ConfigError(f"{self._where}: {barred}") from None
            except _WRONG as wrong:
                raise ConfigError(f"{self._where}: {wrong}") from wrong
            except asyncpg.PostgresError as fault:
                line.drop()
                raise StoreUnavailableError(f"{self._where}: {fault}") from fault

    async def _dialled(self, line: _Line) -> Connection:
        if line.connection is not None and not line.connection.is_closed():
            return line.connection
        settings = {
            "application_name": session_name("election"),
            "lock_timeout": f"{max(1, round(self._timeout * 500))}ms",
            "statement_timeout": f"{round(self._timeout * 1000)}ms",
        }
        try:
            made = await asyncpg.connect(
                self._url,
                timeout=self._timeout,
                statement_cache_size=0,  # Prepared statements do not survive a pooler.
                target_session_attrs=SessionAttribute.read_write,
                server_settings=settings,
            )
        except (ValueError, OverflowError, *_GONE, asyncpg.PostgresError) as fault:
            raise refused(
                fault, f"the leases: {self._server}", url=self._url, reached=self._reached
            ) from None  # A cause might show the URL.
        self._reached = True
        try:
            await made.execute(f"{OWN_PATH}; {_DURABLE}")
        except BaseException:
            made.terminate()
            raise
        line.connection, line.made = made, False
        return made


async def _ended(line: _Line, going: "asyncio.Task[Any]") -> None:
    """Drop a connection, and end the call on it. The connection goes first: a query is never cancelled."""
    line.drop()
    going.cancel()
    await asyncio.wait([going], timeout=1)


def from_url(url: str, *, clock: Clock, timeout: float) -> PostgresLeases:  # noqa: ARG001 - the server's clock judges
    """Open ``postgresql://user@host/database``."""
    return PostgresLeases(url, timeout=timeout)
