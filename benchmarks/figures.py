"""Figures of several rounds made one: medians, the spread of the main one, and what stands beside what."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from benchmarks.plan import Entry, Row

MAIN = ("steps_per_second", "tasks_per_second", "takeover_seconds")
"""The figure by which a result is known: the first of these that it has."""


@dataclass(slots=True)
class Result:
    """What came of one entry in one cell. ``why``: the reason when nothing was measured, or a round of it failed."""

    row: Row
    entry: Entry
    rounds: list[dict[str, Any]] = field(default_factory=list)
    counts: dict[str, Any] = field(default_factory=dict)
    why: str = ""

    @property
    def figures(self) -> dict[str, float]:
        """The medians, and the counts."""
        return {**medians(self.rounds), **self.counts}

    @property
    def main(self) -> float | None:
        """The figure by which it is known; None when it was not measured."""
        figures = self.figures
        return next((figures[name] for name in MAIN if name in figures), None)


def medians(rounds: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the median of each number that the rounds have, and ``spread``: how far the main ones lie apart, as a share.

    >>> medians([{"tasks_per_second": 1.0}, {"tasks_per_second": 4.0}, {"tasks_per_second": 2.0}])
    {'tasks_per_second': 2.0, 'spread': 1.5}
    """
    names = {name: None for one in rounds for name, value in one.items() if isinstance(value, int | float)}
    figures = {name: float(median(one[name] for one in rounds if name in one)) for name in names}
    for name in MAIN:
        values = [one[name] for one in rounds if name in one]
        if values and figures[name]:
            figures["spread"] = (max(values) - min(values)) / figures[name]
            break
    return figures


def ratio(results: Sequence[Result], row: Row, ours: Entry, theirs: str) -> float | None:
    """Return how many times the best of ``theirs`` (a peer, in every way and on every store) ours is; None if not to be had.

    With ``floor`` only the same store is looked at: it is the limit there, and the ratio is a share.
    """
    mine = _main(results, row, ours)
    others = [
        value
        for result in results
        if result.row == row
        and result.entry.peer.split("-")[0] == theirs
        and (theirs != "floor" or result.entry.store == ours.store)
        and (value := result.main)
    ]
    return mine / max(others) if mine and others else None


def _main(results: Sequence[Result], row: Row, entry: Entry) -> float | None:
    return next((r.main for r in results if r.row == row and r.entry == entry), None)
