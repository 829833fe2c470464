"""Threads for functions that cannot be stopped, called from an event loop.

The standard library's pool joins its threads when the interpreter ends, so a process asked to stop would hang
as long as a function ignores its deadline. These threads are daemons: such a process ends when its drain
limit is over, and the caller of the function learns from its silence.

A Scheduler hands over the requests of a whole batch, so many calls come at once, and the standard pool spends
most of a call's cost on waking threads. Here a woken thread wakes the next one itself, before it begins, if
there is more to do; until then no other thread is woken. (Go's scheduler and tokio's do the same.) If its
call waits for the network, the next thread runs at once; one thread does all calls that take only
microseconds. The event loop is woken once for all calls that ended meanwhile.
"""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

from makegood.base.contexts import start_thread

P = ParamSpec("P")
T = TypeVar("T")


class _Answers:
    """Results of calls for one event loop. Any thread may call ``give``."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._waiting: deque[tuple[asyncio.Future[Any], Any, BaseException | None]] = deque()
        self._scheduled = False

    def give(self, future: "asyncio.Future[Any]", result: Any, failure: BaseException | None) -> None:
        """Set a future's result, or the exception that the call raised."""
        self._waiting.append((future, result, failure))
        if self._scheduled:
            return
        self._scheduled = True
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self.loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        self._scheduled = False  # first: a thread that adds a result from here on schedules another turn
        while self._waiting:
            future, result, failure = self._waiting.popleft()
            if future.done():  # nobody waits for it any more
                continue
            if failure is None:
                future.set_result(result)
            else:
                future.set_exception(failure)


_Asked = tuple[_Answers, "asyncio.Future[Any]", Callable[[], Any]]


class DaemonThreads(Executor):
    """At most ``most`` threads, started when they are needed. For ``run_in_executor`` of one event loop.

    >>> async def example() -> int:
    ...     threads = DaemonThreads(2, "example")
    ...     try:
    ...         return await asyncio.get_running_loop().run_in_executor(threads, pow, 2, 3)
    ...     finally:
    ...         threads.shutdown()
    >>> asyncio.run(example())
    8
    """

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()  # guards the attributes below, down to _waking
        self._asked: deque[_Asked] = deque()
        self._idle = 0
        self._waking = False  # a thread was woken or started, and has not yet checked the queue
        self._over = False
        self._wakes: SimpleQueue[bool] = SimpleQueue()  # one for each idle thread to wake; False: it ends
        self._answers: _Answers | None = None

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> "asyncio.Future[T]":  # type: ignore[override]  # what an event loop makes of the other kind
        """Queue a call and return the running event loop's future of its result. After ``shutdown`` the call
        never starts.

        Raises ``RuntimeError`` if the system gives no thread at all.
        """
        loop = asyncio.get_running_loop()
        answers = self._answers
        if answers is None or answers.loop is not loop:
            answers = self._answers = _Answers(loop)
        future: asyncio.Future[T] = loop.create_future()
        with self._lock:
            if self._over:
                return future
            self._asked.append((answers, future, partial(fn, *args, **kwargs)))
            try:
                self._one_more()
            except RuntimeError:
                self._asked.pop()
                raise
        return future

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002 - as the base class has it
        """End the threads after their current calls. ``wait`` for that; ``cancel_futures``: drop the queued
        calls.
        """
        with self._lock:
            self._over = True
            calls = [*self._asked] if cancel_futures else []
            if cancel_futures:
                self._asked.clear()
            for _ in range(self._idle):  # all others see for themselves that it is over
                self._wakes.put(False)
            self._idle = 0
        for _, future, _ in calls:
            future.cancel()
        for thread in self._threads if wait else ():  # even those started meanwhile for the queue
            thread.join()

    def _one_more(self) -> None:
        """Wake or start a thread, unless one is waking or all are busy. The caller holds the lock."""
        if self._waking:
            return
        if self._idle:
            self._idle -= 1
            self._waking = True
            self._wakes.put(True)
        elif len(self._threads) < self._most:
            name = f"{self._name}-{len(self._threads)}"
            thread = threading.Thread(target=self._live, name=name, daemon=True)
            try:
                start_thread(thread)
            except RuntimeError:  # the system gives no more
                if not self._threads:
                    raise
                return  # the existing threads will do it
            self._threads.append(thread)
            self._waking = True

    def _live(self) -> None:
        is_awake = True
        while True:
            call: _Asked | None = None
            with self._lock:
                self._waking = self._waking and not is_awake
                if self._asked:
                    call = self._asked.popleft()
                    if self._asked:
                        self._one_more()
                elif self._over:
                    return
                else:
                    self._idle += 1
            is_awake = call is None
            if call is not None:
                _run(*call)
            elif not self._wakes.get():
                return


def _run(answers: _Answers, future: "asyncio.Future[Any]", call: Callable[[], Any]) -> None:
    if future.cancelled():
        return
    result: Any = None
    failure: BaseException | None = None
    try:
        result = call()
    except (StopIteration, GeneratorExit, KeyboardInterrupt) as fault:
        # A future refuses StopIteration; the others, raised in the waiting task, would end that task or the
        # process.
        failure = RuntimeError(f"the function raised {type(fault).__name__}")
        failure.__cause__ = fault
    except BaseException as fault:  # noqa: BLE001 - it belongs to the caller
        failure = fault
    try:
        answers.give(future, result, failure)
    finally:
        del answers, future, call, result, failure  # failure refers to this frame: a reference cycle
