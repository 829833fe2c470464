"""The records of messages in queues, the same for every store."""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final, Literal

import msgspec

from makegood.base import ids
from makegood.base.sizes import size_text
from makegood.base.stored_values import data, seconds, text, whole
from makegood.base.terminal_text import command
from makegood.base.text import MOST_ERROR, refuse_unstorable, storable_text, without_backticks
from makegood.errors import PayloadError, QueueFullError
from makegood.model.messages import Act, Alert
from makegood.model.queue_message import QueueMessage
from makegood.payload.codec import UNREADABLE
from makegood.store.rows import AuditRow, audit_rows

Receipt = tuple[int, int]
"""Identifies one delivery of a message: its ``seq`` and ``tries``."""

MOST_DROPPED = 2000
"""Waiting messages dropped in one commit at most."""

_FEW: Final = 1000
"""Up to this many messages in a queue, their bytes are summed for each new one: this takes a
fraction of the commit.
"""
_WEIGHED_EVERY: Final = 1.0
"""Seconds between two sums for a longer queue that is far from its limit."""
_MOST_KNOWN: Final = 1000
"""Queues whose size in bytes a process remembers."""


@dataclass(slots=True)
class _Depth:
    count: int
    size: int
    at: float


class Depths:
    """What a process remembers of the bytes waiting in queues, so that it need not sum them for each message.

    The bytes of a long queue are summed once a second, and for each message as soon as the bytes sent
    since would reach the limit. So several processes together may exceed the limit by what the others
    send within that second.
    """

    def __init__(self) -> None:
        self._depths: OrderedDict[str, _Depth] = OrderedDict()

    def wants(self, queue: str, new: int, most: int, now: float) -> bool:
        """Return whether to sum the bytes of a queue now that ``new`` more were sent. ``now``: seconds."""
        depth = self._depths.get(queue)
        if depth is None:
            return True
        depth.size += new
        return depth.count <= _FEW or depth.size > most or not 0 <= now - depth.at < _WEIGHED_EVERY

    def record(self, queue: str, count: int, size: int, now: float) -> None:
        """Record how many messages wait in a queue, and their bytes."""
        self._depths[queue] = _Depth(count, size, now)
        self._depths.move_to_end(queue)
        if len(self._depths) > _MOST_KNOWN:
            self._depths.popitem(last=False)


@dataclass(frozen=True, slots=True)
class Room:
    """The limits of a queue."""

    most: int
    """Waiting messages."""
    most_bytes: int
    """Bytes of their values."""
    depths: Depths
    """The remembered sizes of queues."""

    def full(self, queue: str, count: int, size: int, new: int) -> QueueFullError | None:
        """Return the error for one more message of ``new`` bytes, or None if it fits.

        ``count``, ``size``: the messages in the queue, and their bytes.
        """
        return full(queue, self.most, self.most_bytes, (count, size), [new])


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """A message to send."""

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
    """Seconds until it can be received."""
    expires: float | None = None
    """Seconds after which it is dropped unread."""
    remember: float | None = None
    """Seconds for which its id is remembered after it was acknowledged; None: not at all."""

    @property
    def digest(self) -> bytes:
        """What another message of the same id is known by, even after this one was acknowledged."""
        return blake2b(self.body, digest_size=16).digest()


class Sent(msgspec.Struct, frozen=True):
    """The result of sending a message."""

    id: str
    created: bool
    """False if the queue already knows a message with that id."""
    conflict: bool = False
    """Whether the known message had another body when it was sent."""


class DeadLetter(msgspec.Struct, frozen=True):
    """A message that is kept as a dead letter from the beginning: no receiver can make anything of it."""

    message: Outgoing
    error: str

    @property
    def why(self) -> str:
        """Its error as stored."""
        return storable_text(self.error)[:MOST_ERROR]


class Handed(msgspec.Struct, frozen=True):
    """Messages leased to a receiver."""

    messages: list[QueueMessage]
    rest: float | None
    """Seconds until another may be due; 0: ask again; None: none waits."""
    dead: int = 0
    """How many became dead letters instead."""


class Returned(msgspec.Struct, frozen=True):
    """A message that its receiver releases."""

    receipt: Receipt
    wait: float = 0.0
    """Seconds until it can be received again."""
    error: str = ""
    dead: bool = False
    """Whether it becomes a dead letter instead."""
    counts: bool = True
    """Whether the delivery counts as a try."""

    @property
    def why(self) -> str:
        """Its error as stored."""
        return storable_text(self.error)[:MOST_ERROR]


class MessageView(msgspec.Struct, frozen=True):
    """A message as operators see it."""

    message: QueueMessage
    state: Literal["waiting", "dead"]
    due: float
    """Seconds until it can be received (again); 0 or less: now."""
    taken_by: str | None
    """The receiver that has it."""
    ended: float | None
    expires: float | None


class QueueView(msgspec.Struct, frozen=True):
    """A summary of a queue."""

    queue: str
    waiting: int
    taken: int
    delayed: int
    dead: int
    oldest: float | None
    """Seconds for which the oldest receivable message has waited."""
    read: bool = True
    """Whether a receiver has got at least one of its messages."""
    bytes: int = 0
    """Bytes of the messages that wait, are leased or are delayed."""


def check_messages(messages: Sequence[Outgoing]) -> None:
    """Raise ``PayloadError`` for texts that a database refuses: a refusal by the server would break
    a caller's transaction.
    """
    for m in messages:
        refuse_unstorable(
            PayloadError, "; nothing was sent",
            queue=m.queue, id=m.id, kind=m.kind, correlation_id=m.correlation_id, reply_to=m.reply_to,
        )  # fmt: skip


