"""Stores full of tasks that wait to be claimed, with lanes and without: what ``benchmarks.waiting`` compares as ``lanes``.

The engine submits one task, and SQL copies its rows: those of ``task``, ``step`` and ``lane``, which are all that a submission
leaves. Two processes, one on each store, take turns: while one of them runs its tasks, the other is stopped.
"""

import asyncio
import sqlite3
import statistics
import time
from contextlib import closing
from typing import Final

import asyncpg

import makegood as mg
from benchmarks import sleepers
from benchmarks.peers.makegood import _EVER
from makegood.store import open_store

SLICE: Final = 2.0
"""Seconds of a turn: shorter than ``dead_after``."""
_LANE: Final = "customer-"
_OF_N: Final = "(n * 2654435761 / 65536) % {lanes}"
"""The number of the lane of task n, as good as at random."""
_STATIC_SQLITE: Final = "cast(replace(cast(t.static as text), {}) as blob)"
_STATIC_POSTGRES: Final = "convert_to(replace(convert_from(t.static, 'utf8'), {}), 'utf8')"
_TABLES: Final = (("task", "id"), ("step", "task"), ("lane", "task"))
"""The tables that are copied, and their columns with the task's id."""


async def fill(url: str, count: int, lanes: int) -> None:
    """Fill an empty store with ``count`` tasks that wait to be claimed, spread over so many lanes; 0: without lanes."""
    shop = sleepers.Shop()
    store = open_store(url)
    await store.open(migrate=True)
    await store.close()
    async with mg.Client(url) as client:
        await client.submit(shop.workflows["plain"], 0, lane=f"{_LANE}0" if lanes else None)
    if url.startswith("sqlite"):
        await asyncio.to_thread(_copy_sqlite, url.removeprefix("sqlite:///"), count - 1, lanes)
    else:
        await _copy_postgres(url, count - 1, lanes)


def _columns(table: str, names: list[str], lanes: int, static: str) -> str:
    """Return what a copy has in each column; the n-th is submitted n microseconds after the task that is copied.
    ``static``: the text with which a database replaces the lane in what the task's row says.
    """
    lane = f"'{_LANE}' || ({_OF_N.format(lanes=max(1, lanes))})"
    values = {
        "task": {"id": "n", "ready_seq": "t.ready_seq + n", "static": static.format(f"'{_LANE}0', {lane}")},
        "step": {"task": "n"},
        "lane": {"task": "n", "name": lane, "seq": "t.seq + n"},
    }[table]
    return ", ".join(values.get(name, f"t.{name}") for name in names)


def _copy_sqlite(path: str, count: int, lanes: int) -> None:
    with closing(sqlite3.connect(path, timeout=60)) as connection:
        with connection:
            connection.execute("begin immediate")
            (origin,) = connection.execute("select id from makegood_task").fetchone()
            for table, key in _TABLES:
                names = [row[1] for row in connection.execute(f"pragma table_info(makegood_{table})")]
                connection.execute(
                    "with recursive numbers (n) as (select 1 union all select n + 1 from numbers where n < ?) "
                    f"insert into makegood_{table} ({', '.join(names)}) select {_columns(table, names, lanes, _STATIC_SQLITE)} "
                    f"from numbers join makegood_{table} t on t.{key} = ?",
                    (count, origin),
                )
            connection.execute("update makegood_ready set last = last + ?", (count,))
        connection.execute("analyze")
        connection.execute("pragma wal_checkpoint(truncate)")


async def _copy_postgres(url: str, count: int, lanes: int) -> None:
    connection = await asyncpg.connect(url)
    try:
        origin = await connection.fetchval("select id from makegood.task")
        for table, key in _TABLES:
            names = [
                name
                for (name,) in await connection.fetch(
                    "select column_name from information_schema.columns where table_schema = 'makegood' and table_name = $1",
                    table,
                )
            ]
            await connection.execute(
                f"insert into makegood.{table} ({', '.join(names)}) select {_columns(table, names, lanes, _STATIC_POSTGRES)} "
                f"from generate_series(1, $1::bigint) n join makegood.{table} t on t.{key} = $2",
                count, origin, timeout=_EVER,
            )  # fmt: skip
        await connection.execute("vacuum analyze", timeout=_EVER)
        await connection.execute("checkpoint", timeout=_EVER)
    finally:
        await connection.close()


async def compared(with_lanes: str, without: str, slices: int) -> dict[str, float]:
    """Return how fast tasks with lanes run, and those without, each on its store, and the median of the ratios of both.

    Raises ``RuntimeError`` if a store has run out of tasks.
    """
    crew = [await sleepers.Process.on(url) for url in (with_lanes, without)]
    try:
        for process in crew:
            await process.ask("start")
            await _turn(process)  # to warm up
        rates: list[tuple[float, float]] = []
        costs: list[tuple[float, float]] = []
        for number in range(slices):
            first = number % 2
            turns = {n: await _turn(crew[n]) for n in (first, 1 - first)}
            rates.append((turns[0][0], turns[1][0]))
            costs.append((turns[0][1], turns[1][1]))
    finally:
        for process in crew:
            process.resume()
        for process in crew:
            await process.close()
    return {
        "with": statistics.median(mine for mine, _ in rates),
        "without": statistics.median(other for _, other in rates),
        "ratio": statistics.median(mine / other for mine, other in rates),
        "cpu_us": statistics.median(mine for mine, _ in costs),
        "cpu_us_without": statistics.median(other for _, other in costs),
    }


async def _turn(process: sleepers.Process) -> tuple[float, float]:
    """Let a process run for a while; return how many tasks it ran a second, and the microseconds of CPU of each."""
    process.resume()
    before, begin = await process.ask("count"), time.perf_counter()
    await asyncio.sleep(SLICE)
    after, end = await process.ask("count"), time.perf_counter()
    process.pause()
    count = after["count"] - before["count"]
    if count < 1:
        raise RuntimeError("the store has run out of tasks: more tasks, or fewer slices")
    return count / (end - begin), (after["cpu"] - before["cpu"]) / count * 1e6
