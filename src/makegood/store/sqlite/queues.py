"""Messages in queues: send, receive under a lease, acknowledge, give back, move to the dead letters."""

from collections.abc import Sequence

from makegood.errors import PayloadError
from makegood.store import alerts, queue_records
from makegood.store.queue_operations import check_room, kill
from makegood.store.queue_records import Handed, Outgoing, Receipt, Returned, Room, Sent
from makegood.store.sqlite.transaction import DATA_FAULTS, Row, WriteTransaction, blob
from makegood.transactions import Caller

SEND = """
insert into makegood_message (queue, id, body, kind, correlation_id, reply_to, task, sequence, headers, sent_at, visible_at,
    expires_at, remember)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
on conflict do nothing
"""
"""Its values come from ``sent``. The sender rings for the topic ``queue:NAME``."""

_OTHER = "select 1 from makegood_message where queue = ? and id = ? and state <> 'done' and body <> ?"
_LENGTH = (
    "select count(*) from (select 1 from makegood_message where queue = ? and state = 'waiting' limit ?)"
)
_UNEXPIRED = """
select count(*), coalesce(sum(size), 0) from (
    select length(body) as size from makegood_message
    where queue = ? and state = 'waiting' and (expires_at is null or expires_at > ?) limit ?
)
"""
_KNOWN = "select state <> 'done' and body <> ? from makegood_message where queue = ? and id = ?"
_DEPTH = """
select count(*), coalesce(sum(size), 0) from (
    select length(body) as size from makegood_message where queue = ? and state = 'waiting' limit ?
)
"""

# A message of a task waits while an earlier message of that task is taken or delayed, which means that the
# earlier one becomes visible later. Once the earlier message is visible again, it goes first: a later message
# is given only with all messages before it, or after them. Behind a dead message it waits until that is
# replayed or dropped.
FOUND = """
with found as materialized (
    select seq, tries, error, task, visible_at from makegood_message m
    where queue = ?1 and state = 'waiting' and visible_at <= ?2 and (expires_at is null or expires_at > ?2)
        and (task is null or not exists (
            select 1 from makegood_message e
            where e.task = m.task and e.queue = m.queue and e.seq < m.seq and (e.state = 'dead' or (
                e.state = 'waiting' and e.visible_at > m.visible_at and (e.expires_at is null or e.expires_at > ?2)
            ))
        ))
    order by visible_at, seq limit ?3
)
select seq, tries, error, task from found
where (task is null or not exists (
    select 1 from makegood_message e
    where e.task = found.task and e.queue = ?1 and e.seq < found.seq and e.state = 'waiting'
        and (e.expires_at is null or e.expires_at > ?2) and e.seq not in (select seq from found)
))
order by visible_at, seq
"""
_NEXT = "select min(visible_at) - ? from makegood_message where queue = ? and state = 'waiting'"
_TAKE = f"""
update makegood_message set taken_by = ?, visible_at = ?, tries = tries + 1 where seq in ({{marks}})
returning {queue_records.COLUMNS}
"""  # noqa: S608 - our own text
_OURS = "seq = ? and tries = ? and state = 'waiting' and taken_by is not null"
_DONE = f"delete from makegood_message where {_OURS} and remember is null"  # noqa: S608 - our own text
_REMEMBER = f"""
update makegood_message set state = 'done', body = x'', headers = null, error = '', taken_by = null, task = null, ended_at = ?,
    expires_at = ? + remember
where {_OURS}
"""  # noqa: S608 - our own text
# Steps from one queue to the next, and counts none further than necessary.
_OVERFULL = """
with recursive q (queue) as (
    select min(queue) from makegood_message where state = 'waiting'
    union all
    select (select min(m.queue) from makegood_message m where m.state = 'waiting' and m.queue > q.queue) from q where q.queue is not null
),
n (queue, waiting, size) as (
    select queue, (select count(*) from (select 1 from makegood_message m where m.queue = q.queue and m.state = 'waiting' limit ?3)),
        (select coalesce(sum(length(m.body)), 0) from makegood_message m where m.queue = q.queue and m.state = 'waiting')
    from q where q.queue is not null
)
select queue, max(waiting - ?1, 0), max(size - ?2, 0) from n where waiting > ?1 or (size > ?2 and waiting > 1)
"""
_SHORTEN = """
delete from makegood_message where seq in (
    select seq from (
        select seq, row_number() over oldest as place, sum(size) over oldest - size as before from (
            select seq, visible_at, length(body) as size from makegood_message
            where queue = ? and state = 'waiting' and task is not null and (taken_by is null or visible_at <= ?)
            order by visible_at, seq limit ?
        ) window oldest as (order by visible_at, seq rows unbounded preceding)
    ) where place <= ? or before < ?
)
"""


