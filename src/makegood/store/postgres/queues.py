"""Messages in queues: sent, leased to receivers, acknowledged, released, dead."""

import base64
from collections.abc import Sequence
from typing import Final

import msgspec

from makegood.errors import PayloadError, TransactionError
from makegood.store import alerts, queue_records
from makegood.store.postgres.commit_statement import CAT, EQ, EXACT_NOW, INTO_MESSAGE, PLUS
from makegood.store.postgres.connection import Connection
from makegood.store.postgres.decision_rows import columns
from makegood.store.postgres.errors import is_data
from makegood.store.postgres.transaction import WriteTransaction
from makegood.store.queue_operations import check_room, kill
from makegood.store.queue_records import Handed, Outgoing, Receipt, Returned, Room, Sent
from makegood.store.records import NO_LIMIT
from makegood.transactions import Caller

_WIDTH = len(queue_records.COLUMNS.split(", "))

_NOW = "extract(epoch from clock_timestamp())::float8"
_AT = f"with at as materialized (select {_NOW} as now)"

_SEND = f"""
{_AT}
{INTO_MESSAGE}
select x.queue, x.id, x.body, x.kind, x.correlation_id, x.reply_to, x.task, x.sequence, x.headers, at.now, at.now + x.delay,
    at.now + x.expires, x.remember
from at cross join unnest($1::text[], $2::text[], $3::bytea[], $4::text[], $5::text[], $6::text[], $7::bigint[], $8::int[],
    $9::bytea[], $10::float8[], $11::float8[], $12::float8[]) with ordinality
    as x (queue, id, body, kind, correlation_id, reply_to, task, sequence, headers, delay, expires, remember, n)
order by x.n
on conflict do nothing
returning queue, id
"""  # noqa: S608 - our own text
_OTHERS = """
select x.n from unnest($1::int[], $2::text[], $3::text[], $4::bytea[]) as x (n, queue, id, body)
join makegood.message m on (m.queue, m.id) between (x.queue, x.id) and (x.queue, x.id)
where m.state <> 'done' and m.body <> x.body
"""
_M = ", ".join(f"m.{name}" for name in queue_records.COLUMNS.split(", "))
_DUE = f"select min(visible_at) - {_NOW} from makegood.message where queue = $1 and state = 'waiting'"  # noqa: S608 - our own text
# A message of a task waits while an earlier message of the same task is leased, or is delayed and becomes
# visible only later. If the earlier one is visible again, or another receiver is just claiming it (it is
# locked, or was changed since this statement began), it goes first: a later message is delivered together
# with all earlier ones, or after them. A message also waits behind a dead letter until that is replayed or
# dropped, and behind one that is about to become a dead letter ($5: it was delivered too often).
_RECEIVE = f"""
{_AT},
locked as materialized (
    select m.seq, m.tries, m.task, m.was from at cross join lateral (
        select m.seq, m.tries, m.task, m.visible_at as was from makegood.message m
        where m.queue = $1 and m.state = 'waiting' and m.visible_at <= at.now and (m.expires_at is null or m.expires_at > at.now)
            and (m.task is null or not exists (
                select 1 from makegood.message e
                where e.task = m.task and e.queue = m.queue and e.seq < m.seq and (e.state = 'dead' or (
                    e.state = 'waiting' and e.visible_at > m.visible_at and (e.expires_at is null or e.expires_at > at.now)
                ))
            ))
        order by m.visible_at, m.seq limit $3 for update skip locked
    ) m
),
found as materialized (
    select l.seq, l.tries, l.was from locked l
    where (l.task is null or not exists (
        select 1 from makegood.message e
        where e.task = l.task and e.queue = $1 and e.seq < l.seq and e.state = 'waiting'
            and (e.expires_at is null or e.expires_at > (select now from at)) and e.seq not in (select seq from locked)
    ) and not exists (select 1 from locked w where w.task = l.task and w.seq < l.seq and w.tries >= $5))
),
taken as (
    update makegood.message m set taken_by = $2, visible_at = at.now + $4, tries = m.tries + 1
    from at cross join found where m.seq between found.seq and found.seq and found.tries < $5
    returning {_M}, true as given, found.was
)
select * from taken
union all
select {_M}, false, found.was from found join makegood.message m on m.seq between found.seq and found.seq where found.tries >= $5
union all
select {_M}, null, l.was from locked l join makegood.message m on m.seq between l.seq and l.seq where l.seq not in (select seq from found)
order by was, seq
"""  # noqa: S608 - our own text
_SOON: Final = 0.02
"""Seconds until to ask again if every message found is behind one that another receiver is just claiming."""
# For the engine's own connections and for a caller's: see ``joined_submit``.
_DONE = "select makegood.settle_messages($1::bigint[], $2::int[]) as seq"
_ACCEPT = "select makegood.settle_messages(array[?::bigint], array[?::int])"
_T, _F = "pg_catalog.text", "pg_catalog.float8"
# An error of the server would end the caller's transaction, so this checks first what the server would
# refuse.
_PUT = f"""
with given as materialized (
    select x.* from pg_catalog.jsonb_to_record(?::pg_catalog.text::pg_catalog.jsonb) as x (queue {_T}, id {_T}, body {_T}, kind {_T},
        correlation_id {_T}, reply_to {_T}, headers {_T}, delay {_F}, expires {_F}, remember {_F}, most bigint,
        size bigint, most_bytes bigint)
),
at as materialized (select {EXACT_NOW} as now),
room as materialized (
    select pg_catalog.count(*) as waiting, coalesce(pg_catalog.sum(m.size), 0) as size from (
        select case when (select most_bytes from given) is not null then pg_catalog.octet_length(m.body) end as size
        from makegood.message m where m.queue {EQ} (select queue from given) and m.state {EQ} 'waiting' limit (select most from given)
    ) m
),
ins as (
    insert into makegood.message (queue, id, body, kind, correlation_id, reply_to, headers, sent_at, visible_at, expires_at, remember)
    select x.queue, x.id, pg_catalog.decode(x.body, 'base64'), x.kind, x.correlation_id, x.reply_to,
        pg_catalog.decode(x.headers, 'base64'), at.now, at.now {PLUS} x.delay, at.now {PLUS} x.expires, x.remember
    from given x cross join at cross join room
    where (x.most is null or room.waiting operator(pg_catalog.<) x.most)
        and (x.most_bytes is null or room.waiting {EQ} 0 or (room.size {PLUS} x.size) operator(pg_catalog.<=) x.most_bytes)
    on conflict do nothing
    returning queue
)
select room.waiting, room.size, (select pg_catalog.count(pg_catalog.pg_notify('makegood', 'queue:' {CAT} queue)) from ins) from room
"""  # noqa: S608 - our own text
_KNOWN = f"""
select m.state operator(pg_catalog.<>) 'done' and m.body operator(pg_catalog.<>) pg_catalog.decode(?::{_T}, 'base64')
from makegood.message m where m.queue {EQ} ?::{_T} and m.id {EQ} ?::{_T}
"""  # noqa: S608 - our own text
_UNEXPIRED = f"""
select pg_catalog.count(*), coalesce(pg_catalog.sum(m.size), 0) from (
    select pg_catalog.octet_length(m.body) as size from makegood.message m where m.queue {EQ} ?::{_T} and m.state {EQ} 'waiting'
        and (m.expires_at is null or m.expires_at operator(pg_catalog.>) {EXACT_NOW}) limit ?::bigint
) m
"""  # noqa: S608 - our own text
_MAY_PUT = """
pg_catalog.has_table_privilege('makegood.message', 'select') and pg_catalog.has_any_column_privilege('makegood.message', 'insert')
"""
_MAY_ACCEPT = "pg_catalog.has_function_privilege('makegood.settle_messages(bigint[], integer[])', 'execute')"
# Each step finds the next queue in the index; no queue is counted further than its limit.
_SHORTEN = f"""
with recursive at as materialized (select {_NOW} as now),
q (queue) as (
    select min(queue) from makegood.message where state = 'waiting'
    union all
    select (select min(m.queue) from makegood.message m where m.state = 'waiting' and m.queue > q.queue) from q where q.queue is not null
),
n as materialized (
    select q.queue, w.waiting, w.waiting - $1::bigint as over, b.size - $3::bigint as excess from q
    cross join lateral (
        select count(*) as waiting
        from (select 1 from makegood.message m where m.queue = q.queue and m.state = 'waiting' limit $1::bigint + $2) m
    ) w
    cross join lateral (
        select coalesce(sum(octet_length(m.body)), 0)::bigint as size from makegood.message m
        where m.queue = q.queue and m.state = 'waiting'
    ) b
    where q.queue is not null
),
found as materialized (
    select n.queue, n.over, n.excess, m.* from at cross join n cross join lateral (
        select m.seq, m.visible_at, octet_length(m.body) as size from makegood.message m
        where m.queue = n.queue and (n.over > 0 or (n.excess > 0 and n.waiting > 1)) and m.state = 'waiting' and m.task is not null
            and (m.taken_by is null or m.visible_at <= at.now)
        order by m.visible_at, m.seq limit $2 for update skip locked
    ) m
),
placed as (
    select f.queue, f.seq, f.over, f.excess, row_number() over oldest as place, sum(f.size) over oldest - f.size as before
    from found f window oldest as (partition by f.queue order by f.visible_at, f.seq rows unbounded preceding)
),
gone as (
    delete from makegood.message m using placed p
    where m.seq = p.seq and (p.place <= p.over or p.before < p.excess)
    returning m.queue, p.over > 0 as by_count
)
select queue, bool_or(by_count) as by_count, count(*) as dropped from gone group by queue order by queue
"""  # noqa: S608 - our own text


