"""What is done, once, when the server shows another history than the store has known: after a promotion or a restore.

The store may have gone back in time. Processes that lived on remember, and have done, more than it knows; what they were
told is missing in it; numbers that it gave out may come again. So, in one transaction with the raise of the generation:

- every process counts as dead and every lock is gone: a Scheduler whose memory is ahead of the store decides nothing more,
  and begins anew, under a new number, with what the rows say;
- a request that nobody has taken may have been taken, and carried out, in the lost stretch. It is judged as silence: the step is
  in doubt, and its rules say whether it is asked again, under its key. (One that is known to be taken is answered by
  whoever runs it, or judged as silence in its time.) No failure is counted, since none was seen;
- numbers are skipped that were perhaps given out: of claims, messages, events, processes; and the epochs of leases;
- an operator is told.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import asyncpg

from makegood.messages import Message
from makegood.store import rows

_Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

History: TypeAlias = tuple[str, str]
"""A server's system identifier and its timeline."""

_RAISE = """
update makegood.generation set generation = generation + case system_id when '' then 0 else 1 end, system_id = $1, timeline = $2
where system_id = $3 and timeline = $4
"""
_SKIP = """
select setval(s, nextval(s) + 1000000) from unnest(array[
    'makegood.ready', pg_get_serial_sequence('makegood.inbox', 'seq'), pg_get_serial_sequence('makegood.event', 'seq'),
    pg_get_serial_sequence('makegood.alert', 'id'), pg_get_serial_sequence('makegood.node', 'id')]::regclass[]) s
"""
_SKIP_EPOCHS = "update makegood.lease set epoch = epoch + 1000000"
_ALL_DEAD = "update makegood.node set dead = true where not dead and stopped_at is null"
_HELD = "select id, state from makegood.task where locked_by is not null order by id for no key update"
_FREE = """
update makegood.task set locked_by = null, state = 'pending', ready_seq = nextval('makegood.ready') where id = any ($1::bigint[])
"""
_JUDGE = """
with gone as (
    delete from makegood.request where taken_by is null and kind <> 'timer' and not answered
    returning task, idx, attempt, kind
)
update makegood.step s set attempt = gone.attempt, state = case when s.attempt < gone.attempt then 'running' else s.state end
from gone where (s.task, s.idx) between (gone.task, gone.idx) and (gone.task, gone.idx)
returning s.task, s.idx, gone.attempt, gone.kind, s.failure_count as failures
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
insert into makegood.alert (kind, task, step, text, at)
values ('generation', null, '', $1, extract(epoch from clock_timestamp())::float8)
"""


async def begin_anew(connection: _Connection, known: History, seen: History) -> str:
    """Raise the generation for the history ``seen``, within the caller's transaction, unless somebody has done so meanwhile.

    Returns what to tell people, "" when there is nothing: a new store has ``known`` none.
    """
    said = await connection.execute(_RAISE, *seen, *known)
    if said != "UPDATE 1" or not known[0]:
        return ""
    await connection.fetch(_SKIP)
    await connection.execute(_SKIP_EPOCHS)
    await connection.execute(_ALL_DEAD)
    held = await connection.fetch(_HELD)
    await connection.execute(_FREE, [row["id"] for row in held])
    moved = [
        (row["id"], rows.moves([("task", row["state"], "pending", "the store began a new generation")]))
        for row in held
    ]
    await connection.execute(_EVENT, *_columns(moved))
    doubtful = await connection.fetch(_JUDGE)
    await connection.execute(_LEAVE, *_columns([(row["task"], _silence(row)) for row in doubtful]))
    text = (
        f"the store shows another history than before (system {known[0]}, timeline {known[1]}, now system {seen[0]}, "
        f"timeline {seen[1]}): a promotion or a restore. The generation was raised; {len(held)} tasks under way were freed and "
        f"{len(doubtful)} requests are in doubt; what was acknowledged shortly before may be lost"
    )
    await connection.execute(_ALERT, text)
    return text


def _silence(row: asyncpg.Record) -> bytes:
    """Return the verdict on a request of which nothing can be known, as a message."""
    idx, doing, attempt, failures = row["idx"], row["kind"], row["attempt"], row["failures"]
    return rows.message(Message("expired", idx=idx, doing=doing, attempt=attempt, failures=failures))


def _columns(pairs: Sequence[tuple[int, bytes]]) -> list[list[Any]]:
    return [[id_ for id_, _ in pairs], [data for _, data in pairs]]
