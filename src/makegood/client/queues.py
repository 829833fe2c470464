"""Queues of the store, as applications use them: sending messages, receiving them, and reading them.

A message belongs to its receiver for the length of a lease. If the receiver does not acknowledge it in that
time, the message is redelivered, to this receiver or another: each message arrives *at least* once. Messages
of one task arrive in their order.
"""

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from makegood.base import ids
from makegood.base.arguments import checked_count, judge_calls
from makegood.base.contexts import bare_context, within
from makegood.base.durations import Duration, seconds, short_duration
from makegood.base.pacing import Pauses, event_within
from makegood.base.text import hostname, refuse_unstorable
from makegood.brokers import KINDS, address_of
from makegood.brokers.address import is_address
from makegood.client.lease_keeper import LeaseKeeper
from makegood.client.opened_store import OpenedStore
from makegood.errors import ConfigError, DefinitionError, StoreUnavailableError
from makegood.model import notices
from makegood.model.queue_message import QueueMessage
from makegood.payload.codec import encode
from makegood.payload.envelopes import Codec, decode, is_encoded, message_context
from makegood.store import Store
from makegood.store.queue_records import Outgoing, Returned
from makegood.transactions import Caller, recognise

log = logging.getLogger("makegood.queues")

LIMIT: Final = 100_000
"""Messages that may wait in a queue, unless ``queue_limit`` says otherwise."""

MOST_BYTES: Final = "1GiB"
"""Bytes of the messages that may wait in a queue, unless ``queue_bytes`` says otherwise."""

LEASE: Final = "30s"
TRIES: Final = 8
_MOST_ID: Final = 300


def queue_name(queue: str) -> str:
    """Return the name of a queue. Raises ``ConfigError`` for what cannot be one, such as a place at a
    broker.
    """
    if isinstance(queue, str) and is_address(queue, KINDS):
        try:
            address = address_of(queue, KINDS)
        except ConfigError:  # it may be a URL, with a password
            raise ConfigError(
                "a broker is not a queue of the store: `makegood broker list` shows the queue of each place that orders are taken from"
            ) from None
        raise ConfigError(
            f"{address} is a place at a broker, and not a queue of the store. makegood puts what it takes there into queue {address.queue}, "
            f"or the one of its ?queue=: `makegood queue list {address.queue}`; `makegood broker list` shows both"
        )
    try:
        return ids.checked_queue(queue)
    except DefinitionError as wrong:
        raise ConfigError(str(wrong)) from None


