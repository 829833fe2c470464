"""Errors: one cause or many, and does it need somebody, is it retried, or did it end by itself?"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from makegood.base import ids
from makegood.base.counts import counted
from makegood.base.text import has_more_lines
from makegood.console.attempt_lines import trace_lines
from makegood.console.pages import oversight
from makegood.console.pages.tasks import rows_of
from makegood.console.pages.wording import PageVerdict, Tab
from makegood.console.reads import Reads
from makegood.console.visits import Denied
from makegood.store.oversight_records import ErrorGroup
from makegood.store.views import Filter

SPANS: Final[Mapping[str, tuple[str, float]]] = {
    "15m": ("15 min", 900.0), "1h": ("1 h", 3600.0), "24h": ("24 h", 86_400.0), "7d": ("7 days", 604_800.0),
}  # fmt: skip
"""Over what time groups are shown."""
BARS: Final = 36
"""Bars of a group's drawing."""
SHOWN: Final = 50
"""Groups on the page of all, at most."""
TASKS: Final = 50
"""Tasks on the page of one group."""


class Group(msgspec.Struct, frozen=True):
    """Failures with one cause."""

    record: ErrorGroup
    count: int
    what: str
    """What was counted, such as "tasks in error"."""
    parts: tuple[tuple[bool, str], ...]
    """The message, in parts: whether a part stands for text that differs."""
    where: str
    words: str
    bars: tuple[int, ...]
    fate: str
    """need, retried or ended."""
    acts: tuple[tuple[str, int, str], ...]
    """The acts to offer, each with the number of tasks that it may concern, and their states."""
    ids: str
    """The ids of its tasks, separated by commas."""


def fate(group: ErrorGroup) -> str:
    """Return what becomes of the tasks of a group."""
    return "need" if group.blocking else "retried" if group.retried else "ended"


def group_of(group: ErrorGroup, now: float, span: float) -> Group:
    """Return a group as the page shows it."""
    becomes, states = fate(group), group.states
    undone_count = states.get("undone", 0)
    forward = sum(states.get(state, 0) for state in ("pending", "sleeping", "queued", "processing"))
    going = forward + states.get("undoing", 0)
    if becomes == "need":
        count, label = group.blocking, "in error"
    elif becomes == "retried":
        count, label = group.retried, "trying again"
    else:
        ends = (
            (undone_count, "undone"),
            (going, "under way"),
            (states.get("processed", 0), "processed since"),
        )
        others = (group.tasks, "in error for another reason")
        count, label = next((end for end in ends if end[0]), others)
    doing = {"do": "", "probe": "probe of ", "undo": "undo of "}.get(group.doing, "")
    now_in = ", ".join(f"{n} {state}" for state, n in sorted(states.items()) if n) or "unknown"
    most = len(group.ids)  # an act is about tasks that are named
    acts: tuple[tuple[str, int, str], ...] = ()
    if becomes == "need":
        error = min(group.blocking, most)
        acts = ("undo", error, "error"), ("resubmit", error, "error")
    elif forward:
        acts = (("cancel", min(forward, most), "pending,processing"),)
    elif undone_count:
        acts = (("resubmit", min(undone_count, most), "undone"),)
    return Group(
        record=group,
        count=count,
        what=f"task{'s' if count != 1 else ''} {label}",
        parts=marked(group.message),
        where=f"{group.agent.partition('/')[2] or group.agent} · {doing}{group.action}",
        words=f"{counted(group.tasks, 'task')}, {counted(group.attempts, 'attempt')} · now {now_in}",
        bars=bars(group.times, now, span),
        fate=becomes,
        acts=acts,
        ids=",".join(map(ids.show, group.ids[: group.blocking if becomes == "need" else None])),
    )


def marked(message: str) -> tuple[tuple[bool, str], ...]:
    """Return a normalised message in parts: N, ID and '…' stand for text that differs.

    >>> marked("timeout of N s")
    ((False, 'timeout of'), (True, 'N'), (False, 's'))
    """
    parts: list[tuple[bool, str]] = []
    for word in message.split():
        differs = word.strip(".,:;()[]{}") in ("N", "ID") or "'…'" in word
        if parts and parts[-1][0] == differs:
            parts[-1] = (differs, f"{parts[-1][1]} {word}")
        else:
            parts.append((differs, word))
    return tuple(parts)


