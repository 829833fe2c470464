"""The power goes at every sync of the store's file: whatever the disk holds then, the store is whole and nothing is lost.

A sample; ``make crash`` looks at all of it. And its twins: with durability weakened, or callers told too early, it is found out.
"""

import json
import random
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from makegood.store.sqlite.connection import set_up
from makegood.store.sqlite.store_threads import Operation, StoreThread
from makegood.testing.simulator.world_files import empty_store
from proofs.powercut import cutting
from proofs.powercut.__main__ import main
from proofs.powercut.cutting import BIRTH, Cut, CutResults, Thoroughness
from proofs.powercut.disk import PAGE, STYLES, Tape, image, points
from proofs.powercut.examining import write_files
from proofs.powercut.listening import ListeningError, library, listening
from proofs.powercut.operations import WAITS
from proofs.powercut.recording import Moment, RecordedLine, RecordedWorld, ResumedWorld
from proofs.powercut.waiting import WaitingWorld

SEED = 0
WAITING_SEEDS = (1, 3, 7, 9)


@pytest.fixture(autouse=True, scope="module")
def heard() -> None:
    """Skip, aloud, where SQLite cannot be listened to."""
    try:
        library()
    except ListeningError as error:
        pytest.skip(f"power cuts: {error}")


@pytest.fixture(scope="module")
def world() -> RecordedWorld:
    """The recording of a seed."""
    recording = cutting.record(SEED)
    assert isinstance(recording, RecordedWorld)
    return recording


def test_whatever_the_disk_holds_nothing_acknowledged_is_lost_and_the_engine_ends_every_task_whole(
    world: RecordedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cutting, "record", lambda *_: world)
    tally = Cut(SEED, Thoroughness(every=9, each=1, resume=12, again=60)).run()
    assert tally.failed == []
    assert tally.lacking() == []
    assert set(tally.images) == set(STYLES)
    assert tally.images.total() > 60
    assert tally.resumed > 5
    assert tally.again > 15
    assert tally.ends["processed"]
    assert tally.ends["undone"]


@pytest.fixture(scope="module")
def waiting_world() -> RecordedWorld:
    """The first recording in which every operation on tasks that wait happens, and a signal is left over.

    A change of the engine changes what happens in the world of a seed, hence several seeds.
    """
    for seed in WAITING_SEEDS:
        recording = cutting.record(seed)
        assert isinstance(recording, WaitingWorld)
        leftover = any(used is None for used, _ in recording.rows.signals.values())
        if leftover and frozenset().union(*recording.marks.operations).issuperset(WAITS):
            return recording
    pytest.fail(f"none of the seeds {WAITING_SEEDS} does everything to tasks that wait: choose others")


def test_the_power_goes_at_every_sync_of_letting_go_waking_signals_firings_and_delayed_submissions(
    waiting_world: RecordedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cutting, "record", lambda *_: waiting_world)
    tally = Cut(waiting_world.seed, Thoroughness(every=40, each=1, resume=12, again=60)).run()
    assert tally.failed == []
    for name in WAITS:
        assert tally.syncs_of[name] >= 1
        assert tally.images_of[name] >= 3 * tally.syncs_of[name]
    assert tally.resumed > 5
    assert tally.waiting == 1


SPOILS = {
    "update makegood_signal set used = null, body = null where used is not null": "is neither used nor kept",
    "update makegood_signal set used = 0, body = null where used is null": "ended by a signal, which used",
    "update makegood_signal set used = null, body = x'6e756c6c' where used is not null": "which used 0",
    "update makegood_event set at = at - 2.5 where cast(moves as text) like '%moment_came%'": "s and not",
    "insert into makegood_attribute (task, name, value) values (1, 'makegood.schedule', 'tick')": "firings, and has",
}


@pytest.mark.parametrize("statement", SPOILS)
def test_the_engine_that_goes_on_is_judged_by_its_waits(
    waiting_world: RecordedWorld, tmp_path: Path, statement: str
) -> None:
    """A store in which a signal was lost, used twice or given back, or a moment fired twice, is found out."""
    point = list(points(waiting_world.tape))[-1]
    assert ResumedWorld(waiting_world, point, point.durable, random.Random(1)).run().findings == []
    write_files(point.durable, tmp_path)
    with closing(sqlite3.connect(tmp_path / waiting_world.path.name, isolation_level=None)) as file:
        assert file.execute(statement).rowcount > 0
        file.execute("pragma wal_checkpoint(truncate)")
    files = {waiting_world.path.name: (tmp_path / waiting_world.path.name).read_bytes()}
    findings = ResumedWorld(waiting_world, point, files, random.Random(1)).run().findings
    assert any(SPOILS[statement] in text for text in findings), findings


