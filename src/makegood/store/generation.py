"""Begins a new generation, once, when the store may have gone back in time: after a promotion or a restore.

Processes that kept running remember, and have done, more than the store knows. What the store sent them is
missing in it, and it may issue the same numbers again. So the transaction that raises the generation also
does the following:

- Every process counts as dead and every lock is released. A Scheduler whose memory is ahead of the store
  makes no more Decisions; it starts again, under a new number, from the rows.
- A request that nobody has claimed may have been claimed, and carried out, in the lost stretch. It is judged
  as silent: the step is in doubt, and its rules say whether it is tried again, under its idempotency key. No
  failure is counted, since none was seen. (A request that is known to be claimed is answered by the node that
  runs it, or judged as silent in its time.)
- Numbers that may have been issued are skipped: of claims, messages, events, processes, and the epochs of
  leases.
- An alert informs operators.

A store does not always see that it was restored from a backup. So an operator says it (``makegood store
restored``): this is a documented step of the restore.
"""

from makegood.model.messages import Act, Alert
from makegood.store import alerts, rows
from makegood.store.records import NewGeneration
from makegood.store.requests import leave
from makegood.store.supervision import JUDGED, STEP_FAILED, free
from makegood.store.transaction import Sql, Tx

_RAISE = Sql("update makegood.generation set generation = generation + 1")
_GENERATION = Sql("select generation from makegood.generation")
# SQLite's table covers the whole file: the numbers of the user's own tables do not change.
_SKIP = Sql(
    """
select setval(s, nextval(s) + 1000000) from unnest(array[
    'makegood.ready', pg_get_serial_sequence('makegood.inbox', 'seq'), pg_get_serial_sequence('makegood.event', 'seq'),
    pg_get_serial_sequence('makegood.alert', 'id'), pg_get_serial_sequence('makegood.node', 'id'),
    pg_get_serial_sequence('makegood.message', 'seq')]::regclass[]) s
""",
    "update sqlite_sequence set seq = seq + 1000000 where name like 'makegood\\_%' escape '\\'",
)
_SKIP_EPOCHS = Sql("update makegood.lease set epoch = epoch + 1000000")
_ALL_DEAD = Sql("update makegood.node set dead = true where not dead and stopped_at is null")
_HELD = Sql("select id, state from makegood.task where locked_by is not null order by id for no key update")
# SQLite's events have no sequence to skip.
_LAST_EVENT = Sql("select 0", "select coalesce(max(seq), 0) from makegood.event")
_SKIP_EVENTS = Sql("select $1::bigint", "update makegood.event set seq = seq + 1000000 where seq > $1")
_UNTAKEN = Sql("""
select r.task, r.idx, r.attempt, r.kind, (select s.failure_count from makegood.step s where s.task = r.task and s.idx = r.idx),
    r.sent_at
from makegood.request r where r.taken_by is null and r.kind <> 'timer' and not r.answered for update of r
""")


async def after_raise(tx: Tx) -> NewGeneration:
    """Do what a raised generation requires; return how much that was."""
    await tx.rows(_SKIP)
    await tx.run(_SKIP_EPOCHS)
    await tx.run(_ALL_DEAD)
    ((last_event,),) = await tx.rows(_LAST_EVENT)
    held_tasks = await tx.rows(_HELD)
    await free(tx, held_tasks, "new_generation", failures=0)
    await tx.rows(_SKIP_EVENTS, last_event)
    doubtful = [tuple(row) for row in await tx.rows(_UNTAKEN)]
    await tx.many(JUDGED, [row[:3] for row in doubtful])
    await tx.many(STEP_FAILED, [(*row[:3], 0) for row in doubtful])
    silences = [rows.silent(key, kind, failures, sent_at) for *key, kind, failures, sent_at in doubtful]
    await leave(tx, silences)
    ((generation,),) = await tx.rows(_GENERATION)
    return NewGeneration(generation, len(held_tasks), len(doubtful))


async def begin_after_restore(tx: Tx, act: Act) -> NewGeneration:
    """Raise the generation because an operator says so, with a row in the audit."""
    await tx.run(_RAISE)
    outcome = await after_raise(tx)
    await inform(tx, outcome.generation, rows.restore_alert_text(outcome, act))
    name = f"generation {outcome.generation}"
    await alerts.write_audit(tx, rows.act_row(act, "restored", name, "restored"))
    return outcome


async def inform(tx: Tx, generation: int, text: str) -> None:
    """Raise the alert about a new generation."""
    await alerts.alert(tx, [Alert("generation", step=str(generation), text=text)])
