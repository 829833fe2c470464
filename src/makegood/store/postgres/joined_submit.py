"""Submitting in a caller's transaction, on the caller's connection to the same database.

An error of the server would end the caller's transaction, so every condition is checked first: whether there
is a schema that we may use, whether it is the store's, and whether both checks ran in one transaction. The
rows to insert are sent as one JSON text, so that drivers differ only in their parameter mark.

The caller's search path does not change. Every operator, function and type in a statement here names the
server's own schema, so that one defined in another schema is never used.
"""

import base64
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from makegood.base.wall_times import AHEAD
from makegood.errors import TransactionError
from makegood.model import notices
from makegood.model.notices import Notice, topic_of
from makegood.model.plan import Start
from makegood.store import migrations, rows
from makegood.store.joined_checks import another, check_drafts, current, places, same_kind, topics_of
from makegood.store.notice_records import first_notice, listeners, queue_notice_rows
from makegood.store.postgres.commit_statement import (
    AS_QUEUED,
    CAT,
    EQ,
    EXACT_NOW,
    IN_ORDER,
    INTO_LISTENER,
    INTO_NOTICE,
    LISTENER,
    NOTICE,
    PLUS,
    QUEUED,
    Columns,
)
from makegood.store.records import Identity, Submission, Submitted
from makegood.transactions import Caller

