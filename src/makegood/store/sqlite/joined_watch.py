"""Detects the commit of tasks, messages and signals that were written in the caller's transaction.

SQLite does not announce commits, and the caller's connection wakes nobody. So the store that wrote into the
transaction polls for one row of it: at short intervals at first, then at longer ones, for 10 seconds. A later
commit is found only by the slow poll of each listener.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeAlias

from makegood.base.cancelling import cancel_and_wait
from makegood.base.contexts import home_context
from makegood.errors import StoreError
from makegood.store.sqlite.transaction import Action, WriteTransaction

_log = logging.getLogger("makegood.store")

_FIRST, _GROWTH, _LONGEST, _SPAN = 0.002, 1.2, 0.1, 10.0
"""Seconds until the first poll; the factor by which pauses grow; the longest pause; when polling ends."""
_MOST = 1000
"""Rows that are polled for at a time; beyond that, the oldest are given up."""
_TASKS = "select id from makegood_task where id in ({marks})"
_SIGNAL = "select task, name, id from makegood_signal where task = ? and name = ? and id = ?"
_MESSAGE = "select queue, id from makegood_message where queue = ? and id = ?"

RowKey: TypeAlias = int | tuple[str, str] | tuple[int, str, str]
"""The row of a task, by its id; of a message, by its queue and id; of a signal, by its task, name and id."""


class RunOnReader(Protocol):
    """Runs an action on the store's reading thread."""

    def __call__(self, action: Action[set[RowKey]]) -> Awaitable[set[RowKey]]:
        """Return the result of the action."""


@dataclass(slots=True, eq=False)
class JoinedWatch:
    """Calls ``on_commit`` soon after expected tasks, messages or signals were committed.

    A watch belongs to one event loop; ``expect`` may be called in any thread.
    """

    read: RunOnReader
    """Runs an action on the store's reading thread."""
    on_commit: Callable[[set[RowKey]], None]
    """Called with those that are committed now."""
    _loop: asyncio.AbstractEventLoop | None = None
    _context: Context = field(default_factory=Context)
    _keys: dict[RowKey, float] = field(default_factory=dict)
    _pause: float = _FIRST
    _watch: asyncio.Task[None] | None = None

    def open(self, loop: asyncio.AbstractEventLoop) -> None:
        """Bind the joined_watch to an event loop."""
        self._loop, self._context = loop, home_context()

    def expect(self, key: RowKey) -> None:
        """Poll for a task, a message or a signal, for 10 seconds."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._expect, key, context=self._context.copy())

    def _expect(self, key: RowKey) -> None:
        if self._loop is None:  # closed meanwhile
            return
        while len(self._keys) >= _MOST:
            del self._keys[next(iter(self._keys))]
        self._keys[key] = self._loop.time() + _SPAN
        self._pause = _FIRST
        if self._watch is None or self._watch.done():
            self._watch = self._loop.create_task(self._poll(self._loop), name="joined_watch")

    async def _poll(self, loop: asyncio.AbstractEventLoop) -> None:
        while self._keys:
            await asyncio.sleep(self._pause)
            self._pause = min(self._pause * _GROWTH, _LONGEST)
            try:
                hits = await self.read(partial(_find_committed, keys=tuple(self._keys)))
            except StoreError as away:
                _log.warning("looking for what was submitted in a caller's transaction: %s", away)
                self._keys.clear()
                return
            for key in [key for key, end in self._keys.items() if key in hits or end < loop.time()]:
                del self._keys[key]
            if hits:
                self.on_commit(hits)

    async def close(self) -> None:
        """Stop polling."""
        self._loop = None
        self._keys.clear()
        await cancel_and_wait(self._watch)
        self._watch = None


def _find_committed(tx: WriteTransaction, keys: Sequence[RowKey]) -> set[RowKey]:
    hits: set[RowKey] = {task for (task,) in tx.among(_TASKS, [key for key in keys if isinstance(key, int)])}
    for key in keys:
        if not isinstance(key, int):
            hits.update(map(tuple, tx.rows(_SIGNAL if len(key) == 3 else _MESSAGE, key)))
    return hits
