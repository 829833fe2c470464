"""The server stops, restarts, throws us out, turns read-only, waits for a standby, is another one than before."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from makegood.errors import ConfigError, MakegoodError, StoreUnavailableError
from makegood.model.messages import TaskMessage
from makegood.store import open_store
from makegood.store.postgres import PostgresStore
from makegood.store.views import Filter
from proofs.private_server import PrivateServer
from tests.conformance.builders import agent, begin, draft, hand, info, offer, running, term
from tests.postgres.faulty_proxy import Proxy
from tests.waiting import moment, until

OTHERS = "select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
WAITING = "select pid from pg_stat_activity where wait_event = 'SyncRep' and datname = current_database()"


async def thrown_out(store: PostgresStore, db: Any) -> None:
    """End all sessions but our own, and wait until the store has noticed: nothing is in flight."""
    links = [writer.link for writer in store._database.writers._writers if writer.link is not None]
    await db.fetchval(OTHERS)

    async def noticed() -> bool:
        return not any(link.open for link in links)

    await until(noticed, "the connections to be closed")


@asynccontextmanager
async def without_standby(url: str, db: Any) -> AsyncIterator[None]:
    """Let every commit wait for a synchronous standby that does not exist; one of our own shows that it is so."""
    await db.execute("set synchronous_commit = local")
    await db.execute("alter system set synchronous_standby_names = 'nobody'")
    await db.execute("select pg_reload_conf()")
    probe = await asyncpg.connect(url)
    waiting: asyncio.Task[Any] | None = None
    while waiting is None or waiting.done():  # the setting takes a moment
        waiting = asyncio.create_task(probe.execute("update makegood.generation set generation = generation"))
        while not waiting.done() and not await db.fetchval(WAITING):  # the server has no event for it
            await moment()
    try:
        yield
    finally:
        await db.execute("alter system reset synchronous_standby_names")
        await db.execute("select pg_reload_conf()")
        await waiting
        await probe.close()


class Submitting:
    """Submits tasks one after another, and remembers what it was told about each."""

    def __init__(self, store: PostgresStore) -> None:
        self.store = store
        self.acknowledged: list[int] = []
        self.refused: list[int] = []
        self.number = 0
        self.stopping = False

    async def run(self) -> None:
        """Submit until told to stop."""
        while not self.stopping:
            self.number += 1
            n = self.number
            try:
                (answer,) = await self.store.tasks.submit([draft(n)])
                assert answer.is_new
                self.acknowledged.append(n)
            except StoreUnavailableError:
                self.refused.append(n)
                await asyncio.sleep(0)

    async def beyond(self, count: int) -> None:
        """Wait until ``count`` more were acknowledged."""
        goal = len(self.acknowledged) + count

        async def reached() -> bool:
            return len(self.acknowledged) >= goal

        await until(reached, f"{count} submissions")


@pytest.mark.parametrize("how", ["fast", "immediate", "kill"])
async def test_acknowledged_is_kept_and_refused_was_not_written(
    store: PostgresStore, server: PrivateServer, how: str
) -> None:
    """The server goes down and comes back three times under load; no caller is ever told anything untrue."""
    loads = [Submitting(store), Submitting(store), Submitting(store)]
    for n, one in enumerate(loads):
        one.number = n * 1_000_000
    going = [asyncio.create_task(one.run()) for one in loads]
    for _ in range(3):
        await loads[0].beyond(20)
        await asyncio.to_thread(server.kill if how == "kill" else lambda: server.stop(how))  # type: ignore[arg-type]
        await asyncio.to_thread(server.start)
    await loads[0].beyond(20)
    for one in loads:
        one.stopping = True
    await asyncio.gather(*going)
    ids = {view.id for view in await store.tasks.find(Filter(limit=1_000_000))}
    assert ids == {n for one in loads for n in one.acknowledged}
    assert not ids & {n for one in loads for n in one.refused}


async def test_a_terminated_session_is_replaced_unnoticed(store: PostgresStore, db: Any) -> None:
    load = Submitting(store)
    going = asyncio.create_task(load.run())
    for _ in range(10):
        await load.beyond(5)
        await db.fetchval(OTHERS)
    await load.beyond(5)
    load.stopping = True
    await going
    assert load.refused == []
    assert {view.id for view in await store.tasks.find(Filter(limit=100_000))} == set(load.acknowledged)


@pytest.mark.parametrize("question", ["heartbeat", "submit"])
async def test_a_connection_dropped_between_preparing_and_running_a_statement_is_replaced(
    store: PostgresStore, question: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver then raises an AttributeError of its own; a Supervisor that was stopped for a while ended with it."""
    scheduler = await running(store, 1)
    driver: Any = asyncpg.Connection
    prepare, connections = driver._get_statement, list[Any]()

    async def then_dropped(self: Any, *arguments: Any, **options: Any) -> Any:
        statement = await prepare(self, *arguments, **options)
        if not connections:
            connections.append(self)
            self.terminate()
        return statement

    monkeypatch.setattr(driver, "_get_statement", then_dropped)
    if question == "heartbeat":
        assert await store.nodes.heartbeat(scheduler.node, info())
    else:
        assert (await store.tasks.submit([draft(2)]))[0].is_new
    assert connections


