"""The caller's transaction, as a store uses it.

Nothing here begins, commits or rolls back. Statements run in the transaction that is open, on the caller's
own driver and, if that blocks, in the caller's own thread.
"""

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias, TypeVar

from makegood.base.text import words
from makegood.errors import TransactionError

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

LATE: Final = 40_000
"""Pages of SQLite's log at which the caller's connection checkpoints."""


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
    """Whether the store itself began the transaction: then nothing is verified, and it wakes for ``topics``
    on commit.
    """

    failure: BaseException | None = None
    """The first error of a statement, if that settles that the transaction is rolled back."""

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
        return await self.execute(spell(sql, self.style), values)

    async def perform(self, work: "Work[T]") -> T:
        """Check the transaction, then run ``work`` in it."""
        await self.check()
        return await work(self)


async def defer_checkpoints(caller: Caller) -> None:
    """Let SQLite checkpoint late on the caller's connection, for all files that it has attached.

    These checkpoints have no guard, as makegood's have (``base/sqlite_log.py``): on many versions of SQLite
    they can lose commits. makegood merges the log ten times as early; if no process of makegood runs, the log
    still has a limit. A threshold of 0 stays as it is: no checkpoints, or a hook of the caller's own.
    """
    ((pages,),) = await caller.ask("pragma wal_autocheckpoint")
    if 0 < int(pages) < LATE:
        await caller.ask(f"pragma wal_autocheckpoint = {LATE}")


class StoreTransaction(Caller):
    """A transaction that the store itself began for somebody's work.

    The first statement that fails settles it, on every database: it is rolled back, and executes nothing
    more. PostgreSQL would refuse the rest anyway, while SQLite would commit it.
    """

    kind = "the store's own transaction"
    ours = True
    over = False
    """The work has ended."""

    async def execute(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Execute a statement.

        Raises ``TransactionError`` after the work has ended, when the connection may serve other work, and
        after a statement has failed.
        """
        if self.over:
            raise TransactionError("this transaction has ended: nothing can be executed in it any more")
        if self.failure is not None:
            raise TransactionError(
                f"a statement of this transaction failed before, so it is rolled back, and executes nothing more: {words(self.failure)}"
            ) from self.failure
        try:
            return await self.statement(sql, values)
        except BaseException as fault:
            self.failure = self.failure or fault
            raise

    async def statement(self, sql: str, values: Sequence[Any]) -> list[Row]:
        """Execute a statement in the driver's own style."""
        raise NotImplementedError

    def end(self, error: BaseException | None = None) -> None:
        """End the work. Raises ``TransactionError`` if a statement failed and the work continued all the
        same.

        ``raised``: what the work raised. The statement's error becomes its cause if it has none.
        """
        self.over = True
        failure = self.failure
        if failure is None:
            return
        if error is None:
            raise TransactionError(
                f"a statement failed, so the transaction was rolled back, although its error was caught: {words(failure)}; let the error "
                "through, or write a statement that does not fail (`insert ... on conflict do nothing`)"
            ) from failure
        if error is not failure and error.__cause__ is None and failure.__context__ is not error:
            error.__cause__ = failure


Work: TypeAlias = Callable[[Caller], Awaitable[T]]
"""Work in a transaction. It awaits only its ``Caller``, so that it never waits if the driver blocks."""


@lru_cache(maxsize=200)
def spell(sql: str, style: str) -> str:
    """Return a statement with its ``?`` written as a driver wants them.

    >>> spell("select ?, ?", "numeric_dollar"), spell("select ?, ?", "format")
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