def sent(m: Outgoing, now: float) -> Row:
    """Return the values of ``SEND``."""
    return (
        m.queue, m.id, blob(m.body), m.kind, m.correlation_id, m.reply_to, m.task, m.sequence, queue_records.headers(m), now,
        now + m.delay, None if m.expires is None else now + m.expires, m.remember,
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


def _send(tx: WriteTransaction, m: Outgoing) -> Sent:
    if tx.run(SEND, sent(m, tx.now)) == 1:
        return Sent(m.id, created=True)
    return Sent(m.id, created=False, conflict=bool(tx.rows(_OTHER, (m.queue, m.id, blob(m.body)))))


def _rest(tx: WriteTransaction, queue: str) -> float | None:
    rest: float | None = tx.rows(_NEXT, (tx.now, queue))[0][0]
    return rest if rest is None else max(rest, 0.0)


def look(tx: WriteTransaction, queue: str) -> Handed | None:
    """Return an empty result if no message is due; None if a write transaction is needed to find out."""
    rest = _rest(tx, queue)
    return None if rest == 0 else Handed([], rest)


def receive(
    tx: WriteTransaction, queue: str, taker: str, limit: int, *, lease: float, threshold: int
) -> Handed:
    """Give messages to a receiver, under a lease of ``lease`` seconds.

    A message with ``threshold`` tries or more goes to the dead letters instead.
    """
    candidates = tx.rows(FOUND, (queue, tx.now, limit))
    seqs: list[int] = []
    dead_letters: list[Returned] = []
    behind: set[int] = set()
    for seq, tries, error, task in candidates:  # the messages of one task are in order
        if task in behind:
            continue
        if tries < threshold:
            seqs.append(seq)
            continue
        dead_letters.append(Returned((seq, tries), error=queue_records.worn_out(tries, error)))
        if task is not None:
            behind.add(task)
    tx.do(kill, dead_letters, on_lease=False)
    rows = tx.among(_TAKE, seqs, taker, tx.now + lease)
    messages = {row[0]: queue_records.received(row) for row in rows}
    rest = 0.0 if len(candidates) == limit else _rest(tx, queue)
    if rest == 0 and not seqs and not dead_letters:  # those in sight wait for others, or expire
        rest = 1.0
    return Handed([messages[seq] for seq in seqs], rest, len(dead_letters))


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
    queue_records.checked([message])
    queue, size = message.queue, len(message.body)
    values = (blob(message.body), queue, message.id)
    if room.depths.wants(queue, size, room.most_bytes, now):
        ((waiting, octets),) = await caller.ask(_DEPTH, queue, room.most)
        room.depths.found(queue, waiting + 1, octets + size, now)
    else:
        ((waiting,),), octets = await caller.ask(_LENGTH, queue, room.most), 0
    if room.full(queue, waiting, octets, size) and not await caller.ask(_KNOWN, *values):
        ((waiting, octets),) = await caller.ask(_UNEXPIRED, queue, now, room.most + 1)
        if (full := room.full(queue, waiting, octets, size)) is not None:
            raise full
    if await caller.ask(f"{SEND} returning 1", *sent(message, now)):
        caller.topics.add(f"queue:{queue}")
        return Sent(message.id, created=True)
    ((conflict,),) = await caller.ask(_KNOWN, *values)
    return Sent(message.id, created=False, conflict=bool(conflict))


def shorten(tx: WriteTransaction, most: int, limit: int, most_bytes: int) -> int:
    """Drop the oldest notices of queues with too many messages or bytes, and raise alerts.

    Returns how many.
    """
    drops: dict[str, tuple[int, bool]] = {}
    for queue, over, excess in tx.rows(_OVERFULL, (most, most_bytes, most + limit)):
        drops[queue] = tx.run(_SHORTEN, (queue, tx.now, limit, over, excess)), over > 0
    overfull_alerts = [
        queue_records.overfull(queue, most, most_bytes, count=count)
        for queue, (total, count) in drops.items()
        if total
    ]
    tx.do(alerts.alert, overfull_alerts)
    return sum(total for total, _ in drops.values())


def any_overfull(tx: WriteTransaction, most: int, most_bytes: int) -> bool:
    """Whether a queue has too many messages or bytes."""
    return bool(tx.rows(_OVERFULL, (most, most_bytes, most + 1)))
