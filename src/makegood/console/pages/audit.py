"""The audit: who did what, when and why; on a page, as CSV, and as JSON Lines."""

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from makegood.base import ids
from makegood.base.counts import counted
from makegood.console.pages.wording import PageVerdict, lasted
from makegood.console.reads import Reads
from makegood.errors import ConfigError
from makegood.store.views import AuditView

PAGE: Final = 50
"""Commands on a page."""
EXPORTED: Final = 10_000
"""Commands in a file, at most."""

COLUMNS: Final = ("at", "who", "act", "task", "why", "verdict", "outcome", "state", "request", "login")


def record(view: AuditView) -> dict[str, Any]:
    """Return a command as files hold it."""
    values = (
        view.at, view.who, view.kind, None if view.task is None else ids.show(view.task), view.why, view.verdict,
        view.outcome, view.state, view.act, view.db_user,
    )  # fmt: skip
    return dict(zip(COLUMNS, values, strict=True))


def as_csv(views: Sequence[AuditView]) -> str:
    """Return commands as CSV.

    A text that a spreadsheet would take for a formula begins with an apostrophe.
    """
    text = io.StringIO()
    rows = csv.writer(text)
    rows.writerow(COLUMNS)
    rows.writerows([_cell(value) for value in record(view).values()] for view in views)
    return text.getvalue()


def _cell(value: object) -> str:
    text = "" if value is None else str(value)
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def as_json_lines(views: Sequence[AuditView]) -> str:
    """Return commands as JSON, one a line."""
    return "".join(f"{msgspec.json.encode(record(view)).decode()}\n" for view in views)


async def read(reads: Reads, query: Mapping[str, str], limit: int) -> list[AuditView]:
    """Return commands, newest first: ``before`` a time, of one ``task``. Raises ``ConfigError``."""
    try:
        before = float(query["before"]) if query.get("before") else None
    except ValueError:
        raise ConfigError(f"before={query['before']!r} is not a time in seconds since 1970") from None
    task = ids.parse(query["task"]) if query.get("task") else None
    key = "audit", limit, task, before
    return await reads.shared(key, lambda: reads.store.admin.audit(limit, task, before=before))


async def context(reads: Reads, query: Mapping[str, str]) -> dict[str, Any]:
    """Return what the page shows."""
    views, now = await read(reads, query, PAGE), await reads.now()
    people = len({view.who for view in views})
    title = "Nobody has done anything yet"
    if views:
        title = f"{views[0].who} was the last, {lasted(now - views[0].at)} ago"
    more = (
        f"{counted(len(views), 'command')} on this page, by {counted(people, 'person', 'people')}."
        if views
        else ""
    )
    return {
        "verdict": PageVerdict("idle", "audit", title, more),
        "views": views,
        "older": views[-1].at if len(views) == PAGE else None,
        "task": query.get("task", ""),
        "now": now,
    }
