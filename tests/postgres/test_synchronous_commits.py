"""A commit whose wait for the synchronous standby is cancelled: the server's warning is understood in every language, for every verb."""

import asyncio
import logging
import os
import shutil
import subprocess
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Self

import asyncpg
import pytest

from makegood.base.postgres_commits import CommitWatch
from makegood.base.postgres_session import CONDUCT, set_up
from makegood.election import open_leases
from makegood.errors import StoreUnavailableError
from makegood.store.postgres import PostgresStore
from proofs.private_server import PrivateServer
from tests.conformance.builders import draft
from tests.postgres.conftest import SETTINGS
from tests.waiting import until

LANGUAGES = {"de": "storniere Warten", "fr": "annulation de l'attente", "ja": "同期レプリケーション"}
WAITING = (
    "select query_start, pid from pg_stat_activity where wait_event = 'SyncRep' and datname = current_database() "
    "and query_start is distinct from $1"
)
CANCEL = f"select max(query_start), count(pg_cancel_backend(pid)) from ({WAITING}) w"
COMMITS = "select count(*) from makegood.task where id = 2"


@pytest.fixture(scope="module")
def foreign() -> Iterator[PrivateServer]:
    """A server that knows several languages: the machine's libc compiles their locales into a folder."""
    folder = Path("/usr/share/locale/de/LC_MESSAGES")
    if shutil.which("localedef") is None or not list(folder.glob("postgres-*.mo")):
        pytest.skip("postgres: the server has no translated messages, or there is no localedef")
    locales = Path(tempfile.mkdtemp(prefix="makegood-locales-"))
    locales.chmod(0o755)  # the server has another user if the tests run as root
    for language in LANGUAGES:
        name = f"{language}_{'JP' if language == 'ja' else language.upper()}"
        process = subprocess.run(
            ["localedef", "-i", name, "-f", "UTF-8", locales / f"{name}.UTF-8"], check=False
        )
        if process.returncode > 1:  # 1: with warnings
            pytest.skip("postgres: this machine has no sources of locales")
    before = os.environ.get("LOCPATH")
    os.environ["LOCPATH"] = str(locales)
    try:
        with PrivateServer(database="shop", settings=SETTINGS) as server:
            asyncio.run(PostgresStore(server.url).admin.migrate())
            yield server
    finally:
        shutil.rmtree(locales)
        os.environ.pop("LOCPATH")
        if before is not None:
            os.environ["LOCPATH"] = before


class Lonely:
    """The database of a primary whose synchronous standby is missing, while the context lasts."""

    def __init__(self, server: PrivateServer, language: str) -> None:
        self.server, self.language = server, language
        self.db: Any = None

    async def __aenter__(self) -> Self:
        self.db = await asyncpg.connect(self.server.url)
        await self.db.execute("set synchronous_commit = local; truncate makegood.task, makegood.step")
        if self.language:
            name = f"{self.language}_{'JP' if self.language == 'ja' else self.language.upper()}.UTF-8"
            await self.db.execute(f"alter database shop set lc_messages = '{name}'")
        await self.db.execute("alter database shop set client_min_messages = 'error'")
        return self

    async def begin(self) -> None:
        """From now on commits wait."""
        await self.db.execute("alter system set synchronous_standby_names = 'nobody'")
        await self.db.execute("select pg_reload_conf()")
        await until(self._applied, "the setting")

    async def _applied(self) -> bool:
        other = await asyncpg.connect(self.server.url)
        try:
            return bool(await other.fetchval("show synchronous_standby_names"))
        finally:
            await other.close()

    async def end(self) -> None:
        """Release all that wait."""
        await self.db.execute("alter system reset synchronous_standby_names")
        await self.db.execute("select pg_reload_conf()")

    async def __aexit__(self, *_: object) -> None:
        await self.end()
        await self.db.execute("alter database shop reset all")
        await self.db.close()

    async def cancel(self, times: int = 3) -> None:
        """Cancel each wait for the standby, so many times. A wait that has been cancelled may last a little longer: the next one is of
        another statement.
        """
        statement: datetime | None = None

        async def strikes() -> bool:
            nonlocal statement
            moment = await self.db.fetchval(CANCEL, statement)
            statement = moment or statement
            return moment is not None

        for _ in range(times):
            await until(strikes, "a commit to wait for the standby")
        await until(lambda: self.db.fetchval(WAITING, statement), "the confirmation to wait for the standby")


