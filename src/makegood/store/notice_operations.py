"""Notices to webhooks after they were claimed: their outcomes, views, and operator commands."""

from collections.abc import Sequence

from makegood.base.stored_values import record_of
from makegood.model.messages import Act, Alert
from makegood.model.notices import Notice
from makegood.store import alerts
from makegood.store.notice_records import (
    COUNTED,
    Due,
    HostDue,
    ListenerView,
    ReceiverBacklog,
    Sending,
    Waiting,
    dead_letter,
    dead_notice_audit,
    of_rejection,
)
from makegood.store.transaction import ReadTx, Sql, Tx, Verbs, for_each, reading, writing

_DUE, _GIVEN_UP = "l.due_at is not null", "l.dead = true and l.tries > 0"


def _each_host(which: str) -> str:
    """Return the beginning of a statement about each host with listeners of a kind.

    Each step finds the next host in an index, so the whole index is never read, however much waits.
    """
    return f"""
with recursive h (host) as (
    select min(l.host) from makegood.listener l where {which}
    union all
    select (select min(l.host) from makegood.listener l where {which} and l.host > h.host) from h where h.host is not null
)
"""  # noqa: S608 - our own text


HOSTS = Sql(f"""{_each_host(_DUE)}
select h.host, (select min(l.due_at) from makegood.listener l where l.host = h.host and {_DUE}) - {{now}} as seconds
from h where h.host is not null
""")  # noqa: S608 - our own text
BACKLOGS = Sql(f"""{_each_host(_DUE)}
select h.host, (select count(*) from (select 1 from makegood.listener l where l.host = h.host and {_DUE} limit $1) w),
    {{now}} - (select min(l.due_at) from makegood.listener l where l.host = h.host and {_DUE}),
    coalesce((
        select error from (
            select l.error from makegood.listener l where l.host = h.host and {_DUE} order by l.due_at limit $1
        ) e where error <> '' limit 1
    ), '')
from h where h.host is not null
""")  # noqa: S608 - our own text
GIVEN_UP = Sql(f"""{_each_host(_GIVEN_UP)}
select h.host, (select count(*) from (select 1 from makegood.listener l where l.host = h.host and {_GIVEN_UP} limit $1) w),
    (select l.error from makegood.listener l where l.host = h.host and {_GIVEN_UP} limit 1)
from h where h.host is not null
""")  # noqa: S608 - our own text
_COLUMNS = "task, url, sent, last, tries, dead, due_at - {now} as seconds, error"
_VIEWS = Sql(f"""
select * from (
    select * from (select {_COLUMNS} from makegood.listener l where {_GIVEN_UP} order by task limit $2) d
    union all
    select * from (select {_COLUMNS} from makegood.listener l where $1::boolean and not dead order by task limit $2) w
) v order by dead desc, task limit $2
""")  # noqa: S608 - our own text
_DEAD_ONES = Sql(f"""
select task, url from makegood.listener l where {_GIVEN_UP} and ($1::bigint is null or task = $1) order by task for update
""")  # noqa: S608 - our own text
_THIS_ONE = Sql("select task, url from makegood.listener where task = $1 for update")
_REVIVE = Sql(
    "update makegood.listener set dead = false, tries = 0, due_at = {now} where task = any ($1::bigint[])"
)
_DROP = Sql(
    "select makegood.drop_listeners($1::bigint[])",
    "delete from makegood.listener where task = any ($1::bigint[])",
)
_DROP_ALL = Sql(
    "select makegood.drop_notices($1::bigint[])",
    "delete from makegood.notice where task = any ($1::bigint[])",
)
# Once for each host, with a limit: the index is never read as a whole, however many listeners wait.
TAKE = for_each(
    """
update makegood.listener set due_at = {now} + $4, taken_by = $3
where task in (select task from makegood.listener where host = x.host and due_at <= {now} order by due_at limit x.room)
returning task, sent + 1, url, tries,
    (select body from makegood.notice n where n.task = makegood.listener.task and n.sequence = makegood.listener.sent + 1)
""",
    """
with due as materialized (
    select l.task {rows} cross join lateral (
        select l.task from makegood.listener l where l.host = x.host and l.due_at <= (select {now})
        order by l.due_at limit x.room for update skip locked
    ) l
)
update makegood.listener l set due_at = {now} + $4::float8, taken_by = $3
from due where l.task between due.task and due.task
returning l.task, l.sent + 1, l.url, l.tries, (select n.body from makegood.notice n where n.task = l.task and n.sequence = l.sent + 1)
""",
    host="text", room="int",
)  # fmt: skip
_WAITING = Sql("""
select l.task, l.sent + 1, l.url, l.tries,
    (select n.body from makegood.notice n where n.task = l.task and n.sequence = l.sent + 1), l.due_at - {now}
from makegood.listener l
where l.host = $1 and l.due_at > (select {now}) and l.taken_by is null
    and ($2::text = '' or l.url = $2::text) and not (l.url = any ($3::text[]))
order by l.due_at limit $4 for update of l skip locked
""")
_TAKE_EARLY = Sql(
    "update makegood.listener set due_at = {now} + $3, taken_by = $2 where task = any ($1::bigint[])"
)
OURS = Sql("""
select task, sent + 1, url from makegood.listener where taken_by = $1 and task = any ($2::bigint[]) order by task for update
""")
SENT = for_each(
    """
delete from makegood.notice as n {rows} where (n.task, n.sequence) between (x.task, x.sequence) and (x.task, x.sequence)
""",
    task="bigint", sequence="int",
)  # fmt: skip
LAST = Sql("delete from makegood.listener where task = any ($1::bigint[]) and sent + 1 = last")
NEXT = Sql("""
update makegood.listener set sent = sent + 1, tries = 0, error = '', due_at = {now}, taken_by = null
where task = any ($1::bigint[])
""")
AGAIN = for_each(
    """
update makegood.listener as l set tries = l.tries + x.tried, due_at = {now} + x.wait, taken_by = null, error = x.error
{rows} where l.task between x.task and x.task
""",
    task="bigint", tried="int", wait="float8", error="text",
)  # fmt: skip
DEAD = for_each(
    """
update makegood.listener as l set tries = l.tries + 1, due_at = null, taken_by = null, dead = true, error = x.error
{rows} where l.task between x.task and x.task
""",
    task="bigint", error="text",
)  # fmt: skip
_GUILTY = Sql(
    "select id, app, workflow, key, submission, told, notified, static from makegood.task where id = $1"
)
_ACTIONS = Sql(
    "select name, state, flags from makegood.step where task = $1 and kind = 'action' order by idx"
)


