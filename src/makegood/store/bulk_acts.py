"""Acts on many tasks: rows that the leading Supervisor works off in batches of ordinary operator commands.

One transaction reads what became of the commands sent before, sends the next, and moves the cursor. So an act
continues where it was after a restart or a change of leader, and sends each task one command. It begins with
the newest task that was there when it was requested.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec

from makegood.base.ids import show
from makegood.base.stored_values import record_of, text, whole
from makegood.errors import ActRefusedError, SignalRefused
from makegood.model.messages import Act, TaskMessage
from makegood.payload.codec import UNREADABLE
from makegood.payload.envelopes import app_of_signal, is_encoded
from makegood.store import alerts, rows, signals, task_lists
from makegood.store.filters import text_of
from makegood.store.oversight_records import BulkKind, BulkRefusal, BulkView
from makegood.store.transaction import ReadTx, Sql, Tx, for_each
from makegood.store.views import Filter

OUTSTANDING = 200
"""Undecided commands that an act may have."""

KEPT_REFUSALS = 1000
"""Refusals of an act that are kept one by one."""

ENDS_READ = 10_000
"""Commands of an act whose tasks are looked at: the latest."""

KEPT_ACTS = 1000
"""Ended acts that are kept."""

_filter = msgspec.json.Decoder(Filter).decode
_COLUMNS = "id, kind, wanted, who, why, counted, most, rate, state, at, ended_at, sent, applied, noop, refused, stopped_by, more, coalesce(signal, '')"
_REQUESTED = """
insert into makegood.bulk_act (id, kind, wanted, who, why, db_user, counted, most, rate, state, at, cursor, free_at, sent, applied,
    noop, refused, stopped_by, more, signal, value)
select $1::text, $2::text, $3::bytea, $4::text, $5::text, {login}, $6::bigint, $7::bigint, $8::float8, 'running', {now},
    coalesce(max(id), 0) + 1, 0, 0, 0, 0, 0, '', $9::boolean, $10::text, $11::bytea from makegood.task where true
on conflict (id) do nothing returning id
"""
_REQUEST = Sql(_REQUESTED.replace("{login}", "session_user"), _REQUESTED.replace("{login}", "null"))
_VALUE = Sql("select value from makegood.bulk_act where id = $1")
_OLDEST_KEPT = Sql("select at from makegood.bulk_act order by at desc limit 1 offset $1::bigint")
_FORGET_ITEMS = Sql("""
delete from makegood.bulk_item where bulk in (select id from makegood.bulk_act where at <= $1::float8 and ended_at is not null)
""")
_FORGET = Sql("delete from makegood.bulk_act where at <= $1::float8 and ended_at is not null")
_VIEW = Sql(f"select {_COLUMNS} from makegood.bulk_act where id = $1")  # noqa: S608 - our own columns
_VIEWS = Sql(f"select {_COLUMNS} from makegood.bulk_act order by at desc, id limit $1")  # noqa: S608 - our own columns
_REFUSALS = Sql("""
select task, outcome, at from makegood.bulk_item where bulk = $1 and outcome is not null order by task desc limit $2
""")
# Each command is decided between the act's request and its end; a command's name begins with the act's.
_ENDS = Sql("""
select t.state, count(*) from (
    select a.task, a.act, a.verdict from makegood.bulk_act b join makegood.audit a on a.at >= b.at and a.at <= coalesce(b.ended_at + 60, a.at)
    where b.id = $1 order by a.at desc limit $2
) a join makegood.task t on t.id = a.task
where a.verdict = 'applied' and substr(a.act, 1, length($1) + 1) = $1 || '/' group by t.state
""")
_STOP = Sql(
    "select makegood.stop_bulk_act($1, $2)",
    "update makegood.bulk_act set state = 'stopping', stopped_by = $2 where id = $1 and state = 'running' returning id",
)
_OPEN = Sql("select id from makegood.bulk_act where ended_at is null order by at, id limit $1")
_LOCKED = Sql("""
select kind, wanted, who, why, db_user, most, rate, state, {now} - at, cursor, greatest(free_at - {now}, -1), signal, value, sent, applied, noop,
    refused
