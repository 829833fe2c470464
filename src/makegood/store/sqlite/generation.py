"""Begins a new generation, once, when an operator says that the file was restored from a backup.

SQLite has no timeline that would show that a file is an older one. So this is a command (``makegood store
restored``) and a documented step of the restore. It does what PostgreSQL's store does after a promotion, for
the same reasons: see ``store/postgres/generation.py``.
"""

from makegood.model.messages import Act, Alert
from makegood.store import alerts, rows
from makegood.store.records import Anew
from makegood.store.sqlite.decision_rows import EVENT, draw_ready
from makegood.store.sqlite.requests import leave
from makegood.store.sqlite.transaction import Row, WriteTransaction

_SKIPPED = 1_000_000

_RAISE = "update makegood_generation set generation = generation + 1 returning generation"
# This table covers the whole file: do not change the numbers of the user's own tables.
_SKIP = "update sqlite_sequence set seq = seq + ? where name like 'makegood\\_%' escape '\\'"
_SKIP_EPOCHS = "update makegood_lease set epoch = epoch + ?"
_SKIP_EVENTS = """
insert into makegood_event (seq, task, at, node, moves, note) select coalesce(max(seq), 0) + ?, ?, ?, null, ?, ? from makegood_event
"""
_ALL_DEAD = "update makegood_node set dead = 1 where dead = 0 and stopped_at is null"
_HELD = "select id, state from makegood_task where locked_by is not null order by id"
# A task at rest is locked only for a decision that an operator asked for: it keeps its state.
_FREE = """
update makegood_task set locked_by = null, ready_seq = ?,
    state = case when state in ('processing', 'undoing') then 'pending' else state end
where id = ?
"""
_UNTAKEN = """
select r.task, r.idx, r.attempt, r.kind, s.failure_count, r.sent_at
from makegood_request r cross join makegood_step s on s.task = r.task and s.idx = r.idx
where r.taken_by is null and r.kind <> 'timer' and r.answered = 0
"""
_GONE = "delete from makegood_request where task = ? and idx = ? and attempt = ?"
# A request that its Scheduler had in memory, and that the step's row did not show yet.
_BEHIND = "update makegood_step set attempt = ?, state = 'running' where task = ? and idx = ? and attempt < ?"


def begin_anew(tx: WriteTransaction, act: Act) -> Anew:
    """Raise the generation.

    Frees the tasks that were held, puts untaken requests in doubt, and skips numbers that may have been given
    out.
    """
    ((generation,),) = tx.rows(_RAISE)
    tx.run(_SKIP, (_SKIPPED,))
    tx.run(_SKIP_EPOCHS, (_SKIPPED,))
    tx.run(_ALL_DEAD)
    held_tasks = tx.rows(_HELD)
    if held_tasks:
        _free(tx, held_tasks)
    doubtful = tx.rows(_UNTAKEN)
    tx.many(_GONE, [row[:3] for row in doubtful])
    tx.many(_BEHIND, [(attempt, task, idx, attempt) for task, idx, attempt, *_ in doubtful])
    leave(tx, [rows.silent(key, kind, failures, sent_at) for *key, kind, failures, sent_at in doubtful])
    outcome = Anew(generation, len(held_tasks), len(doubtful))
    new_alerts = rows.alerts([Alert("generation", step=str(generation), text=rows.restored(outcome, act))])
    tx.do(alerts.raise_, new_alerts)
    tx.do(alerts.acted, rows.act_row(act, "restored", f"generation {generation}", "restored"))
    tx.topics.update(("pending", "inbox"))
    return outcome


def _free(tx: WriteTransaction, held_tasks: list[Row]) -> None:
    """Unlock tasks. Their events begin at a number that was not given out."""
    first = draw_ready(tx, len(held_tasks))
    tx.many(_FREE, [(first + n, task) for n, (task, _) in enumerate(held_tasks)])
    (task, state), *successors = held_tasks
    tx.run(_SKIP_EVENTS, (_SKIPPED, task, tx.now, rows.freed(state, "new_generation"), ""))
    tx.many(
        EVENT, [(task, tx.now, None, rows.freed(state, "new_generation"), b"") for task, state in successors]
    )
