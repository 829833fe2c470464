"""The PostgreSQL that the suite runs on: the one that was named, the one of this machine, or a private one."""

import asyncio
import itertools
import os
import re
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from makegood.store.migrations import latest_version
from makegood.store.postgres import PostgresStore
from proofs.private_server import PrivateServer
from tests.conformance.worlds import TIMES, Counts, Raw, World

LOCAL = "postgresql://postgres@127.0.0.1:5432/postgres"
TABLES = (*TIMES, "step", "attribute", "lane", "notice", "schema_version")


async def _answers(url: str) -> bool:
    try:
        connection = await asyncpg.connect(url, timeout=60)
        may = await connection.fetchval(
            "select rolcreatedb or rolsuper from pg_roles where rolname = current_user"
        )
        await connection.close()
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
        return False
    return bool(may)


class Databases:
    """Makes empty databases on one server, and drops them."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.shared = ""
        self._run_id = (
            f"{os.getpid()}_{secrets.token_hex(4)}"  # several folders make databases within one run
        )
        self._numbers = itertools.count()

    async def _run(self, sql: str) -> None:
        connection = await asyncpg.connect(self.url)
        try:
            await connection.execute(sql)
        finally:
            await connection.close()

    async def create(self) -> str:
        """Create an empty database; returns its URL."""
        name = f"makegood_test_{self._run_id}_{next(self._numbers)}"
        await self._run(f'create database "{name}" template template0')
        return urlunsplit(urlsplit(self.url)._replace(path=f"/{name}"))

    async def drop(self, url: str) -> None:
        """Drop a database, whoever is connected to it."""
        await self._run(f'drop database if exists "{urlsplit(url).path.lstrip("/")}" with (force)')


@contextmanager
def databases() -> Iterator[Databases]:
    """Find a server. Raises ``MakegoodError`` that says what to install when there is none."""
    with ExitStack() as stack:
        url = os.environ.get("MAKEGOOD_TEST_POSTGRES")
        if not url and asyncio.run(_answers(LOCAL)):
            url = LOCAL
        databases_ = Databases(url or stack.enter_context(PrivateServer()).url)
        yield databases_
        if databases_.shared:
            asyncio.run(databases_.drop(databases_.shared))


@asynccontextmanager
async def one_of(databases: Databases, *, fresh: bool) -> AsyncIterator["PostgresWorld"]:
    """Give a test its database: a fresh, empty one, or the one with the schema that tests share one after another."""
    if fresh:
        world = PostgresWorld(await databases.create())
        yield world
        await databases.drop(world.url)
        return
    databases.shared = databases.shared or await databases.create()
    world = PostgresWorld(databases.shared)
    yield world
    await world.clean()


WRITES = re.compile(r"\b(insert into|update makegood|delete from)\b")

KEEPS_ALIVE = "select 1"
"""What a store sends by the clock, on the connection that listens: no call causes it, so no count of what a call costs has it."""


class PostgresCounts(Counts):
    """Statements as asyncpg sends them, and commits: explicit ones, and statements that write outside of a transaction."""

    shares = False

    async def driver(self, *args: Any, **options: Any) -> Any:
        """Connect, and count what is sent."""
        connection = await asyncpg.connect(*args, **options)
        inside = wrote = False

        def sent(record: Any) -> None:
            nonlocal inside, wrote
            text = record.query.lower()
            if text in ("begin", "begin;"):
                inside, wrote = True, False
            elif text in ("commit", "rollback", "commit;", "rollback;"):
                self.committed += wrote and text.startswith("commit")
                inside = False
            elif text != KEEPS_ALIVE:
                self.statements += 1
                wrote = wrote or WRITES.search(text) is not None
                self.committed += not inside and WRITES.search(text) is not None

        connection.add_query_logger(sent)
        return connection


class _PostgresRaw(Raw):
    for_share = " for share"

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    async def run(self, sql: str, *values: Any) -> list[Sequence[Any]]:
        text = sql.format_map({table: f"makegood.{table}" for table in TABLES})
        for number in range(1, len(values) + 1):
            text = text.replace("?", f"${number}", 1)
        return list(await self.connection.fetch(text, *values))


class PostgresWorld(World):
    """A database of its own."""

    dialect = "postgres"

    def __init__(self, url: str) -> None:
        self.url = url

    def store(self) -> PostgresStore:
        """Return a store on the database."""
        return PostgresStore(self.url)

    def counted(self) -> tuple[PostgresStore, PostgresCounts]:
        """Return a store whose traffic is counted."""
        counts = PostgresCounts()
        driver: Callable[..., Any] = counts.driver
        return PostgresStore(self.url, driver=driver), counts

    async def clean(self) -> None:
        """Empty all tables, which is quicker than a new database."""
        connection = await asyncpg.connect(self.url)
        try:
            rows = await connection.fetch("select tablename from pg_tables where schemaname = 'makegood'")
            if rows and not await connection.fetchval("select count(*) from makegood.schema_version"):
                await connection.execute(
                    "drop schema makegood cascade"
                )  # a test has made it one that nobody can use
                return
            tables = {row["tablename"] for row in rows} - {"generation", "schema_version"}
            version = latest_version("postgres")
            sql = ";".join(f"delete from makegood.{table}" for table in sorted(tables))
            await connection.execute(sql)
            if rows:
                await connection.execute("update makegood.generation set generation = 1")
            await connection.execute("delete from makegood.schema_version where version > $1", version)
        finally:
            await connection.close()

    async def elapse(self, seconds: float, *, pending: bool = False) -> None:
        """Make everything recorded so much older."""
        connection = await asyncpg.connect(self.url)
        try:
            for table, columns in TIMES.items():
                changes = ", ".join(f"{column} = {column} - $1" for column in columns)
                await connection.execute(f"update makegood.{table} set {changes}", seconds)
            await connection.execute(
                "update makegood.schedule set progress = convert_to((s - 'last_key' || jsonb_build_object('since', (s->>'since')::float8 - $1, 'pauses', "
                "(select coalesce(jsonb_agg(jsonb_build_array((p->>0)::float8 - $1, (p->>1)::float8 - $1)), '[]') from jsonb_array_elements(s->'pauses') p)))::text, 'UTF8') "
                "from (select app as a, name as n, convert_from(progress, 'UTF8')::jsonb as s from makegood.schedule) x where app = a and name = n",
                seconds,
            )
            await connection.execute(
                "update makegood.task set ready_seq = ready_seq - ($1::float8 * 1000000)::bigint where state = 'sleeping'",
                seconds,
            )
            if pending:
                await connection.execute(
                    "update makegood.task set ready_seq = ready_seq - ($1::float8 * 1000000)::bigint where state <> 'sleeping'",
                    seconds,
                )
        finally:
            await connection.close()

    @asynccontextmanager
    async def raw(self) -> AsyncIterator[Raw]:
        """Lock all tasks as a commit does."""
        connection = await asyncpg.connect(self.url)
        try:
            async with connection.transaction():
                await connection.fetch("select 1 from makegood.task for no key update")
                yield _PostgresRaw(connection)
        finally:
            await connection.close()
