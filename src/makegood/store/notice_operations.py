"""Operator commands and views for webhook notices: pending ones, and those given up."""

from makegood.model.messages import Act, Alert
from makegood.store import alerts
from makegood.store.notice_records import HostDue, ListenerView, revived
from makegood.store.transaction import ReadTx, Sql, Tx

# Each step finds the next host in the index, so the whole index is never read, however much waits.
HOSTS = Sql("""
with recursive h (host) as (
    select min(host) from makegood.listener where due_at is not null
    union all
    select (select min(l.host) from makegood.listener l where l.due_at is not null and l.host > h.host) from h where h.host is not null
)
select h.host, (select min(l.due_at) from makegood.listener l where l.host = h.host and l.due_at is not null) - {now} as seconds
from h where h.host is not null
""")
_VIEWS = Sql("""
select task, url, sent, last, tries, dead, due_at - {now}, error from makegood.listener
where ($1::boolean or dead) order by dead desc, task limit $2
""")
_DEAD_ONES = Sql("""
select task, url from makegood.listener where dead and ($1::bigint is null or task = $1) order by task for update
""")
_THIS_ONE = Sql("select task, url from makegood.listener where task = $1 for update")
_REVIVE = Sql(
    "update makegood.listener set dead = false, tries = 0, due_at = {now} where task = any ($1::bigint[])"
)
_DROP = Sql("delete from makegood.listener where task = any ($1::bigint[])")
_DROP_ALL = Sql("delete from makegood.notice where task = any ($1::bigint[])")


async def due(tx: ReadTx) -> list[HostDue]:
    """Return the hosts with notices to send, and when the first is due."""
    return [HostDue(*row) for row in await tx.rows(HOSTS)]


async def listeners(tx: ReadTx, limit: int = 100, *, dead: bool = False) -> list[ListenerView]:
    """Return webhooks with unsent notices, dead ones first."""
    return [
        ListenerView(task, url, sent, last, tries, bool(gone), seconds, error)
        for task, url, sent, last, tries, gone, seconds, error in await tx.rows(_VIEWS, not dead, limit)
    ]


async def retry(tx: Tx, act: Act, task: int | None = None) -> list[int]:
    """Resend dead notices of one task or of all; audited as an operator command."""
    return await _revive(tx, act, task, drop=False)


async def drop(tx: Tx, act: Act, task: int | None = None) -> list[int]:
    """Drop the dead notices of all tasks, or every unsent notice of one task; audited
    as an operator command.
    """
    return await _revive(tx, act, task, drop=True)


async def _revive(tx: Tx, act: Act, task: int | None, *, drop: bool) -> list[int]:
    wanted = _THIS_ONE if drop and task is not None else _DEAD_ONES
    listening = [(one, url) for one, url in await tx.rows(wanted, task)]
    found = [one for one, _ in listening]
    if not found:
        return []
    if drop:
        await tx.run(_DROP_ALL, found)
        await tx.run(_DROP, found)
    else:
        await tx.run(_REVIVE, found)
        tx.topics.add("notice")
    await alerts.ease(tx, [Alert("dead_letter", one) for one in found], "dropped" if drop else "sent again")
    await alerts.acted(tx, revived(act, listening, drop=drop))
    return found
