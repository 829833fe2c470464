"""Signals to tasks, sent in a transaction of the store or of a caller.

On a caller's connection any schema may come first in the search path, so that every operator, function and
type of a statement names the server's own.

Signals that a process sends at the same time share two statements and a commit: ``SignalBatch``. No
transaction spans the two, since the first locks nothing that the second would rely on.
"""

import base64
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from makegood.base.ids import show
from makegood.errors import MakegoodError, SignalRefused, TaskNotFoundError, TransactionError
from makegood.model.messages import Act
from makegood.store import alerts, signals
from makegood.store.postgres.commit_statement import EQ, EXACT_NOW
from makegood.store.postgres.transaction import WriterGoneError, WriteTransaction
from makegood.store.signals import Addressee, OutgoingSignal, Signalled, TaskKey
from makegood.transactions import Caller
from makegood.transactions.caller import spelled

_T = "pg_catalog.text"
_GIVEN = "pg_catalog.jsonb_to_recordset(?::pg_catalog.text::pg_catalog.jsonb)"
_STATE = f"""
select x.n, t.id, t.state, t.goal, t.static, t.app, t.workflow, (
    select s.digest from makegood.signal s where s.task {EQ} t.id and s.name {EQ} x.name and s.id {EQ} x.id
), (
    select pg_catalog.count(*) from (
        select 1 from makegood.signal u where u.task {EQ} t.id and u.used is null limit {signals.MOST_BACKLOG}
    ) u
)
from {_GIVEN} as x (n int, task bigint, app {_T}, workflow {_T}, key {_T}, name {_T}, id {_T})
    cross join lateral (select t.id, t.state, t.goal, t.static, t.app, t.workflow from makegood.task t where @place offset 0) t
"""  # noqa: S608 - our own text
_BY_ID = _STATE.replace("@place", f"t.id {EQ} x.task")
_BY_KEY = _STATE.replace("@place", f"t.key {EQ} x.key and t.workflow {EQ} x.workflow and t.app {EQ} x.app")
_INSERT = f"""
given as materialized (
    select x.*, {EXACT_NOW} as at
    from @writer {_GIVEN} as x (n int, task bigint, name {_T}, id {_T}, step {_T}, digest {_T}, body {_T}, who {_T})
),
ins as (
    insert into makegood.signal (task, name, id, step, at, digest@who)
    select task, name, id, step, at, pg_catalog.decode(digest, 'base64')@whose from given order by n
    on conflict do nothing
    returning task, name, id
),
new as (
    select given.* from @new
),
message as (
    insert into makegood.inbox (task, kind, at, body)
    select task, 'signal', at, pg_catalog.decode(body, 'base64') from new order by n
)
"""  # noqa: S608 - our own text
_NEW = "given where coalesce((task, name, id) in (select task, name, id from ins), false)"
"""``coalesce``: so the sub-query is hashed; a join of the two parts could cost the product of both."""
_SEND = f"""
with {_INSERT.replace("@writer", "").replace("@new", "given cross join ins")}
select pg_catalog.count(pg_catalog.pg_notify('makegood', 'inbox')) from ins
"""  # noqa: S608 - our own text
_QUIETLY = _SEND.replace("@whose", "").replace("@who", "")
_SIGNED = _SEND.replace("@whose", ", who").replace("@who", ", who")
_SEND_TOGETHER = spelled(
    f"""
with writer as (select 1 from makegood.writer where id = ? and number = ? for update),
{_INSERT.replace("@writer", "writer cross join").replace("@new", _NEW).replace("@whose", "").replace("@who", "")},
mark as (
    update makegood.writer w set number = ?, at = extract(epoch from clock_timestamp())::float8, outcome = array(select n from new)
    from writer where w.id = ?
    returning (select count(pg_notify('makegood', 'inbox')) from ins)
)
select array(select n from new) as new, (select count(*) from mark) as marked
""",  # noqa: S608 - our own text
    "numeric_dollar",
)
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
        return (await self.states([signal])).get(0)

    async def states(self, drafts: Sequence[OutgoingSignal]) -> dict[int, Addressee]:
        """Return the states of the tasks of signals, by the signals' places."""
        states: dict[int, Addressee] = {}
        for sql, kind in ((_BY_ID, int), (_BY_KEY, TaskKey)):
            places = [_place(n, signal) for n, signal in enumerate(drafts) if isinstance(signal.to, kind)]
            for row in await self._ask(sql, _json(places)) if places else ():
                n, task, state, goal, static, app, workflow, digest, backlog = row
                present = None if digest is None else bytes(digest)
                states[n] = Addressee(task, state, goal, bytes(static), app, workflow, present, backlog)
        return states

    async def insert(self, task: int, signal: OutgoingSignal, who: str) -> bool:
        """Insert a signal and its message."""
        values = _values(0, task, signal) | {"who": who}
        ((count,),) = await self._ask(_SIGNED if who else _QUIETLY, _json([values]))
        return bool(count)


