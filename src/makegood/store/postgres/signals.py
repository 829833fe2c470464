"""Signals to tasks, sent in a transaction of the store or of a caller.

On a caller's connection any schema may come first in the search path, so that every operator, function and
type of a statement names the server's own.

Signals that a process sends at the same time share one statement and its commit: ``SignalBatch``. Only Python
can read which signals a task takes, and of which schema. So the statement carries what this process assumes
of each task, which is what it saw last. It inserts the signals of tasks for which this is true; for any other
task it returns what is true, and the signal is sent again.

The statement locks the writer's row only if it inserts: a signal that is refused or known costs no commit.
"""

import base64
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from makegood.base.ids import show
from makegood.base.sizes import KIB
from makegood.errors import MakegoodError, SignalRefused, TransactionError
from makegood.model.messages import Act, FreshMessage
from makegood.store import alerts, rows, signals
from makegood.store.postgres.commit_statement import EQ, EXACT_NOW
from makegood.store.postgres.transaction import Row, WriterGoneError, WriteTransaction
from makegood.store.signals import Addressee, OutgoingSignal, Signalled, TaskKey
from makegood.transactions import Caller
from makegood.transactions.caller import spell

_T = "pg_catalog.text"
_GIVEN = "pg_catalog.jsonb_to_recordset(?::pg_catalog.text::pg_catalog.jsonb)"
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
    returning task, name, id
),
message as (
    insert into makegood.inbox (task, kind, at, body)
    select given.task, 'signal', given.at, pg_catalog.decode(given.body, 'base64') from given cross join ins
)
select pg_catalog.count(pg_catalog.pg_notify('makegood', 'inbox')) from ins
"""  # noqa: S608 - our own text
_QUIETLY = _SEND.replace("@whose", "").replace("@who", "")
_SIGNED = _SEND.replace("@whose", ", who").replace("@who", ", who")
_ENDS_SO = "coalesce(substring(t.static from octet_length(t.static) - octet_length({takes}) + 1) = {takes}, false) as is_as_assumed"
_BACKLOG = f"""(
            select count(*) from (select 1 from makegood.signal u where u.task = t.id and u.used is null limit {signals.MOST_BACKLOG}) u
        ) as backlog"""  # noqa: S608 - our own number
_TAKES_IT = "is_as_assumed and present is null and state not in ('processed', 'undone') and (goal <> 'undo' or state = 'error')"
_OF_TASK = "task, state, goal, app, workflow, present, backlog, case when not is_as_assumed then static end as static"
_ASKED = f"""
asked as materialized (
    select x.n, x.name, x.id, x.step, x.digest, x.body, t.id as task, t.state, t.goal, t.app, t.workflow, t.static,
        {_ENDS_SO.format(takes="s.takes")},
        (select s.digest from makegood.signal s where s.task = t.id and s.name = x.name and s.id = x.id) as present,
        {_BACKLOG}
    from jsonb_to_recordset(@drafts::text::jsonb) as x
            (n int, task bigint, app text, workflow text, key text, name text, id text, step text, digest text, body text, takes text)
        cross join lateral (select decode(x.takes, 'base64') as takes offset 0) s
        cross join lateral (
            (select t.id, t.state, t.goal, t.static, t.app, t.workflow from makegood.task t where t.id = x.task offset 0)
            union all
            (select t.id, t.state, t.goal, t.static, t.app, t.workflow from makegood.task t
                where t.key = x.key and t.workflow = x.workflow and t.app = x.app offset 0)
        ) t
)
"""  # noqa: S608 - our own text
LOOK = f"""
with {_ASKED.replace("@drafts", "$1")}
select n, {_OF_TASK}, false as is_new, 1 as writer, 0 as marked from asked
"""  # noqa: S608 - our own columns
TOGETHER = f"""
with writer as (select 1 from makegood.writer where id = $1 and number = $2 for update),
{_ASKED.replace("@drafts", "$4")},
given as materialized (
    select a.*, extract(epoch from clock_timestamp())::float8 as at, row_number() over (partition by a.task, a.name, a.id order by a.n) as twin,
        a.backlog + row_number() over (partition by a.task order by a.n) as place, (select count(*) from writer where a.n is not null) as writer
    from asked a where {_TAKES_IT}
),
ins as (
    insert into makegood.signal (task, name, id, step, at, digest)
    select task, name, id, step, at, decode(digest, 'base64') from given
    where writer = 1 and twin = 1 and place <= {signals.MOST_BACKLOG} order by n
    on conflict do nothing
    returning task, name, id
),
new as (
    select * from given where twin = 1 and coalesce((task, name, id) in (select task, name, id from ins), false)
),
message as (
    insert into makegood.inbox (task, kind, at, body) select task, 'signal', at, decode(body, 'base64') from new order by n
),
mark as (
    update makegood.writer w set number = $3, at = extract(epoch from clock_timestamp())::float8, outcome = array(select n from new)
    where w.id = $1 and (select count(*) from ins) > 0
    returning (select count(pg_notify('makegood', 'inbox')) from ins)
)
select n, {_OF_TASK}, coalesce(n in (select n from new), false) as is_new, coalesce((select min(writer) from given), 1) as writer,
    (select count(*) from mark) as marked
