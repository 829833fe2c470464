"""Real processes on one SQLite file: no acknowledged task is lost, and the log keeps its limits."""

import asyncio
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from makegood.base import ids
from makegood.base.sqlite_readonly import log_of
from makegood.store import open_store
from tests.processes.world import Child, World

MIB = 1024 * 1024
PAGES = 4000


async def submitters(
    world: World, count: int, seconds: float, pages: int, at_once: int, *how: str
) -> list[Child]:
    """Start processes that submit for so many seconds."""
    await open_store(world.url).admin.migrate()
    command = ["tests.processes.submitter", world.url, f"{seconds}", f"{pages}", f"{at_once}", *how]
    return [world.launch(f"submitter-{n}", command) for n in range(count)]


async def largest_log(path: Path, children: list[Child]) -> int:
    """Wait for the end of all, and return the most bytes that the log had."""
    largest = 0
    while any(child.alive() for child in children):
        largest = max(largest, log_of(path).stat().st_size if log_of(path).exists() else 0)
        await asyncio.sleep(0.01)
    return largest


def losses(path: Path, children: list[Child]) -> list[str]:
    """Return what is wrong: acknowledged tasks that the file does not have, and what SQLite and makegood say."""
    successes = {
        ids.parse(task_id)
        for child in children
        for task_id in re.findall(r"^task (\S+)$", child.log(), re.MULTILINE)
    }
    assert successes
    damages = [
        line
        for child in children
        for line in child.log().splitlines()
        if "are being lost" in line or "is damaged" in line
    ]
    try:
        with closing(sqlite3.connect(path)) as file:
            rows = {number for (number,) in file.execute("select id from makegood_task")}
            damages += [text for (text,) in file.execute("pragma integrity_check(5)") if text != "ok"]
    except sqlite3.DatabaseError as damage:
        return [*damages, str(damage)]
    return [*damages, *(f"task {number} is lost" for number in successes - rows)]


async def test_processes_that_merge_in_the_worst_moment_lose_nothing(folder: Path) -> None:
    """SQLite's own checkpoints lost tasks here in each run, or damaged the file; see ``tests/conformance/test_sqlite_log.py`` for how."""
    path = folder / "store.db"
    async with World(folder, f"sqlite:///{path}") as world:
        children = await submitters(world, 2, 4, 4, 1, "slow")
        assert await largest_log(path, children) <= 8 * MIB, (
            "others extend it during each merge: it needs the write lock"
        )
        assert losses(path, children) == []


@pytest.mark.parametrize(("count", "most"), [(1, 24), (3, 80)])
async def test_the_log_of_busy_processes_is_merged(folder: Path, count: int, most: int) -> None:
    path = folder / "store.db"
    async with World(folder, f"sqlite:///{path}") as world:
        children = await submitters(world, count, 4, PAGES, 50)
        assert await largest_log(path, children) <= most * MIB
        assert losses(path, children) == []


async def test_after_a_long_reader_the_log_is_merged_and_cut(folder: Path) -> None:
    """A reader keeps an old state for 3 s, three processes commit; then the log begins again, and its file has its limit."""
    path = folder / "store.db"
    async with World(folder, f"sqlite:///{path}") as world:
        children = await submitters(world, 3, 6, PAGES, 50)
        await world.until(lambda: all(child.log() for child in children), "all submit", *children)
        with closing(sqlite3.connect(path, isolation_level=None)) as reader:
            reader.execute("begin")
            reader.execute("select count(*) from makegood_task").fetchone()
            await asyncio.sleep(3)
            reader.execute("commit")
        with closing(sqlite3.connect(path, isolation_level=None)) as look:
            await largest_log(path, children)
            assert log_of(path).stat().st_size <= 64 * MIB
            look.execute("select count(*) from makegood_task").fetchone()
        assert losses(path, children) == []