def sent(m: Outgoing) -> tuple[object, ...]:
    """Return a message as the columns of the statement that sends it."""
    return (
        m.queue, m.id, m.body, m.kind, m.correlation_id, m.reply_to, m.task, m.sequence, queue_records.headers(m), m.delay, m.expires,
        m.remember,
    )  # fmt: skip


async def write(tx: WriteTransaction, messages: Sequence[Outgoing]) -> set[tuple[str, str]]:
    """Send messages in a transaction that also does other work, whatever the length of their queues.

    Returns (queue, id) of the messages that are new.
    """
    if not messages:
        return set()
    new_keys = {
        (row["queue"], row["id"]) for row in await tx.rows(_SEND, *columns([sent(m) for m in messages], 12))
    }
    tx.topics.update(f"queue:{queue}" for queue, _ in new_keys)
    return new_keys


async def send(tx: WriteTransaction, messages: Sequence[Outgoing], room: Room, now: float) -> list[Sent]:
    """Send messages, each within the limits of its queue. ``now``: seconds, for the age
    of the remembered sizes.
    """
    try:
        new_keys = await write(tx, messages)
    except Exception as fault:
        if is_data(fault):
            raise PayloadError(
                f"the database refuses a value of this message ({type(fault).__name__}: {fault}); nothing was sent"
            ) from fault
        raise
    tx.idle = not new_keys
    is_new: list[bool] = []
    sizes: dict[str, list[int]] = {}
    for m in messages:
        is_new.append((m.queue, m.id) in new_keys)
        if is_new[-1]:
            sizes.setdefault(m.queue, []).append(len(m.body))
        new_keys.discard((m.queue, m.id))  # of two with one id, the later is not a new message
    for queue, new in sorted(sizes.items()):
        await check_room(tx, queue, room, new, now)
    repeats = [(n, m) for n, m in enumerate(messages) if not is_new[n]]
    conflicts = await _others(tx, repeats)
    return [Sent(m.id, created=is_new[n], conflict=n in conflicts) for n, m in enumerate(messages)]


