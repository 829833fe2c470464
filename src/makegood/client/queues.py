"""Queues of the store, as applications use them: what a client sends, receives, and sees of them.

A message is the receiver's for the length of a lease. It is acknowledged once it was handled; otherwise it comes again, to this
receiver or another: each message arrives *at least* once. Messages of one task arrive in their order.
"""

import asyncio
import logging
import os
import random
import uuid
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from msgspec import UNSET

from makegood.base import ids
from makegood.base.clock import Clock
from makegood.base.durations import Duration, seconds
from makegood.base.text import hostname, refuse_unstorable
from makegood.errors import ConfigError, DefinitionError, StoreUnavailableError
from makegood.model import notices
from makegood.model.messages import Act
from makegood.model.queue_message import QueueMessage
from makegood.payload.codec import encode
from makegood.store import Store
from makegood.store.notice_records import ListenerView
from makegood.store.queue_records import MOST_DROPPED, MessageView, Outgoing, QueueView, Returned, Sent
from makegood.telemetry.hooks import Observer
from makegood.transactions import Caller, recognise

log = logging.getLogger("makegood.queues")

LIMIT: Final = 100_000
"""Messages that may wait in a queue, unless ``queue_limit`` says otherwise."""

MOST_BYTES: Final = "1GiB"
"""Bytes of the messages that may wait in a queue, unless ``queue_bytes`` says otherwise."""

LEASE: Final = "30s"
TRIES: Final = 8
_MOST_ID: Final = 300
_AWAY: Final = (0.05, 2.0)


class _Client(Protocol):
    store: Store

    def ready(self) -> None: ...


def named(queue: str) -> str:
    """Return the name of a queue. Raises ``ConfigError`` for what cannot be one."""
    try:
        return ids.checked_queue(queue)
    except DefinitionError as wrong:
        raise ConfigError(str(wrong)) from None


