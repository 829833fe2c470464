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


def _console(*, colored: bool) -> Console:
    return Console(
        no_color=not colored, highlight=False, markup=False, emoji=False, force_terminal=colored or None
    )


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, colored: bool) -> None:
    """Draw a table; a cell that is the name of a state has that state's colour."""
    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for n, head in enumerate(heads):
        right = all(is_number(row[n]) or row[n] == "-" for row in rows)
        drawn.add_column(head, justify="right" if right else "left", no_wrap=n == 0, overflow="fold")
    for row in rows:
        drawn.add_row(*(Text(cell, style=STYLES.get(cell, "")) for cell in row))
    _console(colored=colored).print(drawn)


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