async def due(tx: ReadTx) -> list[HostDue]:
    """Return the hosts with notices to send, and when the first is due. Writes nothing."""
    return [HostDue(*row) for row in await tx.rows(HOSTS)]


async def take(tx: Tx, node: int, room: Sequence[tuple[str, int]], lease: float) -> list[Due]:
    """Claim due notices, longest due first, up to the given number per host.

    For ``lease`` seconds no other node gets them, or any other notice of their tasks.
    """
    return [
        Due(task, sequence, url, tries, body or b"")
        for task, sequence, url, tries, body in await tx.each(TAKE, room, node, lease)
    ]


async def take_early(tx: Tx, node: int, waiting: Waiting, lease: float) -> list[Due]:
    """Claim notices that wait for their next try, as ``take`` claims those that are due."""
    which = (waiting.host, waiting.url, list(waiting.without), waiting.limit)
    notices = [
        Due(task, sequence, url, tries, body or b"", seconds)
        for task, sequence, url, tries, body, seconds in await tx.rows(_WAITING, *which)
    ]
    if notices:
        await tx.run(_TAKE_EARLY, [notice.task for notice in notices], node, lease)
    return notices


async def settle(tx: Tx, node: int, outcomes: Sequence[Sending]) -> list[bool]:
    """Record the outcome of notices that ``node`` claimed; False for each that another node has
    claimed since.

    ``dead`` raises an alert in the same transaction.
    """
    claims = {
        task: (sequence, url)
        for task, sequence, url in await tx.rows(OURS, node, [outcome.task for outcome in outcomes])
    }
    ours: dict[int, Sending] = {}
    verdicts: list[bool] = []
    for outcome in outcomes:
        sequence, _ = claims.get(outcome.task, (0, ""))
        good = sequence == outcome.sequence and outcome.task not in ours
        verdicts.append(good)
        if good:
            ours[outcome.task] = outcome
    deliveries = [(o.task, o.sequence) for o in ours.values() if o.outcome == "sent"]
    dead = [o for o in ours.values() if o.outcome == "dead"]
    again = [o for o in ours.values() if o.outcome in ("failed", "kept")]
    if deliveries:
        tasks = [task for task, _ in deliveries]
        await tx.many(SENT, deliveries)
        await tx.run(LAST, tasks)
        if await tx.run(NEXT, tasks):
            tx.topics.add("notice")
    await tx.many(AGAIN, [(o.task, int(o.outcome == "failed"), o.wait, o.error) for o in again])
    if dead:
        await tx.many(DEAD, [(o.task, o.error) for o in dead])
        await alerts.alert(tx, [dead_letter(o, claims[o.task][1]) for o in dead])
    return verdicts


