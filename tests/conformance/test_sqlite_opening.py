"""SQLite only: where a store can be, what is verified at open, and what the messages tell people to do."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from makegood.base.sqlite_log import Connection
from makegood.errors import ConfigError, SchemaMismatchError, StoreUnavailableError
from makegood.messaging.outbox.sqlite import SQLiteOutbox
from makegood.store import open_store
from makegood.store.sqlite import SQLiteStore
from makegood.store.sqlite import database as facade
from makegood.store.sqlite.connection import connect, examine, filesystem
from makegood.store.views import Filter
from tests.conformance.builders import draft, running
from tests.conformance.worlds import SQLiteWorld
from tests.forbidden_folder import barred

MOUNTS = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
40 22 0:30 / /mnt/share rw,relatime shared:9 - nfs4 server:/share rw,vers=4.2
41 40 0:31 / /mnt/share/local rw - tmpfs tmpfs rw
42 22 0:32 / /mnt/with\\040space rw - cifs //server/x rw
"""


@pytest.fixture
def place(tmp_path: Path) -> SQLiteWorld:
    """A folder for a store, without the clocks of the suite."""
    return SQLiteWorld(tmp_path)


def altered(execute: Callable[[sqlite3.Connection, str], Any]) -> Callable[[str], sqlite3.Connection]:
    """Return an opener of connections whose ``execute`` may answer in SQLite's stead (anything but None)."""

    class Altered(Connection):
        def execute(self, sql: str, *values: Any) -> Any:
            answer = execute(self, sql)
            return super().execute(sql, *values) if answer is None else answer

    return lambda uri: connect(uri, factory=Altered)


async def test_a_missing_folder_is_named(place: SQLiteWorld) -> None:
    store = SQLiteStore(place.path.parent / "no" / "store.db")
    for call in (store.open(migrate=True), store.admin.migrate(), store.admin.schema(), store.admin.check()):
        with pytest.raises(ConfigError, match=r"folder .*/no does not exist"):
            await call


async def test_a_folder_that_this_user_may_not_enter_is_named(open_folder: Path) -> None:
    """Python's own answer is an exception in the middle of whatever asked; people were told to report it."""
    shut = open_folder / "shut"
    shut.mkdir()
    store = SQLiteStore(shut / "deep" / "store.db")
    with barred(shut):
        for call in (
            store.open(migrate=True),
            store.admin.migrate(),
            store.admin.schema(),
            store.admin.check(),
            store.admin.examine(),
        ):
            with pytest.raises(ConfigError, match=r"may not enter the folder .*: run as"):
                await call
        with pytest.raises(ConfigError, match="may not enter the folder"):
            await SQLiteOutbox(str(shut / "outbox.db")).open()


async def test_a_folder_that_is_barred_while_the_store_is_open_makes_it_unavailable(
    open_folder: Path,
) -> None:
    """The system's own error went to whoever asked: none that a role waits at."""
    folder = open_folder / "mine"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    store = SQLiteStore(folder / "store.db")
    await store.open(migrate=True)
    with barred(folder):
        for call in (store.tasks.count(Filter()), store.tasks.submit([draft(1)])):
            with pytest.raises(StoreUnavailableError, match="cannot be reached"):
                await call
    assert await store.tasks.count(Filter()) == 0
    await store.close()


async def test_a_sqlite_without_json_is_refused(place: SQLiteWorld) -> None:
    """It was an option of the build before 3.38; without it the first commit would fail."""

    def lacking(connection: sqlite3.Connection, sql: str) -> None:
        if "json_each" in sql:
            raise sqlite3.OperationalError("no such table: json_each")

    with pytest.raises(ConfigError, match="built without JSON"):
        await SQLiteStore(place.path, open_connection=altered(lacking)).open(migrate=True)


async def test_a_folder_is_no_store(place: SQLiteWorld) -> None:
    with pytest.raises(ConfigError, match="is a folder"):
        await SQLiteStore(place.path.parent).open(migrate=True)


