"""A claim beside an end of another task of the lane, interleaved by hand; a claim that meets a lock; a submission that commits late."""

import asyncio
from typing import Any

import asyncpg
import pytest

import makegood as mg
from makegood.model.messages import Act, TaskMessage
from makegood.node.node import Node
from makegood.store import lanes
from makegood.store.postgres import PostgresStore, lane_locks
from makegood.store.postgres import claim as postgres_claim
from makegood.store.views import Filter
from makegood.transactions import recognise
from tests.actors.conftest import QUIET
from tests.conformance.builders import draft, hand
from tests.conformance.test_lanes import claim, end, laned, submit
from tests.waiting import moment

PARKED = 2**63 - 1
WAITERS = "select count(*) from pg_locks where locktype = 'advisory' and not granted"


async def until(db: Any, sql: str, value: object) -> None:
    """Wait until a query returns a value."""
    async with asyncio.timeout(120):
        while await db.fetchval(sql) != value:
            await moment()


async def test_an_end_waits_for_a_claim_that_is_about_to_park_and_wakes_what_it_parked(
    store: PostgresStore, db: Any, url: str
) -> None:
    await submit(store, laned(1, "ada"))
    scheduler = await hand(store)
    assert await claim(scheduler) == [1]
    await submit(store, laned(2, "ada"))
    other = await asyncpg.connect(url)
    try:
        async with other.transaction():  # a claim of another process, up to its commit
            await other.fetch("select 1 from makegood.task where id = 2 for no key update skip locked")
            assert await other.fetch(lane_locks.TRY, [2]) == []
            assert [tuple(row)[:3] for row in await other.fetch(lanes.TAKEN.postgres, [2])] == [
                (2, "shop", "ada")
            ]
            ((_, _, _, free, _, _),) = await other.fetch(lanes.LAST.postgres, ["shop"], ["ada"], [1])
            assert free == 0, "the end is not there yet"
            ending = asyncio.create_task(end(scheduler, 1))
            await until(db, WAITERS, 1)
            await other.execute(lanes.PARK.postgres, [2])
        await ending
    finally:
        await other.close()
    assert await db.fetchval("select ready_seq from makegood.task where id = 2") < PARKED
    assert await claim(scheduler) == [2]


async def test_a_lane_that_a_claim_finds_free_is_not_free_for_another_claim(
    store: PostgresStore, db: Any, url: str
) -> None:
    """The other one leaves the lane's tasks as they are: its claim may yet be rolled back."""
    await submit(store, laned(1, "ada"), laned(2, "ada"))
    scheduler = await hand(store)
    other = await asyncpg.connect(url)
    try:
        transaction = other.transaction()  # a claim of another process, before its commit
        await transaction.start()
        await other.fetch("select 1 from makegood.task where id = 1 for no key update skip locked")
        assert await other.fetch(lane_locks.TRY, [1]) == []
        assert await other.fetch(lanes.TAKEN.postgres, [1]) == []
        await other.execute(lanes._TAKE.postgres, [1])
        assert await claim(scheduler) == []
        assert await db.fetchval("select ready_seq from makegood.task where id = 2") < PARKED
        await transaction.rollback()
    finally:
        await other.close()
    assert await claim(scheduler) == [1]
    assert await store.lanes.lanes_of(2) == {"ada": "waiting"}


async def test_a_claim_does_not_wait_for_a_lane_that_another_transaction_decides_on(
    store: PostgresStore, url: str
) -> None:
    await submit(store, laned(1, "ada"), laned(2, "lea"), draft(3))
    scheduler = await hand(store)
    other = await asyncpg.connect(url)
    try:
        async with other.transaction():
            await other.fetch(lane_locks.WAIT, ["shop/ada"])
            async with asyncio.timeout(120):
                assert sorted(await claim(scheduler)) == [2, 3]
    finally:
        await other.close()
    (view,) = await store.tasks.find(Filter(ids=(1,)))
    assert view.state == "queued"
    assert await claim(scheduler) == [1], "it was not parked"


