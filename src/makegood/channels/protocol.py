"""What an Agent needs of the messages between it and the Schedulers.

Whatever carries them, the record stands in the store before a request is seen by anybody, so a channel may lose,
repeat or reorder messages: complete-by finds what is lost, the attempt refuses what is late.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from makegood.model.messages import TaskMessage
from makegood.store.records import Offer, Taken


class Channel(Protocol):
    """Requests in, replies out. All methods are idempotent for the same request and node."""

    async def take(self, node: int, offers: Sequence[Offer], *, alone: bool = False) -> Taken:
        """Return requests that this node may run now, at most the free slots of each offer, and no more than its rate allows."""
        ...

    async def answer(self, node: int, replies: Sequence[tuple[int, TaskMessage]]) -> list[bool]:
        """Hand over replies (task, message); True for each that came in time."""
        ...

    async def extend(self, node: int, task: int, idx: int, attempt: int, seconds: float) -> bool:
        """Move an attempt's complete-by to ``seconds`` from now; False: it is no longer this node's."""
        ...

    async def give_back(self, node: int, requests: Sequence[tuple[int, int, int]]) -> None:
        """Return requests (task, idx, attempt) that were taken but not begun."""
        ...

    async def excuse(self, node: int, requests: Sequence[tuple[int, int, int]]) -> None:
        """Say of requests (task, idx, attempt) under way that their silence is not to be counted as a failure."""
        ...

    def subscribe(self, agent: str, ring: Callable[[], None]) -> Callable[[], None]:
        """Call ``ring`` when a request may wait for the agent of this address; returns what ends the subscription."""
        ...
