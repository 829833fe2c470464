"""Lays attempts out on a time axis whose quiet stretches are shortened. Pure; positions are percentages."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

IDLE_MOST, BUSY_MOST = 0.10, 0.40
"""The share of the axis that a stretch may take in which nothing runs, or nothing but waiting."""
BREAK: Final = 6.5
"""Percent of the axis that a broken stretch takes."""
MOST_BREAKS: Final = 5
LEAST_WHOLE: Final = 2
"""Stretches that are not broken, at least: the axis must have something to say."""
FUTURE: Final = 16.0
"""Percent of the axis after now, where what is planned appears, to no scale."""
THINNEST: Final = 0.35
"""Percent of the axis that a bar takes at least."""
NO_CALLS: Final = ("held", "nobody", "plan")
_UNITS: Final = (("d", 86400.0, 172800.0), ("h", 3600.0, 3600.0), ("min", 60.0, 60.0), ("s", 1.0, 1.0))
"""Units of a duration, each with its seconds, and with those from which on it is used."""
NICE: Final = tuple(m * 10.0**e for e in range(-4, 7) for m in (1, 2, 5))
MOST_TICKS: Final = 200
"""Labels that are tried for an unbroken part of the axis, at most: a row may say that it lasted forever."""
CHARACTER: Final = 1.1
"""Percent of the axis that a character of a label takes where the axis is narrowest."""
GAP: Final = 0.6
"""Percent between two labels, at least."""
APART: Final = 9.0
"""Percent between two labels."""


@dataclass(slots=True)
class Bar:
    """Something that lasted, in a row. Points in time are seconds."""

    row: int
    start: float
    end: float
    look: str
    """ok, undo, run, fail, need, none, probe, held, nobody, plan."""
    text: str = ""
    taken: float | None = None
    """When an agent took it: before, it waited in the queue."""
    due: float | None = None
    """Its deadline, where it matters."""
    late: float | None = None
    """A reply that came too late."""
    title: str = ""


@dataclass(slots=True)
class Axis:
    """Maps seconds to percent."""

    knots: list[tuple[float, float]] = field(default_factory=list)
    breaks: list[tuple[float, float, float]] = field(default_factory=list)
    """(from %, to %, seconds)."""

    def at(self, moment: float) -> float:
        """Return the place of a moment in percent."""
        first, last = self.knots[0], self.knots[-1]
        if moment <= first[0]:
            return first[1]
        n = bisect_left(self.knots, moment, key=lambda knot: knot[0])
        if n == len(self.knots):
            return last[1]
        (a, x), (b, y) = self.knots[n - 1], self.knots[n]
        return x + (y - x) * ((moment - a) / (b - a) if b > a else 1)


class DrawnBar(Bar):
    """A bar whose points in time are percent of the axis."""

    __slots__ = ()

    @property
    def begin(self) -> float:
        """Return where the call begins, after its wait in the queue."""
        return self.start if self.taken is None else self.taken

    @property
    def length(self) -> float:
        """Return how long the call is drawn."""
        return max(THINNEST, self.end - self.begin)


@dataclass(slots=True, kw_only=True)
class TimeChart:
    """What is drawn."""

    rows: list[str]
    bars: list[DrawnBar]
    ticks: list[tuple[float, str]]
    breaks: list[tuple[float, float, str]]
    cuts: list[tuple[float, int]]
    """(percent, row): a bar that continues through a break is cut there."""
    now: float | None = None
    turn: float | None = None
    planned: bool = False
    """Whether "planned" is written at the end of the axis."""
    says_turn: bool = False
    """Whether "turn" is written above its line."""
    folds: dict[int, tuple[str, bool]] = field(default_factory=dict)
    """row -> (what opens it, whether it is open): a row that has rows of its own."""
    items: set[int] = field(default_factory=set)
    """The rows of an open one."""
    more: int = 0
    """Rows that are not drawn."""


def axis(bars: Sequence[Bar], marks: Sequence[float] = (), until: float = 100.0) -> Axis:
    """Return an axis on which no quiet stretch takes more than its share."""
    calls = [bar for bar in bars if bar.look not in NO_CALLS]
    timed_bars = [bar for bar in bars if bar.look not in ("held", "plan")]
    points = sorted({
        *(round(t, 4) for bar in timed_bars for t in (bar.start, bar.end, bar.taken, bar.due, bar.late) if t is not None),
        *(round(mark, 4) for mark in marks),
    })  # fmt: skip
    if not points:
        points = [0.0]
    if len(points) == 1:
        points.append(points[0] + 0.001)
    busy = _merge(calls)
    stretches = [(a, b, _within(busy, a, b)) for a, b in pairwise(points)]
    breaks = _choose_breaks(stretches)
    free = until - BREAK * len(breaks)
    left = sum(b - a for n, (a, b, _) in enumerate(stretches) if n not in breaks) or 1.0
    scale, x = Axis([(points[0], 0.0)]), 0.0
    for n, (a, b, _) in enumerate(stretches):
        step = BREAK if n in breaks else (b - a) / left * free
        if n in breaks:
            scale.breaks.append((x, x + step, b - a))
        x += step
        scale.knots.append((b, x))
    return scale


def _merge(calls: Sequence[Bar]) -> list[tuple[float, float]]:
    """Return when anything runs, as stretches that do not touch."""
    spans: list[tuple[float, float]] = []
    for bar in sorted(calls, key=lambda bar: bar.start):
        if spans and bar.start <= spans[-1][1]:
            spans[-1] = spans[-1][0], max(spans[-1][1], bar.end)
        else:
            spans.append((bar.start, bar.end))
    return spans


def _within(busy: Sequence[tuple[float, float]], a: float, b: float) -> bool:
    """Return whether anything runs between two moments."""
    n = bisect_left(busy, (b,)) - 1
    return n >= 0 and busy[n][1] > a


def _choose_breaks(stretches: Sequence[tuple[float, float, bool]]) -> set[int]:
    """Return the stretches to break: the worst by its share of what is left, until none is over its share."""
    breaks: set[int] = set()
    while len(breaks) < min(MOST_BREAKS, len(stretches) - LEAST_WHOLE):
        left = sum(b - a for n, (a, b, _) in enumerate(stretches) if n not in breaks)
        shares = {
            n: (b - a) / left / (BUSY_MOST if busy else IDLE_MOST)
            for n, (a, b, busy) in enumerate(stretches)
            if n not in breaks
        }
        worst = max(shares, key=lambda n: shares[n])
        if shares[worst] <= 1:
            break
        breaks.add(worst)
    return breaks


def ticks(scale: Axis, origin: float) -> list[tuple[float, str]]:
    """Return (percent, label) of the axis: none inside a break, none too close to another."""
    spans = _spans(scale)
    steepest = max(((y - x) / (b - a) for a, x, b, y in spans), default=0.0)
    step = next((n for n in NICE if n * steepest >= APART), NICE[-1])
    labels: list[tuple[float, str]] = []
    for a, _, b, _ in spans:
        first = int((a - origin) / step + 0.999)
        last = int((b + 1e-9 - origin) / step)
        for k in range(first, min(last, first + MOST_TICKS) + 1):
            at = scale.at(origin + k * step)
            free = all(not p - 3 < at < q + 4 for p, q, _ in scale.breaks)
            before = labels[-1][0] if labels else -APART
            # The first label begins at the edge; the others are centred, and need less room.
            room = APART if before < 2 else APART * 0.6
            if free and at < 97.5 and at - before >= room:
                labels.append((at, duration_text(k * step, step)))
    return labels


def _spans(scale: Axis) -> list[tuple[float, float, float, float]]:
    """Return the unbroken parts of an axis as (from, at %, to, at %)."""
    spans: list[tuple[float, float, float, float]] = []
    for (a, x), (b, y) in pairwise(scale.knots):
        if any(abs(p - x) < 1e-6 and abs(q - y) < 1e-6 for p, q, _ in scale.breaks) or b <= a:
            continue
        if spans and abs(spans[-1][2] - a) < 1e-9:
            spans[-1] = (*spans[-1][:2], b, y)
        else:
            spans.append((a, x, b, y))
    return spans


def duration_text(value: float, step: float = 0.0) -> str:
    """Return words for seconds, as exact as the ``step`` between two of them asks for.

    >>> duration_text(0), duration_text(0.25), duration_text(3.0), duration_text(90, 30), duration_text(7200)
    ('0', '250 ms', '3 s', '1.5 min', '2 h')
    """
    if value == 0:
        return "0"
    for unit, size, least in _UNITS:
        if value >= least:
            fine = step / size if step else 0.1
            exact = 1 if fine >= 0.1 else 2 if fine >= 0.01 else 3
            text = f"{value / size:.{0 if fine >= 1 or value / size >= 1000 else exact}f}"
            return f"{text.rstrip('0').rstrip('.') if '.' in text and not step else text} {unit}"
    digits = 1 if step and step < 0.001 else 0
    return f"{value * 1000:.{digits}f} ms"


def chart(
    rows: Sequence[str],
    bars: Sequence[Bar],
    *,
    origin: float,
    now: float | None = None,
    turn: float | None = None,
) -> TimeChart:
    """Return what is drawn: bars in rows. ``origin``: the moment that the labels count from."""
    marks = [mark for mark in (now, turn) if mark is not None]
    has_plan = any(bar.look == "plan" for bar in bars)
    scale = axis(bars, marks, 100.0 - FUTURE if has_plan else 100.0)
    shapes = [_draw_bar(bar, scale) for bar in bars]
    cuts = [
        ((p + q) / 2, bar.row)
        for p, q, _ in scale.breaks
        for bar in shapes
        if bar.look not in NO_CALLS and bar.start < p + 0.01 and bar.end > q - 0.01
    ]
    line = _LabelLine()
    if now is not None:
        line.has_room(scale.at(now) + GAP, "now", "start")
    says_turn = turn is not None and line.has_room(scale.at(turn), "turn", "middle")
    is_planned = has_plan and line.has_room(98.5, "planned", "end")
    breaks = []
    for p, q, seconds in scale.breaks:
        text = f"+{duration_text(seconds)}"
        breaks.append((p, q, text if line.has_room((p + q) / 2, text, "middle") else ""))
    labels = [
        (at, text)
        for at, text in ticks(scale, origin)
        if line.has_room(at, text, "start" if at < 2 else "end" if at > 96 else "middle")
    ]
    return TimeChart(
        rows=list(rows),
        bars=shapes,
        ticks=labels,
        breaks=breaks,
        cuts=cuts,
        now=None if now is None else scale.at(now),
        turn=None if turn is None else scale.at(turn),
        planned=is_planned,
        says_turn=says_turn,
    )


class _LabelLine:
    """The line of labels above the rows: no two are printed over each other, and the first one stays."""

    def __init__(self) -> None:
        self._spans: list[tuple[float, float]] = []

    def has_room(self, at: float, text: str, anchor: str) -> bool:
        """Whether there is room for a text that starts, ends or has its middle there; it is taken then."""
        width = CHARACTER * len(text)
        start = at - {"start": 0.0, "middle": width / 2, "end": width}[anchor]
        is_free = all(start >= q + GAP or start + width <= p - GAP for p, q in self._spans)
        if is_free:
            self._spans.append((start, start + width))
        return is_free


def _draw_bar(bar: Bar, scale: Axis) -> DrawnBar:
    if bar.look == "plan":
        start = 101.5 - FUTURE
        return DrawnBar(bar.row, start, start + FUTURE - 3, "plan", bar.text, title=bar.title)
    start, end = scale.at(bar.start), max(scale.at(bar.start), scale.at(bar.end))
    call_start, due, late = (None if t is None else scale.at(t) for t in (bar.taken, bar.due, bar.late))
    text = bar.text if end - start > len(bar.text) * 1.1 else ""
    return DrawnBar(bar.row, start, end, bar.look, text, call_start, due, late, bar.title)
