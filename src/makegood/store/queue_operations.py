"""Message queues, as far as they are the same for every store: delivery, views, operator commands, upkeep."""

from collections.abc import Sequence
from typing import Final

from makegood.base.stored_values import record_of, seconds
from makegood.model.messages import Act, Alert
from makegood.store import alerts, queue_records
from makegood.store.queue_records import DeadLetter, Handed, MessageView, QueueView, Receipt, Returned, Room
from makegood.store.records import NO_LIMIT
from makegood.store.rows import MOST_TEXT
from makegood.store.transaction import ReadTx, Sql, Tx, Verbs, for_each, reading, writing

_WIDTH = len(queue_records.COLUMNS.split(", "))
_COLUMNS = queue_records.COLUMNS.replace("error", f"substr(error, 1, {MOST_TEXT})")
_VIEW = f"""
select {_COLUMNS}, state, visible_at - {{now}}, taken_by, ended_at, expires_at from makegood.message
where state = $1 and ($2::text is null or queue = $2) order by queue, """  # noqa: S608 - our own columns
_WAITING, _DEAD_ONES = Sql(_VIEW + "visible_at, seq limit $3"), Sql(_VIEW + "seq limit $3")
_QUEUES = Sql("""
with at as materialized (select {now} as now)
select m.queue, count(*) filter (where m.visible_at <= at.now and m.state = 'waiting'),
    count(*) filter (where m.visible_at > at.now and m.state = 'waiting' and m.taken_by is not null),
    count(*) filter (where m.visible_at > at.now and m.state = 'waiting' and m.taken_by is null),
    count(*) filter (where m.state = 'dead'),
    max(at.now - m.visible_at) filter (where m.visible_at <= at.now and m.state = 'waiting'),
    max(case when m.tries > 0 then 1 else 0 end),
    coalesce(sum(octet_length(m.body)) filter (where m.state = 'waiting'), 0)::bigint
from at cross join makegood.message m where m.state <> 'done' group by m.queue order by m.queue
""")
_DEAD = Sql("""
select seq, id, task from makegood.message
where queue = $1 and state = 'dead' and ($2::text[] is null or id = any ($2::text[])) order by seq for update
""")
_LEFT = Sql("""
select seq, id, task from makegood.message
where queue = $1 and state = 'waiting' and (taken_by is null or visible_at <= (select {now}))
    and ($2::text[] is null or id = any ($2::text[]))
order by visible_at, seq limit case when $2::text[] is null then $3::bigint else 9223372036854775807 end for update skip locked
""")
_REPLAY = Sql("""
update makegood.message set state = 'waiting', tries = 0, visible_at = {now}, ended_at = null where seq = any ($1::bigint[])
""")
_DROP = Sql(
    "select makegood.drop_messages($1::bigint[])",
    "delete from makegood.message where seq = any ($1::bigint[])",
)
_BODY = Sql("select body from makegood.message where seq = $1")
_CORRECT = Sql("update makegood.message set body = $2 where seq = $1")
LENGTH = Sql(
    "select count(*) from (select 1 from makegood.message where queue = $1 and state = 'waiting' limit $2) m"
)
DEPTH = Sql("""
select count(*), coalesce(sum(size), 0)::bigint from (
    select octet_length(body) as size from makegood.message where queue = $1 and state = 'waiting' limit $2
) m
""")
UNEXPIRED = Sql("""
select count(*), coalesce(sum(size), 0)::bigint from (
    select octet_length(body) as size from makegood.message
    where queue = $1 and state = 'waiting' and (expires_at is null or expires_at > {now}) limit $2
) m
""")
"""As ``DEPTH``; expired messages that somebody has locked still exist, and do not count."""
_OURS = "seq = x.message and tries = x.delivery and state = 'waiting'"
_HOLD = for_each(
    f"""
update makegood.message set visible_at = greatest(visible_at, {{now}} + $3::float8) {{rows}}
where {_OURS} and taken_by is not null returning seq, tries
""",  # noqa: S608 - our own text
    message="bigint", delivery="int",
)  # fmt: skip
_BACK = for_each(
    f"""
update makegood.message set taken_by = null, visible_at = {{now}} + x.wait, error = x.why, tries = tries - x.less {{rows}}
where {_OURS} and taken_by is not null returning seq, queue
""",  # noqa: S608 - our own text
    message="bigint", delivery="int", wait="float8", why="text", less="int",
)  # fmt: skip
_KILL = for_each(
    f"""
update makegood.message set state = 'dead', taken_by = null, ended_at = {{now}}, expires_at = null, error = x.why {{rows}}
where {_OURS} and (taken_by is not null or $4::boolean) returning seq, queue, id, error, task
""",  # noqa: S608 - our own text
    message="bigint", delivery="int", why="text",
)  # fmt: skip
_KILL_NEW = for_each(
    """
update makegood.message set state = 'dead', ended_at = {now}, expires_at = null, error = x.why {rows}
where queue = x.name and id = x.message and state = 'waiting' and tries = 0 and taken_by is null
""",
    name="text", message="text", why="text",
)  # fmt: skip
_EXPIRED = Sql(
    "select makegood.drop_expired($1)",
    "delete from makegood.message where queue = $1 and state = 'waiting' and expires_at <= {now}",
)
_EXPIRE = Sql("""
delete from makegood.message where seq in (
    select seq from makegood.message
    where expires_at <= (select {now}) and (state <> 'waiting' or taken_by is null or visible_at <= (select {now}))
    order by expires_at limit $1 for update skip locked
)
""")
# A message of a task waits while an earlier message of the same task is leased, or is delayed and becomes
# visible only later. If the earlier one is visible again, or another receiver is just claiming it (on
# PostgreSQL: it is locked, or was changed since this statement began), it goes first: a later message is
# delivered together with all earlier ones, or after them. A message also waits behind a dead letter until
# that is replayed or dropped.
CANDIDATES = Sql("""
with candidate as materialized (
    select seq, tries, error, task, visible_at from makegood.message m
    where queue = $1 and state = 'waiting' and visible_at <= (select {now}) and (expires_at is null or expires_at > (select {now}))
        and (task is null or not exists (
            select 1 from makegood.message e
            where e.task = m.task and e.queue = m.queue and e.seq < m.seq and (e.state = 'dead' or (
                e.state = 'waiting' and e.visible_at > m.visible_at and (e.expires_at is null or e.expires_at > (select {now}))
            ))
        ))
    order by visible_at, seq limit $2 for update skip locked
)
select seq, tries, error, task, task is null or not exists (
    select 1 from makegood.message e
    where e.task = candidate.task and e.queue = $1 and e.seq < candidate.seq and e.state = 'waiting'
        and (e.expires_at is null or e.expires_at > (select {now})) and e.seq not in (select seq from candidate)
)
from candidate order by visible_at, seq
""")
_TAKE = Sql(f"""
update makegood.message set taken_by = $2, visible_at = {{now}} + $3::float8, tries = tries + 1 where seq = any ($1::bigint[])
returning {queue_records.COLUMNS}
""")  # noqa: S608 - our own columns
_NEXT = Sql("select min(visible_at) - {now} from makegood.message where queue = $1 and state = 'waiting'")
_SOON: Final = 0.02
"""Seconds until to ask again if every message found is behind one that another receiver is just claiming."""
# Steps from one queue to the next, and counts none further than necessary.
_OVERFULL = Sql("""
with recursive q (queue) as (
    select min(queue) from makegood.message where state = 'waiting'
    union all
    select (select min(m.queue) from makegood.message m where m.state = 'waiting' and m.queue > q.queue) from q where q.queue is not null
),
n (queue, waiting, size) as (
    select queue, (select count(*) from (select 1 from makegood.message m where m.queue = q.queue and m.state = 'waiting' limit $3) w),
        (select coalesce(sum(octet_length(m.body)), 0)::bigint from makegood.message m where m.queue = q.queue and m.state = 'waiting')
    from q where q.queue is not null
)
select queue, greatest(waiting - $1::bigint, 0), greatest(size - $2::bigint, 0) from n
where waiting > $1::bigint or (size > $2::bigint and waiting > 1) order by queue
""")
_SHORTEN = Sql("""
delete from makegood.message where seq in (
    select seq from (
        select seq, row_number() over oldest as place, sum(size) over oldest - size as before from (
            select seq, visible_at, octet_length(body) as size from makegood.message
            where queue = $1 and state = 'waiting' and task is not null and (taken_by is null or visible_at <= (select {now}))
            order by visible_at, seq limit $2 for update skip locked
        ) notices window oldest as (order by visible_at, seq rows unbounded preceding)
    ) placed where place <= $3::bigint or before < $4::bigint
)
""")


