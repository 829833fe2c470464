"""Parts of ``store.protocol``: signals, lists of lanes, and queues."""

from collections.abc import Sequence
from typing import Protocol

from makegood.model.lane import LaneState
from makegood.model.messages import Act
from makegood.store.lane_views import LaneView, TaskLane
from makegood.store.queue_records import (
    DeadLetter,
    Handed,
    MessageView,
    Outgoing,
    QueueView,
    Receipt,
    Returned,
    Sent,
)
from makegood.store.records import NO_LIMIT
from makegood.store.signals import OutgoingSignal, Signalled
from makegood.transactions import Caller


class Signalling(Protocol):
    """Signals to tasks. A sender locks no task: it only inserts."""

    async def signal(self, signal: OutgoingSignal, act: Act | None = None) -> Signalled:
        """Send a signal in one commit; ``act``: an operator's, which is audited.

        If the task knows a signal of this name and id, it keeps what it has: ``created=False``, whatever
        became of the task meanwhile. Raises ``TaskNotFoundError``, and ``SignalRefused`` when the task has
        ended or is being undone, no step of it waits for this name, or ``signals.MOST_BACKLOG`` signals are
        unused: then nothing was sent. Concurrent sends may not see each other, and all be accepted.
        """

    async def join_signal(self, caller: Caller, signal: OutgoingSignal) -> Signalled:
        """Send a signal in the caller's open transaction, using only ``caller``.

        Returns and raises as ``signal``, and raises what ``join`` raises. Its own errors leave the
        transaction as it was.
        """


class LaneLists(Protocol):
    """Who holds lanes, and who waits. Claims and Decisions change that: see ``Tasks.commit``."""

    async def lanes(
        self,
        app: str | None = None,
        name: str | None = None,
        limit: int = 100,
        after: tuple[str, str] = ("", ""),
    ) -> list[LaneView]:
        """Return at most ``limit`` lanes that tasks hold or wait for, by app and name, those behind
        ``after``, which is an app and a name. ``app``, ``name``: only those.
        """
        ...

    async def places(self, tasks: Sequence[int], most: int = ...) -> dict[int, list[TaskLane]]:
        """Return the places of tasks in their lanes, by task; of others, ``most`` and one more are counted
        at most.
        """
        ...

    async def lanes_of(self, task: int) -> dict[str, LaneState]:
        """Return the lanes of a task, each with the state of its place: waiting, held or out."""
        ...

    async def obstacle(self, app: str, names: Sequence[str], at_once: int) -> tuple[int, str] | None:
        """Return a task that has one of these lanes, or waits for it, and the lane, if a task that comes now
        may not go. It locks nothing: the claim decides.
        """


class Queues(Protocol):
    """Queues of messages that applications read and write.

    A message is leased to one receiver at a time. The receipt (``seq``, ``tries``) is valid until another
    receiver gets the message.
    """

    async def send_messages(
        self, messages: Sequence[Outgoing], most: int, most_bytes: int = NO_LIMIT
    ) -> list[Sent]:
        """Add messages to their queues in one commit; return one answer each, in order.

        If a queue knows the id (of a waiting, dead or remembered message), it keeps what it has:
        ``created=False``. Raises ``QueueFullError`` (``room``: how many would fit) when more than
        ``most`` messages, or ``most_bytes`` of values, would wait in a queue; an empty queue accepts one
        message of any size. Raises ``PayloadError`` for values that the database refuses. After an error
        nothing was sent. Concurrent sends may not see each other, and all be accepted.
        ``queue_records.Depths`` describes when bytes are summed.
        """

    async def keep_dead_letters(self, letters: Sequence[DeadLetter]) -> list[Sent]:
        """Add messages as dead letters, each with an alert, in one commit; no limit of a queue counts.

        If a queue knows the id, it keeps what it has. Bodies may be any bytes. Raises ``PayloadError``.
        """

    async def receive_messages(
        self, queue: str, taker: str, limit: int, lease: float, threshold: int
    ) -> Handed:
        """Lease at most ``limit`` messages to ``taker`` for ``lease`` seconds, longest due first; tries + 1.

        A message of a task waits for earlier messages of the same task that are leased or delayed. A message
        that was delivered ``threshold`` times becomes a dead letter instead, with an alert. Any number of
        receivers may ask at once.
        """

    async def hold_messages(self, receipts: Sequence[Receipt], lease: float) -> list[bool]:
        """Extend leases to ``lease`` seconds from now, never earlier; False for each message
        that the holder has lost.
        """

    async def acknowledge_messages(self, receipts: Sequence[Receipt]) -> list[bool]:
        """Remove processed messages from their queues; False for each message that the holder has lost."""

    async def return_messages(self, releases: Sequence[Returned]) -> list[bool]:
        """Release messages, or make them dead letters with an alert; False for each message
        that the holder has lost.
        """

    async def accept(self, caller: Caller, receipt: Receipt) -> bool:
        """Acknowledge a message in the caller's transaction, using only ``caller``; False if the
        holder has lost the message.

        Raises what ``join`` raises for an unfit connection.
        """

    async def put(self, caller: Caller, message: Outgoing, most: int, most_bytes: int = NO_LIMIT) -> Sent:
        """Send a message in the caller's open transaction, using only ``caller``.

        Returns and raises as ``send_messages``, and raises what ``join`` raises. Its own errors leave the
        transaction as it was.
        """

    async def messages(self, queue: str | None, limit: int = 100, *, dead: bool = False) -> list[MessageView]:
        """Return waiting messages, oldest first, or dead letters (``queue=None``: of all queues),
        without claiming them.
        """

    async def views(self) -> list[QueueView]:
        """Return the queues that have waiting messages or dead letters, by name."""

    async def replay_messages(
        self, queue: str, act: Act, ids: Sequence[str] | None = None, *, body: bytes | None = None
    ) -> list[str]:
        """Make dead letters receivable again, with tries reset (``ids=None``: all of the
        queue), and return their ids.

        Ends their alerts and audits each. ``body`` replaces the body of the one message.
        """

    async def drop_messages(
        self, queue: str, act: Act, ids: Sequence[str] | None = None, *, waiting: bool = False
    ) -> list[str]:
        """Remove dead letters for good, or with ``waiting`` messages that nobody has claimed.

        At most ``queue_records.MOST_DROPPED`` waiting messages if ``ids`` is None. Otherwise as
        ``replay_messages``.
        """

    async def expire_messages(self, limit: int) -> int:
        """Remove expired messages and remembered ids whose time is over; return how
        many, at most ``limit``.
        """

    async def shorten_queues(self, most: int, limit: int, most_bytes: int = NO_LIMIT) -> int:
        """Drop the oldest notices of queues in which more than ``most`` messages or ``most_bytes`` wait.

        Drops at most ``limit`` from each queue, with an alert for each queue, and returns how many. Messages
        that somebody sent, or that are leased, stay.
        """
