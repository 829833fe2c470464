"""A process that is stopped keeps no lock of a SQLite file, wherever its other threads were: nobody else would get on."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from proofs.halting import halt, locked
from tests.processes.world import World


async def test_a_process_that_stops_itself_inside_a_transaction_leaves_it_and_stays_at_its_point(
    folder: Path,
) -> None:
    async with World(folder, f"sqlite:///{folder}/store.db") as world:
        writer = world.launch(
            "writer", ["tests.processes.stopped_writer", str(folder / "store.db"), "itself"]
        )
        assert await world.stops(writer) > 0, "it was not found inside its transaction"
        assert not locked(folder / "store.db")
        assert writer.halted()
        assert writer.log().split() == ["inside", "ended"]
        writer.resume()
        assert await world.ends(writer) == 0
        assert writer.log().split() == ["inside", "ended", "on"]


async def test_a_process_that_is_stopped_inside_a_transaction_leaves_it(folder: Path) -> None:
    async with World(folder, f"sqlite:///{folder}/store.db") as world:
        writer = world.launch("writer", ["tests.processes.stopped_writer", str(folder / "store.db")])
        await world.until(lambda: "inside" in writer.log(), "it is inside", writer)
        assert writer.stop() > 0, "it was not found inside its transaction"
        assert not locked(folder / "store.db")
        assert writer.halted()
        writer.resume()
        assert await world.ends(writer) == 0


async def test_a_process_outside_of_a_transaction_is_stopped_once(folder: Path) -> None:
    """The lock of another file is no matter."""
    async with World(folder, f"sqlite:///{folder}/store.db") as world:
        holder = world.launch("holder", ["tests.processes.lock_holder", str(folder / "other.db")])
        await world.until(lambda: "locked" in holder.log(), "it holds the lock", holder)
        assert holder.stop() == 0
        assert holder.halted()


async def test_a_lock_that_nobody_gives_up_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proofs.halting._PATIENCE", 0.3)
    world = World(folder, f"sqlite:///{folder}/store.db")
    holder = world.launch("holder", ["tests.processes.lock_holder", str(folder / "store.db")])
    await world.until(lambda: "locked" in holder.log(), "it holds the lock", holder)
    with pytest.raises(TimeoutError, match=r"does not leave its transaction on .*store\.db"):
        halt(holder.pid, world.url)
    world.end()


def test_what_is_locked(tmp_path: Path) -> None:
    file = tmp_path / "file.db"
    assert not locked(file), "there is no such file"
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("create table t (n)")
        assert not locked(file)
        connection.execute("begin immediate")
        assert locked(file)
