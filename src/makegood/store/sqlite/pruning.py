"""Removes tasks that ended long ago, with all their rows, in bounded batches."""

from makegood.store.records import Pruned
from makegood.store.sqlite.transaction import Row, WriteTransaction

# Ids rise with the time of submission, so a window of ids is a window of time. Nothing else is read to find
# old tasks.
_WINDOW = """
select id, created_at, state in ('processed', 'undone') and ended_at < ? from makegood_task where id > ? order by id limit ?
"""
# Rows that keep an ended task: a message or request for it, an undelivered notice, an open or undelivered
# alert.
_KEEPS = (
    "select task from makegood_inbox where task in ({marks})",
    "select task from makegood_request where task in ({marks})",
    "select task from makegood_listener where task in ({marks})",
    "select task from makegood_alert where task in ({marks}) and (ended_at is null or logged < 2)",
)
_AGAIN = "delete from makegood_task where id = ? and state in ('processed', 'undone') and locked_by is null"
_TABLES = ("step", "event", "audit", "alert")
# Rows that belong to no task: alerts that ended and were delivered, and acts on messages and the like.
_OTHERS = (
    """
delete from makegood_alert where id in (
    select id from makegood_alert where task is null and ended_at < ? and logged = 2 order by id limit ?
)""",
    """
delete from makegood_audit where act in (
    select act from makegood_audit where task = 0 and at < ? order by at limit ?
)""",
)


def prune(tx: WriteTransaction, *, older: float, after: int, limit: int, dry: bool) -> Pruned:
    """Remove the ended tasks of one window of ids; the first window also removes old rows that belong to no
    task.

    ``older``: seconds since a task ended. ``after``: the id before the window; 0 for the first. ``dry``: only
    count.
    """
    until = tx.now - older
    if after == 0 and not dry:
        for sql in _OTHERS:
            tx.run(sql, (until, limit))
    window: list[Row] = tx.rows(_WINDOW, (until, after, limit))
    if not window:
        return Pruned()
    ended = [task for task, _, is_ended in window if is_ended]
    kept = {task for sql in _KEEPS for (task,) in (tx.among(sql, ended) if ended else ())}
    going = [(task,) for task in ended if task not in kept]
    if going and not dry:
        for table in _TABLES:
            tx.many(f"delete from makegood_{table} where task = ?", going)  # noqa: S608 - our own tables
        tx.many(_AGAIN, going)
    last, created_at, _ = window[-1]
    more = len(window) == limit and created_at <= until
    return Pruned(len(going), len(kept), last if more else None)
