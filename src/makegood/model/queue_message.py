"""A message in a queue, as whoever receives it sees it."""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


class QueueMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message that was received from a queue. It is the receiver's until its lease ends; acknowledge it before.

    ``id``: its name in the queue, the same for every delivery. ``body``: JSON bytes. ``kind``: what it is about, such as a
    CloudEvent's type. ``correlation_id`` and ``reply_to``: the sender's own id, and where he wants to be told what becomes of it. Of
    a notice of a task ``task`` is the task's id and ``sequence`` its number among that task's notices, from 1. ``tries``: the how-manieth delivery this is.
    ``error``: why the one before failed. ``sent_at``: seconds since 1970 on the store's clock.
    """

    seq: int
    queue: str
    id: str
    body: bytes
    kind: str = ""
    correlation_id: str | None = None
    reply_to: str | None = None
    task: str | None = None
    sequence: int | None = None
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    sent_at: float = 0.0
    tries: int = 1
    error: str = ""

    @property
    def value(self) -> Any:
        """The body, decoded into dicts, lists, texts and numbers. Raises ``msgspec.DecodeError`` when it is no JSON."""
        return self.read(Any)

    def read(self, type: type[T]) -> T:  # noqa: A002 - what it is
        """Return the body as a dataclass, Struct, TypedDict or attrs class. Raises ``msgspec.DecodeError`` when it is none.

        >>> QueueMessage(seq=1, queue="orders", id="o-1", body=b'{"cents": 5}').read(dict[str, int])
        {'cents': 5}
        """
        try:
            return msgspec.json.decode(self.body, type=type)
        except RecursionError as deep:
            raise msgspec.DecodeError(f"message {self.id} is nested too deeply to be decoded") from deep