async def noticed(store: PostgresStore) -> None:
    """Wait until the driver has seen that its connections are gone.

    The server's end is known here a moment earlier, and what is written in that moment is sent: of a commit that was sent the store asks
    until it knows what became of it, and so reports nothing at once.
    """
    for connection in tuple(store._database.dialer.living):
        end = asyncio.Event()
        connection.add_termination_listener(lambda _, end=end: end.set())
        if not connection.is_closed():
            async with asyncio.timeout(60):
                await end.wait()


async def test_a_stopped_server_is_reported_at_once_by_every_slice(
    store: PostgresStore, server: PrivateServer
) -> None:
    scheduler = await running(store, 1)
    grant = await term(store)
    await asyncio.to_thread(server.stop, "immediate")
    await noticed(store)
    asking: list[Coroutine[Any, Any, Any]] = [
        store.tasks.submit([draft(2)]),
        store.tasks.find(Filter()),
        store.tasks.inbox(scheduler.node, 10),
        store.requests.take(scheduler.node, [offer()]),
        store.nodes.heartbeat(scheduler.node, info()),
        store.leases.renew(grant),
        store.supervision.judge(grant, 1.0, 10),
        store.tasks.post(1, TaskMessage("cancel")),
        store.now(),
    ]
    for ask in asking:
        async with asyncio.timeout(60):
            with pytest.raises(StoreUnavailableError, match=r"127\.0\.0\.1"):
                await ask
    server.start()
    assert await store.leases.renew(grant)
    assert (await store.tasks.submit([draft(2)]))[0].is_new


async def test_a_parameter_that_the_server_does_not_take_is_no_outage(url: str) -> None:
    """Who waits for it to end waits for ever."""
    for wrong in ("sslmod=require", "work_mem=much", "max_connections=5"):
        with pytest.raises(
            ConfigError, match=f"no parameter '{wrong.partition('=')[0]}'.*libpq's parameters"
        ):
            open_store(f"{url}{'&' if '?' in url else '?'}{wrong}")


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ((":{password}@", ":wrong-secret@"), ConfigError, "user postgres.*refuses this user or password"),
        (("/{database}", "/absent"), ConfigError, "database absent.*no such database"),
        (("postgres:", "nobody:"), ConfigError, "user nobody.*refuses this user or password"),
        ((":{port}/", ":1/"), StoreUnavailableError, "127.0.0.1:1.*refuses connections"),
    ],
    ids=["password", "database", "user", "port"],
)
async def test_a_refused_connection_names_the_server_and_the_remedy_and_never_the_password(
    url: str, change: tuple[str, str], error: type[MakegoodError], words: str
) -> None:
    password = url.partition("postgres:")[2].partition("@")[0]
    port, _, database = url.rpartition(":")[2].partition("/")
    old = change[0].format(password=password, port=port, database=database)
    store = open_store(url.replace(old, change[1]))
    with pytest.raises(error, match=words) as failure:
        await store.open()
    chain: BaseException | None = failure.value
    while chain is not None:
        assert password not in str(chain)
        assert "wrong-secret" not in repr(chain)
        chain = chain.__cause__


async def test_a_password_changed_while_we_run_is_an_outage_and_not_a_crash(
    store: PostgresStore, server: PrivateServer, db: Any
) -> None:
    await db.execute("create role guest superuser login password 'first'")
    _, _, place = server.url_of(await db.fetchval("select current_database()")).partition("@")
    guest = PostgresStore(f"postgresql://guest:first@{place}")
    await guest.open()
    await db.execute("alter role guest password 'second'")
    await thrown_out(guest, db)
    with pytest.raises(StoreUnavailableError, match="refuses this user or password"):
        await guest.tasks.submit([draft(1)])
    await db.execute("alter role guest password 'first'")
    assert (await guest.tasks.submit([draft(1)]))[0].is_new
    await guest.close()
    await db.execute("drop role guest")


