"""The records of messages in queues, the same for every store."""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from makegood.base import ids
from makegood.base.sizes import shown
from makegood.base.terminal_text import command
from makegood.base.text import MOST_ERROR, kept, refuse_unstorable
from makegood.errors import PayloadError, QueueFullError
from makegood.model.messages import Act, Alert
from makegood.model.queue_message import QueueMessage
from makegood.payload.codec import UNREADABLE
from makegood.store.rows import AuditRow, audited

Receipt = tuple[int, int]
"""Which delivery of which message: its ``seq`` and ``tries``."""

MOST_DROPPED = 2000
"""Messages that wait and are dropped in one commit."""

_FEW: Final = 1000
"""Messages in a queue up to which their bytes are added up for each that comes: it takes a fraction of the commit."""
_WEIGHED_EVERY: Final = 1.0
"""Seconds between two additions in a longer queue that is far from its limit."""
_MOST_KNOWN: Final = 1000
"""Queues of which a process remembers the bytes."""


@dataclass(slots=True)
class _Depth:
    count: int
    size: int
    at: float


class Depths:
    """What a process knows of the bytes that wait in queues, so that it does not add all of them up for each message.

    Of a long queue it adds them up once a second, and for each message once what it has sent since would reach the limit. So several
    processes together may exceed the limit by what the others send within that second.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[str, _Depth] = OrderedDict()

    def wants(self, queue: str, new: int, most: int, now: float) -> bool:
        """Return whether the bytes of a queue are to be added up, now that ``new`` more were sent. ``now``: seconds."""
        known = self._known.get(queue)
        if known is None:
            return True
        known.size += new
        return known.count <= _FEW or known.size > most or not 0 <= now - known.at < _WEIGHED_EVERY

    def found(self, queue: str, count: int, size: int, now: float) -> None:
        """Note how many messages wait in a queue, and their bytes."""
        self._known[queue] = _Depth(count, size, now)
        self._known.move_to_end(queue)
        if len(self._known) > _MOST_KNOWN:
            self._known.popitem(last=False)


@dataclass(frozen=True, slots=True)
class Room:
    """What may wait in a queue: messages, and their bytes; ``depths``: what is known of them."""

    most: int
    most_bytes: int
    depths: Depths

    def full(self, queue: str, count: int, size: int, new: int) -> QueueFullError | None:
        """Return the error for one more message, of ``new`` bytes, beside ``count`` of ``size``; None when there is room for it."""
        return full(queue, self.most, self.most_bytes, (count, size), [new])


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
    messages at least was given to a receiver. ``bytes``: of the messages that wait, are taken or delayed.
    """

    queue: str
    waiting: int
    taken: int
    delayed: int
    dead: int
    oldest: float | None
    read: bool = True
    bytes: int = 0


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
        headers={} if heads is None else _heads(bytes(heads)),
        sent_at=sent_at, tries=tries, error=error,
    )  # fmt: skip


def _heads(data: bytes) -> dict[str, str]:
    """Return a message's headers; none where they do not read: its body is what it is about."""
    try:
        return msgspec.json.decode(data, type=dict[str, str])
    except UNREADABLE:
        return {}


COLUMNS = (
    "seq, queue, id, body, kind, correlation_id, reply_to, task, sequence, headers, sent_at, tries, error"
)
"""What ``received`` reads."""


def worn_out(tries: int, error: str) -> str:
    """Return why a message is dead that was delivered so often without a word."""
    return error or f"delivered {tries} times and never acknowledged: it may be what kills its receivers"


def dead_letter(queue: str, id_: str, error: str, task: int | None = None) -> Alert:
    """Return the alert of a message that is put to the dead letters. ``task``: whose notice it is."""
    replay = command(["queue", "replay"], [queue, id_])
    then = f"then {replay}" if replay else "then replay it by its id, which is not fit for a command line,"
    behind = "" if task is None else f" (the later notices of task {ids.show(task)} wait behind it)"
    text = (
        f"message {id_} of queue {queue} could not be handled: {error}{behind}; see "
        f"{command(['queue', 'list', '--dead'], [queue]) or '`makegood queue list`'}, {then} or `drop`"
    )
    return Alert("dead_letter", step=f"{queue}/{id_}", text=text)


def revived(
    act: Act, queue: str, found: Iterable[tuple[int, str, int | None]], *, drop: bool, corrected: bool = False
) -> list[AuditRow]:
    """Return the audit's rows on dead letters (``seq``, id, task) that an operator replays or drops; ``corrected``: with another value."""
    kind, state = ("drop_message", "dropped") if drop else ("replay_message", "replayed")
    how = ", with another value" if corrected else ""
    return audited(
        act, kind, state, [(seq, task, f"message {id_} of queue {queue}{how}") for seq, id_, task in found]
    )


def corrected(id_: str, was: bytes, now: bytes) -> bytes:
    """Return what an operator replaced in a message, for the audit."""
    try:
        before: object = msgspec.json.decode(was)
    except msgspec.DecodeError:
        before = was.decode(errors="replace")
    return msgspec.json.encode({"message": id_, "was": before, "now": msgspec.Raw(now)})


def overfull(queue: str, most: int, most_bytes: int, *, count: bool) -> Alert:
    """Return the alert of a queue whose oldest notices are dropped because too many wait, or (not ``count``) too many bytes."""
    text = (
        f"{_over(most, most_bytes, count=count)} in queue {queue}: its oldest notices are dropped unread; see who reads it "
        f"(`makegood queue list`), or raise the limit ({_setting(count=count)})"
    )
    return Alert("dead_letter", step=queue, text=text)


def _over(most: int, most_bytes: int, *, count: bool) -> str:
    return f"more than {most} messages wait" if count else f"messages of more than {shown(most_bytes)} wait"


def _setting(*, count: bool) -> str:
    name = "queue_limit" if count else "queue_bytes"
    return f"Client({name}=) in Python, MAKEGOOD_{name.upper()} for commands and roles"


def full(
    queue: str, most: int, most_bytes: int, waiting: tuple[int, int], new: Sequence[int]
) -> QueueFullError | None:
    """Return the error for a queue that cannot take messages of ``new`` bytes; None when it can. ``waiting``: how many messages wait
    in it (counted to one above ``most``), and their bytes. An empty queue takes a message of any size.
    """
    count, size = waiting
    room, total = 0, size
    for one in new:
        total += one
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
        wait = f"{count} messages of {shown(size)} wait in it"
        limit = f"its limit is {shown(most_bytes)}"
        if count == 0:
            wait = "no message waits in it"
        elif not room:
            wait += f", the next one has {shown(new[0])}"
    why = f"has room for {room} of {len(new)} messages" if room else "is full"
    return QueueFullError(
        f"queue {queue} {why}: {wait}, and {limit}. Nothing was sent: see who reads it "
        f"(`makegood queue list`), or raise the limit ({_setting(count=by_count)})",
        queue=queue,
        limit=most if by_count else most_bytes,
        room=room,
        unit="messages" if by_count else "bytes",
    )
