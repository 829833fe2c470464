"""Alerts and the audit: raised once while their cause stands, ended when it has gone, acknowledged, told."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from makegood.model.messages import UNTIL_SEEN, Act, Alert
from makegood.store import rows
from makegood.store.sqlite.transaction import Action, Row, Transaction
from makegood.store.views import AlertView, AuditView, NodeInfo, Telling

T = TypeVar("T")

RAISE = """
insert into makegood_alert as a (kind, task, step, text, standing, ended_at, ended_why, at) values (?, ?, ?, ?, ?, ?, ?, ?)
on conflict (standing) where standing is not null do update set text = excluded.text where a.text <> excluded.text
"""
"""Values: ``raised``."""

EASE = """
update makegood_alert set standing = null, ended_at = ?, ended_why = ?
where task = ? and ended_at is null and kind <> 'starved' and (? = '*' or step = ?)
"""
"""Values: ``eased``."""

_COLUMNS = (
    "id, kind, task, step, text, at, ended_at, ended_why, acked_at, acked_by, acked_why, logged, told, tries"
)
_ENDED: Mapping[bool | None, str] = {None: "1", True: "ended_at is not null", False: "ended_at is null"}
_AMONG = f"select {_COLUMNS} from makegood_alert where id in ({{marks}}) order by id"  # noqa: S608 - our own columns
_STANDING = "update makegood_alert set standing = null, ended_at = ?, ended_why = ? where standing = ?"
_ACK = """
update makegood_alert set acked_at = ?, acked_by = ?, acked_why = ? where id = ? and acked_at is null and ended_at is null
"""
_SEEN = "update makegood_alert set standing = null, ended_at = ?, ended_why = 'acknowledged' where id = ?"
_AUDIT = """
insert into makegood_audit (act, task, kind, who, why, verdict, reason, state, change, at)
values (?, ?, ?, ?, ?, 'applied', ?, ?, ?, ?)
on conflict do nothing
"""
_UNLOGGED = f"""
select {_COLUMNS} from makegood_alert where logged = 0 or (logged = 1 and ended_at is not null) order by id limit ?
"""  # noqa: S608 - our own columns
_LOGGED = "update makegood_alert set logged = ? where id = ?"
_UNTOLD = f"""
select {_COLUMNS} from makegood_alert
where at > ? and (told = 0 or (told = 1 and ended_at is not null)) and coalesce(tell_at, 0) <= ? order by at, id limit ?
"""  # noqa: S608 - our own columns
_HOLD = "update makegood_alert set tell_at = ? where id = ?"
_TOLD = "update makegood_alert set told = max(told, ?), tell_at = null, tries = 0 where id = ?"
_LATER = "update makegood_alert set tell_at = ?, tries = tries + 1 where id = ?"
_AUDITED = """
select act, task, kind, who, why, verdict, reason, state, at, change, db_user from makegood_audit
where (? is null or task = ?) and (? is null or at < ?) order by at desc, act limit ?
"""
UNCLAIMED = """
select 1 from makegood_task
where state = 'pending' and locked_by is null and priority in (0, 1, 2, 3, 4, 5, 6, 7, 8, 9) and ready_seq < ?2 * 1000000
"""
WATCHED = f"""
select * from (
    select standing, at, text from makegood_alert
    where ended_at is null and standing is not null and kind in ('starved', 'no_scheduler', 'no_leader', 'circuit_open', 'outage')
    order by id limit ?1
)
union all select '{rows.UNCLAIMED}', 0, ''
where exists ({UNCLAIMED})
and not exists (select 1 from makegood_node where dead = 0 and stopped_at is null and alive_until > ?2 and roles like '%scheduler%')
and not exists (select 1 from makegood_node where alive_until > ?2 and roles like '%scheduler%')
"""  # noqa: S608 - our own text
_STARVES = """
select 1 from makegood_request
where agent = ? and action = ? and isolate in (0, 1) and taken_by is null and kind <> 'timer' and starved = 1 limit 1
"""

WAITS = "select task from makegood_request where agent = ? and taken_by is null and kind <> 'timer' limit ?"

_LIVE = "select info from makegood_node where dead = 0 and stopped_at is null and alive_until > ?"

TOLD_WITHIN = 86_400.0
"""Alerts older than this many seconds are told to no webhook any more: one set today does not tell of last year."""


def raised(alert: rows.AlertRow, now: float) -> Row:
    """Return the values of ``RAISE``."""
    kind, task, step, text, standing, over = alert
    return (kind, task, step, text, standing, None if standing is not None else now, over, now)


def eased(ending: tuple[int, str, str], now: float) -> Row:
    """Return the values of ``EASE``."""
    task, step, why = ending
    return (now, why, task, step, step)


def alert(tx: Transaction, alerts: Sequence[Alert]) -> list[None]:
    """Raise alerts that belong to no Decision."""
    tx.many(RAISE, [raised(row, tx.now) for row in rows.alerts(alerts)])
    return [None] * len(alerts)


def ease(tx: Transaction, causes: Sequence[Alert], why: str) -> None:
    """End the alerts of these causes."""
    tx.many(_STANDING, [(tx.now, why, rows.cause(a.kind, a.task, a.step)) for a in causes])


def alerts(tx: Transaction, limit: int, task: int | None, *, ended: bool | None) -> list[AlertView]:
    """Return alerts, newest first; of those that stand the open ones before all others."""
    where = _ENDED[ended] if task is None else f"{_ENDED[ended]} and task = ?"
    order = "acked_at is not null, id desc" if ended is False else "id desc"
    sql = f"select {_COLUMNS} from makegood_alert where {where} order by {order} limit ?"  # noqa: S608 - our own text
    return [AlertView(*row) for row in tx.rows(sql, (limit,) if task is None else (task, limit))]


def acknowledge(tx: Transaction, ids: Sequence[int], act: Act) -> dict[int, AlertView]:
    """Acknowledge what is open of ``ids``, with a row in the audit for each; returns all that there are."""
    found = [AlertView(*row) for row in tx.among(_AMONG, ids)] if ids else []
    hit = [view for view in dict.fromkeys(found) if view.open]
    for view in hit:
        tx.run(_ACK, (tx.now, act.who, act.why, view.id))
        if view.kind in UNTIL_SEEN:
            tx.run(_SEEN, (tx.now, view.id))
    seen = [(view.id, view.task, f"alert {view.id}: {view.kind}") for view in hit]
    acted(tx, rows.audited(act, "acknowledge", "acknowledged", seen))
    return {row[0]: AlertView(*row) for row in tx.among(_AMONG, ids)} if ids else {}


def acted(tx: Transaction, audited: Sequence[rows.AuditRow], change: bytes | None = None) -> None:
    """Write into the audit what an operator did in this transaction, and what it replaced."""
    tx.many(_AUDIT, [(*row, change, tx.now) for row in audited])


def unlogged(tx: Transaction, limit: int) -> list[Telling]:
    """Return alerts that no process has logged; they are logged from here on."""
    found = [AlertView(*row) for row in tx.rows(_UNLOGGED, (limit,))]
    tx.many(_LOGGED, [(1 if view.ended is None else 2, view.id) for view in found])
    return [Telling(view, raised=view.logged == 0) for view in found]


def untold(tx: Transaction, hold: float, limit: int) -> list[Telling]:
    """Return alerts that no webhook was told of, and hold them."""
    found = tx.rows(_UNTOLD, (tx.now - TOLD_WITHIN, tx.now, limit))
    views = [AlertView(*row) for row in found]
    tx.many(_HOLD, [(tx.now + hold, view.id) for view in views])
    return [Telling(view, raised=view.told == 0, tries=view.tries) for view in views]


def told(tx: Transaction, done: Sequence[Telling], later: Mapping[int, float]) -> None:
    """Note what was told, and what is to be tried again."""
    tx.many(_TOLD, [(1 if t.alert.ended is None else 2, t.alert.id) for t in done])
    tx.many(_LATER, [(tx.now + wait, id_) for id_, wait in later.items()])


def audit(tx: Transaction, limit: int, task: int | None, before: float | None) -> list[AuditView]:
    """Return operators' acts, newest first."""
    found = tx.rows(_AUDITED, (task, task, before, before, limit))
    return [AuditView(row[0], row[1] or None, *row[2:]) for row in found]


