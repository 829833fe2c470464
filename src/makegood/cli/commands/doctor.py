"""``makegood doctor``: checks the store, the running processes, and where each setting comes from.

It reads, merges the log of a SQLite file, and commits a few empty writes to measure how long that takes; it
changes nothing.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import asdict as fields_of

from makegood.base import zones
from makegood.base.file_paths import file_of
from makegood.base.postgres_target import target_of
from makegood.base.secret_names import COVER
from makegood.base.urls import scheme_of
from makegood.cli import exits, findings
from makegood.cli.broker_checks import broker_findings
from makegood.cli.context import Cli, command, flag
from makegood.cli.render.output import mask
from makegood.cli.render.style import STYLES, Line
from makegood.cli.settings import KNOWN
from makegood.errors import MakegoodError, SchemaMismatchError
from makegood.store import Store, open_store
from makegood.store.grants import NOT_ALLOWED
from makegood.store.views import Finding
from makegood.supervisor.supervisor import LEASE

T = TypeVar("T")

_SLOW_READ = "is the database far away, or its machine busy? Put the processes near it"
_SLOW_COMMIT = "a faster disk, or a nearer standby; many tasks at once share each commit"
_TIMES = 5
_ORPHANS = 100
_BROKEN = 20
_WEIGHTS = ("ok", "note", "warning", "error")
_STYLE = {"ok": STYLES["done"], "note": "blue", "warning": "yellow", "error": STYLES["error"]}
_SECRETS = ("alert_secret", "console_secret", "webhook_secret", "webhook_secrets")
"""Settings that are not shown; of ``brokers`` their URLs are, without passwords."""
_URLS = ("store", "alert_webhook")


@command()
@flag("--strict", text="Exit 1 for warnings as well.")
def doctor(cli: Cli, /, *, strict: bool) -> int:
    """Examine store, clocks, leases, processes and settings; each finding comes with its remedy.

    Exit 0: no error; 1: an error (with --strict: or a warning); 2: --store is not a valid URL, or
    names a database or folder that does not exist; 8: the store cannot be reached; 9: a migration is needed.
    """
    results, code = asyncio.run(examine_store(cli.settings.store))
    results.insert(0, _database(cli))
    if cli.settings.options.brokers:
        results += broker_findings(cli)
    results.append(findings.zone_rules(zones.current(), time.time()))
    worst = max(_WEIGHTS.index(finding.severity) for finding in results)
    if code == exits.DONE and worst >= (2 if strict else 3):
        code = exits.FAILED
    if cli.json:
        shapes, settings = [fields_of(finding) for finding in results], settings_of(cli)
        cli.out.document({"store": cli.store, "findings": shapes, "settings": settings, "code": code})
    else:
        cli.out.text(f"store  {cli.store}")
        cli.out.text()
        cli.out.lines(line for finding in results for line in lines_of(finding))
        cli.out.text()
        rows = [(row["name"], _format_value(row["value"]), row["origin"]) for row in settings_of(cli)]
        cli.out.table(("setting", "value", "from"), rows, empty="")
    return code


def _database(cli: Cli) -> Finding:
    """Return which database the store's URL means, and who said so."""
    url, origin = cli.settings.store, cli.settings.origins.get("store", "the default")
    if scheme_of(url) == "sqlite":
        where, elsewhere = f"the SQLite file {Path(file_of(url)).absolute()}", ""
    else:
        target = target_of(url)
        where, elsewhere = target.where, target.elsewhere("the store's URL")
    return Finding("database", "ok", f"{where}, from {origin}{f'; {elsewhere}' if elsewhere else ''}")


def lines_of(finding: Finding) -> list[Line]:
    """Return a finding as people read it, with the remedy below."""
    lines: list[Line] = [
        ((f"{finding.severity:<7}", _STYLE[finding.severity]), (f"  {finding.check:<12}  {finding.what}", ""))
    ]
    if finding.remedy:
        lines.append(((f"{'':<23}-> {finding.remedy}", ""),))
    return lines


def _format_value(value: object) -> object:
    """Return a setting's value as a person would write it: seconds with their unit."""
    return f"{value:g}s" if isinstance(value, float) else value


def settings_of(cli: Cli) -> list[dict[str, Any]]:
    """Return each setting with its value and where that comes from; secrets are masked."""
    settings = cli.settings
    rows: list[dict[str, Any]] = []
    options = asdict(settings.options)
    for name in KNOWN:
        value = options[name] if name in options else getattr(settings, name)
        if name in _SECRETS and value is not None:
            value = COVER
        if name in _URLS and value is not None:
            value = mask(value)
        if name == "brokers" and value is not None:
            value = {target.name: target.safe_url for target in settings.options._broker_targets.values()}
        if name == "console_users":
            value = {user.name: user.role for user in settings.console_users.values()}
        if isinstance(value, bool):
            value = "on" if value else "off"
        rows.append({"name": name, "value": value, "origin": settings.origins.get(name, "default")})
    return rows


