"""The store's upkeep: its clock and identity, its nodes, and its schema."""

import sqlite3
from pathlib import Path

from makegood.base.clock import Clock
from makegood.base.sqlite_readonly import Glance, journal_mode
from makegood.errors import SchemaMismatchError
from makegood.store import migrations
from makegood.store.records import Identity
from makegood.store.sqlite.connection import is_busy
from makegood.store.sqlite.row_numbers import find_exhausted, remedy, trouble
from makegood.store.sqlite.transaction import WriteTransaction
from makegood.store.views import SchemaStatus

_SHIFT = "select shift from makegood_clock where boot_id = ?"
_SEEN = """
select max(
    coalesce((select max(seen) from makegood_clock), 0),
    coalesce((select at from makegood_event order by seq desc limit 1), 0),
    coalesce((select created_at from makegood_task order by id desc limit 1), 0)
)
"""
_NEW_BOOT = "insert into makegood_clock (boot_id, shift, seen) values (?, ?, ?)"
_OLD_BOOTS = "delete from makegood_clock where boot_id <> ?"
_OLD_WRITERS = "delete from makegood_writer"
_SEEN_NOW = "update makegood_clock set seen = max(seen, ?)"

_TABLES = "select name from sqlite_master where type = 'table' and name like 'makegood\\_%' escape '\\' order by name"
_OTHERS = """
select name from sqlite_master
where type = 'table' and name not like 'makegood\\_%' escape '\\' and name not like 'sqlite\\_%' escape '\\' order by name
"""
_VERSIONS = "select version, name from makegood_schema_version"
_STATISTICS = "select name from sqlite_master where name in ('sqlite_stat1', 'sqlite_stat4')"
_APPLIED = "insert into makegood_schema_version (version, name, applied_at) values (?, ?, ?)"


def agree_on_clock(connection: sqlite3.Connection, clock: Clock, *, looking: bool) -> float:
    """Return the seconds to add to this boot's monotonic clock.

    The first process of a boot decides the value, and writes it unless it is only ``looking``. Later
    processes wait for no lock. Unless ``looking``, raises SQLite's error if the file may not be written.
    """
    if not looking:
        _may_write(connection)
    shift, start = _clock(connection, clock)
    if looking or start is None:
        return shift
    connection.execute("begin immediate")
    shift, start = _clock(connection, clock)
    if start is not None:
        boot = clock.boot_id()
        connection.execute(_OLD_BOOTS, (boot,))
        connection.execute(_OLD_WRITERS)
        connection.execute(_NEW_BOOT, (boot, shift, start))
    connection.execute("commit")
    return shift


def _may_write(connection: sqlite3.Connection) -> None:
    """Raise SQLite's error for a file that may not be written.

    A lock held by another writer is not such an error.
    """
    (wait,) = connection.execute("pragma busy_timeout").fetchone()
    connection.execute("pragma busy_timeout = 0")
    try:
        connection.execute("begin immediate")
        connection.execute("rollback")
    except sqlite3.OperationalError as failure:
        if not is_busy(failure):
            raise
    finally:
        connection.execute(f"pragma busy_timeout = {wait}")


def _clock(connection: sqlite3.Connection, clock: Clock) -> tuple[float, float | None]:
    """Return the shift; and the present time if this boot's shift is not written yet, else None.

    The time never goes back: after a boot with a wrong wall clock, it continues from the last moment seen.
    """
    shifts = connection.execute(_SHIFT, (clock.boot_id(),)).fetchall()
    if shifts:
        return float(shifts[0][0]), None
    (last_time,) = connection.execute(_SEEN).fetchone()
    start: float = max(clock.wall(), last_time)
    return start - clock.monotonic(), start


def pass_by(tx: WriteTransaction) -> None:
    """Record that the clock has passed this moment.

    After a boot with a wrong wall clock, it continues from here.
    """
    tx.run(_SEEN_NOW, (tx.now,))


def identity(connection: sqlite3.Connection) -> Identity:
    """Return the store's id and generation."""
    return Identity(*connection.execute("select store_id, generation from makegood_generation").fetchone())


