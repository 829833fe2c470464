"""Results on stdout: tables for people, aligned text for pipes, JSON for machines.

JSON is written by plain ``print``, never through rich, which would wrap and mark it up. Text from elsewhere
is made ``visible`` here, so that no command can forget it.
"""

import json
import os
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any, Final

import msgspec

from makegood.base import urls
from makegood.base.clock import date_text
from makegood.base.terminal_text import visible, visible_json
from makegood.base.text import storable_text
from makegood.cli.render.style import Line, to_the_right

Rows = Iterable[Sequence[object]]

_encode = msgspec.json.Encoder().encode


class Output:
    """Where results go. ``json``: JSON only; ``color``: auto, always or never."""

    def __init__(self, *, json: bool = False, color: str = "auto") -> None:
        self.json = json
        self._color = color

    @property
    def fancy(self) -> bool:
        """Whether a person reads: tables and live drawings instead of plain text."""
        return not self.json and (self._color == "always" or (self._color == "auto" and sys.stdout.isatty()))

    @property
    def has_color(self) -> bool:
        """Whether to colour. ``NO_COLOR`` leaves the tables."""
        return self.fancy and (self._color == "always" or not os.environ.get("NO_COLOR"))

    @property
    def unicode(self) -> bool:
        """Whether stdout can show arrows and marks."""
        return "utf" in (sys.stdout.encoding or "").lower()

    def document(self, value: object) -> None:
        """Write the one JSON document of a command."""
        text = msgspec.json.format(_encode(value), indent=2).decode()
        print("\n".join(map(_on_stdout, text.split("\n"))))

    def record(self, value: object) -> None:
        """Write one JSON object on a line of its own: for commands that stream."""
        print(_on_stdout(_encode(value).decode()), flush=True)

    def text(self, value: str = "") -> None:
        """Write a line of text."""
        print(visible(value), flush=True)

    def result(self, document: object, *lines: str) -> None:
        """Write the one JSON document of a command, or the same as lines of text."""
        if self.json:
            self.document(document)
        else:
            for line in lines:
                self.text(line)

    def value(self, value: bytes) -> None:
        """Write a value, which is JSON, on a line of its own."""
        print(_on_stdout(value.decode()), flush=True)

    def table(self, heads: Sequence[str], rows: Rows, *, empty: str, folds: bool = True) -> None:
        """Write a table. Numbers are right-aligned; cells that are states are coloured for people.

        ``empty``: the message for stderr when there are no rows. ``folds``: whether the last column may take
        several lines of a terminal; False for a list whose rows can be opened one by one.
        """
        cells = [[cell_text(cell) for cell in row] for row in rows]
        if not cells:
            print(visible(empty), file=sys.stderr)
        elif self.fancy:
            self._pretty().table(heads, cells, color=self.has_color, folds=folds)
        else:
            print(align(heads, cells))

    def listing(
        self, documents: Iterable[object], heads: Sequence[str], rows: Rows, *, empty: str, folds: bool = True
    ) -> None:
        """Write a list: one JSON document, or a table; only what is needed is drawn from the iterables."""
        if self.json:
            self.document(list(documents))
        else:
            self.table(heads, rows, empty=empty, folds=folds)

    def lines(self, lines: Iterable[Line]) -> None:
        """Write styled lines: coloured for people, as they are in a pipe."""
        if self.has_color:
            self._pretty().lines(list(lines))
        else:
            for line in lines:
                self.text(plain(line))

    def drawing(self, lines: Iterable[Line]) -> None:
        """Write styled lines; where a person's terminal is too narrow they end in an ellipsis.

        A pipe gets them whole.
        """
        if self.fancy:
            self._pretty().lines(list(lines), color=self.has_color, cut=True)
        else:
            self.lines(lines)

    def live(self) -> Any:
        """Return a context manager whose ``show(lines)`` draws lines over the previous ones; for people
        only.
        """
        return self._pretty().Live(color=self.has_color)

    def _pretty(self) -> Any:
        return import_module("makegood.cli.render.rich_output")  # rich is loaded only where somebody looks


def _on_stdout(text: str) -> str:
    """Return a JSON text in a form that stdout's encoding can carry.

    Characters that the encoding lacks become JSON escapes; in other text Python's own escapes replace them.
    """
    text = visible_json(text)
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return "".join(letter if letter.isascii() else json.dumps(letter)[1:-1] for letter in text)
    return text


def plain(line: Line) -> str:
    """Return a styled line as text."""
    return visible("".join(text for text, _ in line)).rstrip()


def cell_text(cell: object) -> str:
    """Return a table's cell as text: nothing is "-", a text stays on its line."""
    return "-" if cell is None or cell == "" else visible(str(cell))


def with_article(noun: str) -> str:
    """Return a noun with "a" or "an".

    >>> with_article("App"), with_article("Workflow")
    ('an App', 'a Workflow')
    """
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"


WIDEST: Final = 60
"""Characters of a column in a pipe, at most, to which shorter cells are padded."""


def align(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table as aligned text: columns two spaces apart, nothing wrapped, nothing cut.

    A cell of more than ``WIDEST`` characters moves the rest of its own line, and widens no other.

    >>> print(align(("id", "n"), [("a", "1"), ("bcd", "20")]))
    ID    N
    a     1
    bcd  20
    """
    widths = [
        max(len(head), *(len(row[n]) for row in rows if len(row[n]) <= WIDEST), 0)
        for n, head in enumerate(heads)
    ]
    right = [to_the_right(head, [row[n] for row in rows]) for n, head in enumerate(heads)]
    lines = [[head.upper() for head in heads], *rows]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in lines
    )


def clock_time(seconds: float) -> str:
    """Return a point in time as people at this machine read it: local time to the millisecond."""
    at = date_text(seconds, "%H:%M:%S.%f", local=True)
    return at if at == "?" else at[:-3]


def date_time(seconds: float | None) -> str:
    """Return a point in time with its date, local time to the second; "-" for None."""
    if seconds is None:
        return "-"
    return date_text(seconds, "%Y-%m-%d %H:%M:%S", local=True)


def recent(seconds: float, now: float) -> str:
    """Return a point in time for a narrow column.

    The local time alone when it is today, with its date otherwise.
    """
    at = date_time(seconds)
    return at[11:] if at[:10] == date_time(now)[:10] else at[:16]


def mask(url: str) -> str:
    """Return a URL without its secrets, as a text of UTF-8 whatever a file is called.

    >>> mask("postgresql://me:secret@db/shop")
    'postgresql://me:•••@db/shop'
    """
    return urls.mask_url(storable_text(url))
