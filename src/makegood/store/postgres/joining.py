"""Submitting in a transaction of somebody else, on a connection of theirs to the same database.

An error of the server would end the caller's transaction, so everything that can be asked is asked first: whether there is a
schema that we may use, whether it is the store's, and whether both questions were asked in one transaction. What is inserted
travels as one JSON text, so that drivers differ in nothing but the mark that they want for it.
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from makegood import notices
from makegood.errors import SchemaMismatchError, TransactionError
from makegood.notices import Notice
from makegood.store import migrations, rows
from makegood.store.joining import another, checked, same_kind
from makegood.store.notices import listeners, queued, received
from makegood.store.postgres.statement import AS_QUEUED, IN_ORDER, INTO_LISTENER, INTO_NOTICE, QUEUED
from makegood.store.records import Draft, Identity, Submitted
from makegood.transactions import Caller

_LOOK = """
select now()::text, current_user::text, current_setting('transaction_read_only') = 'on',
    (select oid::bigint from pg_catalog.pg_database where datname = current_database()),
    (select has_schema_privilege(n.oid, 'usage') from pg_catalog.pg_namespace n where n.nspname = 'makegood'),
    (
        select count(*) filter (where
            has_table_privilege(c.oid, 'select') and (c.relname not in ('task', 'step') or has_table_privilege(c.oid, 'insert')))
        from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
        where n.nspname = 'makegood' and c.relname in ('task', 'step', 'generation', 'schema_version')
    ),
    set_config('synchronous_commit',
        case current_setting('synchronous_commit') when 'off' then 'on' else current_setting('synchronous_commit') end, true),
    @system
"""
_SYSTEM = """
    case when has_function_privilege('pg_catalog.pg_control_system()', 'execute')
        then (select system_identifier::text from pg_catalog.pg_control_system()) end
"""
_NEEDED = 4
_WHOSE = """
select now()::text, (select max(version) from makegood.schema_version), (select store_id from makegood.generation)
"""
_GRANTS = (
    "`grant usage on schema makegood`, `grant select on all tables in schema makegood` and `grant insert on makegood.task, "
    "makegood.step`"
)
_INSERT = """
with given as materialized (select ?::text::jsonb as v),
ins as (
    insert into makegood.task (id, app, workflow, key, fingerprint, state, goal, on_failure, submission, priority, ready_seq,
        locked_by, epoch, within, undo_within, cause, failure_count, lost, task_expired, correlation_id, trace, created_at, static@told)
    select x.id, x.app, x.workflow, x.key, decode(x.fingerprint, 'base64'), 'pending', 'forward', x.on_failure, 1, x.priority,
        (extract(epoch from clock_timestamp()) * 1000000)::bigint, null, 0, x.within, x.undo_within, '', 0, 0, false, x.correlation_id, x.trace,
        extract(epoch from clock_timestamp())::float8, decode(x.static, 'base64')@as_told
    from given cross join lateral jsonb_to_recordset(given.v -> 'tasks') as x (id bigint, app text, workflow text, key text,
        fingerprint text, on_failure text, priority int, within float8, undo_within float8, correlation_id text, trace text,
        static text)
    on conflict do nothing
    returning id
),
st as (
    insert into makegood.step (task, idx, kind, name, agent, action, state, attempt, round, failure_count, asked, deaths, flags, spec)
    select x.task, x.idx, x.kind, x.name, x.agent, x.action, 'waiting', 0, 1, 0, 0, 0, 0, decode(x.spec, 'base64')
    from given cross join lateral jsonb_to_recordset(given.v -> 'steps') as x (task bigint, idx int, kind text, name text,
        agent text, action text, spec text)
    where x.task in (select id from ins)
)@notices
select id, (select count(pg_notify('makegood', 'pending')) from (select 1 from ins limit 1) one) from ins
"""
_RIGHTS = "select has_table_privilege('makegood.notice', 'insert') and has_table_privilege('makegood.listener', 'insert') and has_table_privilege('makegood.message', 'insert')"
_NOTICES = f""",
at as materialized (select extract(epoch from clock_timestamp())::float8 as now),
p_notice as (
    {INTO_NOTICE}
    from at cross join makegood.generation g cross join given
        cross join lateral jsonb_to_recordset(given.v -> 'notices') as x (task bigint, sequence int, name text, event text)
    where x.task in (select id from ins)
),
p_listener as (
    {INTO_LISTENER}
    from at cross join given
        cross join lateral jsonb_to_recordset(given.v -> 'listeners') as x (task bigint, host text, url text, first int, last int)
    where x.task in (select id from ins)
    returning 1
),
p_queued as (
    {AS_QUEUED}
    from at cross join makegood.generation g cross join given
        cross join lateral jsonb_to_recordset(given.v -> 'queued') as x (task bigint, sequence int, name text, event text, queue text,
            kind text, correlation_id text)
    where x.task in (select id from ins)
    {IN_ORDER}
    returning queue
)"""  # noqa: S608 - our own text
_RINGS = """
    + (select count(pg_notify('makegood', topic)) from (select distinct 'queue:' || queue as topic from p_queued) q)
    + (select count(pg_notify('makegood', 'notice')) from (select 1 from p_listener limit 1) one)"""
_QUIETLY = _INSERT.replace("@told", "").replace("@as_told", "").replace("@notices", "")
_TELLING = (
    _INSERT.replace("@told", ", told, notified")
    .replace("@as_told", ", x.told, case when x.told is not null then 1 end")
    .replace("static text)", "static text, told text)")
    .replace("@notices", _NOTICES)
    .replace("from (select 1 from ins limit 1) one)", f"from (select 1 from ins limit 1) one){_RINGS}")  # noqa: S608 - our own text
)
_BY_KEY = """
select x.n, t.id, t.fingerprint = decode(x.fingerprint, 'base64')
from jsonb_to_recordset(?::text::jsonb) as x (n int, key text, workflow text, app text, fingerprint text) cross join lateral (
    select t.id, t.fingerprint from makegood.task t where t.key = x.key and t.workflow = x.workflow and t.app = x.app offset 0
) t
"""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the store is: ``where`` for messages, and what tells its database from a copy of it."""

    where: str
    identity: Identity
    database: int
    system: str


