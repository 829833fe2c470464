"""Notices to submitters: written with the state change."""

from collections.abc import Sequence

from makegood.model import notices
from makegood.model.notices import Notice
from makegood.store.notice_records import listeners, queue_notice_rows
from makegood.store.postgres.commit_statement import AS_QUEUED, HEARD, IN_ORDER, INTO_LISTENER, INTO_NOTICE
from makegood.store.postgres.decision_rows import columns
from makegood.store.postgres.transaction import WriteTransaction

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


async def write(tx: WriteTransaction, batch: Sequence[Notice]) -> None:
    """Write notices that belong to no Decision."""
    to_web = [n for n in batch if notices.queue(n.reply.to) is None]
    for notice in batch:
        await tx.run(_TOLD, notice.task, notice.state, notice.sequence)
    if to_web:
        texts = [(n.task, n.sequence, notices.label(n), notices.event(n)) for n in to_web]
        await tx.run(_NOTICE, *columns(texts, 4))
        await tx.run(_LISTENER, *columns(listeners(to_web), 5))
        tx.topics.add("notice")
    rows_ = queue_notice_rows(batch)
    if rows_:
        await tx.run(_QUEUED, *columns(rows_, 7))
        tx.topics.update(f"queue:{row[4]}" for row in rows_)
