"""Submitting tasks: one statement for all drafts of all callers that came meanwhile.

A draft whose key or id is taken is left out by the database; steps are inserted for those tasks only that were. (The
comparison is skipped when all were: joining one part of such a statement to another costs the product of both.)

Tasks of one workflow mostly have the same steps, since arguments that are inputs are stored as references. Each distinct
*shape* is sent once, and tasks name theirs by number; when there are too many shapes for that, each task sends its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import msgspec

from makegood.errors import PayloadError
from makegood.store import rows
from makegood.store.postgres.faults import is_data
from makegood.store.postgres.statement import numbers
from makegood.store.postgres.transaction import LaneGoneError, Row, Transaction
from makegood.store.postgres.writing import columns
from makegood.store.records import Draft, Submitted
from makegood.task import StepPlan

_MOST_STEPS = 100
"""More steps than this in all shapes of a batch, and the product with its tasks costs more than it spares."""

_SUBMIT = """
with lane as (select 1 from makegood.writer where id = $1 and number = $2 for update),
at as materialized (select extract(epoch from clock_timestamp())::float8 as now from lane),
ins as (
    insert into makegood.task (id, app, workflow, key, fingerprint, state, goal, on_failure, submission, priority, ready_seq,
        locked_by, epoch, within, undo_within, cause, failure_count, lost, task_expired, correlation_id, trace, created_at, static)
    select x.id, ($6::text[])[x.shape], ($7::text[])[x.shape], @key, x.fingerprint, 'pending', 'forward', ($8::text[])[x.shape], 1,
        ($9::int[])[x.shape], nextval('makegood.ready'), ($26::bigint[])[x.shape], (($26::bigint[])[x.shape] is not null)::int, ($10::float8[])[x.shape], ($11::float8[])[x.shape], '', 0, 0, false,
        @correlation_id, @trace, at.now, x.static
    from at cross join unnest($12::text::bigint[], $13::text::int[], $14::bytea[], $15::bytea[], $16::text[], $17::text[], $18::text[])
        as x (id, shape, fingerprint, static, key, correlation_id, trace)
    on conflict do nothing
    returning id
),
st as (
    insert into makegood.step (task, idx, kind, name, agent, action, state, attempt, round, failure_count, asked, deaths, flags, spec)
    select t.id, s.idx, s.kind, s.name, s.agent, s.action, 'waiting', 0, 1, 0, 0, 0, 0, s.spec
    from at cross join unnest($12::text::bigint[], $13::text::int[]) as t (id, shape)
        join unnest($19::text::int[], $20::text::int[], $21::text[], $22::text[], $23::text[], $24::text[], $25::bytea[])
            as s (shape, idx, kind, name, agent, action, spec) on s.shape = t.shape
    where (select count(*) from ins) = $5 or t.id = any (array(select id from ins))
),
mark as (
    update makegood.writer w set number = $3, at = at.now,
        outcome = case when (select count(*) from ins) < $5 then array(select id from ins) end
    from at where w.id = $1
    returning (select count(pg_notify('makegood', topic)) from unnest($4::text[]) topic where exists (select 1 from ins))
)
select array(select id from ins) as created, (select count(*) from mark) as marked
"""
_BY_SHAPE = """    from at cross join unnest($12::text::bigint[], $13::text::int[]) as t (id, shape)
        join unnest($19::text::int[], $20::text::int[], $21::text[], $22::text[], $23::text[], $24::text[], $25::bytea[])
            as s (shape, idx, kind, name, agent, action, spec) on s.shape = t.shape
"""
_BY_TASK = """    from at cross join unnest($19::text::bigint[], $20::text::int[], $21::text[], $22::text[], $23::text[], $24::text[], $25::bytea[])
            as s (id, idx, kind, name, agent, action, spec)
