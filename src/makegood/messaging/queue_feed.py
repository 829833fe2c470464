"""Feeding queues of the store from elsewhere: what fits is sent, what no queue can take is named."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

import msgspec

from makegood.base.sizes import PAYLOAD_LIMIT
from makegood.errors import PayloadError, QueueFullError
from makegood.payload.codec import UNREADABLE, check_size
from makegood.store.protocol import Queues
from makegood.store.queue_records import Outgoing, Sent

E = TypeVar("E")

FULL: Final = 5.0
"""Seconds for which a full queue is left alone."""


@dataclass(slots=True)
class FeedOutcome(Generic[E]):
    """What became of entries that were sent; those that are in neither list had no room."""

    answers: list[tuple[E, Sent]] = field(default_factory=list)
    refusals: list[tuple[E, str]] = field(default_factory=list)
    """Those that no queue can take, each with the reason."""


class QueueFeed:
    """Sends entries to queues of a store, in order. ``most``, ``most_bytes``: what may wait in a queue."""

    def __init__(self, queues: Queues, most: int, most_bytes: int) -> None:
        self._queues = queues
        self._most = most
        self._most_bytes = most_bytes
        self._full: dict[str, float] = {}
        self.complaint: QueueFullError | None = None
        """Why something had no room when it was last sent."""

    def full(self) -> list[str]:
        """Return the queues that are left alone now, because they have no room."""
        now = asyncio.get_running_loop().time()
        self._full = {queue: until for queue, until in self._full.items() if until > now}
        return list(self._full)

    async def send(self, pairs: Sequence[tuple[E, Outgoing]]) -> FeedOutcome[E]:
        """Send each entry's message. Of a queue without room for all, the first entries are sent.

        Raises ``StoreUnavailableError``; entries may have been sent then, and are known when sent again.
        """
        self.complaint = None
        outcome = FeedOutcome[E]()
        await self._send(list(pairs), outcome)
        return outcome

    async def _send(self, pairs: list[tuple[E, Outgoing]], outcome: FeedOutcome[E]) -> None:
        while pairs:
            messages = [message for _, message in pairs]
            try:
                answers = await self._queues.send_messages(messages, self._most, self._most_bytes)
            except QueueFullError as full:
                pairs = self._fitting(pairs, full)
            except PayloadError as why:
                if len(pairs) == 1:
                    outcome.refusals.append((pairs[0][0], str(why)))
                    return
                half = len(pairs) // 2
                await self._send(pairs[:half], outcome)
                await self._send(pairs[half:], outcome)
                return
            else:
                outcome.answers += [
                    (entry, answer) for (entry, _), answer in zip(pairs, answers, strict=True)
                ]
                return

    def _fitting(self, pairs: list[tuple[E, Outgoing]], full: QueueFullError) -> list[tuple[E, Outgoing]]:
        """Return fewer of the entries, in order: of a queue that is full, those that it has room for.

        A queue without any room is left alone for a while.
        """
        self.complaint = full
        of_it = [n for n, (_, message) in enumerate(pairs) if message.queue == full.queue]
        # At least one is left out, whatever room there was: other processes fill the queue too.
        left_out = set(of_it[min(full.room, len(of_it) - 1) :])
        if len(left_out) == len(of_it):
            self._full[full.queue] = asyncio.get_running_loop().time() + FULL
        return [pair for n, pair in enumerate(pairs) if n not in left_out]


def check_body(body: bytes, subject: str) -> bytes:
    """Return a body that a queue can take. Raises ``PayloadError`` for one that is empty, too large or not
    JSON.
    """
    if not body.strip():
        raise PayloadError(f"{subject} is empty")
    try:
        content = check_size(body, PAYLOAD_LIMIT, subject, is_fixed=True)
        msgspec.json.decode(content)
    except UNREADABLE as wrong:
        raise PayloadError(f"{subject} is not JSON: {wrong}") from wrong
    return content
