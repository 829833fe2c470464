"""Submitting tasks: one statement for all drafts of all callers that arrived during the previous one.

The database omits a draft whose task key or id exists, and inserts steps only for inserted tasks.
(The comparison is skipped when all were inserted: joining one part of such a statement to another
costs the product of both.)

Tasks of one workflow mostly have the same steps, since arguments that are inputs are stored as
references. Each distinct *shape* is sent once, and tasks refer to theirs by number. If there are too many
shapes, each task sends its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from makegood.base import ids as ids_
from makegood.base.wall_times import AHEAD
from makegood.errors import PayloadError
from makegood.model.decision import Decision
from makegood.model.notices import Notice, event, label, queue, topic_of
from makegood.model.shape import Shape
from makegood.model.states import Move
from makegood.store import rows
from makegood.store.joined_checks import places, topics_of
from makegood.store.notice_records import first_notice, listeners, queue_notice_rows
from makegood.store.postgres.commit_statement import (
    AS_QUEUED,
    IN_ORDER,
    INTO_LISTENER,
    INTO_NOTICE,
    LISTENER,
    NOTICE,
    QUEUED,
    column_rows,
    join_values,
    numbers,
    piece,
    place,
)
from makegood.store.postgres.decision_rows import arrays, columns
from makegood.store.postgres.errors import is_data
from makegood.store.postgres.transaction import Row, WriterGoneError, WriteTransaction
from makegood.store.records import Submission, Submitted

_MOST_STEPS = 100
"""With more steps than this in all shapes of a batch, the product with its tasks costs more than it saves."""

_SUBMIT = """
with writer as (select 1 from makegood.writer where id = $1 and number = $2 for update),
at as materialized (select extract(epoch from clock_timestamp())::float8 as now from writer),
ins as (
    insert into makegood.task (id, app, workflow, key, fingerprint, state, goal, on_failure, submission, priority, ready_seq,
        locked_by, epoch, within, complete_by, undo_within, cause, failure_count, lost, task_expired, correlation_id, trace, created_at, static@columns)
    select x.id, ($6::text[])[x.shape], ($7::text[])[x.shape], @key, @fingerprint, @state, 'forward', ($8::text[])[x.shape], 1,
        ($9::int[])[x.shape], @ready, ($27::bigint[])[x.shape], (($27::bigint[])[x.shape] is not null)::int,
        ($10::float8[])[x.shape], @complete_by, ($11::float8[])[x.shape], '', 0, 0, false, @correlation_id, @trace, at.now, @static@values
    from at cross join unnest($12::text::bigint[], $13::text::int[], $15::text::bigint[], $16::text::bigint[], $17::text[], $18::text[], $19::text[]@array)
        as x (id, shape, fingerprint, static, key, correlation_id, trace@name)
    on conflict do nothing
    returning id
),
st as (
    insert into makegood.step (task, idx, kind, name, agent, action, state, attempt, round, failure_count, asked, deaths, flags, spec)
    select t.id, s.idx, s.kind, s.name, s.agent, s.action, 'waiting', 0, 1, 0, 0, 0, 0, s.spec
    from at cross join unnest($12::text::bigint[], $13::text::int[]) as t (id, shape)
        join unnest($20::text::int[], $21::text::int[], $22::text[], $23::text[], $24::text[], $25::text[], $26::bytea[])
            as s (shape, idx, kind, name, agent, action, spec) on s.shape = t.shape
    where (select count(*) from ins) = $5 or t.id = any (array(select id from ins))
),
@begun
@notices
@attributes
@lanes
mark as (
    update makegood.writer w set number = $3, at = at.now,
        outcome = case when (select count(*) from ins) < $5 then array(select id from ins) end
    from at where w.id = $1
    returning (select count(pg_notify('makegood', topic)) from unnest($4::text[]) topic where exists (select 1 from ins))
)
select array(select id from ins) as created, (select count(*) from mark) as marked
"""
# The first Decision on tasks that are held from the beginning: what their Scheduler would have written next.
_BEGUN = """
rq as (
    insert into makegood.request (task, idx, attempt, kind, agent, action, priority, isolate, starved, sent_at, taken_by, within,
        complete_by, answered, body, taken_at)
    select r.task, (r.place >> 32)::int, (r.place & 4294967295)::int, ($33::text[])[r.what], ($34::text[])[r.what],
        ($35::text[])[r.what], ($36::int[])[r.what], ($37::boolean[])[r.what], false, at.now, ($39::bigint[])[r.what],
        ($38::float8[])[r.what], case when ($39::bigint[])[r.what] is not null then at.now + ($38::float8[])[r.what] end, false, r.body,
        ($40::float8[])[r.what]
    from at cross join unnest($29::text::bigint[], $30::text::bigint[], $31::text::int[], $32::bytea[]) as r (task, place, what, body)
    where (select count(*) from ins) = $5 or r.task = any (array(select id from ins))
),
ev as (
    insert into makegood.event (task, at, node, moves, note)
    select b.id, at.now, ($27::bigint[])[b.shape], ($28::bytea[])[b.shape], ''
    from at cross join unnest($12::text::bigint[], $13::text::int[]) as b (id, shape)
    where ($28::bytea[])[b.shape] is not null and ((select count(*) from ins) = $5 or b.id = any (array(select id from ins)))
),
"""
_STATE = "case when ($28::bytea[])[x.shape] is null then 'pending' else 'processing' end"
_COMPLETE_BY = "case when ($28::bytea[])[x.shape] is not null then at.now + ($10::float8[])[x.shape] end"
_BY_SHAPE = """    from at cross join unnest($12::text::bigint[], $13::text::int[]) as t (id, shape)
        join unnest($20::text::int[], $21::text::int[], $22::text[], $23::text[], $24::text[], $25::text[], $26::bytea[])
            as s (shape, idx, kind, name, agent, action, spec) on s.shape = t.shape
