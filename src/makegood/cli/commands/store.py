"""``makegood store migrate | status | check | prune | grants``."""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import click
from msgspec import structs

from makegood.base.counts import quantity
from makegood.base.durations import seconds
from makegood.cli import exits
from makegood.cli.client import looking
from makegood.cli.context import Cli, command, flag
from makegood.cli.settings import duration
from makegood.client.client import Client
from makegood.errors import ConfigError, StoreError
from makegood.store import Store, open_store
from makegood.store.grants import ROLES, resolve_roles
from makegood.store.grants import script as grants_of
from makegood.store.migrations import Dialect, script, verify
from makegood.store.views import SchemaStatus

T = TypeVar("T")


def with_store(cli: Cli, work: Callable[[Store], Awaitable[T]]) -> T:
    """Run ``work`` on the store without asking for its schema first."""

    async def go() -> T:
        store = open_store(cli.settings.store)
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(go())


async def set_up(cli: Cli, store: Store, *, empty: bool = False) -> list[str]:
    """Migrate a store and return what was applied; ``empty``: only an empty one.

    Warns when others keep tables in it.
    """
    schema = await store.admin.schema()
    if empty and schema.version > 0:
        return []
    if schema.version == 0 and schema.others:
        cli.note(
            f"makegood: {cli.store} holds other tables ({join_names(schema.others)}); makegood's are put beside "
            "them, their names begin with makegood_"
        )
    return await store.admin.migrate()


def join_names(names: Sequence[str]) -> str:
    """Return names in a row, the first five of many."""
    ending = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + ending


@command()
@flag("--plan", text="Only list what would be applied.")
@flag("--sql", text="Only print the SQL that would be applied.")
def migrate(cli: Cli, /, *, plan: bool, sql: bool) -> None:
    """Bring the store's schema up to date; an empty store is set up."""
    if plan and sql:
        raise click.UsageError("--plan or --sql, not both")
    if not plan and not sql:
        migrations = with_store(cli, lambda store: set_up(cli, store))
        text = (
            f"applied {', '.join(migrations)}" if migrations else "nothing to apply: the schema is up to date"
        )
        cli.out.result({"store": cli.store, "applied": migrations}, text)
        return
    schema = with_store(cli, lambda store: store.admin.schema())
    dialect: Dialect = "sqlite" if schema.dialect == "sqlite" else "postgres"
    if schema.version > schema.needed:  # Nothing is missing there, and yet it is not up to date.
        verify(dialect, schema.version, cli.store)
    text = script(dialect, schema.version) if sql else ""
    if sql and not cli.json:
        sys.stdout.write(text)
        return
    shape = {"store": cli.store, **structs.asdict(schema), **({"sql": text} if sql else {})}
    cli.out.result(shape, *schema.missing)
    if not schema.missing and not cli.json:
        cli.note("nothing to apply: the schema is up to date")


@command()
def status(cli: Cli) -> int:
    """Show schema version, missing migrations and row counts; exit 9 when the schema is older or newer than
    needed.
    """
    schema = with_store(cli, lambda store: store.admin.schema())
    if cli.json:
        cli.out.document({"store": cli.store, **structs.asdict(schema)})
    else:
        _show(cli, schema)
    return exits.DONE if schema.version == schema.needed else exits.MIGRATION_NEEDED


def _show(cli: Cli, schema: SchemaStatus) -> None:
    """Print a store's address and the state of its schema."""
    cli.out.text(f"store    {cli.store}")
    state = "up to date" if not schema.missing else f"needs {schema.needed}: run `makegood store migrate`"
    if schema.version > schema.needed:
        state = f"newer than this makegood, which knows version {schema.needed}: install the newer makegood here as well"
    cli.out.text(f"schema   {schema.dialect} version {schema.version}, {state}")
    if schema.missing:
        cli.out.text(f"missing  {', '.join(schema.missing)}")
    if schema.others:
        cli.out.text(f"others   {join_names(schema.others)}: not makegood's, left alone")
    if schema.rows:
        cli.out.text()
        cli.out.table(("table", "rows"), sorted(schema.rows.items()), empty="")


