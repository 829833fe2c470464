"""A year of seven zones through schedules: rows of a store, fired by leaders in turn, on a clock by hand.

What each schedule must have done is computed apart from the engine, from a walk along the zone's clocks by Debian's rule
(``unit/cron_reference``). SQLite's calendar is the machine's clock, so a test can move it; PostgreSQL's is the server's.
"""

import asyncio
import random
import sqlite3
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

import makegood as mg
from makegood.base import zones
from makegood.base.clock import SystemClock
from makegood.election import Term
from makegood.election.settings import settings
from makegood.store.protocol import Store
from makegood.store.rows import read_static
from makegood.store.sqlite import SQLiteStore
from makegood.supervisor.firings import Firings
from makegood.supervisor.supervisor import LEASE
from tests.clocks import HandClock
from tests.unit.cron_reference import MINUTES, STRIDE, clocks, due, skips
from tests.unit.test_cron import YEARS

TEXTS = (
    "30 2 * * *",
    "0 0 * * *",
    "0,30 1-3 * * *",
    "*/30 2 * * *",
    "*/15 0,23 * 4,9-12 *",
    "15 */2 * 3,4,10,12 *",
    "0 * 1-8 4,10 *",
)
"""Fixed times and real time, at the hours at which one of the zones changes its clocks."""
NEAR = timedelta(hours=3)
"""Around a change of the clocks, the leader looks each five minutes."""


def an_app(zone: str) -> mg.App:
    """Return an app with a schedule for each text."""
    app = mg.App("shop")
    desk = app.agent("desk")

    @desk.action(complete_within="20s", undo=mg.NOTHING)
    def write(at: datetime) -> str:
        return at.isoformat()

    @app.workflow
    def report(at: datetime) -> str:
        return write(at)

    for n, text in enumerate(TEXTS):
        app.schedule(
            f"s{n}",
            report,
            mg.MOMENT,
            cron=text,
            timezone=zone,
            overlap="allow",
            coalesce=False,
            catch_up="30d",
        )
    return app


def looks(start: datetime, readings: Sequence[int], rng: random.Random) -> Iterator[datetime]:
    """Yield when the leader looks: each five minutes around a change of the clocks, otherwise after hours or days."""
    end = start + len(readings) * STRIDE
    changes = [
        start + n * STRIDE for n in range(1, len(readings)) if readings[n] != readings[n - 1] + MINUTES
    ]
    at = start
    while at < end:
        yield at
        nearest = min((change for change in changes if change + NEAR > at), default=end + NEAR)
        stride = timedelta(hours=rng.choice((1, 5, 24, 24, 70)))
        at += STRIDE if at >= nearest - NEAR else min(stride, nearest - NEAR - at)
    yield end - STRIDE


class Leaders:
    """Those who lead in turn, each with a memory of its own."""

    def __init__(self, store: Store, clock: HandClock, rng: random.Random) -> None:
        self._store, self._clock, self._rng = store, clock, rng
        self._term: Term | None = None
        self._firings = self._successor()

    def _successor(self) -> Firings:
        return Firings(self._store, lambda: None, asyncio.Event(), clock=self._clock, rng=self._rng)

    async def look(self) -> None:
        """Fire what is due, sometimes as a new leader."""
        if self._term is None or self._rng.random() < 0.05:
            if self._term is not None:
                await self._store.leases.release(self._term.grant)
            self._firings = self._successor()
            grant = await self._store.leases.acquire(LEASE, "me", f"nonce-{self._rng.random()}", 1e9)
            assert grant is not None
            clock = SystemClock()
            self._term = Term(
                self._store.leases, grant, clock.monotonic(), settings=settings(60), clock=clock, rng=self._rng
            )  # fmt: skip
        while not await self._firings.once(self._term):
            pass


def moments(path: Path) -> dict[str, set[datetime]]:
    """Return the moments that the tasks of each schedule got as their input; each task has a key of its own."""
    instants: dict[str, set[datetime]] = {}
    with closing(sqlite3.connect(path)) as connection:
        for key, static in connection.execute("select key, static from makegood_task"):
            at = msgspec.json.decode(read_static(static)[0][0], type=datetime)
            instants.setdefault(key.partition("@")[0], set()).add(at)
    return instants


@pytest.mark.parametrize("zone", YEARS)
async def test_a_year_of_schedules_is_what_cron_itself_would_do(zone: str, tmp_path: Path) -> None:
    """Each moment is one task, never before it, whoever leads; what has none is counted with its reason."""
    start = datetime(YEARS[zone], 1, 1, tzinfo=UTC)
    readings = clocks(zones.zone(zone), start, start + timedelta(days=365))
    expected = [[start + index * STRIDE for index in due(text, readings)] for text in TEXTS]
    clock, rng = HandClock(), random.Random(zone)
    clock.wall_seconds = start.timestamp() - 1
    store = SQLiteStore(tmp_path / "store.db", clock=clock, poll=None)
    await store.open(migrate=True)
    await store.schedules.apply([each.draft for each in an_app(zone).schedules.values()])
    leaders = Leaders(store, clock, rng)
    for at in looks(start, readings, rng):
        for instant in (at - timedelta(seconds=1), at):
            clock.forward(max(0.0, instant.timestamp() - clock.wall()))
            await leaders.look()
            counts = [bisect_right(each, instant) for each in expected]
            assert [view.firings for view in await store.schedules.views()] == counts, instant
    actual = moments(tmp_path / "store.db")
    for view, text, instants in zip(await store.schedules.views(), TEXTS, expected, strict=True):
        assert view.skips == skips(text, readings), text
        assert actual[view.name] == set(instants), text
    await store.close()