async def examine_store(url: str) -> tuple[list[Finding], int]:
    """Examine the store at ``url``.

    Returns the findings, and the exit code of the error that kept the store from being opened, 0 for none.
    """
    store = open_store(url)
    results: list[Finding] = []
    try:
        results += await store.admin.examine()
        if any(finding.check == "pooling" and finding.severity == "error" for finding in results):
            return results, exits.DONE

        results += await _judge_if_allowed(
            "schema", store.admin.schema(), lambda status: [findings.schema(status)]
        )
        if results[-1].severity == "error":
            return results, exits.MIGRATION_NEEDED
        await store.open()
        results += await _measure(store)
        results += await _running(store)
    except MakegoodError as fault:
        check = "schema" if isinstance(fault, SchemaMismatchError) else "store"
        results.append(Finding(check, "error", str(fault)))  # the sentence says what to do
        return results, exits.code_of(fault)
    finally:
        await store.close()
    return results, exits.DONE


async def _judge_if_allowed(
    check: str, look: Awaitable[T], judge: Callable[[T], Sequence[Finding]]
) -> Sequence[Finding]:
    """Return what ``judge`` makes of what ``look`` finds, or a note that this connection's role may not look.

    The other checks continue.
    """
    try:
        return judge(await look)
    except MakegoodError as fault:
        if NOT_ALLOWED not in str(fault):
            raise
        return [Finding(check, "note", f"not examined, this role may not: {fault}")]


async def _measure(store: Store) -> list[Finding]:
    """Measure the clock's skew (by the quickest of several reads), a read of the store, and a commit."""
    best = (float("inf"), 0.0)
    for _ in range(_TIMES):
        wall, began = time.time(), time.perf_counter()
        store_time = await store.now()
        took = time.perf_counter() - began
        best = min(best, (took, store_time - (wall + took / 2)))
    took, skew = best

    def read(seconds: list[float]) -> list[Finding]:
        return [findings.latency("read", seconds, findings.SLOW_READ, _SLOW_READ)]

    def commit(seconds: list[float]) -> list[Finding]:
        return [findings.latency("commit", seconds, findings.SLOW_COMMIT, _SLOW_COMMIT)]

    return [
        findings.clock(skew, took),
        *await _judge_if_allowed("read", _durations_of(lambda: store.leases.read(LEASE)), read),
        *await _judge_if_allowed("commit", _durations_of(store.admin.touch), commit),
    ]


async def _durations_of(ask: Callable[[], Awaitable[object]]) -> list[float]:
    """Return how many seconds each of several runs took.

    The first run, which opens a connection, does not count.
    """
    await ask()
    durations = []
    for _ in range(_TIMES):
        began = time.perf_counter()
        await ask()
        durations.append(time.perf_counter() - began)
    return durations


async def _running(store: Store) -> list[Finding]:
    """Check which processes run, which of them lead, and which work no process does."""
    return [
        *await _judge_if_allowed("processes", _processes(store), list),
        *await _judge_if_allowed(
            "rows", store.admin.broken_rows(_BROKEN), lambda rows: findings.unreadable_rows(rows, _BROKEN)
        ),
        *await _judge_if_allowed("queues", store.queues.views(), findings.unread),
        findings.generation(store.identity),
    ]


async def _processes(store: Store) -> list[Finding]:
    nodes = await store.nodes.views()
    alive = [view for view in nodes if view.state == "alive"]
    dead = [view for view in nodes if view.state == "dead"]
    supervisors = sum("supervisor" in view.info.roles for view in alive)
    lease = await store.leases.read(LEASE)
    figures = await store.admin.figures()
    leadership = findings.leading(lease, supervisors)
    has_scheduler = leadership.severity == "ok" and any("scheduler" in view.info.roles for view in alive)
    return [
        leadership,
        *findings.processes(alive, dead, figures),
        *findings.published_zone_rules(alive, await store.now()),
        *findings.unknown_kinds(alive),
        *findings.late_starts(
            await store.admin.late_starts(time.time(), findings.LATE_START, _ORPHANS), _ORPHANS, alive
        ),
        findings.orphans(await store.admin.orphans(_ORPHANS), _ORPHANS, has_scheduler=has_scheduler),
        findings.alerting(figures.alerts),
    ]
