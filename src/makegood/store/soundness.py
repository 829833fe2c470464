"""Finds unreadable rows, for ``makegood store check`` and ``doctor``, which name them.

Reads every unfinished task as a Scheduler reads it, with its steps, requests and messages. Also reads
messages in queues, notices and their listeners, and processes. Reads one page at a time, each in its own
transaction, so that nobody waits for it.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec

from makegood.base import ids
from makegood.errors import ConfigError
from makegood.model import notices
from makegood.model.messages import AlertKind
from makegood.model.states import TASK_MOVES
from makegood.payload.codec import UNREADABLE
from makegood.store import rows

PAGE: Final = 500

Ask = Callable[[str, Sequence[Any]], Awaitable[Sequence[Sequence[Any]]]]
"""Executes a statement with ``?`` for values and ``{task}`` for tables; returns its rows."""

Read = Callable[[int, int], Awaitable[tuple[int | None, Sequence[tuple[int, str]]]]]
"""Reads unfinished tasks with an id above the first number, at most the second.

Returns the last id (None: no more), and the unreadable ones.
"""

_KINDS: Final = frozenset(AlertKind.__args__)  # type: ignore[attr-defined]  # what a Literal is made of


def _message(row: Sequence[Any]) -> str | None:
    seq, queue, id_, body, headers = row
    try:
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
            rows.read_request(body, within, 0.0)
    except UNREADABLE as fault:
        return f"task {_show(task)}: its request (step {idx}, attempt {attempt}) does not read: {_why(fault)}"
    return None


def _listener(row: Sequence[Any]) -> str | None:
    task, url = row
    try:
        notices.parted(url)
    except (ConfigError, *UNREADABLE) as fault:
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
    return (
        None
        if kind in _KINDS
        else f"alert {number} is of a kind that this version does not know: {kind!r:.40}"
    )


_TABLES: Final[Sequence[tuple[str, int, Callable[[Sequence[Any]], str | None]]]] = (
    (  # an acknowledged message is remembered by its id for a while, without its body
        "select seq, queue, id, body, headers from {message} where seq > ? and state <> 'done' order by seq limit ?",
        1,
        _message,
    ),
    (
        """
        select task, idx, attempt, body, within from {request}
        where (task, idx, attempt) > (?, ?, ?) and kind <> 'timer' order by task, idx, attempt limit ?
        """,
        3,
        _request,
    ),
    ("select task, url from {listener} where task > ? order by task limit ?", 1, _listener),
    (
        "select task, sequence, body from {notice} where (task, sequence) > (?, ?) order by task, sequence limit ?",
        2,
        _notice,
    ),
    ("select id, info from {node} where id > ? and stopped_at is null order by id limit ?", 1, _node),
    ("select id, kind from {alert} where id > ? and ended_at is null order by id limit ?", 1, _alert),
)
"""How to read a page of a table, how many columns its key has, and what is wrong with a row."""

_DANGLING: Final = """
select distinct x.task from {of} x where not exists (select 1 from {task} t where t.id = x.task) limit ?
"""
_PARTS: Final = ("step", "request", "inbox", "listener", "notice")


async def broken(ask: Ask, read: Read, limit: int) -> list[str]:
    """Return at most ``limit`` sentences, one for each unreadable row."""
    found: list[str] = []
    after: int | None = -(1 << 63)
    while after is not None and len(found) < limit:
        after, unread = await read(after, PAGE)
        found += [f"task {_show(task)}: {why}" for task, why in unread]
    for sql, width, wrong in _TABLES:
        found += await _of(ask, sql, width, wrong)
        if len(found) >= limit:
            return found[:limit]
    for table in _PARTS:
        found += [
            f"task {_show(task)} is not there, and table {table} has rows of it"
            for (task,) in await ask(_DANGLING.replace("{of}", f"{{{table}}}"), [limit])
        ]
    return found[:limit]


async def _of(ask: Ask, sql: str, width: int, wrong: Callable[[Sequence[Any]], str | None]) -> list[str]:
    least = [-(1 << 63), *[-(1 << 31)] * (width - 1)]
    found: list[str] = []
    while True:
        page = await ask(sql, [*least, PAGE])
        found += [said for row in page if (said := wrong(row)) is not None]
        if len(page) < PAGE:
            return found
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
