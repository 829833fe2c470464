"""SQLite's log is merged by makegood alone, and no commit is lost by it, on any version of SQLite."""

import ast
import logging
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import makegood
from makegood.base import sqlite_log
from makegood.base.sqlite_log import has_reset_bug
from makegood.base.sqlite_readonly import log_of
from makegood.election.stores import sqlite as lease_file
from makegood.election.stores.sqlite import SQLiteLeases
from makegood.store.sqlite import SQLiteStore
from makegood.store.sqlite.store_threads import StoreThread
from proofs.powercut.disk import Tape
from proofs.powercut.listening import listening
from tests.clocks import HandClock
from tests.conformance.builders import draft, info
from tests.guarded_merges import MergeRecord

FRAME = 24 + 4096
LATER = 20
"""Commits after the one that begins the log again."""


def unguarded(guard: sqlite3.Connection, merger: sqlite3.Connection) -> tuple[int, int]:
    """The mutant: SQLite's own way, in which no transaction is open during a checkpoint."""
    guard.execute("rollback")
    length, merges = merger.execute("pragma wal_checkpoint(passive)").fetchone()[1:]
    return int(length), int(merges)


def late(guard: sqlite3.Connection, merger: sqlite3.Connection) -> tuple[int, int]:
    """The mutant whose guard is begun and has not read: SQLite begins no transaction before that."""
    length, merges = merger.execute("pragma wal_checkpoint(passive)").fetchone()[1:]
    guard.execute("rollback")
    return int(length), int(merges)


class Window(Tape):
    """Calls ``between`` in the moment of a checkpoint at which the bug strikes, once."""

    between: Callable[[], object] | None = None

    def checkpointing(self, name: str) -> None:
        """A checkpoint has read how long the log is, and not yet how much of it is merged."""
        del name
        strike, self.between = self.between, None
        if strike is not None:
            strike()


def watched(path: Path) -> tuple[SQLiteStore, dict[str, StoreThread]]:
    """Return a store and its threads, by name once it is open."""
    lines: dict[str, StoreThread] = {}

    def line(name: str, *arguments: Any, **options: Any) -> StoreThread:
        return lines.setdefault(name, StoreThread(name, *arguments, **options))

    return SQLiteStore(path, clock=HandClock(), poll=None, line=line), lines


async def kept(folder: Path) -> int:
    """Let the log begin again in the middle of a store's merge. Returns how many of the ``LATER + 1`` rows that another connection
    committed from then on are there for a new reader.
    """
    window, path = Window(), folder / "store.db"
    with listening(folder, window):
        store, lines = watched(path)
        await store.open(migrate=True)
        writer = lines["writer"]
        assert writer.log is not None
        for pages in (8, 1000):  # merged once, so that the merger is open, and then grown again
            writer.log.pages = pages
            for _ in range(5):
                await store.nodes.register(info())
        writer.log.pages = 8
        with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
            other.execute("pragma wal_autocheckpoint = 0")
            other.execute("create table by_hand (x)")
            insert = "insert into by_hand values (1)"

            def committed(_topics: set[str]) -> None:
                """After the store's commit, and before it looks at the log, another process merges all of it."""
                other.execute("pragma wal_checkpoint(passive)")
                window.between = lambda: other.execute(insert)

            writer.on_commit = committed
            await store.tasks.submit([draft(1)])
            assert window.between is None, "no merge, or none that saw a log that others had changed"
            writer.on_commit = None
            for _ in range(LATER):
                other.execute(insert)
            with closing(sqlite3.connect(path)) as reader:
                (rows,) = reader.execute("select count(*) from by_hand").fetchone()
        await store.close()
    return int(rows)


async def test_commits_survive_a_log_that_begins_again_during_a_merge(tmp_path: Path) -> None:
    assert await kept(tmp_path) == LATER + 1


