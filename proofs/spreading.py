"""Many independent worlds, run in several processes, with their progress."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

T = TypeVar("T")
R = TypeVar("R")


def lumps(items: Sequence[T], size: int) -> list[Sequence[T]]:
    """Return the items in lumps of ``size``, for work that is cheaper by the lump.

    >>> lumps(range(5), 2)
    [range(0, 2), range(2, 4), range(4, 5)]
    """
    return [items[start : start + size] for start in range(0, len(items), size)]


def spread(work: Callable[[T], R], items: Iterable[T], processes: int) -> Iterator[R]:
    """Yield the results of ``work`` for each item, in order; one process means this one.

    ``work``, its arguments and its results are pickled: use a function of a module, or a ``partial`` of one.
    """
    if processes == 1:
        yield from map(work, items)
        return
    with ProcessPoolExecutor(processes) as pool:
        yield from pool.map(work, items)


@contextmanager
def bar(name: str, total: int, *, quiet: bool) -> Iterator[Callable[[int, str], None]]:
    """Show progress on stderr, if that is a terminal. It yields a function: how many more are done, and a
    word about all.
    """
    console = Console(stderr=True)
    with Progress(
        TextColumn(name), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"),
        console=console, disable=quiet or not console.is_terminal,
    ) as progress:  # fmt: skip
        task = progress.add_task("", total=total)

        def more(count: int, text: str) -> None:
            progress.update(task, advance=count, description=text)

        yield more
