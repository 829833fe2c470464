"""The open transaction, as user code sees it."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

from makegood.base.contexts import running_loop
from makegood.errors import TransactionError
from makegood.model.queue_message import QueueMessage
from makegood.transactions.caller import Caller, Row, at_once

_ENDING = frozenset({
    "begin", "start", "commit", "end", "rollback", "abort", "savepoint", "release", "attach", "detach", "vacuum",
})  # fmt: skip


class Transaction:
    """An open transaction of the store: its statements are committed or rolled back together with the task's
    change.

    Statements are in the style of the store's driver: placeholders are ``?`` for SQLite, and ``$1``, ``$2``
    and so on for PostgreSQL. In a plain function use ``execute``; in an ``async def`` await
    ``execute_async``. ``submit(..., connection=tx)`` accepts it, too. Its owner commits it: it
    rejects statements that would end it.
    """

    def __init__(
        self,
        caller: Caller,
        loop: asyncio.AbstractEventLoop | None = None,
        message: QueueMessage | None = None,
    ) -> None:
        """``loop``: the event loop of a connection that is awaited; ``execute`` may then be called in other
        threads.
        """
        self.caller = caller
        self._loop = loop
        self._message = message

    @property
    def message(self) -> QueueMessage:
        """The message that an inbox takes in this transaction.

        Raises ``TransactionError`` outside an inbox.
        """
        if self._message is None:
            raise TransactionError("this transaction takes no message: tx.message is there in an inbox")
        return self._message

    def execute(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Execute a statement and return all its rows.

        Raises the driver's errors, and ``TransactionError`` if it would have to wait in the event loop's
        thread.
        """
        work = self._work(sql, values)
        if self.caller.blocks:
            return at_once(work)
        if self._loop is None or running_loop() is not None:
            work.close()
            raise TransactionError(
                "execute() cannot wait here, inside the event loop: `await tx.execute_async(...)`, or write a plain `def`"
            )
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def execute_async(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """Do the same as ``execute``, in an ``async def``."""
        return await self._work(sql, values)

    def _work(self, sql: str, values: Sequence[Any]) -> Coroutine[Any, Any, list[Row]]:
        words = sql.split(None, 1)
        if self.caller.ours and words and words[0].rstrip(";").lower() in _ENDING:
            raise TransactionError(
                f"{words[0]!r} in a transaction of the store: it is committed once the function has returned, and rolled back when it "
                "raises"
            )
        return self.caller.execute(sql, values)