async def check_room(tx: Tx, queue: str, room: Room, new: Sequence[int], now: float) -> None:
    """Raise ``QueueFullError`` if too many messages or bytes wait in a queue.

    The ``new`` messages, given by their sizes in bytes, are there already; expired ones are removed first.
    ``now``: seconds, for the age of the remembered sizes.
    """
    if not room.depths.wants(queue, sum(new), room.most_bytes, now):
        if (await tx.rows(LENGTH, queue, room.most + 1))[0][0] <= room.most:
            return
    else:
        count, size = (await tx.rows(DEPTH, queue, room.most + 1))[0]
        room.depths.record(queue, count, size, now)
        if count <= room.most and (size <= room.most_bytes or count == 1):
            return
    await tx.run(_EXPIRED, queue)
    count, size = (await tx.rows(UNEXPIRED, queue, room.most + len(new) + 1))[0]
    before = count - len(new), size - sum(new)
    if (full := queue_records.full(queue, room.most, room.most_bytes, before, new)) is not None:
        raise full


async def messages(
    tx: ReadTx, queue: str | None, limit: int = 100, *, dead: bool = False
) -> list[MessageView]:
    """Return waiting messages, oldest first, or dead letters (``queue=None``: of all queues), without
    claiming them.
    """
    records = await tx.rows(_DEAD_ONES if dead else _WAITING, "dead" if dead else "waiting", queue, limit)
    return [
        record_of(MessageView, (queue_records.read_message(row[:_WIDTH]), *row[_WIDTH:]))
        for row in map(tuple, records)
    ]