async def join(caller: Caller, drafts: Sequence[Draft], place: Place) -> list[Submitted]:
    """Insert tasks with their steps; one answer per draft, in order. Whoever holds a key or an id stays as he is.

    Other processes are notified by the caller's commit. Raises ``TransactionError``, ``SchemaMismatchError``,
    ``PayloadError``, and what the caller's driver raises.
    """
    checked(drafts)
    await verify(caller, place)
    if any(d.reply_to is not None for d in drafts) and not (await caller.ask(_RIGHTS))[0][0]:
        raise TransactionError(
            "the role of connection= may not write notices for reply_to=: as their owner, `grant insert, update on "
            "makegood.notice, makegood.listener, makegood.message` to it"
        )
    return await _insert(caller, drafts)


async def verify(caller: Caller, place: Place) -> None:
    """Raise ``TransactionError`` or ``SchemaMismatchError`` for a connection that cannot carry what the store writes."""
    if caller.ours:
        return
    same_kind(caller, "postgres", place.where)
    look = _LOOK.replace("@system", _SYSTEM if place.system else "null")
    ((began, user, read_only, database, usable, rights, _, system),) = await caller.ask(look)
    elsewhere = database != place.database or (system and system != place.system)
    if elsewhere:
        raise another(f"{caller.kind} to another database", place.where)
    if usable is None:
        migrations.verify("postgres", 0, place.where)
    if not usable or rights < _NEEDED:
        raise TransactionError(
            f"the role {user} of connection= may not write makegood's tables: as their owner, {_GRANTS}, each to {user}"
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
    wanted = migrations.needed("postgres")
    if (version or 0) < wanted:  # a newer one has all that this one needs, and more
        raise SchemaMismatchError(
            f"{place.where} has schema version {version}, this makegood needs {wanted}: run `makegood store migrate` once"
        )


async def _insert(caller: Caller, drafts: Sequence[Draft]) -> list[Submitted]:
    distinct = {d.id: d for d in reversed(drafts)}  # of two with one id the later one collided
    tasks = [d for d in drafts if distinct[d.id] is d]
    given = {"tasks": [_task(d) for d in tasks], "steps": [_step(d, s) for d in tasks for s in d.steps]}
    told = [notice for d in tasks if (notice := received(d)) is not None]
    if told:
        given |= _told(told)
    created = {id_ for id_, _ in await caller.ask(_TELLING if told else _QUIETLY, _text(given))}
    caller.topics |= {"pending", "notice"} if told else {"pending"}
    answers: list[Submitted | None] = []
    left: list[dict[str, Any]] = []
    for n, d in enumerate(drafts):
        new = d.id in created
        created.discard(d.id)
        answers.append(Submitted(d.id, created=True) if new else None)
        if not new and d.key is not None:
            wanted = {"n": n, "key": d.key, "workflow": d.workflow, "app": d.app}
            left.append({**wanted, "fingerprint": _base64(d.fingerprint)})
    found = {n: (id_, same) for n, id_, same in await caller.ask(_BY_KEY, _text(left))} if left else {}
    for n, draft in enumerate(drafts):
        if answers[n] is None and n in found:
            task, same = found[n]
            answers[n] = Submitted(task, created=False, conflict=not same)
        elif answers[n] is None:
            answers[n] = Submitted(draft.id, created=False, collided=True)
    return [answer for answer in answers if answer is not None]


def _task(d: Draft) -> dict[str, Any]:
    return {
        "id": d.id, "app": d.app, "workflow": d.workflow, "key": d.key, "fingerprint": _base64(d.fingerprint),
        "on_failure": d.on_failure, "priority": d.priority, "within": d.within, "undo_within": d.undo_within,
        "correlation_id": d.correlation_id, "trace": d.trace, "static": _base64(rows.static(d.inputs, d.returns, d.reply)), "told": d.told or None,
    }  # fmt: skip


def _told(made: Sequence[Notice]) -> dict[str, list[dict[str, Any]]]:
    to_web = [n for n in made if notices.queue(n.reply.to) is None]
    named = ("task", "host", "url", "first", "last")
    return {
        "notices": [
            {
                "task": n.task,
                "sequence": n.sequence,
                "name": notices.label(n),
                "event": notices.event(n),
            }
            for n in to_web
        ],
        "listeners": [dict(zip(named, listener, strict=True)) for listener in listeners(to_web)],
        "queued": [dict(zip((column for column, _ in QUEUED), row, strict=True)) for row in queued(made)],
    }


def _step(d: Draft, s: Any) -> dict[str, Any]:
    return {
        "task": d.id, "idx": s.idx, "kind": s.kind, "name": s.name, "agent": s.agent, "action": s.action,
        "spec": _base64(rows.spec(s)),
    }  # fmt: skip


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()