def test_without_an_operation_on_tasks_that_wait_many_worlds_prove_nothing() -> None:
    tally = CutResults(points=1, writes=1, waiting=4)
    tally.images.update(STYLES)
    tally.syncs_of.update(WAITS)
    assert tally.lacking() == []
    del tally.syncs_of["firing"]
    assert tally.lacking() == ["no sync of: firing"]


def test_a_store_that_is_just_being_made_is_there_or_can_be_made() -> None:
    """In its real threads, from an empty folder; once somebody was told of the store, a task, an end, it is there."""
    result = CliRunner().invoke(main, ["--birth", "--each", "1", "--json"])
    report = json.loads(result.stdout)
    assert report["failed"] == []
    assert result.exit_code == 0
    assert report["points"] > 10
    assert sum(report["images"].values()) > 50


@pytest.mark.parametrize("level", ["normal", "off"])
def test_less_than_full_durability_is_found_out(level: str) -> None:
    """The commits return, and are not on the disk."""
    tally = Cut(SEED, Thoroughness(settings=(f"pragma synchronous = {level}",), resume=0, enough=1)).run()
    assert [failure.findings[0].partition(":")[0] for failure in tally.failed] == ["lost"]


def test_telling_callers_before_the_commit_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit comes right after; whoever was told has acted on it when the power goes in between."""
    write, commit = StoreThread._write, StoreThread._commit

    def writing(line: StoreThread, operations: list[Operation]) -> set[str]:
        if isinstance(line, RecordedLine):
            line.mutant = operations  # type: ignore[attr-defined]
        return write(line, operations)

    def committing(line: StoreThread, connection: sqlite3.Connection) -> None:
        if isinstance(line, RecordedLine):
            line._hand_back(line.mutant, set())  # type: ignore[attr-defined]
        commit(line, connection)

    monkeypatch.setattr(StoreThread, "_write", writing)
    monkeypatch.setattr(StoreThread, "_commit", committing)
    tally = Cut(SEED, Thoroughness(resume=0, enough=1)).run()
    assert tally.failed[0].findings[0].startswith("lost: ")


def test_a_second_cut_is_found_out_when_what_was_written_after_the_first_is_lost(
    world: RecordedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store that goes on with an image writes with less durability than it must."""

    def weakened(connection: sqlite3.Connection, *args: Any, **kwargs: Any) -> None:
        set_up(connection, *args, **kwargs)
        connection.execute("pragma synchronous = normal")

    monkeypatch.setattr(cutting, "record", lambda *_: world)
    monkeypatch.setattr("makegood.store.sqlite.connection.set_up", weakened)
    tally = Cut(SEED, Thoroughness(every=60, each=1, resume=0, again=5, enough=1)).run()
    assert "a second cut" in tally.failed[0].style
    assert tally.failed[0].findings[0].startswith("lost: ")


