"""Bulk writes: many rows in one call of the driver.

The driver reacquires the interpreter's lock after each row of ``executemany`` and after each statement. A
writing thread beside a busy event loop waits for the lock each time. So rows that differ only in their task,
or in their task and one value, are passed as one JSON text. SQLite reads that text row by row while the
interpreter does something else. This is also cheaper than binding each row. All other values of such rows are
shared, and bound once.

All changes that a batch makes in this way go in with *one* call. Each change is a row of a view, and a
trigger of that view executes the statement of its kind. View and triggers belong to the connection
(``temp``): they are never in a file.

A statement reads its rows from ``json_each(?1) x``, in one of two forms:

- *tasks*: ``x.value`` is the task.
- *spans*: ``x.key`` is the task, as a text. ``?2`` holds the values of all rows, joined. ``x.value`` is
  ``start << 32 | size``: the position of the row's value in ``?2``, from 0, and its size in bytes.
  ``SPAN`` cuts the value out.

The shared values are ``?3`` and so on.

A worked example of spans: ``submit`` inserts task 7, the first of its batch, with the key ``order-17``. What
differs from task to task is one byte string. (A real fingerprint and static part are longer.) ::

    000000000               number of the task in its batch, 9 digits
    0000000008              length of the key in bytes, 10 digits; each text that the task has adds one length
    order-17                the key; after it the other texts, in the order of their lengths
    FFFF                    the fingerprint; its size is a shared value
    SSSSSS                  the static part: everything up to the end of the span

    ?1 = '{"7":37}'         0 << 32 | 37: 37 bytes from position 0
    ?2 = b'0000000000000000008order-17FFFFSSSSSS'

A second task 8 with 48 bytes would give ``"8":158913790000``, which is ``37 << 32 | 48``: 48 bytes from
position 37.
"""

import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import accumulate
from typing import Any

import msgspec

SPAN = "substr(?2, (x.value >> 32) + 1, x.value & 4294967295)"
"""The value of a row of spans. (Our values are never empty. If all were empty, they would read as null.)"""

UNUSED = 0
"""Placeholder for a value that a change does not have.

For ``None`` and bytes the driver searches for an adapter, which costs 2 µs each time. Numbers, texts and byte
arrays need none.
"""

OVERTAKEN = "makegood: overtaken"
"""The message that a statement raises, by ``raise(fail, ...)``, if its expectation no longer holds."""

_MOST_BYTES = 64 * 1024 * 1024
"""The most bytes joined into one value. SQLite accepts at most a thousand million bytes."""

_SHARED = "abcdefgh"
_COLUMNS = ("kind", "given", "data", *_SHARED)
_MOST_CHANGES = 32  # in one call; each power of two up to this has its own statement

Change = tuple[Any, ...]
"""The kind of a change, then the values ``?1``, ``?2`` and so on."""


class OvertakenError(Exception):
    """A statement's expectation no longer holds."""


def install(connection: sqlite3.Connection, statements: Mapping[str, str]) -> None:
    """Create the view, and a trigger for each kind of change, unless the connection has them already."""
    empty_row = ", ".join(f"null as {name}" for name in _COLUMNS)
    connection.execute(f"create temp view if not exists makegood_change as select {empty_row}")
    for kind, text in statements.items():
        connection.execute(_trigger(kind, text))


@cache
def _trigger(kind: str, text: str) -> str:
    """Return the statement that creates the trigger for a kind of change."""
    body = re.sub(r"\?(\d+)", lambda match: f"new.{_COLUMNS[int(match[1])]}", text)
    return f"create temp trigger if not exists makegood_{kind} instead of insert on makegood_change when new.kind = '{kind}' begin {body}; end"


def write(connection: sqlite3.Connection, changes: Sequence[Change]) -> None:
    """Make changes, in order.

    Raises ``OvertakenError``. After this, as after any failure, the transaction must be rolled back.
    """
    for start in range(0, len(changes), _MOST_CHANGES):
        part = changes[start : start + _MOST_CHANGES]
        size = 1 << (len(part) - 1).bit_length()  # few sizes: the statements are long, each is compiled once
        values: list[Any] = []
        for change in part:
            values += change
            values += [UNUSED] * (len(_COLUMNS) - len(change))
        values += [UNUSED] * (len(_COLUMNS) * (size - len(part)))  # no kind: nothing is done
        try:
            connection.execute(_insert(size), values)
        except sqlite3.IntegrityError as fault:
            if str(fault) == OVERTAKEN:
                raise OvertakenError from fault
            raise


@lru_cache(maxsize=_MOST_CHANGES)
def _insert(count: int) -> str:
    """Return the statement for ``count`` changes.

    With "or fail" SQLite does not have to keep copies of pages to undo part of the statement by itself.
    """
    row = f"({', '.join('?' * len(_COLUMNS))})"
    return f"insert or fail into makegood_change values {', '.join([row] * count)}"  # noqa: S608


_encode = msgspec.json.Encoder().encode  # an id has 19 digits; ``str`` takes ten times as long to write it


def tasks(of: Sequence[int] | Mapping[int, int]) -> str:
    """Return the text for ``?1`` from task ids, or from a mapping of numbers to task ids.

    >>> tasks([7, 8]), tasks({1: 7, 2: 8})
    ('[7,8]', '{"1":7,"2":8}')
    """
    return _encode(of).decode()


def spans(of: Sequence[int], values: Sequence[bytes]) -> Iterator[tuple[str, bytearray]]:
    """Yield texts for ``?1`` with the byte strings for ``?2``, from tasks and one value for each; nearly
    always one pair.

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
        place_by_task = dict(zip(of, places, strict=True))
        if len(place_by_task) == len(of):
            text = tasks(place_by_task)
        else:  # a task occurs twice: JSON can express that, a dict cannot
            pairs = [f'"{task}":{place}' for task, place in zip(of, places, strict=True)]
            text = f"{{{','.join(pairs)}}}"
        yield text, bytearray().join(values)