"""
_BY_TASK = """    from at cross join unnest($20::text::bigint[], $21::text::int[], $22::text[], $23::text[], $24::text[], $25::text[], $26::bytea[])
            as s (id, idx, kind, name, agent, action, spec)
"""
_NEW = "(select count(*) from ins) = $5 or x.task = any (array(select id from ins))"
_NOTICES = f"""p_notice as (
    {INTO_NOTICE}
    from at cross join makegood.generation g cross join @notice where {_NEW}
),
p_listener as (
    {INTO_LISTENER}
    from at cross join @listener where {_NEW}
),
p_queued as (
    {AS_QUEUED}
    from at cross join makegood.generation g cross join @queued where {_NEW}
    {IN_ORDER}
),
"""
_READY = "(extract(epoch from clock_timestamp()) * 1000000)::bigint"
# A task that begins later has a delay, or a moment with its wall time.
_START = "coalesce(at.now + x.delay, x.start_at)"
_LOOK = f"{_START} - case when x.start_wall <> '' and x.start_at > at.now + {AHEAD} then {AHEAD} else 0 end"
_SLEEPS = f"coalesce({_START} > at.now, false)"
_ATTRIBUTES = f"""attr as (
    insert into makegood.attribute (task, name, value)
    select x.task, x.name, x.value from at cross join unnest(@arrays) as x (task, name, value) where {_NEW}
),
"""  # noqa: S608 - our own text
_LANES = f"""lane as (
    insert into makegood.lane (task, app, name, seq, at_once, when_taken, state)
    select x.task, x.app, x.name, (at.now * 1000000)::bigint + x.n, x.at_once, x.when_taken, x.state
    from at cross join unnest(@arrays) as x (@names) where {_NEW}
),
"""  # noqa: S608 - our own text
_LANED = "@laned"
_OPTIONAL = ("key", "correlation_id", "trace")
_FIRST, _BEGUN_COLUMNS, _START_COLUMNS = 28, 13, 3
_AT_ONCE = (None, None, None)
_NOTICE_COLUMNS = 1 + len(NOTICE) + len(LISTENER) + len(QUEUED)

_BY_KEY = """
select x.n, t.id, case when t.fingerprint <> x.fingerprint then t.static end as other
from unnest($1::int[], $2::text[], $3::text[], $4::text[], $5::bytea[]) as x (n, key, workflow, app, fingerprint) cross join lateral (
    select t.id, t.fingerprint, t.static from makegood.task t where t.key = x.key and t.workflow = x.workflow and t.app = x.app offset 0
) t
"""


@lru_cache(maxsize=100)
def statement(
    presence: tuple[bool, ...],
    *,
    by_shape: bool,
    begins: bool,
    notifies: bool,
    delays: bool = False,
    labels: bool = False,
    has_lanes: bool = False,
) -> str:
    """Return the statement.

    ``presence``: which of the optional columns have a value in some row. ``begins``: some tasks begin
    at once. ``notifies``: some submitters want notices; then the statement takes the columns of
    ``_notice_columns`` as parameters. ``delays``: some tasks begin later; then it takes their starts before
    these. ``labels``: some tasks have attributes; their columns follow. ``has_lanes``: some tasks have
    lanes; the columns of their places are the last parameters.
    """
    text = _SUBMIT.replace("@begun\n", _BEGUN if begins else "")
    for name in ("fingerprint", "static"):
        text = text.replace(f"@{name}", piece(f"x.{name}", 14))
    state, ready, first = _STATE if begins else "'pending'", _READY, _FIRST + _BEGUN_COLUMNS * begins
    if has_lanes:
        state = f"case when {_LANED} then 'queued' else {state} end"
    if delays:
        text = _with_starts(text, first)
        state = f"case when {_SLEEPS} then 'sleeping' else {state} end"
        ready = f"case when {_SLEEPS} then (({_LOOK}) * 1000000)::bigint else {ready} end"
    text = text.replace("@state", state).replace("@ready", ready)
    text = text.replace("@complete_by", _COMPLETE_BY if begins else "null")
    first += _START_COLUMNS * delays
    text = _with_notices(text, first) if notifies else _without_notices(text)
    first += _NOTICE_COLUMNS * notifies
    arrays_ = f"${first}::text::bigint[], ${first + 1}::text[], ${first + 2}::text[]"
    text = text.replace("@attributes\n", _ATTRIBUTES.replace("@arrays", arrays_) if labels else "")
    text = _with_lanes(text, first + 3 * labels) if has_lanes else text.replace("@lanes\n", "")
    for name, present in zip(_OPTIONAL, presence, strict=True):
        text = text.replace(f"@{name}", f"x.{name}" if present else "null")
    if not by_shape:
        text = (
            text.replace(_BY_SHAPE, _BY_TASK)
            .replace("t.id = any", "s.id = any")
            .replace("select t.id, s.idx", "select s.id, s.idx")
        )
    return text


def _with_lanes(text: str, first: int) -> str:
    """Return a statement that also writes places in lanes. A task with lanes that begins later sleeps even if
    its moment has passed: the claim that finds it due queues it.
    """
    names = ["task", "n", "app", "name", "at_once", "when_taken", "state"]
    kinds = ["text::bigint", "text::int", "text", "text", "text::int", "text", "text"]
    arrays_ = ", ".join(f"${n}::{kind}[]" for n, kind in enumerate(kinds, first))
    sleeps = f"coalesce({_START} > at.now or ({_LANED} and {_START} is not null), false)"
    return (
        text.replace("@lanes\n", _LANES.replace("@arrays", arrays_).replace("@names", ", ".join(names)))
        .replace(_SLEEPS, sleeps)
        .replace(_LANED, f"x.id = any (${first}::text::bigint[])")
    )


def _with_starts(text: str, first: int) -> str:
    """Return a statement that also writes when tasks begin. Marks of further columns stay behind these."""
    return (
        text.replace("@columns", ", start_at, start_wall@columns")
        .replace(
            "@values",
            f", case when {_SLEEPS} then {_START} end, case when {_SLEEPS} then x.start_wall end@values",
        )
        .replace("@array", f", ${first}::float8[], ${first + 1}::float8[], ${first + 2}::text[]@array")
        .replace("@name", ", delay, start_at, start_wall@name")
    )


def _with_notices(text: str, first: int) -> str:
    notice = first + 1
    listener = notice + len(NOTICE)
    return (
        text.replace("@notices", _NOTICES)
        .replace("@columns", ", told, notified")
        .replace("@values", ", x.told, case when x.told is not null then 1 end")
        .replace("@array", f", ${first}::text[]")
        .replace("@name", ", told")
        .replace("@notice", column_rows(NOTICE, notice))
        .replace("@listener", column_rows(LISTENER, listener))
        .replace("@queued", column_rows(QUEUED, listener + len(LISTENER)))
    )


def _without_notices(text: str) -> str:
    for mark in ("@notices\n", "@columns", "@values", "@array", "@name"):
        text = text.replace(mark, "")
    return text


class _EncodedMoves:
    """Encodes the moves that several drafts of a batch share, once. (The drafts keep them alive.)"""

    def __init__(self) -> None:
        self._encodings: dict[int, bytes] = {}

    def of(self, moves: Sequence[Move]) -> bytes:
        encoding = self._encodings.get(id(moves))
        if encoding is None:
            encoding = self._encodings[id(moves)] = rows.moves(moves)
        return encoding


@dataclass(slots=True)
class SubmitColumns:
    """Drafts as the columns of the statement."""

    shapes: dict[tuple[Any, ...], int] = field(default_factory=dict)
    tasks: list[tuple[Any, ...]] = field(default_factory=list)
    steps: list[tuple[Any, ...]] = field(default_factory=list)
    notice_states: list[str | None] = field(default_factory=list)
    starts: dict[int, tuple[float | None, float | None, str | None]] = field(default_factory=dict)
    """Place in ``tasks`` -> the delay, or the moment with its wall time, of a task that begins later."""
    notices: list[Notice] = field(default_factory=list)
    requests: list[tuple[Any, ...]] = field(default_factory=list)
    kinds: dict[tuple[Any, ...], int] = field(default_factory=dict)
    topics: set[str] = field(default_factory=set)
    attributes: list[tuple[int, str, str]] = field(default_factory=list)
    places: list[tuple[Any, ...]] = field(default_factory=list)
    """Places in lanes."""

    def collect(self, drafts: Sequence[Submission]) -> None:
        """Take the drafts, except those whose id occurs twice in the batch: the later one collided."""
        ids: set[int] = set()
        forms: dict[tuple[bytes, ...], int] = {}
        encodings = _EncodedMoves()
        for d in drafts:
            if d.id in ids:
                continue
            ids.add(d.id)
            form = forms.setdefault(d.steps.specs, len(forms) + 1)
            moves = None if d.first is None else encodings.of(d.first.moves)
            shape = (
                d.app, d.workflow, d.on_failure, d.priority, d.within, d.undo_within, d.holder, moves, form
            )  # fmt: skip
            number = self.shapes.get(shape)
            if number is None:
                number = self.shapes[shape] = len(self.shapes) + 1
                self.steps += _steps(number, d.steps)
            if d.first is not None:
                self._begin(d, d.first)
            elif d.holder is None:
                self.topics |= topics_of([d])
            static = rows.static(d.inputs, d.returns, d.reply, d.names, d.signals, lanes=d.lanes.names)
            if (start := d.start) is not None:
                at = (None, None) if start.delay is not None else (start.at, start.wall)
                self.starts[len(self.tasks)] = (start.delay, *at)
            if d.lanes.names:
                self.places += places(d, len(self.tasks))
            self.tasks.append((d.id, number, d.fingerprint, static, d.key, d.correlation_id, d.trace))
            if d.attributes:
                self.attributes += [(d.id, *pair) for pair in d.attributes]
            notice = first_notice(d) if d.reply_to is not None else None  # most have none: no call
            self.notice_states.append(None if notice is None else notice.state)
            if notice is not None:
                self.notices.append(notice)
                self.topics.add(topic_of(notice.reply.to))

    def _notice_columns(self) -> list[Any]:
        """Return the further parameters of a statement with notices to submitters."""
        to_web = [n for n in self.notices if queue(n.reply.to) is None]
        texts = [(n.task, n.sequence, label(n), event(n)) for n in to_web]
        return [
            self.notice_states,
            *arrays(NOTICE, texts),
            *arrays(LISTENER, listeners(to_web)),
            *arrays(QUEUED, queue_notice_rows(self.notices)),
        ]

    def _begin(self, d: Submission, first: Decision) -> None:
        """Collect the requests of a task that begins at once."""
        holder, handed_at = (d.holder, first.handed_at) if first.handovers else (None, None)
        for r in first.requests:
            agent = ids_.address(r.app, r.agent)
            kind = (r.doing, agent, r.action, r.priority, r.isolate, r.within, holder, handed_at)
            number = self.kinds.setdefault(kind, len(self.kinds) + 1)
            self.requests.append(
                (d.id, place(r.idx, r.attempt), number, None if first.handovers else rows.request(r))
            )
            if not first.handovers:
                self.topics.add(f"agent:{agent}")

    def values(self, drafts: Sequence[Submission]) -> tuple[str, list[Any]]:
        """Return the statement and its parameters from the fifth on."""
        ids, numbers_, prints, statics, *optional = columns(self.tasks, 7)
        presence = tuple(any(value is not None for value in column) for column in optional)
        by_shape = len(self.steps) <= _MOST_STEPS
        steps = self.steps if by_shape else [row for d in _distinct(drafts) for row in _steps(d.id, d.steps)]
        owners, places, *rest = columns(steps, 7)
        *shapes, holders, moves, _ = columns(list(self.shapes), 9)
        optional = [column if present else [] for column, present in zip(optional, presence, strict=True)]
        first_decisions: list[Any] = []
        if self.requests:
            tasks, positions, kind_numbers, bodies = columns(self.requests, 4)
            kinds = columns(list(self.kinds), 8)
            first_decisions = [
                moves,
                numbers(tasks),
                numbers(positions),
                numbers(kind_numbers),
                bodies if any(bodies) else [],  # nearly always none is written: as many nulls
                *kinds,
            ]
        start_values: list[Any] = []
        if self.starts:
            start_values = columns([self.starts.get(n, _AT_ONCE) for n in range(len(self.tasks))], 3)
        notice_values = self._notice_columns() if self.notices else []
        labels: list[Any] = []
        if self.attributes:
            tasks, names, texts = columns(self.attributes, 3)
            labels = [numbers(tasks), names, texts]
        lanes: list[Any] = []
        if self.places:
            tasks, apps, names, orders, most, terms, states = columns(self.places, 7)
            lanes = [numbers(tasks), numbers(orders), apps, names, numbers(most), terms, states]
        data, spans = join_values(prints + statics)
        text = statement(
            presence,
            by_shape=by_shape,
            begins=bool(first_decisions),
            notifies=bool(notice_values),
            delays=bool(start_values),
            labels=bool(labels),
            has_lanes=bool(lanes),
        )
        return text, [
            len(ids), *shapes, numbers(ids), numbers(numbers_), data, numbers(spans[: len(ids)]), numbers(spans[len(ids) :]), *optional,
            numbers(owners), numbers(places), *rest, holders, *first_decisions, *start_values, *notice_values, *labels, *lanes,
        ]  # fmt: skip


def _steps(owner: int, steps: Shape) -> list[tuple[Any, ...]]:
    return [
        (owner, s.idx, s.kind, s.name, s.agent, s.action, spec)
        for s, spec in zip(steps, steps.specs, strict=True)
    ]


def _distinct(drafts: Sequence[Submission]) -> list[Submission]:
    return list({d.id: d for d in reversed(drafts)}.values())


async def submit(tx: WriteTransaction, drafts: Sequence[Submission]) -> list[Submitted]:
    """Insert tasks with their steps; return one answer per draft, in order.

    Raises ``PayloadError`` if the database refuses a value.
    """
    try:
        batch = SubmitColumns()
        batch.collect(drafts)
        sql, values = batch.values(drafts)
        tx.is_sent = True
        row = await tx.row(sql, tx.writer, tx.before, tx.number, sorted(batch.topics), *values)
    except Exception as fault:
        if is_data(fault):
            raise PayloadError(
                f"the database refuses a value of this submission ({type(fault).__name__}: {fault}); texts must be Unicode "
                "without NUL or lone surrogates, numbers of 64 bits; nothing was written"
            ) from fault
        raise
    assert row is not None
    if not row["marked"]:
        raise WriterGoneError
    tx.has_mark = True
    return await answers_to(tx, drafts, row["created"], batch.topics)


async def recover_answers(
    tx: WriteTransaction, drafts: Sequence[Submission], outcome: Sequence[int] | None
) -> list[Submitted]:
    """Return the answers of a submission that was committed but whose answer was lost;
    ``outcome`` None: all were new.
    """
    batch = SubmitColumns()
    batch.collect(drafts)
    return await answers_to(tx, drafts, [d.id for d in drafts] if outcome is None else outcome, batch.topics)


async def answers_to(
    tx: WriteTransaction, drafts: Sequence[Submission], new_ids: Sequence[int], topics: set[str]
) -> list[Submitted]:
    """Return the answer to each draft when the tasks ``new_ids`` were inserted."""
    new = set(new_ids)
    if new:
        tx.topics |= topics
    if len(new) == len(drafts):
        return [Submitted(d.id, is_new=True) for d in drafts]
    answers: list[Submitted | None] = []
    left: list[tuple[int, str, str, str, bytes]] = []
    for n, d in enumerate(drafts):
        if d.id in new:
            new.discard(d.id)
            answers.append(Submitted(d.id, is_new=True))
        else:
            answers.append(None)
            if d.key is not None:
                left.append((n, d.key, d.workflow, d.app, d.fingerprint))
    existing_rows: dict[int, Row] = {}
    if left:
        existing_rows = {row["n"]: row for row in await tx.rows(_BY_KEY, *columns(left, 5))}
    return [
        answer or _existing(d, existing_rows.get(n))
        for n, (d, answer) in enumerate(zip(drafts, answers, strict=True))
    ]


def _existing(draft: Submission, row: Row | None) -> Submitted:
    if row is None:
        return Submitted(draft.id, is_new=False, key_collision=True)
    return rows.duplicate_answer(row["id"], row["other"])
