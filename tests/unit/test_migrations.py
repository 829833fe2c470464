"""The list of migrations, their text, and which stores are refused."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from makegood.errors import SchemaMismatchError, StoreError
from makegood.store import migrations
from makegood.store.sqlite import upkeep


def test_the_plan_lists_what_a_store_lacks() -> None:
    everything = migrations.migrations("sqlite")
    assert [m.version for m in everything] == list(range(1, len(everything) + 1))
    assert migrations.plan("sqlite", 0) == everything
    assert migrations.plan("sqlite", everything[-1].version) == []
    assert everything[0].name == "0001_tables"


def test_the_script_makes_a_store_that_is_up_to_date() -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.executescript(migrations.script("sqlite"))
        assert upkeep.version(connection) == migrations.latest_version("sqlite")
    assert migrations.script("sqlite", migrations.latest_version("sqlite")) == ""


@pytest.mark.parametrize(
    ("version", "pattern"),
    [
        (0, "no tables of makegood: run `makegood store migrate`"),
        (-1, rf"needs {migrations.latest_version('sqlite')}: run `makegood store migrate`"),
        (99, "newer makegood"),
    ],
)
def test_a_schema_that_does_not_fit_is_refused_with_the_remedy(version: int, pattern: str) -> None:
    with pytest.raises(SchemaMismatchError, match=pattern) as error:
        migrations.verify("sqlite", version, "shop.db")
    assert str(error.value).startswith("shop.db")
    migrations.verify("sqlite", migrations.latest_version("sqlite"), "shop.db")


def test_a_missing_file_of_the_installation_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sqlite").mkdir()
    for name in ("0001_tables.sql", "0003_later.sql", "notes.txt"):
        (tmp_path / "sqlite" / name).write_text("select 1;")
    monkeypatch.setattr(migrations, "files", lambda _: tmp_path)
    with pytest.raises(StoreError, match="without gaps"):
        migrations.migrations("sqlite")
