"""Threads for functions that cannot be stopped, called from an event loop.

The standard library's pool joins its threads when the interpreter ends: a process told to stop would hang for as long as
a function that ignores its deadline does. These threads are daemons, so such a process ends when its drain's limit is up;
whoever called the function learns from its silence.

Many calls come at once, since a Scheduler hands over what a whole batch asked for, and most of what the standard pool spends on one
is spent on waking. So a thread that is woken wakes the next one itself, if there is something left to do, before it begins; until
it has, nobody else is woken. (Go's scheduler and tokio's do the same.) Should its call wait for the network, the next thread runs at once; calls that are over in
microseconds are all done by one. And the event loop is woken once for all that ended meanwhile.
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

P = ParamSpec("P")
T = TypeVar("T")


class _Answers:
    """What calls returned to one event loop. ``give`` is called by any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._waiting: deque[tuple[asyncio.Future[Any], Any, BaseException | None]] = deque()
        self._rung = False

    def give(self, future: "asyncio.Future[Any]", result: Any, failed: BaseException | None) -> None:
        """Let a future have its result, or what the call raised."""
        self._waiting.append((future, result, failed))
        if self._rung:
            return
        self._rung = True
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self.loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        self._rung = False  # first: whoever comes from here on rings again
        while self._waiting:
            future, result, failed = self._waiting.popleft()
            if future.done():  # nobody waits for it any more
                continue
            if failed is None:
                future.set_result(result)
            else:
                future.set_exception(failed)


_Asked = tuple[_Answers, "asyncio.Future[Any]", Callable[[], Any]]


class DaemonThreads(Executor):
    """At most ``most`` threads, begun when they are needed. For ``run_in_executor`` of one event loop.

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
        self._lock = threading.Lock()  # of what follows, down to _waking
        self._asked: deque[_Asked] = deque()
        self._idle = 0
        self._waking = False  # a thread that was woken, or begun, has not looked yet what there is to do
        self._over = False
        self._wakes: SimpleQueue[bool] = (
            SimpleQueue()
        )  # one for each thread that is to look; False: that is to end
        self._answers: _Answers | None = None

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> "asyncio.Future[T]":  # type: ignore[override]  # what an event loop makes of the other kind
        """Queue a call and return the running event loop's future of its result; after ``shutdown`` it is never begun.

        Raises ``RuntimeError`` when the system gives no thread at all.
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
        """Let the threads end after what they do; ``wait`` for that; ``cancel_futures``: without what is queued."""
        with self._lock:
            self._over = True
            queued = [*self._asked] if cancel_futures else []
            if cancel_futures:
                self._asked.clear()
            for _ in range(self._idle):  # all others see for themselves that it is over
                self._wakes.put(False)
            self._idle = 0
        for _, future, _ in queued:
            future.cancel()
        for thread in self._threads if wait else ():  # with those that are begun meanwhile for what is queued
            thread.join()

    def _one_more(self) -> None:
        """Wake a thread, or begin one, unless one is waking or all are busy. Holds the lock."""
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
                thread.start()
            except RuntimeError:  # the system gives no more
                if not self._threads:
                    raise
                return  # those that there are come to it
            self._threads.append(thread)
            self._waking = True

    def _live(self) -> None:
        woken = True
        while True:
            asked: _Asked | None = None
            with self._lock:
                self._waking = self._waking and not woken
                if self._asked:
                    asked = self._asked.popleft()
                    if self._asked:
                        self._one_more()
                elif self._over:
                    return
                else:
                    self._idle += 1
            woken = asked is None
            if asked is not None:
                _run(*asked)
            elif not self._wakes.get():
                return


def _run(answers: _Answers, future: "asyncio.Future[Any]", call: Callable[[], Any]) -> None:
    if future.cancelled():
        return
    result: Any = None
    failed: BaseException | None = None
    try:
        result = call()
    except (StopIteration, GeneratorExit, KeyboardInterrupt) as raised:
        # no future takes the first, and raised where somebody waits the others would end that, or the process
        failed = RuntimeError(f"the function raised {type(raised).__name__}")
        failed.__cause__ = raised
    except BaseException as raised:  # noqa: BLE001 - it belongs to whoever asked
        failed = raised
    try:
        answers.give(future, result, failed)
    finally:
        del answers, future, call, result, failed  # what failed knows this frame: a circle
