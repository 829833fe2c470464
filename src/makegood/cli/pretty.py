"""What a person at a terminal sees: tables and live drawings, with rich. Loaded only when somebody looks."""

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich import box
from rich.console import Console
from rich.live import Live as RichLive
from rich.table import Table
from rich.text import Text

from makegood.cli.output import STYLES, Line, is_number

CUT = 16
"""Width of a column that may be cut, where the terminal is too narrow for the table."""

PADDING = 3
"""Blanks between two columns."""


def _console(*, colored: bool) -> Console:
    return Console(
        no_color=not colored, highlight=False, markup=False, emoji=False, force_terminal=colored or None
    )


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, colored: bool) -> None:
    """Draw a table; a cell that is the name of a state has that state's colour.

    Columns without any value are left out. The first column (what one copies) is never cut, the last one (what one
    reads) folds, those between are cut where the terminal is too narrow.
    """
    kept = [n for n in range(len(heads)) if n == 0 or any(row[n] != "-" for row in rows)]
    widest = {n: max(len(heads[n]), *(len(row[n]) for row in rows)) for n in kept}
    console = _console(colored=colored)
    narrow = sum(widest.values()) + PADDING * len(kept) > console.width
    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for n in kept:
        right = all(is_number(row[n]) or row[n] == "-" for row in rows)
        whole = n == 0 or right or STYLES.keys() & {row[n] for row in rows}
        drawn.add_column(
            heads[n],
            justify="right" if right else "left",
            no_wrap=n != kept[-1],
            overflow="fold" if n == kept[-1] else "ellipsis",
            max_width=min(widest[n], CUT) if narrow and not whole and n != kept[-1] else None,
        )
    for row in rows:
        drawn.add_row(*(Text(row[n], style=STYLES.get(row[n], "")) for n in kept))
    console.print(drawn)


def lines(drawn: Sequence[Line]) -> None:
    """Write styled lines."""
    console = _console(colored=True)
    for line in drawn:
        console.print(_text(line), soft_wrap=True)


def _text(line: Line) -> Text:
    return Text.assemble(*((text, style) for text, style in line))


class Live:
    """Draws lines over the last ones, until it is left."""

    def __init__(self, *, colored: bool) -> None:
        self._console = _console(colored=colored)
        self._live = RichLive(
            console=self._console, auto_refresh=False, vertical_overflow="ellipsis", redirect_stdout=False
        )

    @property
    def height(self) -> int:
        """Lines that the terminal has."""
        return self._console.height

    def show(self, drawn: Sequence[Line]) -> None:
        """Draw these lines now."""
        self._live.update(Text("\n").join(_text(line) for line in drawn), refresh=True)

    def __enter__(self) -> Self:
        """Begin to draw."""
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Leave the last drawing standing."""
        self._live.stop()
