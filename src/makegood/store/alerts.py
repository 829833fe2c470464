"""Alerts and the audit: an alert is raised once per cause, ended when the cause is gone,
acknowledged, and reported.
"""

import re
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

from msgspec.structs import replace

from makegood.base.stored_values import record_of
from makegood.model.messages import UNTIL_SEEN, Act, Alert
from makegood.payload.envelopes import describe
from makegood.store import lane_lists, rows
from makegood.store.transaction import ReadTx, Sql, Tx, Verbs, for_each, reading, writing
from makegood.store.views import AlertView, AuditView, NodeInfo, Telling

_RAISE = """
insert into makegood.alert as a (kind, task, step, text, standing, ended_at, ended_why, at)
select x.kind, x.task, x.step, x.text, x.standing, case when x.standing is null then {now} end, x.over, {now} {rows}
where true
on conflict (standing) where standing is not null do update set text = excluded.text, task = excluded.task
where a.text <> excluded.text
"""
_ROW = {"kind": "text", "task": "bigint", "step": "text", "text": "text", "standing": "text", "over": "text"}
RAISE = for_each(_RAISE, **_ROW)
"""Values: ``rows.AlertRow``."""
_DEAD_LETTER = for_each(
    _RAISE.replace("where true", "where x.seq is not null"),  # SQLite refuses a value that the text does not use
    "select makegood.raise_dead_letter(x.seq) {rows}",
    **_ROW, seq="bigint",
)  # fmt: skip
_NOT_DEAD = for_each(
    "update makegood.alert set standing = null, ended_at = {now}, ended_why = x.why {rows} where standing = x.name",
    "select makegood.end_dead_letters(array[x.name], array[x.why]) {rows}",
    name="text", why="text",
)  # fmt: skip

