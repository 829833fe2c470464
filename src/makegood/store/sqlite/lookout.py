"""Looking out for tasks that were submitted in a transaction of the caller's.

SQLite tells nobody of a commit, and the caller's connection rings no bell. So the store that wrote into the transaction looks
for one task of it: at once, then more and more rarely, for some seconds. After a commit that comes later, or none, the
slow poll of whoever listens has to do.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from makegood.errors import StoreError
from makegood.store.sqlite.transaction import Action, Transaction

_log = logging.getLogger("makegood.store")

_FIRST, _GROWTH, _LONGEST, _SPAN = 0.002, 1.2, 0.1, 10.0
_MOST = 1000
_THERE = "select id from makegood_task where id in ({marks})"


class Read(Protocol):
    """Runs an action on the store's reading thread."""

    def __call__(self, action: Action[set[int]]) -> Awaitable[set[int]]:
        """Return what the action does."""
        ...


@dataclass(slots=True, eq=False)
class Lookout:
    """Calls ``seen`` soon after a task is there. Belongs to one event loop; ``expect`` may be called in any thread."""

    read: Read
    seen: Callable[[], None]
    _loop: asyncio.AbstractEventLoop | None = None
    _wanted: dict[int, float] = field(default_factory=dict)
    _pause: float = _FIRST
    _watch: asyncio.Task[None] | None = None

    def open(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to belong to an event loop."""
        self._loop = loop

    def expect(self, tasks: Sequence[int]) -> None:
        """Look out for tasks of one transaction: one tells of all."""
        if self._loop is not None and tasks:
            self._loop.call_soon_threadsafe(self._expect, tasks[-1])

    def _expect(self, task: int) -> None:
        if self._loop is None:  # closed meanwhile
            return
        while len(self._wanted) >= _MOST:
            del self._wanted[next(iter(self._wanted))]
        self._wanted[task] = self._loop.time() + _SPAN
        self._pause = _FIRST
        if self._watch is None or self._watch.done():
            self._watch = self._loop.create_task(self._look(self._loop), name="lookout")

    async def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        while self._wanted:
            await asyncio.sleep(self._pause)
            self._pause = min(self._pause * _GROWTH, _LONGEST)
            try:
                found = await self.read(partial(_there, tasks=tuple(self._wanted)))
            except StoreError as away:
                _log.warning("looking for what was submitted in a caller's transaction: %s", away)
                self._wanted.clear()
                return
            for task in [task for task, end in self._wanted.items() if task in found or end < loop.time()]:
                del self._wanted[task]
            if found:
                self.seen()

    async def close(self) -> None:
        """Stop looking."""
        self._loop = None
        self._wanted.clear()
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
            self._watch = None


def _there(tx: Transaction, tasks: Sequence[int]) -> set[int]:
    return {task for (task,) in tx.among(_THERE, tasks)}