async def test_a_read_only_database_is_an_outage(store: PostgresStore, url: str, db: Any) -> None:
    await store.tasks.submit([draft(1)])
    name = await db.fetchval("select current_database()")
    await db.execute(f'alter database "{name}" set default_transaction_read_only = on')
    await thrown_out(store, db)
    asking: list[Coroutine[Any, Any, Any]] = [
        store.tasks.submit([draft(2)]),
        store.tasks.find(Filter()),
        open_store(url).open(),
    ]
    for ask in asking:
        with pytest.raises(StoreUnavailableError, match="read-only"):
            await ask
    await db.execute("set default_transaction_read_only = off")
    await db.execute(f'alter database "{name}" reset default_transaction_read_only')
    assert (await store.tasks.submit([draft(2)]))[0].is_new


async def test_a_session_that_turns_read_only_is_left(store: PostgresStore, db: Any) -> None:
    """As on a primary that was demoted under an open connection."""
    await store.tasks.submit([draft(1)])
    for writer in store._database.writers._writers:
        if writer.link is not None:
            await writer.link.connection.execute("set default_transaction_read_only = on")
    with pytest.raises(StoreUnavailableError, match="read-only"):
        await store.tasks.submit([draft(2)])
    assert (await store.tasks.submit([draft(2)]))[0].is_new


async def test_wake_ups_are_heard_again_after_the_listener_was_lost(
    store: PostgresStore, url: str, db: Any
) -> None:
    other = PostgresStore(url)
    await other.open()
    ring = asyncio.Event()
    store.subscribe("pending", ring.set)
    await other.tasks.submit([draft(1)])
    async with asyncio.timeout(60):
        await ring.wait()
    ring.clear()
    await thrown_out(store, db)
    async with asyncio.timeout(60):
        await ring.wait()  # what was said meanwhile may have been missed
    listening = "select count(*) from pg_stat_activity where query like 'LISTEN%' or query = 'select 1'"
    await until(lambda: db.fetchval(listening), "the listener to be back")
    ring.clear()
    await other.tasks.submit([draft(2)])
    async with asyncio.timeout(60):
        await ring.wait()
    await other.close()


async def test_our_own_writes_ring_without_the_server_and_only_once(store: PostgresStore) -> None:
    rings: list[str] = []
    end = store.subscribe("pending", lambda: rings.append("pending"))
    await store.tasks.submit([draft(1)])
    assert rings == ["pending"]
    await store.now()  # the listening connection has had its chance
    await store.now()
    assert rings == ["pending"]
    end()
    await store.tasks.submit([draft(2)])
    assert rings == ["pending"]


