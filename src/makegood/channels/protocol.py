"""The channel protocol: how an Agent exchanges messages with the Schedulers.

Each request is recorded in the store before any agent sees it. So a channel may lose, repeat or reorder
messages: the deadline detects lost ones, and the attempt number refuses late ones.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from makegood.model.messages import TaskMessage
from makegood.store.records import Offer, Taken


class Channel(Protocol):
    """Requests in, replies out. All methods are idempotent for the same request and node."""

    async def take(self, node: int, offers: Sequence[Offer], *, alone: bool = False) -> Taken:
        """Return requests that this node may run now: at most each offer's free slots, and no more than its
        rate allows.
        """

    async def answer(self, node: int, replies: Sequence[tuple[int, TaskMessage]]) -> list[bool]:
        """Deliver replies (task, message). Returns True for each reply that came in time."""

    async def note(self, notes: Sequence[tuple[int, TaskMessage]]) -> None:
        """Deliver notes (task, message) of attempts under way, in order and before any reply that follows.

        Unlike a reply, a note that the channel loses or repeats is lost or repeated in the history.
        """

    async def extend(self, node: int, task: int, idx: int, attempt: int, seconds: float) -> bool:
        """Move an attempt's deadline to ``seconds`` from now.

        Returns False if it is no longer this node's.
        """

    async def turn(self, agent: str, rate: float, most: float) -> float | None:
        """Reserve a turn of an agent's rate for a further try; returns the seconds until it.

        None if they would be more than ``most``, or too many: then nothing is reserved.
        """

    async def give_back(self, node: int, requests: Sequence[tuple[int, int, int]]) -> None:
        """Release requests (task, idx, attempt) that were taken but not begun."""

    async def excuse(self, node: int, requests: Sequence[tuple[int, int, int]]) -> None:
        """Mark requests (task, idx, attempt) under way whose silence must not be counted as a failure."""

    async def cancels(self, node: int) -> list[tuple[int, int, int]]:
        """Return requests (task, idx, attempt) under way that nobody needs any more."""

    def subscribe_to_cancels(self, node: int, wake: Callable[[], None]) -> Callable[[], None]:
        """Call ``wake`` when ``cancels`` of this node may have changed; returns a function that ends this."""

    def subscribe(self, agent: str, wake: Callable[[], None]) -> Callable[[], None]:
        """Call ``wake`` when a request may wait for the agent of this address; returns a function that ends
        this.
        """