from asked
"""  # noqa: S608 - our own text
_ALONE = f"""
with asked as materialized (
    select t.id as task, t.state, t.goal, t.app, t.workflow, t.static, {_ENDS_SO.format(takes="$4::bytea")},
        (select s.digest from makegood.signal s where s.task = t.id and s.name = $5 and s.id = $6) as present,
        {_BACKLOG}@looked
    from makegood.task t where @place
),
writer as (
    select 1 from asked a join makegood.writer w on w.id = $1 and w.number = $2 where {_TAKES_IT} and backlog < {signals.MOST_BACKLOG}
    for update of w
),
ins as (
    insert into makegood.signal (task, name, id, step, at, digest)
    select task, $5, $6, $7, extract(epoch from clock_timestamp())::float8, $8 from writer cross join asked on conflict do nothing
    returning task, at
),
message as (
    insert into makegood.inbox (task, kind, at, body) select task, 'signal', at, $9 from ins@returned
),
mark as (
    update makegood.writer w set number = $3, at = ins.at, outcome = '{{0}}' from ins where w.id = $1
    returning (select count(pg_notify('makegood', 'inbox'))@notified)
)
select 0 as n, {_OF_TASK}, (select count(*) from ins) = 1 as is_new, (select count(*) from mark) as marked, case
        when {_TAKES_IT} and backlog < {signals.MOST_BACKLOG} then (select count(*) from writer) else 1
    end as writer@read
