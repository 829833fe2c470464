"""A primary is killed under load and its standby promoted: what is promised then, and what is only detected."""

import asyncio
from contextlib import AsyncExitStack

import asyncpg
import pytest

import makegood as mg
from makegood.errors import StoreUnavailableError
from makegood.store.postgres import PostgresStore
from proofs.replicas import ReplicaPair
from tests.postgres.faulty_proxy import Proxy
from tests.replicas.load_and_audit import BRISK, Load, balanced, ended, gather
from tests.replicas.remote_service import Order, Service, shop
from tests.waiting import until

WAITING = "select count(*) from pg_stat_activity where wait_event = 'SyncRep'"
UNTAKEN = "select count(*) from makegood.request where kind = 'do' and taken_by is null"
TAKEN = "select count(*) from makegood.request where kind = 'do' and taken_by is not null"


async def test_synchronous_nothing_acknowledged_is_lost(synchronous: ReplicaPair) -> None:
    """Killed under load: every acknowledged submission is on the promoted standby, what was refused was not written, a URL
    with both hosts finds the new primary, and all tasks go on to their end with balanced books. Before
    synchronous_standby_names is cleared there, no write ends, and the store says why.
    """
    pair, service = synchronous, Service()
    orders = shop(service)
    async with AsyncExitStack() as stack:
        node = await stack.enter_async_context(mg.Node(orders.app, pair.url, options=BRISK))
        loads = [
            Load(await stack.enter_async_context(mg.Client(pair.url)), orders, f"load{n}") for n in range(3)
        ]
        going = await gather(*loads)
        await loads[0].beyond(40)
        await asyncio.to_thread(pair.primary.kill)
        await asyncio.to_thread(pair.promote)
        before = [len(load.acknowledged) for load in loads]
        direct = await asyncpg.connect(pair.standby.url)
        # When the test fails in the middle: a query that the end of the loop cancels would be all that is told.
        stack.callback(direct.terminate)
        hangs = asyncio.create_task(direct.execute("create table scratch (x int)"))
        await until(
            lambda: asyncio.to_thread(_counted, pair, WAITING), "the first write to wait for a standby"
        )
        with pytest.raises(StoreUnavailableError, match="synchronous standby"):
            await _opened_and_closed(pair.url)
        assert not hangs.done()
        assert before == [len(load.acknowledged) for load in loads]
        await asyncio.to_thread(pair.release)
        await hangs
        await direct.close()
        for load in loads:
            load.back.set()
        await loads[0].beyond(20)
        for load in loads:
            load.stop()
        await asyncio.gather(*going)
        views = await ended(node.client)
        keys = {key for load in loads for key in load.acknowledged}
        assert keys == views.keys()
        assert not views.keys() & {key for load in loads for key in load.unwritten}
        await balanced(node.client, service, views)
        assert {view.state for view in views.values()} == {"processed", "undone"}
        assert [a.kind for a in await node.store.alerts.views() if a.task is None] == ["generation"]
        assert node.store.identity.generation == 2


@pytest.mark.parametrize("how", ["frozen", "cut off"])
async def test_a_primary_that_falls_silent_is_left(synchronous: ReplicaPair, how: str) -> None:
    """Its machine has no power, or no packet passes: connections to it end in no error. The standby is promoted, and whatever
    runs finds it, wake-ups included; so does a program that starts now, for which the silent host is still the first one.
    """
    pair, service = synchronous, Service()
    orders = shop(service)
    way = Proxy(pair.primary.port)
    await way.start()
    url = pair.url.replace(f":{pair.primary.port},", f":{way.port},")
    async with AsyncExitStack() as stack:
        stack.push_async_callback(way.stop)
        node = await stack.enter_async_context(mg.Node(orders.app, url, options=BRISK))
        loads = [Load(await stack.enter_async_context(mg.Client(url)), orders, f"load{n}") for n in range(3)]
        going = await gather(*loads)
        await loads[0].beyond(20)
        if how == "frozen":
            await asyncio.to_thread(pair.primary.freeze)
        else:
            way.silent = True
        await asyncio.to_thread(pair.promote)
        await asyncio.to_thread(pair.release)
        for load in loads:
            load.back.set()
        starting = await stack.enter_async_context(mg.Client(url))
        late = await starting.submit(orders.place_order, Order("late"), key="late")
        await loads[0].beyond(20)
        for load in loads:
            load.stop()
        await asyncio.gather(*going)
        await late.result(timeout=120)
        views = await ended(node.client)
        assert views.keys() == {"late"} | {key for load in loads for key in load.acknowledged}
        await balanced(node.client, service, views)


