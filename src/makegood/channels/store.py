"""The default channel: the store's request and reply rows, with its wake-ups."""

from collections.abc import Callable, Sequence

from makegood.model.messages import TaskMessage
from makegood.store.protocol import Store
from makegood.store.records import Offer, Taken


class StoreChannel:
    """Carries requests and replies as rows of the store: durable, with nothing else to install."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def take(self, node: int, offers: Sequence[Offer], *, alone: bool = False) -> Taken:
        """Take waiting request rows; their deadlines start now."""
        return await self._store.requests.take(node, offers, alone=alone)

    async def answer(self, node: int, replies: Sequence[tuple[int, TaskMessage]]) -> list[bool]:
        """Insert reply rows addressed to the tasks."""
        return await self._store.requests.answer(node, replies)

    async def note(self, notes: Sequence[tuple[int, TaskMessage]]) -> None:
        """Insert rows addressed to the tasks."""
        await self._store.requests.note(notes)

    async def extend(self, node: int, task: int, idx: int, attempt: int, seconds: float) -> bool:
        """Move the request row's deadline."""
        return await self._store.requests.extend(node, task, idx, attempt, seconds)

    async def turn(self, agent: str, rate: float, most: float) -> float | None:
        """Reserve a turn in the row of the agent's rate."""
        return await self._store.requests.turn(agent, rate, most)

    async def give_back(self, node: int, requests: Sequence[tuple[int, int, int]]) -> None:
        """Clear ``taken_by`` of request rows that were not begun."""
        await self._store.requests.give_back(node, requests)

    async def excuse(self, node: int, requests: Sequence[tuple[int, int, int]]) -> None:
        """Mark request rows whose silence must not be counted as a failure."""
        await self._store.requests.excuse(node, requests)

    async def cancels(self, node: int) -> list[tuple[int, int, int]]:
        """Read the request rows that are marked."""
        return await self._store.requests.cancels(node)

    def subscribe_to_cancels(self, node: int, wake: Callable[[], None]) -> Callable[[], None]:
        """Subscribe to the store's topic of the node."""
        return self._store.subscribe(f"cancel:{node}", wake)

    def subscribe(self, agent: str, wake: Callable[[], None]) -> Callable[[], None]:
        """Subscribe to the store's topic of the agent."""
        return self._store.subscribe(f"agent:{agent}", wake)
