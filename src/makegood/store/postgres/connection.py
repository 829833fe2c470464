"""Makes connections to the server ready: checked, session settings applied, history compared.

Each connection reads which history the server shows (system identifier and timeline). After a promotion or a
restore the same address may show an older state. Then the store's *generation* is raised, once, in a
transaction of its own.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Any, TypeAlias

import asyncpg
from asyncpg import exceptions as pg

from makegood.base.postgres_commits import CommitWatch
from makegood.base.postgres_errors import UnreachedError, connect_error, first_line
from makegood.base.postgres_hosts import PostgresHosts, answer_within, drop
from makegood.base.postgres_session import CONDUCT, PLANNER, TIMEOUTS, VALUES, set_up
from makegood.base.postgres_target import target_of
from makegood.base.text import session_name
from makegood.errors import ConfigError, StoreUnavailableError
from makegood.store.postgres import generation
from makegood.store.postgres.errors import is_lost
from makegood.store.records import Identity

log = logging.getLogger("makegood.store")

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
Driver: TypeAlias = Callable[..., Awaitable[Connection]]
"""Makes a connection: ``asyncpg.connect``, or a test's replacement that counts or fails."""

OLDEST = 14
_CONNECT = 10.0
_ANEW = 120.0
"""Seconds that beginning a new generation may take: it changes every task under way."""

OWN_SETTINGS: Mapping[str, str] = MappingProxyType({**TIMEOUTS, **CONDUCT, **VALUES, **PLANNER})
_FIXED = frozenset(name.lower() for name in ("search_path", *OWN_SETTINGS))
"""Settings of the server that the store sets, whatever a URL says."""

_SESSION = """
select pg_backend_pid() as pid, (select backend_start from pg_stat_activity where pid = pg_backend_pid()) as began,
    current_setting('server_version_num')::int / 10000 as major,
    current_setting('transaction_read_only') = 'on' as read_only,
    (select oid::bigint from pg_database where datname = current_database()) as database,
    set_config('application_name', coalesce(nullif(current_setting('application_name'), ''), $1), false),
    set_config('synchronous_commit',
        case current_setting('synchronous_commit') when 'off' then 'on' else current_setting('synchronous_commit') end, false)
"""

_HISTORY = """
select (select system_identifier::text from pg_control_system()) as system_id,
    left(pg_walfile_name(pg_current_wal_insert_lsn()), 8) as timeline
"""
_GENERATION = "select store_id, generation, system_id, timeline from makegood.generation"
WAITS = """
select 1 from pg_stat_activity where wait_event = 'SyncRep' and usename = current_user limit 1
"""

STANDBY = "waits for a synchronous standby that does not answer: start the standby, or change synchronous_standby_names"


AWAITING = (
    "shows a different history from the one in the store, as after a promotion or for a new store: a new generation must begin, and this role "
    "may not begin one: start a supervisor, or run `makegood store migrate` as the owner"
)


class AwaitingError(StoreUnavailableError):
    """A process with more rights must begin the new generation first."""


class Address:
    """Where the server is.

    ``url``: for connecting; it may contain a password. ``where``: for messages, which never show the
    password. ``session``: the name that the server shows for our connections.
    """

    def __init__(self, url: str, session: str | None = None) -> None:
        self.url = url
        self.target = target_of(url, own=_FIXED)
        self.hosts = PostgresHosts(self.target)
        self.session = session or session_name("client")
        self.where = self.target.where

    def __repr__(self) -> str:
        return self.where


@dataclass(slots=True, eq=False)
class Link:
    """A connection with its state."""

    connection: Connection
    pid: int
    began: datetime
    identity: Identity | None
    watch: CommitWatch
    generation_row: "asyncpg.Record | None" = None
    """The row of the generation, if it was read."""
    history: "asyncpg.Record | None" = None
    """The history that the server shows, None if the server does not reveal it."""

    @property
    def open(self) -> bool:
        """Whether it is still usable."""
        return not self.connection.is_closed()

    def is_replaced_by(self, later: "Link") -> bool:
        """Whether a later link shows another history, and a higher generation of the store."""
        if self.identity is None or later.identity is None or self.history is None or later.history is None:
            return False
        return self.history != later.history and self.identity.generation < later.identity.generation

    def terminate(self) -> None:
        """Drop the connection at once. Unlike a timeout of the driver, this cancels nothing at the server."""
        self.connection.terminate()

    async def close(self, limit: float) -> None:
        """Close the connection within ``limit`` seconds, else drop it."""
        try:
            async with asyncio.timeout(limit):
                await self.connection.close()
        except (TimeoutError, *_GONE):
            self.connection.terminate()


_GONE = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, pg.InternalClientError)