_COLUMNS = re.sub(
    r"\b(step|text|\w+_why)\b",
    rf"substr(\1, 1, {rows.MOST_TEXT})",
    "id, kind, task, step, text, at, ended_at, ended_why, acked_at, acked_by, acked_why, logged, told, tries, acked_db_user",
)
_ENDED: Mapping[bool | None, str] = {None: "true", True: "ended_at is not null", False: "ended_at is null"}
_AMONG = Sql(f"select {_COLUMNS} from makegood.alert where id = any ($1::bigint[]) order by id")  # noqa: S608 - our own columns
_STANDING = for_each(
    "update makegood.alert set standing = null, ended_at = {now}, ended_why = x.why {rows} where standing = x.name",
    name="text", why="text",
)  # fmt: skip
_OVER = for_each(
    "update makegood.alert set standing = null, ended_at = {now}, ended_why = x.why {rows} where standing = x.name",
    """
update makegood.alert set standing = null, ended_at = {now}, ended_why = f.why
from (select a.id, x.why {rows} join makegood.alert a on a.standing = x.name for no key update of a skip locked) f
where makegood.alert.id = f.id
""",
    name="text", why="text",
)  # fmt: skip
"""As ``_STANDING``, but skips alerts that another transaction has locked: the next pass ends them."""
_ACK = Sql(
    "select id, kind, task from makegood.acknowledge_alerts($1::bigint[], $2, $3) where $4::text[] is not null",
    """
update makegood.alert set acked_at = {now}, acked_by = $2, acked_why = $3,
    standing = case when kind = any ($4::text[]) then null else standing end,
    ended_at = case when kind = any ($4::text[]) then {now} end,
    ended_why = case when kind = any ($4::text[]) then 'acknowledged' else '' end
where id = any ($1::bigint[]) and acked_at is null and ended_at is null
returning id, kind, task
""",
)
_AUDITING = """
insert into makegood.audit (act, task, kind, who, why, verdict, reason, state, change, at, db_user)
select x.act, x.task, x.kind, x.who, x.why, 'applied', x.what, x.state, $8::bytea, {now}, {login} {rows} where true
on conflict do nothing
"""
_AUDIT = for_each(
    _AUDITING.replace("{login}", "null"),
    _AUDITING.replace("{login}", "session_user"),
    act="text", task="bigint", kind="text", who="text", why="text", what="text", state="text",
)  # fmt: skip
_AUDIT_OF_LOGIN = for_each(
    _AUDITING.replace("{login}", "$9::text"),
    act="text", task="bigint", kind="text", who="text", why="text", what="text", state="text",
)  # fmt: skip
_UNLOGGED = f"""
select {_COLUMNS} from makegood.alert where logged = 0 or (logged = 1 and ended_at is not null) order by id limit $1
"""  # noqa: S608 - our own columns
_UNTOLD = f"""
select {_COLUMNS} from makegood.alert
where at > {{now}} - $1::float8 and (told = 0 or (told = 1 and ended_at is not null)) and coalesce(tell_at, 0) <= {{now}}
order by at, id limit $2
"""  # noqa: S608 - our own columns
_ANY_UNLOGGED, _ANY_UNTOLD = Sql(_UNLOGGED), Sql(_UNTOLD)
_ALONE = "for no key update skip locked"
_UNLOGGED_ALONE, _UNTOLD_ALONE = Sql(_UNLOGGED + _ALONE), Sql(_UNTOLD + _ALONE)
_LOGGED = for_each(
    "update makegood.alert set logged = x.logged {rows} where makegood.alert.id = x.id",
    id="bigint", logged="int",
)  # fmt: skip
_HOLD = Sql("update makegood.alert set tell_at = {now} + $2::float8 where id = any ($1::bigint[])")
_TOLD = for_each(
    "update makegood.alert set told = greatest(makegood.alert.told, x.told), tell_at = null, tries = 0 {rows} where makegood.alert.id = x.id",
    id="bigint", told="int",
)  # fmt: skip
_LATER = for_each(
    "update makegood.alert set tell_at = {now} + x.wait, tries = tries + 1 {rows} where makegood.alert.id = x.id",
    id="bigint", wait="float8",
)  # fmt: skip
_AUDITED = """
select act, task, kind, who, why, verdict, reason, state, at, case when octet_length(change) <= $9 then change end, db_user from (
    select * from makegood.audit where {of} and ($2::float8 is null or at < $2 or (at = $2 and act > $3))
    order by at desc, act limit $5
) latest
where ($6::text is null or who = $6) and ($7::text is null or kind = $7)
    and ($8::text is null or act = $8 or substr(act, 1, length($8) + 1) = $8 || '/')
order by at desc, act limit $4
"""
_AUDITED_ALL = Sql(_AUDITED.replace("{of}", "$1::bigint is null"))
_AUDITED_TASK = Sql(_AUDITED.replace("{of}", "task = $1::bigint"))
AUDIT_LOOKED = 20_000
"""Operator commands, the newest, among which those are looked for that match."""
LIVING = Sql(
    "select info from makegood.node where not dead and stopped_at is null and alive_until > (select {now})"
)
_UNCLAIMED = """
select 1 from makegood.task where state = 'pending' and locked_by is null and priority in (0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
    and ready_seq < (((select {now}) - $2::float8) * 1000000)::bigint
"""
UNCLAIMED = Sql(_UNCLAIMED)
_KINDS_SQL = ", ".join(f"'{kind}'" for kind in rows.GONE)
_IN_ERROR = 10_000
"""Tasks in error, the newest, of which the lanes are looked at."""
_BLOCKING = f"""
from (select id from makegood.task where state = 'error' order by id desc limit {_IN_ERROR}) t
    join makegood.lane l on l.task = t.id and l.state = 'held'
where exists (select 1 from makegood.lane w where w.app = l.app and w.name = l.name and w.state = 'waiting')
"""  # noqa: S608 - our own numbers
BLOCKING = Sql(f"select l.task, l.app, l.name {_BLOCKING} order by l.task desc, l.name limit $1")
WATCHED = Sql(f"""
select * from (
    select standing, {{now}} - at as age, text from makegood.alert
    where ended_at is null and standing is not null and kind in ({_KINDS_SQL})
    order by id limit $1
) a
union all select '{rows.UNCLAIMED}', 0, ''
where exists ({_UNCLAIMED})
and not exists (
    select 1 from makegood.node
    where not dead and stopped_at is null and alive_until > (select {{now}}) - $2::float8 and roles like '%scheduler%'
)
and not exists (select 1 from makegood.node where alive_until > (select {{now}}) - $2::float8 and roles like '%scheduler%')
union all select '{rows.LANES_BLOCKED}', 0, ''
where exists (select 1 from makegood.lane where state = 'waiting') and exists (select 1 {_BLOCKING})
""")  # noqa: S608 - our own text
_STARVES = for_each(
    """
select x.name {rows} where exists (
    select 1 from makegood.request r
    where r.agent = x.agent and r.action = x.action and r.taken_by is null and r.kind <> 'timer' and r.starved
)
""",
    name="text", agent="text", action="text",
)  # fmt: skip
_SCHEDULES = for_each(
    "select x.name {rows} where exists (select 1 from makegood.schedule s where s.app = x.app and s.name = x.schedule)",
    name="text", app="text", schedule="text",
)  # fmt: skip
RECEIVERS = for_each(
    f"""
select x.name {{rows}} where {" or ".join(
        f"exists (select 1 from makegood.listener l where l.dead = {dead} and l.host = x.host and l.tries > 0 and (x.url = '' or l.url = x.url))"
        for dead in ("false", "true")
    )}
""",  # noqa: S608 - our own text
    name="text", host="text", url="text",
)  # fmt: skip
WAITS = Sql(
    "select task from makegood.request where taken_by is null and kind <> 'timer' and agent = $1 limit $2"
)
_UNDER_WAY = Sql("select task from makegood.request where task = any ($1::bigint[])")

