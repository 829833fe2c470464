"""Supervisors mark processes that are certainly dead: gone from their host, or replaced by a successor of their name."""

import asyncio
import random

from makegood.base.clock import SystemClock
from makegood.base.process_identity import ProcessIdentity, own
from makegood.options import Options
from makegood.store.protocol import Store
from makegood.store.step_down import LEADER
from makegood.store.views import NodeInfo
from makegood.supervisor.deaths import READ_EVERY, Deaths, predecessors
from makegood.supervisor.supervisor import Supervisor
from tests import waiting
from tests.clocks import AheadClock, HandClock
from tests.conformance.builders import info, running
from tests.conformance.test_deaths import steps as resumable
from tests.conformance.worlds import Counts, World

ME = own() or ProcessIdentity("this host", 1, 1)
GONE = ProcessIdentity(ME.scope, 2**30, 1)
"""No system has so many processes."""


def deaths(store: Store) -> Deaths:
    """Return what looks for the dead."""
    return Deaths(store, ME, lambda: None, life=5.0, clock=SystemClock(), rng=random.Random(1))


async def test_the_gone_of_this_host_are_marked(store: Store) -> None:
    await store.nodes.register(info("me", process=ME))
    await store.nodes.register(info("unknown"))
    await store.nodes.register(info("elsewhere", process=ProcessIdentity("another host", 2**30, 1)))
    dead = await store.nodes.register(info("dead", process=GONE))
    look = deaths(store)
    assert await look.once() == [dead]
    assert await look.once() == []


async def test_one_whose_heartbeat_has_run_out_meanwhile_is_marked_too(store: Store, world: World) -> None:
    """It may hold the lease, and nobody else marks it before that has run out."""
    dead = await store.nodes.register(info("dead", process=GONE, ttl=1.0))
    await world.elapse(2.0)
    assert await deaths(store).once() == [dead]


async def test_who_takes_over_a_name_replaces_its_former_owner_once(store: Store) -> None:
    """Two that run under one name by mistake do not go on and on declaring each other dead."""
    first = await store.nodes.register(info("web-1", is_successor=True))
    second = await store.nodes.register(info("web-1", is_successor=True))
    assert await deaths(store).once() == [first]
    await store.nodes.register(info("web-1", is_successor=False))  # the first one was alive
    assert await deaths(store).once() == []
    assert not await store.nodes.heartbeat(first, info("web-1"))
    assert await store.nodes.heartbeat(second, info("web-1"))


def test_a_name_that_a_host_gives_says_nothing() -> None:
    """Of three containers with one host name, each is process 1."""
    nodes: list[tuple[int, NodeInfo]] = [(n, info("app-1", is_successor=False)) for n in (1, 2, 3)]
    assert predecessors(nodes) == []
    assert predecessors([*nodes, (4, info("app-2", is_successor=True))]) == []
    assert predecessors([(5, info("app-1", is_successor=True)), *nodes]) == [1, 2, 3]


async def test_a_supervisor_that_waits_for_the_lease_of_the_dead_leads_at_once_and_frees_its_tasks(
    store: Store,
) -> None:
    """The lease would last for ten minutes, and the interval that is watched first for one."""
    scheduler = await running(store, 1, local=True, steps=resumable())
    assert await store.leases.acquire(LEADER, "dead", "nonce", 600.0) is not None
    leader = await store.nodes.register(info("dead", process=GONE))
    options = Options(lease="10m", supervise_every="1m")
    supervisor = Supervisor(store, options, me="next", clock=SystemClock(), rng=random.Random(1))
    look = Deaths(store, ME, supervisor.hurry, life=5.0, clock=SystemClock(), rng=random.Random(1))
    running_supervisor = asyncio.create_task(supervisor.run())
    try:
        await waiting.moment()
        assert supervisor.leading is None
        assert await store.nodes.mark_dead([scheduler.node]) == [scheduler.node]
        assert await look.once() == [leader]

        async def freed() -> bool:
            detail = await store.tasks.detail(1)
            return detail is not None and detail.task.state == "pending" and detail.steps[0].failures == 1

        await waiting.until(freed)
        assert supervisor.leading is not None
    finally:
        running_supervisor.cancel()
        await asyncio.gather(running_supervisor, return_exceptions=True)


async def test_at_rest_the_store_is_read_once_in_the_life_of_a_heartbeat(
    counting_store: Store, counts: Counts
) -> None:
    """Two minutes at four looks a second: 24 reads, and no commit. It was a read each second, 120."""
    clock = HandClock()
    look = Deaths(counting_store, ME, lambda: None, life=5.0, clock=clock, rng=random.Random(1))
    await look.once()
    await counts.reset()
    for _ in range(120 * 4):
        clock.forward(0.25)
        await look.once()
    assert (counts.statements, await counts.commits()) == (24, 0)


async def test_who_begins_or_is_marked_is_seen_by_a_wake_up(store: Store, other: Store) -> None:
    """The marks of another process, too, call the leader. By the clock alone nothing would be read for an hour."""
    calls, clock = list[int](), AheadClock()
    bystander = await store.nodes.register(info("elsewhere"))
    look = Deaths(store, ME, lambda: calls.append(1), life=3600.0, clock=clock, rng=random.Random(1))
    life = asyncio.create_task(look.run())

    async def seen() -> bool:
        clock.ahead += READ_EVERY  # two reads are never closer
        return bool(calls)

    try:
        await waiting.moment()
        await other.nodes.register(info("dead", process=GONE))
        await waiting.until(seen, "the dead to be marked")
        assert [number for number, _ in await other.nodes.processes()] == [bystander]
        calls.clear()
        assert await other.nodes.mark_dead([bystander]) == [bystander]
        await waiting.until(seen, "the mark to be seen")
    finally:
        life.cancel()
        await asyncio.gather(life, return_exceptions=True)


async def test_without_a_wake_up_the_dead_are_seen_once_heartbeats_would_run_out(store: Store) -> None:
    clock = HandClock()
    look = Deaths(store, ME, lambda: None, life=5.0, clock=clock, rng=random.Random(1))
    await look.once()
    dead = await store.nodes.register(info("dead", process=GONE))
    clock.forward(4.75)
    assert await look.once() == []
    clock.forward(0.25)
    assert await look.once() == [dead]
