"""An event loop in a thread of its own, for blocking facades over the asyncio core.

Once gevent or eventlet has patched the process, a new thread is a greenlet of the thread that made it, with
sockets, selectors and locks that belong to that thread's hub. asyncio cannot run on these beside the hub, and
SQLite's threads would block it. So a loop refuses to start there.
"""

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

from makegood.base.contexts import running_loop, start_thread
from makegood.errors import ClosedError, ConfigError, MakegoodError

T = TypeVar("T")

_PATCHES = (
    ("gevent.monkey", "is_module_patched", ("threading", "socket", "select")),
    ("eventlet.patcher", "is_monkey_patched", ("thread", "socket", "select")),
)
"""Libraries that patch what a loop needs: the module, its query function, and the names of what it may have
patched.
"""

_LAST = 5.0
"""Seconds that calls of other threads have to end once the loop is to stop."""


def refuse_patched() -> None:
    """Raise ``ConfigError`` if gevent or eventlet has patched this process. Imports neither of them."""
    for module, question, names in _PATCHES:
        ask = getattr(sys.modules.get(module), question, None)
        if ask is not None and any(ask(name) for name in names):
            by = module.partition(".")[0]
            raise ConfigError(
                f"{by} has patched threads and sockets in this process, and makegood needs real ones: serve with threads instead "
                "(`gunicorn -k gthread --threads 8`), or write to the outbox (`makegood inbox --from URL`), which needs no client"
            )


class Loop:
    """An event loop in a daemon thread of its own, started at the first call, and again in a forked child.

    ``begins`` is called before each start; its exceptions reach the caller.
    """

    def __init__(self, begins: Callable[[], None] | None = None) -> None:
        self._begins = begins
        self._pid = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()

    @property
    def is_forked(self) -> bool:
        """Whether this process is a child of the one that started the loop, or no loop was started."""
        return self._pid != os.getpid()

    def _loop_of_this_process(self) -> asyncio.AbstractEventLoop:
        """Return the loop; start its thread if this process has none yet. The caller holds the lock."""
        if self._loop is None or self.is_forked:
            if self._begins is not None:
                self._begins()
            ready: Future[asyncio.AbstractEventLoop] = Future()
            start_thread(threading.Thread(target=_serve, args=(ready,), name="makegood", daemon=True))
            self._loop, self._pid = ready.result(), os.getpid()
        return self._loop

    def run(self, work: Callable[[], Coroutine[Any, Any, T]], instead: str | None) -> T:
        """Run a coroutine in the thread and return its result.

        ``instead``: what to use inside a running event loop, where this raises ``MakegoodError``. None: the
        call may block that loop. Raises ``ClosedError`` if the thread is ended meanwhile, ``ConfigError``
        where gevent or eventlet has patched the process.
        """
        refuse_patched()  # first: their greenlets share a thread, and see each other's event loop
        if instead is not None and running_loop() is not None:
            raise MakegoodError(
                f"a blocking call inside a running event loop would stop it: use {instead} and await it, or make the call in a "
                "thread (`await asyncio.to_thread(...)`)"
            )
        with self._lock:
            loop = self._loop_of_this_process()
            future = asyncio.run_coroutine_threadsafe(work(), loop)
        try:
            return future.result()
        except CancelledError:
            if self._loop is not loop:
                raise ClosedError("it was closed by another thread while this call waited") from None
            raise
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        """End the thread and the calls of other threads, but not those that a fork left behind in the
        parent.
        """
        with self._lock:
            loop = None if self.is_forked else self._loop
            # First: a call that is cancelled asks whether its loop is still this one.
            self._loop, self._pid = None, 0
            if loop is not None:
                asyncio.run_coroutine_threadsafe(_end(), loop)


async def _end() -> None:
    """Cancel what is under way, so that nobody waits for it forever; then stop the loop."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=_LAST)
    loop = asyncio.get_running_loop()
    await loop.shutdown_asyncgens()
    loop.call_soon(loop.stop)


def _serve(ready: "Future[asyncio.AbstractEventLoop]") -> None:
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    ready.set_result(loop)
    try:
        loop.run_forever()
    finally:
        loop.close()
