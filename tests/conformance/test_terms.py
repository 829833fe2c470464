"""A Supervisor's writes carry the epoch of its term, and are refused when the lease has moved on."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from msgspec.structs import replace

from makegood.election.protocol import Grant
from makegood.errors import FencedOffError
from makegood.store.protocol import Store
from makegood.store.views import Filter, StepView
from tests.conformance.builders import agent, offer, running, term, to_state
from tests.conformance.worlds import World, still_waits

WRITES: dict[str, Callable[[Store, Grant], Awaitable[object]]] = {
    "judge": lambda store, grant: store.supervision.judge(grant, 0, 10),
    "release_dead": lambda store, grant: store.supervision.release_dead(grant, 10),
    "release_unresponsive": lambda store, grant: store.supervision.release_unresponsive(grant, 0, 10),
    "expire_tasks": lambda store, grant: store.supervision.expire_tasks(grant, 10),
    "starved": lambda store, grant: store.supervision.alert_starved(grant, 0, 10),
}


async def ripe(store: Store, world: World) -> None:
    """Make a store in which each of the Supervisor's writes has something to do."""
    scheduler = await running(store, 1, 2, 3, 4, within=10.0, undo_within=10.0)
    await store.requests.take(await agent(store, ttl=1e6), [offer(2)])
    await scheduler.commit(to_state(scheduler[4], "undoing", goal="undo"))
    await world.elapse(40)
    grant = await store.leases.acquire("supervisor", "before", "before", 60)
    assert grant is not None
    await store.supervision.judge(grant, 0, 1)
    await store.leases.release(grant)
    await world.elapse(100)


async def steps_of(store: Store, task: int) -> list[StepView]:
    """Return the steps of a task."""
    detail = await store.tasks.detail(task)
    return [] if detail is None else detail.steps


async def snapshot(store: Store) -> object:
    """Return all that a Supervisor could have changed."""
    tasks = await store.tasks.find(Filter())
    return (
        tasks,
        [replace(step, due=None) for t in tasks for step in await steps_of(store, t.id)],
        (await store.admin.schema()).rows,
        await store.alerts.views(),
        [(n.id, n.dead) for n in await store.nodes.views()],
    )


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("how", ["released", "superseded", "expired", "renewed by another"])
async def test_a_supervisor_whose_term_is_over_writes_nothing(
    store: Store, world: World, write: str, how: str
) -> None:
    await ripe(store, world)
    old = await term(store, holder="old")
    if how == "released":
        await store.leases.release(old)
    elif how == "expired":
        await world.elapse(61)
    else:
        await world.elapse(61)
        new = await store.leases.acquire("supervisor", "new", "new nonce", 1e6)
        assert new is not None
        if how == "renewed by another":
            assert await store.leases.renew(new)
    before = await snapshot(store)
    with pytest.raises(FencedOffError) as error:
        await WRITES[write](store, old)
    assert error.value.epoch == old.epoch
    assert await snapshot(store) == before


@pytest.mark.parametrize("write", WRITES)
async def test_the_present_term_writes(store: Store, world: World, write: str) -> None:
    await ripe(store, world)
    grant = await term(store, holder="new")
    before = await snapshot(store)
    await WRITES[write](store, grant)
    assert await snapshot(store) != before


async def test_a_new_term_waits_for_a_write_of_the_old_one_that_is_under_way(
    store: Store, world: World
) -> None:
    """The lease cannot move between the fence and the commit of a Supervisor's write."""
    old = await term(store)
    await world.elapse(61)
    async with world.raw() as raw:  # a Supervisor's transaction, past its fence
        await raw.run("select 1 from {lease} where name = 'supervisor'" + raw.for_share)
        going = asyncio.create_task(store.leases.acquire("supervisor", "new", "new", 60))
        assert await still_waits(going)
    grant = await going
    assert grant is not None
    assert grant.epoch == old.epoch + 1
