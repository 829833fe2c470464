"""An event loop in a thread of its own, for blocking facades over the asyncio core."""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from makegood.errors import MakegoodError

T = TypeVar("T")


class Loop:
    """An event loop in a daemon thread of its own. Made at the first call, and anew in a forked child.

    ``begins``: called whenever one is made, before anything runs on it.
    """

    def __init__(self, begins: Callable[[], None] | None = None) -> None:
        self._begins = begins
        self._pid = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()

    @property
    def forked(self) -> bool:
        """Whether this process is a child of the one in which the loop was started (or none was)."""
        return self._pid != os.getpid()

    def start(self) -> None:
        """Start the thread if this process has none yet."""
        with self._lock:
            if not self.forked:
                return
            ready: Future[asyncio.AbstractEventLoop] = Future()
            threading.Thread(target=_serve, args=(ready,), name="makegood", daemon=True).start()
            self._loop = ready.result()
            if self._begins is not None:
                self._begins()
            self._pid = os.getpid()

    def run(self, work: Callable[[], Coroutine[Any, Any, T]], instead: str) -> T:
        """Run a coroutine in the thread and return its result; ``instead`` names what to use inside a running loop."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            raise MakegoodError(
                f"a blocking call inside a running event loop would stop it: use {instead} and await it"
            )
        self.start()
        assert self._loop is not None
        future = asyncio.run_coroutine_threadsafe(work(), self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        """End the thread, unless a fork left it behind in the parent."""
        with self._lock:
            if self._loop is not None and not self.forked:
                self._loop.call_soon_threadsafe(self._loop.stop)
            self._loop, self._pid = None, 0


def _serve(ready: "Future[asyncio.AbstractEventLoop]") -> None:
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    ready.set_result(loop)
    try:
        loop.run_forever()
    finally:
        loop.close()
