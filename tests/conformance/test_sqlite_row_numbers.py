"""SQLite only: a table that has had the largest row number takes no further row, and SQLite calls that a full disk."""

import sqlite3
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest

from makegood.errors import StoreUnavailableError
from makegood.model.messages import TaskMessage
from makegood.store.protocol import Store
from makegood.store.queue_records import Outgoing
from makegood.store.sqlite.connection import connect
from makegood.store.sqlite.row_numbers import LARGEST, find_exhausted
from makegood.store.views import NodeInfo
from tests.conformance.builders import draft
from tests.conformance.worlds import opened

IDS = count()


def write(folder: Path, *statements: str) -> None:
    """Write to the file as another program does."""
    with closing(sqlite3.connect(folder / "store.db")) as db, db:
        for statement in statements:
            db.execute(statement)


async def insert(store: Store, table: str) -> None:
    """Have the store insert a row."""
    if table == "inbox":
        await store.tasks.post(1, TaskMessage("cancel"))
    elif table == "message":
        await store.queues.send_messages([Outgoing(queue="orders", body=b"1", id=f"{next(IDS)}")], 1000)
    else:
        await store.nodes.register(NodeInfo("n", ("agent",), "here", 1, 5.0))


@pytest.mark.parametrize("table", ["inbox", "message", "node"])
async def test_the_message_names_the_table_and_its_remedy_helps(tmp_path: Path, table: str) -> None:
    async with opened(tmp_path, connect) as store:
        await store.tasks.submit([draft(1)])
        await insert(store, table)
        column = "id" if table == "node" else "seq"
        write(tmp_path, f"update makegood_{table} set {column} = {LARGEST}")
        with pytest.raises(StoreUnavailableError, match="row number") as error:
            await insert(store, table)
        text = str(error.value)
        assert f"makegood_{table}" in text
        assert "make room" not in text
        findings = [one for one in await store.admin.examine() if one.severity == "error"]
        assert [(one.check, f"makegood_{table}" in one.what) for one in findings] == [("file", True)]
        assert any(f"makegood_{table}" in one for one in await store.admin.check())
        write(tmp_path, *findings[0].remedy.partition("`")[2].partition("`")[0].split("; "))
        await insert(store, table)
        assert await store.admin.check() == []


def test_every_table_that_counts_is_looked_at(tmp_path: Path) -> None:
    """A table of the user's in the same file too, whatever its name; a counter at its end without such a row as well."""
    with closing(sqlite3.connect(tmp_path / "x.db")) as db:
        assert find_exhausted(db) == [], "no table counts"
        for name in ("plain", 'a "quoted" one', "counted"):
            counts = "" if name == "plain" else "autoincrement"
            identifier = name.replace('"', '""')
            db.execute(f'create table "{identifier}" (id integer primary key {counts}, x int)')
            db.execute(f'insert into "{identifier}" values ({LARGEST}, 1)')
        db.execute("delete from counted")
        assert find_exhausted(db) == ['a "quoted" one', "counted"]
