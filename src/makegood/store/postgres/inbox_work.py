"""Transactions that run an application's work, each on a connection of its own.

The engine's connections are set for the engine's statements (see ``connection``). On these, the planner and
the search path are reset to the server's settings, since the work names its own tables; timeouts, isolation
and message level stay makegood's. The store's own statements on them are valid under any search path (see
``joined_submit``). A commit is never cancelled, since the driver
would cancel it at the server too.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from makegood.errors import StoreUnavailableError, TransactionError
from makegood.store.postgres.connection import Dialer, Link, dropped
from makegood.store.postgres.errors import cause, is_lost, translated
from makegood.store.postgres.writers import BackgroundTasks
from makegood.transactions import Caller
from makegood.transactions.drivers import Asyncpg

T = TypeVar("T")

Work = Callable[[Caller], Coroutine[Any, Any, T]]

_SETTINGS = (
    "plan_cache_mode", "enable_seqscan", "enable_bitmapscan", "enable_hashjoin", "enable_mergejoin", "jit", "search_path",
)  # fmt: skip
_AS_USUAL = ";".join((*(f"reset {name}" for name in _SETTINGS), "set lock_timeout = '10s'"))
_IDLE = ";set idle_in_transaction_session_timeout = '60s'"


class Ours(Asyncpg):
    """A transaction on a connection of the store."""

    kind = "the store's own transaction"
    ours = True
    over = False

    async def execute(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Execute a statement.

        Raises ``TransactionError`` after the work has ended: by then the connection may serve other work.
        """
        if self.over:
            raise TransactionError("this transaction has ended: nothing can be executed in it any more")
        return await super().execute(sql, values)


class Callers:
    """Lends connections to work.

    ``patience``: seconds that a commit may take before its connection is dropped. ``announce``: receives the
    topics of each commit; the statements in the commit notify other processes.
    """

    def __init__(self, dialer: Dialer, patience: float, announce: Callable[[set[str]], None]) -> None:
        self._announce = announce
        self._dialer = dialer
        self._patience = patience
        self._idle: list[Link] = []
        self._tasks = BackgroundTasks()
        self._open = False

    def open(self) -> None:
        """Start lending."""
        self._open = True

    async def transact(self, work: Work[T]) -> T:
        """Run ``work`` in a transaction and commit it; roll back and reraise if the work raises."""
        link = await self._take()
        ours = Ours(link.connection)
        try:
            try:
                await link.connection.execute("BEGIN")
                done = await work(ours)
                ours.over = True
            except BaseException as fault:
                ours.over = True
                await asyncio.shield(self._tasks.start(self._roll_back(link, fault)))
                if isinstance(fault, Exception) and is_lost(fault):
                    raise translated(fault, self._where) from cause(fault)
                raise
            await asyncio.shield(self._tasks.start(self._commit(link)))
            self._announce(ours.topics)
            return done
        finally:
            if link.open and not link.connection.is_in_transaction() and self._open:
                self._idle.append(link)
            else:
                link.terminate()

    @property
    def _where(self) -> str:
        return self._dialer.address.where

    async def _take(self) -> Link:
        while self._idle:
            link = self._idle.pop()
            if link.open:
                return link
        if not self._open:
            raise StoreUnavailableError(f"{self._where}: the store is not open; `await store.open()` first")
        link = await self._dialer.dial()
        try:
            await link.connection.execute(_AS_USUAL + _IDLE)
        except BaseException as fault:
            await dropped(link.connection)
            if not isinstance(fault, Exception):
                raise
            raise translated(fault, self._where) from cause(fault)
        return link

    async def _roll_back(self, link: Link, fault: BaseException) -> None:
        if is_lost(fault) or not link.open:
            link.terminate()
            return
        await self._bounded(link, "ROLLBACK")

    async def _commit(self, link: Link) -> None:
        """Commit. If the answer is lost, the outcome is unknown: the work itself must make it visible."""
        try:
            said = await self._bounded(link, "COMMIT")
        except Exception as fault:
            if not is_lost(fault):
                raise
            raise StoreUnavailableError(
                f"{self._where}: the connection was lost during the commit; it is not known whether the server committed"
            ) from fault
        if said != "COMMIT":
            raise TransactionError(
                "a statement in the transaction failed, so the server rolled the transaction back: do not catch the errors that the driver raises"
            )

    async def _bounded(self, link: Link, sql: str) -> str:
        alarm = asyncio.get_running_loop().call_later(self._patience, link.terminate)
        try:
            return await link.connection.execute(sql)
        except Exception as fault:
            if sql == "ROLLBACK" and is_lost(fault):
                return ""  # rolled back by the server
            raise
        finally:
            alarm.cancel()

    async def close(self) -> None:
        """Finish work under way, for some seconds, then close the connections."""
        self._open = False
        await self._tasks.settle(self._patience)
        idle, self._idle = self._idle, []
        await asyncio.gather(*(link.close(1.0) for link in idle))
