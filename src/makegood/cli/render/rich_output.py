"""Output for a person at a terminal: tables and live drawings, with rich. Loaded only when needed."""

from collections.abc import Collection, Mapping, Sequence
from typing import Self

from rich import box
from rich.console import Console
from rich.live import Live as RichLive
from rich.table import Table
from rich.text import Text

from makegood.base.terminal_text import visible
from makegood.cli.render.style import STYLES, Line, to_the_right

CUTS = (16, 12, 8)
"""Widths of a column that may be cut when the terminal is too narrow: the first that leaves room to read."""

READABLE, LEAST = 16, 8
"""Widths of the last column.

It folds if it has at least ``READABLE``, else it is cut. If it has less than ``LEAST``, a column before it is
left out.
"""

PADDING = 3
"""Blanks between two columns."""

EDGES = 2
"""Blanks before the first and behind the last."""


def _console(*, color: bool) -> Console:
    return Console(
        no_color=not color, highlight=False, markup=False, emoji=False, force_terminal=color or None
    )


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, color: bool, folds: bool = True) -> None:
    """Draw a table; a cell that is the name of a state has that state's colour.

    Columns without any value are left out. The first column (which people copy), numbers and states are never
    cut. The last column (which people read) folds, if ``folds`` allows. Where the terminal is too narrow, the
    columns between are cut first, then the last one; then columns before it are left out.
    """
    columns = [n for n in range(len(heads)) if n == 0 or any(row[n] != "-" for row in rows)]
    widest = {n: max(len(heads[n]), *(len(row[n]) for row in rows)) for n in columns}
    right = {n for n in columns if to_the_right(heads[n], [row[n] for row in rows])}
    whole = right | {n for n in columns if n == 0 or STYLES.keys() & {row[n] for row in rows}}
    console = _console(color=color)
    *before, last = columns
    widths, room = _fit(before, widest, whole, console.width, min(widest[last], READABLE))
    while room < min(widest[last], LEAST) and len(before) > 1:
        before.pop()
        widths, room = _fit(before, widest, whole, console.width, min(widest[last], READABLE))
    folds = folds and room >= READABLE
    widths[last] = min(widest[last], max(room, LEAST))
    columns = [*before, last]
    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for n in columns:
        grid.add_column(
            heads[n],
            justify="right" if n in right else "left",
            no_wrap=n != last or not folds,
            overflow="fold" if n == last and folds else "ellipsis",
            width=widths[n],
        )
    for row in rows:
        grid.add_row(*(Text(row[n], style=STYLES.get(row[n], "")) for n in columns))
    console.print(grid)


def _fit(
    before: Sequence[int], widest: Mapping[int, int], whole: Collection[int], width: int, last_width: int
) -> tuple[dict[int, int], int]:
    """Return the widths of all columns except the last, and the width left to the last.

    Columns are cut only as far as needed to leave ``last_width`` to the last one.
    """
    widths: dict[int, int] = {}
    room = 0
    for cut in (width, *CUTS):
        widths = {n: widest[n] if n in whole else min(widest[n], cut) for n in before}
        room = width - EDGES - sum(widths.values()) - PADDING * len(before)
        if room >= last_width:
            break
    return widths, room


def lines(content: Sequence[Line], *, color: bool = True, cut: bool = False) -> None:
    """Write styled lines; ``cut``: none longer than the terminal is wide."""
    console = _console(color=color)
    for line in content:
        console.print(_cut(line, console) if cut else _text(line), soft_wrap=True)


def _cut(line: Line, console: Console) -> Text:
    text = _text(line)
    text.truncate(console.width, overflow="ellipsis")
    return text


def _text(line: Line) -> Text:
    return Text.assemble(*((visible(text), style) for text, style in line))


class Live:
    """Draws lines over the last ones, until it is left."""

    def __init__(self, *, color: bool) -> None:
        self._console = _console(color=color)
        self._live = RichLive(
            console=self._console, auto_refresh=False, vertical_overflow="ellipsis", redirect_stdout=False
        )

    @property
    def height(self) -> int:
        """Lines that the terminal has."""
        return self._console.height

    def show(self, content: Sequence[Line]) -> None:
        """Draw these lines now."""
        self._live.update(Text("\n").join(_cut(line, self._console) for line in content), refresh=True)

    def __enter__(self) -> Self:
        """Begin to draw."""
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the last drawing standing."""
        self._live.stop()