async def test_a_commit_that_waits_for_its_standby_is_not_called_done_when_the_wait_is_cancelled(
    store: PostgresStore, url: str, db: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The server then says WARNING and "done"; the row is visible and may not be on the standby."""
    await store.tasks.submit([draft(1)])
    async with without_standby(url, db):
        (probe,) = await db.fetch(WAITING)
        ours = f"{WAITING} and pid <> {probe['pid']}"
        going = asyncio.create_task(store.tasks.submit([draft(2)]))
        for _ in range(3):
            await until(lambda: db.fetchval(ours), "a commit to wait for the standby")
            await db.fetchval(f"select pg_cancel_backend(pid) from ({ours}) w")
            await until(lambda: db.fetchval("select count(*) from makegood.task where id = 2"), "the row")
            await until(lambda: db.fetchval(ours), "the confirmation to wait for the standby")
            assert not going.done()
    assert [a.is_new for a in await going] == [True]
    assert "synchronous replication" in caplog.text


@pytest.mark.new_database
async def test_another_databases_notification_that_waits_is_named(
    url: str, server: PrivateServer, db: Any
) -> None:
    """Commits that notify wait for one another, whatever database they are in."""
    name = await db.fetchval("select current_database()")
    await db.execute(f'alter database "{name}" set synchronous_commit = local')
    await db.execute("set synchronous_commit = local")
    other = await asyncpg.connect(server.create_database("other"))
    store = PostgresStore(url)
    await store.open()
    await other.execute("create table x (y int)")
    await db.execute("alter system set synchronous_standby_names = 'nobody'")
    await db.execute("select pg_reload_conf()")
    waiting = "select 1 from pg_stat_activity where datname = 'other' and wait_event = 'SyncRep'"
    notifying: asyncio.Task[Any] | None = None
    while notifying is None or notifying.done():  # the setting takes a moment
        notifying = asyncio.create_task(
            other.execute("begin; insert into x values (1); notify ch, 'x'; commit")
        )
        while not notifying.done() and not await db.fetchval(waiting):
            await moment()
    with pytest.raises(
        StoreUnavailableError, match=r"NOTIFY in the database other \(process \d+\).*synchronous standby"
    ):
        await store.tasks.submit([draft(1)])
    await db.execute("alter system reset synchronous_standby_names")
    await db.execute("select pg_reload_conf()")
    await notifying
    assert (await store.tasks.submit([draft(1)]))[0].is_new
    await store.close()
    await other.close()
    server.drop_database("other")


async def test_a_write_that_hangs_is_dropped_after_its_patience_and_still_answered_truly(
    url: str, db: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """An absent standby: the connection is dropped (which cancels nothing), the truth asked on another, the reason logged."""
    store = PostgresStore(url, patience=0.3)
    await store.open()
    await store.tasks.submit([draft(1)])
    async with without_standby(url, db):
        going = asyncio.create_task(store.tasks.submit([draft(2)]))

        async def explained() -> bool:
            return "waits for a synchronous standby" in caplog.text

        await until(explained, "the reason")
        assert not going.done()
    assert [a.is_new for a in await going] == [True]
    assert await db.fetchval("select count(*) from makegood.task where id = 2") == 1
    await store.close()


async def test_a_promoted_copy_raises_the_generation_once_and_says_so(
    behind: PostgresStore, server: PrivateServer, proxy: Proxy, url: str
) -> None:
    """Fail-over: the same address shows another timeline, and lacks what the copy never got."""
    before = behind.identity
    scheduler = await hand(behind)
    await behind.tasks.submit([draft(1)])
    copy = server.copy()
    try:
        await behind.tasks.submit([draft(2)])  # acknowledged, and lost by the fail-over
        proxy.target = copy.port
        proxy.cut()
        copy.run("select pg_promote(true)", database="postgres")
        second = PostgresStore(url.replace(f":{server.port}/", f":{copy.port}/"))
        await asyncio.gather(second.open(), scheduler.claim(5))
        after = second.identity
        assert (after.store_id, after.generation) == (before.store_id, before.generation + 1)
        assert behind.identity == after
        assert [a.kind for a in await second.alerts.views()] == ["generation"]
        assert not scheduler.tasks  # it may remember them otherwise than the store does
        assert not await behind.nodes.heartbeat(scheduler.node, info())
        assert await (await hand(behind)).claim(5) == [1]
        assert (
            await second.nodes.register(info()) > scheduler.node + 1000
        )  # numbers of the lost stretch are not given out again
        third = PostgresStore(url.replace(f":{server.port}/", f":{copy.port}/"))
        await third.open()
        assert third.identity == after
        await third.close()
        await second.close()
    finally:
        await behind.close()
        copy.discard()


async def test_a_store_that_never_saw_a_timeline_does_not_take_its_first_for_a_new_one(
    store: PostgresStore, db: Any
) -> None:
    assert store.identity.generation == 1
    assert await db.fetchval("select timeline <> '' from makegood.generation")
    assert await store.alerts.views() == []


async def test_sessions_shared_by_a_pooling_proxy_are_found(url: str, store: PostgresStore) -> None:
    """Two of our connections that are one session of the server, as behind PgBouncer in transaction mode."""
    connection = await asyncpg.connect(url)

    class Pooled:
        """A client's connection to the proxy."""

        def __getattr__(self, name: str) -> Any:
            return getattr(connection, name)

        def get_server_pid(self) -> int:
            return 4711

        def terminate(self) -> None:
            """The proxy keeps its session."""

    async def driver(*_: object, **__: object) -> Any:
        return Pooled()

    assert await store.admin.check() is not None
    with pytest.raises(ConfigError, match="pool_mode=transaction"):
        await PostgresStore(url, driver=driver).admin.check()
    await connection.close()


async def test_an_orderly_end_leaves_no_lane_behind_and_old_ones_are_forgotten(url: str, db: Any) -> None:
    store = PostgresStore(url)
    await store.open()
    await db.execute("insert into makegood.writer (id, number, at) values (1, 1, 0)")
    await store.tasks.submit([draft(1)])
    writers = await db.fetch("select id from makegood.writer")
    assert [row["id"] > 1 for row in writers] == [True]
    await store.close()
    assert await db.fetchval("select count(*) from makegood.writer") == 0


async def test_a_lane_whose_row_is_gone_draws_a_new_one(store: PostgresStore, db: Any) -> None:
    """As after a fail-over that lost it, or a sleep of more than a day."""
    mine = await running(store, 1)
    await db.execute("delete from makegood.writer")
    assert (await store.tasks.submit([draft(2)]))[0].is_new
    await db.execute("delete from makegood.writer")
    assert await mine.claim(5) == [2]
    await db.execute("update makegood.writer set number = number + 7")
    assert (await mine.commit(begin(mine[1], 1))).losses == set()
    payments = await agent(store)
    await db.execute("delete from makegood.writer")
    assert len(await store.requests.take(payments, [offer()])) == 3
    assert await db.fetchval("select count(*) from makegood.event") == 3
