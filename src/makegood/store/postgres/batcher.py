"""Group commit without a timer: calls that arrive during a flush share the next one."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Generic, TypeVar

from makegood.errors import PayloadError, StoreError, StoreUnavailableError
from makegood.store.postgres.writers import BackgroundTasks

I = TypeVar("I")  # noqa: E741 - items in
O = TypeVar("O")  # noqa: E741 - answers out


class Together(Generic[I, O]):
    """Passes the items of concurrent calls to ``flush`` together, up to a weight of about
    ``most``, one flush at a time.

    ``flush`` returns one answer per item, in order. If it refuses a value, the calls are flushed one by one,
    so that only the call with that value fails.
    """

    def __init__(
        self,
        tasks: BackgroundTasks,
        flush: Callable[[Sequence[I]], Awaitable[list[O]]],
        most: int,
        weigh: Callable[[Sequence[I]], int] = len,
    ) -> None:
        self._tasks = tasks
        self._flush = flush
        self._most = most
        self._weigh = weigh
        self._calls: deque[tuple[Sequence[I], asyncio.Future[list[O]]]] = deque()
        self._busy = False

    async def ask(self, items: Sequence[I]) -> list[O]:
        """Return the answers to ``items``."""
        if not items:
            return []
        self._tasks.home.check()
        future: asyncio.Future[list[O]] = self._tasks.home.loop.create_future()
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

    async def _answer(self, calls: Sequence[tuple[Sequence[I], "asyncio.Future[list[O]]"]]) -> None:
        items = calls[0][0] if len(calls) == 1 else [item for call_items, _ in calls for item in call_items]
        try:
            answers = await self._flush(items)
        except PayloadError as misfit:
            if len(calls) == 1:
                _fail(calls, misfit)
            else:
                for call in calls:
                    await self._answer([call])
        except Exception as fault:  # noqa: BLE001 - the callers handle it
            _fail(calls, fault)
        except asyncio.CancelledError:
            _fail(calls, StoreError("the store was closed during this write: check whether it was committed"))
            raise
        else:
            start = 0
            for call_items, future in calls:
                if not future.done():
                    future.set_result(answers[start : start + len(call_items)])
                start += len(call_items)


def _fail(calls: Iterable[tuple[object, "asyncio.Future[list[O]]"]], fault: Exception) -> None:
    for _, future in calls:
        if not future.done():
            future.set_exception(fault)
