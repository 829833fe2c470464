"""Removes tasks that ended long ago, with all rows about them, in bounded batches."""

from makegood.store.postgres.transaction import WriteTransaction
from makegood.store.records import Pruned

# Ids rise with the time of submission, so a window of ids is a window of time. No other rows are read to find
# old tasks.
WINDOW = """
select id, created_at, state in ('processed', 'undone') and ended_at < w.until as ended, w.until
from (select extract(epoch from clock_timestamp())::float8 - $1::float8 as until offset 0) w
    cross join lateral (select * from makegood.task where id > $2 order by id limit $3) t
order by id
"""
# An ended task is kept while it has a message, a request or an unsent notice, or an open or unlogged alert.
KEPT = """
select x.task from unnest($1::bigint[]) as x (task) where
    exists (select 1 from makegood.inbox i where i.task = x.task)
    or exists (select 1 from makegood.request r where r.task = x.task)
    or exists (select 1 from makegood.listener l where l.task = x.task)
    or exists (select 1 from makegood.alert a where a.task = x.task and (a.ended_at is null or a.logged < 2))
"""
REMOVE = """
with gone as (
    delete from makegood.task where id = any ($1::bigint[]) and state in ('processed', 'undone') and locked_by is null returning id
),
steps as (delete from makegood.step where task = any ($1::bigint[]) and task in (select id from gone)),
events as (delete from makegood.event where task = any ($1::bigint[]) and task in (select id from gone)),
audits as (delete from makegood.audit where task = any ($1::bigint[]) and task in (select id from gone)),
alerts as (delete from makegood.alert where task = any ($1::bigint[]) and task in (select id from gone))
select count(*) from gone
"""

# Rows that belong to no task: alerts that have ended and were logged, operator commands on messages etc.
OTHERS = """
with at as materialized (select extract(epoch from clock_timestamp())::float8 - $1::float8 as until),
alerts as (
    delete from makegood.alert where id in (
        select a.id from at cross join makegood.alert a where a.task is null and a.ended_at < at.until and a.logged = 2 order by a.id limit $2
    )
)
delete from makegood.audit where act in (
    select u.act from at cross join makegood.audit u where u.task = 0 and u.at < at.until order by u.at limit $2
)
"""


async def prune(tx: WriteTransaction, older: float, after: int, limit: int, *, dry: bool = False) -> Pruned:
    """Remove the old ended tasks in a window of ids; the first window also removes rows
    that belong to no task.

    ``dry``: count only.
    """
    if after == 0 and not dry:
        await tx.run(OTHERS, older, limit)
    window = await tx.rows(WINDOW, older, after, limit)
    if not window:
        return Pruned()
    ended = [row["id"] for row in window if row["ended"]]
    kept = {row["task"] for row in await tx.rows(KEPT, ended)} if ended else set()
    going = [task for task in ended if task not in kept]
    removed = len(going)
    if going and not dry:
        row = await tx.row(REMOVE, going)
        removed = 0 if row is None else row["count"]
    last = window[-1]
    more = len(window) == limit and last["created_at"] <= last["until"]
    return Pruned(removed, len(kept), last["id"] if more else None)
