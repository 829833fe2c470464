"""A store from before 0.1.0 is refused by name, whoever meets it, and nothing is written into it."""

import asyncio
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

import makegood as mg
from tests.conformance.test_schema import BEFORE_0_1
from tests.doors.conftest import Shop

VERSIONS = ", ".join(f"({version}, '{name}', 0)" for version, name in enumerate(BEFORE_0_1, 1))
SQLITE = f"""
pragma journal_mode = wal;
create table makegood_schema_version (version integer primary key, name text not null, applied_at real not null);
insert into makegood_schema_version values {VERSIONS};
"""
POSTGRES = f"""
create schema makegood;
create table makegood.schema_version (version integer primary key, name text not null, applied_at double precision not null);
insert into makegood.schema_version values {VERSIONS};
"""
TABLES = "select schemaname || '.' || tablename from pg_tables where schemaname not in ('pg_catalog', 'information_schema')"
REFUSED = r"was made by a makegood from before 0\.1\.0.*makegood at commit ea80f7d.*create a new store"


async def _on_server(url: str, sql: str) -> list[tuple[object, ...]]:
    import asyncpg  # noqa: PLC0415 - an extra

    connection = await asyncpg.connect(url)
    try:
        await connection.execute(sql)
        rows = [tuple(row) for row in await connection.fetch(TABLES)]
        return rows + [tuple(row) for row in await connection.fetch("select * from makegood.schema_version")]
    finally:
        await connection.close()


class Old:
    """A shop on such a store."""

    def __init__(self, shop: Shop) -> None:
        self.shop = shop
        self.file = shop.folder / "kiosk.db"
        if shop.url.startswith("sqlite"):
            with sqlite3.connect(self.file) as connection:
                connection.executescript(SQLITE)
            connection.close()
        else:
            asyncio.run(_on_server(shop.url, POSTGRES))

    def contents(self) -> object:
        """Return what is in the store: the file's bytes, or the tables and the versions."""
        if self.shop.url.startswith("sqlite"):
            return self.file.read_bytes()
        return asyncio.run(_on_server(self.shop.url, "select 1"))


@pytest.fixture(params=["sqlite", "postgres"])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Old]:
    """Such a store on each kind of database."""
    if request.param == "postgres":
        yield Old(request.getfixturevalue("shop_on_postgres"))
    else:
        new_shop = Shop(tmp_path)
        yield Old(new_shop)
        new_shop.close()


def test_each_command_refuses_it_with_exit_9_and_the_remedy(old: Old) -> None:
    before = old.contents()
    for words in (
        ("store", "migrate"), ("store", "migrate", "--plan"), ("store", "migrate", "--sql"), ("store", "status"), ("store", "check"),
        ("store", "prune"), ("store", "restored", "--yes"), ("task", "list"), ("task", "submit", "kiosk:buy", '{"id": "a", "card": "ok"}'), ("alerts",),
        ("queue", "list"), ("leader",), ("run", "kiosk:kiosk"), ("scheduler",), ("supervisor", "--once"), ("check", "kiosk:kiosk"),
    ):  # fmt: skip
        result = old.shop.call(*words)
        assert result.exit_code == 9, (words, result.output)
        assert "from before 0.1.0" in result.stderr, words
        assert "makegood at commit ea80f7d" in result.stderr, words
        assert result.stdout == "", words
    (schema,) = [one for one in old.shop.json("doctor", code=9)["findings"] if one["check"] == "schema"]
    assert (schema["severity"], "ea80f7d" in schema["what"]) == ("error", True)
    assert old.contents() == before


def test_a_client_and_a_node_refuse_it_even_if_they_may_migrate(old: Old) -> None:
    before = old.contents()

    async def opened() -> None:
        for migrate in (False, True):
            with pytest.raises(mg.SchemaMismatchError, match=REFUSED):
                await mg.Client(old.shop.url, migrate=migrate).open()
            with pytest.raises(mg.SchemaMismatchError, match=REFUSED):
                async with mg.Node(mg.App("kiosk"), old.shop.url, options=mg.Options(migrate=migrate)):
                    pass

    asyncio.run(opened())
    with pytest.raises(mg.SchemaMismatchError, match=REFUSED), mg.SyncClient(old.shop.url) as client:
        client.find(mg.Filter())
    assert old.contents() == before
