"""The one statement that writes a batch of Decisions, assembled from fixed parts.

A part is the change of one table, with the columns of the rows that it needs. A statement contains only the
parts that its batch needs, so the usual statement is short. It makes its decisions in a chain of sub-queries:

``writer``   locks the writer's row, if it is as we left it.
``held``   locks the tasks, if this node holds them under the epoch of the Decision. FOR NO KEY UPDATE,
           since a weaker lock lets a take-over proceed that then reads the state before this commit.
``woken``  locks the tasks that this commit claims, if nobody holds them, and their rows are the versions from
           which the Decision was made. The number of the transaction that wrote a row, xmin, is its version.
``there``  checks which of the request rows that replies have used still exist, unjudged.
``at``     is ``ok`` when nothing is missing, and reads the clock: after the locks.
``gone``   deletes the used rows.

Every part writes only when ``ok`` is true. Otherwise nothing is written, the answer names what is held and
there, and the batch is tried again without the losers.

If a request row is missing when it is to be deleted, a division by zero makes the whole statement fail, and
the batch is tried again. A missing row is rare, and ``there`` costs as much as the deletion, so the first try
omits ``there``; only the second try includes it. The same holds for a signal that cannot be inserted, and
``new``.

Numbers are sent as the text of an array, with the index and attempt of a row in one number (its *place*). The
byte strings of a column are joined to one, each named by a number (its *span*). The reason is cost: a driver
visits each element of an array several times, and the server stores each column of ``unnest`` separately, so
a batch costs what its columns cost. For the same reason the usual changes have parts of their own, with only
the few columns that vary.

The first dispatch of a step does not write the step row: a request row with an attempt above the step's means
that the step is running. If something other than a Scheduler's Decision removes such a request (the
Supervisor, judging it), it updates the step row.

Rules against bad query plans:

- Each part joins parameters to one table by its key, never one sub-query to another: that costs the product
  of both.
- ``k between x and x`` replaces ``k = x``. The planner can use it only for an index lookup. It may join an
  equality the other way round and read the whole index for each row, if the statistics date from when the
  table was empty.
- A condition that implies that of a partial index may cause a full read of the index; ``coalesce`` prevents
  this.
- A clock is read in a sub-select when it is used to search an index.
- No two parts may change the same row: one of the two changes would be lost silently. Only ``cancelled`` may
  name the rows of ``withdraw``, which it lets go first: what is left then has an agent, also if that agent
  took it at this very moment, after the snapshot of the statement.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import msgspec

from makegood.model.messages import MOST_EXTENSION
from makegood.store.notice_records import KEPT
from makegood.store.records import NO_MOMENT

Columns = tuple[tuple[str, str], ...]

HELD: Columns = (("task", "bigint"), ("epoch", "bigint"))
"""Tasks that the node holds and the batch changes, each with the epoch of its Decision."""
WOKEN: Columns = (("task", "bigint"), ("version", "bigint"))
"""Tasks that the batch claims, each with the version of the row that its Decision was made from."""
CONSUMED: Columns = (("task", "bigint"), ("place", "bigint"))
"""Request rows that the batch uses up."""

KINDS: Columns = (
    ("kind", "text"), ("agent", "text"), ("action", "text"), ("priority", "int"), ("isolate", "boolean"), ("within", "float8"),
    ("taken_at", "float8"),
)  # fmt: skip
"""The columns that many requests share; rows refer to a combination by number, from 1.

The moves of events are treated alike, since each element of an array of bytes costs the
driver more than a number.
"""


@dataclass(frozen=True, slots=True)
class Part:
    """One change."""

    columns: Columns
    """The columns of its rows, with their types."""
    text: str
    """The SQL. ``@rows`` stands for the rows as ``x``, ``@kind`` etc. for the columns of KINDS, ``@moves``
    for the distinct moves.
    """


def place(idx: int, attempt: int) -> int:
    """Return a step's index and an attempt as one number."""
    return idx << 32 | attempt


_TASK = ("task", "bigint")
_KEY = (_TASK, ("idx", "int"))
_PLACE = (_TASK, ("place", "bigint"))
_IDX, _ATTEMPT = "(x.place >> 32)::int", "(x.place & 4294967295)::int"