@judge_calls(ConfigError, values=True, constructor=False)
class Queue:
    """A queue, for its readers: ``client.queue("web-7")``. Any number of processes may read one queue.

    ``async for message in queue`` yields messages as they arrive, and acknowledges each when the next one is
    requested. Until then the message's lease is extended, for up to ``tries`` times ``lease``. If an
    exception or ``break`` ends the loop, its last message is not acknowledged, and is redelivered. An outage
    of the store does not end the loop.

    >>> async def listen(client):
    ...     async for message in client.queue("web-7"):
    ...         print(message.value["data"]["state"])
    """

    def __init__(
        self,
        opened_store: OpenedStore,
        name: str,
        *,
        lease: Duration,
        tries: int,
        poll: float,
        codec: Codec | None = None,
    ) -> None:
        self._codec = codec
        self.name = queue_name(name)
        self._opened_store = opened_store
        self._poll = poll
        self._lease = seconds(lease, name="lease", least=0.01)
        checked_count(tries, "tries")
        if tries < 1:
            raise ConfigError(f"tries={tries!r}: a whole number from 1")
        self._tries = tries
        self.turns: dict[tuple[int, int], LeaseKeeper] = {}  # messages whose turn in ``async for`` it is

    def __repr__(self) -> str:
        return f"<queue {self.name}>"

    async def receive(self, limit: int = 1, *, timeout: Duration | None = None) -> list[QueueMessage]:
        """Wait until there is a message, and return up to ``limit`` of those that are there.

        ``timeout``: how long to wait at most, None = forever; when it has passed, the list is empty.
        Acknowledge the messages before the lease ends, or they are redelivered. Raises
        ``StoreUnavailableError`` when the store is unavailable at the end of that time.
        """
        most = None if timeout is None else seconds(timeout, name="timeout")
        checked_count(limit)
        if limit < 1:
            raise ConfigError(f"limit={limit!r}: a whole number from 1")
        self._opened_store.ready()
        now = asyncio.get_running_loop().time
        end = None if most is None else now() + most
        wake = asyncio.Event()
        stop = self._opened_store.store.subscribe(f"queue:{self.name}", wake.set)
        pauses = Pauses()
        try:
            while True:
                wake.clear()
                self._opened_store.ready()
                rest = self._poll
                try:
                    result = await self._take(limit)
                    if isinstance(result, list):
                        return result
                    rest = min(rest, result)
                    pauses.reset()
                except StoreUnavailableError as away:
                    if end is not None and now() >= end:
                        raise
                    log.warning("waiting for messages of queue %s, the store is away: %s", self.name, away)
                    rest = pauses.draw()
                if end is not None:
                    if now() >= end:
                        return []
                    rest = min(rest, end - now())
                await within(bare_context(), event_within(wake, rest))
        finally:
            stop()

    async def _take(self, limit: int) -> list[QueueMessage] | float:
        """Return messages, or for how many seconds there will certainly be none (unless a wake-up announces
        one).
        """
        handover = await self._opened_store.store.queues.receive_messages(
            self.name, f"{hostname()}-{os.getpid()}", limit, self._lease, self._tries
        )
        if handover.dead:
            log.error("queue %s: %d messages put to the dead letters", self.name, handover.dead)
        if handover.messages:
            return [await open_message(self._codec, message) for message in handover.messages]
        return float("inf") if handover.rest is None else handover.rest

    async def acknowledge(self, *messages: QueueMessage, connection: Any = None) -> bool:
        """Acknowledge messages: they were handled, and are removed.

        Returns False, and logs which, when one of them is not this receiver's any more: it took longer than
        its lease and was redelivered, or it was settled before. While the store is unavailable this waits, as
        ``receive`` does.

        ``connection``: acknowledge in the transaction that is open on this connection to the store's own
        database, of the kinds that ``submit`` takes. The message is gone once that is committed; after a
        rollback it is redelivered at the end of its lease. Roll back when the answer is False. Raises
        ``TransactionError``, ``SchemaMismatchError``, and whatever the driver raises.
        """
        receipts = self._end_turns(messages, anywhere=connection is not None)
        if connection is None:
            return self._ours(
                messages, await self._repeat(lambda store: store.queues.acknowledge_messages(receipts))
            )

        async def accept(tx: Caller) -> list[bool]:
            return [await self._opened_store.store.queues.accept(tx, receipt) for receipt in receipts]

        return self._ours(messages, await recognise(connection).perform(accept))

    async def give_back(
        self, *messages: QueueMessage, wait: Duration = 0.0, error: str = "", dead: bool = False
    ) -> bool:
        """Release messages unhandled: they are redelivered after ``wait``, or with ``dead`` go to the dead
        letters.

        A dead letter raises an alert. ``error``: the reason, for the next reader. Returns False when one of
        them belonged to another receiver by now. While the store is unavailable this waits, as ``receive``
        does.
        """
        pause = seconds(wait, name="wait")
        returns = [Returned(receipt, pause, error, dead) for receipt in self._end_turns(messages)]
        return self._ours(messages, await self._repeat(lambda store: store.queues.return_messages(returns)))

    async def extend(self, *messages: QueueMessage, lease: Duration) -> bool:
        """Keep messages for ``lease`` from now on, never shorter than before.

        Returns False when one of them belonged to another receiver by now.
        """
        self._opened_store.ready()
        receipts = [(message.seq, message.tries) for message in messages]
        return all(
            await self._opened_store.store.queues.hold_messages(receipts, seconds(lease, name="lease"))
        )

    def _ours(self, messages: Sequence[QueueMessage], ours: Sequence[bool]) -> bool:
        """Return whether all messages were still this receiver's, and log those that were not."""
        for message, own in zip(messages, ours, strict=True):
            if not own:
                log.warning(
                    "message %s of queue %s, delivery %d, is not this receiver's any more: it took longer than its lease of %s and was "
                    "redelivered, or it was settled before; raise lease=, or call extend() meanwhile",
                    message.id, self.name, message.tries, short_duration(self._lease),
                )  # fmt: skip
        return all(ours)

    async def _repeat(self, say: Callable[[Store], Awaitable[list[bool]]]) -> list[bool]:
        """Repeat a call until the store has taken it.

        During an outage of the store a listener must neither end nor forget what it has handled.
        """
        pauses = Pauses(first=0.05)
        while True:
            self._opened_store.ready()
            try:
                return await say(self._opened_store.store)
            except StoreUnavailableError as away:
                log.warning("messages of queue %s wait to be settled, the store is away: %s", self.name, away)
            await asyncio.sleep(pauses.draw())

    def _end_turns(
        self, messages: Sequence[QueueMessage], *, anywhere: bool = False
    ) -> list[tuple[int, int]]:
        self._opened_store.ready(anywhere=anywhere)
        receipts = [(message.seq, message.tries) for message in messages]
        for receipt in receipts:
            self._end_turn(receipt)
        return receipts

    async def _begin_turn(self) -> QueueMessage:
        """Receive a message, and extend its lease until ``_end_turn``: for ``async for``."""
        (message,) = await self.receive()
        receipt = (message.seq, message.tries)

        async def hold() -> bool:
            return (await self._opened_store.ready().queues.hold_messages([receipt], self._lease))[0]

        subject = f"message {message.id} of queue {self.name}"
        self.turns[receipt] = LeaseKeeper(hold, subject, lease=self._lease, tries=self._tries)
        return message

    def _end_turn(self, receipt: tuple[int, int]) -> bool:
        """End the turn of a message. Returns False if it was settled meanwhile. Can be called in any
        thread.
        """
        keeper = self.turns.pop(receipt, None)
        if keeper is not None:
            keeper.stop()
        return keeper is not None

    async def __aiter__(self) -> AsyncGenerator[QueueMessage, None]:
        """Yield messages as they arrive, forever."""
        while True:
            message = await self._begin_turn()
            receipt = (message.seq, message.tries)
            try:
                yield message
            except BaseException:
                self._end_turn(receipt)
                raise
            if self._end_turn(receipt):
                await self.acknowledge(message)