def version(connection: sqlite3.Connection, where: str = "the store") -> int:
    """Return the schema version of a file, 0 if it has no makegood tables; ``where`` names the file in
    messages.

    Raises ``SchemaMismatchError`` for a store that no migration can bring up to date.
    """
    tables = {name for (name,) in connection.execute(_TABLES)}
    if "makegood_schema_version" not in tables:
        return 0
    versions = connection.execute(_VERSIONS).fetchall()
    return migrations.schema_version("sqlite", versions, where, "the tables whose names begin with makegood_")


def schema(connection: sqlite3.Connection, where: str) -> SchemaStatus:
    """Return the status of a file's schema, and its row counts by table (names without the prefix)."""
    schema_version = version(connection, where)
    counts = {}
    for (table,) in connection.execute(_TABLES).fetchall():
        sql = f"select count(*) from {table}"  # noqa: S608 - the names of our own tables
        counts[table.removeprefix("makegood_")] = connection.execute(sql).fetchone()[0]
    missing = [migration.name for migration in migrations.plan("sqlite", schema_version)]
    names = [name for (name,) in connection.execute(_OTHERS)]
    return SchemaStatus("sqlite", schema_version, migrations.latest_version("sqlite"), missing, counts, names)


def migrate(connection: sqlite3.Connection, path: Path, clock: Clock) -> list[str]:
    """Apply missing migrations in one transaction, while nobody else can write. Returns their names."""
    connection.execute("begin immediate")
    try:
        schema_version = version(connection, str(path))
        if schema_version > migrations.latest_version("sqlite"):
            migrations.verify("sqlite", schema_version, str(path))
        missing_migrations = migrations.plan("sqlite", schema_version)
        for migration in missing_migrations:
            for statement in _statements(migration.sql):
                connection.execute(statement)
            connection.execute(_APPLIED, (migration.version, migration.name, clock.wall()))
        connection.execute("commit")
    except BaseException:
        if connection.in_transaction:
            connection.execute("rollback")
        raise
    migrations.report(missing_migrations, schema_version, str(path.absolute()))
    return [migration.name for migration in missing_migrations]


def forget_statistics(connection: sqlite3.Connection) -> None:
    """Delete what ANALYZE or PRAGMA optimize has recorded of makegood's tables.

    Somebody may have run it while they were almost empty. From then on SQLite would scan them, however large
    they grow. Without statistics it goes by the indexes.
    """
    for (table,) in connection.execute(_STATISTICS).fetchall():
        ours = f"from {table} where tbl glob 'makegood_*'"
        if connection.execute(f"select 1 {ours} limit 1").fetchone() is not None:
            connection.execute(f"delete {ours}")


def _statements(sql: str) -> list[str]:
    """Split a script into statements. The driver's own way of running scripts would commit first."""
    statements: list[str] = []
    pending = ""
    for piece in sql.split(";")[:-1]:
        pending += piece + ";"
        if sqlite3.complete_statement(pending):  # false if the semicolon is part of a comment or a text
            statements.append(pending)
            pending = ""
    return statements


def check(connection: sqlite3.Connection, path: Path, glance: Glance | None) -> list[str]:
    """Verify the file and the settings that durability needs. Returns findings.

    ``glance``: how the connection was opened.
    """
    findings = [
        f"{path}: {text}; stop all processes and restore a backup"
        for (text,) in connection.execute("pragma quick_check(20)")
        if text != "ok"
    ]
    if not findings:
        findings = [f"{path}: {trouble(table)}; {remedy(table)}" for table in find_exhausted(connection)]
    mode = journal_mode(connection, glance)
    if mode != "wal":
        findings.append(f"{path}: journal_mode is {mode}, it must be wal: `pragma journal_mode = wal`")
    try:
        schema_version = version(connection, str(path))
    except SchemaMismatchError as untold:
        return [*findings, str(untold)]
    return findings + migrations.findings("sqlite", schema_version, str(path))