_REQUEST = """
insert into makegood.request (task, idx, attempt, kind, agent, action, priority, isolate, starved, sent_at, taken_at, taken_by,
    within, complete_by, answered, body)
select x.task, @idx, @attempt, @kind[x.what], @agent[x.what], @action[x.what], @priority[x.what], @isolate[x.what], false, at.now, @taken_at[x.what],
"""

EQ, PLUS, CAT = "operator(pg_catalog.=)", "operator(pg_catalog.+)", "operator(pg_catalog.||)"
EXACT_NOW = "(extract(epoch from pg_catalog.clock_timestamp())::pg_catalog.float8)"
"""The clock for statements that also run on a caller's connection, where any schema may come
first in the search path.

In such a statement each operator, function and type names the server's own schema. (``in``, ``between``,
``distinct from`` and ``case x when`` find their operator by its name.)
"""

NAMED = f"(g.store_id {CAT} '-' {CAT} g.generation::pg_catalog.text {CAT} '-' {CAT} x.name)"
BODY = f"""pg_catalog.convert_to('{{"specversion":"1.0","id":"' {CAT} {NAMED} {CAT} '","generation":' {CAT} g.generation::pg_catalog.text
    {CAT} ',"time":"' {CAT} pg_catalog.to_char(pg_catalog.to_timestamp(at.now) at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
    {CAT} '",' {CAT} x.event, 'UTF8')"""
"""A notice as it is sent (``notices.head`` and ``notices.event``).

Built from ``at``, a row ``x`` of NOTICE, and ``makegood.generation g``.
"""

NOTICE: Columns = (_TASK, ("sequence", "int"), ("name", "text"), ("event", "text"))
LISTENER: Columns = (_TASK, ("host", "text"), ("url", "text"), ("first", "int"), ("last", "int"))

INTO_NOTICE = f"insert into makegood.notice (task, sequence, body) select x.task, x.sequence, {BODY}"
INTO_LISTENER = """insert into makegood.listener (task, host, url, sent, last, due_at)
select x.task, x.host, x.url, x.first operator(pg_catalog.-) 1, x.last, at.now"""
INTO_MESSAGE = """
insert into makegood.message (queue, id, body, kind, correlation_id, reply_to, task, sequence, headers, sent_at, visible_at,
    expires_at, remember, digest)
"""
"""A statement that sends a message must also wake the topic ``queue:NAME``."""

QUEUED: Columns = (*NOTICE, ("queue", "text"), ("kind", "text"), ("correlation_id", "text"))
AS_QUEUED = f"""{INTO_MESSAGE}
select x.queue, {NAMED}, {BODY}, x.kind, x.correlation_id, null, x.task, x.sequence, null, at.now, at.now,
    at.now {PLUS} {KEPT}::pg_catalog.float8, null, null"""
IN_ORDER = "order by x.task, x.sequence on conflict do nothing"
HEARD = "on conflict (task) do update set last = excluded.last"

