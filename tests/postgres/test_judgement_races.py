"""A request that is judged in the very moment in which a Scheduler uses it up: the judge has won, whichever way the commit takes."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import pytest
from msgspec.structs import replace

from makegood.model.decision import OpenDecision
from makegood.store.postgres import PostgresStore
from tests.conformance.builders import Hand, done, draft, running, unchanged
from tests.waiting import until

WAITS = "select count(*) from pg_locks where locktype = 'transactionid' and not granted"


def rejection(mine: Hand) -> OpenDecision:
    """Return a Decision on task 1 with a text that PostgreSQL refuses."""
    decision = unchanged(mine[1])
    decision.steps[0] = replace(mine[1].steps[0], error="before\0after")
    return decision


WAYS: dict[str, Callable[[Hand], Awaitable[object]]] = {
    "in one statement": lambda mine: mine.commit(done(mine[2], 0), done(mine[3], 0)),
    "with a claim": lambda mine: mine.claim(1, decisions=[done(mine[2], 0), done(mine[3], 0)]),
    "with a value that is refused": lambda mine: mine.commit(
        rejection(mine), done(mine[2], 0), done(mine[3], 0)
    ),
}


@pytest.mark.parametrize("way", WAYS)
async def test_a_request_that_is_judged_while_its_reply_is_committed(
    store: PostgresStore, url: str, db: Any, way: str
) -> None:
    """The commit finds the row, waits for the judge who is deleting it, and then finds it gone: its Decision is lost, the others are written."""
    mine = await running(store, 1, 2, 3)
    await store.tasks.submit([draft(4)])
    judge = await asyncpg.connect(url)
    async with judge.transaction():
        await judge.execute("delete from makegood.request where task = 2")
        going = asyncio.ensure_future(WAYS[way](mine))
        await until(lambda: db.fetchval(WAITS), "the commit to wait for the judge")
        assert not going.done()
    await going
    outcome = mine.committed
    await judge.close()
    assert outcome.losses == {2}
    assert [task for task, _ in outcome.rejections] == ([1] if "refused" in way else [])
    details = [await store.tasks.detail(n) for n in (2, 3)]
    assert [detail is not None and detail.steps[0].state == "done" for detail in details] == [False, True]