from asked
"""  # noqa: S608 - our own text
_QUIET = {"@looked": "", "@returned": "", "@read": "", "@notified": ""}
_OFFERED = {
    "@looked": """, t.locked_by, (t.locked_by is not null or t.state <> 'pending')
            and (select i.seq from makegood.inbox i where i.task = t.id limit 1) is null as is_first""",
    "@returned": " returning seq",
    "@read": ", locked_by, is_first, (select seq from message) as seq",
    "@notified": " from asked a where coalesce(a.locked_by <> all ($10::bigint[]), true)",
}
"""What a Scheduler in this process need not read again; if it holds the task, no other process is notified. A
role that only submits may not read an inbox.
"""
_BY = {int: "t.id = $@1", TaskKey: "t.app = $@1 and t.workflow = $@2 and t.key = $@3"}


def alone(to: type[int] | type[TaskKey], *, is_offered: bool) -> str:
    """Return the statement that sends one signal."""
    text = _ALONE.replace("@place", _BY[to])
    for n in (1, 2, 3):
        text = text.replace(f"$@{n}", f"${9 + is_offered + n}")
    for mark, part in (_OFFERED if is_offered else _QUIET).items():
        text = text.replace(mark, part)
    return text


ALONE = {
    (kind, is_offered): alone(kind, is_offered=is_offered) for kind in _BY for is_offered in (False, True)
}
"""By the kind of address, and whether its message is offered to a Scheduler."""
_MOST_KNOWN, _MOST_END = 200, 16 * KIB
"""Of how many kinds of signals it is known what their tasks take, and up to which size."""
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
        sql = _BY_ID if isinstance(signal.to, int) else _BY_KEY
        for row in await self._ask(sql, _json([_place(signal)])):
            task, state, goal, static, app, workflow, digest, backlog = row
            present = None if digest is None else bytes(digest)
            return Addressee(task, state, goal, bytes(static), app, workflow, present, backlog)
        return None

    async def insert(self, task: int, signal: OutgoingSignal, who: str) -> bool:
        """Insert a signal and its message."""
        values = {"task": task, **_values(signal), "who": who}
        ((count,),) = await self._ask(_SIGNED if who else _QUIETLY, _json([values]))
        return bool(count)


def _tables(tx: WriteTransaction) -> _Tables:
    """Return the statements of a transaction of the store."""

    async def ask(sql: str, *values: Any) -> list[Any]:
        return await tx.rows(spell(sql, "numeric_dollar"), *values)

    return _Tables(ask)


class Takes(NamedTuple):
    """What a task takes. ``schemas``: by the names of its signals, None if they cannot be read. ``end``: the
    end of its column ``static``; the task takes the same as any other one with that end.
    """

    end: bytes
    schemas: Mapping[str, str] | None


class KnownTakes:
    """What tasks took when this process sent them a signal, by its name, and by their workflow if known."""

    def __init__(self) -> None:
        self._takes: dict[tuple[str, str, str], Takes] = {}

    def assumption(self, signal: OutgoingSignal) -> Takes | None:
        """Return what a signal's task probably takes."""
        return self._takes.get(_kind(signal))

    def note(self, signal: OutgoingSignal, takes: Takes) -> None:
        """Note what a signal's task takes."""
        if len(takes.end) <= _MOST_END:
            self._takes.pop(_kind(signal), None)
            self._takes[_kind(signal)] = takes
            if len(self._takes) > _MOST_KNOWN:
                del self._takes[next(iter(self._takes))]


def _kind(signal: OutgoingSignal) -> tuple[str, str, str]:
    to = signal.to
    return ("", "", signal.name) if isinstance(to, int) else (to.app, to.workflow, signal.name)


class SignalDraft(NamedTuple):
    """A signal to send, and what its task is assumed to take."""

    signal: OutgoingSignal
    assumption: Takes | None


Answer = Signalled | MakegoodError | Takes | None
"""What became of a signal. ``Takes``: nothing yet, as its task takes something else than was assumed; None:
nothing yet, and nobody knows why.
"""