@pytest.mark.parametrize("mutant", [unguarded, late])
async def test_they_are_lost_without_a_guard_by_a_sqlite_that_has_the_bug(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, merges: MergeRecord, mutant: Any
) -> None:
    """The loss itself, and the recorder of merges sees it coming on every version of SQLite."""
    monkeypatch.setattr(sqlite_log, "checkpoint", mutant)
    rows = await kept(tmp_path)
    wrong, merges.wrong = merges.wrong, []
    assert "without a guard" in wrong[0]
    assert (rows <= 1) == has_reset_bug(sqlite3.sqlite_version_info)


async def test_leases_are_merged_behind_a_guard_too(tmp_path: Path, merges: MergeRecord) -> None:
    leases = SQLiteLeases(tmp_path / "leases.db")
    for n in range(20):
        grant = await leases.acquire("night", f"node-{n}", f"nonce-{n}", 60)
        assert grant is not None
        await leases.release(grant)
    assert merges.checkpoints > 0
    await leases.close()
    assert merges.connections == []


async def test_leases_merge_the_log_of_a_file_that_is_written_during_each_merge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A leader's application writes into the file of its leases, and leaves the log to makegood. It commits in the middle of each merge."""
    true, path, sizes = sqlite_log.checkpoint, tmp_path / "leases.db", []
    clock = HandClock()
    leases = SQLiteLeases(path, clock=clock)
    grant = await leases.acquire("night", "node", "nonce", 60)
    assert grant is not None
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=0)) as busy:
        busy.execute("pragma wal_autocheckpoint = 0")
        busy.execute("create table t (x)")

        def in_the_middle(guard: sqlite3.Connection, merger: sqlite3.Connection) -> tuple[int, int]:
            guard.execute("select 1 from sqlite_master").fetchall()
            with suppress(sqlite3.OperationalError):  # locked
                busy.execute("insert into t values (1)")
            return true(guard, merger)

        monkeypatch.setattr(sqlite_log, "checkpoint", in_the_middle)
        for _ in range(20):
            for _ in range(10):
                busy.execute("insert into t values (1)")
            clock.forward(5.0)
            assert await leases.renew(grant)
            sizes.append(log_of(path).stat().st_size // FRAME)
    await leases.close()
    assert max(sizes) < 60


async def test_leases_try_often_for_the_lock_that_a_busy_process_releases_for_moments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite's own pauses grow to 100 ms, and miss these moments."""
    path, pauses = tmp_path / "leases.db", []
    leases = SQLiteLeases(path)
    await leases.acquire("night", "node", "nonce", 60)
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as busy:
        busy.execute("begin immediate")

        def sleep(seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == 30:
                busy.execute("commit")

        monkeypatch.setattr(lease_file, "time", SimpleNamespace(sleep=sleep))
        assert await leases.acquire("day", "node", "nonce", 60) is not None
    await leases.close()
    assert len(pauses) == 30
    assert max(pauses) <= 0.001


async def test_a_log_that_begins_again_and_grows_at_once_is_merged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It does so within the pause after a merge that left something of the log before it."""
    path, clock = tmp_path / "file.db", HandClock()

    def opened() -> sqlite3.Connection:
        return sqlite_log.connect(path.as_uri(), timeout=1)

    with closing(opened()) as writer, closing(opened()) as other:
        writer.execute("pragma journal_mode = wal")
        writer.execute("create table t (x)")
        log = sqlite_log.WriteAheadLog(path, opened, clock.monotonic, pages=8)

        def commits(count: int) -> None:
            for _ in range(count):
                writer.execute("insert into t values (1)")

        commits(9)
        other.execute("begin")
        other.execute("select * from t").fetchone()
        commits(1)
        log.merge_if_long(writer)  # leaves what the reader does not see
        other.execute("commit")
        writer.execute("begin")
        sqlite_log.checkpoint(writer, other)
        commits(1)
        log.merge_if_long(writer)
        commits(9)
        log.merge_if_long(writer)
        commits(1)
        log.merge_if_long(writer)
        log.close()
        with closing(sqlite3.connect(path, isolation_level=None)) as look:
            look.execute("select * from t").fetchone()
            length = look.execute("pragma wal_checkpoint(passive)").fetchone()[1]
    assert caplog.text == ""
    assert length == 1


async def test_a_merge_hinders_nobody_and_is_tried_again_after_a_long_reader(tmp_path: Path) -> None:
    """A reader keeps an old state: the log grows, every commit is answered; once the reader has gone, the next commits merge all."""
    clock, path = HandClock(), tmp_path / "store.db"
    store = SQLiteStore(path, clock=clock, poll=None)
    await store.open(migrate=True)
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("begin")
        reader.execute("select count(*) from sqlite_master").fetchall()
        for _ in range(50):
            await store.nodes.register(info())
        frames = log_of(path).stat().st_size // FRAME
        assert frames > 100
        reader.execute("commit")
    clock.forward(1.0)
    for _ in range(3):
        await store.nodes.register(info())
    assert log_of(path).stat().st_size // FRAME <= frames + 10, "the log did not begin again"
    with closing(sqlite3.connect(path, isolation_level=None)) as look:
        _busy, length, _merges = look.execute("pragma wal_checkpoint(passive)").fetchone()
    assert length < 20
    await store.close()


async def test_more_merged_than_there_is_goes_into_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def lost(guard: sqlite3.Connection, _merger: sqlite3.Connection) -> tuple[int, int]:
        guard.execute("rollback")
        return 21, 151

    monkeypatch.setattr(sqlite_log, "checkpoint", lost)
    store = SQLiteStore(tmp_path / "store.db", clock=HandClock(), poll=None)
    await store.open(migrate=True)
    for _ in range(3):
        await store.nodes.register(info())
    await store.close()
    (record,) = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert "21 pages and 151 of them count as merged: commits are being lost" in record.getMessage()


async def test_a_merge_that_fails_costs_no_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is reported once a minute, and tried again."""
    true, failures = sqlite_log.checkpoint, [sqlite3.OperationalError("disk I/O error") for _ in range(2)]

    def failing(guard: sqlite3.Connection, merger: sqlite3.Connection) -> tuple[int, int]:
        length, merges = true(guard, merger)
        if failures:
            raise failures.pop()
        return length, merges

    monkeypatch.setattr(sqlite_log, "checkpoint", failing)
    clock = HandClock()
    store = SQLiteStore(tmp_path / "store.db", clock=clock, poll=None)
    await store.open(migrate=True)
    for n in range(1, 30):
        assert await store.nodes.register(info()) == n
        clock.forward(1.0)
    await store.close()
    assert failures == []
    (warning,) = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert "could not be merged (disk I/O error)" in warning


async def test_a_merge_stays_in_its_own_file(
    tmp_path: Path, merges: MergeRecord, caplog: pytest.LogCaptureFixture
) -> None:
    """Just after a commit another file gets the name: a checkpoint there would have no guard."""
    path = tmp_path / "store.db"
    store, lines = watched(path)
    await store.open(migrate=True)
    writer = lines["writer"]

    def committed(_topics: set[str]) -> None:
        path.rename(tmp_path / "moved.db")
        with closing(sqlite3.connect(path)) as another:
            another.execute("create table t (x)")

    assert writer.log is not None
    writer.log.pages = 1000
    await store.nodes.register(info())  # looks at the log, which is still short
    writer.log.pages, writer.on_commit = 1, committed
    (answer,) = await store.tasks.submit([draft(1)])
    assert answer.is_new
    await store.close()
    assert merges.checkpoints == 0
    assert "was removed, moved or replaced" in caplog.text


def test_every_connection_of_makegood_is_opened_without_checkpoints() -> None:
    """One function opens them all; this reads the source for any other call of ``sqlite3.connect``."""
    package = Path(makegood.__file__).parent
    files = {
        str(file.relative_to(package))
        for file in package.rglob("*.py")
        if "connect" in (text := file.read_text())
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).endswith(("sqlite3.connect", "dbapi2.connect"))
    }
    assert files == {"base/sqlite_log.py"}
