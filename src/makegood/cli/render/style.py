"""The look of results in a pipe and at a terminal: styled text, the colour of each state, columns of
numbers.
"""

from collections.abc import Mapping, Sequence

Span = tuple[str, str]
"""A piece of text and its style ("" for none), such as ("undoing", "yellow").

Styles are rich's words; only ``rich_output`` draws with them.
"""

Line = Sequence[Span]

STYLES: Mapping[str, str] = {
    "done": "green", "processed": "green", "running": "cyan", "processing": "cyan", "failed": "red", "error": "bold red",
    "in_doubt": "bold yellow", "undoing": "magenta", "undone": "magenta", "undo_failed": "bold red", "kept": "blue",
    "waiting": "dim", "skipped": "dim", "alive": "green", "dead": "bold red", "stopped": "dim",
}  # fmt: skip
"""The colour of each state. States of going backwards are magenta."""


def is_number(text: str) -> bool:
    """Whether a cell is right-aligned: digits, perhaps with a sign, a point, a unit or a slash.

    >>> is_number("12"), is_number("3.5 %"), is_number("2/10"), is_number("stock")
    (True, True, True, False)
    """
    return text[:1].isdigit() and not text.strip("0123456789.,/%+- smhd")


COUNTS = (
    "unanswered", "holds", "calls", "success", "mean", "rate", "waiting", "tries", "oldest", "size", "unsent", "gap before",
)  # fmt: skip
"""Heads of columns that hold numbers, when they hold anything."""


def to_the_right(head: str, cells: Sequence[str]) -> bool:
    """Whether a column is right-aligned: numbers only. A column without any value follows its heading.

    >>> to_the_right("n", ["1", "-"]), to_the_right("key", ["-"]), to_the_right("unanswered", ["-"])
    (True, False, True)
    """
    values = [cell for cell in cells if cell != "-"]
    return all(map(is_number, values)) if values else head in COUNTS