_USUAL: dict[str, Part] = {
    "done": Part(
        (*_PLACE, ("result", "bytea")),
        """
update makegood.step s set state = 'done', attempt = @attempt, result = x.result,
    round = 1, asked = 0, deaths = 0, flags = 0, late = null, error = null
from at cross join @rows where at.ok and (s.task, s.idx) between (x.task, @idx) and (x.task, @idx)
""",
    ),
    "step": Part(
        (
            *_KEY, ("state", "text"), ("attempt", "int"), ("result", "bytea"), ("round", "int"), ("asked", "int"),
            ("deaths", "int"), ("flags", "int"), ("late", "bytea"), ("error", "text"), ("first_sent", "float8"),
            ("runs_until", "float8"), ("reset", "boolean"), ("more", "int"),
        ),
        """
update makegood.step s set state = x.state, attempt = x.attempt, result = x.result, round = x.round, asked = x.asked,
    deaths = x.deaths, flags = x.flags, late = x.late, error = x.error, first_sent = x.first_sent,
    runs_until = x.runs_until,
    failure_count = case when x.reset then 0 else s.failure_count end + x.more
from at cross join @rows where at.ok and (s.task, s.idx) between (x.task, x.idx) and (x.task, x.idx)
""",
    ),
    "count": Part(
        (*_KEY, ("reset", "boolean"), ("more", "int")),
        """
update makegood.step s set failure_count = case when x.reset then 0 else s.failure_count end + x.more
from at cross join @rows where at.ok and (s.task, s.idx) between (x.task, x.idx) and (x.task, x.idx)
""",
    ),
    "added": Part(
        (
            *_KEY, ("kind", "text"), ("name", "text"), ("agent", "text"), ("action", "text"), ("state", "text"),
            ("attempt", "int"), ("round", "int"), ("failures", "int"), ("asked", "int"), ("deaths", "int"), ("flags", "int"),
            ("spec", "bytea"), ("result", "bytea"), ("late", "bytea"), ("error", "text"),
        ),
        """
insert into makegood.step (task, idx, kind, name, agent, action, state, attempt, round, failure_count, asked, deaths, flags,
    spec, result, late, error)
select x.* from at cross join @rows where at.ok
""",
    ),
    "handed": Part(
        (*_PLACE, ("what", "int")),
        _REQUEST + "    $5, @within[x.what], at.now + @within[x.what], false, null from at cross join @rows where at.ok\n",
    ),
    "sent": Part(
        (*_PLACE, ("what", "int"), ("body", "bytea")),
        _REQUEST + "    null, @within[x.what], null, false, x.body from at cross join @rows where at.ok\n",
    ),
    "timer": Part(
        (*_KEY, ("wait", "float8")),
        """
insert into makegood.request as r (task, idx, attempt, kind, agent, action, priority, isolate, starved, sent_at, within,
    complete_by, answered)
select x.task, x.idx, 0, 'timer', '', '', 0, false, false, at.now, x.wait, at.now + x.wait, false
from at cross join @rows where at.ok
on conflict (task, idx, attempt) do update set sent_at = excluded.sent_at, within = excluded.within,
    complete_by = excluded.complete_by
""",
    ),
    "dropped": Part(
        _KEY,
        """
delete from makegood.request r using at cross join @rows
where at.ok and (r.task, r.idx, r.attempt) between (x.task, x.idx, 0) and (x.task, x.idx, 0) and r.kind = 'timer'
""",
    ),
    "withdraw": Part(
        (*_PLACE, ("n", "bigint")),
        """
delete from makegood.request r using at cross join @rows
where at.ok and (r.task, r.idx, r.attempt) between (x.task, @idx, @attempt) and (x.task, @idx, @attempt) and coalesce(r.taken_by, 0) = 0 and r.kind <> 'timer'
returning x.n
""",
    ),
    "cancelled": Part(
        _PLACE,
        """
update makegood.request r set cancelled = true from at cross join @rows
where at.ok and (r.task, r.idx, r.attempt) between (x.task, @idx, @attempt) and (x.task, @idx, @attempt) and r.kind = 'do' and not r.answered@withdrawn_first
returning r.taken_by
""",
    ),
    "rested": Part(
        (_TASK,),
        """
delete from makegood.request r using at cross join @rows where at.ok and r.task between x.task and x.task
""",
    ),
    "claimed": Part(
        (_TASK,),
        """
update makegood.task t set state = 'processing', locked_by = $5, epoch = t.epoch + 1,
    complete_by = coalesce(t.complete_by, at.now + t.within)
from at cross join @rows where at.ok and t.id between x.task and x.task
""",
    ),
    "begun": Part(
        (_TASK,),
        """
update makegood.task t set state = 'processing', complete_by = coalesce(t.complete_by, at.now + t.within)
from at cross join @rows where at.ok and t.id between x.task and x.task
""",
    ),
    "processed": Part(
        (_TASK, ("result", "bytea")),
        """
update makegood.task t set state = 'processed', locked_by = null, ended_at = at.now, undo_by = null, result = x.result
from at cross join @rows where at.ok and t.id between x.task and x.task
""",
    ),
    "task": Part(
        (
            _TASK, ("state", "text"), ("goal", "text"), ("cause", "text"), ("submission", "int"), ("failures", "int"),
            ("lost", "int"), ("result", "bytea"), ("locked_by", "bigint"), ("epoch", "bigint"), ("ends", "int"),
            ("draws", "boolean"), ("complete", "int"), ("undo", "int"),
        ),
        f"""
update makegood.task t set state = x.state, goal = x.goal, cause = x.cause, submission = x.submission,
    failure_count = t.failure_count + x.failures, lost = x.lost, result = x.result, locked_by = x.locked_by, epoch = x.epoch,
    ended_at = case x.ends when 0 then t.ended_at when 2 then at.now end,
    ready_seq = case when x.draws then (extract(epoch from clock_timestamp()) * 1000000)::bigint else t.ready_seq end,
    complete_by = case x.complete when 0 then t.complete_by when 1 then null when 2 then at.now + t.within
        else greatest(coalesce(t.complete_by, at.now + t.within), least(
            greatest(coalesce(t.complete_by, at.now + t.within), at.now) + x.complete - 2, at.now + {MOST_EXTENSION})) end,
    undo_by = case x.undo when 0 then t.undo_by when 2 then at.now + t.undo_within end,
    task_expired = t.task_expired and x.complete in (0, 2)
from at cross join @rows where at.ok and t.id between x.task and x.task
""",  # noqa: S608 - our own number
    ),
    "used": Part(
        (_TASK, ("name", "text"), ("id", "text"), ("idx", "int")),
        """
update makegood.signal s set body = null, used = x.idx, used_at = at.now
from at cross join @rows where at.ok and (s.task, s.name, s.id) between (x.task, x.name, x.id) and (x.task, x.name, x.id)
""",
    ),
    "kept": Part(
        (_TASK, ("name", "text"), ("id", "text"), ("body", "bytea")),
        """
update makegood.signal s set body = x.body
from at cross join @rows where at.ok and (s.task, s.name, s.id) between (x.task, x.name, x.id) and (x.task, x.name, x.id)
""",
    ),
    "new_signal": Part(  # a sub-query of one row is no join, which would read the whole inbox
        (
            _TASK, ("name", "text"), ("id", "text"), ("step", "text"), ("digest", "bytea"), ("idx", "int"), ("body", "bytea"),
        ),
        """
insert into makegood.signal (task, name, id, step, at, digest, used, used_at, body)
select x.task, x.name, x.id, x.step, at.now, x.digest, x.idx, case when x.idx is not null then at.now end, x.body
from at cross join @rows where at.ok and (select i.seq from makegood.inbox i where i.task between x.task and x.task limit 1) is null
on conflict do nothing returning 1
""",
    ),
    "alert": Part(
        (
            ("kind", "text"), _TASK, ("step", "text"), ("text", "text"), ("standing", "text"), ("over", "text"),
        ),
        """
insert into makegood.alert as a (kind, task, step, text, standing, ended_at, ended_why, at)
select x.kind, x.task, x.step, x.text, x.standing, case when x.standing is null then at.now end, x.over, at.now
from at cross join @rows where at.ok
on conflict (standing) where standing is not null do update set text = excluded.text where a.text <> excluded.text
""",
    ),
    "eased": Part(
        (_TASK, ("step", "text"), ("why", "text")),
        """
update makegood.alert a set standing = null, ended_at = at.now, ended_why = x.why
from at cross join @rows where at.ok and a.task between x.task and x.task and coalesce(a.ended_at, -1) < 0
    and a.kind <> 'starved' and (x.step = '*' or a.step = x.step)
""",
    ),
    "audit": Part(
        (
            ("act", "text"), _TASK, ("kind", "text"), ("who", "text"), ("why", "text"), ("verdict", "text"), ("reason", "text"),
            ("state", "text"), ("change", "bytea"), ("db_user", "text"),
        ),
        """
insert into makegood.audit (act, task, kind, who, why, verdict, reason, state, change, at, db_user)
select x.act, x.task, x.kind, x.who, x.why, x.verdict, x.reason, x.state, x.change, at.now, x.db_user from at cross join @rows where at.ok
on conflict do nothing
""",
    ),
    "event": Part(
        (_TASK, ("what", "int")),
        """
insert into makegood.event (task, at, node, moves, note, attempts)
select x.task, at.now, $5, @moves[x.what], '', ''::bytea from at cross join @rows where at.ok
""",
    ),
    "ended": Part(
        (_TASK, ("what", "int"), ("attempts", "bytea")),
        """
insert into makegood.event (task, at, node, moves, note, attempts)
select x.task, at.now, $5, @moves[x.what], '', x.attempts from at cross join @rows where at.ok
""",
    ),
    "noted": Part(
        (_TASK, ("moves", "bytea"), ("note", "text"), ("attempts", "bytea")),
        """
insert into makegood.event (task, at, node, moves, note, attempts)
select x.task, at.now, $5, x.moves, x.note, x.attempts from at cross join @rows where at.ok
""",
    ),
    "notice": Part(
        NOTICE,
        f"\n{INTO_NOTICE}\nfrom at cross join makegood.generation g cross join @rows where at.ok\n",
    ),
    "queued": Part(
        QUEUED,
        f"{AS_QUEUED}\nfrom at cross join makegood.generation g cross join @rows where at.ok\n{IN_ORDER}\n",
    ),
    "listener": Part(LISTENER, f"\n{INTO_LISTENER} from at cross join @rows where at.ok\n{HEARD}\n"),
    "read": Part(
        (("seq", "bigint"), _TASK),
        """
delete from makegood.inbox i using at cross join @rows where at.ok and i.seq between x.seq and x.seq and i.task between x.task and x.task
""",
    ),
}  # fmt: skip