class Queue:
    """A queue, for whoever reads it: ``client.queue("web-7")``. Any number of processes may read one queue.

    ``async for message in queue`` yields messages as they come and acknowledges each when the next one is asked for. One that the
    loop left by an exception or ``break`` is not acknowledged, and comes again. An outage of the store does not end the loop.

    >>> async def listen(client):
    ...     async for message in client.queue("web-7"):
    ...         print(message.value["data"]["state"])
    """

    def __init__(self, client: _Client, name: str, *, lease: Duration, tries: int, poll: float) -> None:
        self.name = named(name)
        self._client = client
        self._poll = poll
        self._lease = seconds(lease, name="lease", least=0.01)
        if not isinstance(tries, int) or tries < 1:
            raise ConfigError(f"tries={tries!r}: a whole number from 1")
        self._tries = tries
        self._turns: set[tuple[int, int]] = set()  # messages whose turn in ``async for`` it is

    def __repr__(self) -> str:
        return f"<queue {self.name}>"

    async def receive(self, limit: int = 1, *, timeout: Duration | None = None) -> list[QueueMessage]:
        """Wait until there is a message, and return up to ``limit`` of those that are there.

        ``timeout``: how long to wait at most, None = for ever; then the list is empty. Acknowledge the messages before the lease
        ends, or they come again. Raises ``StoreUnavailableError`` when the store is away at the end of that time.
        """
        most = None if timeout is None else seconds(timeout, name="timeout")
        if not isinstance(limit, int) or limit < 1:
            raise ConfigError(f"limit={limit!r}: a whole number from 1")
        self._client.ready()
        now = asyncio.get_running_loop().time
        end = None if most is None else now() + most
        wake = asyncio.Event()
        stop = self._client.store.subscribe(f"queue:{self.name}", wake.set)
        pause = _AWAY[0]
        try:
            while True:
                wake.clear()
                self._client.ready()
                rest = self._poll
                try:
                    found = await self._take(limit)
                    if isinstance(found, list):
                        return found
                    rest, pause = min(rest, found), _AWAY[0]
                except StoreUnavailableError as away:
                    if end is not None and now() >= end:
                        raise
                    log.warning("waiting for messages of queue %s, the store is away: %s", self.name, away)
                    rest = pause = min(pause * 2, _AWAY[1])
                if end is not None:
                    if now() >= end:
                        return []
                    rest = min(rest, end - now())
                await _rung(wake, rest)
        finally:
            stop()

    async def _take(self, limit: int) -> list[QueueMessage] | float:
        """Return messages, or how long there will be none for certain (but for those that somebody rings for)."""
        handed = await self._client.store.receive_messages(
            self.name, _receiver(), limit, self._lease, self._tries
        )
        if handed.dead:
            log.error("queue %s: %d messages put to the dead letters", self.name, handed.dead)
        if handed.messages:
            return handed.messages
        return float("inf") if handed.rest is None else handed.rest

    async def acknowledge(self, *messages: QueueMessage, connection: Any = None) -> bool:
        """Say that messages were handled: they are gone. False when one of them was another receiver's by now: it was redelivered.

        While the store is away this waits, as ``receive`` does.

        ``connection``: do it in the transaction that is open on this connection to the store's own database, of the kinds that
        ``submit`` takes. The message is gone once that is committed; after a rollback it is redelivered at the end of its lease.
        Roll back when the answer is False. Raises ``TransactionError``, ``SchemaMismatchError``, and whatever the driver raises.
        """
        receipts = self._settled(messages)
        if connection is None:
            return await self._said(lambda store: store.acknowledge_messages(receipts))

        async def accepted(tx: Caller) -> bool:
            return all([await self._client.store.accept(tx, receipt) for receipt in receipts])

        return await recognise(connection).perform(accepted)

    async def give_back(
        self, *messages: QueueMessage, wait: Duration = 0.0, error: str = "", dead: bool = False
    ) -> bool:
        """Give messages back unhandled: they come again after ``wait``, or with ``dead`` go to the dead letters, with an alert.

        ``error``: why, for whoever sees it next. False when one of them was another receiver's by now. While the store is away this
        waits, as ``receive`` does.
        """
        pause = seconds(wait, name="wait")
        returned = [Returned(receipt, pause, error, dead) for receipt in self._settled(messages)]
        return await self._said(lambda store: store.return_messages(returned))

    async def hold(self, *messages: QueueMessage, lease: Duration) -> bool:
        """Keep messages for ``lease`` from now on, never shorter than before. False when one was another receiver's by now."""
        self._client.ready()
        receipts = [(message.seq, message.tries) for message in messages]
        return all(await self._client.store.hold_messages(receipts, seconds(lease, name="lease")))

    async def _said(self, say: Callable[[Store], Awaitable[list[bool]]]) -> bool:
        """Say it until the store has heard: a listener must not end, nor forget what it has handled, because the store was away."""
        pause = _AWAY[0]
        while True:
            self._client.ready()
            try:
                return all(await say(self._client.store))
            except StoreUnavailableError as away:
                log.warning("messages of queue %s wait to be settled, the store is away: %s", self.name, away)
            await asyncio.sleep(pause)
            pause = min(pause * 2, _AWAY[1])

    def _settled(self, messages: Sequence[QueueMessage]) -> list[tuple[int, int]]:
        self._client.ready()
        receipts = [(message.seq, message.tries) for message in messages]
        self._turns.difference_update(receipts)
        return receipts

    async def __aiter__(self) -> AsyncGenerator[QueueMessage, None]:
        """Yield messages as they come, for ever."""
        while True:
            for message in await self.receive():
                receipt = (message.seq, message.tries)
                self._turns.add(receipt)
                try:
                    yield message
                    unsettled = receipt in self._turns
                finally:
                    self._turns.discard(receipt)
                if unsettled:
                    await self.acknowledge(message)


async def _rung(wake: asyncio.Event, limit: float) -> None:
    """Wait for a wake-up, or so long."""
    try:
        async with asyncio.timeout(limit):
            await wake.wait()
    except TimeoutError:
        return


def _receiver() -> str:
    return f"{hostname()}-{os.getpid()}"


