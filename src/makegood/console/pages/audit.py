"""The audit: who did what, when and why; on a page, as CSV, and as JSON Lines."""

import csv
import io
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from makegood.base import ids
from makegood.base.counts import quantity
from makegood.base.terminal_text import unseen
from makegood.base.text import refuse_unstorable
from makegood.console.pages import oversight
from makegood.console.pages.wording import PageVerdict, duration_text, name_of
from makegood.console.reads import Reads
from makegood.errors import ConfigError, TaskNotFoundError
from makegood.store.views import AuditView, Filter

PAGE: Final = 50
"""Commands on a page."""
EXPORTED: Final = 10_000
"""Commands in a file, at most."""
LONGEST: Final = 200
"""Characters of a search term, at most."""
FIELDS: Final = ("who", "kind", "task", "act")
"""The fields that commands can be searched by."""
_FORMULA_SIGNS: Final = frozenset("=+-@|%\u2212")
"""A spreadsheet may take a cell that begins with one of these for a formula, or for a command."""
COLUMNS: Final = ("at", "who", "act", "task", "why", "verdict", "outcome", "state", "request", "login")


def record(view: AuditView) -> dict[str, Any]:
    """Return a command as a line of a file: its values by ``COLUMNS``."""
    values = (
        view.at, view.who, view.kind, None if view.task is None else ids.show(view.task), view.why, view.verdict,
        view.outcome, view.state, view.act, view.db_user,
    )  # fmt: skip
    return dict(zip(COLUMNS, values, strict=True))


def as_csv(views: Sequence[AuditView]) -> str:
    """Return commands as CSV.

    A text that a spreadsheet may take for a formula begins with an apostrophe. Spreadsheets skip blanks and
    characters without a shape, and take full-width signs for plain ones.
    """
    text = io.StringIO()
    rows = csv.writer(text)
    rows.writerow(COLUMNS)
    rows.writerows([_cell(value) for value in record(view).values()] for view in views)
    return text.getvalue()


def _cell(value: object) -> str:
    text = "" if value is None else str(value)
    first = unseen(text)
    return (
        f"'{text}"
        if first != text.lstrip(" ") or unicodedata.normalize("NFKC", first[:1]) in _FORMULA_SIGNS
        else text
    )


def as_json_lines(views: Sequence[AuditView]) -> str:
    """Return commands as JSON, one a line."""
    return "".join(f"{msgspec.json.encode(record(view)).decode()}\n" for view in views)


def search_terms(query: Mapping[str, str]) -> tuple[str | None, str | None, str | None]:
    """Return the operator, the kind and the request to search for; None for any.

    Raises ``ConfigError`` for a text that is too long, or that no store contains.
    """
    operator, kind, act = (query.get(name, "").strip() or None for name in ("who", "kind", "act"))
    refuse_unstorable(ConfigError, who=operator, kind=kind, act=act)
    if max(len(text or "") for text in (operator, kind, act)) > LONGEST:
        raise ConfigError(f"who, kind and act are at most {LONGEST} characters long")
    return operator, kind, act


async def read(reads: Reads, query: Mapping[str, str], limit: int) -> list[AuditView]:
    """Return at most ``limit`` commands, newest first.

    The query may name a ``task``, an ``act`` (a request), a ``kind`` and a person (``who``). ``before`` names
    the last command of the page before: its time and request, "SECONDS/ACT". Raises ``ConfigError``,
    ``TaskNotFoundError``.
    """
    time, _, beyond = query.get("before", "").partition("/")
    try:
        before = float(time) if time else None
    except ValueError:
        raise ConfigError(f"before={time!r} is not a time in seconds since 1970") from None
    task = ids.parse(query["task"].strip()) if query.get("task", "").strip() else None
    operator, kind, act = search_terms(query)
    refuse_unstorable(ConfigError, before=beyond)
    key = "audit", limit, task, before, beyond, operator, kind, act
    return await reads.share(
        key,
        lambda: reads.store.admin.audit(
            limit, task, before=before, beyond=beyond or None, who=operator, kind=kind, act=act, change=0
        ),
    )


async def context(reads: Reads, query: Mapping[str, str]) -> dict[str, Any]:
    """Return what the page shows."""
    refusal = ""
    try:
        views = await read(reads, query, PAGE)
    except (ConfigError, TaskNotFoundError) as wrong:
        views, refusal = [], str(wrong)
    now = await reads.now()
    task_ids = tuple(sorted({view.task for view in views if view.task}))
    tasks = await reads.tasks(Filter(ids=task_ids, limit=PAGE)) if task_ids else ()
    bulk = {view.id for view in await oversight.bulk_acts(reads)}
    terms = {name: query.get(name, "").strip() for name in FIELDS}
    people = len({view.who for view in views})
    title = "Nothing matches" if any(terms.values()) else "Nobody has done anything yet"
    if views:
        title = f"{views[0].who} was the last, {duration_text(now - views[0].at)} ago"
    text = (
        f"{quantity(len(views), 'command')} on this page, by {quantity(people, 'person', 'people')}."
        if views
        else ""
    )
    return {
        "verdict": PageVerdict("idle", "audit", title, text),
        "views": views,
        "older": f"{views[-1].at!r}/{views[-1].act}" if len(views) == PAGE else None,
        "asked": {name: value or None for name, value in terms.items()},
        "refused": refusal,
        "names": {task.id: name_of(task) for task in tasks},
        "bulk": {view.act: name for view in views if (name := view.act.partition("/")[0]) in bulk},
        "now": now,
    }