_DRAW = (
    "case when x.draws then (extract(epoch from clock_timestamp()) * 1000000)::bigint else t.ready_seq end"
)
_SLEEP = f"case when x.wakes = 'infinity' then {NO_MOMENT} else ceil((at.now + x.wakes) * 1000000)::bigint end, start_at = null, start_wall = null"
_ASLEEP = Part(
    tuple(("wakes", "float8") if name == "draws" else (name, kind) for name, kind in _USUAL["task"].columns),
    _USUAL["task"].text.replace(_DRAW, _SLEEP),
)


def _with_columns(part: Part, *columns: tuple[str, str]) -> Part:
    """Return a part that also writes columns that rarely change."""
    assignments = "".join(f"{name} = x.{name}, " for name, _ in columns)
    return Part((*part.columns, *columns), part.text.replace(" set ", f" set {assignments}", 1))


_STATIC, _NOTIFIED = ("static", "bytea"), (("told", "text"), ("notified", "int"))
PARTS: dict[str, Part] = {
    **_USUAL,
    "rewritten": _with_columns(_USUAL["step"], ("spec", "bytea")),
    "corrected": _with_columns(_USUAL["task"], _STATIC),
    "told": _with_columns(_USUAL["task"], *_NOTIFIED),
    "corrected_told": _with_columns(_USUAL["task"], _STATIC, *_NOTIFIED),
    "asleep": _ASLEEP,
    "asleep_told": _with_columns(_ASLEEP, *_NOTIFIED),
}
"""All parts, by name. Those that change a step or a task:

``done``             steps that were never in trouble
``claimed``          tasks of which nothing else changes
``begun``            the same, for tasks held from the beginning
``processed``        the same, for tasks that are processed
``step``             everything of a step
``task``             everything of a task
``rewritten``        as ``step``, and what only an operator's correction changes
``corrected``        as ``task``, and what only an operator's correction changes
``told``             as ``task``, and what the submitter was notified of
``corrected_told``   both
``asleep``           as ``task``, of tasks that are let go, and when they wake
``asleep_told``      as ``asleep``, and what the submitter was notified of

``ends``, ``complete`` and ``undo`` say what happens to a time: 0 keep, 1 clear, 2 set. A
higher ``complete`` moves the deadline by this many seconds less 2.
"""

