"""A commit whose fate is open while a standby is missing: nobody is told that it is done before it is on both servers."""

import asyncio
from contextlib import AsyncExitStack

import asyncpg
import pytest

import makegood as mg
from makegood.store.postgres import PostgresStore
from proofs.replicas import ReplicaPair
from tests.conformance.builders import draft
from tests.replicas.load_and_audit import BRISK, Load, balanced, ended, gather
from tests.replicas.remote_service import Service, shop
from tests.waiting import until

WAITING = "select pid from pg_stat_activity where wait_event = 'SyncRep' and datname = current_database()"
CANCEL = f"select count(pg_cancel_backend(pid)) from ({WAITING}) w"
TERMINATE = f"select count(pg_terminate_backend(pid)) from ({WAITING}) w"
THERE = "select count(*) from makegood.task where id = 2"


async def test_a_cancelled_wait_is_not_success_when_the_standby_is_promoted_without_it(
    synchronous: ReplicaPair, caplog: pytest.LogCaptureFixture
) -> None:
    """pg_cancel_backend ends the wait for the standby: the server says WARNING and "done", the row can be seen. The caller
    hears nothing, not even when the standby, which never got the row, is promoted: the write is made again there first.
    """
    pair = synchronous
    store = PostgresStore(pair.url)
    await store.open(migrate=True)
    await store.tasks.submit([draft(1)])
    await asyncio.to_thread(pair.detach)
    watcher = await asyncpg.connect(pair.primary.url)
    going = asyncio.create_task(store.tasks.submit([draft(2)]))
    for _ in range(3):
        await until(lambda: watcher.fetchval(CANCEL), "a commit to wait for the standby")
        await until(lambda: watcher.fetchval(THERE), "the row to be seen")
    await until(lambda: watcher.fetchval(WAITING), "the confirmation to wait for the standby")
    assert "synchronous replication" in caplog.text
    assert not going.done()
    watcher.terminate()
    await asyncio.to_thread(pair.primary.kill)
    await asyncio.to_thread(pair.promote)
    assert await asyncio.to_thread(pair.standby.run, THERE) == [("0",)]
    await asyncio.to_thread(pair.release)
    assert [answer.is_new for answer in await going] == [True]
    assert await asyncio.to_thread(pair.standby.run, THERE) == [("1",)]
    await store.close()


@pytest.mark.parametrize("how", [TERMINATE, CANCEL], ids=["terminated", "cancelled"])
async def test_commits_disturbed_in_their_wait_lose_nothing(synchronous: ReplicaPair, how: str) -> None:
    """Under load the standby goes and comes back; each time all sessions in mid-commit are ended, or their waits cancelled.
    In the end the primary is killed: every acknowledged submission is on the standby, what was refused was not written,
    and all orders end whole.
    """
    pair, service = synchronous, Service()
    orders = shop(service)
    async with AsyncExitStack() as stack:
        node = await stack.enter_async_context(mg.Node(orders.app, pair.url, options=BRISK))
        loads = [
            Load(await stack.enter_async_context(mg.Client(pair.url)), orders, f"load{n}") for n in range(2)
        ]
        going = await gather(*loads)
        watcher = await asyncpg.connect(pair.primary.url)
        strikes = 0
        for _ in range(3):
            await loads[0].beyond(10)
            await asyncio.to_thread(pair.detach)
            for _ in range(2):
                await until(lambda: watcher.fetchval(WAITING), "commits to wait for the standby")
                strikes += await watcher.fetchval(how)
            await asyncio.to_thread(pair.attach)
        assert strikes >= 6
        await loads[0].beyond(10)
        watcher.terminate()
        await asyncio.to_thread(pair.primary.kill)
        await asyncio.to_thread(pair.promote)
        await asyncio.to_thread(pair.release)
        for load in loads:
            load.stop()
        await asyncio.gather(*going)
        views = await ended(node.client)
        assert {key for load in loads for key in load.acknowledged} == views.keys()
        assert not views.keys() & {key for load in loads for key in load.unwritten}
        await balanced(node.client, service, views)
