"""The name that was probably meant by one that is not known."""

import difflib
from collections.abc import Iterable


def meant(name: str, known: Iterable[str]) -> str:
    """Return what to ask about a name that is not one of those known, "" when none is like it.

    >>> meant("book_rom", ["book_room", "pay"]), meant("x", ["book_room", "pay"])
    ("did you mean 'book_room'?", '')
    """
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean {near[0]!r}?" if near else ""