TOLD_WITHIN = 86_400.0
"""Seconds after which an alert is no longer sent to a webhook: a webhook set up today
hears nothing of last year.
"""


async def raise_(tx: Tx, alerts: Sequence[rows.AlertRow]) -> None:
    """Write alerts; an open alert of the same cause gets the new text."""
    await tx.many(RAISE, alerts)


async def alert(tx: Tx, alerts: Sequence[Alert]) -> None:
    """Raise alerts that belong to no Decision (such as "no leader"); an open alert of the same
    cause gets the new text.
    """
    await raise_(tx, rows.alerts(alerts))


async def dead_letters(tx: Tx, letters: Sequence[tuple[int, Alert]]) -> None:
    """Raise alerts of messages that have become dead letters: their ``seq``, and the alert.

    On PostgreSQL the database makes the text, from the message: a role that may write messages cannot write
    to operators as it likes.
    """
    await tx.many(_DEAD_LETTER, [(*rows.alerts([alert_])[0], seq) for seq, alert_ in letters])


async def not_dead(tx: Tx, causes: Sequence[Alert], reason: str) -> None:
    """End the alerts of dead letters that an operator has dealt with."""
    names = sorted({rows.cause(a.kind, a.task, a.step) for a in causes})
    await tx.many(_NOT_DEAD, [(name, reason) for name in names])


async def ease(tx: Tx, causes: Sequence[Alert], reason: str) -> None:
    """End the open alerts of these causes (kind, task, step); causes without an
    open alert are ignored.
    """
    names = sorted({rows.cause(a.kind, a.task, a.step) for a in causes})
    await tx.many(_STANDING, [(name, reason) for name in names])


async def views(
    tx: ReadTx,
    limit: int = 100,
    task: int | None = None,
    *,
    ended: bool | None = None,
    kind: str | None = None,
) -> list[AlertView]:
    """Return alerts, newest first, of any task and kind, or of one.

    ``ended=True``: only alerts that have ended. ``ended=False``: only those that have not,
    unacknowledged ones first.
    """
    values = {name: value for name, value in (("task", task), ("kind", kind)) if value is not None}
    where = " and ".join([_ENDED[ended], *(f"{name} = ${n}" for n, name in enumerate(values, 2))])
    order = "acked_at is not null, id desc" if ended is False else "id desc"
    sql = Sql(f"select {_COLUMNS} from makegood.alert where {where} order by {order} limit $1")  # noqa: S608 - our own text
    return _views(await tx.rows(sql, limit, *values.values()))


def _views(records: Sequence[Any]) -> list[AlertView]:
    """Return alerts with what is encoded in their texts described: they go to people who lack the codec."""
    views = [record_of(AlertView, row) for row in records]
    return [replace(view, text=describe(view.text)) for view in views]