_BROKEN = 100


@command()
def check(cli: Cli) -> int:
    """Verify integrity and durability settings, and read every unfinished row; exit 1 when something is
    found, 9 when a migration is missing.
    """

    async def look(store: Store) -> list[str]:
        await store.open(looking=True)
        findings = await store.admin.check()
        try:
            return findings + await store.admin.broken_rows(_BROKEN)
        except StoreError:
            if not findings:  # which say why nothing can be read
                raise
            return findings

    findings = with_store(cli, look)
    lines = findings or ["nothing found: the store is intact"]
    cli.out.result({"store": cli.store, "findings": findings}, *lines)
    return exits.FAILED if findings else exits.DONE


@command()
@click.option(
    "--role", "roles", multiple=True, type=click.Choice(ROLES), help="Only this kind of role. [default: all]"
)
@click.option(
    "--agent", "agents", multiple=True, metavar="APP/AGENT", help="An agent that gets a role of its own."
)
@click.option(
    "--prefix",
    metavar="PREFIX",
    default="makegood_",
    show_default=True,
    help="The beginning of the roles' names.",
)
def grants(cli: Cli, /, *, roles: tuple[str, ...], agents: tuple[str, ...], prefix: str) -> None:
    """Print the SQL that gives each kind of process a role of its own in PostgreSQL, with no more rights than
    it needs.

    Nothing is applied: pipe it to psql, as a superuser, and again after each migration. --role and --agent
    can be repeated.
    """
    if not cli.settings.store.startswith(("postgresql:", "postgres:")):
        raise ConfigError(
            f"{cli.store} has no roles: on SQLite the rights on the file and its folder are the roles, and all processes "
            "that may write the file may do everything in it. Give both to one user (chmod 600, 700), or name a "
            "PostgreSQL store: --store postgresql://..."
        )
    sql = grants_of(prefix, roles, agents)
    if cli.json:
        role_grants = [
            {"role": name, "kind": kind, "agent": agent or None}
            for name, kind, agent in resolve_roles(prefix, roles, agents)
        ]
        cli.out.document({"store": cli.store, "roles": role_grants, "sql": sql})
        return
    sys.stdout.write(sql)
    if not agents and not roles:
        cli.note("no agent was named: give each that runs in a process of its own with --agent APP/AGENT")


_PAGE = 500
_SAY = 2.0  # seconds between two lines of progress


@command()
@click.option(
    "--older",
    metavar="DURATION",
    default="30d",
    show_default=True,
    help="Only tasks that ended longer ago than this.",
)
@flag("--dry-run", text="Only count what would be removed.")
def prune(cli: Cli, /, *, older: str, dry_run: bool) -> None:
    """Remove tasks that are processed or undone, with everything recorded about them.

    Never removed: tasks in error, and tasks with an undecided operator command or an open or undelivered
    alert.
    """
    least = seconds(duration(older, "--older"), name="--older")

    async def sweep() -> tuple[int, int]:
        removals = survivors = after = 0
        async with looking(cli) if dry_run else Client(cli.settings.store) as client:
            last_note = time.monotonic()
            while True:
                page = await client.store.admin.prune(least, after, _PAGE, dry=dry_run)
                removals, survivors = removals + page.removals, survivors + page.survivors
                if page.next is None:
                    return removals, survivors
                after = page.next
                if time.monotonic() - last_note > _SAY:
                    last_note = time.monotonic()
                    cli.note(f"{removals:,} so far")

    removals, survivors = asyncio.run(sweep())
    verb = "would be removed" if dry_run else "removed"
    cli.out.result(
        {"store": cli.store, "removed": removals, "kept": survivors, "dry_run": dry_run},
        f"{quantity(removals, 'task')} {verb}"
        + (f", {survivors:,} kept: not settled yet" if survivors else ""),
    )
