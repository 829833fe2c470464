"""What a client does with the messages of queues, and with notices to submitters."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import UNSET

from makegood.base import ids
from makegood.base.arguments import checked_count, judge_calls
from makegood.base.durations import Duration
from makegood.client.opened_store import OpenedStore
from makegood.client.operators import Acts
from makegood.client.queues import LEASE, TRIES, Queue, outgoing, queue_name, refuse_unknowable
from makegood.errors import ConfigError
from makegood.payload import envelopes
from makegood.payload.codec import encode
from makegood.payload.envelopes import Codec, message_context
from makegood.store import Store
from makegood.store.notice_records import ListenerView
from makegood.store.queue_records import MOST_DROPPED, MessageView, QueueView, Sent
from makegood.telemetry.hooks import Observer
from makegood.transactions import recognise


@judge_calls(ConfigError, values=True, constructor=False)
class ClientMessages:
    """The part of a ``Client`` that sends, shows and drops messages and notices."""

    acts: Acts
    _opened_store: OpenedStore
    _poll: float
    _queue_limit: int
    _queue_bytes: int
    _rng: random.Random
    _telemetry: Observer | None

    @property
    def _codec(self) -> Codec | None:
        """What encodes and decodes messages; None: they stay plain."""
        raise NotImplementedError

    @property
    def store(self) -> Store:
        """The store."""
        return self._opened_store.store

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
        """Put a message in a queue, with ``value`` as JSON.

        Returns, once that is durable, the message's id, whether the message was ``created``, and whether it
        is in ``conflict``: the message that the queue knows by that id had another value, and stays.

        ``id``: a queue takes a message of the same id only once, and not again for ``remember`` after it was
        acknowledged; None draws an id. ``reply_to``: where the sender wants to hear what becomes of the
        message, "queue:NAME" or "https://…"; an inbox passes it and ``correlation_id`` on to the task.
        ``delay``: the message cannot be received before. ``expires``: the message is dropped unread after
        that.

        Raises ``QueueFullError`` (too many messages wait, or too many bytes), ``PayloadError``,
        ``ConfigError`` or ``StoreUnavailableError``: then nothing was sent.

        ``connection``: send the message in the transaction that is open on this connection to the store's own
        database, of the kinds that ``submit`` takes. The message can be received once that is committed;
        after a rollback it was never sent. Raises also ``TransactionError``, ``SchemaMismatchError``, and
        whatever the connection's driver raises.

        >>> async def order(client, order):
        ...     await client.send("orders", order, id=order.id, reply_to="queue:web-7")
        """
        self._opened_store.ready(anywhere=connection is not None)
        if self._telemetry is not None:
            headers = self._telemetry.sent(headers)
        random_id = ids.random_uuid(self._rng)
        message_id = random_id if id is None else id
        body = encode(value, subject=f"the message to queue {queue}")
        if self._codec is not None:
            body = await envelopes.encode(self._codec, body, message_context(queue, message_id))
        message = outgoing(
            queue, message_id, body, reply_to=reply_to,
            correlation_id=correlation_id, kind=kind, headers=headers, delay=delay, expires=expires,
            remember=None if id is None else remember,  # nobody can say one again that was drawn
        )  # fmt: skip
        if connection is None:
            (answer,) = await self.store.queues.send_messages([message], self._queue_limit, self._queue_bytes)
            return answer
        answer = await recognise(connection).perform(
            lambda tx: self.store.queues.put(tx, message, self._queue_limit, self._queue_bytes)
        )
        if answer.created:
            self.store.joined((message.queue, message.id))
        return answer

    def queue(self, name: str, *, lease: Duration = LEASE, tries: int = TRIES) -> Queue:
        """Return a queue for receiving from it.

        ``lease``: how long a received message belongs to its receiver alone. ``tries``: a message that was
        delivered this often and never acknowledged goes to the dead letters, with an alert.
        """
        return Queue(self._opened_store, name, lease=lease, tries=tries, poll=self._poll, codec=self._codec)

    async def queues(self) -> list[QueueView]:
        """Return the queues in which messages wait or are dead, by name."""
        return await self._opened_store.ready().queues.views()

    async def messages(
        self, queue: str | None = None, *, dead: bool = False, limit: int = 100
    ) -> list[MessageView]:
        """Return waiting messages, or with ``dead`` the dead letters, of one queue or of all, without
        receiving them.
        """
        self._opened_store.ready()
        checked_count(limit)
        if queue is not None:
            queue_name(queue)
        return await self.store.queues.messages(queue, limit, dead=dead)

    async def replay_messages(
        self,
        queue: str,
        ids: Sequence[str] | None = None,
        *,
        value: Any = UNSET,
        who: str | None = None,
        why: str = "",
    ) -> list[str]:
        """Let dead letters of a queue be received again, and end their alerts.

        Returns the ids of those that existed.

        ``ids``: only these dead letters. ``value`` replaces the value of the one message that is named. The
        audit keeps ``who`` (default: user@host), ``why``, and both values. Raises ``ConfigError`` for a value
        for more than one message, and ``PayloadError`` for a value that cannot be kept.
        """
        self._opened_store.ready()
        refuse_unknowable(queue, ids)
        body = None
        if value is not UNSET:
            if ids is None or len(ids) != 1:
                raise ConfigError("value= replaces that of one message: name it, ids=[...]")
            body = encode(value, subject=f"the message to queue {queue}")
            if self._codec is not None:
                body = await envelopes.encode(self._codec, body, message_context(queue, ids[0]))
        return await self.store.queues.replay_messages(queue, self.acts.new(who, why), ids, body=body)

    async def drop_messages(
        self,
        queue: str,
        ids: Sequence[str] | None = None,
        *,
        waiting: bool = False,
        who: str | None = None,
        why: str = "",
    ) -> list[str]:
        """Remove dead letters of a queue for good: see ``replay_messages``.

        With ``waiting``: remove messages that wait in the queue and that no receiver has. Removing all that
        wait takes several commits.
        """
        self._opened_store.ready()
        refuse_unknowable(queue, ids)
        act = self.acts.new(who, why)
        message_ids: list[str] = []
        while True:
            page = await self.store.queues.drop_messages(queue, act, ids, waiting=waiting)
            message_ids += page
            if not waiting or ids is not None or len(page) < MOST_DROPPED:
                return message_ids

    async def notices(self, *, dead: bool = False, limit: int = 100) -> list[ListenerView]:
        """Return the webhooks with unsent notices; those that were given up come first.

        ``dead``: only those given up.
        """
        checked_count(limit)
        return await self._opened_store.ready().notices.listeners(limit, dead=dead)

    async def retry_notices(
        self, task: str | int | None = None, *, who: str | None = None, why: str = ""
    ) -> list[str]:
        """Send again the notices that were given up, of one task or of all, and end their alerts.

        Returns the tasks' ids. The audit keeps ``who`` (default: user@host) and ``why``.
        """
        tasks = await self._opened_store.ready().notices.retry_notices(
            self.acts.new(who, why), self._number(task)
        )
        return [ids.show(task_id) for task_id in tasks]

    async def drop_notices(
        self, task: str | int | None = None, *, who: str | None = None, why: str = ""
    ) -> list[str]:
        """Drop notices that were given up, of all tasks, or every unsent notice of one task.

        The submitter will not be notified. See ``retry_notices``.
        """
        tasks = await self._opened_store.ready().notices.drop_notices(
            self.acts.new(who, why), self._number(task)
        )
        return [ids.show(task_id) for task_id in tasks]

    def _number(self, task: str | int | None) -> int | None:
        return None if task is None else self._opened_store.number(task)
