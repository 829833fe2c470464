"""Puts a task to error that the store cannot read or write, whatever its rows contain."""

from collections.abc import Sequence
from typing import Literal

from makegood.model.messages import Alert
from makegood.store import alerts, lanes, rows
from makegood.store.transaction import Sql, Tx

Trace = Literal["alert", "event"]

_STATE = Sql("select state, locked_by from makegood.task where id = $1 for no key update")
_TO_ERROR = Sql("""
update makegood.task set state = 'error', goal = case goal when 'undo' then 'undo' else 'hold' end, cause = $2,
    locked_by = null, epoch = least(cast(epoch as bigint), 9223372036854775806) + 1, undo_by = null
where id = $1
""")
# On PostgreSQL, a request whose attempt is above the step's says that the step is running.
_SENT = Sql("""
update makegood.step as s set state = case when r.attempt > s.attempt then 'running' else s.state end, attempt = r.attempt,
    first_sent = coalesce(s.first_sent, case when r.kind <> 'probe' then r.taken_at end)
from makegood.request r
where s.task = $1 and r.task = $1 and r.idx = s.idx and r.attempt >= s.attempt and r.kind <> 'timer'
""")
_IN_FLIGHT = Sql("""
select name, state from makegood.step where task = $1 and state in ('running', 'undoing', 'ready') order by idx
""")
_IN_DOUBT = Sql("""
update makegood.step set
    flags = case when state = 'running' then flags | $2 else flags end,
    state = case state when 'running' then 'in_doubt' when 'undoing' then 'undo_failed' else 'waiting' end
where task = $1 and state in ('running', 'undoing', 'ready')
""")
_CLEAR = Sql("delete from makegood.request where task = $1")
_CONSUMED = Sql("""
delete from makegood.inbox where task = $1 and ($2::bigint[] is null or seq = any ($2::bigint[]))
""")
_EVENT = Sql("insert into makegood.event (task, at, node, moves, note) values ($1, {now}, $2, $3, '')")


async def put_to_error(
    tx: Tx,
    node: int | None,
    task: int,
    reason: str,
    seqs: Sequence[int] | None,
    *,
    check_lock: bool,
    traces: Sequence[Trace] = ("alert", "event"),
) -> bool:
    """Put a task that cannot be decided to error, with an alert and nothing in flight.

    Deletes the messages ``seqs`` (None: all). Steps in flight are in doubt, since nobody will read their
    replies. ``check_lock``: only if ``node`` still has the lock. ``traces``: what it leaves. Returns whether
    it was done. The caller writes the notice, in a savepoint: the task's row may be what cannot be read.
    """
    records = await tx.rows(_STATE, task)
    if not records or (check_lock and records[0][1] != node):
        return False
    await tx.run(_TO_ERROR, task, reason)
    await tx.run(_SENT, task)
    in_flight = [(name, state) for name, state in await tx.rows(_IN_FLIGHT, task)]
    await tx.run(_IN_DOUBT, task, rows.DOUBT)
    await tx.run(_CLEAR, task)
    await tx.run(_CONSUMED, task, None if seqs is None else list(seqs))
    if "alert" in traces:
        await alerts.alert(tx, [Alert("unreadable", task, "", reason)])
    await lanes.expel(tx, task)
    if "event" in traces:
        await tx.run(_EVENT, task, node, rows.rejection_moves(records[0][0], reason, in_flight))
    tx.topics.add("ended")
    return True