_T, _F = "pg_catalog.text", "pg_catalog.float8"
_OF = "given.v operator(pg_catalog.->) "
# One moment for all that is written of a task. With a clock for each column it could sleep without a start;
# with one for each lane it could be before some task in one and behind it in another: both would wait.
_AT = f"at as materialized (select {EXACT_NOW} as now)"
_START = f"coalesce(at.now {PLUS} x.delay, x.start_at)"
_AHEAD = f"case when x.start_wall operator(pg_catalog.<>) '' and x.start_at operator(pg_catalog.>) (at.now {PLUS} {AHEAD}) then {AHEAD} else 0 end"
_SLEEPS = f"coalesce({_START} operator(pg_catalog.>) at.now or (x.laned and {_START} is not null), false)"
_NEW = f"exists (select 1 from ins where ins.id {EQ} x.task)"  # noqa: S608 - our own text
_LOOK = f"""
select pg_catalog.now()::pg_catalog.text, current_user::pg_catalog.text,
    pg_catalog.current_setting('transaction_read_only') {EQ} 'on',
    (select oid::bigint from pg_catalog.pg_database where datname {EQ} pg_catalog.current_database()),
    (select pg_catalog.has_schema_privilege(n.oid, 'usage') from pg_catalog.pg_namespace n where n.nspname {EQ} 'makegood'),
    (
        select pg_catalog.count(*) filter (where pg_catalog.has_table_privilege(c.oid, 'select')
            and (not (c.relname {EQ} any ('{{task,step}}'::pg_catalog.name[])) or pg_catalog.has_any_column_privilege(c.oid, 'insert')))
        from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid {EQ} c.relnamespace
        where n.nspname {EQ} 'makegood' and c.relname {EQ} any ('{{task,step,generation,schema_version}}'::pg_catalog.name[])
    ),
    pg_catalog.set_config('synchronous_commit', case when pg_catalog.current_setting('synchronous_commit') {EQ} 'off' then 'on'
        else pg_catalog.current_setting('synchronous_commit') end, true),
    @system
"""  # noqa: S608 - our own text
_SYSTEM = """
    case when pg_catalog.has_function_privilege('pg_catalog.pg_control_system()', 'execute')
        then (select system_identifier::pg_catalog.text from pg_catalog.pg_control_system()) end
"""
_NEEDED = 4
_WHOSE = """
select pg_catalog.now()::pg_catalog.text, (select pg_catalog.max(version) from makegood.schema_version),
    (select store_id from makegood.generation)
"""
_GRANTS = (
    "`grant usage on schema makegood`, `grant select on all tables in schema makegood` and `grant insert on makegood.task, "
    "makegood.step`"
)
_INSERT = f"""
with given as materialized (select ?::pg_catalog.text::pg_catalog.jsonb as v),
{_AT},
ins as (
    insert into makegood.task (id, app, workflow, key, fingerprint, state, goal, on_failure, submission, priority, ready_seq,
        locked_by, epoch, within, undo_within, cause, failure_count, lost, task_expired, correlation_id, trace, created_at, static, start_at, start_wall@told)
    select x.id, x.app, x.workflow, x.key, pg_catalog.decode(x.fingerprint, 'base64'), case when {_SLEEPS} then 'sleeping' when x.laned then 'queued' else 'pending' end, 'forward', x.on_failure, 1, x.priority,
        case when {_SLEEPS} then (({_START} operator(pg_catalog.-) {_AHEAD}) operator(pg_catalog.*) 1000000::{_F})::bigint
            else (extract(epoch from pg_catalog.clock_timestamp()) operator(pg_catalog.*) 1000000::numeric)::bigint end, null, 0, x.within, x.undo_within, '', 0, 0, false,
        x.correlation_id, x.trace, at.now, pg_catalog.decode(x.static, 'base64'),
        case when {_SLEEPS} then {_START} end, case when {_SLEEPS} then x.start_wall end@as_told
    from at cross join given cross join lateral pg_catalog.jsonb_to_recordset({_OF}'tasks') as x (id bigint, app {_T}, workflow {_T}, key {_T},
        fingerprint {_T}, on_failure {_T}, priority int, within {_F}, undo_within {_F}, correlation_id {_T}, trace {_T},
        static {_T}, delay {_F}, start_at {_F}, start_wall {_T}, laned boolean@and_told)
    on conflict do nothing
    returning id, state
),
st as (
    insert into makegood.step (task, idx, kind, name, agent, action, state, attempt, round, failure_count, asked, deaths, flags, spec)
    select x.task, x.idx, x.kind, x.name, x.agent, x.action, 'waiting', 0, 1, 0, 0, 0, 0, pg_catalog.decode(x.spec, 'base64')
    from given cross join lateral pg_catalog.jsonb_to_recordset({_OF}'steps') as x (task bigint, idx int, kind {_T}, name {_T},
        agent {_T}, action {_T}, spec {_T})
    where {_NEW}
)@attributes@lanes@notices
select id, (select pg_catalog.count(pg_catalog.pg_notify('makegood', state)) from (select distinct state from ins) s)@rings from ins
"""  # noqa: S608 - our own text
_PLACE = ("task", "app", "name", "n", "at_once", "when_taken", "state")
_RIGHTS = """
select pg_catalog.has_any_column_privilege('makegood.notice', 'insert')
    and pg_catalog.has_any_column_privilege('makegood.listener', 'insert')
    and pg_catalog.has_any_column_privilege('makegood.message', 'insert')
"""
_NOTICES = f""",
p_notice as (
    {INTO_NOTICE}
    from at cross join makegood.generation g cross join given
        cross join lateral pg_catalog.jsonb_to_recordset({_OF}'notices') as x (task bigint, sequence int, name {_T}, event {_T})
    where {_NEW}
),
p_listener as (
    {INTO_LISTENER}
    from at cross join given
        cross join lateral pg_catalog.jsonb_to_recordset({_OF}'listeners') as x (task bigint, host {_T}, url {_T}, first int, last int)
    where {_NEW}
    returning 1
),
p_queued as (
    {AS_QUEUED}
    from at cross join makegood.generation g cross join given
        cross join lateral pg_catalog.jsonb_to_recordset({_OF}'queued') as x (task bigint, sequence int, name {_T}, event {_T},
            queue {_T}, kind {_T}, correlation_id {_T})
    where {_NEW}
    {IN_ORDER}
    returning queue
)"""
_ATTRIBUTES = f""",
attr as (
    insert into makegood.attribute (task, name, value)
    select x.task, x.name, x.value
    from given cross join lateral pg_catalog.jsonb_to_recordset({_OF}'attributes') as x (task bigint, name {_T}, value {_T})
    where {_NEW}
)"""  # noqa: S608 - our own text
_LANES = f""",
lane as (
    insert into makegood.lane (task, app, name, seq, at_once, when_taken, state)
    select x.task, x.app, x.name, (at.now operator(pg_catalog.*) 1000000::{_F})::bigint {PLUS} x.n, x.at_once, x.when_taken, x.state
    from at cross join given cross join lateral pg_catalog.jsonb_to_recordset({_OF}'lanes') as x (task bigint, n bigint, app {_T}, name {_T}, at_once int,
        when_taken {_T}, state {_T})
    where {_NEW}
)"""  # noqa: S608 - our own text
_MAY_QUEUE = "select pg_catalog.has_any_column_privilege('makegood.lane', 'insert')"
_MAY_LABEL = "select pg_catalog.has_any_column_privilege('makegood.attribute', 'insert')"
_RINGS = f"""
    {PLUS} (select pg_catalog.count(pg_catalog.pg_notify('makegood', topic)) from (select distinct 'queue:' {CAT} queue as topic from p_queued) q)
    {PLUS} (select pg_catalog.count(pg_catalog.pg_notify('makegood', 'notice')) from (select 1 from p_listener limit 1) one)"""  # noqa: S608 - our own text
