"""Lays attempts out on a time axis whose quiet stretches are shortened. Pure; positions are percentages."""

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
FUTURE: Final = 14.0
"""Percent of the axis after now, where what is planned appears, to no scale."""
THINNEST: Final = 0.35
"""Percent of the axis that a bar takes at least."""
NO_CALLS: Final = ("held", "nobody", "plan")
NICE: Final = tuple(m * 10.0**e for e in range(-4, 7) for m in (1, 2, 5))
APART: Final = 9.0
"""Percent between two labels."""


@dataclass(slots=True, kw_only=True)
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
        for (a, x), (b, y) in pairwise(self.knots):
            if moment <= b:
                return x + (y - x) * ((moment - a) / (b - a) if b > a else 1)
        return last[1]


@dataclass(slots=True, kw_only=True)
class DrawnBar:
    """A bar in percent."""

    row: int
    look: str
    x: float
    width: float
    text: str = ""
    taken: float | None = None
    due: float | None = None
    late: float | None = None
    title: str = ""

    @property
    def begin(self) -> float:
        """Return where the call begins, after its wait in the queue."""
        return self.x if self.taken is None else self.taken

    @property
    def length(self) -> float:
        """Return how long the call is drawn."""
        return max(THINNEST, self.x + self.width - self.begin)


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
    folds: dict[int, tuple[str, bool]] = field(default_factory=dict)
    """row -> (what opens it, whether it is open): a row that has rows of its own."""
    items: set[int] = field(default_factory=set)
    """The rows of an open one."""
    more: int = 0
    """Rows that are not drawn."""


def axis(bars: Sequence[Bar], marks: Sequence[float] = (), until: float = 100.0) -> Axis:
    """Return an axis on which no quiet stretch takes more than its share."""
    calls = [bar for bar in bars if bar.look not in NO_CALLS]
    timed = [bar for bar in bars if bar.look not in ("held", "plan")]
    points = sorted({
        *(round(t, 4) for bar in timed for t in (bar.start, bar.end, bar.taken, bar.due, bar.late) if t is not None),
        *(round(mark, 4) for mark in marks),
    })  # fmt: skip
    if not points:
        points = [0.0]
    if len(points) == 1:
        points.append(points[0] + 0.001)
    stretches = [(a, b, any(bar.start < b and bar.end > a for bar in calls)) for a, b in pairwise(points)]
    broken = _broken(stretches)
    free = until - BREAK * len(broken)
    left = sum(b - a for n, (a, b, _) in enumerate(stretches) if n not in broken) or 1.0
    made, x = Axis([(points[0], 0.0)]), 0.0
    for n, (a, b, _) in enumerate(stretches):
        step = BREAK if n in broken else (b - a) / left * free
        if n in broken:
            made.breaks.append((x, x + step, b - a))
        x += step
        made.knots.append((b, x))
    return made


def _broken(stretches: Sequence[tuple[float, float, bool]]) -> set[int]:
    """Return the stretches to break: the worst by its share of what is left, until none is over its share."""
    broken: set[int] = set()
    while len(broken) < min(MOST_BREAKS, len(stretches) - LEAST_WHOLE):
        left = sum(b - a for n, (a, b, _) in enumerate(stretches) if n not in broken)
        shares = {
            n: (b - a) / left / (BUSY_MOST if busy else IDLE_MOST)
            for n, (a, b, busy) in enumerate(stretches)
            if n not in broken
        }
        worst = max(shares, key=lambda n: shares[n])
        if shares[worst] <= 1:
            break
        broken.add(worst)
    return broken


def ticks(scale: Axis, origin: float) -> list[tuple[float, str]]:
    """Return (percent, label) of the axis: none inside a break, none too close to another."""
    spans = _spans(scale)
    steepest = max(((y - x) / (b - a) for a, x, b, y in spans), default=0.0)
    step = next((n for n in NICE if n * steepest >= APART), NICE[-1])
    made: list[tuple[float, str]] = []
    for a, _, b, _ in spans:
        k = int((a - origin) / step + 0.999)
        while origin + k * step <= b + 1e-9:
            at = scale.at(origin + k * step)
            free = all(not p - 3 < at < q + 4 for p, q, _ in scale.breaks)
            before = made[-1][0] if made else -APART
            # The first label begins at the edge; the others are centred, and need less room.
            room = APART if before < 2 else APART * 0.6
            if free and at < 97.5 and at - before >= room:
                made.append((at, duration_text(k * step, step)))
            k += 1
    return made


def _spans(scale: Axis) -> list[tuple[float, float, float, float]]:
    """Return the unbroken parts of an axis as (from, at %, to, at %)."""
    made: list[tuple[float, float, float, float]] = []
    for (a, x), (b, y) in pairwise(scale.knots):
        if any(abs(p - x) < 1e-6 and abs(q - y) < 1e-6 for p, q, _ in scale.breaks) or b <= a:
            continue
        if made and abs(made[-1][2] - a) < 1e-9:
            made[-1] = (*made[-1][:2], b, y)
        else:
            made.append((a, x, b, y))
    return made


def duration_text(value: float, step: float = 0.0) -> str:
    """Return words for seconds, as exact as the ``step`` between two of them asks for.

    >>> duration_text(0), duration_text(0.25), duration_text(3.0), duration_text(90, 30), duration_text(7200)
    ('0', '250 ms', '3 s', '1.5 min', '2 h')
    """
    if value == 0:
        return "0"
    for unit, size, least in (
        ("d", 86400.0, 172800.0),
        ("h", 3600.0, 3600.0),
        ("min", 60.0, 60.0),
        ("s", 1.0, 1.0),
    ):
        if value >= least:
            fine = step / size if step else 0.1
            digits = (
                0 if fine >= 1 or value / size >= 1000 else 1 if fine >= 0.1 else 2 if fine >= 0.01 else 3
            )
            text = f"{value / size:.{digits}f}"
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
    planned = any(bar.look == "plan" for bar in bars)
    scale = axis(bars, marks, 100.0 - FUTURE if planned else 100.0)
    drawn = [_drawn(bar, scale) for bar in bars]
    cuts = [
        ((p + q) / 2, bar.row)
        for p, q, _ in scale.breaks
        for bar in drawn
        if bar.look not in NO_CALLS and bar.x < p + 0.01 and bar.x + bar.width > q - 0.01
    ]
    places = [scale.at(mark) for mark in marks]
    return TimeChart(
        rows=list(rows),
        bars=drawn,
        ticks=[tick for tick in ticks(scale, origin) if all(abs(tick[0] - place) > 4.5 for place in places)],
        breaks=[
            (p, q, "" if any(abs((p + q) / 2 - place) < 5 for place in places) else duration_text(seconds))
            for p, q, seconds in scale.breaks
        ],
        cuts=cuts,
        now=None if now is None else scale.at(now),
        turn=None if turn is None else scale.at(turn),
        planned=planned,
    )


def _drawn(bar: Bar, scale: Axis) -> DrawnBar:
    if bar.look == "plan":
        return DrawnBar(
            row=bar.row, look="plan", x=101.5 - FUTURE, width=FUTURE - 3, text=bar.text, title=bar.title
        )
    x, end = scale.at(bar.start), scale.at(bar.end)
    return DrawnBar(
        row=bar.row,
        look=bar.look,
        x=x,
        width=max(end - x, 0.0),
        text=bar.text if end - x > len(bar.text) * 1.1 else "",
        taken=None if bar.taken is None else scale.at(bar.taken),
        due=None if bar.due is None else scale.at(bar.due),
        late=None if bar.late is None else scale.at(bar.late),
        title=bar.title,
    )
