"""The schema: empty stores, migrations, versions that do not fit."""

import asyncio
from urllib.parse import urlsplit

import pytest

from makegood.errors import SchemaMismatchError
from makegood.store import migrations
from makegood.store.protocol import Store
from makegood.store.views import Filter
from tests.conformance.builders import draft, running
from tests.conformance.worlds import TIMES, SQLiteWorld, World


def names(world: World) -> list[str]:
    """Return the names of all migrations."""
    return [migration.name for migration in migrations.migrations(world.dialect)]  # type: ignore[arg-type]


async def test_an_empty_store_names_the_command_to_type(world: World) -> None:
    store = world.store()
    with pytest.raises(SchemaMismatchError, match="makegood store migrate"):
        await store.open()
    status = await store.admin.schema()
    assert status.version == 0


async def test_migrating_makes_an_empty_store_ready(world: World) -> None:
    store = world.store()
    migrations = names(world)
    assert await store.admin.migrate() == migrations
    assert await store.admin.migrate() == []
    await store.open()
    assert await store.tasks.find(Filter()) == []
    await store.close()


async def test_opening_with_migrate_applies_what_is_missing(world: World) -> None:
    store = world.store()
    await store.open(migrate=True)
    await store.tasks.submit([draft(1)])
    await store.close()
    again = world.store()
    await again.open(migrate=True)
    assert len(await again.tasks.find(Filter())) == 1
    await again.close()


async def test_creating_a_schema_logs_where(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever connects to another database than intended reads it in the log; opening once more logs nothing."""
    caplog.set_level("INFO", logger="makegood.store")
    store = world.store()
    await store.open(migrate=True)
    await store.close()
    messages = [record.getMessage() for record in caplog.records if record.levelname == "INFO"]
    again = world.store()
    await again.open(migrate=True)
    await again.close()
    if isinstance(world, SQLiteWorld):
        place = f"{world.path}: "
    else:
        parts = urlsplit(world.url)  # type: ignore[attr-defined]  # the other kind has one
        place = f"{parts.hostname}:{parts.port}, database {parts.path[1:]}, user {parts.username}, schema makegood: "
    assert len(messages) == 1
    assert messages[0].startswith("created makegood's tables in ")
    assert place in messages[0]
    assert [r.getMessage() for r in caplog.records if r.levelname == "INFO"] == messages


async def test_the_status_works_before_and_after(world: World) -> None:
    store = world.store()
    before = await store.admin.schema()
    assert (before.dialect, before.version, before.missing) == (
        world.dialect,
        0,
        names(world),
    )
    assert before.needed == migrations.latest_version(world.dialect)
    await store.open(migrate=True)
    await running(store, 1)
    after = await store.admin.schema()
    assert (after.version, after.missing) == (after.needed, [])
    sizes = {table: after.rows[table] for table in ("task", "step", "request", "event", "node", "inbox")}
    assert sizes == {"task": 1, "step": 3, "request": 1, "event": 1, "node": 1, "inbox": 0}
    await store.close()


async def test_a_newer_schema_is_refused_and_left_alone(world: World, store: Store) -> None:
    async with world.raw() as raw:
        await raw.run(
            "insert into {schema_version} (version, name, applied_at) values (9999, '9999_later', 0)"
        )
    await store.close()
    with pytest.raises(SchemaMismatchError, match="newer"):
        await store.open()
    with pytest.raises(SchemaMismatchError, match="newer"):
        await store.open(migrate=True)
    with pytest.raises(SchemaMismatchError, match="newer"):
        await store.admin.migrate()
    assert (await store.admin.schema()).version == 9999


async def test_two_processes_that_migrate_at_once_apply_each_migration_once(world: World) -> None:
    stores = [world.store() for _ in range(4)]
    names_ = await asyncio.gather(*(s.admin.migrate() for s in stores))
    migrations = names(world)
    assert sorted(name for each in names_ for name in each) == migrations


async def test_processes_that_open_an_empty_store_at_once_all_come_up(world: World) -> None:
    stores = [world.store() for _ in range(4)]
    await asyncio.gather(*(s.open(migrate=True) for s in stores))
    assert len({s.identity for s in stores}) == 1
    await asyncio.gather(*(s.close() for s in stores))


async def test_a_sound_store_has_no_findings(world: World, store: Store) -> None:
    await running(store, 1)
    assert await store.admin.check() == []


async def versions(world: World, *names: str) -> None:
    """Let a store's table of versions have these rows, from version 1 on."""
    async with world.raw() as raw:
        await raw.run("delete from {schema_version}")
        for version, name in enumerate(names, 1):
            row = "insert into {schema_version} (version, name, applied_at) values (?, ?, 0)"
            await raw.run(row, version, name)


async def contents(world: World) -> dict[str, list[str]]:
    """Return the rows of all tables."""
    async with world.raw() as raw:
        tables = (*TIMES, "step", "notice", "schema_version")
        return {table: sorted(map(repr, await raw.run(f"select * from {{{table}}}"))) for table in tables}


async def test_a_table_of_versions_without_a_row_is_told_with_the_remedy(world: World, store: Store) -> None:
    """What such a store holds cannot be told: nothing continues, and no migration is tried on top of it."""
    await versions(world)
    await store.close()
    for call in (store.open(), store.open(migrate=True), store.admin.migrate(), store.admin.schema()):
        with pytest.raises(SchemaMismatchError, match=r"versions has no row.*restore a backup"):
            await call
    assert any("versions has no row" in finding for finding in await store.admin.check())
    await versions(world, *names(world))  # a database is used by many tests
    await store.open()


BEFORE_0_1 = (
    "0001_initial", "0002_alerts", "0003_lease_terms", "0004_queues", "0005_notices", "0006_limits", "0007_db_user", "0008_console",
    "0009_supervisor_decisions",
)  # fmt: skip
"""The migrations of the versions before 0.1.0, whose numbers mean other tables now."""


@pytest.mark.parametrize("count", [1, 2, 9])
async def test_a_store_from_before_0_1_is_refused_by_name_and_left_alone(
    world: World, store: Store, count: int
) -> None:
    """Whatever its version: the number alone may be the present one, or look like a newer one."""
    await running(store, 1)
    await versions(world, *BEFORE_0_1[:count])
    await store.close()
    before = await contents(world)
    for call in (
        store.open(),
        store.open(migrate=True),
        store.open(looking=True),
        store.admin.migrate(),
        store.admin.schema(),
    ):
        with pytest.raises(SchemaMismatchError, match=r"before 0\.1\.0.*commit ea80f7d.*create a new store"):
            await call
    assert any("before 0.1.0" in finding for finding in await store.admin.check())
    assert await contents(world) == before
    await versions(world, *names(world))  # a database is used by many tests
    await store.open()
