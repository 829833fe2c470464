"""Errors, in groups: failures with one cause are one group.

For each group the page answers what becomes of its tasks: they need an operator (*need*), makegood retries
them (*retried*), or they ended without help (*ended*).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from makegood.base import ids
from makegood.base.counts import quantity
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
"""The periods to choose from: by name, the label and the length in seconds."""
BARS: Final = 36
"""Bars of a group's drawing."""
MOST_GROUPS: Final = 50
"""Groups on the page of all, at most."""
MOST_TASKS: Final = 50
"""Tasks on the page of one group, at most."""


class Group(msgspec.Struct, frozen=True):
    """Failures with one cause."""

    record: ErrorGroup
    count: int
    """How many tasks have the fate of the group."""
    what: str
    """What ``count`` counts, such as "tasks in error"."""
    parts: tuple[tuple[bool, str], ...]
    """The message, in parts: whether a part is a placeholder for text that differs, and the text."""
    where: str
    """The agent and the call that failed, such as "payments · undo of charge"."""
    words: str
    """All its tasks and attempts, and the states that the tasks are in now."""
    bars: tuple[int, ...]
    """Failed attempts in each part of the period, oldest first: see ``bars``."""
    fate: str
    """What becomes of its tasks: need, retried or ended."""
    acts: tuple[tuple[str, int, str], ...]
    """The acts to offer, each with the number of tasks that it may concern, and their states."""
    ids: str
    """The ids of its tasks, separated by commas."""


def fate_of(group: ErrorGroup) -> str:
    """Return what becomes of the tasks of a group: need, retried or ended."""
    return "need" if group.blocking else "retried" if group.retried else "ended"


def group_of(group: ErrorGroup, now: float, span: float) -> Group:
    """Return a group as the page shows it.

    ``now``: seconds since 1970. ``span``: the length of the period shown, in seconds.
    """
    fate, states = fate_of(group), group.states
    undone_count = states.get("undone", 0)
    forward = sum(states.get(state, 0) for state in ("pending", "sleeping", "queued", "processing"))
    under_way = forward + states.get("undoing", 0)
    if fate == "need":
        count, label = group.blocking, "in error"
    elif fate == "retried":
        count, label = group.retried, "trying again"
    else:
        ends = (
            (undone_count, "undone"),
            (under_way, "under way"),
            (states.get("processed", 0), "processed since"),
        )
        in_error = (group.tasks, "in error for another reason")
        count, label = next((end for end in ends if end[0]), in_error)
    doing = {"do": "", "probe": "probe of ", "undo": "undo of "}.get(group.doing, "")
    states_text = ", ".join(f"{n} {state}" for state, n in sorted(states.items()) if n) or "unknown"
    most = len(group.ids)  # a command names the tasks that it is for
    acts: tuple[tuple[str, int, str], ...] = ()
    if fate == "need":
        error_count = min(group.blocking, most)
        acts = ("undo", error_count, "error"), ("resubmit", error_count, "error")
    elif forward:
        acts = (("cancel", min(forward, most), "pending,processing"),)
    elif undone_count:
        acts = (("resubmit", min(undone_count, most), "undone"),)
    return Group(
        record=group,
        count=count,
        what=f"task{'s' if count != 1 else ''} {label}",
        parts=mark_variables(group.message),
        where=f"{group.agent.partition('/')[2] or group.agent} · {doing}{group.action}",
        words=f"{quantity(group.tasks, 'task')}, {quantity(group.attempts, 'attempt')} · now {states_text}",
        bars=bars(group.times, now, span),
        fate=fate,
        acts=acts,
        ids=",".join(map(ids.show, group.ids[: group.blocking if fate == "need" else None])),
    )


def mark_variables(message: str) -> tuple[tuple[bool, str], ...]:
    """Return a normalised message in parts: N, ID and '…' stand for text that differs.

    >>> mark_variables("timeout of N s")
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
    """Return how many attempts failed in each of the ``BARS`` parts of a period, oldest first.

    ``times``: when attempts failed. ``now``: the end of the period. ``span``: its length. All are seconds.

    >>> bars([0.5, 34.5, 35.0, 40.0], now=36.0, span=36.0)[-3:]
    (0, 1, 1)
    """
    width = span / BARS
    now = -(-now // width) * width  # rounded up, so that a bar keeps its limits when the page is read again
    counts = [0] * BARS
    for at in times:
        place = int((at - (now - span)) / span * BARS)
        if 0 <= place < BARS:
            counts[place] += 1
    return tuple(counts)


def verdict(need: Sequence[Group], retries: Sequence[Group], endings: Sequence[Group]) -> PageVerdict:
    """Return the verdict at the top of the page, over the groups by their fate."""
    calm = ""
    if endings:
        calm = f"{quantity(len(endings), 'error')} ended without help: the tasks were undone, or continued."
    if need:
        # several undos of one task may fail, so only the tasks of one error are counted
        title = f"{len(need)} errors hold up tasks"
        if len(need) == 1:
            title = f"1 error holds up {quantity(need[0].count, 'task')}"
        if retries:
            title += f"; {len(retries)} {'is' if len(retries) == 1 else 'are'} being retried"
        return PageVerdict("need", "error", title, calm)
    if retries:
        return PageVerdict("doubt", "again", f"{quantity(len(retries), 'error')} being retried", calm)
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
        "rows": sorted(rows, key=lambda row: not row.need)[:MOST_TASKS],
        "tasks": error_group.tasks,
        "now": now,
    }


async def context(reads: Reads, query: Mapping[str, str]) -> dict[str, Any]:
    """Return what the page shows. ``query``: ``since`` names the period, ``q`` a text to search for."""
    choice = query.get("since", "1h")
    since = choice if choice in SPANS else "1h"
    text, now, span = query.get("q", "").strip(), await reads.now(), SPANS[since][1]
    report = await oversight.groups(reads)
    groups = [group_of(group, now, span) for group in report.groups[:MOST_GROUPS] if group.last >= now - span]
    if needle := text.lower():
        groups = [group for group in groups if needle in _search_text(group)]
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


def _search_text(group: Group) -> str:
    parts = " ".join(part for _, part in group.parts)
    return f"{group.where} {group.record.frame} {group.record.sample} {parts}".lower()
