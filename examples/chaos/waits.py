"""What the store says of waits when all is at rest: sleeps and waits for signals, signals, the moments of the schedule.

It is read once, into the lines of the orders and into ``waits.json``; ``wait_checks.py`` judges it beside the customers' own
notes and the services' books.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import makegood as mg
from examples.orders.shop import shop
from makegood import Client, StoreUnavailableError
from makegood.base import ids
from makegood.store.views import EventView, Filter, TaskDetail

from .orders import EVERY, SCHEDULE, settle_moment
from .stores import UnderFire

FILE: Final = "waits.json"
WAITS: Final = ("sleep", "wait_for")
_PAGE: Final = 1000


async def begin_schedule(client: Client) -> None:
    """Write the schedule whose moments are audited."""
    await client.schedule(SCHEDULE, settle_moment, mg.MOMENT, every=EVERY)


async def end_schedule(client: Client) -> None:
    """Pause it; raises ``StoreUnavailableError`` if the store is away: then it may be tried again."""
    handle = await client.find_schedule(SCHEDULE, app=shop.name)
    await handle.pause(why="the run is over", who="operator")


async def live_counts(client: Client, signals: int) -> dict[str, int]:
    """Return what can be counted while the run goes on, with the number of signals that customers have noted; nothing if
    the store is away.
    """
    try:
        asleep = await client.count(Filter(states=("sleeping",)))
        (view,) = await client.store.schedules.views(1, shop.name, SCHEDULE)
    except StoreUnavailableError:
        return {}
    return {"asleep": asleep, "signals": signals, "moments fired": view.firings}


def waits_of(detail: TaskDetail, events: Sequence[EventView]) -> list[dict[str, Any]]:
    """Return each time that a step of a task waited: when it began and ended on the store's clock, why it ended, and how
    long it was to last, None for without end.
    """
    steps = {step.name: step for step in detail.steps if step.kind in WAITS}
    begins: dict[str, float] = {}
    waits = []
    for event in events:
        for move in event.moves:
            if (step := steps.get(move.name)) is None:
                continue
            if move.after == "ready":
                begins[move.name] = event.at
            elif move.before == "ready":
                length = None
                if step.plan is not None and step.plan.args is not None:
                    length = float(step.plan.args.parts[0])
                waits.append(
                    {
                        "step": step.name, "idx": step.idx, "kind": step.kind, "begin": begins.pop(move.name), "end": event.at,
                        "reason": move.reason, "length": length,
                    }
                )  # fmt: skip
    return waits


def results_of(detail: TaskDetail) -> dict[str, str]:
    """Return the signals with which waits that are done have ended, by the step's index: a value carries its signal's id."""
    values = {
        step.idx: json.loads(step.result)["id"]
        for step in detail.steps
        if step.kind == "wait_for" and step.state == "done" and step.result is not None
    }
    return {str(idx): id_ for idx, id_ in values.items() if id_}


def let_go(events: Sequence[EventView]) -> int:
    """Return how often a Scheduler let a task go that only waited."""
    return sum(
        move.name == "task" and move.after == "sleeping" and move.before in ("processing", "undoing")
        for event in events
        for move in event.moves
    )


async def read(store: UnderFire, client: Client) -> dict[str, Any]:
    """Return the signals and the schedule as the store has them."""
    (view,) = await client.store.schedules.views(1, shop.name, SCHEDULE)
    rows = (await store.tables(("signal",)))["signal"]
    firings: list[dict[str, Any]] = []
    last = None
    while page := await client.store.tasks.find(
        Filter(workflow=settle_moment.name, limit=_PAGE, before=last)
    ):
        firings += [{"key": task.key, "task": ids.show(task.id), "state": task.state} for task in page]
        last = page[-1].id
    return {
        "signals": [
            {
                "task": ids.show(row["task"]), "id": row["id"], "at": row["at"], "used": row["used"], "used_at": row["used_at"],
                "kept": row["body"] is not None, "seq": row["seq"],
            }
            for row in rows
        ],
        "schedule": {
            "first": view.first_at, "since": view.since, "every": EVERY, "firings": view.firings, "skips": view.skips,
            "trouble": view.trouble,
        },
        "firings": firings,
    }  # fmt: skip


def write(folder: Path, waits: Mapping[str, Any]) -> None:
    """Write them to the run's folder."""
    (folder / FILE).write_text(json.dumps(waits), encoding="utf-8")
