"""What is not promised after the promotion of a standby that was behind, shown; run by `make replicas`, not by `make proof`.

Each test has orders undone within the stretch that the standby never saw. The store then knows of no undo.
"""

import asyncio
from contextlib import AsyncExitStack

import pytest

import makegood as mg
from proofs.replicas import ReplicaPair
from tests.replicas.load_and_audit import BRISK, Load, ended
from tests.replicas.remote_service import Order, Service, shop
from tests.waiting import until

UNTAKEN = "select count(*) from makegood.request where kind = 'do' and taken_by is null"


@pytest.mark.parametrize(
    ("tombstones", "state"), [(True, "undone"), (False, "processed")], ids=["tombstones", "none"]
)
async def test_an_effect_undone_in_the_lost_stretch(
    asynchronous: ReplicaPair, *, tombstones: bool, state: str
) -> None:
    """The step that was in flight is asked again under its key. A service that remembers that the key was undone says so, and
    the order ends undone; one that remembers the first answer alone gives it again, and the order ends processed with
    nothing standing: such a service needs a synchronous standby.
    """
    service = Service(keeps_tombstones=tombstones)
    orders = shop(service)
    async with AsyncExitStack() as stack:
        node = await stack.enter_async_context(mg.Node(orders.app, asynchronous.url, options=BRISK))
        service.shut("reserve")
        handle = await node.client.submit(orders.place_order, Order("regretted"), key="regretted")
        await until(lambda: _holds(service, "reserve", 1), "reserve to be in flight")
        await asyncio.to_thread(asynchronous.caught_up)
        await asyncio.to_thread(asynchronous.detach)
        service.reopen("reserve")
        await handle.result(timeout=60)
        await handle.undo()
        await ended(node.client)
        assert service.standing("regretted") == {}
        await asyncio.to_thread(asynchronous.primary.kill)
        await asyncio.to_thread(asynchronous.promote)
        views = await ended(node.client)
        assert (views["regretted"].state, service.standing("regretted")) == (state, {})


async def test_a_cancel_in_the_lost_stretch_is_forgotten(asynchronous: ReplicaPair) -> None:
    """The step in flight had not begun when it was withdrawn and the steps before it were undone. The promoted store has those
    as done, and asks only what was in flight: the order goes on, and ends processed with the undone effects missing.
    """
    service = Service()
    orders = shop(service)
    async with AsyncExitStack() as stack:
        node = await stack.enter_async_context(mg.Node(orders.app, asynchronous.url, options=BRISK))
        load = Load(node.client, orders, "load")
        service.shut("ship")
        for n in range(8):
            await load.one(Order(f"before-{n}"))
        await until(lambda: _holds(service, "ship", 8), "ship to have no slot left")
        handle = await load.one(Order("cancelled"))

        async def queued() -> bool:
            return await asyncio.to_thread(asynchronous.primary.run, UNTAKEN) == [("1",)]

        await until(queued, "ship to wait for a slot")
        await asyncio.to_thread(asynchronous.caught_up)
        await asyncio.to_thread(asynchronous.detach)
        await handle.cancel()
        await ended(node.client, {"cancelled"})
        assert service.standing("cancelled") == {}
        await asyncio.to_thread(asynchronous.primary.kill)
        service.reopen("ship")
        await asyncio.to_thread(asynchronous.promote)
        views = await ended(node.client)
        assert (views["cancelled"].state, service.standing("cancelled")) == ("processed", {"ship": 1})
        assert [a.kind for a in await node.store.alerts.views() if a.task is None] == ["generation"]


async def _holds(service: Service, step: str, count: int) -> bool:
    return service.waiting[step] >= count
