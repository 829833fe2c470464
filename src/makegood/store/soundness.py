"""Finds unreadable rows, for ``makegood store check`` and ``doctor``, which name them.

Reads every unfinished task as a Scheduler reads it, with its steps, requests and messages. Also reads
messages in queues, notices and their listeners, and processes. Reads one page at a time, each in its own
transaction, so that nobody waits for it.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec

from makegood.base import ids
from makegood.model import notices
from makegood.model.messages import AlertKind
from makegood.model.states import TASK_MOVES
from makegood.payload.codec import UNREADABLE
from makegood.store import rows
from makegood.store.transaction import SharedDatabase, Sql

PAGE: Final = 500

Read = Callable[[int, int], Awaitable[tuple[int | None, Sequence[tuple[int, str]]]]]
"""Reads unfinished tasks with an id above the first number, at most the second.

Returns the last id (None: no more), and the unreadable ones.
"""

_KINDS: Final = frozenset(AlertKind.__args__)  # type: ignore[attr-defined]  # what a Literal is made of


def _message(row: Sequence[Any]) -> str | None:
    seq, queue, id_, body, headers, state = row
    try:
        if state != "dead":  # what a broker delivered and no queue could take is kept as it is
            msgspec.json.decode(body)
        if headers is not None:
            msgspec.json.decode(headers, type=dict[str, str])
    except UNREADABLE as fault:
        return f"message {id_} of queue {queue} (seq {seq}) does not read: {_why(fault)}"
    return None


def _request(row: Sequence[Any]) -> str | None:
    task, idx, attempt, body, within = row
    try:
        if body is not None:
            rows.read_request(body, within, 0.0, 0.0)
    except UNREADABLE as fault:
        return f"task {_show(task)}: its request (step {idx}, attempt {attempt}) does not read: {_why(fault)}"
    return None


def _listener(row: Sequence[Any]) -> str | None:
    task, url = row
    try:
        if notices.at_broker(url) is None:
            notices.split_url(url)
    except UNREADABLE as fault:
        return f"task {_show(task)}: nothing can be sent to its listener's address: {_why(fault)}"
    return None


def _notice(row: Sequence[Any]) -> str | None:
    task, sequence, body = row
    try:
        notices.name_of(body)
    except UNREADABLE as fault:
        return f"task {_show(task)}: its notice {sequence} does not read: {_why(fault)}"
    return None


def _node(row: Sequence[Any]) -> str | None:
    number, info = row
    return f"the row of process {number} does not read" if rows.node_info(info).ttl == 0 else None


def _alert(row: Sequence[Any]) -> str | None:
    number, kind = row
    if kind in _KINDS:
        return None
    return f"alert {number} is of a kind that this version does not know: {kind!r:.40}"


_TABLES: Final[Sequence[tuple[Sql, int, Callable[[Sequence[Any]], str | None]]]] = (
    (  # an acknowledged message is remembered by its id for a while, without its body
        Sql(
            "select seq, queue, id, body, headers, state from makegood.message where seq > $1 and state <> 'done' order by seq limit $2"
        ),
        1,
        _message,
    ),
    (
        Sql("""
        select task, idx, attempt, body, within from makegood.request
        where (task, idx, attempt) > ($1, $2, $3) and kind <> 'timer' order by task, idx, attempt limit $4
        """),
        3,
        _request,
    ),
    (Sql("select task, url from makegood.listener where task > $1 order by task limit $2"), 1, _listener),
    (
        Sql(
            "select task, sequence, body from makegood.notice where (task, sequence) > ($1, $2) order by task, sequence limit $3"
        ),
        2,
        _notice,
    ),
    (
        Sql("select id, info from makegood.node where id > $1 and stopped_at is null order by id limit $2"),
        1,
        _node,
    ),
    (
        Sql("select id, kind from makegood.alert where id > $1 and ended_at is null order by id limit $2"),
        1,
        _alert,
    ),
)
"""How to read a page of a table, how many columns its key has, and what is wrong with a row."""

_DANGLING: Final = {
    table: Sql(f"""
select distinct x.task from makegood.{table} x where not exists (select 1 from makegood.task t where t.id = x.task) limit $1
""")  # noqa: S608 - our own tables
    for table in ("step", "request", "inbox", "lane", "listener", "notice")
}
_MISPLACED: Final = Sql("""
select l.task, l.name, l.state, t.state from makegood.lane l join makegood.task t on t.id = l.task
where l.state = 'held' and t.state in ('processed', 'undone')
union all
select l.task, l.name, l.state, t.state from makegood.lane l join makegood.task t on t.id = l.task
where l.state = 'waiting' and t.state <> 'queued'
limit $1
""")
"""Places in lanes that the states of their tasks contradict: others would wait for them forever."""


async def find_defects(database: SharedDatabase, read: Read, limit: int) -> list[str]:
    """Return at most ``limit`` sentences, one for each unreadable row."""
    findings: list[str] = []
    after: int | None = -(1 << 63)
    while after is not None and len(findings) < limit:
        after, unread = await read(after, PAGE)
        findings += [f"task {_show(task)}: {fault}" for task, fault in unread]
    for sql, width, wrong in _TABLES:
        findings += await _of(database, sql, width, wrong)
        if len(findings) >= limit:
            return findings[:limit]
    for table, sql in _DANGLING.items():
        findings += [
            f"task {_show(task)} is not there, and table {table} has rows of it"
            for (task,) in await _ask(database, sql, limit)
        ]
    findings += [
        f"task {_show(task)} is {state}, and its place in the lane {name!r:.60} is {place}: no other task gets that place"
        for task, name, place, state in await _ask(database, _MISPLACED, limit)
    ]
    return findings[:limit]


async def _ask(database: SharedDatabase, sql: Sql, *values: Any) -> Sequence[Sequence[Any]]:
    return await database.run_read(lambda tx: tx.rows(sql, *values))


async def _of(
    database: SharedDatabase, sql: Sql, width: int, wrong: Callable[[Sequence[Any]], str | None]
) -> list[str]:
    least = [-(1 << 63), *[-(1 << 31)] * (width - 1)]
    findings: list[str] = []
    while True:
        page = await _ask(database, sql, *least, PAGE)
        findings += [finding for row in page if (finding := wrong(row)) is not None]
        if len(page) < PAGE:
            return findings
        least = list(page[-1][:width])


def unknown_state(state: object) -> str | None:
    """Return what is wrong with a task's state, None when it is valid."""
    return None if state in TASK_MOVES else f"its state is none that this version knows: {state!r:.40}"


def _show(task: Any) -> str:
    try:
        return ids.show(task)
    except UNREADABLE:
        return repr(task)


def _why(fault: Exception) -> str:
    return f"{type(fault).__name__}: {fault}"[:200]
