"""``makegood store``: what it would do, what it did, what it found."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from makegood.store import migrations
from tests.doors.conftest import Shop


def test_an_empty_store_is_planned_printed_and_set_up(tmp_path: Path) -> None:
    """--plan and --sql change nothing; migrate says what it applied; a second one has nothing to do."""
    shop = Shop(tmp_path)
    status = shop.json("store", "status", code=9)
    assert (status["version"], status["dialect"]) == (0, "sqlite")
    assert status["missing"]
    assert shop.done("store", "migrate", "--plan").split() == status["missing"]
    sql = shop.done("store", "migrate", "--sql")
    assert "create table makegood_task" in sql.lower()
    assert shop.json("store", "migrate", "--sql")["sql"] == sql
    assert not (tmp_path / "kiosk.db").exists()
    assert shop.json("store", "migrate")["applied"] == status["missing"]
    assert shop.done("store", "migrate") == "nothing to apply: the schema is up to date\n"
    assert shop.call("store", "migrate", "--plan").stdout == ""
    now = shop.json("store", "status")
    assert now["version"] == now["needed"]
    assert (
        now["missing"],
        now["rows"]["task"] if "task" in now["rows"] else now["rows"]["makegood_task"],
    ) == ([], 0)


def test_the_printed_sql_sets_up_a_store_by_hand(tmp_path: Path) -> None:
    """An operator who may not let us migrate can run it himself."""
    shop = Shop(tmp_path)
    sql = shop.done("store", "migrate", "--sql")
    by_hand = sqlite3.connect(tmp_path / "kiosk.db", isolation_level=None)
    by_hand.executescript(sql)
    by_hand.close()
    assert shop.json("store", "status")["missing"] == []
    assert shop.done("store", "check") == "nothing found: the store is intact\n"


def test_status_for_people_says_what_to_do(tmp_path: Path) -> None:
    """Version, what is missing and the command."""
    shop = Shop(tmp_path)
    status = shop.call("store", "status")
    assert status.exit_code == 9
    text = status.stdout
    assert f"version 0, needs {migrations.latest_version('sqlite')}: run `makegood store migrate`" in text
    shop.done("store", "migrate")
    assert "up to date" in shop.done("store", "status")


def test_plan_or_sql(shop: Shop) -> None:
    """Both at once is a usage error."""
    assert shop.call("store", "migrate", "--plan", "--sql").exit_code == 2


def test_check_finds_a_file_that_is_no_store(tmp_path: Path) -> None:
    """Exit 9 for an empty store, and one sentence for a file that is no database."""
    shop = Shop(tmp_path)
    assert shop.call("store", "check").exit_code == 9
    (tmp_path / "kiosk.db").write_bytes(b"no database, but long enough to be looked at" * 100)
    check = shop.call("store", "check")
    assert check.exit_code != 0
    assert check.stderr.startswith("makegood: ")
    assert "Traceback" not in check.stderr


def test_check_finds_damage(shop: Shop) -> None:
    """A store with a broken page is found out: exit 1, in words and as JSON."""
    for n in range(30):
        shop.done("task", "submit", "kiosk:buy", f'{{"id": "{n}"}}')
    file = shop.folder / "kiosk.db"
    db = sqlite3.connect(file, isolation_level=None)
    (root,) = db.execute("select rootpage from sqlite_master where name = 'makegood_step'").fetchone()
    (size,) = db.execute("pragma page_size").fetchone()
    db.execute("pragma wal_checkpoint(truncate)")
    db.close()
    data = bytearray(file.read_bytes())
    data[root * size - size + 8 : root * size - size + 16] = b"\xff" * 8  # where its cells lie
    file.write_bytes(data)
    report = shop.json("store", "check", code=1)
    assert report["findings"]
    assert shop.call("store", "check").stdout.splitlines() == report["findings"]


def test_a_store_that_is_newer_than_this_makegood_is_not_called_up_to_date(shop: Shop) -> None:
    """Status says so and what to do, with the exit code that the other commands give; so do they."""
    with sqlite3.connect(shop.folder / "kiosk.db") as connection:
        connection.execute("insert into makegood_schema_version values (99, '0099_future', 0)")
    connection.close()
    status = shop.call("store", "status")
    assert status.exit_code == 9
    assert "newer than this makegood" in status.stdout
    assert "install the newer makegood" in status.stdout
    assert "up to date" not in status.stdout
    assert shop.json("store", "status", code=9)["version"] == 99
    assert shop.call("task", "list").exit_code == 9
    assert shop.call("store", "migrate").exit_code == 9
    for option in ("--plan", "--sql"):  # a script that runs what is printed must not take nothing for enough
        migration = shop.call("store", "migrate", option)
        assert (migration.exit_code, migration.stdout) == (9, "")
        assert "has schema version 99" in migration.stderr
        assert "install the newer makegood" in migration.stderr


@pytest.fixture
def older_shop(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    """A shop whose store lacks a migration that this version has."""
    original = migrations.migrations
    more = migrations.Migration(2, "0002_next", "create table makegood_next (id integer primary key);")
    monkeypatch.setattr(migrations, "migrations", lambda dialect: [*original(dialect), more])
    migrations.latest_version.cache_clear()
    yield shop
    migrations.latest_version.cache_clear()


def test_a_store_that_is_older_than_this_makegood_needs_a_migration_for_status_too(older_shop: Shop) -> None:
    """Exit 9, as the other commands say; after the migration, 0."""
    shop = older_shop
    assert shop.json("store", "status", code=9)["missing"] == ["0002_next"]
    assert shop.call("task", "list").exit_code == 9
    assert shop.call("store", "check").exit_code == 9
    assert shop.json("store", "migrate")["applied"] == ["0002_next"]
    assert shop.json("store", "status")["version"] == 2
    assert shop.call("task", "list").exit_code == 0


def test_makegood_lives_beside_the_tables_of_others_and_says_so(tmp_path: Path) -> None:
    """A user's tables in the same file are named before ours are added, and stay."""
    shop = Shop(tmp_path)
    with sqlite3.connect(tmp_path / "kiosk.db") as theirs:
        theirs.execute("create table t (x)")
        theirs.execute("insert into t values (1)")
    assert "others   t: not makegood's, left alone" in shop.call("store", "status").stdout
    refusal = shop.call("task", "list")
    assert refusal.exit_code == 9
    assert "holds no tables of makegood" in refusal.stderr
    migration = shop.call("store", "migrate")
    assert (migration.exit_code, migration.stdout) == (
        0,
        f"applied {', '.join(m.name for m in migrations.migrations('sqlite'))}\n",
    )
    assert "holds other tables (t); makegood's are put beside them" in migration.stderr
    assert shop.call("store", "migrate").stderr == ""
    assert theirs.execute("select x from t").fetchall() == [(1,)]
    theirs.close()
    assert shop.json("store", "status")["others"] == ["t"]