class Correspondent(ABC):
    """The part of a client that sends messages, receives them and looks after queues and notices."""

    store: Store
    _poll: float
    _queue_limit: int
    _queue_bytes: int
    _telemetry: Observer | None = None

    @abstractmethod
    def ready(self) -> None:
        """Raise ``ClosedError`` unless the client is open."""

    @abstractmethod
    def new_act(self, who: str | None, why: str) -> Act:
        """Return an act's identity."""

    @property
    @abstractmethod
    def means(self) -> tuple[Clock, random.Random]:
        """The clock and the source of chance that this client was given."""

    # -- sending and receiving -----------------------------------------------------------------------------------------

    async def send(
        self,
        queue: str,
        value: Any,
        *,
        id: str | None = None,  # noqa: A002 - what it is
        reply_to: str | None = None,
        correlation_id: str | None = None,
        kind: str = "",
        headers: Mapping[str, str] | None = None,
        delay: Duration = 0.0,
        expires: Duration | None = None,
        remember: Duration = "7d",
        connection: Any = None,
    ) -> Sent:
        """Put a message into a queue: ``value`` as JSON. Returns its id once it is durable, and whether it was ``created``,
        or is in ``conflict``: one of its id waits with another value, and stays.

        ``id``: a queue takes a message of the same id only once, and not again for ``remember`` after it was acknowledged; None
        draws one. ``reply_to``: where the sender wants to hear what becomes of it, "queue:NAME" or "https://…"; an inbox passes it
        and ``correlation_id`` on to the task. ``delay``: it cannot be received before; ``expires``: it is dropped unread after that.
        Raises ``QueueFullError`` (too many messages wait, or too many bytes), ``PayloadError``, ``ConfigError`` or
        ``StoreUnavailableError``: then nothing was sent.

        ``connection``: send it in the transaction that is open on this connection to the store's own database, of the kinds that
        ``submit`` takes: it can be received once that is committed, and never was when it is rolled back. Raises also
        ``TransactionError``, ``SchemaMismatchError``, and whatever the connection's driver raises.

        >>> async def order(client, order):
        ...     await client.send("orders", order, id=order.id, reply_to="queue:web-7")
        """
        self.ready()
        if self._telemetry is not None:
            headers = self._telemetry.sent(headers)
        drawn = str(uuid.UUID(int=self.means[1].getrandbits(128), version=4))
        message = outgoing(
            queue, drawn if id is None else id, encode(value, what=f"the message to queue {queue}"), reply_to=reply_to,
            correlation_id=correlation_id, kind=kind, headers=headers, delay=delay, expires=expires,
            remember=None if id is None else remember,  # nobody can say one again that was drawn
        )  # fmt: skip
        if connection is None:
            (sent,) = await self.store.send_messages([message], self._queue_limit, self._queue_bytes)
            return sent
        sent = await recognise(connection).perform(
            lambda tx: self.store.put(tx, message, self._queue_limit, self._queue_bytes)
        )
        if sent.created:
            self.store.joined((message.queue, message.id))
        return sent

    def queue(self, name: str, *, lease: Duration = LEASE, tries: int = TRIES) -> Queue:
        """Return a queue for receiving from it. ``lease``: for how long a message that was received is nobody else's; ``tries``:
        one that was given out so often and never acknowledged is put to the dead letters, with an alert.
        """
        return Queue(self, name, lease=lease, tries=tries, poll=self._poll)

    # -- looking after them --------------------------------------------------------------------------------------------

    async def queues(self) -> list[QueueView]:
        """Return the queues in which messages wait or are dead, by name."""
        self.ready()
        return await self.store.queues()

    async def messages(
        self, queue: str | None = None, *, dead: bool = False, limit: int = 100
    ) -> list[MessageView]:
        """Return messages that wait, or with ``dead`` dead letters, of one queue or of all; nobody takes them by that."""
        self.ready()
        refuse_unstorable(ConfigError, queue=queue)
        return await self.store.messages(queue, limit, dead=dead)

    async def replay_messages(
        self,
        queue: str,
        ids: Sequence[str] | None = None,
        *,
        value: Any = UNSET,
        who: str | None = None,
        why: str = "",
    ) -> list[str]:
        """Let dead letters of a queue be received again, all of them or those of these ids, and end their alerts; returns the ids of
        those that there were. ``value``: what replaces the value of the one message that is named. The audit keeps ``who`` (default:
        user@host), ``why``, and both values. Raises ``ConfigError`` for a value for more than one message, ``PayloadError`` for one
        that cannot be kept.
        """
        self.ready()
        _refuse_unknowable(queue, ids)
        body = None
        if value is not UNSET:
            if ids is None or len(ids) != 1:
                raise ConfigError("value= replaces that of one message: name it, ids=[...]")
            body = encode(value, what=f"the message to queue {queue}")
        return await self.store.replay_messages(queue, self.new_act(who, why), ids, body=body)

    async def drop_messages(
        self,
        queue: str,
        ids: Sequence[str] | None = None,
        *,
        waiting: bool = False,
        who: str | None = None,
        why: str = "",
    ) -> list[str]:
        """Remove dead letters of a queue for good, or with ``waiting`` messages that wait in it and that no receiver has: see
        ``replay_messages``. All that wait are removed in several commits.
        """
        self.ready()
        _refuse_unknowable(queue, ids)
        act = self.new_act(who, why)
        dropped: list[str] = []
        while True:
            some = await self.store.drop_messages(queue, act, ids, waiting=waiting)
            dropped += some
            if not waiting or ids is not None or len(some) < MOST_DROPPED:
                return dropped

    async def notices(self, *, dead: bool = False, limit: int = 100) -> list[ListenerView]:
        """Return the webhooks that are still to be told something, those given up first; ``dead``: only those."""
        self.ready()
        return await self.store.listeners(limit, dead=dead)

    async def retry_notices(
        self, task: str | int | None = None, *, who: str | None = None, why: str = ""
    ) -> list[str]:
        """Send again what was given up, of one task or of all, and end its alerts; returns the tasks' ids. ``who`` (default:
        user@host) and ``why`` stand in the audit.
        """
        self.ready()
        found = await self.store.retry_notices(self.new_act(who, why), _task(task))
        return [ids.show(one) for one in found]

    async def drop_notices(
        self, task: str | int | None = None, *, who: str | None = None, why: str = ""
    ) -> list[str]:
        """Drop what was given up of all tasks, or of one task whatever is unsent: its submitter will not be told. See ``retry_notices``."""
        self.ready()
        found = await self.store.drop_notices(self.new_act(who, why), _task(task))
        return [ids.show(one) for one in found]


