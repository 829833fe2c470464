"""Many rows by one call of the driver.

The driver takes the interpreter's lock back after each row of ``executemany`` and after each statement, and a writing thread beside
a busy event loop waits for it each time. So rows that differ in their task alone, or in their task and one value, are handed
over as one JSON text, which SQLite reads row by row while the interpreter does something else; it is cheaper, too, than
to bind each row. Everything else that such rows have is bound once, as a value that they share.

And all that a batch changes in this way goes in with *one* call: each change is a row of a view, and a trigger of that view carries it out
with the statement of its kind. View and triggers are the connection's own (``temp``): no file ever has them.

A statement reads its rows from ``json_each(?1) x``. Of *tasks* it finds ``x.value``. Of *spans* it finds the task as
``x.key``, a text, and in ``x.value`` where in ``?2``, all values joined, its own one is: ``SPAN`` cuts it out. What is shared
are ``?3`` and so on.
"""

import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import accumulate
from typing import Any

import msgspec

SPAN = "substr(?2, (x.value >> 32) + 1, x.value & 4294967295)"
"""The value of a row of spans. (Ours are never empty; empty ones alone would come out as null.)"""

UNUSED = 0
"""What stands for a value that a change does not have: the driver asks around how ``None`` or bytes could be made to fit, which
costs 2 µs each time, but knows numbers, texts and byte arrays.
"""

OVERTAKEN = "makegood: overtaken"
"""What a statement raises, by ``raise(fail, ...)``, when what it expects is not so any more."""

_MOST_BYTES = 64 * 1024 * 1024
"""So much at most is joined at once; SQLite takes no value above a thousand million bytes."""

_SHARED = "abcdefgh"
_COLUMNS = ("kind", "given", "data", *_SHARED)
_MOST_CHANGES = 32  # in one call; there is a statement for each power of two up to it

Change = tuple[Any, ...]
"""A kind, ``?1``, ``?2`` and so on."""


class OvertakenError(Exception):
    """Something was not as a statement expects it."""


def install(connection: sqlite3.Connection, statements: Mapping[str, str]) -> None:
    """Give a connection the view and a trigger for each kind of change, if it has none yet."""
    nothing = ", ".join(f"null as {name}" for name in _COLUMNS)
    connection.execute(f"create temp view if not exists makegood_change as select {nothing}")
    for kind, text in statements.items():
        connection.execute(_trigger(kind, text))


@cache
def _trigger(kind: str, text: str) -> str:
    """Return the statement that makes the trigger for a kind of change."""
    body = re.sub(r"\?(\d+)", lambda found: f"new.{_COLUMNS[int(found[1])]}", text)
    return f"create temp trigger if not exists makegood_{kind} instead of insert on makegood_change when new.kind = '{kind}' begin {body}; end"


def write(connection: sqlite3.Connection, changes: Sequence[Change]) -> None:
    """Make changes, in their order. Raises ``OvertakenError``; then, as after any failure, the transaction has to be rolled back."""
    for start in range(0, len(changes), _MOST_CHANGES):
        part = changes[start : start + _MOST_CHANGES]
        size = 1 << (len(part) - 1).bit_length()  # few sizes: each statement is long, and compiled once
        values: list[Any] = []
        for change in part:
            values += change
            values += [UNUSED] * (len(_COLUMNS) - len(change))
        values += [UNUSED] * (len(_COLUMNS) * (size - len(part)))  # of no kind: nothing is done
        try:
            connection.execute(_insert(size), values)
        except sqlite3.IntegrityError as fault:
            if str(fault) == OVERTAKEN:
                raise OvertakenError from fault
            raise


@lru_cache(maxsize=_MOST_CHANGES)
def _insert(count: int) -> str:
    """Return the statement for so many changes. "or fail": SQLite need not keep copies of pages to undo a part by itself."""
    row = f"({', '.join('?' * len(_COLUMNS))})"
    return f"insert or fail into makegood_change values {', '.join([row] * count)}"  # noqa: S608


_encode = msgspec.json.Encoder().encode  # an id has 19 digits, which ``str`` takes ten times as long to write


def tasks(of: Sequence[int] | Mapping[int, int]) -> str:
    """Return task ids, or numbers with the task of each, as the text for ``?1``.

    >>> tasks([7, 8]), tasks({1: 7, 2: 8})
    ('[7,8]', '{"1":7,"2":8}')
    """
    return _encode(of).decode()


def spans(of: Sequence[int], values: Sequence[bytes]) -> Iterator[tuple[str, bytearray]]:
    """Return tasks and the value of each as the texts for ``?1`` with the byte strings for ``?2``: nearly always one of each.

    >>> list(spans([7, 8], [b"abc", b"de"]))
    [('{"7":3,"8":12884901890}', bytearray(b'abcde'))]
    """
    sizes = [*map(len, values)]
    starts = [*accumulate(sizes, initial=0)]
    if len(of) > 1 and starts[-1] > _MOST_BYTES:
        middle = len(of) // 2
        yield from spans(of[:middle], values[:middle])
        yield from spans(of[middle:], values[middle:])
    elif of:
        places = [start << 32 | size for start, size in zip(starts, sizes, strict=False)]
        found = dict(zip(of, places, strict=True))
        if len(found) == len(of):
            given = tasks(found)
        else:  # a task stands there twice, as only JSON can say
            pairs = [f'"{task}":{place}' for task, place in zip(of, places, strict=True)]
            given = f"{{{','.join(pairs)}}}"
        yield given, bytearray().join(values)
