"""Runs the caller's work in a transaction of the store's writing thread.

Work that waits for nothing runs in that thread, under a savepoint, and shares its commit with the other
operations of the moment. Work that has to wait (an ``async def``) stays on its event loop and holds a
*dialogue*: the writing thread keeps the transaction open and executes one statement after another, until the
work ends. Meanwhile nobody else can write into the file, so a dialogue without a statement for ``PATIENCE``
seconds is ended.
"""

import asyncio
import contextlib
import queue
import sqlite3
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from makegood.errors import MakegoodError, StoreUnavailableError, TransactionError
from makegood.store.sqlite.connection import is_broken, is_busy
from makegood.store.sqlite.transaction import Action, WriteTransaction
from makegood.transactions import Caller, StoreTransaction, at_once

T = TypeVar("T")

PATIENCE = 5.0
"""The most seconds between two statements of a dialogue."""

Work = Callable[[Caller], Coroutine[Any, Any, T]]


class WorkFault(Exception):  # noqa: N818 - carries one
    """Wraps an error that the work raised, to keep it apart from errors of the store."""

    def __init__(self, fault: BaseException) -> None:
        super().__init__(type(fault).__name__)
        self.fault = fault


class Inside(StoreTransaction):
    """The transaction under way, for work that waits for nothing."""

    def __init__(self, tx: WriteTransaction) -> None:
        super().__init__(tx.connection, dialect="sqlite", style="qmark")

    async def statement(self, sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Execute a statement here."""
        return _execute(self.connection, sql, values)


def _execute(connection: sqlite3.Connection, sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = connection.execute(sql, values).fetchall()
    return rows


def run_at_once(tx: WriteTransaction, work: Work[T]) -> T:
    """Run work that waits for nothing.

    Its errors are raised as ``WorkFault``, unless the database itself has failed.
    """
    inside = Inside(tx)
    try:
        result = at_once(work(inside))
    except BaseException as fault:
        inside.end(fault)
        raise store_error(fault, inside.failure) from fault
    try:
        inside.end()
    except TransactionError as fault:
        raise store_error(fault, inside.failure) from fault
    tx.topics |= inside.topics
    return result


def store_error(fault: BaseException, failure: BaseException | None = None) -> BaseException:
    """Return the error that the store should see: a failure of the database as it is, any other as
    ``WorkFault``.

    ``failure``: the error of the statement that failed. It counts if the work has hidden that the database
    itself failed.
    """
    for error in (fault, failure):
        if isinstance(error, sqlite3.Error) and (is_broken(error) or is_busy(error)):
            return error
    return WorkFault(fault)


@dataclass(slots=True)
class _Statement:
    sql: str
    values: Sequence[Any]
    future: asyncio.Future[list[tuple[Any, ...]]]


@dataclass(slots=True)
class _End:
    topics: set[str] | None
    """Topics to wake for; None: roll back."""


class _AbandonedError(Exception):
    """The work has failed: the transaction is rolled back."""


@dataclass(slots=True, eq=False)
class _Talk:
    """The two sides of a dialogue."""

    loop: asyncio.AbstractEventLoop
    """The event loop of the work."""
    statements: queue.SimpleQueue[_Statement | _End] = field(default_factory=queue.SimpleQueue)
    """What the work sends to the writing thread."""
    transaction: asyncio.Future[None] | None = None
    """The future of the transaction, once there was a first statement."""

    def action(self, tx: WriteTransaction) -> None:
        """Execute statements until the end of the dialogue. Runs in the writing thread."""
        while True:
            try:
                item = self.statements.get(timeout=PATIENCE)
            except queue.Empty:
                raise TransactionError(
                    f"the work in a transaction of the store executed nothing for {PATIENCE:g} s, while nobody else can write into the "
                    "file: do what takes time before the first statement"
                ) from None
            if isinstance(item, _End):
                if item.topics is None:
                    raise _AbandonedError
                tx.topics |= item.topics
                return
            try:
                answer = _execute(tx.connection, item.sql, item.values)
            except Exception as fault:
                if isinstance(store_error(fault), sqlite3.Error):
                    raise
                self.loop.call_soon_threadsafe(_fail, item.future, fault)
            else:
                self.loop.call_soon_threadsafe(_answer, item.future, answer)


def _fail(future: asyncio.Future[Any], fault: Exception) -> None:
    if not future.done():
        future.set_exception(fault)


def _answer(future: asyncio.Future[Any], answer: list[tuple[Any, ...]]) -> None:
    if not future.done():
        future.set_result(answer)


class Dialogue(StoreTransaction):
    """The transaction of work that waits. It begins with the first statement."""

    blocks = False

    def __init__(self, begin: Callable[[Action[None]], Awaitable[None]]) -> None:
        super().__init__(None, dialect="sqlite", style="qmark")
        self._begin = begin
        self._talk = _Talk(asyncio.get_running_loop())

    async def statement(self, sql: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Execute a statement in the writing thread."""
        talk = self._talk
        if talk.transaction is None:
            talk.transaction = asyncio.ensure_future(self._begin(talk.action))
        answer: asyncio.Future[list[tuple[Any, ...]]] = talk.loop.create_future()
        talk.statements.put(_Statement(sql, values, answer))
        await asyncio.wait((answer, talk.transaction), return_when=asyncio.FIRST_COMPLETED)
        if answer.done():
            return answer.result()
        talk.transaction.result()  # raises the error that ended it
        raise StoreUnavailableError("the transaction has ended before this statement")

    async def close(self, *, commit: bool) -> None:
        """Commit or roll back. This completes even if the caller is cancelled meanwhile."""
        if self._talk.transaction is None:
            return
        self._talk.statements.put(_End(self.topics if commit else None))
        try:
            await asyncio.shield(self._talk.transaction)
        except _AbandonedError:
            return


async def run_dialogue(begin: Callable[[Action[None]], Awaitable[None]], work: Work[T]) -> T:
    """Run work that waits, in a transaction that ``begin`` starts."""
    dialogue = Dialogue(begin)
    try:
        result = await work(dialogue)
        dialogue.end()
    except BaseException as fault:
        dialogue.end(fault)
        with contextlib.suppress(MakegoodError):  # the transaction had already ended: the work got its error
            await dialogue.close(commit=False)
        if isinstance(dialogue.failure, StoreUnavailableError):  # whatever the work made of it
            raise dialogue.failure from fault
        raise
    await dialogue.close(commit=True)
    return result