class SignalBatch:
    """Signals of several callers that are sent together, in a write of their own."""

    def __init__(self, drafts: Sequence[SignalDraft], nodes: Sequence[int] | None = None) -> None:
        self.fresh_message: FreshMessage | None = None
        """The message that a Scheduler of this process may take without reading it."""
        self._drafts = drafts
        self._nodes = nodes
        """Those of this process, if it has a Scheduler that takes messages."""

    async def work(self, tx: WriteTransaction) -> list[Answer]:
        """Send them; return what became of each."""
        wholes = [
            None if assumption is None else signals.whole_for(signal, assumption.schemas)
            for signal, assumption in self._drafts
        ]
        tx.is_sent = any(wholes)
        if len(wholes) == 1 and wholes[0] is not None:
            states = await self._send_alone(tx, wholes[0])
        else:
            states = await self._send_together(tx, wholes)
        answers: dict[int, Answer] = {}
        for row in states:
            if not row["writer"]:
                raise WriterGoneError
            tx.has_mark = bool(row["marked"])
            answers[row["n"]] = self._answer(row)
        if tx.has_mark and self.fresh_message is None:
            tx.topics.add("inbox")
        return [
            answers[n] if n in answers else signals.unknown(draft.signal.to)
            for n, draft in enumerate(self._drafts)
        ]

    async def _send_alone(self, tx: WriteTransaction, signal: OutgoingSignal) -> Sequence[Row]:
        """Send the only signal, in its final form; note the message that may be offered."""
        assumption, to = self._drafts[0].assumption, signal.to
        assert assumption is not None
        place = (to,) if isinstance(to, int) else (to.app, to.workflow, to.key)
        is_offered, body = self._nodes is not None, signal.message
        nodes = () if self._nodes is None else (self._nodes,)
        states = await tx.rows(
            ALONE[type(to), is_offered], tx.writer, tx.before, tx.number, assumption.end, signal.name, signal.id, signal.step,
            signal.digest, body, *nodes, *place,
        )  # fmt: skip
        for row in states:
            if is_offered and row["is_new"] and row["is_first"]:
                message = rows.read_message(body, row["seq"])
                self.fresh_message = FreshMessage(row["task"], row["locked_by"], message)
        return states

    async def _send_together(
        self, tx: WriteTransaction, wholes: Sequence[OutgoingSignal | None]
    ) -> Sequence[Row]:
        """Send those signals that have a final form."""
        values: list[dict[str, Any]] = []
        for n, ((signal, assumption), whole) in enumerate(zip(self._drafts, wholes, strict=True)):
            values.append({"n": n, **_place(signal), **_values(whole or signal)})
            if assumption is not None and whole is not None:
                values[-1]["takes"] = _base64(assumption.end)
        if tx.is_sent:
            return await tx.rows(TOGETHER, tx.writer, tx.before, tx.number, _json(values))
        return await tx.rows(LOOK, _json(values))

    def _answer(self, row: Row) -> Answer:
        """Return what became of the signal of a row."""
        signal, assumption = self._drafts[row["n"]]
        if row["is_new"]:
            return Signalled(signal.id, created=True, task=show(row["task"]))
        takes, static = assumption, row["static"]
        if static is not None:
            takes = Takes(rows.signals_end(static), rows.signals_of(static))
        assert takes is not None
        task = Addressee(
            row["task"], row["state"], row["goal"], static or b"", row["app"], row["workflow"], row["present"], row["backlog"]
        )  # fmt: skip
        try:
            answer = signals.verdict(task, signal, takes.schemas)
        except SignalRefused as refusal:
            return refusal
        if isinstance(answer, Signalled):
            return answer
        # As assumed: the same signal twice, or more than the task takes. The next look decides.
        return None if static is None else takes

    async def recover(self, tx: WriteTransaction, outcome: Sequence[int] | None) -> list[Answer]:
        """Return the answers when the signals at the places ``outcome`` were written."""
        answers: list[Answer] = [None] * len(self._drafts)
        for n in outcome or ():
            signal, _ = self._drafts[n]
            number = signal.to
            if not isinstance(number, int) and (task := await _tables(tx).state(signal)) is not None:
                number = task.task
            answers[n] = Signalled(
                signal.id, created=True, task=show(number) if isinstance(number, int) else ""
            )
            tx.topics.add("inbox")
        return answers


async def send(tx: WriteTransaction, signal: OutgoingSignal, act: Act | None) -> Signalled:
    """Send a signal in a transaction of the store; ``act``: an operator's, which is audited."""
    answer = await signals.send(_tables(tx), signal, "" if act is None else act.who)
    if act is not None:
        await alerts.write_audit(tx, signals.audit_rows(act, signal, answer))
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


def _place(signal: OutgoingSignal) -> dict[str, Any]:
    to = signal.to
    place = {"task": to} if isinstance(to, int) else msgspec.structs.asdict(to)
    return {**place, "name": signal.name, "id": signal.id}


def _values(signal: OutgoingSignal) -> dict[str, Any]:
    return {
        "name": signal.name, "id": signal.id, "step": signal.step, "digest": _base64(signal.digest),
        "body": _base64(signal.message),
    }  # fmt: skip


def _json(values: Sequence[dict[str, Any]]) -> str:
    """Return values in ASCII: the encoding of the caller's connection may lack characters."""
    return json.dumps(values, ensure_ascii=True)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
