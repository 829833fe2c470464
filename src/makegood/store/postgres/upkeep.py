"""Nodes, figures, and the schema."""

from asyncpg import exceptions as pg

from makegood.base.counts import quantity
from makegood.errors import ConfigError, SchemaMismatchError
from makegood.store import migrations
from makegood.store.postgres.connection import Connection
from makegood.store.views import SchemaStatus

_MIGRATION_LOCK = 0x6D616B65676F6F64

NOW = "select extract(epoch from clock_timestamp())::float8"
_TABLES = """
select c.relname, quote_ident(c.relname) from pg_class c join pg_namespace n on n.oid = c.relnamespace
where n.nspname = 'makegood' and c.relkind in ('r', 'p') order by c.relname
"""
_VERSIONS = "select version, name from makegood.schema_version"
_APPLIED = """
insert into makegood.schema_version (version, name, applied_at)
values ($1, $2, extract(epoch from clock_timestamp())::float8)
"""
_SETTINGS = "select name, setting from pg_settings where name = any ($1::text[])"
_BROKEN = """
select c.relname from pg_index i join pg_class c on c.oid = i.indexrelid join pg_namespace n on n.oid = c.relnamespace
where n.nspname = 'makegood' and not (i.indisvalid and i.indisready)
"""
_MISSED = """
select count(*) from makegood.task t
where t.state in ('processing', 'undoing') and t.locked_by is null
    and not exists (select 1 from makegood.request r where r.task = t.id)
"""


async def version(connection: Connection, where: str) -> int:
    """Return the schema version of a database, 0 when makegood has no tables in it.

    ``where``: the database's name for messages. Raises ``SchemaMismatchError`` for a store that no migration
    can bring up to date.
    """
    if await connection.fetchval("select to_regclass('makegood.schema_version')") is None:
        return 0
    versions = [(number, name) for number, name in await connection.fetch(_VERSIONS)]
    return migrations.schema_version("postgres", versions, where, "the schema makegood")


async def schema(connection: Connection, where: str) -> SchemaStatus:
    """Return the state of a database's schema, and its rows per table."""
    schema_version = await version(connection, where)
    counts: dict[str, int] = {}
    for table, quoted_table in await connection.fetch(_TABLES):
        counts[table] = await connection.fetchval(f"select count(*) from makegood.{quoted_table}")  # noqa: S608 - quoted by the server
    missing = [migration.name for migration in migrations.plan("postgres", schema_version)]
    return SchemaStatus("postgres", schema_version, migrations.latest_version("postgres"), missing, counts)


async def migrate(connection: Connection, where: str) -> list[str]:
    """Apply missing migrations under a lock, all in one transaction; return their names."""
    async with connection.transaction():
        await connection.execute("set local lock_timeout = '60s'")
        await connection.fetch("select pg_advisory_xact_lock($1)", _MIGRATION_LOCK)
        schema_version = await version(connection, where)
        if schema_version > migrations.latest_version("postgres"):
            migrations.verify("postgres", schema_version, where)
        missing_migrations = migrations.plan("postgres", schema_version)
        for migration in missing_migrations:
            try:
                await connection.execute(migration.sql)
            except pg.InsufficientPrivilegeError as denial:
                raise ConfigError(
                    f"{where}: {denial}; migrating needs the right to create in this database: "
                    "`grant create on database ... to ...`, or apply `makegood store migrate --sql` as its owner"
                ) from denial
            await connection.execute(_APPLIED, migration.version, migration.name)
    migrations.report(missing_migrations, schema_version, f"{where}, schema makegood")
    return [migration.name for migration in missing_migrations]


async def settings(connection: Connection, where: str) -> list[str]:
    """Verify the settings that durability needs; return findings."""
    return [
        f"{where}: {name} is {value}: a crash of the machine loses what was acknowledged, or damages the database; set {name} = on"
        for name, value in await connection.fetch(_SETTINGS, ["fsync", "full_page_writes"])
        if value != "on"
    ]


async def check(connection: Connection, where: str) -> list[str]:
    """Verify settings and schema, and find tasks that nothing will advance; return findings."""
    findings = await settings(connection, where)
    try:
        schema_version = await version(connection, where)
    except SchemaMismatchError as untold:
        return [*findings, str(untold)]
    findings += migrations.findings("postgres", schema_version, where)
    if not schema_version:
        return findings
    findings += [
        f"{where}: the index makegood.{name} is not valid: `reindex index makegood.{name}`"
        for (name,) in await connection.fetch(_BROKEN)
    ]
    orphans: int = await connection.fetchval(_MISSED)
    if orphans:
        findings.append(
            f"{where}: {quantity(orphans, 'task')} under way without a scheduler and without a request; see `makegood doctor`"
        )
    return findings