async def test_a_file_that_is_no_database_is_refused_and_left_alone(place: SQLiteWorld) -> None:
    text = b"Dear diary, today I was mistaken for a database. " * 50
    place.path.write_bytes(text)
    store = place.store()
    for call in (store.open(), store.open(migrate=True), store.admin.migrate(), store.admin.schema()):
        with pytest.raises(ConfigError, match="not a SQLite database"):
            await call
    assert place.path.read_bytes() == text


async def test_opening_without_migrate_creates_no_file(place: SQLiteWorld) -> None:
    with pytest.raises(SchemaMismatchError, match="no such file yet"):
        await place.store().open()
    assert (await place.store().admin.schema()).version == 0
    assert not place.path.exists()


async def test_a_read_only_file_is_an_outage_with_its_remedy_but_for_who_only_looks(
    place: SQLiteWorld,
) -> None:
    store = place.store()
    await store.open(migrate=True)
    await store.close()

    def read_only(uri: str) -> sqlite3.Connection:
        return connect(uri.replace("mode=rw", "mode=ro"))

    with pytest.raises(StoreUnavailableError, match="read-only: give this user write access"):
        await SQLiteStore(place.path, open_connection=read_only).open()
    looker = SQLiteStore(place.path, open_connection=read_only)
    await looker.open(looking=True)
    assert await looker.tasks.find(Filter()) == []
    assert await looker.admin.check() == []
    with pytest.raises(StoreUnavailableError, match="read-only: give this user write access"):
        await looker.tasks.submit([draft(1)])
    await looker.close()


async def test_a_file_that_was_read_only_when_it_was_opened_is_written_once_it_may_be(
    place: SQLiteWorld,
) -> None:
    """SQLite opens a file that may not be written to read, and such a connection never writes: another one does."""
    is_read_only = False

    def open_connection(uri: str) -> sqlite3.Connection:
        return connect(uri.replace("mode=rw", "mode=ro") if is_read_only else uri)

    maker = place.store()
    await maker.open(migrate=True)
    store = SQLiteStore(place.path, open_connection=open_connection)
    await store.open()
    is_read_only = True
    for _ in range(2):
        with pytest.raises(StoreUnavailableError, match="read-only: give this user write access"):
            await store.tasks.submit([draft(1)])
    is_read_only = False
    assert (await store.tasks.submit([draft(1)]))[0].is_new
    assert [task.id for task in await store.tasks.find(Filter())] == [1]
    await store.close()
    await maker.close()


