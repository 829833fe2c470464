"""Notices to submitters: written with the state change, then taken for sending, one at a time for each
task.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

from makegood.model import notices
from makegood.model.notices import Notice
from makegood.store.notice_records import KEPT, Due, listeners, to_queues
from makegood.store.queue_records import Outgoing
from makegood.store.sqlite import queues
from makegood.store.sqlite.transaction import Row, WriteTransaction, blob

STORE = "select store_id, generation from makegood_generation"
_TOLD = "update makegood_task set told = ?, notified = ? where id = ?"
_LISTENER = """
insert into makegood_listener (task, host, url, sent, last, due_at) values (?, ?, ?, ?, ?, ?)
on conflict (task) do update set last = excluded.last
"""
_NOTICE = "insert into makegood_notice (task, sequence, body) values (?, ?, ?)"

# Run once for each host, with a limit: the index is never read as a whole, however many listeners wait.
_TAKE = """
update makegood_listener set due_at = ?, taken_by = ?
where task in (select task from makegood_listener where host = ? and due_at <= ? order by due_at limit ?)
returning task, sent + 1, url, tries
"""
_BODY = "select body from makegood_notice where task = ? and sequence = ?"


def write(tx: WriteTransaction, batch: Sequence[Notice]) -> None:
    """Write notices, in order of sequence within each task, and record the last one in the task's row."""
    (store,) = tx.rows(STORE)
    tx.many(_TOLD, [(n.state, n.sequence, n.task) for n in {n.task: n for n in batch}.values()])
    for sql, values in sending(batch, store, tx.now):
        tx.many(sql, values)
    tx.topics.add("notice")
    tx.topics.update(f"queue:{queue}" for queue, _ in to_queues(batch))


def sending(batch: Sequence[Notice], store: Row, now: float) -> list[tuple[str, list[Row]]]:
    """Return the statements that put notices on their way, each with its rows; ``store``: the row that
    ``STORE`` reads.
    """
    store_id, generation = store
    time = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    to_web = [n for n in batch if notices.queue(n.reply.to) is None]

    def body(n: Notice) -> bytes:
        return (notices.head(store_id, generation, n, time) + notices.event(n)).encode()

    bodies: list[Row] = [(n.task, n.sequence, blob(body(n))) for n in to_web]
    messages = [
        Outgoing(
            queue=queue, id=f"{store_id}-{generation}-{notices.label(n)}", body=body(n), kind=notices.TYPE.format(state=n.state),
            correlation_id=n.reply.correlation_id, task=n.task, sequence=n.sequence, expires=KEPT,
        )
        for queue, n in to_queues(batch)
    ]  # fmt: skip
    listener_rows: list[Row] = [
        (task, host, url, first - 1, last, now) for task, host, url, first, last in listeners(to_web)
    ]
    return [
        (_NOTICE, bodies),
        (_LISTENER, listener_rows),
        (queues.SEND, [queues.sent(m, now) for m in messages]),
    ]


def take(tx: WriteTransaction, node: int, room: Sequence[tuple[str, int]], lease: float) -> list[Due]:
    """Take notices that are due for sending, per host at most its ``room``; ``lease``: seconds until they are
    due again.
    """
    rows: list[Row] = []
    for host, limit in room:
        rows += tx.rows(_TAKE, (tx.now + lease, node, host, tx.now, limit))
    dues: list[Due] = []
    for task, sequence, url, tries in rows:
        body = tx.rows(_BODY, (task, sequence))
        dues.append(Due(task, sequence, url, tries, body[0][0] if body else b""))
    return dues