def _refuse_unknowable(queue: str, ids: Sequence[str] | None) -> None:
    """Raise ``ConfigError`` for texts that no store has."""
    refuse_unstorable(ConfigError, queue=queue)
    for each in ids or ():
        refuse_unstorable(ConfigError, id=each)


def _task(task: str | int | None) -> int | None:
    return ids.parse(task) if isinstance(task, str) else task


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
    """Return a message as it is sent. Raises ``ConfigError`` and ``PayloadError`` for what cannot be."""
    if not isinstance(id, str) or not id or len(id) > _MOST_ID or not id.isprintable():
        raise ConfigError(f"id={id!r}: a text of up to {_MOST_ID} printable characters, and not empty")
    if len(kind) > _MOST_ID or not kind.isprintable():
        raise ConfigError(f"kind={kind[:50]!r}: up to {_MOST_ID} printable characters")
    notices.reply(reply_to or "queue:nobody", correlation_id)  # raises for what can never be told
    if headers is not None:
        if not all(isinstance(k, str) and isinstance(v, str) for k, v in headers.items()):
            raise ConfigError("headers: texts by name")
        encode(dict(headers), what="the headers")
    return Outgoing(
        queue=named(queue), id=id, body=body, kind=kind, correlation_id=correlation_id,
        reply_to=reply_to, headers=headers, delay=seconds(delay, name="delay"),
        expires=None if expires is None else seconds(expires, name="expires", least=0.001),
        remember=None if remember is None else seconds(remember, name="remember"),
    )  # fmt: skip
