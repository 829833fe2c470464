"""The checks of ``makegood doctor`` on PostgreSQL: settings, standbys, connections, unreadable tasks."""

from collections.abc import Sequence

from makegood.base.counts import quantity
from makegood.base.postgres_target import PostgresTarget
from makegood.store.postgres.connection import Connection
from makegood.store.postgres.load import COLUMNS, read
from makegood.store.postgres.transaction import WriteTransaction
from makegood.store.rows import Interner
from makegood.store.soundness import unknown_state
from makegood.store.task_rows import Raw
from makegood.store.views import Finding

_MIN_FREE = 10
"""Connections that should be free."""
_LONG = 600.0
"""Seconds after which a transaction is old."""

_SETTINGS = """
select name, setting from pg_settings
where name in ('fsync', 'full_page_writes', 'synchronous_standby_names', 'max_connections') or name = any ($1::text[])
"""
_SUPERUSERS = {
    "session_replication_role": ("origin", "triggers and foreign keys do not work"),
    "temp_file_limit": ("-1", "a large batch may need temporary files, and fails"),
    "track_activities": ("on", "makegood cannot end a session of its own that hangs"),
    "zero_damaged_pages": ("off", "damaged rows are deleted without a word"),
    "ignore_checksum_failure": ("off", "damaged rows are taken for sound ones"),
}
"""Each with its usual value, and what another one does."""
# The server's default for sessions; makegood's own sessions override the setting.
_COMMIT = "select reset_val from pg_settings where name = 'synchronous_commit'"
_TLS = "select ssl from pg_stat_ssl where pid = pg_backend_pid()"
_USED = "select count(*) from pg_stat_activity where backend_type = 'client backend'"
_STANDBYS = """
select count(*) as all, count(*) filter (where sync_state in ('sync', 'quorum')) as firm from pg_stat_replication
where state = 'streaming'
"""
_OLDEST = """
select extract(epoch from clock_timestamp() - min(xact_start))::float8 from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'
"""


def judge_durability(settings: dict[str, str], commit: str) -> list[Finding]:
    """Judge the settings that durability needs; ``commit``: synchronous_commit of a default session."""
    findings = [
        Finding(
            "durability",
            "error",
            f"{name} is {settings[name]}: a crash of the machine loses what was acknowledged, or damages the database",
            f"set {name} = on and reload the server",
        )
        for name in ("fsync", "full_page_writes")
        if settings.get(name, "on") != "on"
    ]
    if commit == "off":
        text = "synchronous_commit is off by default; makegood's own sessions and its submissions in yours switch it on"
        findings.append(
            Finding(
                "durability", "note", text, "check what your own tables need, or set synchronous_commit = on"
            )
        )
    return findings or [
        Finding("durability", "ok", f"fsync and full_page_writes on, synchronous_commit {commit}")
    ]


def judge_standbys(names: str, standbys: int, firm: int) -> Finding:
    """Judge the standbys.

    ``names``: synchronous_standby_names. ``standbys``: how many follow. ``firm``: how many of
    them commits wait for.
    """
    if names and not firm:
        text = f"commits wait for a synchronous standby ({names}), and none follows"
        return Finding("standby", "error", text, "start the standby, or change synchronous_standby_names")
    if standbys and not firm:
        text = f"{quantity(standbys, 'asynchronous standby')}: what was acknowledged within their lag is lost when one is promoted"
        return Finding("standby", "note", text, "set synchronous_standby_names if that must not happen")
    if not standbys:
        return Finding(
            "standby",
            "note",
            "no standby follows (or the server does not show it): if the disk is lost, so is the store",
            "keep backups",
        )
    return Finding("standby", "ok", f"{quantity(standbys, 'standby')}, commits wait for {firm}")


def judge_free_connections(count: int, most: int) -> Finding:
    """Judge how many connections are free.

    A process of makegood takes five, and one more for each inbox function at work.
    """
    text = f"{count} of {most} connections in use"
    if most - count >= _MIN_FREE:
        return Finding("room", "ok", text)
    return Finding(
        "room",
        "warning",
        text,
        "raise max_connections, or stop programs that keep connections which they do not need",
    )


