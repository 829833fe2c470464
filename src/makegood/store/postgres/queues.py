"""Messages in queues: sent and acknowledged, also in a caller's transaction."""

import base64
from collections.abc import Sequence

import msgspec

from makegood.errors import PayloadError, TransactionError
from makegood.model.messages import Alert
from makegood.store import queue_records
from makegood.store.postgres.commit_statement import CAT, EQ, EXACT_NOW, INTO_MESSAGE, PLUS
from makegood.store.postgres.decision_rows import columns
from makegood.store.postgres.errors import is_data
from makegood.store.postgres.transaction import WriteTransaction
from makegood.store.queue_operations import check_room, kill_new
from makegood.store.queue_records import DeadLetter, Outgoing, Receipt, Room, Sent
from makegood.transactions import Caller

_NOW = "extract(epoch from clock_timestamp())::float8"
_AT = f"with at as materialized (select {_NOW} as now)"

_SEND = f"""
{_AT}
{INTO_MESSAGE}
select x.queue, x.id, x.body, x.kind, x.correlation_id, x.reply_to, x.task, x.sequence, x.headers, at.now, at.now + x.delay,
    at.now + x.expires, x.remember, x.digest
from at cross join unnest($1::text[], $2::text[], $3::bytea[], $4::text[], $5::text[], $6::text[], $7::bigint[], $8::int[],
    $9::bytea[], $10::float8[], $11::float8[], $12::float8[], $13::bytea[]) with ordinality
    as x (queue, id, body, kind, correlation_id, reply_to, task, sequence, headers, delay, expires, remember, digest, n)
order by x.n
on conflict do nothing
returning queue, id
"""  # noqa: S608 - our own text
_OTHERS = """
select x.n from unnest($1::int[], $2::text[], $3::text[], $4::bytea[]) as x (n, queue, id, digest)
join makegood.message m on (m.queue, m.id) between (x.queue, x.id) and (x.queue, x.id)
where m.digest <> x.digest
"""
# For the engine's own connections and for a caller's: see ``joined_submit``.
_DONE = "select makegood.settle_messages($1::bigint[], $2::int[]) as seq"
_ACCEPT = "select makegood.settle_messages(array[?::bigint], array[?::int])"
_T, _F = "pg_catalog.text", "pg_catalog.float8"
# An error of the server would end the caller's transaction, so this checks first what the server would
# refuse.
_PUT = f"""
with given as materialized (
    select x.* from pg_catalog.jsonb_to_record(?::pg_catalog.text::pg_catalog.jsonb) as x (queue {_T}, id {_T}, body {_T}, kind {_T},
        correlation_id {_T}, reply_to {_T}, headers {_T}, delay {_F}, expires {_F}, remember {_F}, digest {_T}, most bigint,
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
    insert into makegood.message (queue, id, body, kind, correlation_id, reply_to, headers, sent_at, visible_at, expires_at, remember,
        digest)
    select x.queue, x.id, pg_catalog.decode(x.body, 'base64'), x.kind, x.correlation_id, x.reply_to,
        pg_catalog.decode(x.headers, 'base64'), at.now, at.now {PLUS} x.delay, at.now {PLUS} x.expires, x.remember,
        pg_catalog.decode(x.digest, 'base64')
    from given x cross join at cross join room
    where (x.most is null or room.waiting operator(pg_catalog.<) x.most)
        and (x.most_bytes is null or room.waiting {EQ} 0 or (room.size {PLUS} x.size) operator(pg_catalog.<=) x.most_bytes)
    on conflict do nothing
    returning queue
)
select room.waiting, room.size, (select pg_catalog.count(pg_catalog.pg_notify('makegood', 'queue:' {CAT} queue)) from ins) from room
"""  # noqa: S608 - our own text
_KNOWN = f"""
select coalesce(m.digest operator(pg_catalog.<>) pg_catalog.decode(?::{_T}, 'base64'), false)
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


def send_row(m: Outgoing) -> tuple[object, ...]:
    """Return a message as the columns of the statement that sends it."""
    return (
        m.queue, m.id, m.body, m.kind, m.correlation_id, m.reply_to, m.task, m.sequence, queue_records.headers(m), m.delay, m.expires,
        m.remember, m.digest,
    )  # fmt: skip


async def _insert(tx: WriteTransaction, messages: Sequence[Outgoing]) -> set[tuple[str, str]]:
    """Insert messages; return the queue and id of those that their queues did not know."""
    try:
        new_rows = await tx.rows(_SEND, *columns([send_row(m) for m in messages], 13))
    except Exception as fault:
        if is_data(fault):
            raise PayloadError(
                f"the database refuses a value of this message ({type(fault).__name__}: {fault}); nothing was sent"
            ) from fault
        raise
    return {(row["queue"], row["id"]) for row in new_rows}


async def send(tx: WriteTransaction, messages: Sequence[Outgoing], room: Room, now: float) -> list[Sent]:
    """Send messages, each within the limits of its queue. ``now``: seconds, for the age
    of the remembered sizes.
    """
    new_keys = await _insert(tx, messages)
    tx.topics.update(f"queue:{queue}" for queue, _ in new_keys)
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


async def bury(tx: WriteTransaction, letters: Sequence[DeadLetter], alert: Alert) -> list[Sent]:
    """Add messages as dead letters, with one alert."""
    new_keys = await _insert(tx, [each.message for each in letters])
    tx.idle = not new_keys
    await kill_new(tx, [each for each in letters if (each.message.queue, each.message.id) in new_keys], alert)
    return [Sent(m.id, created=(m.queue, m.id) in new_keys) for m in (each.message for each in letters)]


async def _others(tx: WriteTransaction, repeats: Sequence[tuple[int, Outgoing]]) -> set[int]:
    """Return which of these messages, by number, are known with another body."""
    if not repeats:
        return set()
    arrays = columns([(n, m.queue, m.id, m.digest) for n, m in repeats], 4)
    return {row["n"] for row in await tx.rows(_OTHERS, *arrays)}


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
    queue_records.check_messages([message])
    queue, size, digest = message.queue, len(message.body), _base64(message.digest)
    head = queue_records.headers(message)
    weighs = room.depths.wants(queue, size, room.most_bytes, now)
    parameters = {
        "queue": queue, "id": message.id, "body": _base64(message.body), "kind": message.kind, "correlation_id": message.correlation_id,
        "reply_to": message.reply_to, "headers": None if head is None else _base64(head), "delay": message.delay,
        "expires": message.expires, "remember": message.remember, "digest": digest, "most": room.most, "size": size,
        "most_bytes": room.most_bytes if weighs else None,
    }  # fmt: skip
    while True:
        ((waiting, octets, is_new),) = await caller.ask(_PUT, msgspec.json.encode(parameters).decode())
        if weighs:
            room.depths.record(queue, waiting + 1, int(octets) + size, now)
        if is_new:
            caller.topics.add(f"queue:{queue}")
            return Sent(message.id, created=True)
        for (conflict,) in await caller.ask(_KNOWN, digest, queue, message.id):
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