from makegood.bulk_act where id = $1 and ended_at is null for update skip locked
""")
_DECIDED = Sql("""
select i.task, a.verdict, a.reason, t.id from makegood.bulk_item i
    left join makegood.audit a on a.act = i.act left join makegood.task t on t.id = i.task
where i.bulk = $1 and i.outcome is null
""")
_SETTLED = Sql("delete from makegood.bulk_item where bulk = $1 and task = any ($2::bigint[])")
_REFUSED = for_each(
    "update makegood.bulk_item set outcome = x.outcome, at = {now} {rows} where makegood.bulk_item.bulk = x.bulk and makegood.bulk_item.task = x.task",
    bulk="text", task="bigint", outcome="text",
)  # fmt: skip
_ITEM = for_each(
    "insert into makegood.bulk_item (bulk, task, act, at) select x.bulk, x.task, x.act, {now} {rows}",
    bulk="text", task="bigint", act="text",
)  # fmt: skip
_NOT_SENT = for_each(
    "insert into makegood.bulk_item (bulk, task, act, outcome, at) select x.bulk, x.task, x.act, x.outcome, {now} {rows} where true "
    "on conflict do nothing",
    bulk="text", task="bigint", act="text", outcome="text",
)  # fmt: skip
_POST = for_each(
    "insert into makegood.inbox (task, kind, at, body, db_user) select x.task, x.kind, {now}, x.body, x.db_user {rows}",
    task="bigint", kind="text", body="bytea", db_user="text",
)  # fmt: skip
_MOVED = Sql("""
update makegood.bulk_act set cursor = $2, free_at = {now} + $3::float8, sent = $4, applied = $5, noop = $6, refused = $7, state = $8,
    ended_at = case when $9::boolean then {now} end
