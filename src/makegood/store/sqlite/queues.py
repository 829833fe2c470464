"""Messages in queues: sent and acknowledged, also in a caller's transaction."""

import re
from collections.abc import Sequence

from makegood.errors import PayloadError
from makegood.model.messages import Alert
from makegood.store import queue_records
from makegood.store.queue_operations import DEPTH, LENGTH, UNEXPIRED, check_room, kill_new
from makegood.store.queue_records import DeadLetter, Outgoing, Receipt, Room, Sent
from makegood.store.sqlite.transaction import DATA_FAULTS, Row, WriteTransaction, blob
from makegood.transactions import Caller

SEND = """
insert into makegood_message (queue, id, body, kind, correlation_id, reply_to, task, sequence, headers, sent_at, visible_at,
    expires_at, remember, digest)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
on conflict do nothing
"""
"""Its values come from ``sent``. The sender wakes the topic ``queue:NAME``."""

# For a caller's connection: values in the order of their marks.
_LENGTH, _DEPTH, _UNEXPIRED = (re.sub(r"\?\d", "?", sql.sqlite) for sql in (LENGTH, DEPTH, UNEXPIRED))
_KNOWN = "select coalesce(digest <> ?, false) from makegood_message where queue = ? and id = ?"
_OURS = "seq = ? and tries = ? and state = 'waiting' and taken_by is not null"
_DONE = f"delete from makegood_message where {_OURS} and remember is null"  # noqa: S608 - our own text
_REMEMBER = f"""
update makegood_message set state = 'done', body = x'', headers = null, error = '', taken_by = null, task = null, ended_at = ?,
    expires_at = ? + remember
where {_OURS}
"""  # noqa: S608 - our own text


def send_row(m: Outgoing, now: float) -> Row:
    """Return the values of ``SEND``."""
    return (
        m.queue, m.id, blob(m.body), m.kind, m.correlation_id, m.reply_to, m.task, m.sequence, queue_records.headers(m), now,
        now + m.delay, None if m.expires is None else now + m.expires, m.remember,
        m.digest,
    )  # fmt: skip


def send(tx: WriteTransaction, requests: Sequence[tuple[Outgoing, Room]]) -> list[Sent]:
    """Send messages, each with the limits of its queue. Raises ``PayloadError`` and ``QueueFullError``."""
    try:
        answers = [_send(tx, m) for m, _ in requests]
    except DATA_FAULTS as fault:
        raise PayloadError(
            f"the database refuses a value of this message ({type(fault).__name__}: {fault}); nothing was sent"
        ) from fault
    sizes: dict[str, tuple[Room, list[int]]] = {}
    for (m, room), answer in zip(requests, answers, strict=True):
        if answer.created:
            sizes.setdefault(m.queue, (room, []))[1].append(len(m.body))
    for queue, (room, new) in sizes.items():
        tx.do(check_room, queue, room, new, tx.now)
        tx.topics.add(f"queue:{queue}")
    return answers


def bury(tx: WriteTransaction, letters: Sequence[DeadLetter], alert: Alert) -> list[Sent]:
    """Add messages as dead letters, with one alert. Raises ``PayloadError``."""
    try:
        answers = [_send(tx, each.message) for each in letters]
    except DATA_FAULTS as fault:
        raise PayloadError(
            f"the database refuses a value of this message ({type(fault).__name__}: {fault}); nothing was kept"
        ) from fault
    tx.do(kill_new, [each for each, answer in zip(letters, answers, strict=True) if answer.created], alert)
    return answers


def _send(tx: WriteTransaction, m: Outgoing) -> Sent:
    if tx.run(SEND, send_row(m, tx.now)) == 1:
        return Sent(m.id, created=True)
    return Sent(
        m.id, created=False, conflict=any(each for (each,) in tx.rows(_KNOWN, (m.digest, m.queue, m.id)))
    )


def acknowledge(tx: WriteTransaction, receipts: Sequence[Receipt]) -> list[bool]:
    """Remove messages from their queues. Returns True for each message that was still held."""
    return [
        tx.run(_DONE, receipt) == 1 or tx.run(_REMEMBER, (tx.now, tx.now, *receipt)) == 1
        for receipt in receipts
    ]


async def accept(caller: Caller, receipt: Receipt, now: float) -> bool:
    """Remove a message from its queue in the caller's transaction. Returns whether it was still held."""
    if await caller.ask(f"{_DONE} returning 1", *receipt):
        return True
    return bool(await caller.ask(f"{_REMEMBER} returning 1", now, now, *receipt))


async def put(caller: Caller, message: Outgoing, room: Room, now: float) -> Sent:
    """Send a message in the caller's transaction. Raises ``QueueFullError``.

    Limits are checked before the insert, since nothing can be rolled back here.
    """
    queue_records.check_messages([message])
    queue, size = message.queue, len(message.body)
    values = (message.digest, queue, message.id)
    if room.depths.wants(queue, size, room.most_bytes, now):
        ((waiting, octets),) = await caller.ask(_DEPTH, queue, room.most)
        room.depths.record(queue, waiting + 1, octets + size, now)
    else:
        ((waiting,),), octets = await caller.ask(_LENGTH, queue, room.most), 0
    if room.full(queue, waiting, octets, size) and not await caller.ask(_KNOWN, *values):
        ((waiting, octets),) = await caller.ask(_UNEXPIRED, queue, now, room.most + 1)
        if (full := room.full(queue, waiting, octets, size)) is not None:
            raise full
    if await caller.ask(f"{SEND} returning 1", *send_row(message, now)):
        caller.topics.add(f"queue:{queue}")
        return Sent(message.id, created=True)
    ((conflict,),) = await caller.ask(_KNOWN, *values)
    return Sent(message.id, created=False, conflict=bool(conflict))
