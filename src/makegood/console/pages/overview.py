"""The overview: does anything need me, and is it making good as usual?"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from makegood.base import ids
from makegood.base.clock import date_text
from makegood.base.counts import quantity
from makegood.console.pages import agents, oversight
from makegood.console.pages.agents import AgentRow, agent_rows, waiting
from makegood.console.pages.alerts import Item, open_items
from makegood.console.pages.cluster import heals, leading, lease_of
from makegood.console.pages.tasks import lately, signal_waits, unended_tally, waits
from makegood.console.pages.wording import PageVerdict, count_text, duration_text, title_of
from makegood.console.reads import Reads
from makegood.election.views import TermView, with_gaps
from makegood.store.oversight_records import (
    MinuteFigures,
    Refusal,
    SupervisorDecision,
    SupervisorDecisionKind,
)
from makegood.store.step_down import LEADER
from makegood.store.views import AlertView, Filter, SignalWait, UnendedTally
from makegood.story.steps import join_names
from makegood.story.waits import signal_wait_text, waits_text

MINUTES: Final = 60
"""Minutes in the charts."""
NEEDS: Final = 5
"""Things in need of somebody that are named, at most."""
SIGNALS: Final = 5
"""Signals that tasks wait for and that are named, at most."""
FEED: Final = 10
"""Entries of the feed."""


class Tile(msgspec.Struct, frozen=True):
    """One figure."""

    label: str
    value: str
    unit: str
    note: str
    path: str
    q: str | None = None
    spark: tuple[float, ...] = ()


class HourChart(msgspec.Struct, frozen=True):
    """A drawing over the last hour. Places and heights are percentages, from the left and the top."""

    top: str
    middle: str
    bars: tuple[tuple[float, float, float, float, float], ...] = ()
    """Of each minute: place, heights of what was processed and undone, their sum, height of what came to
    error."""
    lines: tuple[tuple[str, str, str], ...] = ()
    """Of each line: its name, its latest value, its points."""
    ticks: tuple[tuple[str, float], ...] = ()
    label: str = ""


class FeedEntry(msgspec.Struct, frozen=True):
    """An entry of the feed."""

    icon: str
    tone: str
    text: str
    why: str
    at: float
    task: int | None = None
    name: str = ""
    """The task's key, or else its id."""


def _nice(value: float) -> float:
    """Return the round number at or above a value that an axis ends with.

    >>> _nice(0), _nice(3.2), _nice(406)
    (1, 5.0, 500.0)
    """
    if value <= 0:
        return 1
    size = 10.0 ** (len(str(int(value))) - 1) if value >= 1 else 0.001
    while size * 10 <= value:
        size *= 10
    return next(size * step for step in (1, 2, 5, 10) if size * step >= value)


def _nice_time(seconds: float) -> float:
    """Return the round time at or above a value. Its half is round, too, for the middle of an axis.

    >>> _nice_time(3.2), _nice_time(70), _nice_time(150), _nice_time(5000)
    (5.0, 120.0, 240.0, 7200.0)
    """
    if seconds <= 20:
        return _nice(seconds)
    marks = (30.0, 60.0, 120.0, 240.0, 600.0, 1200.0, 3600.0, 7200.0, 14_400.0, 43_200.0)
    return next((mark for mark in marks if mark >= seconds), 86_400.0 * _nice(seconds / 86_400))


