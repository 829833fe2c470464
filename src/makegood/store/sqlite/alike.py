"""Many rows by one call of the driver.

``executemany`` takes the interpreter's lock back after each row, and a writing thread beside a busy event loop waits for it each
time. So rows that differ in their task alone, or in their task and one value, are handed over as one JSON text, which SQLite
reads row by row while the interpreter does something else; it is cheaper, too, than to bind each row. Everything else that such
rows have is bound once, as a value that they share.

Such a statement reads its rows from ``json_each(?1) x``. Of *tasks* it finds ``x.value``. Of *spans* it finds the task as
``x.key``, a text, and in ``x.value`` where in ``?2``, all values joined, its own one is: ``SPAN`` cuts it out.
"""

from collections.abc import Iterator, Sequence

SPAN = "substr(?2, (x.value >> 32) + 1, x.value & 4294967295)"
"""The value of a row of spans. (Ours are never empty; empty ones alone would come out as null.)"""

_MOST_BYTES = 64 * 1024 * 1024
"""So much at most is joined at once; SQLite takes no value above a thousand million bytes."""

Pairs = Sequence[tuple[int, bytes]]


def tasks(of: Sequence[int]) -> str:
    """Return task ids as the text for ``?1``.

    >>> tasks([7, 8])
    '[7, 8]'
    """
    return str(of if type(of) is list else list(of))


def spans(of: Pairs) -> Iterator[tuple[str, bytes]]:
    """Return tasks and their values as the texts for ``?1`` with the byte strings for ``?2``: nearly always one of each.

    >>> list(spans([(7, b"abc"), (8, b"de")]))
    [('{"7":3,"8":12884901890}', b'abcde')]
    """
    start = 0
    found: list[str] = []
    data: list[bytes] = []
    for task, value in of:
        size = len(value)
        if start and start + size > _MOST_BYTES:
            yield f"{{{','.join(found)}}}", b"".join(data)
            start, found, data = 0, [], []
        found.append(f'"{task}":{start << 32 | size}')
        data.append(value)
        start += size
    if found:
        yield f"{{{','.join(found)}}}", b"".join(data)