_HEAD = """
with writer as (select 1 from makegood.writer where id = $1 and number = $2 for update),
held as (
    select t.id from @held join makegood.task t on t.id between x.task and x.task and t.epoch = x.epoch and t.locked_by is not distinct from $5
    for no key update of t
),
@woken
@there
ok as materialized (
    select (select count(*) from writer) = 1 and (select count(*) from held)@and_woken = $7@all_there as ok
),
at as materialized (select ok, extract(epoch from clock_timestamp())::float8 as now from ok),
gone as (
    delete from makegood.request r using at cross join @consumed
    where at.ok and (r.task, r.idx, r.attempt) between (x.task, @idx, @attempt) and (x.task, @idx, @attempt) and r.kind <> 'timer' returning 1
),
"""
_WOKEN = """woken as (
    select t.id from @rows join makegood.task t on t.id between x.task and x.task and t.locked_by is null and t.xmin::text::bigint = x.version
    for no key update of t skip locked
),
"""
_THERE = """there as (
    select x.task, x.place from @consumed
        join makegood.request r on (r.task, r.idx, r.attempt) between (x.task, @idx, @attempt) and (x.task, @idx, @attempt) and r.kind <> 'timer'
),
"""
_ALL_THERE = " and (select count(*) from there) = $8"
_NEW = """new as (
    select x.task from @rows
    where (select i.seq from makegood.inbox i where i.task between x.task and x.task limit 1) is null
        and (select s.seq from makegood.signal s where (s.task, s.name, s.id) between (x.task, x.name, x.id) and (x.task, x.name, x.id) limit 1) is null
),
"""
_ALL_NEW = " and (select count(*) from new) = cardinality(@tasks)"
_NOT_INSERTED = " or (select count(*) from p_new_signal) <> cardinality(@tasks)"
_MISSING = "case when not at.ok then array(select array[task, place] from there) end"
_TAIL = """
mark as (
    update makegood.writer w
    set number = $3, at = at.now, outcome = @withdrawn
    from at where at.ok and w.id = $1 and $6
    returning (select count(pg_notify('makegood', topic)) from unnest($4::text[]@notified) topic)
)
select at.ok, (select count(*) from writer) as writer, (select count(*) from mark) as marked, @withdrawn as withdrawn, @cancelled as cancelled,
    1 / case when at.ok and ((select count(*) from gone) <> $8@not_inserted) then 0 else 1 end as all_gone,
    case when not at.ok then array(select id from held) end as held,
    @missing as there@new
from at
"""
_CANCELLED = "array(select distinct 'cancel:' || taken_by from p_cancelled where taken_by is not null)"
_WITHDRAWN_FIRST = " and (select count(*) from p_withdraw) >= 0"
_FIRST = 9
"""The number of the first parameter that holds a column; those before it hold one value each."""