def _tables(tx: WriteTransaction) -> _Tables:
    """Return the statements of a transaction of the store."""

    async def ask(sql: str, *values: Any) -> list[Any]:
        return await tx.rows(spelled(sql, "numeric_dollar"), *values)

    return _Tables(ask)


class SignalBatch:
    """Signals of several callers that are sent together, in a write of their own."""

    def __init__(self, drafts: Sequence[OutgoingSignal]) -> None:
        self._drafts = drafts
        self._tasks: list[int] = []
        self._answers: list[Signalled | MakegoodError | None] = []

    async def work(self, tx: WriteTransaction) -> list[Signalled | MakegoodError | None]:
        """Send them; return for each its answer, the refusal, or None if it is to be sent again."""
        states = await _tables(tx).states(self._drafts)
        self._tasks = [states[n].task if n in states else 0 for n in range(len(self._drafts))]
        self._answers = [None] * len(self._drafts)
        new: dict[tuple[int, str, str], dict[str, Any]] = {}
        counts: Counter[int] = Counter()
        for n, signal in enumerate(self._drafts):
            task = states.get(n)
            try:
                answer = signals.verdict(task, signal)
            except (TaskNotFoundError, SignalRefused) as refusal:
                self._answers[n] = refusal
                continue
            if isinstance(answer, Signalled):
                self._answers[n] = answer
                continue
            assert task is not None
            # The same signal twice, or more than the task takes: the next look decides.
            if (task.task, signal.name, signal.id) in new or task.backlog + counts[
                task.task
            ] >= signals.MOST_BACKLOG:
                continue
            counts[task.task] += 1
            new[task.task, signal.name, signal.id] = _values(n, task.task, answer)
        if new:
            tx.is_sent = True
            row = await tx.row(
                _SEND_TOGETHER, tx.writer, tx.before, _json(list(new.values())), tx.number, tx.writer
            )
            assert row is not None
            if not row["marked"]:
                raise WriterGoneError
            tx.has_mark = True
            return await self.recovered(tx, row["new"])
        return self._answers

    async def recovered(
        self, tx: WriteTransaction, outcome: Sequence[int] | None
    ) -> list[Signalled | MakegoodError | None]:
        """Return the answers when the signals at the places ``outcome`` were written."""
        for n in outcome or ():
            self._answers[n] = Signalled(self._drafts[n].id, created=True, task=show(self._tasks[n]))
            tx.topics.add("inbox")
        return self._answers


async def send(tx: WriteTransaction, signal: OutgoingSignal, act: Act | None) -> Signalled:
    """Send a signal in a transaction of the store; ``act``: an operator's, which is audited."""
    answer = await signals.send(_tables(tx), signal, "" if act is None else act.who)
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


def _place(n: int, signal: OutgoingSignal) -> dict[str, Any]:
    to = signal.to
    place = {"task": to} if isinstance(to, int) else msgspec.structs.asdict(to)
    return {"n": n, **place, "name": signal.name, "id": signal.id}


def _values(n: int, task: int, signal: OutgoingSignal) -> dict[str, Any]:
    return {
        "n": n, "task": task, "name": signal.name, "id": signal.id, "step": signal.step, "digest": _base64(signal.digest),
        "body": _base64(signal.message),
    }  # fmt: skip


def _json(values: Sequence[dict[str, Any]]) -> str:
    """Return values in ASCII: the encoding of the caller's connection may lack characters."""
    return json.dumps(values, ensure_ascii=True)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