@dataclass(slots=True)
class Dialer:
    """Makes links."""

    address: Address
    driver: Driver
    compares_history: bool = False
    """Whether to compare the history with the generation, which needs the schema."""
    limit: float = _CONNECT
    identity: Identity | None = None
    pids: set[int] = field(default_factory=set)
    database: int = 0
    """The number of the database that the latest link is connected to."""
    system: str = ""
    """The system identifier of the latest link's server, "" if the server does not reveal it."""
    living: dict[Connection, Link | None] = field(default_factory=dict)
    """Every live connection made here, with its link once that is ready."""
    shut: bool = False

    def _forget(self, connection: Any) -> None:
        self.living.pop(connection, None)

    def hang_up(self) -> None:
        """Drop every live connection made here, even one in use, and make no more until ``shut`` is reset."""
        self.shut = True
        for connection in tuple(self.living):
            connection.terminate()

    async def dial(self) -> Link:
        """Return a new link. Raises ``ConfigError``, ``StoreUnavailableError``."""
        target = self.address.target
        try:
            link = await self.address.hosts.connect(
                self.driver,
                limit=target.patience(self.limit),
                ready=self._ready,
                statement_cache_size=1000,
                max_cached_statement_lifetime=0,
                max_cacheable_statement_size=0,
            )
        except (UnreachedError, ValueError, OverflowError) as fault:
            raise self._refusal(fault) from None  # a cause might contain the URL
        try:
            if self.compares_history:
                link.identity = self.identity = await self._check_identity(link)
                self._leave_behind(link)
            return link
        except BaseException as fault:
            await drop(link.connection)
            if is_lost(fault) or isinstance(fault, TimeoutError | asyncpg.PostgresError):
                raise self._refusal(fault) from fault
            raise

    def _leave_behind(self, link: Link) -> None:
        """Drop the connections to a server that another one has replaced: it may be silent, or write what is
        lost.
        """
        self.living[link.connection] = link
        for predecessor in tuple(self.living.values()):
            if predecessor is not None and predecessor.is_replaced_by(link):
                log.warning("%s: dropping a connection to a server that was replaced", self.address.where)
                predecessor.terminate()

    def _refusal(self, fault: BaseException) -> Exception:
        """Return the error that explains why there is no connection."""
        return connect_error(
            fault, self.address.where, url=self.address.url, reached=self.identity is not None
        )

    async def _ready(self, connection: Connection) -> Link:
        """Return a new connection as a link, its session set up."""
        if self.shut:
            raise StoreUnavailableError(f"{self.address.where}: the store is closed")
        self.living[connection] = None
        connection.add_termination_listener(self._forget)
        await set_up(connection, OWN_SETTINGS)
        row = await connection.fetchrow(_SESSION, self.address.session)
        assert row is not None
        if row["major"] < OLDEST:
            raise ConfigError(
                f"{self.address.where}: this is PostgreSQL {row['major']}, makegood needs {OLDEST} or later"
            )
        if row["read_only"]:
            raise pg.ReadOnlySQLTransactionError("the session is read-only")
        self.database = row["database"]
        watch = CommitWatch(connection, log, self.address.where)
        link = Link(connection, row["pid"], row["began"], None, watch)
        if self.compares_history:
            link.generation_row, link.history = await _histories(connection)
        self.pids.add(link.pid)
        connection.add_termination_listener(lambda _: self.pids.discard(link.pid))
        return link

    async def _check_identity(self, link: Link) -> Identity:
        """Return the store's identity; raise its generation if the server shows
        another history than before.
        """
        row, history = link.generation_row, link.history
        if row is None:
            raise ConfigError(
                f"{self.address.where}: the table makegood.generation is empty; restore a backup, this is not a makegood store"
            )
        if history is None:
            return Identity(row["store_id"], row["generation"])
        self.system = history["system_id"]
        before, now = (row["system_id"], row["timeline"]), (history["system_id"], history["timeline"])
        if before == now:
            return Identity(row["store_id"], row["generation"])
        await self._begin_generation(link, before, now)
        after = await link.connection.fetchrow(_GENERATION)
        assert after is not None
        return Identity(after["store_id"], after["generation"])

    async def _begin_generation(
        self, link: Link, old_history: generation.History, new_history: generation.History
    ) -> None:
        """Raise the generation.

        The commit may wait for a standby. This wait is never cancelled, since a cancelled commit would look
        done. Instead the connection is dropped, and the server keeps waiting.
        """
        connection, where, text = link.connection, self.address.where, ""

        async def work() -> None:
            nonlocal text
            await connection.execute("BEGIN")
            text = await generation.begin_generation(connection, old_history, new_history)

        async def commit() -> None:
            await connection.execute("COMMIT")
            await link.watch.settle()

        try:
            await answer_within(connection, _ANEW, work())
        except pg.InsufficientPrivilegeError as denial:
            raise AwaitingError(f"{where} {AWAITING} ({first_line(denial)})") from denial
        except pg.LockNotAvailableError as conflict:
            await connection.execute("ROLLBACK")
            reason = (
                STANDBY
                if await connection.fetchval(WAITS) is not None
                else "is being made ready by another process"
            )
            raise StoreUnavailableError(f"{where} {reason}") from conflict
        try:
            await answer_within(connection, self.limit, commit())
        except TimeoutError as timeout:
            raise StoreUnavailableError(
                f"{where} has a new generation, whose commit does not end; perhaps it {STANDBY}"
            ) from timeout
        if text:
            log.warning("%s: %s", where, text)


async def _histories(connection: Connection) -> tuple[asyncpg.Record | None, asyncpg.Record | None]:
    """Return the row of the generation, and the history that the server shows, None if the
    server does not reveal it.
    """
    history = None
    try:
        history = await connection.fetchrow(_HISTORY)
    except (pg.InsufficientPrivilegeError, pg.FeatureNotSupportedError, pg.UndefinedFunctionError) as denial:
        log.debug("the server does not tell its timeline: %s", denial)
    return await connection.fetchrow(_GENERATION), history