async def acknowledge(tx: Tx, ids: Sequence[int], act: Act) -> dict[int, AlertView]:
    """Acknowledge open alerts and audit each; return all existing alerts among ``ids`` as they are now.

    ``acked_by`` names the first to acknowledge. Acknowledging also ends alerts about past
    events (``UNTIL_SEEN``).
    """
    alert_ids = list(ids)
    acks = await tx.rows(_ACK, alert_ids, act.who, act.why, list(UNTIL_SEEN))
    objects = [(id_, task, f"alert {id_}: {kind}") for id_, kind, task in sorted(acks, key=itemgetter(0))]
    await write_audit(tx, rows.audit_rows(act, "acknowledge", "acknowledged", objects))
    return {view.id: view for view in _views(await tx.rows(_AMONG, alert_ids))}


async def note_look(tx: Tx, act: Act, task: int, what: str) -> None:
    """Keep in the audit that an operator saw what is covered for others: ``what`` of a task."""
    await write_audit(tx, rows.audit_rows(act, "look", "seen", [("look", task, what)]))


async def write_audit(tx: Tx, audit_rows: Sequence[rows.AuditRow], change: bytes | None = None) -> None:
    """Write operator commands of this transaction, and what they replaced, to the audit."""
    await tx.many(_AUDIT, audit_rows, change)


async def write_audit_of_login(tx: Tx, audit_rows: Sequence[rows.AuditRow], db_user: str) -> None:
    """Write commands that this transaction carries out for an operator with another login to the audit."""
    await tx.many(_AUDIT_OF_LOGIN, audit_rows, None, db_user or None)


async def take_unlogged(tx: Tx, limit: int) -> list[Telling]:
    """Return alerts that no process has logged, and mark them as logged."""
    alerts = _views(await tx.rows(_UNLOGGED_ALONE, limit))
    await tx.many(_LOGGED, [(view.id, 1 if view.ended is None else 2) for view in alerts])
    return [Telling(view, is_start=view.logged == 0) for view in alerts]


async def untold(tx: Tx, hold: float, limit: int) -> list[Telling]:
    """Return alerts of the last day that no webhook has received, oldest first; reserve
    them for ``hold`` seconds.
    """
    alerts = _views(await tx.rows(_UNTOLD_ALONE, TOLD_WITHIN, limit))
    if alerts:
        await tx.run(_HOLD, [view.id for view in alerts], hold)
    return [Telling(view, is_start=view.told == 0, tries=view.tries) for view in alerts]


async def told(tx: Tx, tellings: Sequence[Telling], delays: Mapping[int, float]) -> None:
    """Record which alerts were delivered; ``delays`` maps ids of alerts to retry to seconds from now."""
    await tx.many(_TOLD, [(t.alert.id, 1 if t.alert.ended is None else 2) for t in tellings])
    await tx.many(_LATER, list(delays.items()))


async def audit(
    tx: ReadTx,
    limit: int = 100,
    task: int | None = None,
    *,
    before: float | None = None,
    beyond: str | None = None,
    who: str | None = None,
    kind: str | None = None,
    act: str | None = None,
    change: int = 2**31 - 1,
) -> list[AuditView]:
    """Return operator commands, newest first; of the same time, by the ids of their requests.

    ``before``: only those before this point in time, and with ``beyond`` those of that time behind this
    request. ``who``, ``kind`` and ``act`` (the id of a request: with all commands of a bulk act) are looked
    for among the latest 20,000. ``change``: bytes above which what a command replaced is left out.
    """
    scan_limit = limit if (who, kind, act) == (None, None, None) else AUDIT_LOOKED
    sql = _AUDITED_ALL if task is None else _AUDITED_TASK
    records = await tx.rows(sql, task, before, beyond, limit, scan_limit, who, kind, act, change)
    return [record_of(AuditView, (row[0], row[1] or None, *tuple(row)[2:])) for row in records]


