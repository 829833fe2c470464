"""The benchmark of readers from brokers: it counts what is lost and what is written twice, and kills in the middle."""

import argparse
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks import broker_peers
from benchmarks.broker_peers import CELLS, Reader, measured
from benchmarks.peers.books import TABLE
from tests.brokers.rig import Rig
from tests.brokers.rigs import open_rig

MAKEGOOD_ON_REDIS = next(cell for cell in CELLS if (cell.peer, cell.broker) == ("makegood", "Redis"))


@pytest.fixture
def redis() -> Rig:
    return open_rig("redis")


async def test_what_is_lost_and_what_is_written_twice_is_counted(redis: Rig, tmp_path: Path) -> None:
    try:
        reader = Reader(MAKEGOOD_ON_REDIS, redis, tmp_path, "orders-counted")
        await reader.prepare()
    finally:
        redis.close()
    with closing(sqlite3.connect(tmp_path / "store.db")) as books, books:
        books.execute(TABLE)
        books.executemany("insert into made (n) values (?)", [(0,), (1,), (1,), (3,)])
    assert reader.counted() == (4, 3)


@pytest.mark.timeout(300)
async def test_a_reader_that_is_killed_is_started_again_and_its_rows_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With makegood on Redis, killed twice: nothing is lost or twice, and the kills came while messages were passing."""
    kills: list[tuple[int, int]] = []
    kill: Callable[[Reader], None] = Reader.kill

    def noted(reader: Reader) -> None:
        kills.append(reader.counted())
        kill(reader)

    monkeypatch.setattr(broker_peers, "AGAIN", 2.0)
    monkeypatch.setattr(Reader, "kill", noted)
    plan = argparse.Namespace(messages=200, passing=200, kills=2, seed=1)
    rate, lost, twice = (await measured(MAKEGOOD_ON_REDIS, plan)).split()
    assert float(rate.replace(",", "")) > 0
    assert (lost, twice) == ("0", "0")
    assert kills[0] == (200, 200)  # the end of the rate
    assert all(0 < rows <= 200 for rows, _ in kills[1:])
    assert len(kills) == 4  # two in the middle, and the end
