"""Schedules: when does each fire next, and which one cannot, is paused, or skips moments?

The next moments are computed here, by the zone rules of the console's machine; the leading Supervisor, which
fires them, may have others.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from makegood.base import ids, zones
from makegood.base.counts import quantity
from makegood.base.durations import short_duration
from makegood.console.pages.cluster import leading
from makegood.console.pages.wording import PageVerdict, behind, duration_text
from makegood.console.reads import Reads
from makegood.moments.moment import ScheduleMoment
from makegood.store.schedule_records import NO_MOMENTS, ScheduleView
from makegood.story.steps import join_names

PAGE: Final = 50
"""Schedules on a page."""
MOMENTS: Final = 3
"""Next moments of each."""


class ScheduleRow(msgspec.Struct, frozen=True):
    """A schedule, as the page shows it."""

    view: ScheduleView
    id: str
    """Of its row and its dialogs: the same wherever it is on the page."""
    state: str
    tone: str
    icon: str
    times: str
    policy: str
    moments: tuple[tuple[str, str, str], ...]
    """Its next moments: on the clocks of its zone, in UTC, and what a change of clocks did to it."""
    trouble: str
    last_task: str
    skips: str


def upcoming(view: ScheduleView, count: int) -> tuple[list[ScheduleMoment], str]:
    """Return the next moments of a schedule, or why this machine cannot compute them."""
    try:
        return view.upcoming(count), ""
    except NO_MOMENTS as fault:
        return [], str(fault)


def row(view: ScheduleView) -> ScheduleRow:
    """Return a schedule as the page shows it."""
    moments, unknown = upcoming(view, MOMENTS)
    trouble = view.trouble or unknown
    state, tone, icon = _state(view, trouble)
    return ScheduleRow(
        view,
        hashlib.blake2b(f"{view.app}/{view.name}".encode(errors="replace"), digest_size=8).hexdigest(),
        state,
        tone,
        icon,
        view.times + (f", delayed by up to {short_duration(view.jitter)}" if view.jitter else ""),
        f"overlap {view.overlap}, catch up {short_duration(view.catch_up)}, {'the latest' if view.coalesce else 'all'} of late moments",
        tuple(map(moment_texts, moments)),
        trouble,
        "" if view.last_task is None else ids.show(view.last_task),
        ", ".join(f"{count:,} {reason}" for reason, count in sorted(view.skips.items())),
    )


def moment_texts(moment: ScheduleMoment) -> tuple[str, str, str]:
    """Return a moment on the clocks of its zone, in UTC, and what a change of clocks did to it."""
    marks = {
        "gap": f"clocks skip {moment.wall:%H:%M}",
        "fold": f"the {'second' if moment.is_second else 'first'} of two",
    }
    return (
        f"{moment.local:%a %Y-%m-%d %H:%M:%S %z}",
        f"{moment.at:%a %H:%M:%S}",
        marks.get(moment.mark or "", ""),
    )


def _state(view: ScheduleView, trouble: str) -> tuple[str, str, str]:
    """Return a state, its tone and its icon."""
    if trouble:
        return "failing", "need", "error"
    if view.paused_at is not None:
        return "paused", "doubt", "pause"
    if view.is_buffered:
        return "a moment waits", "run", "waiting"
    return ("fires", "ok", "done") if view.next_moment is not None else ("over", "idle", "stop")


async def context(reads: Reads, query: Mapping[str, str]) -> Any:
    """Return what the page shows. Raises ``ConfigError``."""
    after = behind(query.get("after", ""))
    views = await reads.share(
        ("schedules", after), lambda: reads.store.schedules.views(PAGE, None, None, after)
    )
    now, lease = await reads.now(), await leading(reads)

    def shape() -> dict[str, Any]:
        rows, rules = [row(view) for view in views], zones.current()
        return {
            "verdict": verdict(rows, now, has_leader=lease is not None and lease.held),
            "rows": rows,
            "rules": "this machine has none: pip install tzdata" if rules is None else str(rules),
            "first": not any(after),
            "next": f"{views[-1].app}/{views[-1].name}" if len(views) == PAGE else None,
            "now": now,
        }

    return shape


def verdict(rows: Sequence[ScheduleRow], now: float, *, has_leader: bool) -> PageVerdict:
    """Return the sentence that answers the page."""
    if not rows:
        return PageVerdict("idle", "waiting", "No schedule", "Declare one with `@app.schedule`.")
    failing = [each.view.name for each in rows if each.trouble]
    if failing:
        title = f"{quantity(len(failing), 'schedule')} cannot be fired: {join_names(failing)}"
        return PageVerdict("need", "error", title, "makegood keeps their moments, and tries again.")
    if not has_leader:
        text = "The leading Supervisor does: start one with `makegood supervisor`."
        return PageVerdict("need", "error", "Nobody fires them", text)
    paused = sum(each.view.paused_at is not None for each in rows)
    text = f"{quantity(len(rows), 'schedule')} on this page, {paused} paused." if paused else ""
    ahead = [
        (each.view.next_firing, each.view.name)
        for each in rows
        if each.view.next_firing is not None and each.view.paused_at is None
    ]
    if not ahead:
        return PageVerdict("idle", "waiting", "No schedule on this page will fire", text)
    at, name = min(ahead)
    return PageVerdict("ok", "done", f"{name} is next, in {duration_text(at - now)}", text)