async def watch(tx: Tx, after: float, limit: int, outage: float) -> None:
    """Raise and end the alerts about waiting tasks.

    Raises one alert if tasks have waited for ``after`` seconds and no Scheduler was alive in that time, and
    one for each task in error that holds a lane for which others wait. Raises one alert that names the tasks
    that wait for an agent whose circuit has been open for ``outage`` seconds. Ends alerts about actions whose
    requests are claimed again, about circuits that have closed, about lanes for which nobody waits any more,
    about receivers for which no notice waits after a failure, and about a missing Scheduler or leader that is
    back.
    """
    names = {name: (age, text) for name, age, text in await tx.rows(WATCHED, limit, after)}
    if not names:
        return
    starving = [(name, *rows.starving_of(name)) for name in names if name.startswith("starved")]
    still: set[str] = {name for (name,) in await tx.each(_STARVES, starving)}
    troubles = [(name, *rows.schedule_of(name)) for name in names if name.startswith("schedule ")]
    still |= {name for (name,) in await tx.each(_SCHEDULES, troubles)}
    receivers = [(name, *rows.receiver_of(name)) for name in names if name.startswith("receiver_away ")]
    still |= {name for (name,) in await tx.each(RECEIVERS, receivers)}
    alert_rows: list[rows.AlertRow] = []
    infos = await living(tx) if any(name.startswith("circuit_open") for name in names) else ()
    for agent in rows.shut(infos):
        opening = rows.cause("circuit_open", 0, agent)
        still.add(opening)
        if opening in names and names[opening][0] > outage:
            waiting = [task for (task,) in await tx.rows(WAITS, agent, rows.COUNTED + 1)]
            if failing := rows.failing(infos, agent):  # they rest between two attempts, or run
                waiting += [task for (task,) in await tx.rows(_UNDER_WAY, failing)]
            out, over = rows.outage_alert(agent, waiting, outage), rows.cause("outage", 0, agent)
            still.add(over)
            if waiting and not (over in names and names[over][1] == out[3]):
                alert_rows.append(out)
    if rows.UNCLAIMED in names:
        unclaimed_rows = rows.no_scheduler_alerts(after)
        still |= {rows.UNCLAIMED, *(row[4] or "" for row in unclaimed_rows)}
        alert_rows += [row for row in unclaimed_rows if row[4] not in names]
    if rows.LANES_BLOCKED in names:
        lane_rows = await _lane_rows(tx, limit)
        still |= {row[4] or "" for row in lane_rows}
        if len(lane_rows) >= limit:  # others may block lanes too
            still |= {name for name in names if name.startswith("lane_held")}
        alert_rows += [row for row in lane_rows if names.get(row[4] or "", (0.0, ""))[1] != row[3]]
    await raise_(tx, alert_rows)
    await tx.many(_OVER, [(name, rows.end_reason(name)) for name in names if name not in still])


async def _lane_rows(tx: ReadTx, limit: int) -> list[rows.AlertRow]:
    """Return an alert for each task in error that holds a lane for which others wait."""
    by_task: dict[int, list[tuple[str, str]]] = {}
    for task, app, name in await tx.rows(BLOCKING, 10 * limit):
        by_task.setdefault(task, []).append((app, name))
    lanes = sorted({lane for of_task in by_task.values() for lane in of_task})
    waiting = await lane_lists.first_waiting(tx, lanes)
    return [
        rows.lane_alert(task, [(name, *waiting[app, name]) for app, name in of_task])
        for task, of_task in list(by_task.items())[:limit]
    ]


async def living(tx: ReadTx) -> list[NodeInfo]:
    """Return what the processes that are alive publish about themselves."""
    return [rows.node_info(info) for (info,) in await tx.rows(LIVING)]


async def _any_unlogged(tx: ReadTx, limit: int) -> bool:
    return bool(await tx.rows(_ANY_UNLOGGED, min(limit, 1)))


async def _any_untold(tx: ReadTx, hold: float, limit: int) -> bool:  # noqa: ARG001 - as the verb is called
    return bool(await tx.rows(_ANY_UNTOLD, TOLD_WITHIN, min(limit, 1)))


class AlertVerbs(Verbs):
    """Alerts to operators, and the audit of what operators did.

    An alert has a cause: (kind, task, step). While the alert is open, its cause raises no second one.
    """

    alert = writing(alert)
    ease = writing(ease)
    views = reading(views)
    acknowledge = writing(acknowledge)
    note_look = writing(note_look)
    take_unlogged = writing(take_unlogged, looks=_any_unlogged, otherwise=[])
    untold = writing(untold, looks=_any_untold, otherwise=[])
    told = writing(told)