_encode = msgspec.json.Encoder().encode


def is_number(kind: str) -> bool:
    """Return whether a column of this type is sent as the text of an array."""
    return kind in ("bigint", "int")


def numbers(column: list[int | None]) -> str:
    """Return numbers as the text of an array.

    >>> numbers([1, None, 3])
    '{1,null,3}'
    """
    return f"{{{_encode(column)[1:-1].decode()}}}"  # JSON's, in other brackets: many times as fast as Python's own


def join_values(column: Sequence[bytes | None]) -> tuple[bytes, list[int | None]]:
    """Join byte strings; return the result and the spans.

    A span holds where a string begins, from 1, and how long it is, both in one number: see ``piece``.

    >>> join_values([b"ab", None])
    (b'ab', [4294967298, None])
    """
    spans: list[int | None] = []
    start = 1
    for value in column:
        if value is None:
            spans.append(None)
        else:
            spans.append(start << 32 | len(value))
            start += len(value)
    return b"".join(filter(None, column)), spans


def piece(span: str, number: int) -> str:
    """Return SQL for the byte string that ``span``, a number made by ``joined``, names in the
    parameter with this number.
    """
    return f"substring(${number}::bytea from ({span} >> 32)::int for ({span} & 4294967295)::int)"


def parameters(columns: Columns) -> int:
    """Return the number of parameters for rows of these columns: a column of byte strings takes two."""
    return len(columns) + sum(kind == "bytea" for _, kind in columns)


