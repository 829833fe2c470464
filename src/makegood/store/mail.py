"""The records of messages in queues, the same for every store."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from makegood import ids
from makegood.errors import PayloadError, QueueFullError
from makegood.messages import Act, Alert
from makegood.queued import QueueMessage
from makegood.store.rows import AuditRow, audited
from makegood.texts import MOST_ERROR, kept, refuse_unstorable

Receipt = tuple[int, int]
"""Which delivery of which message: its ``seq`` and ``tries``."""

MOST_DROPPED = 2000
"""Messages that wait and are dropped in one commit."""


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """A message to be sent. ``delay``: seconds until it can be received. ``expires``: seconds after which it is dropped unread;
    ``remember``: seconds for which its id is known after it was acknowledged, None: not at all.
    """

    queue: str
    id: str
    body: bytes
    kind: str = ""
    correlation_id: str | None = None
    reply_to: str | None = None
    task: int | None = None
    sequence: int | None = None
    headers: Mapping[str, str] | None = None
    delay: float = 0.0
    expires: float | None = None
    remember: float | None = None


class Sent(msgspec.Struct, frozen=True):
    """What became of a message that was to be sent; not ``created``: the queue knows a message of that id. ``conflict``: with another
    body, as far as that is still known: it is until the message was acknowledged.
    """

    id: str
    created: bool
    conflict: bool = False


class Handed(msgspec.Struct, frozen=True):
    """Messages that were given to a receiver. ``rest``: seconds until another may be due, None when none waits; 0: look again.
    ``dead``: how many were put to the dead letters instead.
    """

    messages: list[QueueMessage]
    rest: float | None
    dead: int = 0


class Returned(msgspec.Struct, frozen=True):
    """A message that its receiver gives back: to be received again after ``wait`` seconds, or ``dead``. ``counted``: it counts
    as a try.
    """

    receipt: Receipt
    wait: float = 0.0
    error: str = ""
    dead: bool = False
    counted: bool = True

    @property
    def why(self) -> str:
        """Its error as it is kept."""
        return kept(self.error)[:MOST_ERROR]


class MessageView(msgspec.Struct, frozen=True):
    """A message as operators see it. ``due``: seconds until it can be received (again), 0 or less: now. ``taken_by``: who has it."""

    message: QueueMessage
    state: Literal["waiting", "dead"]
    due: float
    taken_by: str | None
    ended: float | None
    expires: float | None


class QueueView(msgspec.Struct, frozen=True):
    """A queue at a glance. ``oldest``: seconds for which its oldest message that can be received has waited. ``read``: one of its
    messages at least was given to a receiver.
    """

    queue: str
    waiting: int
    taken: int
    delayed: int
    dead: int
    oldest: float | None
    read: bool = True


def checked(messages: Sequence[Outgoing]) -> None:
    """Raise ``PayloadError`` for texts that a database refuses: found out there, it would break a caller's transaction."""
    for m in messages:
        refuse_unstorable(
            PayloadError, "; nothing was sent",
            queue=m.queue, id=m.id, kind=m.kind, correlation_id=m.correlation_id, reply_to=m.reply_to,
        )  # fmt: skip


def headers(message: Outgoing) -> bytes | None:
    """Return the headers as they are stored."""
    return msgspec.json.encode(message.headers) if message.headers else None


def received(row: Sequence[Any]) -> QueueMessage:
    """Return a message from seq, queue, id, body, kind, correlation_id, reply_to, task, sequence, headers, sent_at, tries, error."""
    seq, queue, id_, body, kind, correlation_id, reply_to, task, sequence, heads, sent_at, tries, error = row
    return QueueMessage(
        seq=seq, queue=queue, id=id_, body=bytes(body), kind=kind, correlation_id=correlation_id, reply_to=reply_to,
        task=None if task is None else ids.show(task), sequence=sequence,
        headers={} if heads is None else msgspec.json.decode(bytes(heads), type=dict[str, str]),
        sent_at=sent_at, tries=tries, error=error,
    )  # fmt: skip


COLUMNS = (
    "seq, queue, id, body, kind, correlation_id, reply_to, task, sequence, headers, sent_at, tries, error"
)
"""What ``received`` reads."""


def worn_out(tries: int, error: str) -> str:
    """Return why a message is dead that was delivered so often without a word."""
    return error or f"delivered {tries} times and never acknowledged: it may be what kills its receivers"


def dead_letter(queue: str, id_: str, error: str) -> Alert:
    """Return the alert of a message that is put to the dead letters."""
    text = (
        f"message {id_} of queue {queue} could not be handled: {error}; see `makegood queue list {queue} --dead`, then "
        f"`makegood queue replay {queue} {id_}` or `drop`"
    )
    return Alert("dead_letter", step=f"{queue}/{id_}", text=text)


def revived(
    act: Act, queue: str, found: Iterable[tuple[int, str, int | None]], *, drop: bool
) -> list[AuditRow]:
    """Return the audit's rows on dead letters (``seq``, id, task) that an operator replays or drops."""
    kind, state = ("drop_message", "dropped") if drop else ("replay_message", "replayed")
    return audited(
        act, kind, state, [(seq, task, f"message {id_} of queue {queue}") for seq, id_, task in found]
    )


def overfull(queue: str, most: int) -> Alert:
    """Return the alert of a queue whose oldest notices are dropped because too many wait."""
    text = (
        f"more than {most} messages wait in queue {queue}: its oldest notices are dropped unread; see who reads it "
        f"(`makegood queue list`), or raise the limit (queue_limit, MAKEGOOD_QUEUE_LIMIT)"
    )
    return Alert("dead_letter", step=queue, text=text)


def full(queue: str, most: int, waiting: int, new: int) -> QueueFullError:
    """Return the error for a queue in which ``waiting`` messages wait (counted to one above ``most``) and that cannot take ``new``
    more.
    """
    wait = f"{waiting} messages wait in it" if waiting <= most else f"more than {most} messages wait in it"
    room = max(most - waiting, 0)
    why = f"has room for {room} of {new} messages" if room else "is full"
    return QueueFullError(
        f"queue {queue} {why}: {wait}, and its limit is {most}. Nothing was sent: see who reads it "
        f"(`makegood queue list`), or raise the limit (queue_limit, MAKEGOOD_QUEUE_LIMIT)",
        queue=queue,
        limit=most,
        room=room,
    )
