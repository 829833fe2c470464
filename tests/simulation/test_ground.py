"""Grounds: worlds stand on the same one after another, and none sees what stood there before."""

import gc
import logging
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from makegood.store.rows import Interner
from makegood.store.sqlite.connection import uri_of
from makegood.store.sqlite.transaction import WriteTransaction
from makegood.testing.history import History
from makegood.testing.simulator.recorder import Recorder
from makegood.testing.simulator.world_files import Ground, Grounds, empty_store
from proofs.seeds import Storms
from proofs.storms.swarm import calm, kills

TEMPLATE = empty_store()


def rows(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """Return all that is in a store's file."""
    connection = sqlite3.connect(path)
    tables = [name for (name,) in connection.execute("select name from sqlite_master where type = 'table'")]
    contents = {table: connection.execute(f"select * from {table}").fetchall() for table in tables}
    connection.close()
    return contents


def used(ground: Ground) -> sqlite3.Connection:
    """Return the connection of one who has written there, and is in the middle of writing more."""
    ground.lay("first")
    connection = ground.files.open(uri_of(ground.path, create=False))
    Recorder(None, "").watch(connection)  # type: ignore[arg-type]  # no history: only its triggers
    connection.execute("insert into makegood_writer (last) values (7)")
    connection.execute("insert into makegood_ready values (99)")
    connection.execute("delete from makegood_schema_version where version > 3")
    connection.execute("insert into makegood_log (what) values ('task')")
    connection.execute("begin immediate")
    connection.execute("insert into makegood_writer (last) values (8)")
    return connection


def test_what_was_there_is_gone_numbers_begin_anew_and_the_log_is_empty() -> None:
    ground = Ground(TEMPLATE)
    connection = used(ground)
    ground.lay("second")
    fresh = Ground(TEMPLATE)
    fresh.lay("second")
    assert rows(ground.path) == rows(fresh.path)
    assert rows(ground.path)["makegood_generation"] == [("second", 1)]
    assert connection.execute("select count(*) from makegood_log").fetchone() == (0,)
    (number,) = connection.execute("insert into makegood_writer (last) values (0) returning id").fetchone()
    assert number == 1


def test_every_seed_has_the_same_history_on_a_ground_that_others_have_used() -> None:
    storms = Storms()
    storms.run(215)
    for seed in (0, 3, 11, 84, 0):
        assert storms.run(seed).history.digest() == Storms().run(seed).history.digest()


def test_processes_that_were_killed_leave_no_file_open(caplog: pytest.LogCaptureFixture) -> None:
    """Their Python goes on, so what a killed process had open must go with the last reference to it."""

    def play() -> int:
        Storms().run(215)
        gc.collect()
        return len(list(Path("/proc/self/fd").iterdir()))

    with caplog.at_level(logging.CRITICAL, "makegood"):  # a captured record keeps the frames of its error
        before = play()
        assert play() == before


def test_worlds_that_live_at_a_time_have_each_their_own_and_others_the_same() -> None:
    storms = Storms("place_order")
    one, other = storms.world(1, calm()), storms.world(2, kills())
    assert one.path != other.path
    assert one.run().findings == other.run().findings == []
    with closing(storms.world(3, calm())) as third:
        assert third.path in (one.path, other.path)


def test_a_ground_goes_with_the_last_who_knows_it() -> None:
    grounds = Grounds()
    ground = grounds.lend()
    used(ground)
    folder = ground.folder
    grounds.take_back(ground)
    del ground
    gc.collect()
    assert folder.is_dir()
    del grounds
    gc.collect()
    assert not folder.exists()


def test_what_a_fork_inherits_stays_its_parents() -> None:
    """It neither writes by its parent's connections nor deletes its parent's files."""
    grounds = Grounds()
    ground = grounds.lend()
    used(ground)
    grounds.take_back(ground)
    child = os.fork()
    if child == 0:
        mine = grounds.lend()
        del ground, grounds
        gc.collect()
        well = mine.folder.is_dir() and mine.process == os.getpid()
        del mine
        gc.collect()
        os._exit(0 if well else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert ground.folder.is_dir()
    assert grounds.lend() is ground


def test_a_transaction_that_is_repeated_is_told_once() -> None:
    """Without savepoints first: what that one logged was rolled back, the failures that it counted too."""
    ground = Ground(TEMPLATE)
    ground.lay("first")
    connection = ground.files.open(uri_of(ground.path, create=False))
    recorder = Recorder(History(), "first")
    recorder.watch(connection)
    recorder.begin("n1")
    for finish in ("rollback", "commit"):
        connection.execute("begin immediate")
        recorder.transaction(connection)
        connection.execute(
            "insert into makegood_log (what, a, b, c, d, e, f) values ('stepped', 7, 0, 'charge', 1, 1, 3)"
        )
        recorder.finish(WriteTransaction(connection, 0.0, Interner()), "judge", {})
        connection.execute(finish)
    recorder.keep("committed", ["judge"])
    assert [event.kind for event in recorder.history.events] == ["counted", "store"]
