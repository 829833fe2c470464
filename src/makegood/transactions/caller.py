"""A transaction of somebody else, as a store sees it.

Nobody here begins, commits or rolls back: what is asked is carried out in the transaction that is open, by the caller's
own driver and, when that blocks, in the caller's own thread.
"""

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")
Row: TypeAlias = tuple[Any, ...]

MARKS: dict[str, Callable[[int], str]] = {
    "qmark": lambda _: "?",
    "format": lambda _: "%s",
    "pyformat": lambda _: "%s",
    "numeric": lambda n: f":{n}",
    "numeric_dollar": lambda n: f"${n}",
}
"""How drivers write the place of the n-th value, under the names of PEP 249."""


class Caller:
    """One transaction of somebody else, on one kind of connection.

    ``dialect``: "sqlite" or "postgres", "" for a database that is neither. ``style``: how its driver writes the places of
    values. ``blocks``: what it is asked is done before the call returns, nothing has to be awaited. ``ours``: the store itself
    began it, so nothing has to be verified, and it rings for ``topics`` once it is committed.
    """

    kind = ""
    blocks = True
    ours = False

    def __init__(self, connection: Any, *, dialect: str, style: str) -> None:
        self.connection = connection
        self.dialect = dialect
        self.style = style
        self.topics: set[str] = set()

    async def check(self) -> None:
        """Make ready what is not written yet. Raises ``TransactionError`` when what is written would be committed at once."""

    async def execute(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Execute a statement as the driver takes it; returns all its rows, none when it has none."""
        raise NotImplementedError

    async def ask(self, sql: str, *values: Any) -> list[Row]:
        """Execute a statement of ours, in which ``?`` stands for each value."""
        return await self.execute(spelled(sql, self.style), values)

    async def perform(self, work: "Work[T]") -> T:
        """Do ``work`` in the transaction, once it was checked."""
        await self.check()
        return await work(self)


Work: TypeAlias = Callable[[Caller], Awaitable[T]]
"""What is done in a transaction. It asks nothing but its caller, so that it never waits where that one blocks."""


@lru_cache(maxsize=200)
def spelled(sql: str, style: str) -> str:
    """Return a statement with its ``?`` written as a driver wants them.

    >>> spelled("select ?, ?", "numeric_dollar"), spelled("select ?, ?", "format")
    ('select $1, $2', 'select %s, %s')
    """
    head, *rest = sql.split("?")
    mark = MARKS[style]
    return head + "".join(f"{mark(n)}{part}" for n, part in enumerate(rest, 1))


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never has to wait, in this thread and without an event loop."""
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    work.close()
    raise RuntimeError("a blocking connection was awaited: a defect of makegood")
