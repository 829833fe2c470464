"""The one statement that writes a batch of Decisions, put together from fixed parts.

A part is the change of one table, with the columns of the rows that it wants; only the parts that a batch needs stand in
its statement, so that the usual batch is short. The statement takes its decisions in a chain of sub-queries:

``lane``   locks the lane's row, if it is as we left it.
``held``   locks the tasks, if this node holds them under the epoch of the Decision. FOR NO KEY UPDATE, since a weaker lock
           lets a take-over go ahead that then reads the state before this commit.
``there``  looks which of the request rows that replies have used up are still there, unjudged.
``at``     says ``ok`` when nothing is missing, and reads the clock: after the locks.

Every part writes only when it is ok; otherwise nothing is written, the answer names what is held and there, and
the batch is tried again without the losers. A request row that is judged in the very moment between ``there`` and its
deletion (``gone``) makes the whole statement fail by a division by zero, and it is tried anew.

Planner's traps: each part joins parameters to one table by its key, never one sub-query to another (that costs
the product of both). No two parts may touch the same row: one of the two changes would be dropped in silence.
"""

from dataclasses import dataclass
from functools import lru_cache

HELD = (("task", "bigint"), ("epoch", "bigint"))
CONSUMED = (("task", "bigint"), ("idx", "int"), ("attempt", "int"))


@dataclass(frozen=True, slots=True)
class Part:
    """One change: the columns of its rows with their types, and its text, where ``@rows`` stands for the rows as ``x``."""

    columns: tuple[tuple[str, str], ...]
    text: str


_KEY = (("task", "bigint"), ("idx", "int"))

PARTS: dict[str, Part] = {
    "step": Part(
        (*_KEY, ("state", "text"), ("attempt", "int"), ("result", "bytea")),
        """
update makegood.step s set state = x.state, attempt = x.attempt, result = x.result,
    round = 1, asked = 0, deaths = 0, flags = 0, late = null, error = null
from at cross join @rows where at.ok and s.task = x.task and s.idx = x.idx
""",
    ),
    "full_step": Part(
        (
            *_KEY, ("state", "text"), ("attempt", "int"), ("result", "bytea"), ("round", "int"), ("asked", "int"),
            ("deaths", "int"), ("flags", "int"), ("late", "bytea"), ("error", "text"), ("reset", "boolean"), ("more", "int"),
        ),
        """
update makegood.step s set state = x.state, attempt = x.attempt, result = x.result, round = x.round, asked = x.asked,
    deaths = x.deaths, flags = x.flags, late = x.late, error = x.error,
    failure_count = case when x.reset then 0 else s.failure_count end + x.more
from at cross join @rows where at.ok and s.task = x.task and s.idx = x.idx
""",
    ),
    "count": Part(
        (*_KEY, ("reset", "boolean"), ("more", "int")),
        """
update makegood.step s set failure_count = case when x.reset then 0 else s.failure_count end + x.more
from at cross join @rows where at.ok and s.task = x.task and s.idx = x.idx
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
    "request": Part(
        (
            *_KEY, ("attempt", "int"), ("kind", "text"), ("agent", "text"), ("action", "text"), ("priority", "int"),
            ("isolate", "boolean"), ("taken_by", "bigint"), ("within", "float8"), ("body", "bytea"),
        ),
        """
insert into makegood.request (task, idx, attempt, kind, agent, action, priority, isolate, starved, sent_at, taken_by, within,
    complete_by, answered, body)
select x.task, x.idx, x.attempt, x.kind, x.agent, x.action, x.priority, x.isolate, false, at.now, x.taken_by, x.within,
    case when x.taken_by is not null then at.now + x.within end, false, x.body
from at cross join @rows where at.ok
""",
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
where at.ok and r.task = x.task and r.idx = x.idx and r.attempt = 0 and r.kind = 'timer'
""",
    ),
    "withdraw": Part(
        (*_KEY, ("attempt", "int"), ("n", "bigint")),
        """
delete from makegood.request r using at cross join @rows
where at.ok and r.task = x.task and r.idx = x.idx and r.attempt = x.attempt and r.taken_by is null and r.kind <> 'timer'
returning x.n
""",
    ),
    "rested": Part(
        (("task", "bigint"),),
        """
delete from makegood.request r using at cross join @rows where at.ok and r.task = x.task
""",
    ),
    "task": Part(
        (
            ("task", "bigint"), ("state", "text"), ("goal", "text"), ("cause", "text"), ("submission", "int"),
            ("failures", "int"), ("lost", "int"), ("result", "bytea"), ("locked_by", "bigint"), ("epoch", "bigint"),
            ("ends", "int"), ("draws", "boolean"), ("complete", "int"), ("undo", "int"),
        ),
        """
update makegood.task t set state = x.state, goal = x.goal, cause = x.cause, submission = x.submission,
    failure_count = t.failure_count + x.failures, lost = x.lost, result = x.result, locked_by = x.locked_by, epoch = x.epoch,
    ended_at = case x.ends when 0 then t.ended_at when 2 then at.now end,
    ready_seq = case when x.draws then nextval('makegood.ready') else t.ready_seq end,
    complete_by = case x.complete when 0 then t.complete_by when 2 then at.now + t.within end,
    undo_by = case x.undo when 0 then t.undo_by when 2 then at.now + t.undo_within end,
    task_expired = t.task_expired and x.complete <> 1
from at cross join @rows where at.ok and t.id = x.task
""",
    ),
    "alert": Part(
        (("kind", "text"), ("task", "bigint"), ("step", "text"), ("text", "text")),
        """
insert into makegood.alert (kind, task, step, text, at)
select x.kind, x.task, x.step, x.text, at.now from at cross join @rows where at.ok
""",
    ),
    "audit": Part(
        (
            ("act", "text"), ("task", "bigint"), ("kind", "text"), ("who", "text"), ("why", "text"), ("verdict", "text"),
            ("reason", "text"), ("state", "text"),
        ),
        """
insert into makegood.audit (act, task, kind, who, why, verdict, reason, state, at)
select x.act, x.task, x.kind, x.who, x.why, x.verdict, x.reason, x.state, at.now from at cross join @rows where at.ok
on conflict do nothing
""",
    ),
    "event": Part(
        (("task", "bigint"), ("node", "bigint"), ("moves", "bytea"), ("note", "text")),
        """
insert into makegood.event (task, at, node, moves, note)
select x.task, at.now, x.node, x.moves, x.note from at cross join @rows where at.ok
""",
    ),
    "read": Part(
        (("seq", "bigint"), ("task", "bigint")),
        """
delete from makegood.inbox i using at cross join @rows where at.ok and i.seq = x.seq and i.task = x.task
""",
    ),
}  # fmt: skip
"""Steps in two forms: ``step`` for one that was never in trouble, which is nearly all of them, ``full_step`` for the others.

``task``: ``ends``, ``complete``, ``undo`` say of a time: 0 keep, 1 clear, 2 set.
"""

