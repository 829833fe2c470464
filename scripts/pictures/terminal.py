"""Run a command in a terminal of a fixed size, and keep what it draws: frames of rows of styled text.

The terminal knows what rich uses: colours, moves of the cursor, erased lines. Nothing else is drawn here.
"""

import codecs
import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import wait
from pathlib import Path
from typing import NamedTuple

Span = tuple[int, str, str]
"""A column, the text that begins there, and its style: CSS classes."""
Row = tuple[Span, ...]
Drawn = tuple[Row, ...]

_CODE = re.compile(r"\x1b(?:\[([?0-9;]*)([A-Za-z])|\][^\x07\x1b]*(?:\x07|\x1b\\)|[=>78()][AB0]?)")
_BEGUN = re.compile(r"\x1b(?:\[[?0-9;]*|\][^\x07\x1b]*)?$")
_TITLES = {1: "b", 2: "d", 3: "i", 4: "u", 7: "r"}
_OFF = {22: "bd", 23: "i", 24: "u", 27: "r"}


class Frame(NamedTuple):
    """What stands on the screen from a moment on."""

    at: float
    """Seconds since the command began."""
    rows: Drawn


class Screen:
    """A terminal's screen; what runs out at its top is kept above it."""

    def __init__(self, columns: int, lines: int) -> None:
        self.columns = columns
        self.lines = lines
        self._rows: list[dict[int, tuple[str, str]]] = [{}]
        self._row = self._column = 0
        self._marks: set[str] = set()
        self._color = self._begun = ""

    def feed(self, text: str) -> None:
        """Draw what a program wrote."""
        text = self._begun + text
        match = _BEGUN.search(text)  # a code that one read cut in two
        self._begun = match[0] if match else ""
        text = text[: len(text) - len(self._begun)]
        place = 0
        for code in _CODE.finditer(text):
            self._write(text[place : code.start()])
            place = code.end()
            if code[2] is not None:
                self._obey(code[1], code[2])
        self._write(text[place:])

    def _write(self, text: str) -> None:
        for letter in text:
            if letter == "\n":
                self._row += 1
            elif letter == "\r":
                self._column = 0
            elif letter >= " ":
                if self._column >= self.columns:
                    self._row, self._column = self._row + 1, 0
                while len(self._rows) <= self._row:
                    self._rows.append({})
                style = " ".join([*sorted(self._marks), *([self._color] if self._color else [])])
                self._rows[self._row][self._column] = (letter, style)
                self._column += 1
            while len(self._rows) <= self._row:
                self._rows.append({})

    def _obey(self, parameters: str, verb: str) -> None:
        numbers = [int(part) for part in parameters.lstrip("?").split(";") if part]
        first = numbers[0] if numbers else 0
        if verb == "m":
            self._paint(numbers or [0])
        elif verb == "A":
            self._row = max(0, self._row - max(1, first))
        elif verb == "B":
            self._row += max(1, first)
        elif verb == "G":
            self._column = max(1, first) - 1
        elif verb == "K":
            row = self._rows[self._row].items()
            self._rows[self._row] = {} if first == 2 else {n: cell for n, cell in row if n < self._column}
        elif verb in "HJ":
            top = max(0, len(self._rows) - self.lines)
            self._row, self._column = (top, 0) if verb == "H" else (self._row, self._column)
            if verb == "J":
                del self._rows[self._row + (0 if first == 2 else 1) :]
                self._rows += [{}] * (self._row + 1 - len(self._rows))

    def _paint(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            if number == 0:
                self._marks.clear()
                self._color = ""
            elif number in _TITLES:
                self._marks.add(_TITLES[number])
            elif number in _OFF:
                self._marks -= set(_OFF[number])
            elif 30 <= number <= 37 or 90 <= number <= 97:
                self._color = f"c{number - 30 if number < 90 else number - 82}"
            elif number == 39:
                self._color = ""
            else:
                raise ValueError(f"the terminal of the pictures knows no colour {number}")

    def rows(self) -> Drawn:
        """Return what stands there: each row's text, in pieces of one style."""
        rows = [_spans(row) for row in self._rows]
        while rows and not rows[-1]:
            rows.pop()
        return tuple(rows)


def _spans(cells: Mapping[int, tuple[str, str]]) -> Row:
    spans: list[Span] = []
    for column in sorted(cells):
        letter, style = cells[column]
        last = spans[-1] if spans else None
        if last is not None and last[2] == style and last[0] + len(last[1]) == column:
            spans[-1] = (last[0], last[1] + letter, style)
        else:
            spans.append((column, letter, style))
    visible = [(column, text, style) for column, text, style in spans if text.strip() or "u" in style.split()]
    return tuple((column, text.rstrip() or text, style) for column, text, style in visible)


def plain(rows: Drawn) -> list[str]:
    """Return the text of a screen, without its styles."""
    lines = []
    for row in rows:
        line = ""
        for column, text, _ in row:
            line = line.ljust(column) + text
        lines.append(line)
    return lines


def run(
    command: Sequence[str], *, columns: int, lines: int, folder: Path, environment: Mapping[str, str], limit: float = 120.0
) -> list[Frame]:  # fmt: skip
    """Return what a command draws, frame by frame; the last one is what stands in the end. Raises ``TimeoutError``."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    terminal = {"TERM": "xterm", "COLUMNS": str(columns), "LINES": str(lines)}
    program = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder, env={**environment, **terminal},
        start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    screen, frames = Screen(columns, lines), [Frame(0.0, ())]
    decode = codecs.getincrementaldecoder("utf-8")().decode
    began = time.monotonic()
    try:
        while True:
            if time.monotonic() - began > limit:
                raise TimeoutError(f"{' '.join(command)} did not end within {limit:g} s")
            if not wait([ours], 0.5):
                continue
            try:
                data = os.read(ours, 65536)
            except OSError:  # the last one who had it open is gone
                break
            if not data:
                break
            screen.feed(decode(data))
            frames.append(Frame(time.monotonic() - began, screen.rows()))
    finally:
        program.kill()
        program.wait()
        os.close(ours)
    return frames