_QUIETLY = (
    _INSERT.replace("@told", "")
    .replace("@as_told", "")
    .replace("@and_told", "")
    .replace("@notices", "")
    .replace("@rings", "")
)
_TELLING = (
    _INSERT.replace("@told", ", told, notified")
    .replace("@as_told", ", x.told, case when x.told is not null then 1 end")
    .replace("@and_told", f", told {_T}")
    .replace("@notices", _NOTICES)
    .replace("@rings", _RINGS)
)
_BY_KEY = f"""
select x.n, t.id,
    case when not t.fingerprint {EQ} pg_catalog.decode(x.fingerprint, 'base64') then pg_catalog.encode(t.static, 'base64') end
from pg_catalog.jsonb_to_recordset(?::pg_catalog.text::pg_catalog.jsonb)
    as x (n int, key {_T}, workflow {_T}, app {_T}, fingerprint {_T}) cross join lateral (
        select t.id, t.fingerprint, t.static from makegood.task t
        where t.key {EQ} x.key and t.workflow {EQ} x.workflow and t.app {EQ} x.app offset 0
    ) t
"""  # noqa: S608 - our own text


@dataclass(frozen=True, slots=True)
class StorePlace:
    """What a caller's connection must agree with: the identity of the store's database."""

    where: str
    """The server's name for messages."""
    identity: Identity
    """The store's identity; with the numbers below, it distinguishes the database from a copy."""
    database: int
    system: str


async def join(caller: Caller, drafts: Sequence[Submission], place: StorePlace) -> list[Submitted]:
    """Insert tasks with their steps; return one answer per draft, in order. Existing tasks with the
    key or id stay unchanged.

    The caller's commit notifies other processes. Raises ``TransactionError``, ``SchemaMismatchError``,
    ``PayloadError``, and what the caller's driver raises.
    """
    check_drafts(drafts)
    await verify(caller, place)
    if any(d.reply_to is not None for d in drafts) and not (await caller.ask(_RIGHTS))[0][0]:
        raise TransactionError(
            "the role of connection= may not write notices for reply_to=: as their owner, `grant insert on "
            "makegood.notice, makegood.listener, makegood.message` to it"
        )
    if any(d.attributes for d in drafts) and not (await caller.ask(_MAY_LABEL))[0][0]:
        raise TransactionError(
            "the role of connection= may not write attributes=: as their owner, `grant insert on makegood.attribute` to it"
        )
    if any(d.lanes.names for d in drafts) and not (await caller.ask(_MAY_QUEUE))[0][0]:
        raise TransactionError(
            "the role of connection= may not write places in lanes: as their owner, `grant insert on makegood.lane` to it"
        )
    return await _insert(caller, drafts)


async def verify(caller: Caller, place: StorePlace) -> None:
    """Raise ``TransactionError`` or ``SchemaMismatchError`` for a connection that the
    store cannot write over.
    """
    if caller.ours:
        return
    same_kind(caller, "postgres", place.where)
    look = _LOOK.replace("@system", _SYSTEM if place.system else "null")
    ((began, user, read_only, database, usable, rights, _, system),) = await caller.ask(look)
    if isinstance(began, bytes):
        raise TransactionError(
            f"connection= is {caller.kind} that speaks SQL_ASCII, over which text comes as bytes without an encoding: open it with "
            "client_encoding=utf8"
        )
    if database != place.database or (system and system != place.system):
        raise another(f"{caller.kind} to another database", place.where)
    if usable is None:
        migrations.verify("postgres", 0, place.where)  # there is no schema: raises SchemaMismatchError
    if not usable or rights < _NEEDED:
        raise TransactionError(
            f"the role {user} of connection= may not write makegood's tables: as their owner, {_GRANTS}, each to {user}; "
            "or make it a member of the submitter's role, see makegood store grants"
        )
    if read_only:
        raise TransactionError("the transaction of connection= is read-only: begin one that may write")
    ((still, version, store_id),) = await caller.ask(_WHOSE)
    if store_id != place.identity.store_id:
        raise another(f"{caller.kind} to another database, with a store of its own", place.where)
    if still != began:
        raise TransactionError(
            f"connection= is {caller.kind} that commits each statement by itself (autocommit): open a transaction on it first, "
            "and commit that"
        )
    current("postgres", version, place.where)


