"""What the relay needs from a broker that orders come from, and the notifier from one that notices go to.

Life of a delivery::

    take ──► the store's commit ──► acknowledge
      │           └─ the store is away, or its queue is full: pause, and commit again later
      └──► no queue can take it ──► refuse: the broker's own dead letter,
                                    or the store's, and then acknowledge

A process may die at each arrow. Whatever was taken and not acknowledged, the broker delivers again, and the
store's queue knows its id. So a source needs no fence, and an acknowledgement that fails is no fault.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

import msgspec

from makegood.base.sizes import MIB
from makegood.errors import ConfigError, DeliveryError

MOST_BYTES: Final = 4 * MIB
"""Bytes of bodies that are taken in one go, and one delivery more."""


class RefusedTargetError(DeliveryError):
    """An address to which nothing can be sent. Trying again does not help."""


class MissingPlaceError(RefusedTargetError):
    """A queue, topic, stream or subject that does not exist at its broker."""


class UnsentError(DeliveryError):
    """An event that surely was not sent: the broker does not have it from this try. Trying again may help."""


def failed_send(where: str, fault: Exception, *, began: bool) -> DeliveryError:
    """Return the error for an event that was not confirmed. ``began``: it may have gone out.

    >>> str(failed_send("amqp:main/notices", ConfigError("amqp:main/notices: no such queue"), began=False))
    'amqp:main/notices: no such queue'
    """
    kind = DeliveryError if began else UnsentError
    return kind(f"{where}: {str(fault).removeprefix(f'{where}: ')}")


class Delivery(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A message as a broker has delivered it, not yet acknowledged."""

    receipt: Any
    """What its source acknowledges it by."""
    body: bytes
    id: str | None
    """Its name at the broker, the same for each delivery, and never that of another message of that place;
    None: it has none.
    """
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Its headers, those with text in UTF-8."""
    kind: str = ""
    """What it is about: its type at the broker, or the header ``ce_type`` of a CloudEvent."""
    correlation_id: str | None = None
    reply_to: str | None = None
    """Where its sender wants an answer, as the broker puts it; a queue of that broker, not of the store."""
    sent_at: float | None = None
    """Seconds since 1970 on the broker's clock, if it says so."""
    count: int = 1
    """Which delivery of the message this is, from 1, as far as the broker says."""
    fault: str = ""
    """Why nothing can be made of it, whatever its body, such as an entry that was trimmed before it was
    read.
    """


def next_batch(buffer: deque[Delivery], limit: int) -> list[Delivery]:
    """Remove and return the first deliveries of a buffer, as ``Source.take`` limits them."""
    batch: list[Delivery] = []
    size = 0
    while buffer and len(batch) < limit and size < MOST_BYTES:
        batch.append(buffer.popleft())
        size += len(batch[-1].body)
    return batch


class Backlog(msgspec.Struct, frozen=True):
    """What waits at a broker."""

    waiting: int | None
    """Messages that nobody has acknowledged; None: the broker does not say."""
    oldest: float | None = None
    """Age of the oldest of them in seconds; None: unknown."""


Severity = Literal["ok", "warning", "error"]


class Requirement(msgspec.Struct, frozen=True):
    """One answer to the question whether a broker is set up so that nothing is lost or sent twice."""

    severity: Severity
    """``error``: a source must not be read, or nothing must be sent, until that is changed."""
    what: str
    """What is so, a sentence without its full stop."""
    remedy: str = ""
    """What to do, "" when ok."""


class Requirements(list[Requirement]):
    """What was checked of a place, in order."""

    def add(self, severity: Severity, what: str, remedy: str = "") -> None:
        """Add an answer."""
        self.append(Requirement(severity, what, remedy))


def raise_first_error(requirements: Sequence[Requirement], where: str) -> None:
    """Raise ``ConfigError`` for the first requirement of severity ``error``. ``where`` begins its message."""
    for one in requirements:
        if one.severity == "error":
            raise ConfigError(f"{where}: {one.what} -> {one.remedy}")


Answers = list[tuple[str, Requirement]]
"""What was checked of a broker, each with the place that it is about."""


