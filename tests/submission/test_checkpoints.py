"""SQLite's own checkpoints on the caller's connection come after makegood's guarded ones."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import makegood as mg
from makegood.base.sqlite_log import PAGES
from makegood.transactions.caller import LATE
from tests.actors.noop_apps import chain_app
from tests.submission.connections import DOORS, Player, SQLiteWorld

_, CHAIN = chain_app(1)

Enter = Callable[[mg.SyncClient, Any], object]


def acknowledge(client: mg.SyncClient, connection: Any) -> None:
    """Acknowledge a message."""
    queue = client.queue("web")
    client.send("web", 1)
    (message,) = queue.receive(1)
    connection.execute("begin immediate")
    assert queue.acknowledge(message, connection=connection)


def submit(client: mg.SyncClient, connection: Any) -> None:
    """Submit a task."""
    connection.execute("begin immediate")
    client.submit(CHAIN, "a", connection=connection)


def send(client: mg.SyncClient, connection: Any) -> None:
    """Send a message."""
    connection.execute("begin immediate")
    client.send("web", 1, connection=connection)


@pytest.mark.parametrize("enter", [submit, send, acknowledge])
@pytest.mark.parametrize(
    ("before", "after"),
    [(1000, 40_000), (1, 40_000), (39_999, 40_000), (40_000, 40_000), (50_000, 50_000), (0, 0)],
)
def test_a_lower_threshold_is_raised_and_none_stays_none(
    tmp_path: Path, enter: Enter, before: int, after: int
) -> None:
    world = SQLiteWorld(tmp_path / "shop.db")
    with (
        mg.SyncClient(world.url) as client,
        closing(sqlite3.connect(world.path, isolation_level=None)) as connection,
    ):
        connection.execute(f"pragma wal_autocheckpoint = {before}")
        enter(client, connection)
        connection.execute("commit")
        assert connection.execute("pragma wal_autocheckpoint").fetchone() == (after,)


def test_makegood_merges_long_before() -> None:
    assert LATE == 10 * PAGES


def test_the_threshold_belongs_to_the_connection_with_all_its_files(tmp_path: Path) -> None:
    """SQLite has one threshold for a connection: an attached file of the application's gets the higher one too."""
    world = SQLiteWorld(tmp_path / "shop.db")
    log = tmp_path / "second.db-wal"
    with (
        mg.SyncClient(world.url) as client,
        closing(sqlite3.connect(world.path, isolation_level=None)) as connection,
    ):
        connection.execute("attach ? as second", (str(tmp_path / "second.db"),))
        connection.execute("pragma second.journal_mode = wal")
        connection.execute("pragma second.synchronous = off")
        connection.execute("create table second.t (x)")
        submit(client, connection)
        connection.execute("commit")
        assert connection.execute("pragma second.wal_autocheckpoint").fetchone() == (40_000,)
        for _ in range(150):
            connection.execute("insert into second.t values (zeroblob(40000))")
        assert log.stat().st_size > 1200 * 4096, (
            "SQLite's default, 1000 pages, still holds for the attached file"
        )


@pytest.mark.parametrize("kind", [name for name, (_, store) in DOORS.items() if store == "sqlite"])
def test_every_kind_of_connection_gets_the_late_checkpoint(kind: str, tmp_path: Path) -> None:
    door = DOORS[kind][0](SQLiteWorld(tmp_path / "shop.db"))

    async def story(shop: Player) -> None:
        async with door.begin() as connection:
            await shop.submit(CHAIN, "a", connection=connection)
            assert await door.run(connection, "pragma wal_autocheckpoint") == 40_000

    door.play(story)