async def test_opening_waits_for_nobody_who_writes(
    place: SQLiteWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock may be the caller's own: only a write waits for it, and says whose it may be when that takes too long."""
    store = place.store()
    await store.open(migrate=True)
    writing = sqlite3.connect(place.path, isolation_level=None)
    writing.execute("begin immediate")
    for migrate in (True, False):
        await store.close()
        await store.open(migrate=migrate)
        assert await store.tasks.find(Filter()) == []
    monkeypatch.setattr("makegood.store.sqlite.store_threads._BUSY_TRIES", 5)
    with pytest.raises(StoreUnavailableError, match="another connection, perhaps of this very process"):
        await store.tasks.submit([draft(1)])
    writing.execute("rollback")
    assert (await store.tasks.submit([draft(1)]))[0].is_new
    writing.close()
    await store.close()


async def test_without_a_write_ahead_log_nothing_is_opened(place: SQLiteWorld) -> None:
    def refuse(connection: sqlite3.Connection, sql: str) -> Any:
        return (
            sqlite3.Connection.execute(connection, "select 'delete'") if "journal_mode = wal" in sql else None
        )

    with pytest.raises(ConfigError, match="write-ahead log"):
        await SQLiteStore(place.path, open_connection=altered(refuse)).open(migrate=True)


async def test_a_file_whose_texts_are_not_utf_8_is_refused_and_left_alone(place: SQLiteWorld) -> None:
    """Texts are cut out of byte strings, and SQLite would read those in the file's own encoding."""
    with closing(sqlite3.connect(place.path)) as connection:
        connection.execute("pragma encoding = 'UTF-16le'")
        connection.execute("create table mine (name text)")
    before = place.path.read_bytes()
    with pytest.raises(
        ConfigError, match="keeps its texts as UTF-16le, makegood needs UTF-8: name another file"
    ):
        await place.store().open()
    assert place.path.read_bytes() == before


async def test_weaker_durability_than_full_is_refused(place: SQLiteWorld) -> None:
    def weaken(connection: sqlite3.Connection, sql: str) -> Any:
        weak = "pragma synchronous = normal"
        return sqlite3.Connection.execute(connection, weak) if "synchronous = full" in sql else None

    with pytest.raises(ConfigError, match=r"must be 2 \(FULL\)"):
        await SQLiteStore(place.path, open_connection=altered(weaken)).open(migrate=True)


async def test_every_connection_writes_through_to_the_disk(place: SQLiteWorld) -> None:
    connections: list[sqlite3.Connection] = []

    def remember(uri: str) -> sqlite3.Connection:
        connections.append(connect(uri))
        return connections[-1]

    store = SQLiteStore(place.path, open_connection=remember)
    await store.open(migrate=True)
    await store.tasks.submit([draft(1)])
    living = 0
    for connection in connections:
        try:
            settings = [
                connection.execute(f"pragma {name}").fetchone()[0] for name in ("synchronous", "journal_mode")
            ]
        except sqlite3.ProgrammingError:  # closed after the opening
            continue
        assert settings == [2, "wal"]
        living += 1
    assert living == 2
    await store.close()


async def test_the_name_of_a_new_file_is_made_durable(
    place: SQLiteWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders: list[Path] = []
    monkeypatch.setattr(facade, "fsync_folder", folders.append)
    store = place.store()
    await store.open(migrate=True)
    await store.close()
    await store.open(migrate=True)
    await store.close()
    assert folders == [place.path]


def test_the_type_of_a_file_system_is_that_of_the_innermost_mount() -> None:
    kinds = {
        "/home/me/shop.db": "ext4",
        "/mnt/share/shop.db": "nfs4",
        "/mnt/share/local/shop.db": "tmpfs",
        "/mnt/shared.db": "ext4",
        "/mnt/with space/shop.db": "cifs",
    }
    assert {path: filesystem(Path(path), MOUNTS) for path in kinds} == kinds
    assert filesystem(Path("/x"), "") == ""


def test_a_network_file_system_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = f"40 22 0:30 / {tmp_path} rw - nfs4 server:/share rw"
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: table)
    with pytest.raises(ConfigError, match="network file system"):
        examine(tmp_path / "shop.db")


async def test_a_users_tables_live_beside_ours(place: SQLiteWorld) -> None:
    with closing(sqlite3.connect(place.path)) as connection, connection:
        connection.execute("create table orders (id integer primary key)")
    store = place.store()
    assert (await store.admin.schema()).version == 0
    await store.open(migrate=True)
    await running(store, 1)
    assert "orders" not in (await store.admin.schema()).rows
    await store.close()


async def test_a_url_names_the_file(place: SQLiteWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place.path.parent)
    for url in ("sqlite:///shop.db", f"sqlite:////{place.path.parent.relative_to('/')}/shop.db"):
        store = open_store(url)
        await store.open(migrate=True)
        await store.tasks.submit([draft(1)])
        assert len(await store.tasks.find(Filter())) == 1
        await store.close()
    assert (place.path.parent / "shop.db").exists()


async def test_damage_is_found_by_check_and_told(place: SQLiteWorld) -> None:
    store = place.store()
    await store.open(migrate=True)
    await store.tasks.submit([draft(n) for n in range(1, 200)])
    assert await store.admin.check() == []
    await store.close()
    data = bytearray(place.path.read_bytes())
    data[4096 * 30 : 4096 * 31] = b"\x55" * 4096
    place.path.write_bytes(bytes(data))
    findings = await store.admin.check()
    assert findings
    assert "restore a backup" in findings[0]


async def test_check_names_a_schema_that_does_not_fit(place: SQLiteWorld) -> None:
    store = place.store()
    await store.admin.migrate()
    async with place.raw() as raw:
        await raw.run("delete from {schema_version}")
    (finding,) = await store.admin.check()
    assert "makegood store migrate" in finding
