"""Real processes on one SQLite file: no acknowledged task is lost, and the log keeps its limits."""

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
LONG = 240.0
"""Seconds that the slowest disk may take to write a hundred MiB."""

pytestmark = pytest.mark.timeout(3 * LONG)


async def submitters(world: World, count: int, pages: int, at_once: int, *how: str) -> list[Child]:
    """Start processes that submit until they are killed."""
    await open_store(world.url).admin.migrate()
    command = ["tests.processes.submitter", world.url, f"{pages}", f"{at_once}", *how]
    return [world.launch(f"submitter-{n}", command) for n in range(count)]


async def largest_log(world: World, path: Path, children: list[Child], times: int) -> int:
    """Wait until the log has begun again so many times, kill all, and return the most bytes that it had."""
    largest = 0

    def count() -> int:
        """How often: SQLite's number of checkpoints, in the header of the log."""
        nonlocal largest
        if not log_of(path).exists():
            return 0
        largest = max(largest, log_of(path).stat().st_size)
        with log_of(path).open("rb") as log:
            return int.from_bytes(log.read(16)[12:])

    await world.until(lambda: all(child.log() for child in children), "all submit", *children)
    await world.until(lambda: count() >= times, f"the log begins again {times} times", *children, limit=LONG)
    for child in children:
        child.kill()
    return largest


def losses(path: Path, children: list[Child]) -> list[str]:
    """Return what is wrong: acknowledged tasks that the file does not have, and what SQLite and makegood say."""
    successes = {
        ids.parse(task_id)
        for child in children
        for task_id in re.findall(r"^task (\S+)\n", child.log(), re.MULTILINE)
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
        children = await submitters(world, 2, 4, 1, "slow")
        assert await largest_log(world, path, children, 20) <= 8 * MIB, (
            "others extend it during each merge: it needs the write lock"
        )
        assert losses(path, children) == []


@pytest.mark.parametrize(("count", "most"), [(1, 48), (3, 160)])  # twice what it has on an idle machine
async def test_the_log_of_busy_processes_is_merged(folder: Path, count: int, most: int) -> None:
    path = folder / "store.db"
    async with World(folder, f"sqlite:///{path}") as world:
        children = await submitters(world, count, PAGES, 50)
        assert await largest_log(world, path, children, 3) <= most * MIB
        assert losses(path, children) == []


async def test_after_a_long_reader_the_log_is_merged_and_cut(folder: Path) -> None:
    """A reader keeps an old state until the log is far over its limit; then it begins again, and its file is cut to the limit.

    The processes go on to submit: how long all this takes depends on the disk, the order of it does not.
    """
    path = folder / "store.db"

    def size() -> int:
        return log_of(path).stat().st_size

    async with World(folder, f"sqlite:///{path}") as world:
        children = await submitters(world, 3, PAGES, 50)
        await world.until(lambda: all(child.log() for child in children), "all submit", *children)
        with closing(sqlite3.connect(path, isolation_level=None)) as reader:
            reader.execute("begin")
            reader.execute("select count(*) from makegood_task").fetchone()
            await world.until(
                lambda: size() > 96 * MIB, "the log grows behind the reader", *children, limit=LONG
            )
            reader.execute("commit")
        await world.until(
            lambda: size() <= 64 * MIB, "the log is merged and its file cut", *children, limit=LONG
        )
        for child in children:
            child.kill()
        assert losses(path, children) == []
