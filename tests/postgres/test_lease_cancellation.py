"""A take of a lease whose caller went away, on a server that is slow with it: who gives it back gives it back for good."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from makegood.election import Grant, OpenLeases, open_leases

SESSIONS = "select pid from pg_stat_activity where application_name like 'makegood election %' and datname = current_database()"
LOCKED = f"{SESSIONS} and wait_event_type = 'Lock'"
BUSY = f"{SESSIONS} and pid = $1 and state <> 'idle'"
LEASE = "select 1 from makegood_election.lease for update"


@asynccontextmanager
async def a_take_that_stands_still(leases: OpenLeases, db: Any) -> AsyncIterator[int]:
    """The server's process has stopped in the middle of a take whose caller has gone away; it goes on in the end."""
    first = await leases.acquire("lead", "a", "first", 30)
    assert first is not None
    await leases.release(first)
    async with db.transaction():
        await db.execute(LEASE)
        taking = asyncio.create_task(leases.acquire("lead", "a", "second", 30))
        while not (waiting := await db.fetch(LOCKED)):  # the server has no event for it
            pass
        ((pid,),) = waiting
        os.kill(pid, signal.SIGSTOP)
    taking.cancel()
    await asyncio.wait([taking])
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGCONT)


async def test_a_release_does_not_overtake_the_take_that_it_withdraws(url: str, db: Any) -> None:
    async with open_leases(url) as leases:
        async with a_take_that_stands_still(leases, db) as pid:
            releasing = asyncio.create_task(leases.release(Grant("lead", "a", "second", 0, 30)))
            await asyncio.wait([releasing], timeout=1)  # all the time that it would take
        await releasing
        while await db.fetch(BUSY, pid):  # the server has no event for it
            pass
        lease = await leases.read("lead")
        assert lease is not None
        assert lease.holder is None, "the take came after the release: nobody knows of its lease"


async def test_other_calls_do_not_wait_for_a_take_that_nobody_waits_for(url: str, db: Any) -> None:
    """And its connection is gone once it has ended."""
    async with open_leases(url) as leases:
        async with a_take_that_stands_still(leases, db) as pid:
            lease = await leases.read("lead")
            assert lease is not None
            assert lease.holder is None
        while pid in [row["pid"] for row in await db.fetch(SESSIONS)]:  # the server has no event for it
            pass
        assert len(await db.fetch(SESSIONS)) == 1
