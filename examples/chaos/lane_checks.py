"""What is wrong with the lanes of a run: never two orders in one, each in its turn, none forgotten. Nothing here acts.

The witnesses are the store's history (when an order queued, and had its lanes) and the services' books (when something was done
for it). Moments of the history are compared on the store's clock, those of the books on the services'.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations, pairwise
from typing import Any, Final, NamedTuple

from makegood.model.states import ENDED
from makegood.store.views import EventView

WAITED: Final = "orders that waited for a lane"
LATE_COMMIT: Final = 10.0
"""Seconds after which what a Scheduler has written is committed, or is not."""
HARMLESS: Final = ("email",)
"""What a request that was given up may still do after its order has ended."""

Lines = Sequence[Mapping[str, Any]]


class Turn(NamedTuple):
    """A time for which an order queued, and then had its lanes. ``seen``: by when everybody could see that it queued."""

    order: str
    queued: float
    taken: float
    left: float
    seen: float


def turns_of(events: Iterable[EventView], created: float, released: float | None) -> list[list[float | None]]:
    """Return when a task queued for its lanes, took them and left them, each time; None: it did not."""
    turns: list[list[float | None]] = []
    for event in events:
        for move in event.moves:
            if move.name != "task":
                continue
            if not turns:
                turns.append([created if move.before == "queued" else event.at, None, None])
            turn = turns[-1]
            if move.after == "queued" and (turn[1] is not None or turn[2] is not None):
                turns.append([event.at, None, None])
            elif move.after in ("processing", "undoing") and turn[1] is None:
                turn[1] = event.at
            elif move.after in ENDED and turn[2] is None:
                turn[2] = event.at
    if turns and turns[-1][2] is None:
        turns[-1][2] = released
    return turns


def examine_lanes(
    lines: Lines, entries: Mapping[str, Sequence[tuple[str, float]]]
) -> tuple[list[str], dict[str, int]]:
    """Return what is wrong, in sentences, and what happened. ``entries``: for each order the effects in the services' books, and
    when they were entered.
    """
    turns: defaultdict[str, list[Turn]] = defaultdict(list)
    windows: defaultdict[str, list[tuple[float, float, str]]] = defaultdict(list)
    for line in lines:
        seconds = [at for effect, at in entries.get(line["order"], ()) if effect not in HARMLESS]
        for lane in line.get("lanes", ()):
            turns[lane] += _turns(line)
            if seconds and not line["acts"]:
                windows[lane].append((min(seconds), max(seconds), line["order"]))
    findings = [
        *(text for lane in sorted(turns) for text in _crowds(lane, turns[lane])),
        *(text for lane in sorted(turns) for text in _order(lane, turns[lane])),
        *(text for lane in sorted(windows) for text in _mixed(lane, windows[lane])),
        *(
            f"order {line['order']} still waits for its lanes"
            for line in lines
            if line.get("state") == "queued"
        ),
    ]
    orders = {turn.order for each in turns.values() for turn in each}
    waits = {turn.order for each in turns.values() for turn in each if _waited(turn, each)}
    return findings, {"orders with lanes": len(orders), WAITED: len(waits)}


def _turns(line: Mapping[str, Any]) -> Iterator[Turn]:
    for number, (queued, taken, left) in enumerate(line["turns"]):
        delay = LATE_COMMIT if number or line["delay"] else line["ack_seconds"]
        yield Turn(
            line["order"],
            queued,
            math.inf if taken is None else taken,
            math.inf if left is None else left,
            queued + delay,
        )


def _waited(turn: Turn, others: Iterable[Turn]) -> bool:
    return any(
        other.order != turn.order and other.taken < turn.taken < math.inf and other.left > turn.queued
        for other in others
    )


def _crowds(lane: str, turns: Sequence[Turn]) -> Iterator[str]:
    """No two orders have a lane at the same time, by the store's history."""
    holders = sorted((turn for turn in turns if turn.taken < math.inf), key=lambda turn: turn.taken)
    for first, second in pairwise(holders):
        if second.taken < first.left:
            yield f"lane {lane}: order {second.order} took it at {second.taken:.3f}, and order {first.order} left it at {first.left:.3f}"


def _order(lane: str, turns: Sequence[Turn]) -> Iterator[str]:
    """No order takes a lane before another one that waits there before it, as far as its Scheduler could see that one."""
    for first, second in combinations(sorted(turns, key=lambda turn: turn.queued), 2):
        if first.queued < second.queued and first.seen < second.taken < first.taken < math.inf:
            yield f"lane {lane}: order {second.order} went before order {first.order}, which came {second.queued - first.queued:.3f} s before it"


def _mixed(lane: str, windows: Sequence[tuple[float, float, str]]) -> Iterator[str]:
    """What was done for two orders of a lane does not mix, by the services' books; of orders that no operator touched."""
    for (_, end, first), (begin, _, second) in pairwise(sorted(windows)):
        if begin < end:
            yield f"lane {lane}: order {second} was begun {end - begin:.3f} s before the last effect of order {first}"
