"""Threads for functions that cannot be stopped.

The standard library's pool joins its threads when the interpreter ends: a process told to stop would hang for as long as
a function that ignores its deadline does. These threads are daemons, so such a process ends when its drain's limit is up;
whoever called the function learns from its silence.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class DaemonThreads(Executor):
    """At most ``most`` threads, begun when they are needed. ``submit`` is called from one thread only.

    >>> threads = DaemonThreads(2, "example")
    >>> threads.submit(pow, 2, 3).result()
    8
    >>> threads.shutdown()
    """

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        self._threads: list[threading.Thread] = []
        self._idle = threading.Semaphore(0)
        self._asked: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Queue a call and return the future of its result."""
        future: Future[T] = Future()
        self._asked.put((future, partial(fn, *args, **kwargs)))
        if not self._idle.acquire(blocking=False) and len(self._threads) < self._most:
            name = f"{self._name}-{len(self._threads)}"
            thread = threading.Thread(target=self._live, name=name, daemon=True)
            self._threads.append(thread)
            thread.start()
        return future

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002 - as the base class has it
        """Let the threads end after what they do; ``wait`` for that; ``cancel_futures``: without what is queued."""
        while cancel_futures and not self._asked.empty():
            queued = self._asked.get()
            if queued is not None:
                queued[0].cancel()
        for _ in self._threads:
            self._asked.put(None)
        for thread in self._threads if wait else ():
            thread.join()

    def _live(self) -> None:
        while (asked := self._asked.get()) is not None:
            future, call = asked
            if future.set_running_or_notify_cancel():
                try:
                    result = call()
                except BaseException as raised:  # noqa: BLE001 - it belongs to whoever asked
                    future.set_exception(raised)
                else:
                    future.set_result(result)
            del asked, future, call  # nothing may be kept alive while waiting
            self._idle.release()