async def queues(tx: ReadTx) -> list[QueueView]:
    """Return the queues that have waiting messages or dead letters, by name."""
    return [record_of(QueueView, row) for row in await tx.rows(_QUEUES)]


async def drop(
    tx: Tx, queue: str, act: Act, ids: Sequence[str] | None = None, *, waiting: bool = False
) -> list[str]:
    """Remove dead letters for good, or with ``waiting`` messages that nobody has claimed.

    At most ``queue_records.MOST_DROPPED`` waiting messages if ``ids`` is None. Otherwise as
    ``replay_messages``.
    """
    if not waiting:
        return await _revive(tx, queue, act, ids, drop=True)
    rows = await tx.rows(_LEFT, queue, None if ids is None else list(ids), queue_records.MOST_DROPPED)
    letters = [tuple(row) for row in rows]
    if letters:
        await tx.run(_DROP, [seq for seq, _, _ in letters])
        await alerts.write_audit(tx, queue_records.dead_letter_audit(act, queue, letters, drop=True))
    return [id_ for _, id_, _ in letters]


async def replay(
    tx: Tx, queue: str, act: Act, ids: Sequence[str] | None = None, *, body: bytes | None = None
) -> list[str]:
    """Make dead letters receivable again, with tries reset (``ids=None``: all of the queue), and return their
    ids.

    Ends their alerts and audits each. ``body`` replaces the body of the one message.
    """
    return await _revive(tx, queue, act, ids, drop=False, body=body)


async def _revive(
    tx: Tx, queue: str, act: Act, ids: Sequence[str] | None, *, drop: bool, body: bytes | None = None
) -> list[str]:
    letters = [tuple(row) for row in await tx.rows(_DEAD, queue, None if ids is None else list(ids))]
    if not letters:
        return []
    await tx.run(_DROP if drop else _REPLAY, [seq for seq, _, _ in letters])
    change: bytes | None = None
    if body is not None:
        for seq, id_, _ in letters:
            ((before,),) = await tx.rows(_BODY, seq)
            change = queue_records.correction(id_, before, body)
            await tx.run(_CORRECT, seq, body)
    causes = [queue_records.dead_letter(queue, id_, "") for _, id_, _ in letters]
    await alerts.not_dead(tx, causes, "dropped" if drop else "replayed")
    await alerts.write_audit(
        tx,
        queue_records.dead_letter_audit(act, queue, letters, drop=drop, with_new_value=body is not None),
        change,
    )
    tx.topics.add(f"queue:{queue}")
    return [id_ for _, id_, _ in letters]


async def hold(tx: Tx, receipts: Sequence[Receipt], lease: float) -> list[bool]:
    """Extend leases to ``lease`` seconds from now. Returns True for each message that was still held."""
    holds = {(seq, tries) for seq, tries in await tx.each(_HOLD, sorted(receipts), lease)}
    return [receipt in holds for receipt in receipts]


async def give_back(tx: Tx, releases: Sequence[Returned]) -> list[bool]:
    """Release messages, or make them dead letters. Returns True for each message that was still held."""
    back = [
        (*release.receipt, release.wait, release.why, int(not release.counts))
        for release in releases
        if not release.dead
    ]
    records = await tx.each(_BACK, sorted(back))
    tx.topics.update(f"queue:{queue}" for _, queue in records)
    hit = {seq for seq, _ in records} | await kill(tx, [release for release in releases if release.dead])
    return [release.receipt[0] in hit for release in releases]


async def kill(tx: Tx, dead: Sequence[Returned], *, on_lease: bool = True) -> set[int]:
    """Make messages dead letters, each with an alert; return their ``seq``. ``on_lease``: only held ones."""
    letters = await tx.each(_KILL, sorted((*failure.receipt, failure.why) for failure in dead), not on_lease)
    await alerts.dead_letters(tx, [(seq, queue_records.dead_letter(*letter)) for seq, *letter in letters])
    return {seq for seq, *_ in letters}


