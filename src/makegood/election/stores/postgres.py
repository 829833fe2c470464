"""Leases in PostgreSQL: a row per name in a schema of its own, ``makegood_election``, created if it is
missing.

It uses a row and not an advisory lock: a row survives poolers and lost connections, it has an epoch, and the
leader's own transaction can check it (``term.guard(connection)``). The server's clock judges expiry. A server
whose wall clock is set *forward* by more than the ttl lets the lease run out early, so let it be slewed, as
chrony and ntpd do.

Every call is one statement on one connection, opened when it is needed. A call without an answer is never
cancelled at the server: that takes a second connection, which a black hole swallows as well. The connection
is dropped.

A call is answered once its commit is on the synchronous standby, if there is one. If somebody cancels that
wait at the server, the call waits for a later commit, otherwise a promoted standby would give the same epoch
to another candidate.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

import asyncpg
from asyncpg import exceptions as pg

from makegood.base.clock import Clock
from makegood.base.contexts import home_context
from makegood.base.durations import Duration, seconds
from makegood.base.postgres_commits import CommitWatch
from makegood.base.postgres_errors import UnreachedError, refused
from makegood.base.postgres_hosts import PostgresHosts
from makegood.base.postgres_session import CONDUCT, TIMEOUTS, VALUES, set_up
from makegood.base.postgres_target import target_of
from makegood.base.stored_values import record_of
from makegood.base.text import session_name
from makegood.election.protocol import Fence, Grant, LeaseView, PastTerm
from makegood.election.stores.base import Closing, lasting
from makegood.election.stores.postgres_sql import SCHEMA, TABLES, statements
from makegood.errors import ConfigError, StoreUnavailableError

log = logging.getLogger("makegood.election")

T = TypeVar("T")
Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

_SQL = statements(f"{SCHEMA}.lease", f"{SCHEMA}.term")
_FENCE = _SQL.fence.replace("$1", ":name").replace("$2", ":nonce").replace("$3", ":epoch")
_KNOWN = f"select pg_catalog.to_regclass('{SCHEMA}.term') is not null"
# With synchronous_commit = local a grant would not wait for the standby, and its epoch would be lost with the
# primary.
_SESSION = """
select set_config('application_name', coalesce(nullif(current_setting('application_name'), ''), $1), false),
    set_config('synchronous_commit',
        case when current_setting('synchronous_commit') in ('off', 'local') then 'on' else current_setting('synchronous_commit') end, false)
"""
_OWN_SETTINGS = frozenset(name.lower() for name in ("search_path", *TIMEOUTS, *CONDUCT, *VALUES))
_WRONG = (pg.InvalidCatalogNameError, pg.InsufficientPrivilegeError, pg.UndefinedObjectError)
_GONE = (OSError, asyncpg.PostgresConnectionError, asyncpg.InterfaceError, pg.InternalClientError)


@dataclass(slots=True, eq=False)
class _Line:
    """A connection, for one call at a time."""

    connection: "Connection | None" = None
    watch: CommitWatch | None = None
    """Of that connection."""
    has_tables: bool = False
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
        self._context = home_context()  # a connection made by a call outlives its caller
        self._taking: dict[str, asyncio.Task[Any]] = {}
        self._leaving: dict[asyncio.Task[None], tuple[_Line, asyncio.Task[Any]]] = {}
        self._has_answered = False
        self._target = target_of(url, "the URL of the leases", own=_OWN_SETTINGS)
        self._hosts = PostgresHosts(self._target)
        self._server = self._target.where
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
        return record_of(
            LeaseView, (name, row["holder"], row["epoch"], row["ttl"], row["taken_at"], row["remaining"])
        )

    async def past_terms(self, name: str, limit: int = 100) -> list[PastTerm]:
        """Return the latest terms, newest first."""

        async def look(connection: Connection) -> list[asyncpg.Record]:
            with contextlib.suppress(pg.UndefinedTableError):
                return await connection.fetch(_SQL.past, name, limit)
            return []

        rows = await self._do(look, make=False)
        return [record_of(PastTerm, row) for row in rows]

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
        going = asyncio.get_running_loop().create_task(
            self._call(line, work, make=make), context=self._context.copy()
        )
        if nonce:
            self._taking[nonce] = going
            going.add_done_callback(lambda call: self._taken(nonce, call))
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

    def _taken(self, nonce: str, call: "asyncio.Task[Any]") -> None:
        if self._taking.get(nonce) is call:
            del self._taking[nonce]

    async def _call(self, line: _Line, work: Callable[[Connection], Awaitable[T]], *, make: bool) -> T:
        async with line.turn:
            try:
                connection, watch = await self._dialled(line)
                if make and not line.has_tables:
                    if not await connection.fetchval(_KNOWN):
                        await connection.execute(TABLES)
                        log.info("created the tables of %s, schema %s", self._where, SCHEMA)
                    line.has_tables = True
                answer = await work(connection)
                await watch.settle()
                return answer
            except _GONE as loss:
                line.drop()
                raise StoreUnavailableError(f"{self._where}: {str(loss) or type(loss).__name__}") from loss
            except pg.InvalidAuthorizationSpecificationError as denial:
                raise ConfigError(f"{self._where}: {denial}") from None
            except _WRONG as wrong:
                raise ConfigError(f"{self._where}: {wrong}") from wrong
            except asyncpg.PostgresError as fault:
                line.drop()
                raise StoreUnavailableError(f"{self._where}: {fault}") from fault

    async def _dialled(self, line: _Line) -> tuple[Connection, CommitWatch]:
        if line.connection is not None and line.watch is not None and not line.connection.is_closed():
            return line.connection, line.watch
        limits = {
            "lock_timeout": f"{max(1, round(self._timeout * 500))}ms",
            "statement_timeout": f"{round(self._timeout * 1000)}ms",
        }
        settings = {**CONDUCT, **VALUES, **TIMEOUTS, **limits}

        async def ready(connection: Connection) -> Connection:
            await set_up(connection, settings)
            await connection.execute(_SESSION, session_name("election"))
            return connection

        try:
            session = await self._hosts.connect(
                asyncpg.connect,
                limit=min(self._timeout, self._target.patience(self._timeout)),
                ready=ready,
                statement_cache_size=0,  # Prepared statements do not survive a pooler.
            )
        except (ValueError, OverflowError, UnreachedError) as fault:
            raise refused(
                fault, f"the leases: {self._server}", url=self._url, reached=self._has_answered
            ) from None  # A cause might show the URL.
        self._has_answered = True
        watch = CommitWatch(session, log, self._where)
        line.connection, line.watch, line.has_tables = session, watch, False
        return session, watch


async def _ended(line: _Line, going: "asyncio.Task[Any]") -> None:
    """Drop a connection, and end the call on it. The connection goes first: a query is never cancelled."""
    line.drop()
    going.cancel()
    await asyncio.wait([going], timeout=1)


def from_url(url: str, *, clock: Clock, timeout: float) -> PostgresLeases:  # noqa: ARG001 - the server's clock judges
    """Open ``postgresql://user@host/database``."""
    return PostgresLeases(url, timeout=timeout)
