"""The page of a backfill: which moments of a schedule are in a range, and which have no task yet.

The form asks for the range. With a range the page says what a backfill would do, and offers to do it.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from makegood.base import ids, zones
from makegood.base.counts import quantity
from makegood.client.schedules import MOST_BACKFILL, moments_between, moments_with_tasks
from makegood.console.pages.schedules import moment_texts
from makegood.console.pages.wording import PageVerdict
from makegood.console.reads import Reads
from makegood.console.visits import number_in
from makegood.errors import ConfigError, ScheduleNotFoundError
from makegood.store.schedule_records import ScheduleView

LISTED: Final = 100
"""Moments that the page lists."""


class BackfillRange(msgspec.Struct, frozen=True):
    """A range as a form has it."""

    since: datetime
    until: datetime
    limit: int

    @classmethod
    def read(cls, form: Mapping[str, str], timezone: str) -> "BackfillRange":
        """Return what a form says; times without an offset are on the clocks of a zone.

        Raises ``ConfigError``.
        """
        limit = number_in(form.get("limit", "").strip() or str(MOST_BACKFILL))
        if not limit or limit > MOST_BACKFILL:
            raise ConfigError(f"At most: write a number from 1 to {MOST_BACKFILL:,}")
        since, until = (_time(name, form.get(name, "").strip(), timezone) for name in ("since", "until"))
        return cls(since, until, limit)


def _time(name: str, text: str, timezone: str) -> datetime:
    try:
        value = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"{name}={text!r:.60} is not a point in time: write 2026-03-28 or 2026-03-28T09:00"
        ) from None
    return value if value.tzinfo else value.replace(tzinfo=zones.zone(timezone))


class BackfillRow(msgspec.Struct, frozen=True):
    """A moment of the range."""

    times: tuple[str, str, str]
    """On the clocks of its zone, in UTC, and what a change of clocks did to it."""
    task: str
    """The task that it has, "" for none."""


async def context(reads: Reads, query: Mapping[str, str]) -> dict[str, Any]:
    """Return what the page shows. Raises ``ScheduleNotFoundError``."""
    app, name = query.get("app", ""), query.get("name", "")
    views = await reads.store.schedules.views(1, app, name)
    if not views:
        raise ScheduleNotFoundError(f"there is no schedule {name!r} of app {app!r} in this store")
    (view,) = views
    rows, refusal, now = list[BackfillRow](), view.trouble, await reads.now()
    asks = bool(query.get("since") or query.get("until"))
    try:
        local = datetime.fromtimestamp(now, zones.zone(view.timezone))
        if asks and not refusal:
            rows = await _rows(reads, view, BackfillRange.read(query, view.timezone), now)
    except ConfigError as wrong:
        refusal, local = str(wrong), datetime.fromtimestamp(now, UTC)
    new = sum(not row.task for row in rows)
    return {
        "view": view,
        "since": query.get("since", ""),
        "until": query.get("until", "") or f"{local:%Y-%m-%dT%H:%M}",
        "limit": query.get("limit", "") or str(MOST_BACKFILL),
        "most": MOST_BACKFILL,
        "refused": refusal,
        "verdict": _verdict(len(rows), new) if asks and not refusal else None,
        "rows": rows[:LISTED],
        "more": max(0, len(rows) - LISTED),
        "new": new,
    }


async def _rows(reads: Reads, view: ScheduleView, extent: BackfillRange, now: float) -> list[BackfillRow]:
    moments = moments_between(view, extent.since, extent.until, extent.limit, now)
    pairs = await moments_with_tasks(reads.store, view, moments)
    return [BackfillRow(moment_texts(each), "" if task is None else ids.show(task)) for each, task in pairs]


def _verdict(count: int, new: int) -> PageVerdict:
    if not count:
        return PageVerdict("idle", "waiting", "No moment is in this range", "")
    old = count - new
    if not new:
        title = (
            "Its moment has a task already" if count == 1 else f"All {count:,} moments have a task already"
        )
        return PageVerdict("ok", "done", title, "There is nothing to submit.")
    others = (
        f"{quantity(old, 'moment')} of the range {'has' if old == 1 else 'have'} a task already. "
        if old
        else ""
    )
    return PageVerdict(
        "run",
        "send",
        f"A backfill submits {quantity(new, 'task')}",
        f"{others}Overlap and a pause do not matter.",
    )