def test_versions_that_cannot_be_told_are_told_with_the_remedy(tmp_path: Path) -> None:
    """A table of versions without a row: no command goes on, and none fails in SQL."""
    shop = Shop(tmp_path)
    with sqlite3.connect(tmp_path / "kiosk.db") as database:
        database.execute(
            "create table makegood_schema_version (version integer primary key, name text, applied_at real)"
        )
    database.close()
    for words in (("task", "list"), ("store", "migrate"), ("store", "status"), ("store", "check")):
        result = shop.call(*words)
        assert (result.exit_code, result.stdout) == (9, ""), words
        assert "its table of schema versions has no row" in result.stderr
        assert "restore a backup" in result.stderr


LOOKS = (
    ("task", "list"), ("task", "show", "{task}"), ("task", "history", "{task}"), ("task", "undo", "--preview", "{task}"),
    ("agents",), ("alerts",), ("leader",), ("check", "kiosk:kiosk"), ("store", "status"), ("store", "check"),
)  # fmt: skip


def test_who_only_looks_does_not_wait_for_the_lock_of_another(shop: Shop) -> None:
    """An outsider in the middle of a write: all commands that only read work, at once and also after a reboot."""
    task = shop.done("task", "submit", "kiosk:buy", '{"id": "o"}').strip()
    outsider = sqlite3.connect(shop.folder / "kiosk.db", isolation_level=None)
    outsider.execute("delete from makegood_clock")
    outsider.execute("begin immediate")
    for words in LOOKS:  # one that asked for the lock would wait, and be refused in the end
        result = shop.call(*(word.format(task=task) for word in words))
        assert result.exit_code == 0, (words, result.stderr)
    outsider.execute("rollback")
    outsider.close()


def test_prune_counts_before_it_removes(shop: Shop) -> None:
    """`store prune --dry-run` removes nothing; then `store prune` removes what ended, and says how many."""
    running = shop.serve("run", "kiosk:kiosk")
    assert shop.call("task", "submit", "kiosk:buy", '{"id": "o-1", "cents": 250}', "--wait").exit_code == 0
    shop.stop(running)
    assert shop.json("store", "prune", "--older", "1d")["removed"] == 0
    pruning = shop.json("store", "prune", "--older", "0s", "--dry-run")
    assert (pruning["removed"], pruning["kept"], pruning["dry_run"]) == (1, 0, True)
    assert len(shop.json("task", "list")) == 1
    assert shop.done("store", "prune", "--older", "0s") == "1 task removed\n"
    assert shop.json("task", "list") == []


def test_prune_refuses_a_length_of_time_that_is_none(shop: Shop) -> None:
    """Exit 2, and nothing is removed."""
    assert shop.call("store", "prune", "--older", "old").exit_code == 2
