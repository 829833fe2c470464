"""SQLite only: a COMMIT that fails may have been done. The store looks, and tells its callers what is true."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from makegood.base.sqlite_log import Connection
from makegood.errors import StoreError, StoreUnavailableError
from makegood.store.sqlite import store_threads
from makegood.store.sqlite.connection import connect
from makegood.store.views import Filter
from tests.conformance.builders import draft
from tests.conformance.worlds import opened


class Answers:
    """Makes the next commit fail: ``before`` it was done, or ``after``; then ``broken`` commits fail before they are done."""

    def __init__(self) -> None:
        self.next = ""
        self.broken = 0
        self.opened = 0

    def connect(self, uri: str) -> sqlite3.Connection:
        """Open a connection whose commits may fail."""
        answers = self
        answers.opened += 1

        class Failing(Connection):
            def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
                if sql != "commit" or not self.total_changes:
                    return super().execute(sql, *values)
                fails, answers.next = answers.next, ""
                if fails == "" and answers.broken:
                    answers.broken -= 1
                    fails = "before"
                if fails == "before":
                    self.rollback()
                elif fails == "after":
                    super().execute(sql)
                if fails:
                    error = sqlite3.OperationalError("disk I/O error")
                    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
                    raise error
                return super().execute(sql, *values)

        return connect(uri, factory=Failing)


@pytest.mark.parametrize("commits_before", [0, 1], ids=["its first commit", "a later one"])
async def test_a_commit_that_stands_although_it_failed_is_told_as_done(
    tmp_path: Path, commits_before: int
) -> None:
    answers = Answers()
    async with opened(tmp_path, answers.connect) as store:
        for _ in range(commits_before):
            await store.tasks.submit([draft(8)])
        answers.next = "after"
        (submission,) = await store.tasks.submit([draft(1)])
        assert (submission.id, submission.is_new) == (1, True)
        assert [view.id for view in await store.tasks.find(Filter(ids=(1,)))] == [1]


@pytest.mark.parametrize("commits_before", [0, 1], ids=["its first commit", "a later one"])
async def test_a_commit_that_does_not_stand_is_told_as_away_and_can_be_repeated(
    tmp_path: Path, commits_before: int
) -> None:
    answers = Answers()
    async with opened(tmp_path, answers.connect) as store:
        for _ in range(commits_before):
            await store.tasks.submit([draft(8)])
        answers.next = "before"
        with pytest.raises(StoreUnavailableError, match="disk"):
            await store.tasks.submit([draft(1)])
        assert await store.tasks.find(Filter(ids=(1,))) == []
        (submission,) = await store.tasks.submit([draft(1)])
        assert submission.is_new
        answers.next = "after"  # and the numbers still tell one commit from the next
        (submission,) = await store.tasks.submit([draft(2)])
        assert submission.is_new


async def test_the_numbers_of_two_processes_are_their_own(tmp_path: Path) -> None:
    mine, theirs = Answers(), Answers()
    async with opened(tmp_path, mine.connect) as store, opened(tmp_path, theirs.connect) as other:
        for n in range(3):
            await other.tasks.submit([draft(10 + n)])
        mine.next = "before"
        with pytest.raises(StoreUnavailableError):
            await store.tasks.submit([draft(1)])
        await other.tasks.submit([draft(20)])
        mine.next = "after"
        assert (await store.tasks.submit([draft(2)]))[0].is_new


async def test_the_store_looks_until_the_disk_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_threads, "_LOOK_PAUSE", 0.0)
    answers = Answers()
    async with opened(tmp_path, answers.connect) as store:
        answers.next, answers.broken = "after", 5
        assert (await store.tasks.submit([draft(1)]))[0].is_new
        assert answers.broken == 0


async def test_when_nobody_can_tell_the_store_says_so_and_does_not_say_that_nothing_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_threads, "_LOOK_PAUSE", 0.0)
    answers = Answers()
    async with opened(tmp_path, answers.connect) as store:
        answers.next, answers.broken = "after", 10_000
        with pytest.raises(StoreError, match="not known") as error:
            await store.tasks.submit([draft(1)])
        assert not isinstance(error.value, StoreUnavailableError)
        answers.broken = 0


async def test_a_transaction_that_changes_nothing_leaves_no_number(tmp_path: Path) -> None:
    """Looking for work must not cost a write."""
    async with opened(tmp_path, Answers().connect) as store:
        await store.tasks.submit([draft(1)])
        watcher = sqlite3.connect(tmp_path / "store.db")
        before = watcher.execute("select last from makegood_writer").fetchall()
        assert await store.requests.take(1, []) == []
        assert watcher.execute("select last from makegood_writer").fetchall() == before
        watcher.close()
