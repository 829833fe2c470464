"""Signals to tasks, sent in a transaction of the store or of a caller.

On a caller's connection any schema may come first in the search path, so that every operator, function and
type of a statement names the server's own.
"""

import base64
import json
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from makegood.errors import TransactionError
from makegood.model.messages import Act
from makegood.store import alerts, signals
from makegood.store.postgres.commit_statement import EQ, EXACT_NOW
from makegood.store.postgres.transaction import WriteTransaction
from makegood.store.signals import Addressee, OutgoingSignal, Signalled
from makegood.transactions import Caller
from makegood.transactions.caller import spelled

_T = "pg_catalog.text"
_GIVEN = "pg_catalog.jsonb_to_record(?::pg_catalog.text::pg_catalog.jsonb)"
_STATE = f"""
select t.id, t.state, t.goal, t.static, t.app, t.workflow, (
    select s.digest from makegood.signal s where s.task {EQ} t.id and s.name {EQ} x.name and s.id {EQ} x.id
), (
    select pg_catalog.count(*) from (
        select 1 from makegood.signal u where u.task {EQ} t.id and u.used is null limit {signals.MOST_BACKLOG}
    ) u
)
from {_GIVEN} as x (task bigint, app {_T}, workflow {_T}, key {_T}, name {_T}, id {_T})
    cross join lateral (select t.id, t.state, t.goal, t.static, t.app, t.workflow from makegood.task t where @place offset 0) t
"""  # noqa: S608 - our own text
_BY_ID = _STATE.replace("@place", f"t.id {EQ} x.task")
_BY_KEY = _STATE.replace("@place", f"t.key {EQ} x.key and t.workflow {EQ} x.workflow and t.app {EQ} x.app")
_SEND = f"""
with given as materialized (
    select x.*, {EXACT_NOW} as at
    from {_GIVEN} as x (task bigint, name {_T}, id {_T}, step {_T}, digest {_T}, body {_T}, who {_T})
),
ins as (
    insert into makegood.signal (task, name, id, step, at, digest@who)
    select task, name, id, step, at, pg_catalog.decode(digest, 'base64')@whose from given
    on conflict do nothing
    returning task
),
message as (
    insert into makegood.inbox (task, kind, at, body)
    select ins.task, 'signal', given.at, pg_catalog.decode(given.body, 'base64') from ins cross join given
)
select pg_catalog.count(pg_catalog.pg_notify('makegood', 'inbox')) from ins
"""  # noqa: S608 - our own text
_QUIETLY = _SEND.replace("@whose", "").replace("@who", "")
_SIGNED = _SEND.replace("@whose", ", who").replace("@who", ", who")
_MAY = """
select pg_catalog.has_table_privilege('makegood.signal', 'select') and pg_catalog.has_any_column_privilege('makegood.signal', 'insert')
    and pg_catalog.has_any_column_privilege('makegood.inbox', 'insert')
"""


class _Tables:
    """``ask``: executes a statement with ``?`` for each value; returns its rows."""

    def __init__(self, ask: Callable[..., Awaitable[list[Any]]]) -> None:
        self._ask = ask

    async def state(self, signal: OutgoingSignal) -> Addressee | None:
        """Return the state of a signal's task."""
        to = signal.to
        place = {"task": to} if isinstance(to, int) else msgspec.structs.asdict(to)
        place |= {"name": signal.name, "id": signal.id}
        for row in await self._ask(_BY_ID if isinstance(to, int) else _BY_KEY, _json(place)):
            task, state, goal, static, app, workflow, digest, backlog = row
            return Addressee(
                task,
                state,
                goal,
                bytes(static),
                app,
                workflow,
                None if digest is None else bytes(digest),
                backlog,
            )
        return None

    async def insert(self, task: int, signal: OutgoingSignal, who: str) -> bool:
        """Insert a signal and its message."""
        values = {
            "task": task, "name": signal.name, "id": signal.id, "step": signal.step, "digest": _base64(signal.digest),
            "body": _base64(signal.message), "who": who,
        }  # fmt: skip
        ((count,),) = await self._ask(_SIGNED if who else _QUIETLY, _json(values))
        return bool(count)


async def send(tx: WriteTransaction, signal: OutgoingSignal, act: Act | None) -> Signalled:
    """Send a signal in a transaction of the store; ``act``: an operator's, which is audited."""

    async def ask(sql: str, *values: Any) -> list[Any]:
        return await tx.rows(spelled(sql, "numeric_dollar"), *values)

    answer = await signals.send(_Tables(ask), signal, "" if act is None else act.who)
    if act is not None:
        await alerts.acted(tx, signals.audited(act, signal, answer))
    if answer.created:
        tx.topics.add("inbox")
    return answer


async def put(caller: Caller, signal: OutgoingSignal) -> Signalled:
    """Send a signal in the caller's transaction, whose commit notifies other processes."""
    if not caller.ours and not (await caller.ask(_MAY))[0][0]:
        raise TransactionError(
            "the role of connection= may not send signals: make it a member of the submitter's role (see makegood store grants) or, as the "
            "owner of the schema, `grant select, insert on makegood.signal` and `grant insert on makegood.inbox` to it"
        )
    answer = await signals.send(_Tables(caller.ask), signal)
    if answer.created:
        caller.topics.add("inbox")
    return answer


def _json(values: dict[str, Any]) -> str:
    """Return values in ASCII: the encoding of the caller's connection may lack characters."""
    return json.dumps(values, ensure_ascii=True)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