async def rejection_notice(tx: ReadTx, task: int, cause: str) -> Notice | None:
    """Return the notice of a task that the store itself has put to error; None if nobody is to be told."""
    for *columns, static in await tx.rows(_GUILTY, task):
        return of_rejection(columns, static, cause, [tuple(row) for row in await tx.rows(_ACTIONS, task)])
    return None


async def listeners(tx: ReadTx, limit: int = 100, *, dead: bool = False) -> list[ListenerView]:
    """Return webhooks with unsent notices, dead ones first; with ``dead``, only those."""
    return [
        record_of(ListenerView, (task, url, last_sent, last, tries, is_dead, seconds, error))
        for task, url, last_sent, last, tries, is_dead, seconds, error in await tx.rows(
            _VIEWS, not dead, limit
        )
    ]


async def retry(tx: Tx, act: Act, task: int | None = None) -> list[int]:
    """Resend dead notices of one task or of all; end their alerts, audit each task, and return the tasks."""
    return await _revive(tx, act, task, drop=False)


async def drop(tx: Tx, act: Act, task: int | None = None) -> list[int]:
    """Drop the dead notices of all tasks, or every unsent notice of one task; otherwise as ``retry``."""
    return await _revive(tx, act, task, drop=True)


async def _revive(tx: Tx, act: Act, task: int | None, *, drop: bool) -> list[int]:
    query = _THIS_ONE if drop and task is not None else _DEAD_ONES
    listening = [(task_id, url) for task_id, url in await tx.rows(query, task)]
    tasks = [task_id for task_id, _ in listening]
    if not tasks:
        return []
    if drop:
        await tx.run(_DROP_ALL, tasks)
        await tx.run(_DROP, tasks)
    else:
        await tx.run(_REVIVE, tasks)
        tx.topics.add("notice")
    await alerts.not_dead(
        tx, [Alert("dead_letter", task_id) for task_id in tasks], "dropped" if drop else "sent again"
    )
    await alerts.write_audit(tx, dead_notice_audit(act, listening, drop=drop))
    return tasks


async def backlogs(tx: ReadTx) -> list[ReceiverBacklog]:
    """Return what waits for each host or broker, and what was given up."""
    waiting = {row[0]: tuple(row)[1:] for row in await tx.rows(BACKLOGS, COUNTED + 1)}
    dead = {row[0]: tuple(row)[1:] for row in await tx.rows(GIVEN_UP, COUNTED + 1)}
    views: list[ReceiverBacklog] = []
    for host in sorted({*waiting, *dead}):
        count, overdue, error = waiting.get(host, (0, None, ""))
        letters, why = dead.get(host, (0, ""))
        views.append(record_of(ReceiverBacklog, (host, count, overdue, letters, error or why)))
    return views


class NoticeVerbs(Verbs):
    """Notifications to submitters, on their way to webhooks. ``submit`` and ``commit`` write them
    with the state change.

    Notices of one task leave in order: the next can be claimed only when the previous is settled as *sent*. A
    task with a listener (``listeners``) has unsent notices and must not be removed.
    """

    notices_due = reading(due)
    take_notices = writing(take)
    take_early_notices = writing(take_early)
    settle_notices = writing(settle)
    listeners = reading(listeners)
    backlogs = reading(backlogs)
    retry_notices = writing(retry)
    drop_notices = writing(drop)
