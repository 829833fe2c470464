"""Notices to submitters: written with the state change."""

from collections.abc import Sequence
from datetime import UTC, datetime

from makegood.model import notices
from makegood.model.notices import Notice
from makegood.store.notice_records import KEPT, listeners, to_queues
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
            queue=queue, id=f"{store_id}-{generation}-{notices.label(n)}", body=body(n), kind=n.type,
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
        (queues.SEND, [queues.send_row(m, now) for m in messages]),
    ]