async def test_a_scheduler_looks_again_at_what_it_left_to_another_transaction(
    store: PostgresStore, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody wakes it, and it never polls."""
    app, left, busy = mg.App("shop"), asyncio.Event(), lane_locks.busy

    async def observed(*args: Any) -> set[int]:
        tasks = await busy(*args)
        if tasks:
            left.set()
        return tasks

    monkeypatch.setattr(lane_locks, "busy", observed)

    @app.workflow(lane=lambda customer: customer)
    def nothing(customer: str) -> str:
        return customer

    other = await asyncpg.connect(url)
    async with Node(app, store, roles=("scheduler",), options=QUIET) as node:
        try:
            async with other.transaction():
                await other.fetch(lane_locks.WAIT, ["shop/ada"])
                task = await node.client.submit(nothing, "ada")
                async with asyncio.timeout(120):
                    await left.wait()
        finally:
            await other.close()
        assert await task.result(timeout=120) == "ada"


async def test_a_claim_locks_no_row_of_a_task_on_whose_lanes_another_transaction_decides(
    store: PostgresStore, db: Any, url: str
) -> None:
    """Two that end tasks and claim messages would else wait for each other's rows to make room."""
    await submit(store, laned(1, "ada"), laned(2, "ada", "bob"), laned(3, "bob"))
    scheduler = await hand(store)
    assert await claim(scheduler) == [1]
    assert await db.fetchval("select ready_seq from makegood.task where id = 2") == PARKED
    for task in (2, 3):
        await store.tasks.post(task, TaskMessage("cancel", act=Act(f"act {task}")))
    ender, claimer = await asyncpg.connect(url), await asyncpg.connect(url)
    try:
        async with ender.transaction(), claimer.transaction():
            await ender.fetch(lane_locks.WAIT, ["shop/ada"])
            rows = await claimer.fetch(postgres_claim._AT_REST, [2, 3])
            assert [row["id"] for row in rows] == [3]
            await ender.fetch("select 1 from makegood.task where id = 2 for no key update nowait")
    finally:
        await ender.close()
        await claimer.close()


async def test_an_end_that_is_not_committed_parks_nobody(store: PostgresStore, db: Any, url: str) -> None:
    """What a claim cannot lock it leaves as it is, so that it needs no other wake-up."""
    await submit(store, laned(1, "ada"), laned(2, "ada"))
    scheduler = await hand(store)
    assert await scheduler.claim(1, queued=True) == [1]
    other = await asyncpg.connect(url)
    try:
        async with other.transaction():
            await other.fetch(lane_locks.WAIT, ["shop/ada"])
            assert await claim(scheduler) == []
            assert await db.fetchval("select ready_seq from makegood.task where id = 2") < PARKED
    finally:
        await other.close()


async def test_a_callers_transaction_locks_nothing_and_may_commit_late(
    store: PostgresStore, url: str
) -> None:
    """An earlier place that appears late goes before those that wait, and not beside the one that goes."""
    other = await asyncpg.connect(url)
    try:
        transaction = other.transaction()
        await transaction.start()
        caller = recognise(other)
        await caller.perform(lambda tx: store.tasks.join(tx, [laned(1, "ada", "lea")]))
        await submit(store, laned(2, "ada"), laned(3, "ada"))
        scheduler = await hand(store)
        async with asyncio.timeout(120):
            assert await claim(scheduler) == [2]
        await transaction.commit()
        assert await claim(scheduler) == []
        await end(scheduler, 2)
        assert await claim(scheduler) == [1]
        await end(scheduler, 1)
        assert await claim(scheduler) == [3]
    finally:
        await other.close()


async def test_ends_in_lanes_of_several_keys_do_not_deadlock(store: PostgresStore) -> None:
    """Two Schedulers end tasks whose lanes cross, and let the same tasks go."""
    hands = [await hand(store), await hand(store)]
    await store.tasks.submit([laned(n, f"a{n % 2}", at_once=2) for n in range(1, 5)])
    await store.tasks.submit([laned(n, "a0", "a1", at_once=2) for n in range(5, 25)])
    order: list[int] = []
    while tasks := [n for each in hands for n in await claim(each, 2)]:
        order += tasks
        await asyncio.gather(*(end(each, *[n for n in each.tasks if n in tasks]) for each in hands))
    assert sorted(order) == list(range(1, 25))
