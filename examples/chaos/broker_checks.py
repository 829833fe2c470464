"""What is wrong with the orders that came through a broker, and with the notices that went to it.

It reads ``broker.json`` of a run's folder, which a run without a broker does not have, and the ends of the orders.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .broker import FILE


@dataclass(frozen=True, slots=True)
class BrokerVerdict:
    """What was found; ``counts``: what happened, empty for a run without a broker."""

    findings: tuple[str, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)


def examine_broker(folder: Path, lines: Sequence[Mapping[str, Any]]) -> BrokerVerdict:
    """Check a run's folder. ``lines``: the ends of the orders."""
    path = folder / FILE
    if not path.exists():
        return BrokerVerdict()
    facts = json.loads(path.read_text(encoding="utf-8"))
    notices: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    ids = set()
    for notice in facts["notices"]:
        if notice["id"] not in ids:  # a repetition has the id of the first
            ids.add(notice["id"])
            notices[notice["task"]].append(notice)
    outcomes = {line["order"]: line["outcome"] for line in lines}
    findings = [
        *_orders(facts, outcomes),
        *(f"dead letters have {body}" for body in facts["dead"]),
    ]
    tasks = {task: order for order, own in facts["tasks"].items() for task in own}
    for task, order in tasks.items():
        findings += [
            f"order {order}: {text}" for text in _notices(notices.pop(task, []), outcomes.get(order))
        ]
    findings += [f"notices came of task {task}, which no published order is" for task in notices]
    counts = {
        "orders through the broker": len(facts["published"]),
        "orders published more than once": sum(count > 1 for count in facts["published"].values()),
        "notices": len(ids),
        "notices repeated": len(facts["notices"]) - len(ids),
    }
    return BrokerVerdict(tuple(findings), counts)


def _orders(facts: Mapping[str, Any], outcomes: Mapping[str, str]) -> Iterator[str]:
    for order, count in facts["published"].items():
        tasks = facts["tasks"].get(order, [])
        if len(tasks) != 1:
            yield f"order {order}, published {count} times, is {len(tasks)} tasks: {', '.join(tasks)}"
        elif order not in outcomes:
            yield f"order {order} is task {tasks[0]}, and its publisher does not know it"


def _notices(notices: Sequence[Mapping[str, Any]], outcome: str | None) -> Iterator[str]:
    numbers = [notice["sequence"] for notice in notices]
    if numbers != list(range(1, len(numbers) + 1)):
        yield f"its notices came as {numbers}"
    last = notices[-1]["state"] if notices else None
    if last != outcome:
        yield f"it is {outcome}, and the last notice says {last}"