def judge_oldest_transaction(seconds: float | None) -> Finding:
    """Judge the age of the oldest transaction in the database, in seconds; None: there is none."""
    if seconds is None or seconds < _LONG:
        return Finding("transactions", "ok", "none is older than 10 minutes")
    text = f"a transaction has been open for {seconds / 60:,.0f} minutes: old rows cannot be cleared, and everything becomes slower"
    return Finding("transactions", "warning", text, "find it in pg_stat_activity and end it")


def judge_encryption(hosts: Sequence[str], *, tls: bool, verifies: bool) -> Finding:
    """Judge the connection to the server; ``hosts``: those of the URL that are not this machine."""
    if not hosts:
        return Finding("tls", "ok", "the server is on this machine")
    remedy = "add ?sslmode=verify-full to the URL, with the authority's certificate as sslrootcert= or in ~/.postgresql/root.crt; `require_tls = true` refuses everything else"
    if not tls:
        text = f"the connection to {', '.join(hosts)} is not encrypted: password and payloads can be read and changed on it"
        return Finding("tls", "warning", text, remedy)
    if not verifies:
        text = f"the certificate of {', '.join(hosts)} is not verified: any machine on the network path can impersonate the server"
        return Finding("tls", "warning", text, remedy)
    return Finding("tls", "ok", "the connection to the server is encrypted, and its certificate is verified")


def judge_superuser_settings(settings: dict[str, str]) -> Finding:
    """Judge the settings that only a superuser may change, so that makegood's sessions cannot."""
    unusual = [
        (name, value, harm)
        for name, (default, harm) in _SUPERUSERS.items()
        if (value := settings.get(name, default)) != default
    ]
    if not unusual:
        return Finding("settings", "ok", "no setting of the server disturbs makegood's sessions")
    text = "; ".join(f"{name} is {value}: {harm}" for name, value, harm in unusual)
    reset = " and ".join(name for name, _, _ in unusual)
    return Finding(
        "settings", "warning", text, f"reset {reset} for this role and database (`alter role ... reset`)"
    )


async def examine(connection: Connection, target: PostgresTarget) -> list[Finding]:
    """Examine the server."""
    settings = {row["name"]: row["setting"] for row in await connection.fetch(_SETTINGS, list(_SUPERUSERS))}
    standbys = await connection.fetchrow(_STANDBYS)
    assert standbys is not None
    return [
        judge_encryption(
            target.remote_hosts, tls=bool(await connection.fetchval(_TLS)), verifies=target.verifies_server
        ),
        *judge_durability(settings, await connection.fetchval(_COMMIT)),
        judge_standbys(settings["synchronous_standby_names"], standbys["all"], standbys["firm"]),
        judge_free_connections(await connection.fetchval(_USED), int(settings["max_connections"])),
        judge_oldest_transaction(await connection.fetchval(_OLDEST)),
        judge_superuser_settings(settings),
    ]


async def nothing(tx: WriteTransaction) -> None:
    """Write only the writer's number, which every commit writes."""
    await tx.mark()


UNFINISHED = f"""
select {COLUMNS} from makegood.task t where t.id > $1 and t.state not in ('processed', 'undone') order by t.id limit $2
"""  # noqa: S608 - our own columns


async def unreadable_tasks(
    connection: Connection, plans: Interner, after: int, limit: int
) -> tuple[int | None, list[tuple[int, str]]]:
    """Read unfinished tasks as a Scheduler does; see ``soundness.Read``."""
    rows = await connection.fetch(UNFINISHED, after, limit)
    faults = [(row["id"], reason) for row in rows if (reason := unknown_state(row["state"])) is not None]
    if rows:
        raw_tasks = [Raw(row, row["epoch"], row["complete_by"] is not None) for row in rows]
        faults += (await read(connection, plans, raw_tasks)).unreadable
    return rows[-1]["id"] if len(rows) == limit else None, faults
