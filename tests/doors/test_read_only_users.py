"""A SQLite file that belongs to one user and is looked at by another, who may not write it: real users, real processes."""

import asyncio
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from makegood.base.sqlite_readonly import Glance, glance_at
from makegood.errors import StoreUnavailableError
from makegood.store.sqlite import SQLiteStore
from makegood.store.views import Filter
from tests.doors.conftest import HERE
from tests.other_users import OWNER, VISITOR, common_folder, run_as

FILES = ("makegood.db-wal", "makegood.db-shm", "makegood.db.bell")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder of everybody's with a store that is OWNER's, in which one task waits; no process runs."""
    with common_folder() as common:
        shutil.copy(HERE / "cli_app.py", common / "kiosk.py")
        done(OWNER, common, "store", "migrate")
        done(OWNER, common, "task", "submit", "kiosk:buy", '{"id": "o-1"}')
        (common / "makegood.db").chmod(0o644)
        assert not [name for name in FILES if (common / name).exists()]
        yield common


def call(user: int, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command of makegood as this user."""
    return run_as(user, folder, "-m", "makegood", *words)


def done(user: int, folder: Path, *words: str) -> str:
    """Run a command that must succeed; return its stdout."""
    result = call(user, folder, *words)
    assert result.returncode == 0, result.stderr
    return result.stdout


def refused(user: int, folder: Path, *words: str) -> str:
    """Run a command that the file's rights must refuse; return what it said."""
    result = call(user, folder, *words)
    assert (result.returncode, result.stdout) == (8, ""), result.stderr
    return result.stderr


LOOKS = (
    ("task", "list"), ("task", "show", "{task}"), ("task", "history", "{task}"), ("task", "undo", "--preview", "{task}"), ("agents",),
    ("alerts",), ("audit",), ("queue", "list"), ("notices", "list"), ("leader",), ("leader", "other"), ("leader", "other", "--past"),
    ("check", "kiosk:kiosk"), ("store", "status"), ("store", "check"), ("store", "migrate", "--plan"), ("store", "prune", "--dry-run"),
    ("doctor",),
)  # fmt: skip


def test_a_look_by_another_user_leaves_nothing_that_would_lock_the_owner_out(folder: Path) -> None:
    """All commands that only look: they find what is there, and makegood's owner writes on. Each left a log of its user's."""
    (view,) = json.loads(done(VISITOR, folder, "task", "list", "--json"))
    for words in LOOKS:
        result = call(VISITOR, folder, *(word.format(task=view["id"]) for word in words))
        assert result.returncode == (8 if words == ("doctor",) else 0), (words, result.stderr)
        assert not [name for name in FILES if (folder / name).exists()], words
    done(OWNER, folder, "task", "submit", "kiosk:buy", '{"id": "o-2"}')
    assert len(json.loads(done(VISITOR, folder, "task", "list", "--json"))) == 2


def test_an_act_by_a_user_who_may_not_write_is_refused_before_a_log_is_made(folder: Path) -> None:
    """The refusal names the remedy; it left a log, too."""
    for words in (
        ("task", "submit", "kiosk:buy", '{"id": "o-2"}'),
        ("store", "migrate"),
        ("queue", "send", "q", "1"),
        ("supervisor", "--once"),
        ("inbox", "--from", "sqlite:///makegood.db"),
    ):
        text = refused(VISITOR, folder, *words)
        assert "read-only: give this user write access to the file and its folder" in text
        assert not [name for name in FILES if (folder / name).exists()], words
    assert call(VISITOR, folder, "election", "run", "e", "--wait", "0.2s", "--", "true").returncode in (7, 8)
    assert not [name for name in FILES if (folder / name).exists()]
    done(OWNER, folder, "task", "submit", "kiosk:buy", '{"id": "o-2"}')


def test_a_file_may_be_read_in_a_folder_that_may_not_be_written(folder: Path) -> None:
    """SQLite alone could not open it there; the doctor says what is wrong with the rights and speaks of no backup."""
    folder.chmod(0o755)
    assert len(json.loads(done(VISITOR, folder, "task", "list", "--json"))) == 1
    report = call(VISITOR, folder, "doctor", "--json")
    assert report.returncode == 8
    errors = [each for each in json.loads(report.stdout)["findings"] if each["severity"] == "error"]
    assert [each["check"] for each in errors] == ["store"]
    assert "give this user write access" in errors[0]["what"]
    assert "backup" not in report.stdout