async def kill_new(tx: Tx, letters: Sequence[DeadLetter], alert: Alert) -> None:
    """Make dead letters of messages that were sent in this transaction; raise one alert about all of them."""
    if letters:
        await tx.many(_KILL_NEW, [(each.message.queue, each.message.id, each.why) for each in letters])
        await alerts.alert(tx, [alert])


async def due(tx: ReadTx, queue: str) -> float | None:
    """Return seconds until a message may be due, None if there is none."""
    ((rest,),) = await tx.rows(_NEXT, queue)
    return None if rest is None else max(seconds(rest), 0.0)


async def receive(tx: Tx, queue: str, taker: str, limit: int, *, lease: float, threshold: int) -> Handed:
    """Lease messages to a receiver; those with ``threshold`` tries or more become dead letters instead."""
    candidates = await tx.rows(CANDIDATES, queue, limit)
    seqs: list[int] = []
    dead_letters: list[Returned] = []
    behind: set[int] = set()
    for seq, tries, error, task, is_next in candidates:  # the messages of one task are in order
        if not is_next or task in behind:
            continue
        if tries < threshold:
            seqs.append(seq)
            continue
        dead_letters.append(Returned((seq, tries), error=queue_records.out_of_tries(tries, error)))
        if task is not None:
            behind.add(task)
    if candidates and not (seqs or dead_letters):
        return Handed([], _SOON)
    await kill(tx, dead_letters, on_lease=False)
    records = await tx.rows(_TAKE, seqs, taker, lease) if seqs else ()
    messages = {message.seq: message for message in map(queue_records.read_message, records)}
    rest = 0.0 if len(candidates) == limit else await due(tx, queue)
    if rest == 0 and not candidates:  # those in sight wait for others, or expire
        rest = 1.0
    return Handed([messages[seq] for seq in seqs], rest, len(dead_letters))


_hold, _give_back = writing(hold), writing(give_back)
_due, _receive = reading(due), writing(receive)


async def any_overfull(tx: ReadTx, most: int, limit: int, most_bytes: int = NO_LIMIT) -> bool:  # noqa: ARG001 - as the verb is called
    """Return whether a queue has too many messages or bytes."""
    return bool(await tx.rows(_OVERFULL, most, most_bytes, most + 1))


async def shorten(tx: Tx, most: int, limit: int, most_bytes: int = NO_LIMIT) -> int:
    """Drop the oldest notices of queues in which more than ``most`` messages or ``most_bytes`` wait.

    Drops at most ``limit`` from each queue, with an alert for each queue, and returns how many. Messages that
    somebody sent, or that are leased, stay.
    """
    total = 0
    overfull_alerts: list[Alert] = []
    for queue, over, excess in await tx.rows(_OVERFULL, most, most_bytes, most + limit):
        if count := await tx.run(_SHORTEN, queue, limit, over, excess):
            total += count
            overfull_alerts.append(queue_records.overfull(queue, most, most_bytes, count=over > 0))
    await alerts.alert(tx, overfull_alerts)
    return total


async def expire(tx: Tx, limit: int) -> int:
    """Remove expired messages and remembered ids whose time is over; return how many, at most ``limit``."""
    return await tx.run(_EXPIRE, limit)


class QueueVerbs(Verbs):
    """The verbs on queues that are the same for every store."""

    async def hold_messages(self, receipts: Sequence[Receipt], lease: float) -> list[bool]:
        """Extend leases to ``lease`` seconds from now, never earlier; False for each message that the holder
        has lost.
        """
        return await _hold(self, receipts, lease) if receipts else []

    async def return_messages(self, releases: Sequence[Returned]) -> list[bool]:
        """Release messages, or make them dead letters with an alert; False for each message that the holder
        has lost.
        """
        return await _give_back(self, releases) if releases else []

    async def receive_messages(
        self, queue: str, taker: str, limit: int, lease: float, threshold: int
    ) -> Handed:
        """Lease at most ``limit`` messages to ``taker`` for ``lease`` seconds, longest due first; tries + 1.

        A message of a task waits for earlier messages of the same task that are leased or delayed. A message
        that was delivered ``threshold`` times becomes a dead letter instead, with an alert. Any number of
        receivers may ask at once. If no message is due, it writes nothing.
        """
        rest = await _due(self, queue)
        if rest is None or rest > 0:
            return Handed([], rest)
        return await _receive(self, queue, taker, limit, lease=lease, threshold=threshold)

    messages = reading(messages)
    views = reading(queues)
    replay_messages = writing(replay)
    drop_messages = writing(drop)
    expire_messages = writing(expire)
    shorten_queues = writing(shorten, looks=any_overfull, otherwise=0)