async def _others(tx: WriteTransaction, repeats: Sequence[tuple[int, Outgoing]]) -> set[int]:
    """Return which of these messages, by number, are known with another body."""
    if not repeats:
        return set()
    arrays = columns([(n, m.queue, m.id, m.body) for n, m in repeats], 4)
    return {row["n"] for row in await tx.rows(_OTHERS, *arrays)}


async def due(connection: Connection, queue: str) -> float | None:
    """Return seconds until a message may be due, None if there is none."""
    rest: float | None = await connection.fetchval(_DUE, queue)
    return rest if rest is None else max(rest, 0.0)


async def receive(
    tx: WriteTransaction, queue: str, taker: str, limit: int, *, lease: float, threshold: int
) -> Handed:
    """Lease messages to a receiver."""
    rows = [tuple(row) for row in await tx.rows(_RECEIVE, queue, taker, limit, lease, threshold)]
    message_rows = [row for row in rows if row[_WIDTH] is not None]
    tx.idle = not message_rows
    if rows and not message_rows:
        return Handed([], _SOON)
    messages = [queue_records.received(row[:_WIDTH]) for row in message_rows if row[_WIDTH]]
    spent_messages = [queue_records.received(row[:_WIDTH]) for row in message_rows if not row[_WIDTH]]
    dead_letters = [
        Returned((m.seq, m.tries), error=queue_records.worn_out(m.tries, m.error)) for m in spent_messages
    ]
    await kill(tx, dead_letters, on_lease=False)
    rest = 0.0 if len(message_rows) == limit else await due(tx.connection, queue)
    return Handed(messages, 1.0 if rest == 0 and not message_rows else rest, len(spent_messages))


