"""Every read of the store that pages use. Each but ``now`` is limited, and shared for a second.

Twenty viewers of one page cost the store what one costs. Results hold payloads as they are stored;
``redaction`` decides what a role sees of them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from makegood.base.clock import Clock
from makegood.client.client import Client
from makegood.client.encoded_tasks import Reasons, has_reason, legible, legible_event
from makegood.payload.envelopes import Codec
from makegood.store import Store
from makegood.store.views import (
    AlertView,
    AuditView,
    Filter,
    LeaseView,
    NodeView,
    PastTerm,
    StepPage,
    TaskEvents,
    TaskExcerpt,
    TaskView,
)

T = TypeVar("T")

SHARED: Final = 1.0
"""Seconds for which a result is shared."""
MOST_SHARED: Final = 512
"""Results that are kept at most."""


class Reads:
    """Reads of one store, shared between its viewers. ``share``: seconds, 0 for none. ``codec``: decodes
    inputs and results; None: they are returned as they are stored.
    """

    def __init__(
        self, client: Client, clock: Clock, *, share: float = SHARED, codec: Codec | None = None
    ) -> None:
        self._codec = codec
        self._client = client
        self._clock = clock
        self._share = share
        self._kept: dict[Hashable, tuple[float, asyncio.Future[Any]]] = {}

    @property
    def store(self) -> Store:
        """The store itself."""
        return self._client.store

    def forget(self) -> None:
        """Forget every kept result: this console has changed something."""
        self._kept.clear()

    async def share(self, key: Hashable, read: Callable[[], Awaitable[T]]) -> T:
        """Return the result of ``read``, or that of an equal ``key`` within the last second.

        A read that fails is not kept, and one that somebody else's disconnection cancels is repeated.
        """
        while True:
            now = self._clock.monotonic()
            entry = self._kept.get(key)
            if entry is not None and (not entry[1].done() or now - entry[0] < self._share):
                try:
                    value: T = await asyncio.shield(entry[1])
                except asyncio.CancelledError:
                    if entry[1].cancelled():
                        continue
                    raise
                return value
            return await self._read(key, read, now)

    async def _read(self, key: Hashable, read: Callable[[], Awaitable[T]], now: float) -> T:
        self._kept = {
            other: entry for other, entry in list(self._kept.items())[-MOST_SHARED + 1 :]
            if now - entry[0] < self._share or not entry[1].done()
        }  # fmt: skip
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        future.add_done_callback(_mark_as_seen)
        self._kept[key] = now, future
        try:
            value = await read()
        except asyncio.CancelledError:
            self._kept.pop(key, None)
            future.cancel()
            raise
        except Exception as failure:
            self._kept.pop(key, None)
            future.set_exception(failure)
            raise
        future.set_result(value)
        return value

    async def now(self) -> float:
        """Return the time on the store's clock."""
        return await self.store.now()

    async def tasks(self, condition: Filter) -> list[TaskView]:
        """Return tasks that match, newest first; at most ``condition.limit``."""
        return await self.share(("tasks", condition), lambda: self._client.find(condition))

    async def excerpt(self, task: int, page: StepPage | None = None) -> TaskExcerpt | None:
        """Return what a page shows of a task, with its undecided commands; None if it does not exist."""
        return await self.share(("excerpt", task, page), lambda: self._excerpt(task, page))

    async def _excerpt(self, task: int, page: StepPage | None) -> TaskExcerpt | None:
        part = await self.store.tasks.excerpt(task, page)
        if part is None or self._codec is None:
            return part
        return replace(part, detail=await legible(self._codec, part.detail))

    async def step_names(self, task: int, steps: Sequence[int]) -> dict[int, str]:
        """Return the names of these steps."""
        key = "names", task, tuple(steps)
        return await self.share(key, lambda: self.store.tasks.step_names(task, steps))

    async def recent(self, task: int, before: int | None = None) -> TaskEvents:
        """Return the newest events of a task, or those before the sequence ``before``."""
        return await self.share(("events", task, before), lambda: self._recent(task, before))

    async def _recent(self, task: int, before: int | None) -> TaskEvents:
        return await self.legible_events(task, await self.store.tasks.recent(task, before))

    async def legible_events(self, task: int, part: TaskEvents) -> TaskEvents:
        """Return a part of a task's history with errors and notes decoded, if the console has the codec."""
        if self._codec is None:
            return part
        steps = {end.idx for event in part.events for end in event.attempts}
        steps |= {note.idx for event in part.events for note in event.notes}
        names = await self.store.tasks.step_names(task, sorted(steps))
        detail = await self.store.tasks.detail(task) if any(map(has_reason, part.events)) else None
        reasons = None if detail is None else Reasons(self._codec, detail)
        events = [await legible_event(self._codec, task, names, event, reasons) for event in part.events]
        return replace(part, events=events)

    async def alerts(
        self, limit: int = 100, *, task: int | None = None, ended: bool | None = False
    ) -> Sequence[AlertView]:
        """Return open or ended alerts, or both (``ended=None``), newest first.

        Of the open ones alone, those that nobody has acknowledged come first.
        """
        key = "alerts", limit, task, ended
        return await self.share(key, lambda: self.store.alerts.views(limit, task, ended=ended))

    async def audit(self, limit: int = 100, *, task: int | None = None) -> Sequence[AuditView]:
        """Return operators' acts, newest first, without what they replaced."""
        return await self.share(("audit", limit, task), lambda: self.store.admin.audit(limit, task, change=0))

    async def nodes(self) -> Sequence[NodeView]:
        """Return the processes, with their agents."""
        return await self.share("nodes", self.store.nodes.views)

    async def lease(self, name: str) -> LeaseView | None:
        """Return who leads."""
        return await self.share(("lease", name), lambda: self.store.leases.read(name))

    async def past_terms(self, name: str, limit: int = 100) -> Sequence[PastTerm]:
        """Return who led, newest first."""
        return await self.share(("terms", name, limit), lambda: self.store.leases.past_terms(name, limit))


def _mark_as_seen(future: asyncio.Future[Any]) -> None:
    """Take a failure as seen: whoever read it has raised it."""
    if not future.cancelled():
        future.exception()