def bars(times: Sequence[float], now: float, span: float) -> tuple[int, ...]:
    """Return how many attempts failed in each part of the time shown.

    >>> bars([0.5, 34.5, 35.0, 40.0], now=36.0, span=36.0)[-3:]
    (0, 1, 1)
    """
    bar = span / BARS
    now = -(-now // bar) * bar  # a bar begins and ends at the same moments whenever one looks
    counts = [0] * BARS
    for at in times:
        place = int((at - (now - span)) / span * BARS)
        if 0 <= place < BARS:
            counts[place] += 1
    return tuple(counts)


def verdict(need: Sequence[Group], retries: Sequence[Group], endings: Sequence[Group]) -> PageVerdict:
    """Return the sentence that answers the page."""
    calm = ""
    if endings:
        calm = f"{counted(len(endings), 'error')} ended without help: the tasks were undone, or continued."
    if need:
        # several undos of one task may fail, so only the tasks of one error are counted
        title = f"{len(need)} errors hold up tasks"
        if len(need) == 1:
            title = f"1 error holds up {counted(need[0].count, 'task')}"
        if retries:
            title += f"; {len(retries)} {'is' if len(retries) == 1 else 'are'} being retried"
        return PageVerdict("need", "error", title, calm)
    if retries:
        return PageVerdict("doubt", "again", f"{counted(len(retries), 'error')} being retried", calm)
    title = "No error needs you" if endings else "No errors"
    return PageVerdict("ok", "done", title, calm or "No attempt failed in this time.")


async def group(reads: Reads, query: Mapping[str, str]) -> dict[str, Any]:
    """Return what the page of one group shows: its latest error in full, and its latest tasks.

    Raises ``Denied`` if no failure of the latest tasks is of this group.
    """
    report, now = await oversight.groups(reads), await reads.now()
    error_group = next((candidate for candidate in report.groups if candidate.name == query["name"]), None)
    if error_group is None:
        text = "None of the latest tasks failed like this; older ones are no longer grouped."
        raise Denied(404, "No such error", text)
    rows = await rows_of(reads, await reads.tasks(Filter(ids=error_group.ids, limit=len(error_group.ids))))
    span = next((span for _, span in SPANS.values() if error_group.first >= now - span), SPANS["7d"][1])
    sample = error_group.sample if has_more_lines(error_group.sample) else ""
    return {
        "group": group_of(error_group, now, span),
        "lines": trace_lines(error_group.traceback or sample),
        "rows": sorted(rows, key=lambda row: not row.need)[:TASKS],
        "tasks": error_group.tasks,
        "now": now,
    }


async def context(reads: Reads, query: Mapping[str, str]) -> dict[str, Any]:
    """Return what the page shows: ``since`` names the time, ``q`` a text to look for."""
    choice = query.get("since", "1h")
    since = choice if choice in SPANS else "1h"
    text, now, span = query.get("q", "").strip(), await reads.now(), SPANS[since][1]
    report = await oversight.groups(reads)
    groups = [group_of(group, now, span) for group in report.groups[:SHOWN] if group.last >= now - span]
    if needle := text.lower():
        groups = [group for group in groups if needle in _searched(group)]
    by_fate = {
        fate: [group for group in groups if group.fate == fate] for fate in ("need", "retried", "ended")
    }
    return {
        "verdict": verdict(by_fate["need"], by_fate["retried"], by_fate["ended"]),
        "q": text,
        "since": since,
        "spans": [Tab(label, name) for name, (label, _) in SPANS.items()],
        "sections": [
            ("need", "Needs you", "", by_fate["need"]),
            ("retried", "Being retried now", "", by_fate["retried"]),
            ("ended", "Ended without help", "nothing to do; good to know", by_fate["ended"]),
        ],
        "found": len(groups),
        "read": report.read,
        "capped": report.capped,
        "now": now,
    }


def _searched(group: Group) -> str:
    parts = " ".join(part for _, part in group.parts)
    return f"{group.where} {group.record.frame} {group.record.sample} {parts}".lower()
