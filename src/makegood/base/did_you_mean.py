"""Suggests the known name that an unknown one probably stands for."""

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return a "did you mean" question for an unknown name; "" if no known name is similar.

    >>> did_you_mean("book_rom", ["book_room", "pay"]), did_you_mean("x", ["book_room", "pay"])
    ("did you mean 'book_room'?", '')
    """
    near = difflib.get_close_matches(name, list(names), n=1)
    return f"did you mean {near[0]!r}?" if near else ""
