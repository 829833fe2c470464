"""Alerts and the audit: raised once while their cause stands, ended when it has gone, acknowledged, told."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from makegood.model.messages import UNTIL_SEEN, Act, Alert
from makegood.store import rows
from makegood.store.postgres.connection import Connection
from makegood.store.postgres.decision_rows import columns
from makegood.store.postgres.transaction import Row, Transaction, Work
from makegood.store.views import AlertView, AuditView, NodeInfo, Telling

T = TypeVar("T")

_NOW = "extract(epoch from clock_timestamp())::float8"

RAISE = f"""
insert into makegood.alert as a (kind, task, step, text, standing, ended_at, ended_why, at)
select x.kind, x.task, x.step, x.text, x.standing, case when x.standing is null then {_NOW} end, x.over, {_NOW}
from unnest($1::text[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[]) as x (kind, task, step, text, standing, over)
on conflict (standing) where standing is not null do update set text = excluded.text where a.text <> excluded.text
"""  # noqa: S608 - our own text
"""Values: the columns of ``rows.AlertRow``."""

_COLUMNS = (
    "id, kind, task, step, text, at, ended_at, ended_why, acked_at, acked_by, acked_why, logged, told, tries"
)
_ENDED: Mapping[bool | None, str] = {
    None: "true",
    True: "ended_at is not null",
    False: "ended_at is null",
}
_AMONG = f"select {_COLUMNS} from makegood.alert where id = any ($1::bigint[]) order by id"  # noqa: S608 - our own columns
_STANDING = f"""
update makegood.alert set standing = null, ended_at = {_NOW}, ended_why = x.why
from unnest($1::text[], $2::text[]) as x (name, why) where standing = x.name
"""  # noqa: S608 - our own text
_ACK = f"""
update makegood.alert set acked_at = {_NOW}, acked_by = $2, acked_why = $3,
    standing = case when kind = any ($4::text[]) then null else standing end,
    ended_at = case when kind = any ($4::text[]) then {_NOW} end,
    ended_why = case when kind = any ($4::text[]) then 'acknowledged' else '' end
where id = any ($1::bigint[]) and acked_at is null and ended_at is null
returning id, kind, task
"""  # noqa: S608 - our own text
_AUDIT = f"""
insert into makegood.audit (act, task, kind, who, why, verdict, reason, state, change, at, db_user)
select x.act, x.task, x.kind, x.who, x.why, 'applied', x.what, x.state, $8::bytea, {_NOW}, session_user
from unnest($1::text[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[]) as x (act, task, kind, who, why, what, state)
on conflict do nothing
"""  # noqa: S608 - our own text
_UNLOGGED = f"""
select {_COLUMNS} from makegood.alert where logged = 0 or (logged = 1 and ended_at is not null)
order by id limit $1
"""  # noqa: S608 - our own columns
_ALONE = "for no key update skip locked"
_LOGGED = """
update makegood.alert set logged = x.logged from unnest($1::bigint[], $2::int[]) as x (id, logged)
where alert.id = x.id
"""
_UNTOLD = f"""
select {_COLUMNS} from makegood.alert
where at > {_NOW} - $1::float8 and (told = 0 or (told = 1 and ended_at is not null)) and coalesce(tell_at, 0) <= {_NOW}
order by at, id limit $2
"""  # noqa: S608 - our own columns
_HOLD = f"update makegood.alert set tell_at = {_NOW} + $2::float8 where id = any ($1::bigint[])"  # noqa: S608 - our own text
_TOLD = """
update makegood.alert set told = greatest(alert.told, x.told), tell_at = null, tries = 0
from unnest($1::bigint[], $2::int[]) as x (id, told) where alert.id = x.id
"""
_LATER = f"""
update makegood.alert set tell_at = {_NOW} + x.wait, tries = tries + 1
from unnest($1::bigint[], $2::float8[]) as x (id, wait) where alert.id = x.id
"""  # noqa: S608 - our own text
_AUDITED = """
select act, task, kind, who, why, verdict, reason, state, at, change, db_user from makegood.audit
where ($1::bigint is null or task = $1) and ($2::float8 is null or at < $2) order by at desc, act limit $3
"""
LIVING = f"""
select info from makegood.node where not dead and stopped_at is null and alive_until > (select {_NOW})
"""  # noqa: S608 - our own text
"""What the processes that live say of themselves."""
WATCHED = f"""
(select standing, {_NOW} - at as age, text from makegood.alert
where ended_at is null and standing is not null and kind in ('starved', 'no_scheduler', 'no_leader', 'circuit_open', 'outage')
order by id limit $1)
union all select '{rows.UNCLAIMED}', 0, ''
where exists (
    select 1 from makegood.task where state = 'pending' and locked_by is null and priority = any ('{{0,1,2,3,4,5,6,7,8,9}}')
        and ready_seq < (((select {_NOW}) - $2::float8) * 1000000)::bigint
)
and not exists (
    select 1 from makegood.node
    where not dead and stopped_at is null and alive_until > (select {_NOW}) - $2::float8 and roles like '%scheduler%'
)
and not exists (select 1 from makegood.node where alive_until > (select {_NOW}) - $2::float8 and roles like '%scheduler%')
"""  # noqa: S608 - our own text
_STARVES = """
select x.name from unnest($1::text[], $2::text[], $3::text[]) as x (name, agent, action)
where exists (
    select 1 from makegood.request r
    where r.agent = x.agent and r.action = x.action and r.taken_by is null and r.kind <> 'timer' and r.starved
)
"""

WAITS = """
select task from makegood.request where taken_by is null and kind <> 'timer' and agent = $1 limit $2
"""

TOLD_WITHIN = 86_400.0
"""Alerts older than this many seconds are told to no webhook any more: one set today does not tell of last year."""


async def raise_(tx: Transaction, raised: Sequence[rows.AlertRow]) -> None:
    """Write alerts; one whose cause stands already gets the new text."""
    if raised:
        await tx.run(RAISE, *columns(raised, 6))


async def alert(tx: Transaction, alerts: Sequence[Alert]) -> None:
    """Raise alerts that belong to no Decision."""
    await raise_(tx, rows.alerts(alerts))


async def ease(tx: Transaction, causes: Sequence[Alert], why: str) -> None:
    """End the alerts of these causes."""
    names = sorted({rows.cause(a.kind, a.task, a.step) for a in causes})
    tx.idle = await tx.run(_STANDING, names, [why] * len(names)) == 0


async def alerts(
    connection: Connection, limit: int, task: int | None, *, ended: bool | None
) -> list[AlertView]:
    """Return alerts, newest first; of those that stand the open ones before all others."""
    where = _ENDED[ended] if task is None else f"{_ENDED[ended]} and task = $2"
    order = "acked_at is not null, id desc" if ended is False else "id desc"
    sql = f"select {_COLUMNS} from makegood.alert where {where} order by {order} limit $1"  # noqa: S608 - our own text
    return _views(await connection.fetch(sql, *((limit,) if task is None else (limit, task))))


def _views(found: Sequence[Row]) -> list[AlertView]:
    return [AlertView(*row) for row in found]


async def acknowledge(tx: Transaction, ids: Sequence[int], act: Act) -> dict[int, AlertView]:
    """Acknowledge what is open of ``ids``, with a row in the audit for each; returns all that there are."""
    hit = await tx.rows(_ACK, list(ids), act.who, act.why, list(UNTIL_SEEN))
    seen = [(row["id"], row["task"], f"alert {row['id']}: {row['kind']}") for row in hit]
    await acted(tx, rows.audited(act, "acknowledge", "acknowledged", seen))
    tx.idle = not hit
    return {view.id: view for view in _views(await tx.rows(_AMONG, list(ids)))}


async def acted(tx: Transaction, audited: Sequence[rows.AuditRow], change: bytes | None = None) -> None:
    """Write into the audit what an operator did in this transaction, and what it replaced."""
    if audited:
        await tx.run(_AUDIT, *columns(audited, 7), change)


async def unlogged(tx: Transaction, limit: int) -> list[Telling]:
    """Return alerts that no process has logged; they are logged from here on."""
    found = _views(await tx.rows(_UNLOGGED + _ALONE, limit))
    tx.idle = not found
    if found:
        await tx.run(_LOGGED, [view.id for view in found], [1 if view.ended is None else 2 for view in found])
    return [Telling(view, raised=view.logged == 0) for view in found]


async def untold(tx: Transaction, hold: float, limit: int) -> list[Telling]:
    """Return alerts that no webhook was told of, and hold them."""
    found = await tx.rows(_UNTOLD + _ALONE, TOLD_WITHIN, limit)
    tx.idle = not found
    if found:
        await tx.run(_HOLD, [row["id"] for row in found], hold)
    views = _views(found)
    return [Telling(view, raised=view.told == 0, tries=view.tries) for view in views]


async def told(tx: Transaction, done: Sequence[Telling], later: Mapping[int, float]) -> None:
    """Note what was told, and what is to be tried again."""
    tx.idle = not (done or later)
    if done:
        await tx.run(_TOLD, [t.alert.id for t in done], [1 if t.alert.ended is None else 2 for t in done])
    if later:
        await tx.run(_LATER, list(later), list(later.values()))


async def audit(
    connection: Connection, limit: int, task: int | None, before: float | None
) -> list[AuditView]:
    """Return operators' acts, newest first."""
    found = await connection.fetch(_AUDITED, task, before, limit)
    return [AuditView(row[0], row[1] or None, *tuple(row)[2:]) for row in found]


async def watch(tx: Transaction, after: float, limit: int, outage: float) -> bool:
    """Raise the alert that tasks have waited and no Scheduler has lived for ``after`` seconds, and the one that names the tasks that wait
    for an agent whose circuit is open for ``outage`` seconds. End those of actions whose requests
    are taken again, of circuits that are closed, that no Scheduler lives and, since somebody leads, that nobody does. Returns whether
    anything was written.
    """
    names = {row["standing"]: row for row in await tx.rows(WATCHED, limit, after)}
    if not names:
        return False
    starving = [(name, *rows.starving_of(name)) for name in names if name.startswith("starved")]
    still = {row["name"] for row in await tx.rows(_STARVES, *columns(starving, 3))} if starving else set()
    told: list[rows.AlertRow] = []
    for agent in await shut(tx) if any(name.startswith("circuit_open") for name in names) else ():
        opened = rows.cause("circuit_open", 0, agent)
        still.add(opened)
        if opened in names and names[opened]["age"] > outage:
            waiting = [row["task"] for row in await tx.rows(WAITS, agent, rows.COUNTED + 1)]
            out, over = rows.outage_alert(agent, waiting, outage), rows.cause("outage", 0, agent)
            still.add(over)
            if waiting and not (over in names and names[over]["text"] == out[3]):
                told.append(out)
    if rows.UNCLAIMED in names:
        unclaimed = rows.unclaimed(after)
        still |= {rows.UNCLAIMED, *(row[4] for row in unclaimed)}
        told += [row for row in unclaimed if row[4] not in names]
    await raise_(tx, told)
    gone = [name for name in names if name not in still]
    why = [rows.gone(name) for name in gone]
    return (bool(gone) and await tx.run(_STANDING, gone, why) > 0) or bool(told)


async def shut(tx: Transaction) -> set[str]:
    """Return the agents whose circuit is shut in some process that lives."""
    return rows.shut(await living(tx))


async def living(tx: Transaction) -> list[NodeInfo]:
    """Return what the processes that live say of themselves."""
    return [rows.node_info(row["info"]) for row in await tx.rows(LIVING)]


async def _any_unlogged(connection: Connection) -> bool:
    return bool(await connection.fetch(_UNLOGGED, 1))


async def _any_untold(connection: Connection) -> bool:
    return bool(await connection.fetch(_UNTOLD, TOLD_WITHIN, 1))


class AlertVerbs(ABC):
    """The verbs of the ``Alerts`` slice, for the store's object."""

    @abstractmethod
    async def _write(self, work: Work[T]) -> T: ...

    @abstractmethod
    async def _read(self, question: Callable[[Connection], Awaitable[T]]) -> T: ...

    async def alert(self, alerts: Sequence[Alert]) -> None:
        """Raise alerts that belong to no Decision."""
        if alerts:
            await self._write(partial(alert, alerts=alerts))

    async def ease(self, causes: Sequence[Alert], why: str) -> None:
        """End the alerts of these causes."""
        if causes:
            await self._write(partial(ease, causes=causes, why=why))

    async def alerts(
        self, limit: int = 100, task: int | None = None, *, ended: bool | None = None
    ) -> list[AlertView]:
        """Return alerts, newest first; of those that stand the open ones before all others."""
        return await self._read(partial(alerts, limit=limit, task=task, ended=ended))

    async def acknowledge(self, ids: Sequence[int], act: Act) -> dict[int, AlertView]:
        """Acknowledge alerts that are open."""
        return await self._write(partial(acknowledge, ids=ids, act=act))

    async def unlogged(self, limit: int) -> list[Telling]:
        """Return alerts that no process has logged; where there are none, nothing is written."""
        return await self._write(partial(unlogged, limit=limit)) if await self._read(_any_unlogged) else []

    async def untold(self, hold: float, limit: int) -> list[Telling]:
        """Return alerts that no webhook was told of; where there are none, nothing is written."""
        return (
            await self._write(partial(untold, hold=hold, limit=limit))
            if await self._read(_any_untold)
            else []
        )

    async def told(self, done: Sequence[Telling], later: Mapping[int, float]) -> None:
        """Note what was told."""
        await self._write(partial(told, done=done, later=later))

    async def audit(
        self, limit: int = 100, task: int | None = None, *, before: float | None = None
    ) -> list[AuditView]:
        """Return operators' acts, newest first."""
        return await self._read(partial(audit, limit=limit, task=task, before=before))