@dataclass(frozen=True, slots=True)
class Reader:
    """Who reads from a source."""

    group: str
    """The name that all processes share that read for the same queue of the same store: a consumer group, a
    durable consumer.
    """
    name: str
    """This process's own name."""
    batch: int = 200
    """How many messages one commit takes; nothing is prefetched beyond."""


class Source(Protocol):
    """A queue, topic or stream of a broker from which orders are taken. One task uses it, never two at once.

    All methods but ``close`` raise ``BrokerUnavailableError`` when the broker is away, stops answering, or
    takes the connection: the source has then let go of everything, and the next ``open`` connects again. They
    raise ``ConfigError`` for what no retry mends: a wrong password, missing rights, no such queue, a
    requirement of severity ``error``. A call never takes longer than some ten seconds beyond its ``wait``,
    whatever the broker does, and may be cancelled.
    """

    where: str
    """Its address, for messages."""
    keeps_refusals: bool
    """Whether the broker itself keeps what is refused, as a dead letter of its own. Known once it is open."""

    async def open(self) -> Sequence[Requirement]:
        """Connect, begin to consume, and return what was checked of the broker.

        To open what is open already does nothing.
        """

    async def take(self, limit: int, wait: float) -> Sequence[Delivery]:
        """Return the next deliveries in the broker's order: at most ``limit``, and no further one once their
        bodies have ``MOST_BYTES``.

        Waits up to ``wait`` seconds for the first, and then for no other. Ends a ``pause``. What was taken
        before and neither acknowledged nor refused is not returned again while the connection lasts.
        """

    async def acknowledge(self, deliveries: Sequence[Delivery]) -> None:
        """Tell the broker that these are in the store. If it cannot be told, they come again, no fault."""

    async def refuse(self, delivery: Delivery, why: str) -> None:
        """Give a message to the broker's own dead letters; only where ``keeps_refusals``."""

    async def pause(self) -> None:
        """Consume nothing more until the next ``take``, keep what was delivered, and keep the connection.

        What the broker counts as a failed delivery (a nack, a closed channel) must not happen.
        """

    async def backlog(self) -> Backlog:
        """Return what waits; may use a connection of its own."""

    async def close(self) -> None:
        """Let go of the broker; what was taken and not acknowledged goes back to it."""


class OutgoingEvent(msgspec.Struct, frozen=True):
    """An event to send."""

    id: str
    """Its id, the same for each try: receivers know a repetition by it."""
    task: str
    """The task's id: events of one task are sent in order, each once the one before was confirmed."""
    body: bytes
    content_type: str = "application/cloudevents+json"
    correlation_id: str = ""
    """The one of the task's submitter, by which a client finds the answer to its message."""

    def correlation(self, most: int) -> str:
        """Return the text for a broker's own property that takes ``most`` bytes in UTF-8: the submitter's
        correlation id, or the task's id if there is none, or it is longer. A part of one names no message.

        >>> OutgoingEvent("e-1", "task-1", b"{}", correlation_id="o-1").correlation(4)
        'o-1'
        >>> OutgoingEvent("e-1", "task-1", b"{}", correlation_id="order-1").correlation(6)
        'task-1'
        """
        return self.correlation_id if 0 < len(self.correlation_id.encode()) <= most else self.task


class Sender(Protocol):
    """Sends to the places of one broker. Any number of tasks may use it at once."""

    where: str
    """The broker, such as "amqp:main", for messages."""

    async def send(self, place: str, event: OutgoingEvent, timeout: float) -> None:
        """Send an event, and return once the broker has confirmed that it keeps it.

        Connects when needed. Raises ``DeliveryError`` when that is not certain within ``timeout`` seconds:
        the event may have arrived, and is sent again under its id. Raises ``UnsentError`` if it surely was
        not sent, ``MissingPlaceError`` for a place that does not exist, and ``RefusedTargetError`` for what
        it can never take. The cause of an error is a ``ConfigError`` if the broker refuses this process.
        """

    async def close(self) -> None:
        """Let go of the broker."""
