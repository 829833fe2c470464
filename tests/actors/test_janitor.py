"""The janitor: it sweeps only where it leads, to the end of what is old, and lives through an outage."""

import asyncio
import random
from typing import Any, cast

import pytest

import makegood as mg
from makegood.errors import StoreUnavailableError
from makegood.node.node import Node
from makegood.options import Options
from makegood.store.protocol import Store
from makegood.store.records import Pruned
from makegood.supervisor.janitor import WINDOW, Janitor
from makegood.testing.simulator.doubles import Doubled
from tests.actors.noop_apps import chain_app
from tests.conformance.worlds import World
from tests.waiting import until


class Windows(Doubled):
    """A store with so many windows of old tasks; ``away``: calls that fail first."""

    def __init__(self, count: int, *, away: int = 0) -> None:
        super().__init__(None)
        self.left = count
        self.away = away
        self.asked: list[tuple[float, int, int]] = []
        self.swept = asyncio.Event()
        self.expired: list[int] = []
        self.shortened: list[tuple[int, int]] = []

    async def expire_messages(self, limit: int) -> int:
        """Remove messages that nobody received: a window and a bit."""
        self.expired.append(limit)
        return limit if len(self.expired) == 1 else 1

    async def shorten_queues(self, most: int, limit: int, most_bytes: int) -> int:
        """Drop notices of two queues, a window of each; then some."""
        assert most_bytes == 99
        self.shortened.append((most, limit))
        return 2 * limit if len(self.shortened) == 1 else 3

    async def prune(self, older: float, after: int, limit: int, *, dry: bool = False) -> Pruned:
        """Remove a window."""
        assert not dry
        self.asked.append((older, after, limit))
        if self.away:
            self.away -= 1
            raise StoreUnavailableError("away")
        self.left -= 1
        if self.left == 0:
            self.swept.set()
        return Pruned(limit, 0, after + 1 if self.left > 0 else None)


def janitor(store: Windows, *, leads: bool = True) -> Janitor:
    """Return one that sweeps all the time."""
    return Janitor(
        cast("Store", store),
        keep=60.0,
        sweep=0.01,
        most=9,
        most_bytes=99,
        leads=lambda: leads,
        rng=random.Random(1),
    )


async def test_a_round_goes_through_all_windows() -> None:
    store = Windows(3)
    assert await janitor(store).tasks(60.0) == 3 * WINDOW
    assert store.asked == [(60.0, 0, WINDOW), (60.0, 1, WINDOW), (60.0, 2, WINDOW)]
    await janitor(store).queues()
    assert store.expired == [WINDOW, WINDOW], "unread messages too, window after window"
    assert store.shortened == [(9, WINDOW), (9, WINDOW)], "and notices of queues that are too long"


async def test_it_does_nothing_where_it_does_not_lead() -> None:
    store = Windows(3)
    assert await janitor(store, leads=False).tasks(60.0) == 0
    await janitor(store, leads=False).queues()
    assert (store.asked, store.expired, store.shortened) == ([], [], [])


async def test_it_goes_on_after_an_outage() -> None:
    store = Windows(2, away=1)
    task = asyncio.create_task(janitor(store).run())
    await asyncio.wait_for(store.swept.wait(), 60)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert len(store.asked) == 3


async def test_a_node_that_leads_removes_what_ended(store: Store, world: World) -> None:
    app, chain = chain_app(1)
    options = Options(
        retention=0.0,
        cleanup_every=0.05,
        lease="10s",
        supervise_every="500ms",
        poll_every="50ms",
        alerts_every="50ms",
        drain="1s",
    )
    async with Node(app, store, options=options) as node:
        task = await node.client.submit(chain, "x")
        await task.result(timeout="60s")
        await world.elapse(1.0)

        async def gone() -> bool:
            return not await node.client.find()

        await until(gone)


async def test_a_node_that_keeps_for_ever_still_shortens_the_queues(store: Store) -> None:
    """A queue that nobody reads has its limit; all tasks go on, and all of them are kept."""
    app, chain = chain_app(1)
    options = Options(
        retention=None,
        cleanup_every=0.05,
        queue_limit=2,
        lease="10s",
        supervise_every="500ms",
        poll_every="50ms",
        alerts_every="50ms",
        drain="1s",
    )
    async with Node(app, store, options=options) as node:
        tasks = [await node.client.submit(chain, "x", reply_to="queue:nobody") for _ in range(3)]
        for task in tasks:
            await task.result(timeout="60s")

        async def short() -> bool:
            return len(await node.client.messages("nobody")) == 2

        await until(short)
        assert [alert.step for alert in await node.client.alerts()] == ["nobody"]
        assert len(await node.client.find()) == 3


@pytest.mark.parametrize("wrong", [{"retention": "soon"}, {"cleanup_every": 0}])
def test_keeping_times_are_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(mg.ConfigError, match=next(iter(wrong))):
        Options(**wrong)
