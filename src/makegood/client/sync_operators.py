"""What operators do, and queues, for blocking code: the names and meanings of ``Operators``, ``Correspondent`` and ``Queue``."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from msgspec import UNSET

from makegood.base.durations import Duration
from makegood.client.operators import Acted, Operators, Progress
from makegood.client.queues import LEASE, TRIES, Correspondent, Queue, named
from makegood.model.queue_message import QueueMessage
from makegood.store.notice_records import ListenerView
from makegood.store.queue_records import MessageView, QueueView, Sent
from makegood.store.views import AlertView, AuditView, Filter
from makegood.transactions import Transaction

T = TypeVar("T")

_Work = Callable[[Queue, Transaction | None], Coroutine[Any, Any, Any]]


class BlockingOperators(ABC):
    """The part of a ``SyncClient`` that operators use. ``progress`` is called on the background thread."""

    @abstractmethod
    def _run(self, work: Callable[[Operators], Coroutine[Any, Any, T]]) -> T: ...

    def alerts(
        self, task: str | int | None = None, *, ended: bool = False, limit: int = 100
    ) -> list[AlertView]:
        """Return alerts, open ones first: see ``Client.alerts``."""
        return self._run(lambda client: client.alerts(task, ended=ended, limit=limit))

    def acknowledge(self, alert: int, *, who: str | None = None, why: str = "") -> AlertView:
        """Say that somebody takes care of an alert: see ``Client.acknowledge``."""
        return self._run(lambda client: client.acknowledge(alert, who=who, why=why))

    def audit(self, task: str | int | None = None, *, limit: int = 100) -> list[AuditView]:
        """Return what operators did, newest first."""
        return self._run(lambda client: client.audit(task, limit=limit))

    def count(self, wanted: Filter) -> int:
        """Return how many tasks match."""
        return self._run(lambda client: client.count(wanted))

    def cancel_all(
        self,
        wanted: Filter,
        *,
        why: str = "",
        who: str | None = None,
        limit: int | None = None,
        timeout: Duration | None = "30s",
        progress: Progress | None = None,
    ) -> list[Acted]:
        """Cancel all tasks that match: see ``Client.cancel_all``."""
        return self._run(
            lambda c: c.cancel_all(wanted, why=why, who=who, limit=limit, timeout=timeout, progress=progress)
        )

    def undo_all(
        self,
        wanted: Filter,
        *,
        why: str = "",
        who: str | None = None,
        limit: int | None = None,
        timeout: Duration | None = "30s",
        progress: Progress | None = None,
    ) -> list[Acted]:
        """Undo all tasks that match: see ``Client.undo_all``."""
        return self._run(
            lambda c: c.undo_all(wanted, why=why, who=who, limit=limit, timeout=timeout, progress=progress)
        )

    def resubmit_all(
        self,
        wanted: Filter,
        *,
        why: str = "",
        who: str | None = None,
        limit: int | None = None,
        timeout: Duration | None = "30s",
        progress: Progress | None = None,
    ) -> list[Acted]:
        """Start all tasks that match again: see ``Client.resubmit_all``."""
        return self._run(
            lambda c: c.resubmit_all(
                wanted, why=why, who=who, limit=limit, timeout=timeout, progress=progress
            )
        )


class BlockingCorrespondent(ABC):
    """The part of a ``SyncClient`` that sends messages, receives them and looks after queues and notices."""

    @abstractmethod
    def _run(self, work: Callable[[Correspondent], Coroutine[Any, Any, T]]) -> T: ...

    @abstractmethod
    def _in(self, connection: Any, work: Callable[[Correspondent, Transaction], Coroutine[Any, Any, T]]) -> T:
        """Do work in this thread, in the transaction that is open on a connection that blocks."""

    def send(
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
        """Put a message into a queue: see ``Client.send``. With ``connection=`` that happens in this thread, by its driver."""

        async def send(client: Correspondent, tx: Transaction | None = None) -> Sent:
            return await client.send(
                queue, value, id=id, reply_to=reply_to, correlation_id=correlation_id, kind=kind, headers=headers, delay=delay,
                expires=expires, remember=remember, connection=tx,
            )  # fmt: skip

        return self._run(send) if connection is None else self._in(connection, send)

    def queue(self, name: str, *, lease: Duration = LEASE, tries: int = TRIES) -> "SyncQueue":
        """Return a queue for receiving from it: see ``Client.queue``."""

        def on(work: _Work, connection: Any) -> Any:
            async def call(client: Correspondent, tx: Transaction | None = None) -> Any:
                return await work(client.queue(name, lease=lease, tries=tries), tx)

            return self._run(call) if connection is None else self._in(connection, call)

        return SyncQueue(on, named(name))

    def queues(self) -> list[QueueView]:
        """Return the queues in which messages wait or are dead, by name."""
        return self._run(lambda client: client.queues())

    def messages(
        self, queue: str | None = None, *, dead: bool = False, limit: int = 100
    ) -> list[MessageView]:
        """Return messages that wait, or dead letters: see ``Client.messages``."""
        return self._run(lambda client: client.messages(queue, dead=dead, limit=limit))

    def replay_messages(
        self,
        queue: str,
        ids: Sequence[str] | None = None,
        *,
        value: Any = UNSET,
        who: str | None = None,
        why: str = "",
    ) -> list[str]:
        """Let dead letters be received again: see ``Client.replay_messages``."""
        return self._run(lambda client: client.replay_messages(queue, ids, value=value, who=who, why=why))

    def drop_messages(
        self,
        queue: str,
        ids: Sequence[str] | None = None,
        *,
        waiting: bool = False,
        who: str | None = None,
        why: str = "",
    ) -> list[str]:
        """Remove dead letters, or messages that wait, for good: see ``Client.drop_messages``."""
        return self._run(lambda client: client.drop_messages(queue, ids, waiting=waiting, who=who, why=why))

    def notices(self, *, dead: bool = False, limit: int = 100) -> list[ListenerView]:
        """Return the webhooks that are still to be told something: see ``Client.notices``."""
        return self._run(lambda client: client.notices(dead=dead, limit=limit))

    def retry_notices(
        self, task: str | int | None = None, *, who: str | None = None, why: str = ""
    ) -> list[str]:
        """Send again what was given up: see ``Client.retry_notices``."""
        return self._run(lambda client: client.retry_notices(task, who=who, why=why))

    def drop_notices(
        self, task: str | int | None = None, *, who: str | None = None, why: str = ""
    ) -> list[str]:
        """Drop what was given up: see ``Client.drop_notices``."""
        return self._run(lambda client: client.drop_notices(task, who=who, why=why))


class SyncQueue:
    """``Queue`` for blocking code: the same names and meanings; ``for message in queue`` as ``async for`` there."""

    def __init__(self, run: Callable[[_Work, Any], Any], name: str) -> None:
        """``run``: does work with the queue, in the transaction of a connection if there is one."""
        self.name = name
        self._run = run
        self._turns: set[tuple[int, int]] = set()

    def __repr__(self) -> str:
        return f"<queue {self.name}>"

    def _on(self, work: Callable[[Queue], Coroutine[Any, Any, Any]]) -> Any:
        return self._run(lambda queue, _: work(queue), None)

    def receive(self, limit: int = 1, *, timeout: Duration | None = None) -> list[QueueMessage]:
        """Wait until there is a message: see ``Queue.receive``."""
        found: list[QueueMessage] = self._on(lambda queue: queue.receive(limit, timeout=timeout))
        return found

    def acknowledge(self, *messages: QueueMessage, connection: Any = None) -> bool:
        """Say that messages were handled: see ``Queue.acknowledge``. With ``connection=`` that happens in this thread, by its driver."""
        self._settled(messages)
        return bool(self._run(lambda queue, tx: queue.acknowledge(*messages, connection=tx), connection))

    def give_back(
        self, *messages: QueueMessage, wait: Duration = 0.0, error: str = "", dead: bool = False
    ) -> bool:
        """Give messages back unhandled: see ``Queue.give_back``."""
        self._settled(messages)
        return bool(self._on(lambda queue: queue.give_back(*messages, wait=wait, error=error, dead=dead)))

    def hold(self, *messages: QueueMessage, lease: Duration) -> bool:
        """Keep messages for longer: see ``Queue.hold``."""
        return bool(self._on(lambda queue: queue.hold(*messages, lease=lease)))

    def _settled(self, messages: Sequence[QueueMessage]) -> None:
        self._turns.difference_update((message.seq, message.tries) for message in messages)

    def __iter__(self) -> Iterator[QueueMessage]:
        """Yield messages as they come, for ever; each is acknowledged when the next one is asked for."""
        while True:
            for message in self.receive():
                receipt = (message.seq, message.tries)
                self._turns.add(receipt)
                try:
                    yield message
                    unsettled = receipt in self._turns
                finally:
                    self._turns.discard(receipt)
                if unsettled:
                    self.acknowledge(message)
