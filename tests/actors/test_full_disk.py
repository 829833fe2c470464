"""The disk of a SQLite file runs full under a running engine: an outage that is told, loses nothing, and ends when there is room."""

import asyncio
import logging
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import makegood as mg
from makegood.base.sqlite_log import Connection
from makegood.errors import StoreUnavailableError
from makegood.options import Options
from makegood.store.sqlite import SQLiteStore
from makegood.store.sqlite.connection import connect
from makegood.store.views import Filter
from makegood.workflow.workflow import Workflow
from tests.replicas.small_disks import enlarge, small_disk, stuff

BRISK = Options(poll_every=0.1, alerts_every=None, leaderless_after=None)
BULK = "x" * 20_000
ALL = Filter(limit=100_000)


@dataclass
class Shop:
    """An app whose services keep books: effects by order and step, each under its key."""

    app: mg.App
    place_order: Workflow[[str, str], None]
    books: dict[str, str] = field(default_factory=dict)

    def effects(self) -> Counter[str]:
        """Return how often each thing was done."""
        return Counter(self.books.values())


def shop() -> Shop:
    """Return a shop with two steps an order."""
    app = mg.App("shop")
    stock = app.agent("stock")

    def done(what: str) -> None:
        new_shop.books[mg.current_call().key] = what

    @stock.action(complete_within="30s", undo=mg.NOTHING)
    async def reserve(order: str, note: str) -> str:
        done(f"hold {order}")
        return order

    @stock.action(complete_within="30s", undo=mg.NOTHING)
    async def ship(order: str) -> None:
        done(f"parcel {order}")

    @app.workflow(complete_within="10m")
    def place_order(order: str, note: str) -> None:
        ship(reserve(order, note))

    new_shop = Shop(app, place_order)
    return new_shop


class Rationed:
    """Connections to a file that may not have more than so many pages: to SQLite, its disk is full then."""

    def __init__(self) -> None:
        self.pages = 1_000_000

    def connect(self, uri: str) -> sqlite3.Connection:
        """Open a connection."""
        ration = self

        class Limited(Connection):
            def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
                if sql == "begin immediate":
                    super().execute(f"pragma max_page_count = {ration.pages}")
                return super().execute(sql, *values)

        return connect(uri, factory=Limited)


@asynccontextmanager
async def going(store: SQLiteStore, place: Shop) -> AsyncIterator[mg.Node]:
    """Run all roles on a store."""
    await store.open(migrate=True)
    try:
        async with mg.Node(place.app, store, options=BRISK) as node:
            yield node
    finally:
        await store.close()


async def filled(node: mg.Node, place: Shop) -> list[str]:
    """Submit until the disk is full; returns what was acknowledged."""
    orders: list[str] = []
    with pytest.raises(StoreUnavailableError, match="the disk is full: make room, nothing was lost"):  # noqa: PT012 - any of them
        while True:
            key = f"order-{len(orders)}"
            await node.client.submit(place.place_order, key, BULK, key=key)
            orders.append(key)
    return orders


async def carried_on(node: mg.Node, place: Shop, orders: list[str]) -> None:
    """With room again everything is there, and ends whole, in the processes that were there all the time."""
    await node.client.submit(place.place_order, "after", "", key="after")
    keys = {view.key for view in await node.client.find(ALL)}
    assert keys == {*orders, "after"}
    for view in await node.client.find(ALL):
        await node.client.task(view.id).result(timeout=60)
    assert place.effects() == Counter(f"{what} {key}" for key in keys for what in ("hold", "parcel"))


def sound(path: Path) -> bool:
    """Whether the file's structure is whole."""
    with closing(sqlite3.connect(path)) as connection:
        rows: list[tuple[str]] = connection.execute("pragma integrity_check").fetchall()
        return rows == [("ok",)]


async def test_a_full_disk_is_told_and_loses_nothing_and_all_goes_on_when_there_is_room(
    tmp_path: Path,
) -> None:
    """Full by SQLite's own limit, with tasks in flight; while it is full all that was acknowledged can be read."""
    ration, place, path = Rationed(), shop(), tmp_path / "store.db"
    async with going(SQLiteStore(path, open_connection=ration.connect), place) as node:
        first = await node.client.submit(place.place_order, "first", "", key="first")
        await first.result(timeout=60)
        ration.pages = path.stat().st_size // 4096 + 200
        orders = await filled(node, place)
        assert orders
        assert {view.key for view in await node.client.find(ALL)} == {"first", *orders}
        ration.pages = 1_000_000
        await carried_on(node, place, ["first", *orders])
    assert sound(path)


class Complaints(logging.Handler):
    """Hears when a role says that the disk is full."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.heard = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        """Hear a line of the log."""
        if "the disk is full: make room, nothing was lost" in record.getMessage():
            self.heard.set()


@pytest.fixture
def disk() -> Iterator[Path]:
    """A small file system."""
    with small_disk("6m") as folder:
        yield folder


async def test_a_file_system_that_is_truly_full(disk: Path) -> None:
    """The same with the operating system's own refusal, in the middle of the write-ahead log; the roles say so in their log."""
    place, path = shop(), disk / "store.db"
    complaints, log = Complaints(), logging.getLogger("makegood")
    async with going(SQLiteStore(path), place) as node:
        log.addHandler(complaints)
        try:
            orders = await filled(node, place)
            assert orders
            stuff(disk / "ballast")
            complaints.heard.clear()
            async with asyncio.timeout(60):  # a heartbeat is due within a second
                await complaints.heard.wait()
            assert {view.key for view in await node.client.find(ALL)} == set(orders)
        finally:
            log.removeHandler(complaints)
        enlarge(disk, "100m")
        await carried_on(node, place, orders)
    assert sound(path)