async def open_message(codec: Codec | None, message: QueueMessage) -> QueueMessage:
    """Return a message with its body decoded; without a codec, as it is. Raises ``CodecError``."""
    if codec is None or not is_encoded(message.body):
        return message
    body = await decode(codec, message.body, message_context(message.queue, message.id))
    return replace(message, body=body)


def refuse_unknowable(queue: str, ids: Sequence[str] | None) -> None:
    """Raise ``ConfigError`` for texts that no store has."""
    queue_name(queue)
    for message_id in ids or ():
        if not isinstance(message_id, str):
            raise ConfigError(f"ids={message_id!r:.60}: texts, as `messages()` lists them")
        refuse_unstorable(ConfigError, id=message_id)


def outgoing(
    queue: str,
    id: str,  # noqa: A002 - what it is
    body: bytes,
    *,
    reply_to: str | None = None,
    correlation_id: str | None = None,
    kind: str = "",
    headers: Mapping[str, str] | None = None,
    delay: Duration = 0.0,
    expires: Duration | None = None,
    remember: Duration | None = None,
) -> Outgoing:
    """Return a message as it is sent.

    Raises ``ConfigError`` and ``PayloadError`` for one that cannot be sent.
    """
    if not isinstance(id, str) or not id or len(id) > _MOST_ID or not id.isprintable():
        raise ConfigError(f"id={id!r}: a text of up to {_MOST_ID} printable characters, and not empty")
    if len(kind) > _MOST_ID or not kind.isprintable():
        raise ConfigError(f"kind={kind[:50]!r}: up to {_MOST_ID} printable characters")
    notices.reply(reply_to or "queue:nobody", correlation_id)  # raises for what can never be told
    if headers is not None:
        if not all(isinstance(k, str) and isinstance(v, str) for k, v in headers.items()):
            raise ConfigError("headers: texts by name")
        encode(dict(headers), subject="the headers")
    return Outgoing(
        queue=queue_name(queue), id=id, body=body, kind=kind, correlation_id=correlation_id,
        reply_to=reply_to, headers=headers, delay=seconds(delay, name="delay"),
        expires=None if expires is None else seconds(expires, name="expires", least=0.001),
        remember=None if remember is None else seconds(remember, name="remember"),
    )  # fmt: skip
