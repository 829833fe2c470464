"""The rates as an SVG picture: a bar for each entry of a cell, on a logarithmic scale, since they lie decades apart."""

import math
from collections.abc import Sequence
from html import escape

from benchmarks.figures import Result

_WIDTH, _LEFT, _RIGHT, _BAR, _GAP, _HEAD = 860, 190, 120, 18, 6, 34
_COLOURS = {"makegood": "#0b6e4f", "floor": "#9aa5b1"}
_OTHERS = "#c46210"


def svg(title: str, results: Sequence[Result]) -> str:
    """Return the picture of all results that are rates: steps per second, or tasks per second where there are no steps."""
    measurements = [r for r in results if "tasks_per_second" in r.figures and r.main]
    rows = list(dict.fromkeys(r.row for r in measurements))
    most = max((r.main or 1.0 for r in measurements), default=1.0)
    decades = max(1, math.ceil(math.log10(most)))
    out, y = [], 40
    for row in rows:
        unit = (
            "steps/s"
            if any("steps_per_second" in r.figures for r in measurements if r.row == row)
            else "tasks/s"
        )
        out.append(_text(12, y + 14, f"{row.title} ({unit})", "font-weight='bold'"))
        y += _HEAD - _BAR // 2
        for result in (r for r in measurements if r.row == row):
            out += _bar(y, result, decades)
            y += _BAR + _GAP
        y += _BAR
    return "\n".join(
        [
            f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {_WIDTH} {y + 10}' font-family='sans-serif' font-size='12'>",
            f"<rect width='{_WIDTH}' height='{y + 10}' fill='#ffffff'/>",
            _text(12, 22, title, "font-size='15'"),
            *_grid(decades, y),
            *out,
            "</svg>",
            "",
        ]
    )


def _x(value: float, decades: int) -> float:
    """Return where a value lies: 1 at the left, so many decades further at the right."""
    share = math.log10(max(1.0, value)) / decades
    return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)


def _grid(decades: int, height: int) -> list[str]:
    out = []
    for n in range(decades + 1):
        x = round(_x(10**n, decades))
        out.append(f"<line x1='{x}' y1='34' x2='{x}' y2='{height}' stroke='#e4e7eb'/>")
        out.append(_text(x, height + 4, f"{10**n:,}", "fill='#7b8794'"))
    return out


def _bar(y: int, result: Result, decades: int) -> list[str]:
    value = result.main or 0.0
    colour = _COLOURS.get(result.entry.peer, _OTHERS)
    length = max(1.0, _x(value, decades) - _LEFT)
    label = f"{value:,.0f}" if value >= 10 else f"{value:.2g}"
    return [
        _text(_LEFT - 8, y + 13, result.entry.title, "text-anchor='end'"),
        f"<rect x='{_LEFT}' y='{y}' width='{length:.1f}' height='{_BAR}' fill='{colour}'/>",
        _text(round(_LEFT + length + 6), y + 13, label),
    ]


def _text(x: int, y: int, words: str, more: str = "") -> str:
    return f"<text x='{x}' y='{y}' {more}>{escape(words)}</text>"