def test_a_visitor_sees_what_a_writer_has_just_committed(folder: Path) -> None:
    """The log with its index is the writer's: what is in it is read, and neither is made anew or taken away."""
    os.setegid(OWNER)
    os.seteuid(OWNER)
    try:
        writer = sqlite3.connect(folder / "makegood.db", isolation_level=None)
        with closing(writer):
            writer.execute("update makegood_task set state = 'error'")
            os.seteuid(0)
            assert [
                view["state"] for view in json.loads(done(VISITOR, folder, "task", "list", "--json"))
            ] == ["error"]
            assert (folder / "makegood.db-wal").stat().st_uid == OWNER
            assert (folder / "makegood.db-shm").stat().st_uid == OWNER
            writer.execute("update makegood_task set state = 'pending'")
            os.seteuid(OWNER)
    finally:
        os.seteuid(0)
        os.setegid(0)
    assert not [name for name in FILES if (folder / name).exists()]


def test_a_log_of_another_user_is_named_with_what_to_do(folder: Path) -> None:
    """It was said that the file was read-only, although its owner might write it. Nothing is taken away by makegood itself."""
    outsider = "import sqlite3; sqlite3.connect('makegood.db').execute('select count(*) from sqlite_master').fetchall()"
    assert run_as(VISITOR, folder, "-c", outsider).returncode == 0
    assert (folder / "makegood.db-wal").stat().st_uid == VISITOR
    text = refused(OWNER, folder, "task", "submit", "kiosk:buy", '{"id": "o-2"}')
    assert "but not makegood.db-wal and makegood.db-shm beside it, made by" in text
    assert "chown --reference=" in text
    assert "remove them while no process has the file open: they hold nothing" in text
    assert "makegood.db-wal and makegood.db-shm" in call(OWNER, folder, "doctor").stdout
    assert len(json.loads(done(OWNER, folder, "task", "list", "--json"))) == 1
    for name in FILES[:2]:
        (folder / name).unlink()
    done(OWNER, folder, "task", "submit", "kiosk:buy", '{"id": "o-2"}')


def test_a_log_with_commits_is_never_called_empty(folder: Path) -> None:
    """Root has written into the log and was killed: the owner is told not to remove it."""
    left = "import os, sqlite3; c = sqlite3.connect('makegood.db', isolation_level=None); c.execute('create table t (x)'); os._exit(0)"
    assert run_as(0, folder, "-c", left).returncode == 0
    for name in FILES[:2]:
        os.chown(folder / name, VISITOR, VISITOR)
    text = refused(OWNER, folder, "task", "submit", "kiosk:buy", '{"id": "o-2"}')
    assert "do not remove the log, it holds commits" in text
    assert "hold nothing" not in text
    assert len(json.loads(done(VISITOR, folder, "task", "list", "--json"))) == 1


def test_what_is_written_under_a_look_is_seen_by_the_next(folder: Path) -> None:
    """A file opened as it lies is read again once it was written: by its log while the writer is there, by its times afterwards."""
    path = folder / "makegood.db"
    os.utime(path, (1, 1))
    glance = Glance(path)
    assert "immutable=1" in glance.uri()
    assert not glance.again()
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("create table t (x)")
        assert glance.again()
        assert "readonly_shm=1" in glance.uri()
        assert not glance.again()
        glance.release()  # or the writer would leave his log behind, as with any reader
    assert "immutable=1" in glance.uri()
    assert not glance.again()


def test_a_log_without_its_index_is_left_to_the_owner(folder: Path) -> None:
    """Such as a copied one: whoever may only read makes no index, and says who is to open the file first."""
    left = "import os, sqlite3; c = sqlite3.connect('makegood.db', isolation_level=None); c.execute('create table t (x)'); os._exit(0)"
    assert run_as(OWNER, folder, "-c", left).returncode == 0
    (folder / "makegood.db-shm").unlink()
    text = refused(VISITOR, folder, "task", "list")
    assert "run `makegood store status` as" in text
    assert not (folder / "makegood.db-shm").exists()
    done(OWNER, folder, "store", "status")
    done(VISITOR, folder, "task", "list")


@contextmanager
def visiting() -> Iterator[None]:
    """Be VISITOR for a while, without another process."""
    os.seteuid(VISITOR)
    try:
        yield
    finally:
        os.seteuid(0)


def permit(path: Path, mode: int) -> None:
    """Give a file or a folder these rights."""
    path.chmod(mode)


async def test_a_look_that_lasts_goes_on_when_its_user_may_write_at_last(folder: Path) -> None:
    """The store was open to be read as it lies. It was watched for changes ever after, and each read said that there had been a hundred."""
    path = folder / "makegood.db"
    store = SQLiteStore(path)
    with visiting():
        await store.open(looking=True)
        assert await store.tasks.count(Filter()) == 1
    permit(path, 0o666)
    with visiting():
        assert await store.tasks.count(Filter()) == 1
        await store.close()