def headers(message: Outgoing) -> bytes | None:
    """Return the headers as they are stored."""
    return msgspec.json.encode(message.headers) if message.headers else None


def read_message(row: Sequence[Any]) -> QueueMessage:
    """Return the message in a row.

    The columns: seq, queue, id, body, kind, correlation_id, reply_to, task, sequence, headers,
    sent_at, tries, error.
    """
    seq, queue, id_, body, kind, correlation_id, reply_to, task, sequence, heads, sent_at, tries, error = row
    return QueueMessage(
        seq=seq, queue=text(queue), id=text(id_), body=data(body), kind=text(kind),
        correlation_id=None if correlation_id is None else text(correlation_id), reply_to=None if reply_to is None else text(reply_to),
        task=None if task is None else ids.show(whole(task)), sequence=None if sequence is None else whole(sequence),
        headers={} if heads is None else _heads(data(heads)),
        sent_at=seconds(sent_at), tries=whole(tries), error=text(error),
    )  # fmt: skip


def _heads(value: bytes) -> dict[str, str]:
    """Return a message's headers, or none if they are unreadable: the body is what matters."""
    try:
        return msgspec.json.decode(value, type=dict[str, str])
    except UNREADABLE:
        return {}


COLUMNS = (
    "seq, queue, id, body, kind, correlation_id, reply_to, task, sequence, headers, sent_at, tries, error"
)
"""What ``received`` reads."""


def out_of_tries(tries: int, error: str) -> str:
    """Return why a message is dead that was delivered ``tries`` times without an answer."""
    return error or f"delivered {tries} times and never acknowledged: it may be what kills its receivers"


def dead_letter(queue: str, id_: str, error: str, task: int | None = None) -> Alert:
    """Return the alert for a message that becomes a dead letter. ``task``: the task, if the
    message is its notice.
    """
    replay = command(["queue", "replay"], [queue, id_])
    remedy = f"then {replay}" if replay else "then replay it by its id, which is not fit for a command line,"
    behind = "" if task is None else f" (the later notices of task {ids.show(task)} wait behind it)"
    text = (
        f"{without_backticks(f'message {id_} of queue {queue} could not be handled: {error}')}{behind}; see "
        f"{command(['queue', 'list', '--dead'], [queue]) or '`makegood queue list`'}, {remedy} or `drop`"
    )
    return Alert("dead_letter", step=f"{queue}/{id_}", text=text)


def dead_letter_audit(
    act: Act,
    queue: str,
    letters: Iterable[tuple[int, str, int | None]],
    *,
    drop: bool,
    with_new_value: bool = False,
) -> list[AuditRow]:
    """Return the audit rows for dead letters (``seq``, id, task) that an operator replays or drops.

    ``with_new_value``: the value was replaced.
    """
    kind, state = ("drop_message", "dropped") if drop else ("replay_message", "replayed")
    addition = ", with another value" if with_new_value else ""
    return audit_rows(
        act,
        kind,
        state,
        [(seq, task, f"message {id_} of queue {queue}{addition}") for seq, id_, task in letters],
    )


def correction(id_: str, was: bytes, now: bytes) -> bytes:
    """Return what an operator replaced in a message, for the audit."""
    try:
        before: object = msgspec.json.decode(was)
    except msgspec.DecodeError:
        before = was.decode(errors="replace")
    return msgspec.json.encode({"message": id_, "was": before, "now": msgspec.Raw(now)})


def overfull(queue: str, most: int, most_bytes: int, *, count: bool) -> Alert:
    """Return the alert for a queue whose oldest notices are dropped because too many wait.

    ``count``: too many messages; otherwise too many bytes.
    """
    text = (
        f"{_over(most, most_bytes, count=count)} in queue {queue}: its oldest notices are dropped unread; see who reads it "
        f"(`makegood queue list`), or raise the limit ({_setting(count=count)})"
    )
    return Alert("dead_letter", step=queue, text=text)


def _over(most: int, most_bytes: int, *, count: bool) -> str:
    return (
        f"more than {most} messages wait" if count else f"messages of more than {size_text(most_bytes)} wait"
    )


def _setting(*, count: bool) -> str:
    name = "queue_limit" if count else "queue_bytes"
    return f"Client({name}=) in Python, MAKEGOOD_{name.upper()} for commands and roles"


def full(
    queue: str, most: int, most_bytes: int, waiting: tuple[int, int], new: Sequence[int]
) -> QueueFullError | None:
    """Return the error for a queue that cannot take messages of ``new`` bytes; None when it can.

    ``waiting``: how many messages wait in it (counted to one above ``most``), and their bytes. An empty queue
    accepts a message of any size.
    """
    count, size = waiting
    room, total = 0, size
    for message_bytes in new:
        total += message_bytes
        if count + room >= most or (total > most_bytes and count + room > 0):
            break
        room += 1
    else:
        return None
    by_count = count + room >= most
    if by_count:
        wait = f"{count} messages wait in it" if count <= most else f"more than {most} messages wait in it"
        limit = f"its limit is {most}"
    else:
        wait = f"{count} messages of {size_text(size)} wait in it"
        limit = f"its limit is {size_text(most_bytes)}"
        if count == 0:
            wait = "no message waits in it"
        elif not room:
            wait += f", the next one has {size_text(new[0])}"
    state = f"has room for {room} of {len(new)} messages" if room else "is full"
    return QueueFullError(
        f"queue {queue} {state}: {wait}, and {limit}. Nothing was sent: see who reads it "
        f"(`makegood queue list`), or raise the limit ({_setting(count=by_count)})",
        queue=queue,
        limit=most if by_count else most_bytes,
        room=room,
        unit="messages" if by_count else "bytes",
    )
