"""Nodes, figures, and the schema."""

import secrets
from typing import Any

import msgspec
from asyncpg import exceptions as pg

from makegood.base.counts import counted
from makegood.base.postgres_errors import POOLING
from makegood.errors import ConfigError, SchemaMismatchError
from makegood.store import migrations
from makegood.store.postgres.connection import Connection, Dialer
from makegood.store.postgres.transaction import WriteTransaction
from makegood.store.views import NodeInfo, SchemaStatus

_MIGRATION_LOCK = 0x6D616B65676F6F64

NOW = "select extract(epoch from clock_timestamp())::float8"
_REGISTER = """
insert into makegood.node (name, roles, host, pid, started_at, alive_until, dead, info)
select $1, $2, $3, $4, now, now + $5::float8, false, $6 from (select extract(epoch from clock_timestamp())::float8 as now) c
returning id, (select generation from makegood.generation) as generation
"""
_HEARTBEAT = """
update makegood.node set alive_until = extract(epoch from clock_timestamp())::float8 + $2::float8, info = $3
where id = $1 and not dead and stopped_at is null
returning 1
"""
_UNREGISTER = """
update makegood.node set stopped_at = extract(epoch from clock_timestamp())::float8,
    alive_until = extract(epoch from clock_timestamp())::float8
where id = $1 and stopped_at is null
"""
_TABLES = """
select c.relname, quote_ident(c.relname) from pg_class c join pg_namespace n on n.oid = c.relnamespace
where n.nspname = 'makegood' and c.relkind in ('r', 'p') order by c.relname
"""
_VERSION = "select max(version) from makegood.schema_version"
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


async def register(tx: WriteTransaction, info: NodeInfo) -> tuple[int, int]:
    """Insert a node with its first heartbeat; return its number and the generation under
    which it was registered.
    """
    roles = f" {' '.join(info.roles)} "
    row = await tx.row(_REGISTER, info.name, roles, info.host, info.pid, info.ttl, msgspec.json.encode(info))
    assert row is not None
    return row["id"], row["generation"]


async def heartbeat(connection: Connection, node: int, info: NodeInfo) -> bool:
    """Extend a node's life; False if it was declared dead or has stopped."""
    return await connection.fetchrow(_HEARTBEAT, node, info.ttl, msgspec.json.encode(info)) is not None


async def unregister(connection: Connection, node: int) -> None:
    """Mark a node as stopped cleanly."""
    await connection.execute(_UNREGISTER, node)


async def version(connection: Connection, where: str) -> int:
    """Return the schema version of a database, 0 when makegood has no tables in it.

    ``where``: the database's name for messages.
    """
    if await connection.fetchval("select to_regclass('makegood.schema_version')") is None:
        return 0
    return migrations.known(await connection.fetchval(_VERSION), where, "the schema makegood")


async def schema(connection: Connection, where: str) -> SchemaStatus:
    """Return the state of a database's schema, and its rows per table."""
    stands = await version(connection, where)
    counts: dict[str, int] = {}
    for table, quoted_table in await connection.fetch(_TABLES):
        counts[table] = await connection.fetchval(f"select count(*) from makegood.{quoted_table}")  # noqa: S608 - quoted by the server
    missing = [migration.name for migration in migrations.plan("postgres", stands)]
    return SchemaStatus("postgres", stands, migrations.needed("postgres"), missing, counts)


async def migrate(connection: Connection, where: str) -> list[str]:
    """Apply missing migrations under a lock, all in one transaction; return their names."""
    async with connection.transaction():
        await connection.execute("set local lock_timeout = '60s'")
        await connection.fetch("select pg_advisory_xact_lock($1)", _MIGRATION_LOCK)
        stands = await version(connection, where)
        if stands > migrations.needed("postgres"):
            migrations.verify("postgres", stands, where)
        applied = migrations.plan("postgres", stands)
        for migration in applied:
            try:
                await connection.execute(migration.sql)
            except pg.InsufficientPrivilegeError as barred:
                raise ConfigError(
                    f"{where}: {barred}; migrating needs the right to create in this database: "
                    "`grant create on database ... to ...`, or apply `makegood store migrate --sql` as its owner"
                ) from barred
            await connection.execute(_APPLIED, migration.version, migration.name)
    return [migration.name for migration in applied]


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
        stands = await version(connection, where)
    except SchemaMismatchError as untold:
        return [*findings, str(untold)]
    findings += migrations.findings("postgres", stands, where)
    if not stands:
        return findings
    findings += [
        f"{where}: the index makegood.{name} is not valid: `reindex index makegood.{name}`"
        for (name,) in await connection.fetch(_BROKEN)
    ]
    missed: int = await connection.fetchval(_MISSED)
    if missed:
        findings.append(
            f"{where}: {counted(missed, 'task')} under way without a scheduler and without a request; see `makegood doctor`"
        )
    return findings


async def pooled(dialer: Dialer) -> list[str]:
    """Detect a pooler that shares sessions: one connection must not see what another one sets."""
    first = await dialer.dial()
    try:
        second = await dialer.dial()
    except BaseException:
        await first.close(1.0)
        raise
    try:
        secret = secrets.token_hex(8)
        setting = "select set_config('makegood.session', $1, false)"
        reading = "select current_setting('makegood.session', true)"
        await first.connection.fetchval(setting, secret)
        leaked: Any = await second.connection.fetchval(reading)
        kept: Any = await first.connection.fetchval(reading)
        if leaked == secret or kept != secret:
            return [f"{dialer.address.where}: {POOLING}"]
        return []
    except pg.PostgresError as fault:
        return [f"{dialer.address.where}: {POOLING} ({fault})"] if first.proxied else []
    finally:
        await first.close(1.0)
        await second.close(1.0)