async def test_a_look_into_a_folder_that_is_barred_meanwhile_says_so(folder: Path) -> None:
    """The thread that reads had died of it: no later read was ever answered."""
    store = SQLiteStore(folder / "makegood.db")
    with visiting():
        await store.open(looking=True)
    permit(folder, 0o700)
    with visiting(), pytest.raises(StoreUnavailableError, match="cannot be reached"):
        await asyncio.wait_for(store.tasks.count(Filter()), 60)
    permit(folder, 0o777)
    with visiting():
        assert await asyncio.wait_for(store.tasks.count(Filter()), 60) == 1
        await store.close()


HAS_IT = """
import fcntl, os, sys
from makegood.base.sqlite_readonly import _READERS

file = os.open('makegood.db', os.O_RDWR)
fcntl.fcntl(file, fcntl.F_OFD_SETLK, fcntl.F_WRLCK.to_bytes(2, sys.byteorder) + _READERS[2:])
print('mine', flush=True)
sys.stdin.read()
"""


def test_a_file_that_its_writer_has_for_himself_for_long_is_not_said_to_lack_its_index(folder: Path) -> None:
    """As he has it who leaves last, until all of his log is in the file. The owner was to be asked to make an index that was there."""
    left = "import os, sqlite3; c = sqlite3.connect('makegood.db', isolation_level=None); c.execute('create table t (x)'); os._exit(0)"
    assert run_as(OWNER, folder, "-c", left).returncode == 0
    with subprocess.Popen(
        [sys.executable, "-c", HAS_IT], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as owner:
        assert owner.stdin is not None
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"mine\n"
        glance = Glance(folder / "makegood.db")
        with pytest.raises(StoreUnavailableError, match=r"another process has locked the file.*: try again"):
            glance.uri()
        owner.stdin.close()
        assert owner.wait(120) == 0
    assert "readonly_shm=1" in glance.uri()
    glance.release()


COMES_AND_GOES = """
import sqlite3
for n in range(150):
    file = sqlite3.connect('makegood.db', isolation_level=None)
    file.execute('begin immediate')
    file.execute('update makegood_task set failure_count = ?', (n % 10,))
    file.execute('update makegood_task set priority = ?', (n % 10,))
    file.execute('commit')
    file.close()
open('over', 'w').close()
"""
LOOKS_ON = """
import asyncio, os, pathlib
from makegood.store import open_store
from makegood.store.views import Filter

async def look():
    looks = 0
    while not pathlib.Path('over').exists() or not looks:
        store = open_store('sqlite:///makegood.db')
        await store.open(looking=True)
        (view,) = await store.tasks.find(Filter())
        assert view.failure_count == view.priority, view
        await store.close()
        for name in ('makegood.db-wal', 'makegood.db-shm'):
            try:
                assert os.stat(name).st_uid != os.getuid(), (name, looks)
            except FileNotFoundError:
                pass
        looks += 1

asyncio.run(look())
"""


def test_a_writer_who_comes_and_goes_under_many_looks_is_never_locked_out(folder: Path) -> None:
    """Each time he leaves he takes his log away: SQLite made one that was the visitor's, if that was between two of its steps."""
    with closing(sqlite3.connect(folder / "makegood.db", isolation_level=None)) as database:
        database.execute("update makegood_task set failure_count = 0, priority = 0")
    with ThreadPoolExecutor() as threads:
        both = [
            threads.submit(run_as, user, folder, "-c", text)
            for user, text in ((OWNER, COMES_AND_GOES), (VISITOR, LOOKS_ON))
        ]
    for future in both:
        assert future.result().returncode == 0, future.result().stderr


COMMITS = """
import sqlite3
file = sqlite3.connect('makegood.db', isolation_level=None)
file.execute('pragma synchronous = off')
while True:
    file.execute('update makegood_task set failure_count = 1 - failure_count')
"""


def test_a_look_that_meets_a_commit_of_the_writer_looks_again(folder: Path) -> None:
    """SQLite took an index that it read half written for a broken one: "attempt to write a readonly database", once in 200 looks."""

    def rows(glance: Glance | None) -> int:
        assert glance is not None
        with closing(sqlite3.connect(glance.uri(), uri=True, isolation_level=None)) as file:
            result: int = file.execute("select count(*) from makegood_task").fetchone()[0]
            return result

    with subprocess.Popen([sys.executable, "-c", COMMITS], cwd=folder) as writer:
        try:
            while not (folder / "makegood.db-wal").exists():
                assert writer.poll() is None
            with visiting():
                assert {glance_at(folder / "makegood.db", rows) for _ in range(3000)} == {1}
            assert writer.poll() is None
        finally:
            writer.kill()