where id = $1
""")


async def bulk(
    tx: Tx,
    act: Act,
    kind: BulkKind,
    condition: Filter,
    *,
    most: int | None = None,
    rate: float | None = None,
    signal: tuple[str, bytes] | None = None,
) -> BulkView:
    """Request an act on all tasks that match now, and audit it. ``signal``: the name of the signal that it
    sends, and its value as JSON.

    The leading Supervisor sends each task an ordinary operator command, newest task first: ``most`` tasks
    at most, ``rate`` a second at most. The id of ``act`` names it: a second request under the id changes
    nothing, and raises ``ActRefusedError`` if it asks for something else.
    """
    content = signal or (None, None)
    matching = await task_lists.tally(tx, condition)
    total = matching.count if most is None else min(matching.count, most)
    is_partial = matching.more and (most is None or total < most)
    is_new = await tx.rows(
        _REQUEST,
        act.id,
        kind,
        msgspec.json.encode(condition),
        act.who,
        act.why,
        total,
        most,
        rate,
        is_partial,
        *content,
    )
    if not is_new:
        return await _existing_act(tx, act.id, (kind, condition, most, rate), content)
    outcome = f"{'1 task matches' if total == 1 else f'{total} tasks match'}{', perhaps more' if is_partial else ''}: {text_of(condition)}"
    await alerts.write_audit(tx, rows.act_row(act, f"bulk {kind}", outcome, "running"))
    tx.topics.add("bulk")
    (row,) = await tx.rows(_VIEW, act.id)
    return _view(row)


async def _existing_act(
    tx: Tx, id_: str, request: tuple[Any, ...], content: tuple[str | None, bytes | None]
) -> BulkView:
    """Return the act that has an id already. Raises ``ActRefusedError`` if it is another one, and
    ``SignalRefused`` if it has an encoded value, with which only another one can be compared.
    """
    (row,) = await tx.rows(_VIEW, id_)
    ((value,),) = await tx.rows(_VALUE, id_)
    view, value = _view(row), value and bytes(value)
    before = (view.kind, view.wanted, view.limit, view.rate), view.signal or None, value
    name, new_value = content
    if name is not None and new_value is not None and is_encoded(value) and not is_encoded(new_value):
        app = app_of_signal(value)
        raise SignalRefused(
            f"the command on many tasks {id_!r} was requested before, with a value that the codec of app {app!r} encoded, and this process "
            f"has no codec of it, to compare the two: pass mg.Client(codec=...), or --check MODULE:APP; nothing was sent",
            signal=name,
            app=app,
            takes_encoded=True,
        )
    if before != (request, *content):
        raise ActRefusedError(
            f"the command on many tasks {id_!r} was requested before, with another command, filter, value, limit or rate: "
            "nothing was sent; give this one another id",
            act=f"bulk {request[0]}",
            state=view.state,
        )
    return view


async def stop_bulk(tx: Tx, id: str, act: Act) -> BulkView | None:  # noqa: A002 - what it is
    """Let an act send no more commands, and audit it. Returns it as it is now, None if it does not
    exist.
    """
    if await tx.rows(_STOP, id, act.who):
        await alerts.write_audit(tx, rows.act_row(act, "bulk stop", f"bulk act {id} stops", "stopping"))
        tx.topics.add("bulk")
    return await bulk_act(tx, id)


async def bulk_acts(tx: ReadTx, limit: int = 50) -> list[BulkView]:
    """Return the latest acts on many tasks, newest first."""
    return [_view(row) for row in await tx.rows(_VIEWS, limit)]


async def bulk_act(tx: ReadTx, id: str) -> BulkView | None:  # noqa: A002 - what it is
    """Return an act on many tasks, None if it does not exist."""
    for row in await tx.rows(_VIEW, id):
        return _view(row)
    return None


def _view(row: Sequence[Any]) -> BulkView:
    id_, kind, data, *columns = row
    *columns, is_partial, signal = columns
    condition = rows.try_read(_filter, data, "its filter", []) or Filter(ids=(0,))
    return record_of(BulkView, (id_, kind, condition, *columns, is_partial, signal))


async def bulk_refusals(tx: ReadTx, id: str, limit: int = 100) -> list[BulkRefusal]:  # noqa: A002 - what it is
    """Return tasks that refused the command of an act: of the first thousand, the newest ``limit``."""
    return [record_of(BulkRefusal, row) for row in await tx.rows(_REFUSALS, id, limit)]


async def bulk_ends(tx: ReadTx, id: str) -> dict[str, int]:  # noqa: A002 - what it is
    """Return how many tasks that accepted the command of an act are in each state now, of the latest."""
    return {text(state): whole(n) for state, n in await tx.rows(_ENDS, id, ENDS_READ)}


async def open_bulk_acts(tx: ReadTx, limit: int) -> list[str]:
    """Return the acts that have not ended, oldest first."""
    return [id_ for (id_,) in await tx.rows(_OPEN, limit)]


async def advance_bulk(tx: Tx, id: str, most: int) -> int | None:  # noqa: A002 - what it is
    """Count what became of an act's commands and send at most ``most`` more, in one commit.

    Returns how many were sent, None if the act has ended or another transaction holds it. Two
    callers never send a task the same command.
    """
    locks = await tx.rows(_LOCKED, id)
    if not locks:
        return None
    kind, data, who, why, login, limit, rate, state, age, cursor, wait, signal, value, sent_count, *counts = (
        locks[0]
    )
    before = (cursor, state, sent_count, *counts)
    outstanding, counts = await _count_decided(tx, id, counts)
    room = min(most, OUTSTANDING - outstanding, most if limit is None else limit - sent_count)
    if rate is not None:
        room = min(room, int(-wait * rate) + 1 if wait <= 0 else 0)
    page = 0
    condition = _filter_if_known(data)
    if kind == "signal" and (signal is None or value is None):
        condition = None
    if state == "running" and room > 0 and condition is not None:
        matches = await task_lists.search(tx, replace(_later(condition, age, cursor), limit=room))
        tasks, cursor = [view.id for view in matches.tasks], matches.older or 0
        page, act = len(tasks), Act(id, who, why, login or "")
        if kind == "signal":
            counts = await _signal(tx, act, (text(signal), bytes(value)), tasks, counts)
        else:
            await _send(tx, act, kind, tasks)
            outstanding += page
        sent_count += page
    if state == "running" and (cursor == 0 or sent_count == limit):
        cursor, state = 0, "done"
    elif state == "stopping":
        cursor = 0
    is_over = cursor == 0 and not outstanding
    shown_state = state
    if state == "done" and not is_over:  # its last commands are not decided yet
        shown_state = "running"
    elif state == "stopping" and is_over:
        shown_state = "stopped"
    free = 0.0 if rate is None else max(wait, -1.0) + page / rate
    if (cursor, shown_state, sent_count, *counts) != before or is_over:
        await tx.run(_MOVED, id, cursor, free, sent_count, *counts, shown_state, is_over)
    if is_over:
        for (at,) in await tx.rows(_OLDEST_KEPT, KEPT_ACTS):
            await tx.run(_FORGET_ITEMS, at)
            await tx.run(_FORGET, at)
    if is_over or page:
        tx.topics.add("bulk")
    return None if is_over else page


def _filter_if_known(data: bytes) -> Filter | None:
    """Return a filter, None if this version does not know all of it.

    Then a newer leader sends the commands: without a condition, they would reach other tasks.
    """
    try:
        condition = _filter(data)
    except UNREADABLE:
        return None
    return condition if msgspec.json.encode(condition) == data else None


def _later(condition: Filter, age: float, cursor: int) -> Filter:
    """Return what is left of a filter: ages are those at the request, ``age`` seconds ago."""
    older = None if condition.older is None else condition.older + age
    younger = None if condition.younger is None else condition.younger + age
    before = cursor if condition.before is None else min(cursor, condition.before)
    return replace(condition, older=older, younger=younger, before=before)


async def _count_decided(tx: Tx, id_: str, counts: Sequence[int]) -> tuple[int, list[int]]:
    """Count the commands that were decided.

    Returns how many are undecided, and the new numbers of applied, noop and refused.
    """
    changes, noop, refusals = counts
    outstanding = 0
    successes: list[int] = []
    failures: list[tuple[str, int, str]] = []
    for task, verdict, reason, task_id in await tx.rows(_DECIDED, id_):
        if verdict is None and task_id is not None:
            outstanding += 1
            continue
        changes += verdict == "applied"
        noop += verdict == "noop"
        if verdict in ("applied", "noop") or refusals >= KEPT_REFUSALS:
            successes.append(task)
        else:
            failures.append((id_, task, reason if verdict else "the task was removed"))
        refusals += verdict not in ("applied", "noop")
    if successes:
        await tx.run(_SETTLED, id_, successes)
    await tx.many(_REFUSED, failures)
    return outstanding, [changes, noop, refusals]


async def _signal(
    tx: Tx, act: Act, signal: tuple[str, bytes], tasks: Sequence[int], counts: Sequence[int]
) -> list[int]:
    """Send a signal to each task, which is decided at once. Returns the new numbers of applied, noop and
    refused.
    """
    changes, noop, refusals = counts
    answers = await signals.send_for(tx, act, signal, tasks)
    names = {task: f"{act.id}/{show(task)}" for task in tasks}
    audit_rows = [
        (names[task], task, "signal", act.who, act.why, f"sent {signal[0]} ({names[task]})", "")
        for task, answer in answers.items()
        if not answer
    ]
    await alerts.write_audit_of_login(tx, audit_rows, act.db_user)
    failures = [(act.id, task, names[task], answer) for task, answer in answers.items()]
    failures = [row for row in failures if row[-1] not in ("", signals.KNOWN)]
    await tx.many(_NOT_SENT, failures[: max(0, KEPT_REFUSALS - refusals)])
    repeats = sum(answer == signals.KNOWN for answer in answers.values())
    return [changes + len(answers) - repeats - len(failures), noop + repeats, refusals + len(failures)]


async def _send(tx: Tx, act: Act, kind: BulkKind, tasks: Sequence[int]) -> None:
    """Send a command to each of these tasks."""
    names = [f"{act.id}/{show(task)}" for task in tasks]
    await tx.many(_ITEM, [(act.id, task, name) for task, name in zip(tasks, names, strict=True)])
    commands = [
        (task, kind, rows.message(TaskMessage(kind, act=Act(name, act.who, act.why))), act.db_user or None)
        for task, name in zip(tasks, names, strict=True)
    ]
    await tx.many(_POST, commands)
    if tasks:
        tx.topics.add("inbox")
