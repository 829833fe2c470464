"""What one transaction does when the server shows another history: each of its parts, on a store that is told a false one."""

import asyncio
from collections.abc import Iterator
from typing import Any

import asyncpg
import pytest

from makegood.errors import ConfigError, FencedOffError
from makegood.store.postgres import PostgresStore, generation
from makegood.store.views import Filter
from proofs.private_server import PrivateServer
from tests.conformance.builders import agent, begin, done, draft, hand, info, offer, reply, running, term


@pytest.fixture(scope="module")
def server() -> Iterator[PrivateServer]:
    """A server, fast and not durable."""
    try:
        private = PrivateServer(database="one", settings={"fsync": "off", "full_page_writes": "off"})
    except ConfigError as missing:
        pytest.skip(f"postgres: {missing}")
    with private:
        yield private


@pytest.fixture
def url(server: PrivateServer) -> Iterator[str]:
    """A fresh database."""
    yield server.create_database("fresh")
    server.drop_database("fresh")


async def opened(url: str) -> PostgresStore:
    """Return an open store on an up-to-date schema."""
    store = PostgresStore(url)
    await store.open(migrate=True)
    return store


async def anew(url: str) -> PostgresStore:
    """Let the store have known another timeline, and return a new one that has found out."""
    connection = await asyncpg.connect(url)
    await connection.execute("update makegood.generation set timeline = '0000BEEF'")
    await connection.close()
    return await opened(url)


async def rows(url: str, sql: str) -> list[Any]:
    """Return the rows of a query."""
    connection = await asyncpg.connect(url)
    records = await connection.fetch(sql)
    await connection.close()
    return [tuple(row) for row in records]


async def test_nobody_decides_by_what_he_remembers(url: str) -> None:
    """Locks are gone, processes are dead; a task not held by anybody stays as it was, with its order among the pending."""
    old = await opened(url)
    mine = await running(old, 1)
    await old.tasks.submit([draft(2)])
    store = await anew(url)
    states = {view.id: (view.state, view.locked_by) for view in await store.tasks.find(Filter())}
    assert states == {1: ("pending", None), 2: ("pending", None)}
    assert (await mine.commit(begin(mine[1], 1))).losses == {1}
    assert not await old.nodes.heartbeat(mine.node, info())
    (event, *_) = reversed(await store.tasks.history(1))
    assert [move[1:3] for move in event.moves] == [("processing", "pending")]
    fresh = await hand(store)
    assert sorted(await fresh.claim(5)) == [1, 2]
    await asyncio.gather(old.close(), store.close())


async def test_a_process_of_the_generation_before_claims_nothing_until_it_has_a_new_number(url: str) -> None:
    """It lives on in a store that was connected before, and may hold in memory what it would claim."""
    old = await opened(url)
    mine = await hand(old)
    await old.tasks.submit([draft(1)])
    store = await anew(url)
    for writer in old._database.writers._writers:
        if writer.link is not None:
            writer.link.terminate()
    assert await mine.claim(5) == []
    assert old.identity.generation == store.identity.generation == 2
    assert await (await hand(old)).claim(5) == [1]
    await asyncio.gather(old.close(), store.close())


async def test_what_nobody_has_taken_is_in_doubt_and_what_was_taken_may_be_answered(url: str) -> None:
    """Of two requests one is taken: its reply is accepted still. The other one has become a verdict, without a failure."""
    old = await opened(url)
    await running(old, 1, 2)
    payments = await agent(old)
    (request,) = await old.requests.take(payments, [offer(1)])
    store = await anew(url)
    (left,) = {1, 2} - {request.task}
    assert await rows(url, "select task from makegood.request") == [(request.task,)]
    assert await old.requests.answer(payments, [reply(request)]) == [True]
    fresh = await hand(store)
    assert sorted(await fresh.claim(5)) == [1, 2]
    (verdict,) = fresh[left].messages
    assert (verdict.kind, verdict.idx, verdict.attempt, verdict.failures, verdict.died) == (
        "expired",
        0,
        1,
        0,
        False,
    )
    assert await rows(
        url, f"select state, failure_count from makegood.step where task = {left} and idx = 0"
    ) == [("running", 0)]
    assert [message.kind for message in fresh[request.task].messages] == ["done"]
    assert (await fresh.commit(done(fresh[request.task], 0))).losses == set()
    await asyncio.gather(old.close(), store.close())


async def test_an_epoch_of_a_lease_never_comes_again(url: str) -> None:
    """A term goes on until it ends by itself, and writes nothing more; the next one's epoch is above all that were given out."""
    old = await opened(url)
    grant = await term(old)
    store = await anew(url)
    assert not await store.leases.renew(grant)
    with pytest.raises(FencedOffError):
        await store.supervision.release_dead(grant, 10)
    assert await store.leases.acquire("supervisor", "other", "nonce of other", 60.0) is None
    view = await store.leases.read("supervisor")
    assert view is not None
    assert view.epoch > grant.epoch + 1000
    await asyncio.gather(old.close(), store.close())


async def test_many_who_find_out_at_once_begin_anew_once(url: str) -> None:
    """One generation more, one alert; and a history that is known already changes nothing."""
    await (await opened(url)).close()
    stores = [await anew(url), *await asyncio.gather(*(opened(url) for _ in range(4)))]
    assert [store.identity.generation for store in stores] == [2] * 5
    assert [alert.kind for alert in await stores[0].alerts.views()] == ["generation"]
    connection = await asyncpg.connect(url)
    async with connection.transaction():
        assert not await generation.begin_generation(connection, ("somebody", "else's"), ("x", "y"))
    await connection.close()
    await asyncio.gather(*(store.close() for store in stores))
