"""Group commit without a timer: calls that arrive during a flush share the next one.

A transaction of another process may hold a row that one of these calls needs, for any length of time: it is
inserting the same key, for example. The other calls do not wait for that.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, Protocol, TypeVar

from makegood.errors import PayloadError, StoreError, StoreUnavailableError
from makegood.store.postgres.writers import BackgroundTasks, HeldUpError

ItemT = TypeVar("ItemT")
AnswerT = TypeVar("AnswerT")
ItemT_contra = TypeVar("ItemT_contra", contravariant=True)


class Flush(Protocol[ItemT_contra, AnswerT]):
    """Writes items."""

    async def __call__(self, items: Sequence[ItemT_contra], /, *, waits: bool = False) -> list[AnswerT]:
        """Write the items in one transaction; return one answer per item, in order.

        ``waits``: see ``Writers.write_here``. Raises ``PayloadError`` for a value that the server refuses;
        without ``waits``, ``HeldUpError`` if another transaction holds a row.
        """


class Batcher(Generic[ItemT, AnswerT]):
    """Passes the items of concurrent calls to ``flush`` together, one flush at a time.

    ``most``: the weight of a flush, as ``weigh`` counts it; only a single call may exceed it.

    If ``flush`` refuses a value, or another transaction holds a row that it needs, the calls are flushed one
    by one, so that only the call with that value fails, and only the call that needs that row keeps waiting.
    """

    def __init__(
        self,
        tasks: BackgroundTasks,
        flush: Flush[ItemT, AnswerT],
        most: int,
        weigh: Callable[[Sequence[ItemT]], int] = len,
    ) -> None:
        self._tasks = tasks
        self._flush = flush
        self._most = most
        self._weigh = weigh
        self._calls: deque[tuple[Sequence[ItemT], asyncio.Future[list[AnswerT]]]] = deque()
        self._busy = False
        self._row_wait = asyncio.Lock()
        """One call at a time waits for a row, so that all waits together occupy one connection."""

    async def ask(self, items: Sequence[ItemT]) -> list[AnswerT]:
        """Return the answers to ``items``, in order.

        Raises what ``flush`` raises; ``StoreUnavailableError`` if the store is closed before the items are
        written, ``StoreError`` if it is closed meanwhile.
        """
        if not items:
            return []
        self._tasks.home.check()
        future: asyncio.Future[list[AnswerT]] = self._tasks.home.loop.create_future()
        self._calls.append((items, future))
        if not self._busy:
            self._busy = True
            self._tasks.start(self._run())
        return await future

    async def _run(self) -> None:
        try:
            while self._calls:
                calls = [self._calls.popleft()]
                weight = self._weigh(calls[0][0])
                while self._calls and (next_weight := self._weigh(self._calls[0][0])) + weight <= self._most:
                    calls.append(self._calls.popleft())
                    weight += next_weight
                await self._answer(calls)
        finally:
            self._busy = False
            _fail(self._calls, StoreUnavailableError("the store was closed; nothing was written"))
            self._calls.clear()

    async def _answer(
        self, calls: Sequence[tuple[Sequence[ItemT], "asyncio.Future[list[AnswerT]]"]], *, waits: bool = False
    ) -> None:
        items = calls[0][0] if len(calls) == 1 else [item for call_items, _ in calls for item in call_items]
        try:
            answers = await self._flush(items, waits=waits)
        except (PayloadError, HeldUpError) as error:
            if len(calls) > 1:
                for call in calls:
                    await self._answer([call])
            elif isinstance(error, HeldUpError):
                self._tasks.start(self._wait_for_row(calls))
            else:
                _fail(calls, error)
        except Exception as error:  # noqa: BLE001 - the callers handle it
            _fail(calls, error)
        except asyncio.CancelledError:
            _fail(calls, StoreError("the store was closed during this write: check whether it was committed"))
            raise
        else:
            start = 0
            for call_items, future in calls:
                if not future.done():
                    future.set_result(answers[start : start + len(call_items)])
                start += len(call_items)

    async def _wait_for_row(
        self, calls: Sequence[tuple[Sequence[ItemT], "asyncio.Future[list[AnswerT]]"]]
    ) -> None:
        try:
            async with self._row_wait:
                await self._answer(calls, waits=True)
        except asyncio.CancelledError:
            _fail(calls, StoreUnavailableError("the store was closed; nothing was written"))
            raise


def _fail(calls: Iterable[tuple[object, "asyncio.Future[list[AnswerT]]"]], error: Exception) -> None:
    for _, future in calls:
        if not future.done():
            future.set_exception(error)
