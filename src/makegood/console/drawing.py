"""The thread in which a console draws: pages, their fragments and JSON, one after the other.

The loop that answers visitors may be that of a Scheduler or of agents. A thread of pure Python holds it up
for no longer than the interpreter's switch interval at a time, and one thread competes with it once, however
many visitors there are.
"""

import asyncio
import contextvars
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")


class Cost:
    """The CPU seconds that drawings in its context have taken so far."""

    def __init__(self) -> None:
        self.seconds = 0.0


COST: ContextVar[Cost | None] = ContextVar("makegood_drawing_cost", default=None)
"""Where the drawings of this context are counted."""


class DrawingThread:
    """Runs what draws. It begins with the first drawing."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, "makegood console")

    async def run(self, work: Callable[[], T]) -> T:
        """Return what ``work`` returns, or raise what it raises; it runs in the context of the caller."""
        context, cost = contextvars.copy_context(), COST.get()

        def run_timed() -> T:
            began = time.thread_time()
            try:
                return context.run(work)
            finally:
                if cost is not None:
                    cost.seconds += time.thread_time() - began

        return await asyncio.get_running_loop().run_in_executor(self._pool, run_timed)

    def close(self) -> None:
        """End the thread once what it draws is drawn."""
        self._pool.shutdown(wait=False, cancel_futures=True)