_PLAIN = "unnest(@arrays) as x (@names)"
_PIECES = "(select @values from unnest(@arrays) as u (@names)) as x"


def column_rows(columns: Columns, first: int) -> str:
    """Return SQL for rows of these columns as ``x``, from the parameters that begin with number ``first``."""
    arrays, values = [], []
    for name, kind in columns:
        if kind == "bytea":
            arrays.append(f"${first + 1}::text::bigint[]")
            values.append(f"{piece(f'u.{name}', first)} as {name}")
            first += 1
        else:
            arrays.append(f"${first}::text::{kind}[]" if is_number(kind) else f"${first}::{kind}[]")
            values.append(f"u.{name}")
        first += 1
    text = _PLAIN if parameters(columns) == len(columns) else _PIECES
    text = text.replace("@arrays", ", ".join(arrays)).replace("@values", ", ".join(values))
    return text.replace("@names", ", ".join(name for name, _ in columns))


@lru_cache(maxsize=1000)
def statement(names: tuple[str, ...], *, looks: bool, wakes: bool = False) -> str:
    """Return the statement with these parts.

    ``looks``: whether it checks which rows exist before it deletes them; if not, "there" is null. ``wakes``:
    whether it claims tasks.

    Parameters: writer, number before, number, topics, node, whether to mark, how many are held or woken, how
    many consumed; the columns of HELD; those of CONSUMED; those of WOKEN, if it claims tasks; those of KINDS,
    if there are requests; the moves, if there are events; then those of each part. It returns one row: ok,
    writer (found), marked, withdrawn (their ``n``), cancelled (the topics of their nodes), held, there (task
    and place), and, if it ``looks`` and there are new
    signals, new (the tasks whose signals may be written).
    """
    first = _FIRST
    new = "new_signal" in names
    text = _HEAD.replace("@there\n", (_THERE + _NEW if new else _THERE) if looks else "")
    text = text.replace("@held", column_rows(HELD, first))
    first += parameters(HELD)
    text = text.replace("@consumed", column_rows(CONSUMED, first))
    first += parameters(CONSUMED)
    text = text.replace("@woken\n", _WOKEN.replace("@rows", column_rows(WOKEN, first)) if wakes else "")
    text = text.replace("@and_woken", " + (select count(*) from woken)" if wakes else "")
    first += parameters(WOKEN) if wakes else 0
    arrays: dict[str, str] = {}
    if "handed" in names or "sent" in names:
        arrays = {f"@{name}[": f"(${n}::{kind}[])[" for n, (name, kind) in enumerate(KINDS, first)}
        first += len(KINDS)
    if "event" in names or "ended" in names:
        arrays["@moves["] = f"(${first}::bytea[])["
        first += 1
    tasks = ""
    for name in names:
        part = PARTS[name]
        if name == "new_signal":
            text, tasks = text.replace("@rows", column_rows(part.columns, first)), f"${first}::text::bigint[]"
        text += f"p_{name} as ({part.text.replace('@rows', column_rows(part.columns, first))}),\n"
        first += parameters(part.columns)
    for mark, array in arrays.items():
        text = text.replace(mark, array)
    withdraws, cancels = "withdraw" in names, "cancelled" in names
    withdrawals = "(select array_agg(n) from p_withdraw)" if withdraws else "null::bigint[]"
    text = text.replace("@withdrawn_first", _WITHDRAWN_FIRST if withdraws else "")
    text += _TAIL.replace("@withdrawn", withdrawals)
    text = text.replace("@cancelled", _CANCELLED if cancels else "null::text[]")
    text = text.replace("@notified", f" || {_CANCELLED}" if cancels else "")
    text = text.replace("@not_inserted", _NOT_INSERTED if new else "")
    text = text.replace("@new", ", array(select task from new) as new" if new and looks else "")
    text = text.replace(
        "@all_there", (_ALL_THERE + _ALL_NEW if new else _ALL_THERE) if looks else ""
    ).replace("@missing", _MISSING if looks else "null")
    text = text.replace("@tasks", tasks)
    return text.replace("@idx", _IDX).replace("@attempt", _ATTEMPT)