def test_a_store_that_skips_what_the_log_holds_is_found_out(
    world: RecordedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its write-ahead log the file alone is old; in the middle of a merge it is unusable."""
    without = dict.fromkeys(world.tape.base, b"")

    def drop_log(point: object, style: str, rng: random.Random) -> dict[str, bytes]:
        files = image(point, style, rng)  # type: ignore[arg-type]
        return {name: data for name, data in files.items() if name in without}

    monkeypatch.setattr(cutting, "record", lambda *_: world)
    monkeypatch.setattr("proofs.powercut.disk.image", drop_log)
    tally = Cut(SEED, Thoroughness(every=20, each=1, resume=0, enough=3)).run()
    assert {failure.findings[0].partition(":")[0] for failure in tally.failed} <= {"lost", "unusable"}
    assert len(tally.failed) == 3


def test_the_engine_that_goes_on_is_judged_by_books_that_outlived_the_cut(world: RecordedWorld) -> None:
    """Were the services' books gone too, what the record says is done would not stand, and that is a finding."""
    point = list(points(world.tape))[-1]
    assert ResumedWorld(world, point, point.durable, random.Random(1)).run().findings == []
    forgetful = ResumedWorld(world, point, point.durable, random.Random(1))
    forgetful._moment = Moment(
        {name: replace(each, books={key: replace(entry, net=1 - entry.net) for key, entry in each.books.items()})
         for name, each in forgetful._moment.services.items()},
        [],
    )  # fmt: skip
    assert any("L2" in text for text in forgetful.run().findings)


def test_a_seed_writes_the_same_in_the_same_order_every_time(world: RecordedWorld) -> None:
    """So that a failure's number names it: all is equal but for SQLite's random salts."""
    again = RecordedWorld(SEED, template=empty_store(page=PAGE))
    again.record()

    def shape(tape: Tape) -> list[tuple[str, str, int, int]]:
        return [(entry.kind, entry.name, entry.at, len(entry.data)) for entry in tape.entries]

    assert shape(again.tape) == shape(world.tape)
    assert again.marks.states == world.marks.states


def test_a_failing_image_is_kept_and_its_command_says_which(
    world: RecordedWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cutting, "record", lambda *_: world)
    monkeypatch.setattr(world, "findings", lambda *_: ["lost: everything"])
    result = CliRunner().invoke(
        main, ["--seed", str(SEED), "--point", "40", "--each", "1", "--keep", str(tmp_path)]
    )
    assert result.exit_code == 1
    assert f"seed {SEED}, point 40, dropped: lost: everything" in result.stdout
    assert f"--seed {SEED} --point 40 --each 1 --resume 1 --again 1 --keep" in result.stdout
    images = sorted(tmp_path.iterdir())
    assert images
    assert (images[0] / "world.db").stat().st_size > 100_000


def test_what_sqlite_does_is_heard_as_it_is(tmp_path: Path) -> None:
    """Files made and deleted, writes, syncs; played back, the tape gives the very file; other folders are not heard."""
    tape, elsewhere = Tape(), tmp_path / "elsewhere"
    folder = tmp_path / "here"
    folder.mkdir()
    elsewhere.mkdir()
    with listening(folder, tape):
        for place in (folder, elsewhere):
            with closing(sqlite3.connect(place / "a.db", isolation_level=None)) as connection:
                connection.execute("pragma journal_mode = wal")
                connection.execute("pragma synchronous = full")
                connection.execute("create table t (x)")
                connection.execute("insert into t values (zeroblob(20000))")
    length = len(tape.entries)
    with closing(sqlite3.connect(folder / "b.db", isolation_level=None)) as connection:
        connection.execute("create table t (x)")
    assert len(tape.entries) == length
    assert {entry.name for entry in tape.entries} == {"a.db", "a.db-journal", "a.db-wal"}
    assert {entry.kind for entry in tape.entries} >= {"created", "wrote", "synced", "deleted"}
    end = list(points(tape))[-1]
    assert image(end, "kept", random.Random(1)) == {"a.db": (folder / "a.db").read_bytes()}


class Hidden:
    """A library without names."""

    def __init__(self, *_: object) -> None:
        pass


class Another:
    """Another SQLite than the one that Python uses."""

    def __init__(self, *_: object) -> None:
        self.sqlite3_vfs_find = Hidden()
        self.sqlite3_sourceid: Any = Telling()


class Telling:
    """A function that says which SQLite it belongs to."""

    def __call__(self) -> bytes:
        """Say it."""
        return b"the day before"


@pytest.mark.parametrize(
    ("loader", "pattern"),
    [(Hidden, "hides its functions"), (Another, "another one was found: the day before")],
)
def test_a_sqlite_that_cannot_be_heard_is_said_so_and_nothing_passes(
    monkeypatch: pytest.MonkeyPatch, loader: type, pattern: str
) -> None:
    monkeypatch.setattr("proofs.powercut.listening.ctypes.CDLL", loader)
    with pytest.raises(ListeningError, match=pattern):
        library()
    result = CliRunner().invoke(main, ["--birth"])
    assert (result.exit_code, pattern in result.stderr.replace("\n", " ")) == (2, True)


def test_a_birth_has_no_seed_and_its_command_says_so() -> None:
    assert "--birth --point 3" in cutting.Failure(BIRTH, 3, "torn", ("lost: x",), 2).replay


def test_recorded_worlds_differ_in_how_often_the_log_is_brought_into_the_file() -> None:
    """Otherwise the moments of that would not be cut at all."""
    pages, template = set(), empty_store(page=PAGE)
    for seed in range(6):
        with closing(RecordedWorld(seed, template=template)) as world:
            pages.add(world.log_pages)
    assert min(pages) < 100
    assert len(pages) > 2


def test_merges_of_the_log_are_on_the_tape() -> None:
    """Those of the engine itself, on a connection of their own: the power is cut between their writes as well."""
    with closing(RecordedWorld(3, template=empty_store(page=PAGE))) as world:
        assert world.log_pages == 4
        world.record()
        writes = [
            entry for entry in world.tape.entries if entry.kind == "wrote" and entry.name == world.path.name
        ]
    assert len(writes) > 200
