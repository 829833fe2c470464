"""Migrations: numbered SQL files per dialect, applied by each store under a lock of its own.

``sqlite/0001_tables.sql`` and so on, without gaps. Expand first, contract in a later release: a migration
must not break the version that is running. A file is never changed once it was released, and there is no way
down.
"""

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal

from makegood.errors import SchemaMismatchError, StoreError

log = logging.getLogger("makegood.store")

Dialect = Literal["sqlite", "postgres"]

STAMPS: dict[Dialect, str] = {
    "sqlite": "insert into makegood_schema_version (version, name, applied_at)"
    " values (:version, ':name', (julianday('now') - 2440587.5) * 86400);",
    "postgres": "insert into makegood.schema_version (version, name, applied_at)"
    " values (:version, ':name', extract(epoch from clock_timestamp()));",
}
"""What ``--sql`` prints behind each migration; a runner writes the same row with parameters."""

BEGIN: dict[Dialect, str] = {
    "sqlite": "begin;",
    "postgres": "begin;\nset local search_path = pg_catalog, pg_temp;",
}
"""What ``--sql`` prints before each migration: on PostgreSQL nothing in another schema may be taken for the
server's own.
"""

_NAME = re.compile(r"(\d{4})_[a-z0-9_]+\.sql")


@dataclass(frozen=True, slots=True)
class Migration:
    """One file: its number, its name without ".sql", and its text."""

    version: int
    name: str
    sql: str


def migrations(dialect: Dialect) -> list[Migration]:
    """Return all migrations of a dialect in order; raises ``StoreError`` when the installation lacks one."""
    result: list[Migration] = []
    for file in files(__name__).joinpath(dialect).iterdir():
        if match := _NAME.fullmatch(file.name):
            name = file.name.removesuffix(".sql")
            result.append(Migration(int(match[1]), name, file.read_text(encoding="utf-8")))
    result.sort(key=lambda migration: migration.version)
    numbers = [migration.version for migration in result]
    if not result or numbers != list(range(1, len(result) + 1)):
        raise StoreError(
            f"the migrations of {dialect} in this installation are {numbers}: they must run from 1 without gaps; "
            "install makegood again"
        )
    return result


@cache
def latest_version(dialect: Dialect) -> int:
    """Return the schema version that this code works with; an installation does not change under a running
    process.
    """
    return migrations(dialect)[-1].version


def plan(dialect: Dialect, version: int) -> list[Migration]:
    """Return the migrations that a store at ``version`` (0: empty) lacks, for ``makegood store migrate
    --plan``.
    """
    return [migration for migration in migrations(dialect) if migration.version > version]


def script(dialect: Dialect, version: int = 0) -> str:
    """Return the text of the migrations that a store at ``version`` lacks, for ``makegood store migrate
    --sql``.

    Each ends with the row of ``schema_version`` that the runner would write, so that an operator may apply it
    by hand.
    """
    stamp = STAMPS[dialect]
    parts: list[str] = []
    for migration in plan(dialect, version):
        stamp_sql = stamp.replace(":version", str(migration.version)).replace(":name", migration.name)
        parts.append(
            "\n".join((f"-- {migration.name}", BEGIN[dialect], migration.sql.strip(), stamp_sql, "commit;"))
        )
    return "\n\n".join(parts) + ("\n" if parts else "")


def report(steps: Sequence[Migration], version: int, place: str) -> None:
    """Log which place a process has just created tables in, or changed them.

    ``steps``: the migrations. ``version``: the store's before them (0: it was empty).
    """
    if steps:
        verb = "created makegood's tables in" if version == 0 else "changed makegood's tables in"
        log.info("%s %s: %s", verb, place, ", ".join(migration.name for migration in steps))


def schema_version(dialect: Dialect, versions: Sequence[tuple[int, str]], place: str, tables: str) -> int:
    """Return the version of a store that has makegood's tables.

    ``versions``: its table of versions, as (version, name). ``place`` names the store, ``tables`` its tables
    in messages. Raises ``SchemaMismatchError`` if there is no row, and for a store from before 0.1.0, whose
    numbers mean other tables: no migration leads from there.
    """
    names = dict(versions)
    if not names:
        raise SchemaMismatchError(
            f"{place}: its table of schema versions has no row, so nobody knows what the store holds: restore a "
            f"backup, or, if nothing in it is wanted, drop {tables} and run `makegood store migrate`"
        )
    first = migrations(dialect)[0]
    if names.get(first.version) != first.name:
        raise SchemaMismatchError(f"{place} {BEFORE_0_1}")
    return max(names)


BEFORE_0_1 = (
    "was made by a makegood from before 0.1.0, and no migration leads from there: let its tasks end, with "
    "makegood at commit ea80f7d; then create a new store, in another file or database, with `makegood store migrate`"
)
"""What is wrong with a store from before 0.1.0, and what to do."""


def findings(dialect: Dialect, version: int, place: str) -> list[str]:
    """Return what ``makegood store check`` says of a store's version; nothing if it is the needed one."""
    if version == latest_version(dialect):
        return []
    wants = f"this makegood works with {latest_version(dialect)}: see `makegood store migrate`"
    return [f"{place}: schema version {version}, {wants}"]


def verify(dialect: Dialect, version: int, place: str) -> None:
    """Refuse a store whose schema this code does not understand.

    ``version`` is the store's (0: empty), ``place`` names it in the message. Raises ``SchemaMismatchError``.
    """
    target = latest_version(dialect)
    if version == target:
        return
    if version > target:
        raise SchemaMismatchError(
            f"{place} has schema version {version}, this makegood understands up to {target}: install the newer "
            "makegood here as well; there is no way down"
        )
    state = (
        "holds no tables of makegood"
        if version == 0
        else f"has schema version {version}, this makegood needs {target}"
    )
    raise SchemaMismatchError(f"{place} {state}: run `makegood store migrate` once")
