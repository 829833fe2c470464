"""Migrations: numbered SQL files per dialect, applied by each store under a lock of its own.

``sqlite/0001_initial.sql`` and so on, without gaps. Expand first, contract in a later release: a migration
must not break the version that is running. A file is never changed once it was released, and there is no way
down.
"""

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal

from makegood.errors import SchemaMismatchError, StoreError

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
    found: list[Migration] = []
    for file in files(__name__).joinpath(dialect).iterdir():
        if match := _NAME.fullmatch(file.name):
            name = file.name.removesuffix(".sql")
            found.append(Migration(int(match[1]), name, file.read_text(encoding="utf-8")))
    found.sort(key=lambda migration: migration.version)
    numbers = [migration.version for migration in found]
    if not found or numbers != list(range(1, len(found) + 1)):
        raise StoreError(
            f"the migrations of {dialect} in this installation are {numbers}: they must run from 1 without gaps; "
            "install makegood again"
        )
    return found


@cache
def needed(dialect: Dialect) -> int:
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
    for each in plan(dialect, version):
        stamped = stamp.replace(":version", str(each.version)).replace(":name", each.name)
        parts.append("\n".join((f"-- {each.name}", BEGIN[dialect], each.sql.strip(), stamped, "commit;")))
    return "\n\n".join(parts) + ("\n" if parts else "")


def known(version: int | None, where: str, tables: str) -> int:
    """Return the version that a store's table of versions gives; None: the table is there and has no row.

    ``tables``: how makegood's tables are called there. Raises ``SchemaMismatchError`` for None: what the
    store holds cannot be told, and a migration on top of it would fail.
    """
    if version is None:
        raise SchemaMismatchError(
            f"{where}: its table of schema versions has no row, so nobody knows what the store holds: restore a "
            f"backup, or, if nothing in it is wanted, drop {tables} and run `makegood store migrate`"
        )
    return version


def findings(dialect: Dialect, version: int, where: str) -> list[str]:
    """Return what ``makegood store check`` says of a store's version; nothing if it is the needed one."""
    if version == needed(dialect):
        return []
    wants = f"this makegood works with {needed(dialect)}: see `makegood store migrate`"
    return [f"{where}: schema version {version}, {wants}"]


def verify(dialect: Dialect, version: int, where: str) -> None:
    """Refuse a store whose schema this code does not understand.

    ``version`` is the store's (0: empty), ``where`` names it in the message. Raises ``SchemaMismatchError``.
    """
    wanted = needed(dialect)
    if version == wanted:
        return
    if version > wanted:
        raise SchemaMismatchError(
            f"{where} has schema version {version}, this makegood understands up to {wanted}: install the newer "
            "makegood here as well; there is no way down"
        )
    state = (
        "holds no tables of makegood"
        if version == 0
        else f"has schema version {version}, this makegood needs {wanted}"
    )
    raise SchemaMismatchError(f"{where} {state}: run `makegood store migrate` once")