async def test_asynchronous_what_is_lost_is_detected_and_the_rest_ends_whole(
    asynchronous: ReplicaPair,
) -> None:
    """The standby is behind: acknowledged orders and half of the life of others are missing after its promotion.

    The generation rises, once, with an alert; each step that was in flight on the standby is in doubt and re-driven under
    its key with a higher token, whatever the living Scheduler remembers of the lost stretch; and every order that is
    still there ends with balanced books: nothing is processed of which nothing stands.
    """
    pair, service = asynchronous, Service()
    orders = shop(service)
    async with AsyncExitStack() as stack:
        node = await stack.enter_async_context(mg.Node(orders.app, pair.url, options=BRISK))
        second = await stack.enter_async_context(
            mg.Node(orders.app, pair.url, roles=("scheduler", "agent"), options=BRISK)
        )
        load = Load(await stack.enter_async_context(mg.Client(pair.url)), orders, "load")
        for n in range(20):
            await load.one(Order(f"early-{n}", "ship" if n % 5 == 0 else ""))
        await ended(node.client)
        keys, ahead = await _in_flight(pair, service, load)
        handles = [await load.one(Order(f"regretted-{n}")) for n in range(5)]
        await until(lambda: _holds(service, "reserve", 15), "reserve to be in flight")
        await asyncio.to_thread(pair.caught_up)
        await asyncio.to_thread(pair.detach)
        service.reopen("ship")
        service.reopen("reserve")
        for n in range(20):
            await load.one(Order(f"lost-{n}"))
        survivors = await ended(node.client, set(load.acknowledged) - set(ahead))
        await balanced(
            node.client, service, {key: view for key, view in survivors.items() if key not in ahead}
        )
        assert service.put_off == set(ahead)
        for handle in handles:
            assert (await handle.undo()).verdict == "applied"
        undos = await ended(node.client, {f"regretted-{n}" for n in range(5)})
        assert [undos[f"regretted-{n}"].state for n in range(5)] == ["undone"] * 5
        service.shut("charge")
        for n in range(20):
            await load.one(Order(f"flying-{n}"))
        await until(lambda: _holds(service, "charge", 20), "charge to be in flight")
        await asyncio.to_thread(pair.primary.kill)
        gap = len(service.asked)
        await asyncio.to_thread(pair.promote)
        service.reopen("charge")

        views = await ended(node.client)
        missing = set(load.acknowledged) - views.keys()
        assert missing == {f"{kind}-{n}" for kind in ("lost", "flying") for n in range(20)}
        assert [a.kind for a in await node.store.alerts.views() if a.task is None] == ["generation"]
        assert node.store.identity.generation == 2
        _asked_again(service, gap, keys)
        assert set(keys) == {key for key in keys if await _was_in_doubt(node.client, views[key].id)}
        await balanced(node.client, service, views)
        assert {views[key].state for key in keys} == {"processed", "undone"}
        assert second.store.identity.generation == 2
        for key in ("fresh-1", "fresh-2"):
            await load.one(Order(key))
        await balanced(node.client, service, await ended(node.client))


def _asked_again(service: Service, gap: int, keys: list[str]) -> None:
    """Assert that each of these was asked for ship again after the first ``gap`` calls, under its key, with a higher token."""
    again = {call.order: call for call in service.asked[gap:] if (call.step, call.doing) == ("ship", "do")}
    assert again.keys() >= set(keys)
    assert {call.token.generation for call in again.values()} == {2}
    first = {call.order: call.key for call in service.asked[:gap] if call.step == "ship"}
    assert {key: again[key].key for key in keys} == {key: first[key] for key in keys}


async def _in_flight(pair: ReplicaPair, service: Service, load: Load) -> tuple[list[str], list[str]]:
    """Submit orders that wait at ship, most of them in its queue, and others that wait at reserve; returns their keys."""
    service.shut("ship")
    keys = [f"held-{n}" for n in range(40)]
    for n, key in enumerate(keys):
        await load.one(Order(key, "ship" if n % 5 == 0 else ""))

    async def queued() -> bool:
        in_flight, untaken = [await asyncio.to_thread(_counted, pair, q, 0) for q in (TAKEN, UNTAKEN)]
        return service.waiting["ship"] == 16 == in_flight and untaken == 24

    await until(queued, "ship to be in flight, with a queue before it")
    service.shut("reserve")
    ahead = [f"ahead-{n}" for n in range(10)]
    for key in ahead:
        await load.one(Order(key, later="charge"))
    await until(lambda: _holds(service, "reserve", 10), "reserve to be in flight")
    return keys, ahead


async def _opened_and_closed(url: str) -> None:
    store = PostgresStore(url)
    await store.open()
    await store.close()


async def _holds(service: Service, step: str, count: int) -> bool:
    return service.waiting[step] >= count


async def _was_in_doubt(client: mg.Client, task: int) -> bool:
    events = await client.store.tasks.history(task)
    return any(move[0] == "ship" and move[2] == "in_doubt" for event in events for move in event.moves)


def _counted(pair: ReplicaPair, sql: str, server: int = 1) -> int:
    ((count,),) = (pair.primary, pair.standby)[server].run(sql)
    return int(count or 0)
