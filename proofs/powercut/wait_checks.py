"""What must be true of signals and moments once the engine has continued after a power cut.

Each signal was used once or is kept, each wait that a signal ended has used one, no sleep was short, and each
moment has one task at most.
"""

import json
import sqlite3
from collections import Counter
from typing import Final

SCHEDULE: Final = "tick"
_TICK: Final = 0.01
"""Seconds by which two readings of a clock may differ that mean the same."""


def wait_findings(connection: sqlite3.Connection) -> list[str]:
    """Return what is wrong with the waits of a store at rest."""
    uses: Counter[tuple[int, str]] = Counter()
    findings = []
    names = {
        (task, idx): name
        for task, idx, name in connection.execute("select task, idx, name from makegood_step")
    }
    rows = connection.execute("select task, id, used, body from makegood_signal").fetchall()
    for task, id_, idx, body in rows:
        if idx is not None:
            uses[task, names[task, idx]] += 1
        elif body is None:
            findings.append(f"signal {id_} of task {task} is neither used nor kept")
    ends: Counter[tuple[int, str]] = Counter()
    begins: dict[tuple[int, str], float] = {}
    lengths = {
        (task, name): float(json.loads(spec)["args"][0][0])
        for task, name, spec in connection.execute(
            "select task, name, spec from makegood_step where kind = 'sleep' and action = ''"
        )
    }
    for task, at, moves in connection.execute("select task, at, moves from makegood_event order by seq"):
        for name, _, after, reason, *_ in json.loads(moves):
            if reason == "signal_came":
                ends[task, name] += 1
            elif after == "ready":
                begins[task, name] = at
            elif reason == "moment_came" and (length := lengths.get((task, name))):
                rest = at - begins[task, name]
                if rest < length - _TICK:
                    findings.append(f"task {task}: {name} lasted {rest:.3f} s and not {length:g} s")
    findings += [
        f"task {task}: {ends[task, name]} waits of {name} ended by a signal, which used {uses[task, name]}"
        for task, name in uses.keys() | ends.keys()
        if uses[task, name] != ends[task, name]
    ]
    fires = connection.execute(
        "select count(*) from makegood_attribute where name = 'makegood.schedule' and value = ?", (SCHEDULE,)
    ).fetchone()[0]
    for (progress,) in connection.execute(
        "select progress from makegood_schedule where name = ?", (SCHEDULE,)
    ):
        count = json.loads(progress).get("firings", 0)
        if count != fires:
            findings.append(f"the schedule counts {count} firings, and has {fires} tasks")
    return findings
