"""Requests to agents, and messages to tasks."""

from collections.abc import Sequence
from dataclasses import dataclass

from makegood.model.messages import TaskMessage
from makegood.store import refusals, rows
from makegood.store.postgres.connection import Connection
from makegood.store.postgres.decision_rows import columns
from makegood.store.postgres.transaction import Row, WriterGoneError, WriteTransaction
from makegood.store.records import TaskMessages
from makegood.store.requests import leave, sort_messages
from makegood.store.scan_floors import Floors

_INBOX = """
select seq, task, body, locked_by, db_user from (
    select seq, task, body, locked_by, db_user,
        sum(octet_length(body)) over (order by seq rows unbounded preceding) - octet_length(body) as before
    from ({messages}) i
) i
where before < {room} order by seq
"""
INBOX = _INBOX.format(
    room="$4",
    messages="""
        select i.seq, i.task, i.body, t.locked_by, i.db_user from makegood.inbox i cross join lateral (
            select t.locked_by from makegood.task t
            where t.id = i.task and (t.locked_by is not distinct from $1 or (t.locked_by is null and t.state <> 'pending')) offset 0
        ) t
        where i.seq > $2 order by i.seq limit $3
    """,
)
# Only for tasks that the node holds: however many others have messages, as in a flood of signals.
HELD_INBOX = _INBOX.format(
    room="$3",
    messages="""
        select i.seq, i.task, i.body, t.locked_by, i.db_user
        from (select t.id, t.locked_by from makegood.task t where t.locked_by = $1 offset 0) t cross join lateral (
            select i.seq, i.task, i.body, i.db_user from makegood.inbox i where i.task = t.id offset 0
        ) i
        order by i.seq limit $2
    """,
)
_ANSWER = """
with writer as (select 1 from makegood.writer where id = $1 and number = $2 for update),
at as materialized (select extract(epoch from clock_timestamp())::float8 as now from writer),
hit as (
    update makegood.request r set answered = true
    from at cross join unnest($6::bigint[], $7::int[], $8::int[], $9::text[], $10::text[], $11::bytea[])
        with ordinality as x (task, idx, attempt, doing, kind, body, n)
    where (r.task, r.idx, r.attempt) between (x.task, x.idx, x.attempt) and (x.task, x.idx, x.attempt) and r.kind = x.doing and r.taken_by = $5
        and not r.answered and r.complete_by >= extract(epoch from clock_timestamp())::float8
    returning x.n, x.task, x.kind, x.body
),
put as (
    insert into makegood.inbox (task, kind, at, body) select hit.task, hit.kind, at.now, hit.body from at cross join hit order by hit.n
),
mark as (
    update makegood.writer w set number = $3, at = at.now,
        outcome = case when (select count(*) from hit) < cardinality($6::bigint[]) then array(select n from hit) end
    from at where w.id = $1
    returning (select count(pg_notify('makegood', topic)) from unnest($4::text[]) topic where exists (select 1 from hit))
)
select array(select n from hit) as hits, (select count(*) from mark) as marked
"""
_LATE = """
insert into makegood.event (task, at, node, moves, note, attempts)
select x.task, extract(epoch from clock_timestamp())::float8, $2, $3, '', x.attempts
from unnest($1::bigint[], $4::bytea[]) as x (task, attempts)
where (select t.id from makegood.task t where t.id = x.task) is not null
"""
_STATES = "select id, state from makegood.task where id = any ($1::bigint[])"
_GIVEN = """
select x.n from unnest($2::bigint[], $3::int[], $4::int[], $5::bytea[]) with ordinality as x (task, idx, attempt, body, n)
    join makegood.request r on (r.task, r.idx, r.attempt) between (x.task, x.idx, x.attempt) and (x.task, x.idx, x.attempt)
where r.answered and r.taken_by = $1 and exists (select 1 from makegood.inbox i where i.task between x.task and x.task and i.body = x.body)
"""


async def inbox(
    connection: Connection, node: int, limit: int, room: int, floors: Floors | None
) -> tuple[TaskMessages, dict[int, str]]:
    """Return what ``sort_messages`` does, from the floor or the bottom of the inbox; without floors only
    messages for the tasks that the node holds.
    """
    if floors is None:
        return sort_messages(await connection.fetch(HELD_INBOX, node, limit, room), limit, room)
    key = ("inbox", node)

    async def look(bottom: bool) -> list[Row]:  # noqa: FBT001 - as ``scan`` calls it
        return await connection.fetch(INBOX, node, -1 if bottom else int(floors.floor(key)), limit, room)

    message_rows = await floors.scan(key, look)
    if message_rows:
        floors.advance(key, message_rows[-1]["seq"])
    return sort_messages(message_rows, limit, room)


@dataclass(frozen=True, slots=True)
class IncomingReply:
    """A reply about to be written."""

    node: int
    """The node that replies."""
    task: int
    message: TaskMessage
    body: bytes
    """The message as stored."""


def _keys(replies: Sequence[IncomingReply]) -> list[tuple[int, int, int]]:
    return [(r.task, r.message.idx, r.message.attempt) for r in replies]


async def answer(tx: WriteTransaction, node: int, replies: Sequence[IncomingReply]) -> list[bool]:
    """Write those replies of ``node`` that came in time; the others stay False. One statement."""
    order = sorted(range(len(replies)), key=lambda n: _keys([replies[n]]))
    values = [
        (r.task, r.message.idx, r.message.attempt, r.message.doing, r.message.kind, r.body)
        for r in (replies[n] for n in order)
    ]
    tx.is_sent = True
    row = await tx.row(_ANSWER, tx.writer, tx.before, tx.number, ["inbox"], node, *columns(values, 6))
    assert row is not None
    if not row["marked"]:
        raise WriterGoneError
    tx.has_mark = True
    return _verdicts(tx, order, row["hits"])


async def recover_verdicts(
    tx: WriteTransaction, replies: Sequence[IncomingReply], outcome: Sequence[int] | None
) -> list[bool]:
    """Return the verdicts of an ``answer`` that was committed but whose answer was lost."""
    order = sorted(range(len(replies)), key=lambda n: _keys([replies[n]]))
    return _verdicts(tx, order, range(1, len(replies) + 1) if outcome is None else outcome)


def _verdicts(tx: WriteTransaction, order: Sequence[int], hits: Sequence[int]) -> list[bool]:
    verdicts = [False] * len(order)
    for n in hits:
        verdicts[order[n - 1]] = True
    if hits:
        tx.topics.add("inbox")
    return verdicts


async def late(tx: WriteTransaction, node: int, replies: Sequence[IncomingReply]) -> list[bool]:
    """Check replies without a request: True if the reply is already stored; otherwise
    it is recorded as late.
    """
    values = [(*key, r.body) for key, r in zip(_keys(replies), replies, strict=True)]
    stored_numbers = {row["n"] - 1 for row in await tx.rows(_GIVEN, node, *columns(values, 4))}
    verdicts = [n in stored_numbers for n in range(len(replies))]
    left = [r for r, is_known in zip(replies, verdicts, strict=True) if not is_known]
    if not left:
        tx.idle = True
        return verdicts
    ends = [rows.late_reply(r.message) for r in left]
    await tx.run(_LATE, [r.task for r in left], node, rows.moves([]), ends)
    await refusals.refused(tx, [refusals.late(node, r.task, r.message) for r in left])
    states = {row["id"]: row["state"] for row in await tx.rows(_STATES, [r.task for r in left])}
    await leave(tx, rows.late([(r.task, r.message) for r in left], states))
    return verdicts
