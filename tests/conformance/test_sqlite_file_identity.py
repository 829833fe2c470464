"""SQLite only: a store whose file is removed, moved or replaced under it notices, and writes nothing that nobody would see."""

import asyncio
import shutil
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

import makegood as mg
from makegood.base.file_paths import number_of
from makegood.errors import StoreUnavailableError
from makegood.options import Options
from makegood.store.sqlite import SQLiteStore
from makegood.store.sqlite.file_identity import FileIdentity
from makegood.store.views import Filter
from tests.conformance.builders import draft
from tests.conformance.sqlite_faults import IOERR, Faults

GONE = "was removed, moved or replaced while this process had it open"


@asynccontextmanager
async def opened(path: Path, faults: Faults | None = None) -> AsyncIterator[SQLiteStore]:
    """Open a store with one task."""
    store = SQLiteStore(path, poll=None, open_connection=(faults or Faults()).connect)
    await store.open(migrate=True)
    await store.tasks.submit([draft(1)])
    try:
        yield store
    finally:
        await store.close()


def removed(path: Path) -> None:
    """Remove the file with all that belongs to it."""
    for file in path.parent.glob(f"{path.name}*"):
        if file.is_file():
            file.unlink()


def replaced_by_an_older_one(path: Path) -> None:
    """Put a copy in the place of the file, as somebody does who restores a backup under a running process."""
    copy = path.with_name("copy.db")
    with closing(sqlite3.connect(path)) as from_, closing(sqlite3.connect(copy)) as to:
        from_.backup(to)
    copy.replace(path)


def moved_away(path: Path) -> None:
    """Give the file another name."""
    path.rename(path.with_name("moved.db"))


def without_its_log(path: Path) -> None:
    """Remove the write-ahead log alone: it looks like rubbish, and holds what was acknowledged last."""
    path.with_name(path.name + "-wal").unlink()


@pytest.mark.parametrize("happens", [removed, replaced_by_an_older_one, moved_away, without_its_log])
async def test_nothing_is_written_once_the_file_is_not_there_any_more(
    tmp_path: Path, happens: Callable[[Path], None]
) -> None:
    """Also nothing is read: what others have written since would not be in it."""
    async with opened(tmp_path / "store.db") as store:
        happens(tmp_path / "store.db")
        for _ in range(2):
            with pytest.raises(StoreUnavailableError, match=f"{GONE}.*restart all"):
                await store.tasks.submit([draft(2)])
            with pytest.raises(StoreUnavailableError, match=GONE):
                await store.tasks.find(Filter())


async def test_a_file_that_was_put_back_is_used_again(tmp_path: Path) -> None:
    path, away = tmp_path / "store.db", tmp_path / "away.db"
    async with opened(path) as store:
        path.rename(away)
        with pytest.raises(StoreUnavailableError, match=GONE):
            await store.tasks.submit([draft(2)])
        away.rename(path)
        await store.tasks.submit([draft(3)])
        assert [task.id for task in await store.tasks.find(Filter())] == [3, 1]


async def test_a_new_connection_does_not_take_another_file_for_ours(tmp_path: Path) -> None:
    """A connection is opened anew after a failure of the disk: the file of that name may be another one by then."""
    path, faults = tmp_path / "store.db", Faults()
    async with opened(path, faults) as store:
        faults.arm("begin immediate", IOERR)
        with pytest.raises(StoreUnavailableError, match="disk"):
            await store.tasks.submit([draft(2)])
        faults.arm("select", IOERR)
        with pytest.raises(StoreUnavailableError, match="disk"):
            await store.tasks.find(Filter())
        shutil.copy(path, tmp_path / "other.db")
        (tmp_path / "other.db").replace(path)
        with pytest.raises(StoreUnavailableError, match=GONE):
            await store.tasks.submit([draft(2)])
        with pytest.raises(StoreUnavailableError, match=GONE):
            await store.tasks.find(Filter())


async def test_a_store_behind_a_link_notices_that_the_link_was_turned(tmp_path: Path) -> None:
    """And its log, which lies beside the file itself, is looked for there."""
    real, link, other = tmp_path / "a" / "real.db", tmp_path / "store.db", tmp_path / "other.db"
    real.parent.mkdir()
    async with opened(other):
        pass
    async with opened(real):
        link.symlink_to(real)
        async with opened(link) as store:
            await store.tasks.submit([draft(2)])
            link.unlink()
            link.symlink_to(other)
            with pytest.raises(StoreUnavailableError, match=GONE):
                await store.tasks.submit([draft(3)])


async def test_a_node_goes_on_with_its_tasks_once_the_file_is_back(tmp_path: Path) -> None:
    """The roles rest while the file is away, and a task that was under way ends whole."""
    path, away = tmp_path / "store.db", tmp_path / "away.db"
    app, going, on = mg.App("shop"), asyncio.Event(), asyncio.Event()
    stock = app.agent("stock")

    @stock.action(complete_within="30s", undo=mg.NOTHING)
    async def reserve(order: str) -> str:
        going.set()
        await on.wait()
        return f"hold of {order}"

    @app.workflow
    def place_order(order: str) -> str:
        return reserve(order)

    async with mg.Node(app, f"sqlite:///{path}", options=Options(poll_every=0.05, heartbeat=0.1)) as node:
        task = await node.client.submit(place_order, "o1")
        await going.wait()
        path.rename(away)
        on.set()
        with pytest.raises(StoreUnavailableError, match=GONE):
            await node.client.submit(place_order, "o2")
        away.rename(path)
        assert await task.result(timeout=60) == "hold of o1"


def test_a_place_asks_the_system_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "x"
    assert number_of(str(path)) is None
    path.touch()
    there = FileIdentity(path, number_of(str(path)))
    there.record_log()
    there.verify()
    path.unlink()
    with pytest.raises(StoreUnavailableError, match=GONE):
        there.verify()
