"""Makes connections to the server ready: checked, session settings applied, history compared.

Each connection reads which history the server shows (system identifier and timeline). After a promotion or a
restore the same address may show an older state. Then the store's *generation* is raised, once, in a
transaction of its own.
"""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeAlias, TypeVar

import asyncpg
from asyncpg import exceptions as pg

from makegood.base.postgres_errors import OWN_PATH, first_line, refused, server_of
from makegood.base.text import session_name
from makegood.errors import ConfigError, StoreUnavailableError
from makegood.store.postgres import generation
from makegood.store.postgres.errors import is_lost
from makegood.store.records import Identity

log = logging.getLogger("makegood.store")

T = TypeVar("T")

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
Driver: TypeAlias = Callable[..., Awaitable[Connection]]
"""Makes a connection: ``asyncpg.connect``, or a test's replacement that counts or fails."""

OLDEST = 14
_CONNECT = 10.0
_ANEW = 120.0
"""Seconds that beginning a new generation may take: it changes every task under way."""

# A statement is planned once, perhaps while the tables are empty, and the plan must suit full tables. So
# these settings force nested loops that find every row by an index. (See the rules on query plans in
# ``commit_statement``.)
_SESSION = """
select pg_backend_pid() as pid, (select backend_start from pg_stat_activity where pid = pg_backend_pid()) as began, current_setting('server_version_num')::int / 10000 as major,
    current_setting('transaction_read_only') = 'on' as read_only,
    (select oid::bigint from pg_database where datname = current_database()) as database,
    set_config('plan_cache_mode', 'force_generic_plan', false),
    set_config('enable_seqscan', 'off', false),
    set_config('enable_bitmapscan', 'off', false),
    set_config('enable_hashjoin', 'off', false),
    set_config('enable_mergejoin', 'off', false),
    set_config('jit', 'off', false),
    set_config('application_name', coalesce(nullif(current_setting('application_name'), ''), $1), false),
    set_config('lock_timeout', '2s', false),
    set_config('statement_timeout', '0', false),
    set_config('idle_in_transaction_session_timeout', '10s', false),
    set_config('client_min_messages', 'warning', false),
    set_config('default_transaction_isolation', 'read committed', false),
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
        self.session = session or session_name("client")
        self.where = server_of(url)

    def __repr__(self) -> str:
        return self.where


@dataclass(slots=True, eq=False)
class Link:
    """A connection with its state."""

    connection: Connection
    pid: int
    began: datetime
    identity: Identity | None
    proxied: bool
    doubted: bool = False
    """Whether the server said that a commit may not be on its standby."""

    @property
    def open(self) -> bool:
        """Whether it is still usable."""
        return not self.connection.is_closed()

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
    checked: bool = False
    """Whether to compare the history with the generation, which needs the schema."""
    limit: float = _CONNECT
    identity: Identity | None = None
    pids: set[int] = field(default_factory=set)
    warned: bool = False
    database: int = 0
    """The number of the database that the latest link is connected to."""
    system: str = ""
    """The system identifier of the latest link's server, "" if the server does not reveal it."""
    living: set[Connection] = field(default_factory=set)
    shut: bool = False

    def hang_up(self) -> None:
        """Drop every live connection made here, even one in use, and make no more until ``shut`` is reset."""
        self.shut = True
        for connection in tuple(self.living):
            connection.terminate()

    async def dial(self) -> Link:
        """Return a new link. Raises ``ConfigError``, ``StoreUnavailableError``."""
        try:
            connection = await self.driver(
                self.address.url,
                timeout=self.limit,
                statement_cache_size=1000,
                max_cached_statement_lifetime=0,
                max_cacheable_statement_size=0,
                target_session_attrs="read-write",
            )
        except (OSError, ValueError, OverflowError, ssl.SSLError, *_GONE) as fault:
            raise self._refused(fault) from None  # a cause might contain the URL
        if self.shut:
            connection.terminate()
            raise StoreUnavailableError(f"{self.address.where}: the store is closed")
        self.living.add(connection)
        connection.add_termination_listener(self.living.discard)
        try:
            link = await bounded(connection, self.limit, self._ready(connection))
            if self.checked:
                link.identity = self.identity = await self._compared(connection)
            return link
        except BaseException as fault:
            await dropped(connection)
            if is_lost(fault) or isinstance(fault, TimeoutError | asyncpg.PostgresError):
                raise self._refused(fault) from fault
            raise

    def _refused(self, fault: BaseException) -> Exception:
        """Return the error that explains why there is no connection."""
        return refused(fault, self.address.where, url=self.address.url, reached=self.identity is not None)

    async def _ready(self, connection: Connection) -> Link:
        await connection.execute(OWN_PATH)
        row = await connection.fetchrow(_SESSION, self.address.session)
        assert row is not None
        if row["major"] < OLDEST:
            raise ConfigError(
                f"{self.address.where}: this is PostgreSQL {row['major']}, makegood needs {OLDEST} or later"
            )
        if row["read_only"]:
            raise StoreUnavailableError(
                f"{self.address.where} is read-only (default_transaction_read_only is on): nothing can be written"
            )
        self.database = row["database"]
        # A proxy invents its own process ids.
        proxied = connection.get_server_pid() != row["pid"]
        if proxied and not self.warned:
            self.warned = True
            text = "%s: a proxy is in between; `makegood store check` reports whether makegood can work through it"
            log.warning(text, self.address.where)
        link = Link(connection, row["pid"], row["began"], None, proxied)

        def said(_: object, message: asyncpg.PostgresLogMessage) -> None:
            if message.sqlstate == "01000" and "synchronous replication" in str(message):
                log.warning("%s: %s", self.address.where, message)
                link.doubted = True

        connection.add_log_listener(said)
        self.pids.add(link.pid)
        connection.add_termination_listener(lambda _: self.pids.discard(link.pid))
        return link

    async def _compared(self, connection: Connection) -> Identity:
        """Return the store's identity; raise its generation if the server shows
        another history than before.
        """
        known, seen = await bounded(connection, self.limit, _histories(connection))
        if known is None:
            raise ConfigError(
                f"{self.address.where}: the table makegood.generation is empty; restore a backup, this is not a makegood store"
            )
        if seen is None:
            return Identity(known["store_id"], known["generation"])
        self.system = seen["system_id"]
        before, now = (known["system_id"], known["timeline"]), (seen["system_id"], seen["timeline"])
        if before == now:
            return Identity(known["store_id"], known["generation"])
        await self._begin_anew(connection, before, now)
        after = await connection.fetchrow(_GENERATION)
        assert after is not None
        return Identity(after["store_id"], after["generation"])

    async def _begin_anew(
        self, connection: Connection, known: generation.History, seen: generation.History
    ) -> None:
        """Raise the generation.

        The commit may wait for a standby. This wait is never cancelled, since a cancelled commit would look
        done. Instead the connection is dropped, and the server keeps waiting.
        """
        where, text = self.address.where, ""

        async def work() -> None:
            nonlocal text
            await connection.execute("BEGIN")
            text = await generation.begin_anew(connection, known, seen)

        try:
            await bounded(connection, _ANEW, work())
        except pg.InsufficientPrivilegeError as barred:
            raise AwaitingError(f"{where} {AWAITING} ({first_line(barred)})") from barred
        except pg.LockNotAvailableError as held:
            await connection.execute("ROLLBACK")
            why = (
                STANDBY
                if await connection.fetchval(WAITS) is not None
                else "is being made ready by another process"
            )
            raise StoreUnavailableError(f"{where} {why}") from held
        try:
            await bounded(connection, self.limit, connection.execute("COMMIT"))
        except TimeoutError as hung:
            raise StoreUnavailableError(
                f"{where} has a new generation, whose commit does not end; perhaps it {STANDBY}"
            ) from hung
        if text:
            log.warning("%s: %s", where, text)


async def _histories(connection: Connection) -> tuple[asyncpg.Record | None, asyncpg.Record | None]:
    """Return the row of the generation, and the history that the server shows, None if the
    server does not reveal it.
    """
    seen = None
    try:
        seen = await connection.fetchrow(_HISTORY)
    except (pg.InsufficientPrivilegeError, pg.FeatureNotSupportedError, pg.UndefinedFunctionError) as barred:
        log.debug("the server does not tell its timeline: %s", barred)
    return await connection.fetchrow(_GENERATION), seen


async def dropped(connection: Connection) -> None:
    """Drop a connection whose query may have been cancelled.

    The driver's task that asks the server to cancel the query ends here too.
    """
    connection.terminate()
    await asyncio.sleep(0)


async def bounded(connection: Connection, limit: float, ask: Awaitable[T]) -> T:
    """Return the answer; drop a connection that takes longer than ``limit`` seconds.

    Raises ``TimeoutError``. Nothing is cancelled at the server.
    """
    loop = asyncio.get_running_loop()
    alarm = loop.call_later(limit, connection.terminate)
    try:
        return await ask
    except Exception as fault:
        if is_lost(fault) and loop.time() >= alarm.when():
            raise TimeoutError from fault
        raise
    finally:
        alarm.cancel()