def watch(tx: Transaction, after: float, limit: int, outage: float) -> None:
    """Raise the alert that tasks have waited and no Scheduler has lived for ``after`` seconds, and the one that names the tasks that wait
    for an agent whose circuit is open for ``outage`` seconds. End those of actions whose requests
    are taken again, of circuits that are closed, that no Scheduler lives and, since somebody leads, that nobody does.
    """
    names = {name: (at, text) for name, at, text in tx.rows(WATCHED, (limit, tx.now - after))}
    unclaimed = rows.UNCLAIMED in names
    still = {n for n in names if n.startswith("starved") and tx.rows(_STARVES, rows.starving_of(n))}
    if any(name.startswith("circuit_open") for name in names):
        for agent in shut(tx):
            opened = rows.cause("circuit_open", 0, agent)
            still.add(opened)
            if opened in names and names[opened][0] < tx.now - outage:
                still.add(_outage(tx, agent, outage, names))
    if unclaimed:
        told = rows.unclaimed(after)
        still |= {rows.UNCLAIMED, *(row[4] or "" for row in told)}
        tx.many(RAISE, [raised(row, tx.now) for row in told if row[4] not in names])
    gone = [name for name in names if name not in still]
    tx.many(_STANDING, [(tx.now, rows.gone(name), name) for name in gone])


def _outage(tx: Transaction, agent: str, outage: float, names: Mapping[str, tuple[float, str]]) -> str:
    """Raise the alert that an agent's service is out, or bring it up to date, if tasks wait; returns the name of its cause."""
    waiting = [task for (task,) in tx.rows(WAITS, (agent, rows.COUNTED + 1))]
    told = rows.outage_alert(agent, waiting, outage)
    over = rows.cause("outage", 0, agent)
    if waiting and not (over in names and names[over][1] == told[3]):
        tx.run(RAISE, raised(told, tx.now))
    return over


def shut(tx: Transaction) -> set[str]:
    """Return the agents whose circuit is shut in some process that lives."""
    return rows.shut(living(tx))


def living(tx: Transaction) -> list[NodeInfo]:
    """Return what the processes that live say of themselves."""
    return [rows.node_info(info) for (info,) in tx.rows(_LIVE, (tx.now,))]


def _any_unlogged(tx: Transaction) -> bool:
    return bool(tx.rows(_UNLOGGED, (1,)))


def _any_untold(tx: Transaction) -> bool:
    return bool(tx.rows(_UNTOLD, (tx.now - TOLD_WITHIN, tx.now, 1)))


class AlertVerbs(ABC):
    """The verbs of the ``Alerts`` slice, for the store's object."""

    @abstractmethod
    async def _write(self, action: Action[T]) -> T: ...

    @abstractmethod
    async def _read(self, action: Action[T]) -> T: ...

    @abstractmethod
    async def _together(self, action: Callable[..., list[T]], items: Sequence[Any]) -> list[T]: ...

    async def alert(self, alerts: Sequence[Alert]) -> None:
        """Raise alerts that belong to no Decision."""
        await self._together(alert, alerts)

    async def ease(self, causes: Sequence[Alert], why: str) -> None:
        """End the alerts of these causes."""
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
