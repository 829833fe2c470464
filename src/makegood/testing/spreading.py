"""Many independent worlds, run in several processes."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def lumps(items: Sequence[T], size: int) -> list[Sequence[T]]:
    """Return the items in lumps of ``size``, for work that is cheaper by the lump.

    >>> lumps(range(5), 2)
    [range(0, 2), range(2, 4), range(4, 5)]
    """
    return [items[start : start + size] for start in range(0, len(items), size)]


def spread(work: Callable[[T], R], items: Iterable[T], processes: int) -> Iterator[R]:
    """Yield what ``work`` makes of each item, in order; with one process it runs in this one.

    ``work`` and what goes in and out of it are pickled: a function of a module, or a ``partial`` of one.
    """
    if processes == 1:
        yield from map(work, items)
        return
    with ProcessPoolExecutor(processes) as pool:
        yield from pool.map(work, items)
