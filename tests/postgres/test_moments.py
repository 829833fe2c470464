"""What one statement writes of a task is of one moment, and a row that changed while a statement met it is read as it is now."""

import asyncio
import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import makegood as mg
from makegood.store.firing import Firing
from makegood.store.postgres import PostgresStore
from tests.actors.noop_apps import chain_app
from tests.conformance.builders import draft, term
from tests.conformance.postgres import PostgresWorld
from tests.conformance.test_schedules import ACT, MONTH, a_schedule
from tests.postgres.rewritten_statements import TICKING, driver, ticking
from tests.waiting import moment

_, CHAIN = chain_app(1)
STARTS = """
select state, start_at is not null as begins_later, abs(ready_seq - start_at * 1000000) < 2 as on_time from makegood.task order by id
"""


@pytest.mark.new_database
@pytest.mark.parametrize("is_joined", [True, False], ids=["in the caller's transaction", "in the store's"])
async def test_a_task_that_begins_just_now_sleeps_in_all_its_columns_or_in_none(
    url: str, db: Any, is_joined: bool
) -> None:
    """Whatever the clock shows next: each look at it here is a second later."""
    await db.execute(TICKING)
    connect = driver(ticking)
    connection = await connect(url)
    store = PostgresStore(url, driver=connect)
    await store.open()
    async with mg.Client(store) as client:
        ticks = await connection.fetchval("select last_value from public.tick")
        for seconds in range(1, 20):
            at = datetime.now(UTC) + timedelta(seconds=ticks + 60 * (seconds - 1) + seconds)
            async with connection.transaction():
                await db.execute("select setval('public.tick', $1)", ticks + 60 * (seconds - 1))
                await client.submit(CHAIN, "a", at=at, connection=connection if is_joined else None)
    await store.close()
    await connection.close()
    rows = [tuple(row) for row in await db.fetch(STARTS)]
    assert set(rows) == {("sleeping", True, True), ("pending", False, None)}


async def test_a_schedule_that_was_fired_by_hand_while_a_pass_met_its_row_is_not_fired_beside_that_task(
    url: str, store: PostgresStore, db: Any
) -> None:
    """The pass sees the row as it is now, and so the state of the task that it names."""
    met = "s.next_at <= $1::float8"
    waits = f"{met} and pg_advisory_xact_lock_shared(77)::text is not null"
    leader = PostgresStore(url, driver=driver(lambda sql: sql.replace(met, waits)))
    await leader.open()
    await store.schedules.apply([a_schedule()])
    await PostgresWorld(url).elapse(MONTH)
    grant = await term(leader)
    await db.execute("select pg_advisory_lock(77)")
    firing = asyncio.create_task(leader.schedules.fire(grant, 10, Firing(itertools.count(100).__next__)))
    while not await db.fetch("select 1 from pg_locks where locktype = 'advisory' and not granted"):
        await moment()
    await store.schedules.launch(ACT, "shop", "monthly", [draft(1)], is_backfill=False)
    await db.execute("select pg_advisory_unlock(77)")
    result = await firing
    await leader.close()
    assert [row["id"] for row in await db.fetch("select id from makegood.task")] == [1]
    assert [dict(each.skips) for each in result.firings] == [{"overlap": 1}]