async def _insert(caller: Caller, drafts: Sequence[Submission]) -> list[Submitted]:
    distinct = {d.id: d for d in reversed(drafts)}  # of two drafts with one id, the later collided
    tasks = [d for d in drafts if distinct[d.id] is d]
    values = {"tasks": [_task(d) for d in tasks], "steps": [step for d in tasks for step in _steps(d)]}
    first_notices = [notice for d in tasks if (notice := first_notice(d)) is not None]
    if first_notices:
        values |= _notice_columns(first_notices)
    attributes = [{"task": d.id, "name": name, "value": value} for d in tasks for name, value in d.attributes]
    if attributes:
        values["attributes"] = attributes
    lanes = [dict(zip(_PLACE, place, strict=True)) for n, d in enumerate(tasks) for place in places(d, n)]
    if lanes:
        values["lanes"] = lanes
    sql = (_TELLING if first_notices else _QUIETLY).replace("@attributes", _ATTRIBUTES if attributes else "")
    sql = sql.replace("@lanes", _LANES if lanes else "")
    new_ids = {id_ for id_, _ in await caller.ask(sql, _text(values))}
    caller.topics |= topics_of(tasks)
    caller.topics |= {topic_of(notice.reply.to) for notice in first_notices}
    answers: list[Submitted | None] = []
    left: list[dict[str, Any]] = []
    for n, d in enumerate(drafts):
        new = d.id in new_ids
        new_ids.discard(d.id)
        answers.append(Submitted(d.id, is_new=True) if new else None)
        if not new and d.key is not None:
            lookup = {"n": n, "key": d.key, "workflow": d.workflow, "app": d.app}
            left.append({**lookup, "fingerprint": _base64(d.fingerprint)})
    matches = (
        {n: (id_, fingerprint) for n, id_, fingerprint in await caller.ask(_BY_KEY, _text(left))}
        if left
        else {}
    )
    for n, draft in enumerate(drafts):
        if answers[n] is None and n in matches:
            task, fingerprint = matches[n]
            answers[n] = rows.duplicate_answer(
                task, None if fingerprint is None else base64.b64decode(fingerprint)
            )
        elif answers[n] is None:
            answers[n] = Submitted(draft.id, is_new=False, key_collision=True)
    return [answer for answer in answers if answer is not None]


def _task(d: Submission) -> dict[str, Any]:
    return {
        "id": d.id, "app": d.app, "workflow": d.workflow, "key": d.key, "fingerprint": _base64(d.fingerprint),
        "on_failure": d.on_failure, "priority": d.priority, "within": d.within, "undo_within": d.undo_within,
        "correlation_id": d.correlation_id, "trace": d.trace, "static": _base64(rows.static(d.inputs, d.returns, d.reply, d.names, d.signals, lanes=d.lanes.names)), "told": d.told or None,
        **({"laned": True} if d.lanes.names else {}),
        **({} if d.start is None else _start(d.start)),
    }  # fmt: skip


def _start(start: Start) -> dict[str, Any]:
    return (
        {"delay": start.delay}
        if start.delay is not None
        else {"start_at": start.at, "start_wall": start.wall}
    )


def _notice_columns(first_notices: Sequence[Notice]) -> dict[str, list[dict[str, Any]]]:
    to_web = [n for n in first_notices if notices.queue(n.reply.to) is None]

    def as_dicts(columns: Columns, values: Iterable[Sequence[Any]]) -> list[dict[str, Any]]:
        return [dict(zip((name for name, _ in columns), row, strict=True)) for row in values]

    texts = [(n.task, n.sequence, notices.label(n), notices.event(n)) for n in to_web]
    return {
        "notices": as_dicts(NOTICE, texts),
        "listeners": as_dicts(LISTENER, listeners(to_web)),
        "queued": as_dicts(QUEUED, queue_notice_rows(first_notices)),
    }


def _steps(d: Submission) -> list[dict[str, Any]]:
    return [
        {
            "task": d.id, "idx": s.idx, "kind": s.kind, "name": s.name, "agent": s.agent, "action": s.action,
            "spec": _base64(spec),
        }
        for s, spec in zip(d.steps, d.steps.specs, strict=True)
    ]  # fmt: skip


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _text(value: Any) -> str:
    """Return a value as JSON, in ASCII: the encoding of the caller's connection may lack characters."""
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))
