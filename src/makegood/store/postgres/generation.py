"""Begins a new generation, once, when the server's history has changed or an operator says
the store was restored.

The store may have gone back in time. Processes that kept running remember, and have done, more than the store
knows. What the store sent them is missing in it, and it may issue the same numbers again. So the transaction
that raises the generation also does the following:

- Every process counts as dead and every lock is released. A Scheduler whose memory is ahead of the store
  makes no more Decisions; it starts again, under a new number, from the rows.
- A request that nobody has claimed may have been claimed, and carried out, in the lost stretch. It is judged
  as silent: the step is in doubt, and its rules say whether it is tried again, under its idempotency key. No
  failure is counted, since none was seen. (A request that is known to be claimed is answered by the node that
  runs it, or judged as silent in its time.)
- Numbers that may have been issued are skipped: of claims, messages, events, processes, and the epochs of
  leases.
- An alert informs operators.

A promotion is visible in the history. A restore is not always: a dump loaded into the same server, or a
snapshot of its files, shows the history that the store has known.
"""

from typing import TypeAlias

import asyncpg

from makegood.model.messages import Act
from makegood.store import rows
from makegood.store.records import Anew

_Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

History: TypeAlias = tuple[str, str]
"""A server's system identifier and its timeline."""

_RAISE = """
update makegood.generation set generation = generation + case system_id when '' then 0 else 1 end, system_id = $1, timeline = $2
where system_id = $3 and timeline = $4
"""
_RAISE_HERE = "update makegood.generation set generation = generation + 1 returning generation"
_GENERATION = "select generation from makegood.generation"
_SKIP = """
select setval(s, nextval(s) + 1000000) from unnest(array[
    'makegood.ready', pg_get_serial_sequence('makegood.inbox', 'seq'), pg_get_serial_sequence('makegood.event', 'seq'),
    pg_get_serial_sequence('makegood.alert', 'id'), pg_get_serial_sequence('makegood.node', 'id'),
    pg_get_serial_sequence('makegood.message', 'seq')]::regclass[]) s
"""
_SKIP_EPOCHS = "update makegood.lease set epoch = epoch + 1000000"
_ALL_DEAD = "update makegood.node set dead = true where not dead and stopped_at is null"
_HELD = "select id, state from makegood.task where locked_by is not null order by id for no key update"
# A task at rest is locked only for the one Decision that an operator requested; its state does not change.
_FREE = """
update makegood.task set locked_by = null, ready_seq = (extract(epoch from clock_timestamp()) * 1000000)::bigint,
    state = case when state in ('processing', 'undoing') then 'pending' else state end
where id = any ($1::bigint[])
"""
_JUDGE = """
with gone as (
    delete from makegood.request where taken_by is null and kind <> 'timer' and not answered
    returning task, idx, attempt, kind, sent_at
)
update makegood.step s set attempt = gone.attempt, state = case when s.attempt < gone.attempt then 'running' else s.state end
from gone where (s.task, s.idx) between (gone.task, gone.idx) and (gone.task, gone.idx)
returning s.task, s.idx, gone.attempt, gone.kind, s.failure_count as failures, gone.sent_at
"""
_EVENT = """
insert into makegood.event (task, at, node, moves, note)
select x.task, extract(epoch from clock_timestamp())::float8, null, x.moves, ''
from unnest($1::bigint[], $2::bytea[]) as x (task, moves)
"""
_LEAVE = """
insert into makegood.inbox (task, kind, at, body)
select x.task, 'expired', extract(epoch from clock_timestamp())::float8, x.body
from unnest($1::bigint[], $2::bytea[]) as x (task, body)
"""
_ALERT = """
insert into makegood.alert (kind, task, step, text, standing, at)
select 'generation', null, g.generation::text, $1, 'generation 0 ' || g.generation, extract(epoch from clock_timestamp())::float8
from makegood.generation g
on conflict do nothing
"""
_AUDIT = """
insert into makegood.audit (act, task, kind, who, why, verdict, reason, state, at, db_user)
values ($1, 0, 'restored', $2, $3, 'applied', $4, 'restored', extract(epoch from clock_timestamp())::float8, session_user)
"""


async def begin_anew(connection: _Connection, old_history: History, new_history: History) -> str:
    """Raise the generation for the history ``new_history``, in the caller's transaction, unless
    another process has done so.

    Returns a message for people, "" if there is none: a new store has an empty ``old_history``.
    """
    status = await connection.execute(_RAISE, *new_history, *old_history)
    if status != "UPDATE 1" or not old_history[0]:
        return ""
    outcome = await _anew(connection)
    text = (
        f"the store shows another history than before (system {old_history[0]}, timeline {old_history[1]}, now system {new_history[0]}, "
        f"timeline {new_history[1]}): a promotion or a restore. The generation was raised; {outcome.freed} tasks under way were freed and "
        f"{outcome.doubtful} requests are in doubt; what was acknowledged shortly before may be lost"
    )
    await connection.execute(_ALERT, text)
    return text


async def restored(connection: _Connection, act: Act) -> Anew:
    """Raise the generation because an operator says so, in the caller's transaction,
    with a row in the audit.
    """
    await connection.fetchval(_RAISE_HERE)
    outcome = await _anew(connection)
    await connection.execute(_ALERT, rows.restored(outcome, act))
    await connection.execute(_AUDIT, act.id, act.who, act.why, f"generation {outcome.generation}")
    return outcome


async def _anew(connection: _Connection) -> Anew:
    """Do what a raised generation requires; return how much that was."""
    await connection.fetch(_SKIP)
    await connection.execute(_SKIP_EPOCHS)
    await connection.execute(_ALL_DEAD)
    held_tasks = await connection.fetch(_HELD)
    await connection.execute(_FREE, [row["id"] for row in held_tasks])
    moves = [rows.freed(row["state"], "new_generation") for row in held_tasks]
    await connection.execute(_EVENT, [row["id"] for row in held_tasks], moves)
    doubtful = await connection.fetch(_JUDGE)
    silences = [
        rows.silent(key, kind, failures, sent_at) for *key, kind, failures, sent_at in map(tuple, doubtful)
    ]
    messages = [rows.message(message) for _, message in silences]
    await connection.execute(_LEAVE, [task for task, _ in silences], messages)
    return Anew(await connection.fetchval(_GENERATION), len(held_tasks), len(doubtful))
