"""One task meets a number that is taken, or a row that somebody else's transaction holds: the others of its batch go on."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from makegood.errors import QueueFullError
from makegood.store.postgres import PostgresStore
from tests.conformance.builders import Hand, done, draft, running, scheduler, term
from tests.conformance.test_queue_messages import out

NEXT = "select nextval(pg_get_serial_sequence('makegood.{table}', '{column}'))"
TAKEN_EVENTS = """
insert into makegood.event (seq, task, at, moves, note) overriding system value
select g, $2, 0, '[]', '' from generate_series($1::bigint + 1, $1::bigint + 100) g
"""
TAKEN_ALERTS = """
insert into makegood.alert (id, kind, step, text, at) overriding system value
select g, 'test', '', '', 0 from generate_series($1::bigint + 1, $1::bigint + 100) g
"""


async def take_events(db: Any, task: int) -> None:
    """Occupy the next hundred numbers of events, for one task."""
    await db.execute(TAKEN_EVENTS, await db.fetchval(NEXT.format(table="event", column="seq")), task)


async def states(db: Any) -> dict[int, str]:
    return {row["id"]: row["state"] for row in await db.fetch("select id, state from makegood.task")}


async def test_a_task_whose_events_are_refused_goes_to_an_operator_and_the_others_go_on(
    store: PostgresStore, db: Any
) -> None:
    mine = await running(store, 1, 2, 3)
    await take_events(db, 2)
    outcome = await mine.commit(*(done(mine[task], 0) for task in (1, 2, 3)))
    assert [task for task, _ in outcome.rejections] == [2]
    assert (await states(db))[2] == "error"
    assert [(alert.kind, alert.task) for alert in await store.alerts.views()] == [("unreadable", 2)]
    details = [await store.tasks.detail(task) for task in (1, 3)]
    assert [one is not None and one.steps[0].state for one in details] == ["done", "done"]


async def test_a_task_goes_to_an_operator_even_if_no_alert_can_be_written(
    store: PostgresStore, db: Any
) -> None:
    mine = await running(store, 1, 2)
    await take_events(db, 2)
    await db.execute(TAKEN_ALERTS, await db.fetchval(NEXT.format(table="alert", column="id")))
    outcome = await mine.commit(done(mine[1], 0), done(mine[2], 0))
    assert [task for task, _ in outcome.rejections] == [2]
    assert await states(db) == {1: "processing", 2: "error"}


async def test_a_supervisor_frees_the_tasks_of_a_dead_scheduler_although_one_can_have_no_event(
    store: PostgresStore, db: Any
) -> None:
    mine = await running(store, 1, 2, 3)
    grant = await term(store)
    await take_events(db, 2)
    await db.execute("update makegood.node set alive_until = 0 where id = $1", mine.node)
    assert sorted(await store.supervision.release_dead(grant, 10)) == [1, 2, 3]
    assert set((await states(db)).values()) == {"pending"}


@asynccontextmanager
async def holding(url: str, sql: str, *values: Any) -> AsyncIterator[None]:
    """Hold what a statement locks, in a transaction of another session."""
    other = await asyncpg.connect(url)
    try:
        async with other.transaction():
            await other.execute(sql, *values)
            yield
    finally:
        await other.close()


ITS_REQUEST = "select 1 from makegood.request where task = 2 for update"


async def test_a_request_that_somebody_holds_does_not_hold_up_other_tasks(
    store: PostgresStore, url: str, db: Any
) -> None:
    mine = await running(store, 1, 2, 3)
    async with holding(url, ITS_REQUEST):
        outcome = await mine.commit(*(done(mine[task], 0) for task in (1, 2, 3)))
        assert (outcome.losses, outcome.lock_conflicts, outcome.rejections) == ({2}, {2}, [])
        details = [await store.tasks.detail(task) for task in (1, 2, 3)]
        assert [one is not None and one.steps[0].state for one in details] == ["done", "running", "done"]
        # The next batches do not wait as long.
        again: Hand = await running(store, 4, 5)
        await again.commit(done(again[4], 0), done(again[5], 0))
    outcome = await mine.commit(done(mine[2], 0))
    assert not outcome.losses


async def test_a_supervisor_judges_the_requests_that_nobody_holds(
    store: PostgresStore, url: str, db: Any
) -> None:
    await running(store, 1, 2, 3)
    grant = await term(store)
    await db.execute("update makegood.request set taken_by = 7, complete_by = 1")
    async with holding(url, ITS_REQUEST):
        verdict = await store.supervision.judge(grant, 0.0, 10)
        assert sorted(task for task, *_ in verdict.requests) == [1, 3]
    verdict = await store.supervision.judge(grant, 0.0, 10)
    assert [task for task, *_ in verdict.requests] == [2]


async def test_a_process_that_holds_its_own_row_does_not_keep_others_from_being_declared_dead(
    store: PostgresStore, url: str, db: Any
) -> None:
    mine = await running(store, 1)
    other = await scheduler(store)
    grant = await term(store)
    await db.execute("update makegood.node set alive_until = 0")
    async with holding(url, "select 1 from makegood.node where id = $1 for update", other):
        assert await store.supervision.release_dead(grant, 10) == [1]
        assert await db.fetch("select id from makegood.node where dead") == [(mine.node,)]


async def test_an_expired_message_that_somebody_holds_holds_up_no_sender(
    store: PostgresStore, url: str, db: Any
) -> None:
    """A full queue drops what has expired; what is locked stays, and does not count."""
    await store.queues.send_messages([out("1"), out("2", expires=60.0)], 2)
    await db.execute("update makegood.message set expires_at = 1 where id = '2'")
    async with holding(url, "select 1 from makegood.message where id = '2' for update"):
        await store.queues.send_messages([out("3")], 2)
        with pytest.raises(QueueFullError):
            await store.queues.send_messages([out("4")], 2)
    ids = await db.fetch("select id from makegood.message order by seq")
    assert [row["id"] for row in ids] == ["1", "2", "3"]


@pytest.mark.parametrize("kind", ["node", "writer"])
async def test_rows_note_the_login_that_wrote_them(store: PostgresStore, db: Any, kind: str) -> None:
    await store.tasks.submit([draft(1)])
    await scheduler(store)
    names = {row[0] for row in await db.fetch(f"select db_user from makegood.{kind}")}
    assert names == {await db.fetchval("select session_user::text")}
