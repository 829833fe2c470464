"""Transactions that run an application's work, each on a connection of its own.

The engine's connections are set for the engine's statements (see ``connection``). On these, the planner, the
forms of values and the search path are reset to the server's settings, since the work names its own tables;
timeouts, isolation and message level stay makegood's. The store's own statements on them are valid under any
settings of these kinds (see ``joined_submit``). A commit is never cancelled, since the driver would cancel it
at the server too.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeGuard, TypeVar

from asyncpg import InterfaceError

from makegood.base.postgres_hosts import drop
from makegood.base.postgres_session import PLANNER, VALUES
from makegood.errors import StoreUnavailableError, TransactionError
from makegood.store.postgres.connection import Dialer, Link
from makegood.store.postgres.errors import cause, is_lost, translate
from makegood.store.postgres.writers import BackgroundTasks
from makegood.transactions import Caller, StoreTransaction
from makegood.transactions.drivers import Asyncpg

T = TypeVar("T")

Work = Callable[[Caller], Coroutine[Any, Any, T]]

_AS_USUAL = ";".join(
    (*(f"reset {name}" for name in ("search_path", *PLANNER, *VALUES)), "set lock_timeout = '10s'")
)
_IDLE = "set idle_in_transaction_session_timeout = {:d}"
_MOST_IDLE = 2**31 - 1
"""The server's highest limit, in milliseconds."""


class Ours(StoreTransaction):
    """A transaction on a connection of the store."""

    blocks = False

    def __init__(self, connection: Any) -> None:
        super().__init__(connection, dialect="postgres", style="numeric_dollar")
        self._driver = Asyncpg(connection)

    async def statement(self, sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Execute a statement."""
        return await self._driver.execute(sql, values)


class Callers:
    """Lends connections to work.

    ``patience``: seconds that a commit may take before its connection is dropped. ``announce``: receives the
    topics of each commit; the statements in the commit notify other processes.
    """

    def __init__(self, dialer: Dialer, patience: float, announce: Callable[[set[str]], None]) -> None:
        self._announce = announce
        self._dialer = dialer
        self._patience = patience
        self._free: list[tuple[Link, int]] = []
        """Each with its limit, in ms, for a transaction without a statement."""
        self._tasks: BackgroundTasks
        self._open = False

    def open(self) -> None:
        """Start lending."""
        self._open, self._tasks = True, BackgroundTasks()

    async def transact(self, work: Work[T], idle: float) -> T:
        """Run ``work`` in a transaction and commit it; roll back and reraise if the work raises.

        ``idle``: seconds for which it may execute no statement.
        """
        if self._open:
            self._tasks.home.check()
        limit = min(round(idle * 1000), _MOST_IDLE)
        link = await self._take(limit)
        ours, began = Ours(link.connection), False
        try:
            try:
                await link.connection.execute("BEGIN")
                began = True
                result = await work(ours)
                ours.end()
            except BaseException as fault:
                ours.end(fault)
                # The work may have hidden that the connection was lost; and its own OSError is not ours.
                failure = ours.failure if began else fault
                loss = failure if _has_lost(failure, link) else None
                await asyncio.shield(self._tasks.start(self._roll_back(link, loss)))
                if loss is not None:
                    raise translate(loss, self._where) from cause(loss)
                raise
            await asyncio.shield(self._tasks.start(self._commit(link)))
            self._announce(ours.topics)
            return result
        finally:
            if link.open and not link.connection.is_in_transaction() and self._open:
                self._free.append((link, limit))
            else:
                link.terminate()

    @property
    def _where(self) -> str:
        return self._dialer.address.where

    async def _take(self, limit: int) -> Link:
        while self._free:
            link, before = self._free.pop()
            if link.open:
                if before != limit:
                    await self._with_timeout(link, link.connection.execute(_IDLE.format(limit)))
                return link
        if not self._open:
            raise StoreUnavailableError(f"{self._where}: the store is not open; `await store.open()` first")
        link = await self._dialer.dial()
        try:
            await link.connection.execute(f"{_AS_USUAL};{_IDLE.format(limit)}")
        except BaseException as fault:
            await drop(link.connection)
            if not isinstance(fault, Exception):
                raise
            raise translate(fault, self._where) from cause(fault)
        return link

    async def _roll_back(self, link: Link, loss: Exception | None) -> None:
        if loss is not None or not link.open:
            link.terminate()
            return
        try:
            await self._with_timeout(link, link.connection.execute("ROLLBACK"))
        except Exception as fault:
            if not is_lost(fault):
                raise  # a lost connection's transaction is rolled back by the server

    async def _commit(self, link: Link) -> None:
        """Commit. If the answer is lost, the outcome is unknown: the work itself must make it visible."""
        try:
            status = await self._with_timeout(link, link.connection.execute("COMMIT"))
            await self._with_timeout(link, link.watch.settle())
        except Exception as fault:
            if not is_lost(fault):
                raise
            raise StoreUnavailableError(
                f"{self._where}: the connection was lost during the commit; it is not known whether the server committed"
            ) from fault
        if status != "COMMIT":
            raise TransactionError(
                "a statement in the transaction failed, so the server rolled the transaction back: do not catch the errors that the driver raises"
            )

    async def _with_timeout(self, link: Link, ask: Awaitable[T]) -> T:
        alarm = asyncio.get_running_loop().call_later(self._patience, link.terminate)
        try:
            return await ask
        finally:
            alarm.cancel()

    async def close(self) -> None:
        """Finish work under way, for some seconds, then close the connections."""
        if not self._open:
            return
        self._open = False
        await self._tasks.settle(self._patience)
        free, self._free = self._free, []
        await asyncio.gather(*(link.close(1.0) for link, _ in free))


def _has_lost(fault: BaseException | None, link: Link) -> TypeGuard[Exception]:
    """Return whether a fault means that the connection is gone.

    The driver's ``InterfaceError`` on an open connection is a wrong call, such as too few values.
    """
    return (
        isinstance(fault, Exception)
        and is_lost(fault)
        and not (isinstance(fault, InterfaceError) and link.open)
    )
