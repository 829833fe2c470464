"""Notices to submitters: written with the state change, and claimed for sending one after
another for each task.
"""

from collections.abc import Sequence
from typing import TypeVar

from makegood.model import notices
from makegood.model.notices import Notice
from makegood.store import alerts
from makegood.store.notice_records import Due, Sending, dead_letter, listeners, of_guilty, queued
from makegood.store.postgres.commit_statement import AS_QUEUED, HEARD, IN_ORDER, INTO_LISTENER, INTO_NOTICE
from makegood.store.postgres.decision_rows import columns
from makegood.store.postgres.transaction import WriteTransaction

T = TypeVar("T")

_NOW = "extract(epoch from clock_timestamp())::float8"
_AT = f"with at as materialized (select {_NOW} as now)"

_TOLD = "update makegood.task set told = $2, notified = $3 where id = $1"
_NOTICE = f"""
{_AT}
{INTO_NOTICE}
from at cross join makegood.generation g
    cross join unnest($1::bigint[], $2::int[], $3::text[], $4::text[]) as x (task, sequence, name, event)
"""
_QUEUED = f"""
{_AT}
{AS_QUEUED}
from at cross join makegood.generation g cross join unnest($1::bigint[], $2::int[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[])
    as x (task, sequence, name, event, queue, kind, correlation_id)
{IN_ORDER}
"""
_LISTENER = f"""
{_AT}
{INTO_LISTENER}
from at cross join unnest($1::bigint[], $2::text[], $3::text[], $4::int[], $5::int[]) as x (task, host, url, first, last)
{HEARD}
"""
_GUILTY = "select id, app, workflow, key, submission, told, notified, static from makegood.task where id = $1"
_ACTIONS = "select name, state, flags from makegood.step where task = $1 and kind = 'action' order by idx"

# Each step finds the next host in the index, so the whole index is never read, however much waits.
_TAKE = f"""
with at as materialized (select {_NOW} as now),
found as materialized (
    select l.task from at cross join unnest($2::text[], $3::int[]) as x (host, room) cross join lateral (
        select l.task from makegood.listener l where l.host = x.host and l.due_at <= at.now
        order by l.due_at limit x.room for update skip locked
    ) l
),
taken as (
    update makegood.listener l set due_at = at.now + $4, taken_by = $1
    from at cross join found where l.task between found.task and found.task
    returning l.task, l.sent + 1 as sequence, l.url, l.tries
)
select t.task, t.sequence, t.url, t.tries, n.body
from taken t join makegood.notice n on (n.task, n.sequence) between (t.task, t.sequence) and (t.task, t.sequence)
"""  # noqa: S608 - our own text
_OURS = """
select task, sent + 1 as sequence, url from makegood.listener where taken_by = $1 and task = any ($2::bigint[])
order by task for update
"""
_SENT = """
delete from makegood.notice n using unnest($1::bigint[], $2::int[]) as x (task, sequence)
where (n.task, n.sequence) between (x.task, x.sequence) and (x.task, x.sequence)
"""
_LAST = "delete from makegood.listener where task = any ($1::bigint[]) and sent + 1 = last"
_NEXT = f"""
update makegood.listener set sent = sent + 1, tries = 0, error = '', due_at = {_NOW}, taken_by = null
where task = any ($1::bigint[])
"""  # noqa: S608 - our own text
_AGAIN = f"""
update makegood.listener l set tries = l.tries + x.tried, due_at = {_NOW} + x.wait, taken_by = null, error = x.error
from unnest($1::bigint[], $2::int[], $3::float8[], $4::text[]) as x (task, tried, wait, error) where l.task between x.task and x.task
"""  # noqa: S608 - our own text
_DEAD = """
update makegood.listener l set tries = l.tries + 1, due_at = null, taken_by = null, dead = true, error = x.error
from unnest($1::bigint[], $2::text[]) as x (task, error) where l.task between x.task and x.task
"""


async def write(tx: WriteTransaction, made: Sequence[Notice]) -> None:
    """Write notices that belong to no Decision."""
    to_web = [n for n in made if notices.queue(n.reply.to) is None]
    for notice in made:
        await tx.run(_TOLD, notice.task, notice.state, notice.sequence)
    if to_web:
        texts = [(n.task, n.sequence, notices.label(n), notices.event(n)) for n in to_web]
        await tx.run(_NOTICE, *columns(texts, 4))
        await tx.run(_LISTENER, *columns(listeners(to_web), 5))
        tx.topics.add("notice")
    rows_ = queued(made)
    if rows_:
        await tx.run(_QUEUED, *columns(rows_, 7))
        tx.topics.update(f"queue:{row[4]}" for row in rows_)


async def guilty(tx: WriteTransaction, task: int, cause: str) -> None:
    """Write the notice of a task that the store itself put to error."""
    row = await tx.row(_GUILTY, task)
    if row is None:
        return
    *told, static = row
    actions = [tuple(found) for found in await tx.rows(_ACTIONS, task)]
    found = of_guilty(told, static, cause, actions)
    if found is not None:
        await write(tx, [found])


async def take(tx: WriteTransaction, node: int, room: Sequence[tuple[str, int]], lease: float) -> list[Due]:
    """Claim notices for sending."""
    return [Due(*row) for row in await tx.rows(_TAKE, node, *columns(room, 2), lease)]


async def settle(tx: WriteTransaction, node: int, outcomes: Sequence[Sending]) -> list[bool]:
    """Record the outcomes of notices."""
    tasks = [outcome.task for outcome in outcomes]
    held = {row["task"]: row for row in await tx.rows(_OURS, node, tasks)}
    ours: dict[int, Sending] = {}
    said: list[bool] = []
    for outcome in outcomes:
        row = held.get(outcome.task)
        good = row is not None and row["sequence"] == outcome.sequence and outcome.task not in ours
        said.append(good)
        if good:
            ours[outcome.task] = outcome
    await _settle(tx, list(ours.values()), {task: row["url"] for task, row in held.items()})
    return said


async def _settle(tx: WriteTransaction, outcomes: Sequence[Sending], urls: dict[int, str]) -> None:
    sent = [(o.task, o.sequence) for o in outcomes if o.outcome == "sent"]
    again = [
        (o.task, int(o.outcome == "failed"), o.wait, o.error)
        for o in outcomes
        if o.outcome in ("failed", "kept")
    ]
    dead = [o for o in outcomes if o.outcome == "dead"]
    if sent:
        tasks = [task for task, _ in sent]
        await tx.run(_SENT, *columns(sent, 2))
        await tx.run(_LAST, tasks)
        if await tx.run(_NEXT, tasks):
            tx.topics.add("notice")
    if again:
        await tx.run(_AGAIN, *columns(again, 4))
    if dead:
        await tx.run(_DEAD, *columns([(o.task, o.error) for o in dead], 2))
        await alerts.alert(tx, [dead_letter(o, urls[o.task]) for o in dead])
