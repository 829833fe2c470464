"""How every order ended: waits until all is at rest, then reads it, once, into lines that ``checker.py`` judges.

A line is what the auditor reads (order, cents, outcome, standing) and what the shop's own records say beside it: the steps,
the alerts, what the history says last, what its customer was told first, and what operators asked for.
"""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from makegood import Client, StoreUnavailableError
from makegood.model.states import UNBEGUN
from makegood.store.views import Filter

from .broker import Broker
from .customers import Ledger, Placed, ending
from .lane_checks import turns_of
from .stores import UnderFire
from .waits import let_go, results_of, waits_of

FILE: Final = "ends.jsonl"
UNRESTED: Final = ("queued", "pending", "sleeping", "processing", "undoing")
TABLES: Final = (
    "task", "step", "request", "inbox", "signal", "schedule", "attribute", "lane", "event", "alert", "audit", "lease", "node",
)  # fmt: skip
LOOK_EVERY: Final = 0.3
SHOWN: Final = 20
TOO_OLD: Final = "that the service keeps it"
"""What the cause of an order says whose request was not sent again."""


async def at_rest(
    store: UnderFire, client: Client, timeout: float, broker: Broker | None = None
) -> list[str]:
    """Wait until every task has ended, nothing is in flight and no message waits, nor at the ``broker`` or for it; return what
    is still there after ``timeout`` seconds, in words.
    """
    deadline = time.monotonic() + timeout
    while True:
        try:
            left = await _left(store, client)
            if broker is not None and not left:
                left = await broker.left(client)
        except (StoreUnavailableError, OSError) as error:
            left = [f"the store is not back: {error}"]
        if not left or time.monotonic() > deadline:
            return left[:SHOWN]
        await asyncio.sleep(LOOK_EVERY)


async def _left(store: UnderFire, client: Client) -> list[str]:
    leftovers = [
        f"task {view.id} is {view.state}, held by {view.locked_by}"
        for view in await client.store.tasks.find(Filter(states=UNRESTED, limit=SHOWN))
    ]
    for table, rows in (await store.tables(("request", "inbox"))).items():
        leftovers += [f"{table}: task {row['task']} {row['kind']}" for row in rows]
    return leftovers


async def read(ledger: Ledger, client: Client) -> list[dict[str, Any]]:
    """Return a line for each order whose submission was acknowledged."""
    return [await _line(client, placement) for placement in ledger.orders.values()]


async def _line(client: Client, placement: Placed) -> dict[str, Any]:
    task = client.task(placement.handle.number)
    line: dict[str, Any] = {"order": placement.order.id, "cents": placement.order.cents, "task": task.id}
    line |= {"first": placement.first, "acts": placement.acts, "outcome": "", "standing": []}
    line |= {
        "delay": placement.delay,
        "submit_time": placement.submit_time,
        "ack_seconds": placement.ack_seconds,
    }
    detail = await client.store.tasks.detail(placement.handle.number)
    if detail is None:  # acknowledged, and gone: the auditor calls it lost
        return line
    line |= {"workflow": detail.task.workflow, "state": detail.task.state, "goal": detail.task.goal}
    line |= {
        "locked_by": detail.task.locked_by,
        "epoch": detail.task.epoch,
        "failures": detail.task.failure_count,
        "cause": detail.task.cause,
    }
    line["steps"] = {step.name: [step.state, step.round] for step in detail.steps}
    if detail.task.state not in UNRESTED:
        line["outcome"], standing, _ = await ending(task)
        line["standing"] = sorted(standing)
    events = await client.store.tasks.history(placement.handle.number)
    moves = [after for event in events for who, _, after, _ in event.moves if who == "task"]
    unmoved = detail.task.state if detail.task.state in UNBEGUN else "pending"
    line["told_by_history"] = moves[-1] if moves else unmoved
    line["late"] = sum("late" in event.note for event in events)
    line |= {"waits": waits_of(detail, events), "results": results_of(detail), "let_go": let_go(events)}
    if detail.lanes:
        line["lanes"] = [place.name for place in detail.lanes]
        line["turns"] = turns_of(events, detail.task.created, placement.released)
    line["alerts"] = [alert.kind for alert in await client.store.alerts.views(20, placement.handle.number)]
    return line


def write(folder: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    """Write the lines to the run's folder."""
    (folder / FILE).write_text("".join(json.dumps(line) + "\n" for line in lines))


async def keep(store: UnderFire, folder: Path) -> None:
    """Write all rows of the store's tables to the run's folder: a private server takes its own away."""
    with (folder / "tables.jsonl").open("w", encoding="utf-8") as file:
        for table, rows in (await store.tables(TABLES)).items():
            file.writelines(json.dumps({"table": table, **row}, default=_text) + "\n" for row in rows)


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


async def recoveries(store: UnderFire, lines: Sequence[Mapping[str, Any]]) -> Counter[str]:
    """Count what the shop went through: what was judged, taken over, led anew, answered too late."""
    tables = await store.tables(("lease", "alert", "node"))
    counts = Counter(
        {
            "silent attempts judged": sum(line.get("failures", 0) for line in lines),
            "orders taken over": sum(line.get("epoch", 1) > 1 for line in lines),
            "keys too old to be sent again": sum(TOO_OLD in line.get("cause", "") for line in lines),
            "late replies": sum(line.get("late", 0) for line in lines),
            "terms of a leader": max((row["epoch"] for row in tables["lease"]), default=0),
            "processes that worked": len(tables["node"]),
        }
    )
    counts.update(f"alert: {row['kind']}" for row in tables["alert"])
    return counts