def by_minute(minutes: Sequence[MinuteFigures], now: float) -> list[MinuteFigures | None]:
    """Return the figures of each of the last sixty minutes, oldest first; None where nobody observed."""
    last = int(now // 60)
    figures = {int(minute.minute // 60): minute for minute in minutes}
    return [figures.get(last - MINUTES + 1 + n) for n in range(MINUTES)]


def _ticks(now: float) -> tuple[tuple[str, float], ...]:
    at = [(n, now - (MINUTES - n) * 60) for n in (0, 15, 30, 45)]
    return tuple((date_text(t, "%H:%M"), 100.0 * n / MINUTES) for n, t in at)


def ended_chart(minutes: Sequence[MinuteFigures | None], now: float) -> HourChart:
    """Return the chart of tasks that ended in each minute."""
    top = _nice(max((max(m.processed + m.undone, m.errors) for m in minutes if m), default=0))
    bars = tuple(
        (
            round(100.0 * n / MINUTES, 2), round(80.0 * m.processed / top, 2), round(80.0 * m.undone / top, 2),
            round(80.0 * (m.processed + m.undone) / top, 2), max(2.0, round(80.0 * m.errors / top, 2)) if m.errors else 0.0,
        )
        for n, m in enumerate(minutes)
        if m
    )  # fmt: skip
    done_count, undone_count, errors = (
        sum(getattr(m, name) for m in minutes if m) for name in ("processed", "undone", "errors")
    )
    label = f"Tasks that came to rest in each minute of the last hour: {done_count:,} processed, {undone_count:,} undone, {errors:,} in error"
    return HourChart(f"{top:,.0f}", f"{top / 2:,g}", bars, ticks=_ticks(now), label=label)


def latency_chart(minutes: Sequence[MinuteFigures | None], now: float) -> HourChart:
    """Return the chart of the time from submission to end."""
    curves = {
        name: [(n, getattr(m, name)) for n, m in enumerate(minutes) if m and getattr(m, name) is not None]
        for name in ("p50", "p95")
    }
    top = _nice_time(max((value for points in curves.values() for _, value in points), default=0.0))
    lines = tuple(
        (name, duration_text(points[-1][1]), _points(points, top))
        for name, points in curves.items()
        if points
    )
    label = "Time from submission to end in the last hour"
    return HourChart(duration_text(top), duration_text(top / 2), lines=lines, ticks=_ticks(now), label=label)


def _points(points: Sequence[tuple[int, float]], top: float) -> str:
    """Return a curve as SVG draws it; a single point is a line."""
    places = points if len(points) > 1 else [*points, *points]
    return " ".join(f"{100 * (n + 0.5) / MINUTES:.2f},{100 - 100 * value / top:.2f}" for n, value in places)


DECIDED: Final[Mapping[SupervisorDecisionKind, tuple[str, str, str, str]]] = {
    "judged": ("doubt", "Judged {} in doubt, of", "attempt", "no answer by its deadline"),
    "freed": (
        "again",
        "Freed {}:",
        "task",
        "the heartbeat of its Scheduler ran out; another continues with it",
    ),
    "deaf": ("again", "Freed {}:", "task", "its Scheduler did not react; another continues with it"),
    "turned": ("undoing", "Turned {} to undo:", "task", "its deadline passed"),
}
"""Of each kind: icon, what was done, to what, and why."""


def feed_entry(decision: SupervisorDecision) -> FeedEntry:
    """Return what the leading Supervisor did, in words."""
    unknown = ("cluster", f"{title_of(decision.kind)}, {{}}:", "task", "")
    icon, title, unit, reason = DECIDED.get(decision.kind, unknown)
    text = title.format(quantity(decision.tasks, unit))
    return FeedEntry(icon, "idle", text, reason, decision.at, decision.task)


def feed(
    alerts: Sequence[AlertView],
    refusals: Sequence[Refusal],
    terms: Sequence[TermView],
    decisions: Sequence[SupervisorDecision],
) -> list[FeedEntry]:
    """Return what makegood noticed and decided last, newest first."""
    entries = [feed_entry(decision) for decision in decisions]
    for alert in alerts:
        kind, look = alert.kind.replace("_", " "), ("error", "need") if alert.open else ("bell", "idle")
        text = f"Raised {kind}{' for' if alert.task else ''}"
        entries.append(FeedEntry(*look, text, alert.text, alert.at, alert.task))
        if alert.ended is not None:
            text = f"Ended {kind}{' of' if alert.task else ''}"
            entries.append(FeedEntry("done", "ok", text, alert.ended_why, alert.ended, alert.task))
    for refusal in refusals:
        text = f"Refused by fencing{':' if refusal.task else ''}"
        entries.append(FeedEntry("shield", "ok", text, refusal.what, refusal.at, refusal.task))
    for term in terms:
        gap = "" if term.gap is None else f"{duration_text(term.gap)} without a leader"
        text = f"{term.holder} took the lead, term {term.epoch}"
        entries.append(FeedEntry("flag", "idle", text, gap, term.began))
    return sorted(entries, key=lambda entry: -entry.at)[:FEED]


async def with_task_names(reads: Reads, entries: Sequence[FeedEntry]) -> list[FeedEntry]:
    """Return entries with the names of their tasks; one that is gone keeps its id."""
    task_ids = tuple(sorted({entry.task for entry in entries if entry.task}))
    tasks = await reads.tasks(Filter(ids=task_ids, limit=FEED)) if task_ids else ()
    keys = {task.id: task.key for task in tasks}
    return [
        replace(entry, name=keys.get(entry.task) or ids.show(entry.task)) if entry.task else entry
        for entry in entries
    ]


def verdict(
    need: Sequence[Item],
    tally: UnendedTally,
    rate: float | None,
    *,
    has_leader: bool,
    rows: Sequence[AgentRow] = (),
    wait_counts: Mapping[str, int] = MappingProxyType({}),
    signal_waits: Sequence[SignalWait] = (),
    now: float = 0.0,
) -> PageVerdict:
    """Return the sentence that answers the page. ``rows``: the agents; ``wait_counts``: see ``waits``;
    ``signal_waits``: what tasks wait for, the most first.
    """
    pace = "" if rate is None else f"{rate:,.0f} a minute"
    also = f", {pace}" if pace else ""
    if need:
        tasks = [item for item in need if item.task]
        count, noun = (len(tasks), "task") if tasks else (len(need), "alert")
        titles = [item.title for item in need if not item.task]
        text = f"{join_names(titles)}. " if tasks and titles else ""
        title = f"{quantity(count, noun)} need{'s' if count == 1 else ''} you"
        return PageVerdict("need", "error", title, f"{text}Everything else is making good{also}.")
    if not has_leader and tally.in_flight:
        text = "Silent steps and dead processes are not found until a Supervisor leads."
        return PageVerdict("doubt", "flag", "Nobody leads", text)
    services = agents.verdict(rows)
    if services.tone in ("need", "doubt"):
        return services
    signal_text = signal_wait_text(signal_waits[0], now) if signal_waits else ""
    title = waits_text(wait_counts) or signal_text or "All well"
    if tally.failing or tally.doubt:
        verb = "is" if tally.failing == 1 else "are"
        text = f"{quantity(tally.failing, 'task')} with a failed step {verb} being retried; nothing needs you"
        return PageVerdict("ok", "done", title, f"{text}{pace and f'; {pace}'}.")
    icon = "waiting" if wait_counts or signal_waits else "done"
    if not tally.in_flight:  # tasks that only wait sleep
        return PageVerdict("ok", icon, title, f"Nothing is under way{pace and f'; {pace}'}.")
    noun = "tasks" if tally.in_flight != 1 else "task"
    text = f"{count_text(tally.in_flight, more=tally.more)} {noun} under way{also}."
    return PageVerdict("ok", icon, title, text)


def tiles(
    tally: UnendedTally,
    minutes: Sequence[MinuteFigures | None],
    rows: Sequence[AgentRow],
    oldest: tuple[str, float],
    within: float,
    *,
    lately: tuple[Mapping[str, int], bool],
) -> list[Tile]:
    """Return the figures. ``lately``: tasks of the last hour by state, and whether there are more."""
    measures = [m for m in minutes[:-1] if m] or [m for m in minutes if m]
    last = measures[-1] if measures else None
    states, more = lately
    asleep, in_line = tally.states.get("sleeping", 0), tally.states.get("queued", 0)
    undone_count, done_count = states.get("undone", 0), states.get("processed", 0)
    shares = (
        f"{count_text(undone_count, more=more)}, {100 * undone_count / (undone_count + done_count):.1f}% of those submitted in the last hour"
        if undone_count + done_count
        else "no task of the last hour has ended"
    )
    agent, age = oldest
    is_orphan = any(row.agent == agent and row.need for row in rows)
    return [
        Tile("In flight", count_text(tally.in_flight, more=tally.more), "", f"{tally.failing:,} failing, {tally.states.get('undoing', 0):,} undoing" + (f", {asleep:,} asleep" if asleep else "") + (f", {in_line:,} queued" if in_line else ""), "/tasks", "state:pending,processing,undoing"),
        Tile("Processed", "–" if last is None else f"{last.processed:,}", "/min", f"{count_text(done_count, more=more)} of those submitted in the last hour", "/tasks", "state:processed since:1h", _line(minutes, "processed")),
        Tile("Undone", "–" if last is None else f"{last.undone:,}", "/min", shares, "/tasks", "state:undone since:1h", _line(minutes, "undone")),
        Tile("Oldest waiting request", duration_text(age) if agent else "–", "", f"{agent}: no process takes it" if is_orphan else agent or "no request waits", "/agents"),
        Tile("Heals within", f"≤ {duration_text(within)}" if within else "–", "", "if a process dies now", "/cluster"),
    ]  # fmt: skip


def _line(minutes: Sequence[MinuteFigures | None], name: str) -> tuple[float, ...]:
    return tuple(float(getattr(m, name)) for m in minutes[-20:-1] if m)


async def context(reads: Reads, query: Mapping[str, str]) -> dict[str, Any]:  # noqa: ARG001 - every page's signature
    """Return what the page shows."""
    now, nodes, queues = await reads.now(), await reads.nodes(), await waiting(reads)
    need = [
        item for item in await open_items(reads) if item.tone == "need" or (item.first.acked and item.task)
    ]
    tally, view = await unended_tally(reads), await leading(reads)
    minutes = by_minute(await oversight.minutes(reads), now)
    rows, lease = agent_rows(nodes, queues), lease_of(view)
    has_leader = lease is not None and lease.look != "gone"
    agent, (_, age) = max(queues.items(), key=lambda queue: queue[1][1], default=("", (0, 0.0)))
    whole = [m for m in minutes[:-1] if m]
    rate = (whole[-1].processed + whole[-1].undone) if whole else None
    need.sort(key=lambda item: (item.first.acked is not None, not item.task))
    needs = [item for item in need if item.tone == "need"]
    counts, within = await waits(reads), heals(nodes, view) if has_leader else 0.0
    signals = await signal_waits(reads)
    entries = feed(
        await reads.alerts(FEED, ended=None),
        await oversight.refusals(reads),
        with_gaps(await reads.past_terms(LEADER, 6))[:5],
        await oversight.decisions(reads, FEED),
    )
    return {
        "verdict": verdict(
            needs,
            tally,
            rate,
            has_leader=has_leader,
            rows=rows,
            wait_counts=counts,
            signal_waits=signals,
            now=now,
        ),
        "signals": [(wait.name, signal_wait_text(wait, now)) for wait in signals[:SIGNALS]],
        "more_signals": max(0, len(signals) - SIGNALS),
        "need": need[:NEEDS] if needs else [],
        "more": max(0, len(need) - NEEDS),
        "tiles": tiles(tally, minutes, rows, (agent, age), within, lately=await lately(reads)),
        "ended": ended_chart(minutes, now),
        "latency": latency_chart(minutes, now),
        "lease": lease,
        "agents": rows[:6],
        "agent_count": len(rows),
        "feed": await with_task_names(reads, entries),
        "now": now,
    }
