"""The caller's transaction, as a store uses it.

Nothing here begins, commits or rolls back. Statements run in the transaction that is open, on the caller's
own driver and, if that blocks, in the caller's own thread.
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
"""How drivers write the placeholder of the n-th value, by the names of PEP 249."""


class Caller:
    """One transaction of the caller, on one kind of connection.

    ``dialect``: "sqlite" or "postgres"; "" for any other database. ``style``: how its driver writes
    placeholders.
    """

    kind = ""
    """What the connection is called in messages."""
    blocks = True
    """Whether statements are done when the call returns, so that nothing has to be awaited."""
    ours = False
    """Whether the store itself began the transaction: then nothing is verified, and it rings for ``topics``
    on commit.
    """

    def __init__(self, connection: Any, *, dialect: str, style: str) -> None:
        self.connection = connection
        self.dialect = dialect
        self.style = style
        self.topics: set[str] = set()

    async def check(self) -> None:
        """Send what is not written yet, and verify the transaction.

        Raises ``TransactionError`` if each statement would be committed at once.
        """

    async def execute(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Execute a statement in the driver's own style.

        Returns all its rows, an empty list if it has none.
        """
        raise NotImplementedError

    async def ask(self, sql: str, *values: Any) -> list[Row]:
        """Execute a statement of ours, in which ``?`` stands for each value."""
        return await self.execute(spelled(sql, self.style), values)

    async def perform(self, work: "Work[T]") -> T:
        """Check the transaction, then run ``work`` in it."""
        await self.check()
        return await work(self)


Work: TypeAlias = Callable[[Caller], Awaitable[T]]
"""Work in a transaction. It awaits only its ``Caller``, so that it never waits if the driver blocks."""


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