"""
_OPTIONAL = ("key", "correlation_id", "trace")
_encode = msgspec.json.Encoder().encode

_BY_KEY = """
select x.n, t.id, t.fingerprint
from unnest($1::int[], $2::text[], $3::text[], $4::text[]) as x (n, key, workflow, app) cross join lateral (
    select t.id, t.fingerprint from makegood.task t where t.key = x.key and t.workflow = x.workflow and t.app = x.app offset 0
) t
"""


@lru_cache(maxsize=100)
def statement(given: tuple[bool, ...], by_shape: bool) -> str:  # noqa: FBT001 - one of two forms
    """Return the statement; ``given``: which of the optional columns are not null in every row."""
    text = _SUBMIT
    for name, present in zip(_OPTIONAL, given, strict=True):
        text = text.replace(f"@{name}", f"x.{name}" if present else "null")
    if not by_shape:
        text = (
            text.replace(_BY_SHAPE, _BY_TASK)
            .replace("t.id = any", "s.id = any")
            .replace("select t.id, s.idx", "select s.id, s.idx")
        )
    return text


@dataclass(slots=True)
class Batch:
    """Drafts as the columns of the statement."""

    shapes: dict[tuple[Any, ...], int] = field(default_factory=dict)
    tasks: list[tuple[Any, ...]] = field(default_factory=list)
    steps: list[tuple[Any, ...]] = field(default_factory=list)

    def collect(self, drafts: Sequence[Draft]) -> None:
        """Take the drafts, but for those whose id was drawn twice in one batch: the later one collided."""
        known: set[int] = set()
        forms: dict[bytes, int] = {}
        for d in drafts:
            if d.id in known:
                continue
            known.add(d.id)
            form = forms.setdefault(_encode(d.steps), len(forms) + 1)
            shape = (d.app, d.workflow, d.on_failure, d.priority, d.within, d.undo_within, d.holder, form)
            number = self.shapes.get(shape)
            if number is None:
                number = self.shapes[shape] = len(self.shapes) + 1
                self.steps += [(number, *_step(s)) for s in d.steps]
            self.tasks.append(
                (
                    d.id,
                    number,
                    d.fingerprint,
                    rows.static(d.inputs, d.returns),
                    d.key,
                    d.correlation_id,
                    d.trace,
                )
            )

    def values(self, drafts: Sequence[Draft]) -> tuple[str, list[Any]]:
        """Return the statement and its parameters from the fifth on."""
        ids, numbers_, prints, statics, *optional = columns(self.tasks, 7)
        given = tuple(any(value is not None for value in column) for column in optional)
        by_shape = len(self.steps) <= _MOST_STEPS
        steps = self.steps if by_shape else [(d.id, *_step(s)) for d in _distinct(drafts) for s in d.steps]
        owners, places, *rest = columns(steps, 7)
        *shapes, holders, _ = columns(list(self.shapes), 8)
        optional = [column if present else [] for column, present in zip(optional, given, strict=True)]
        return statement(given, by_shape), [
            len(ids), *shapes, numbers(ids), numbers(numbers_), prints, statics, *optional, numbers(owners), numbers(places), *rest,
            holders,
        ]  # fmt: skip


def _step(s: StepPlan) -> tuple[Any, ...]:
    return s.idx, s.kind, s.name, s.agent, s.action, rows.spec(s)


def _distinct(drafts: Sequence[Draft]) -> list[Draft]:
    return list({d.id: d for d in reversed(drafts)}.values())


async def submit(tx: Transaction, drafts: Sequence[Draft]) -> list[Submitted]:
    """Insert tasks with their steps; one answer per draft, in order.

    Raises ``PayloadError`` when the database refuses a value.
    """
    try:
        batch = Batch()
        batch.collect(drafts)
        sql, values = batch.values(drafts)
        tx.sent = True
        row = await tx.row(sql, tx.lane, tx.before, tx.number, _topics(drafts), *values)
    except Exception as fault:
        if is_data(fault):
            raise PayloadError(
                f"the database refuses a value of this submission ({type(fault).__name__}: {fault}); texts must be Unicode "
                "without NUL or lone surrogates, numbers of 64 bits; nothing was written"
            ) from fault
        raise
    assert row is not None
    if not row["marked"]:
        raise LaneGoneError
    tx.marked = True
    return await submitted(tx, drafts, row["created"])


async def recovered(
    tx: Transaction, drafts: Sequence[Draft], outcome: Sequence[int] | None
) -> list[Submitted]:
    """Return the answers of a submission that was committed while its answer was lost; ``outcome`` None: all were new."""
    return await submitted(tx, drafts, [d.id for d in drafts] if outcome is None else outcome)


async def submitted(tx: Transaction, drafts: Sequence[Draft], created: Sequence[int]) -> list[Submitted]:
    """Return the answer to each draft when the tasks ``created`` were inserted."""
    new = set(created)
    if new:
        tx.topics.update(_topics(drafts))
    if len(new) == len(drafts):
        return [Submitted(d.id, created=True) for d in drafts]
    answers: list[Submitted | None] = []
    left: list[tuple[int, str, str, str]] = []
    for n, d in enumerate(drafts):
        if d.id in new:
            new.discard(d.id)
            answers.append(Submitted(d.id, created=True))
        else:
            answers.append(None)
            if d.key is not None:
                left.append((n, d.key, d.workflow, d.app))
    found: dict[int, Row] = {}
    if left:
        found = {row["n"]: row for row in await tx.rows(_BY_KEY, *columns(left, 4))}
    return [
        answer or _existing(d, found.get(n))
        for n, (d, answer) in enumerate(zip(drafts, answers, strict=True))
    ]


def _topics(drafts: Sequence[Draft]) -> list[str]:
    return ["pending"] if any(d.holder is None for d in drafts) else []


def _existing(draft: Draft, row: Row | None) -> Submitted:
    if row is None:
        return Submitted(draft.id, created=False, collided=True)
    return Submitted(row["id"], created=False, conflict=row["fingerprint"] != draft.fingerprint)