async def acknowledge(tx: WriteTransaction, receipts: Sequence[Receipt]) -> list[bool]:
    """Remove processed messages from their queues."""
    hit = {row["seq"] for row in await tx.rows(_DONE, *columns(sorted(receipts), 2))}
    tx.idle = not hit
    return [seq in hit for seq, _ in receipts]


async def accept(caller: Caller, receipt: Receipt) -> bool:
    """Remove a processed message from its queue in a caller's transaction."""
    await _may(caller, _MAY_ACCEPT, "execute on function makegood.settle_messages")
    return bool(await caller.ask(_ACCEPT, *receipt))


async def put(caller: Caller, message: Outgoing, room: Room, now: float) -> Sent:
    """Send a message in a caller's transaction."""
    await _may(caller, _MAY_PUT, "select, insert on makegood.message")
    queue_records.checked([message])
    queue, body, size = message.queue, _base64(message.body), len(message.body)
    head = queue_records.headers(message)
    weighs = room.depths.wants(queue, size, room.most_bytes, now)
    parameters = {
        "queue": queue, "id": message.id, "body": body, "kind": message.kind, "correlation_id": message.correlation_id,
        "reply_to": message.reply_to, "headers": None if head is None else _base64(head), "delay": message.delay,
        "expires": message.expires, "remember": message.remember, "most": room.most, "size": size,
        "most_bytes": room.most_bytes if weighs else None,
    }  # fmt: skip
    while True:
        ((waiting, octets, is_new),) = await caller.ask(_PUT, msgspec.json.encode(parameters).decode())
        if weighs:
            room.depths.found(queue, waiting + 1, int(octets) + size, now)
        if is_new:
            caller.topics.add(f"queue:{queue}")
            return Sent(message.id, created=True)
        for (conflict,) in await caller.ask(_KNOWN, body, queue, message.id):
            return Sent(message.id, created=False, conflict=conflict)
        if parameters["most"] is not None:
            ((waiting, octets),) = await caller.ask(_UNEXPIRED, queue, room.most + 1)
            weighs = False
            if (full := room.full(queue, waiting, int(octets), size)) is not None:
                raise full
            # Expired messages still exist, and do not count.
            parameters |= {"most": None, "most_bytes": None}
        # otherwise the message that was in the way has gone meanwhile


async def _may(caller: Caller, condition: str, rights: str) -> None:
    """Raise ``TransactionError`` if the role of the caller's connection lacks these rights on messages."""
    if caller.ours:
        return
    if not (await caller.ask(f"select {condition}"))[0][0]:  # only our own texts
        raise TransactionError(
            f"the role of connection= may not use queues: make it a member of the submitter's role (see makegood store grants) or, as the "
            f"owner of the schema, `grant {rights}` to it"
        )


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


async def shorten(tx: WriteTransaction, most: int, limit: int, most_bytes: int = NO_LIMIT) -> int:
    """Drop the oldest notices of queues that have too many messages or bytes."""
    rows = await tx.rows(_SHORTEN, most, limit, most_bytes)
    tx.idle = not rows
    overfull_alerts = [
        queue_records.overfull(row["queue"], most, most_bytes, count=row["by_count"]) for row in rows
    ]
    await alerts.alert(tx, overfull_alerts)
    return sum(row["dropped"] for row in rows)
