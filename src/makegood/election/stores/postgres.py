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
from typing import TypeVar

import asyncpg
from asyncpg import exceptions as pg

from makegood.base.clock import Clock
from makegood.base.durations import Duration
from makegood.base.postgres_commits import CommitWatch
from makegood.base.postgres_errors import UnreachedError, connect_error
from makegood.base.postgres_hosts import PostgresHosts
from makegood.base.postgres_session import CONDUCT, TIMEOUTS, VALUES, Connection, set_up
from makegood.base.postgres_target import target_of
from makegood.base.text import session_name
from makegood.election.protocol import Fence, Grant, LeaseView, PastTerm
from makegood.election.stores.calls import RemoteLeases
from makegood.election.stores.postgres_sql import SCHEMA, TABLES
from makegood.election.stores.postgres_table import PostgresLeaseTable
from makegood.errors import MakegoodError

log = logging.getLogger("makegood.election")

T = TypeVar("T")

_LEASES = PostgresLeaseTable(f"{SCHEMA}.lease", f"{SCHEMA}.term")
_FENCE = _LEASES.fence.replace("$1", ":name").replace("$2", ":nonce").replace("$3", ":epoch")
_KNOWN = f"select pg_catalog.to_regclass('{SCHEMA}.term') is not null"
# With synchronous_commit = local a grant would not wait for the standby, and its epoch would be lost with the
# primary.
_SESSION = """
select set_config('application_name', coalesce(nullif(current_setting('application_name'), ''), $1), false),
    set_config('synchronous_commit',
        case when current_setting('synchronous_commit') in ('off', 'local') then 'on' else current_setting('synchronous_commit') end, false)
"""
_OWN_SETTINGS = frozenset(name.lower() for name in ("search_path", *TIMEOUTS, *CONDUCT, *VALUES))
_WRONG = (
    pg.InvalidAuthorizationSpecificationError, pg.InvalidCatalogNameError, pg.InsufficientPrivilegeError, pg.UndefinedObjectError,
)  # fmt: skip
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

    async def leave(self) -> None:
        """Drop the connection after the calls that use it or wait for it."""
        async with self.turn:
            self.drop()


class PostgresLeases(RemoteLeases):
    """A lease store in the database that ``url`` names. ``timeout``: how long a call may take."""

    def __init__(self, url: str, *, timeout: Duration = 5) -> None:
        self._target = target_of(url, "the URL of the leases", own=_OWN_SETTINGS)
        super().__init__(f"the leases in {self._target.where}", timeout=timeout)
        self._url = url
        self._line = _Line()
        self._has_answered = False
        self._hosts = PostgresHosts(self._target)

    async def take(self, name: str, holder: str, nonce: str, ttl: float) -> Grant | None:
        """Take it by one statement, which waits for a transaction that guards the lease."""
        return await self._do(lambda connection: _LEASES.acquire(connection, name, holder, nonce, ttl))

    async def extend(self, grant: Grant) -> bool:
        """Renew it by one statement."""
        return await self._do(lambda connection: _LEASES.renew(connection, grant))

    async def free(self, grant: Grant) -> None:
        """Release it by one statement."""
        await self._do(lambda connection: _LEASES.release(connection, grant))

    async def look(self, name: str) -> LeaseView | None:
        """Read the row, by the server's clock."""

        async def read(connection: Connection) -> LeaseView | None:
            with contextlib.suppress(pg.UndefinedTableError):
                return await _LEASES.read(connection, name)
            return None

        return await self._do(read, make=False)

    async def remember(self, name: str, limit: int) -> list[PastTerm]:
        """Read the rows of the terms."""

        async def read(connection: Connection) -> list[PastTerm]:
            with contextlib.suppress(pg.UndefinedTableError):
                return await _LEASES.past_terms(connection, name, limit)
            return []

        return await self._do(read, make=False)

    def fence(self, grant: Grant) -> Fence:
        """Return the statement that checks the grant in a transaction on the same database."""
        return Fence("postgresql", _FENCE, {"name": grant.name, "nonce": grant.nonce, "epoch": grant.epoch})

    async def disconnect(self) -> None:
        """Close the connection."""
        line, self._line = self._line, _Line()
        if line.connection is not None:
            with contextlib.suppress(TimeoutError, asyncpg.PostgresError, *_GONE):
                await line.connection.close(timeout=self._timeout)

    def meaning(self, fault: Exception) -> MakegoodError | None:
        """Separate faults that can never work from those that may pass."""
        if isinstance(fault, _WRONG):
            return self.wrong(fault)
        return self.unavailable(fault) if isinstance(fault, (asyncpg.PostgresError, *_GONE)) else None

    def leave_line(self) -> None:
        """Let the calls under way end on their connection; the next call gets another one."""
        line, self._line = self._line, _Line()
        self.later(line.leave())

    async def _do(self, work: Callable[[Connection], Awaitable[T]], *, make: bool = True) -> T:
        """Run one call while the others wait; ``make`` the tables, if they are missing: reads write nothing.

        A call that fails, or has no answer in time, loses its connection. asyncpg cancels a query at the
        server by a task of its own; to drop the connection ends that task before it begins.
        """
        line = self._line
        async with line.turn:
            try:
                connection, watch = await self._connect(line)
                if make and not line.has_tables:
                    if not await connection.fetchval(_KNOWN):
                        await connection.execute(TABLES)
                        log.info("created the tables of %s, schema %s", self._where, SCHEMA)
                    line.has_tables = True
                answer = await work(connection)
                await watch.settle()
            except BaseException:
                line.drop()
                raise
            return answer

    async def _connect(self, line: _Line) -> tuple[Connection, CommitWatch]:
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
            raise connect_error(
                fault, f"the leases: {self._target.where}", url=self._url, reached=self._has_answered
            ) from None  # A cause might show the URL.
        self._has_answered = True
        watch = CommitWatch(session, log, self._where)
        line.connection, line.watch, line.has_tables = session, watch, False
        return session, watch


def from_url(url: str, *, clock: Clock, timeout: float) -> PostgresLeases:  # noqa: ARG001 - the server's clock judges
    """Open ``postgresql://user@host/database``."""
    return PostgresLeases(url, timeout=timeout)