_HEAD = """
with lane as (select 1 from makegood.writer where id = $1 and number = $2 for update),
held as (
    select t.id from @held join makegood.task t on t.id = x.task and t.epoch = x.epoch and t.locked_by = $5 for no key update of t
),
there as (
    select x.task, x.idx, x.attempt from @consumed
        join makegood.request r on r.task = x.task and r.idx = x.idx and r.attempt = x.attempt and r.kind <> 'timer'
),
ok as materialized (
    select (select count(*) from lane) = 1 and (select count(*) from held) = cardinality($7::bigint[])
        and (select count(*) from there) = cardinality($9::bigint[]) as ok
),
at as materialized (select ok, extract(epoch from clock_timestamp())::float8 as now from ok),
gone as (
    delete from makegood.request r using at cross join @consumed
    where at.ok and r.task = x.task and r.idx = x.idx and r.attempt = x.attempt and r.kind <> 'timer' returning 1
),
"""
_TAIL = """
mark as (
    update makegood.writer w
    set number = $3 / case when (select count(*) from gone) = cardinality($9::bigint[]) then 1 else 0 end, at = at.now,
        outcome = @withdrawn
    from at where at.ok and w.id = $1 and $6
    returning (select count(pg_notify('makegood', topic)) from unnest($4::text[]) topic)
)
select at.ok, (select count(*) from lane) as lane, (select count(*) from mark) as marked, @withdrawn as withdrawn,
    case when not at.ok then array(select id from held) end as held,
    case when not at.ok then array(select array[task, idx, attempt] from there) end as there
from at
"""


def _rows(columns: tuple[tuple[str, str], ...], first: int) -> str:
    arrays = ", ".join(f"${n}::{kind}[]" for n, (_, kind) in enumerate(columns, first))
    return f"unnest({arrays}) as x ({', '.join(name for name, _ in columns)})"


@lru_cache(maxsize=1000)
def statement(names: tuple[str, ...]) -> str:
    """Return the statement with these parts.

    Parameters: lane, number before, number, topics, node, whether to mark; the columns of HELD; those of CONSUMED; then those
    of each part in order. It returns one row: ok, lane (found), marked, withdrawn (their ``n``), held, there.
    """
    first = 7
    head = _HEAD.replace("@held", _rows(HELD, first))
    first += len(HELD)
    head = head.replace("@consumed", _rows(CONSUMED, first))
    first += len(CONSUMED)
    texts: list[str] = []
    for name in names:
        part = PARTS[name]
        texts.append(f"p_{name} as ({part.text.replace('@rows', _rows(part.columns, first))}),\n")
        first += len(part.columns)
    withdrawn = "(select array_agg(n) from p_withdraw)" if "withdraw" in names else "null::bigint[]"
    return head + "".join(texts) + _TAIL.replace("@withdrawn", withdrawn)