@pytest.mark.parametrize("language", ["", *LANGUAGES])
async def test_the_warning_is_understood_in_every_language(
    foreign: PrivateServer, language: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Even if the database asks the server not to send warnings."""
    async with Lonely(foreign, language) as lonely:
        store = PostgresStore(foreign.url)
        await store.open()
        await store.tasks.submit([draft(1)])
        await lonely.begin()
        going = asyncio.create_task(store.tasks.submit([draft(2)]))
        await lonely.cancel()
        assert await lonely.db.fetchval(COMMITS) == 1
        assert not going.done()
        assert LANGUAGES.get(language, "canceling wait") in caplog.text
        await lonely.end()
        assert [answer.is_new for answer in await going] == [True]
        await store.close()


async def _lease(store: PostgresStore) -> object:
    return await store.leases.acquire("reports", "host-1", "nonce-1", 60.0)


async def _inbox(store: PostgresStore) -> object:
    async def work(caller: Any) -> str:
        await caller.ask("update makegood.generation set generation = generation")
        return "done"

    return await store.transact(work, waits=False)


async def _migration(store: PostgresStore) -> object:
    async def work(connection: Any) -> str:
        await connection.execute("update makegood.generation set generation = generation")
        return "done"

    return await store._database.on_separate_connection(work)


@pytest.mark.parametrize("verb", [_lease, _inbox, _migration])
async def test_every_verb_waits_for_the_standby(
    foreign: PrivateServer, verb: Callable[[PostgresStore], Awaitable[object]]
) -> None:
    """A lease, the transaction of an inbox function, a migration."""
    async with Lonely(foreign, "de") as lonely:
        store = PostgresStore(foreign.url)
        await store.open()
        await lonely.begin()
        going = asyncio.ensure_future(verb(store))
        await lonely.cancel()
        assert not going.done()
        await lonely.end()
        assert await going
        await store.close()


async def test_a_lease_is_granted_once_the_standby_has_it(foreign: PrivateServer) -> None:
    """Otherwise a promoted standby grants the same epoch to somebody else; ``local`` on the role changes nothing."""
    async with Lonely(foreign, "") as lonely:
        await lonely.db.execute("alter database shop set synchronous_commit = 'local'")
        async with open_leases(foreign.url, timeout="2m") as leases:
            first = await leases.acquire("reports", "host-0", "n0", 15.0)
            assert first is not None
            await leases.release(first)
            await lonely.begin()
            going = asyncio.create_task(leases.acquire("reports", "host-1", "n1", 15.0))
            await lonely.cancel()
            assert not going.done()
            await lonely.end()
            grant = await going
            assert grant is not None
            assert grant.epoch == 2
            await lonely.begin()
            going_on = asyncio.create_task(leases.renew(grant))
            await lonely.cancel()
            assert not going_on.done()
            await lonely.end()
            assert await going_on


async def test_a_lease_that_the_standby_never_gets_is_no_grant(foreign: PrivateServer) -> None:
    """The time-out of the call ends the wait."""
    async with Lonely(foreign, "") as lonely, open_leases(foreign.url, timeout="8s") as leases:
        first = await leases.acquire("nightly", "host-0", "n0", 15.0)
        assert first is not None
        await leases.release(first)
        await lonely.begin()
        going = asyncio.create_task(leases.acquire("nightly", "host-1", "n1", 15.0))
        await lonely.cancel(1)
        with pytest.raises(StoreUnavailableError, match="no answer within 8 s"):
            await going


async def test_a_dropped_connection_ends_the_wait(foreign: PrivateServer) -> None:
    """`settle` has no limit of its own: whoever calls it drops the connection."""
    async with Lonely(foreign, "fr") as lonely:
        connection = await asyncpg.connect(foreign.url)
        await set_up(connection, CONDUCT)
        watch = CommitWatch(connection, logging.getLogger("makegood"), "there")
        await watch.settle()
        await lonely.begin()
        going = asyncio.create_task(connection.execute("create table public.plain (n int)"))
        await until(lambda: lonely.db.fetchval(CANCEL, None), "the commit to wait")
        await going
        assert watch.in_doubt
        settling = asyncio.create_task(watch.settle())
        await lonely.cancel()
        connection.terminate()
        with pytest.raises(asyncpg.PostgresConnectionError):
            await settling
        await lonely.db.execute("drop table plain")
