"""What is wrong with the waits of a run: sleeps, signals, delayed orders, lanes and the moments of the schedule. Nothing here acts.

The witnesses are the customers' notes (what was acknowledged), the services' books (when something was done, and for which
moment) and the store (what became of each signal, wait and moment). Signals and waits are compared on the store's clock: a
signal was committed at its row's time, or later by no more than its customer waited for the acknowledgement.
"""

import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from examples.orders.auditor import AuditError

from .approver import notes
from .lane_checks import examine_lanes
from .orders import MOMENT_PREFIX, SCHEDULE, nap_of, rested
from .waits import FILE

TICK: Final = 0.01
"""Seconds by which two readings of clocks may differ that mean the same."""
TIMED_OUT: Final = ("timed_out", "no_signal")
RESUBMIT: Final = "operator resubmits"

Lines = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class WaitVerdict:
    """``findings`` are sentences about what is wrong; ``counts`` say what happened."""

    findings: tuple[str, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Entry:
    """A line of the services' books."""

    order: str
    effect: str
    change: int
    at: float


def examine_waits(folder: Path, books: Path, lines: Lines) -> WaitVerdict:
    """Check the waits of a run's folder. Raises ``AuditError`` if its files cannot be read."""
    try:
        waits = json.loads((folder / FILE).read_text(encoding="utf-8"))
        with closing(sqlite3.connect(f"{books.resolve().as_uri()}?mode=ro", uri=True, timeout=10.0)) as db:
            rows = db.execute("SELECT order_id, effect, change, at FROM entry ORDER BY id").fetchall()
    except (OSError, ValueError, sqlite3.Error) as error:
        raise AuditError(f"the waits of the run cannot be read: {error}") from error
    entries: defaultdict[str, list[_Entry]] = defaultdict(list)
    for entry in map(_Entry, *zip(*rows, strict=True)) if rows else ():
        entries[entry.order].append(entry)
    customer_notes = notes(folder)
    lane_findings, lane_counts = examine_lanes(
        lines, {order: [(entry.effect, entry.at) for entry in each] for order, each in entries.items()}
    )
    findings = [
        *lane_findings,
        *_sleeps(lines, entries),
        *_signals(waits["signals"], customer_notes, lines),
        *_moments(waits["schedule"], waits["firings"], entries),
    ]
    return WaitVerdict(tuple(findings), {**_count(waits, customer_notes, lines), **lane_counts})


# -- sleeps and delays -----------------------------------------------------------------------------------------------


def _sleeps(lines: Lines, entries: Mapping[str, Sequence[_Entry]]) -> Iterator[str]:
    """No sleep is short, by the store's clock and by the books; nothing is done before an order was to begin."""
    for line in lines:
        order, books = line["order"], entries.get(line["order"], ())
        for wait in line.get("waits", ()):
            if wait["kind"] == "sleep" and wait["reason"] == "moment_came" and _is_short(wait):
                yield f"order {order}: slept {wait['end'] - wait['begin']:.3f} s and not {wait['length']:g} s"
        if RESUBMIT in line["acts"]:  # what was done then may have been done before the sleep
            continue
        if line.get("workflow") == rested.name:
            yield from _rest(line, books)
        if line["delay"] and books and books[0].at < line["submit_time"] + line["delay"] - TICK:
            early = line["submit_time"] + line["delay"] - books[0].at
            yield f"order {order}: {books[0].effect} was done {early:.3f} s before the order was to begin"


def _rest(line: Mapping[str, Any], books: Sequence[_Entry]) -> Iterator[str]:
    charge = next((entry.at for entry in books if entry.effect == "charge" and entry.change > 0), None)
    reserve = next((entry.at for entry in books if entry.effect == "reserve" and entry.change > 0), None)
    if charge is None or reserve is None:
        return
    nap = nap_of(line["cents"])
    if charge - reserve < nap - TICK:
        yield f"order {line['order']}: charged {charge - reserve:.3f} s after it was reserved, with a sleep of {nap:g} s between"


def _is_short(wait: Mapping[str, Any]) -> bool:
    return bool(wait["end"] - wait["begin"] < wait["length"] - TICK)


# -- signals ---------------------------------------------------------------------------------------------------------


def _signals(signals: Lines, customer_notes: Lines, lines: Lines) -> Iterator[str]:
    """Each acknowledged signal is there once, and used once, or kept; no wait has timed out over one."""
    by_id = {(signal["task"], signal["id"]): signal for signal in signals}
    commit_times: dict[tuple[str, str], float] = {}
    creations: Counter[tuple[str, str]] = Counter()
    for note in customer_notes:
        if note["kind"] != "signal":
            continue
        key = note["task"], note["id"]
        creations[key] += note["created"]
        if note["conflict"]:
            yield f"order {note['order']}: signal {note['id']} is in conflict with itself"
        if key not in by_id:
            yield f"order {note['order']}: signal {note['id']} was acknowledged and is lost"
            continue
        latest = by_id[key]["at"] + note["end"] - note["begin"]
        commit_times[key] = min(commit_times.get(key, latest), latest)
    for (_, id_), count in creations.items():
        if count > 1:
            yield f"signal {id_} was new {count} times"
    by_task: defaultdict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for signal in signals:
        by_task[signal["task"]].append(signal)
        if signal["used"] is None and not signal["kept"]:
            yield f"signal {signal['id']} of task {signal['task']} is neither used nor kept"
    for line in lines:
        yield from _uses(line, by_task[line["task"]])
        yield from _timeouts(line, by_task[line["task"]], commit_times)


def _uses(line: Mapping[str, Any], signals: Lines) -> Iterator[str]:
    """Every use of a signal has ended one wait, and every wait that a signal ended has used one."""
    uses = Counter(signal["used"] for signal in signals if signal["used"] is not None)
    ends = Counter(wait["idx"] for wait in line.get("waits", ()) if wait["reason"] == "signal_came")
    for idx in sorted(uses.keys() | ends.keys()):
        if uses[idx] != ends[idx]:
            yield f"order {line['order']}: {ends[idx]} waits of step {idx} ended by a signal, and it has used {uses[idx]}"
    steps = {str(signal["id"]): signal["used"] for signal in signals}
    for idx, id_ in line.get("results", {}).items():
        if steps.get(id_) != int(idx):
            yield f"order {line['order']}: step {idx} has the value of signal {id_}, which was used by {steps.get(id_)}"


def _timeouts(
    line: Mapping[str, Any], signals: Lines, commit_times: Mapping[tuple[str, str], float]
) -> Iterator[str]:
    for wait in line.get("waits", ()):
        if wait["reason"] not in TIMED_OUT:
            continue
        due = wait["begin"] + wait["length"]
        if wait["end"] < due - TICK:
            yield f"order {line['order']}: {wait['step']} timed out {due - wait['end']:.3f} s before its time"
        for signal in signals:
            commit_time = commit_times.get((signal["task"], signal["id"]))
            free = signal["used_at"] is None or signal["used_at"] > wait["end"]
            if commit_time is not None and commit_time < due - TICK and free:
                yield f"order {line['order']}: {wait['step']} timed out over signal {signal['id']}, committed {due - commit_time:.3f} s before"


# -- the schedule ------------------------------------------------------------------------------------------------------


def _moments(
    schedule: Mapping[str, Any], firings: Lines, entries: Mapping[str, Sequence[_Entry]]
) -> Iterator[str]:
    """Each moment has one task at most; each was fired, or skipped and counted; what its task did was done once."""
    every, head = schedule["every"], f"{SCHEDULE}@"
    begin, end = schedule["first"] // every, schedule["since"] // every
    moments = {_text(every * number) for number in range(int(begin) + 1, int(end) + 1)}
    fires = Counter(str(firing["key"]).removeprefix(head) for firing in firings)
    for moment, count in fires.items():
        if count > 1:
            yield f"moment {moment} of the schedule has {count} tasks"
        if moment not in moments:
            yield f"moment {moment} was fired, and the schedule has none then"
    if len(firings) != schedule["firings"]:
        yield f"the schedule counts {schedule['firings']} firings, and has {len(firings)} tasks"
    skips = sum(schedule["skips"].values())
    if len(moments) != len(fires) + skips:
        yield f"of {len(moments)} moments {len(fires)} were fired and {skips} skipped"
    if schedule["trouble"]:
        yield f"the schedule is in trouble: {schedule['trouble']}"
    states = {str(firing["key"]).removeprefix(head): firing["state"] for firing in firings}
    entry_counts = {
        order.removeprefix(MOMENT_PREFIX): sum(entry.change for entry in books)
        for order, books in entries.items()
        if order.startswith(MOMENT_PREFIX)
    }
    for moment in sorted(states.keys() | entry_counts.keys()):
        state, count = states.get(moment, "missing"), entry_counts.get(moment, 0)
        if count > 1:
            yield f"moment {moment} was settled {count} times"
        elif count and state == "missing":
            yield f"moment {moment} was settled, and has no task"
        elif not count and state == "processed":
            yield f"moment {moment} is processed, and was never settled"


def _text(instant: float) -> str:
    return datetime.fromtimestamp(instant, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _count(waits: Mapping[str, Any], customer_notes: Lines, lines: Lines) -> dict[str, int]:
    all_waits = [wait for line in lines for wait in line.get("waits", ())]
    signals = waits["signals"]
    orders = {line["task"]: line for line in lines}
    return {
        "tasks let go": sum(line.get("let_go", 0) for line in lines),
        "sleeps": sum(wait["reason"] == "moment_came" for wait in all_waits),
        "delayed orders": sum(line["delay"] > 0 for line in lines),
        "signals acknowledged": len({(n["task"], n["id"]) for n in customer_notes if n["kind"] == "signal"}),
        "signals sent again": sum(n["kind"] == "signal" and not n["created"] for n in customer_notes),
        "signals refused": sum(n["kind"] == "refused" for n in customer_notes),
        "signals unanswered": sum(n["kind"] == "unanswered" for n in customer_notes),
        "signals used": sum(signal["used"] is not None for signal in signals),
        "signals kept": sum(signal["used"] is None and _rests(orders, signal, "error") for signal in signals),
        "signals late": sum(
            signal["used"] is None and not _rests(orders, signal, "error") for signal in signals
        ),
        "waits timed out": sum(wait["reason"] in TIMED_OUT for wait in all_waits),
        "moments fired": len(waits["firings"]),
        **{f"moments skipped: {reason}": count for reason, count in waits["schedule"]["skips"].items()},
    }


def _rests(orders: Mapping[str, Mapping[str, Any]], signal: Mapping[str, Any], state: str) -> bool:
    return orders.get(signal["task"], {}).get("state") == state
