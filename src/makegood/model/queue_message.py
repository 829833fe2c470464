"""A message in a queue, as its receiver sees it."""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


class QueueMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message received from a queue. It belongs to the receiver until its lease ends; acknowledge it before
    that.
    """

    seq: int
    queue: str
    id: str
    """Its name in the queue, the same for every delivery."""
    body: bytes
    """JSON bytes."""
    kind: str = ""
    """What it is about, such as a CloudEvent's type."""
    correlation_id: str | None = None
    """The sender's own id."""
    reply_to: str | None = None
    """Where the sender wants to be notified of what becomes of it."""
    task: str | None = None
    """For a notice of a task: the task's id."""
    sequence: int | None = None
    """For a notice of a task: its number among that task's notices, from 1."""
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    sent_at: float = 0.0
    """Seconds since 1970 on the store's clock."""
    tries: int = 1
    """The delivery number, from 1."""
    error: str = ""
    """Why the delivery before this one failed."""

    @property
    def value(self) -> Any:
        """The body, decoded into dicts, lists, texts and numbers. Raises ``msgspec.DecodeError`` if it is not
        JSON.
        """
        return self.read(Any)

    def read(self, type: type[T]) -> T:  # noqa: A002 - what it is
        """Return the body as a dataclass, Struct, TypedDict or attrs class. Raises ``msgspec.DecodeError`` if
        it does not fit.

        >>> QueueMessage(seq=1, queue="orders", id="o-1", body=b'{"cents": 5}').read(dict[str, int])
        {'cents': 5}
        """
        try:
            return msgspec.json.decode(self.body, type=type)
        except RecursionError as deep:
            raise msgspec.DecodeError(f"message {self.id} is nested too deeply to be decoded") from deep
