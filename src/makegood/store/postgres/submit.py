"""Submitting tasks: one statement for all drafts of all callers that came meanwhile.

A draft whose key or id is taken is left out by the database; steps are inserted for those tasks only that were. (The
comparison is skipped when all were: joining one part of such a statement to another costs the product of both.)
"""

from collections.abc import Sequence

from makegood.errors import PayloadError
from makegood.store import rows
from makegood.store.postgres.faults import is_data
from makegood.store.postgres.transaction import LaneGoneError, Row, Transaction
from makegood.store.postgres.writing import columns
from makegood.store.records import Draft, Submitted

_SUBMIT = """
with lane as (select 1 from makegood.writer where id = $1 and number = $2 for update),
at as materialized (select extract(epoch from clock_timestamp())::float8 as now from lane),
ins as (
    insert into makegood.task (id, app, workflow, key, fingerprint, state, goal, on_failure, submission, priority, ready_seq,
        epoch, within, undo_within, cause, failure_count, lost, task_expired, correlation_id, trace, created_at, static)
    select x.id, x.app, x.workflow, x.key, x.fingerprint, 'pending', 'forward', x.on_failure, 1, x.priority,
        nextval('makegood.ready'), 0, x.within, x.undo_within, '', 0, 0, false, x.correlation_id, x.trace, at.now, x.static
    from at cross join unnest($5::bigint[], $6::text[], $7::text[], $8::text[], $9::bytea[], $10::text[], $11::int[], $12::float8[],
        $13::float8[], $14::text[], $15::text[], $16::bytea[]) as x (id, app, workflow, key, fingerprint, on_failure, priority,
        within, undo_within, correlation_id, trace, static)
    on conflict do nothing
    returning id
),
st as (
    insert into makegood.step (task, idx, kind, name, agent, action, state, attempt, round, failure_count, asked, deaths, flags, spec)
    select x.task, x.idx, x.kind, x.name, x.agent, x.action, 'waiting', 0, 1, 0, 0, 0, 0, x.spec
    from at cross join unnest($17::bigint[], $18::int[], $19::text[], $20::text[], $21::text[], $22::text[], $23::bytea[])
        as x (task, idx, kind, name, agent, action, spec)
    where (select count(*) from ins) = cardinality($5::bigint[]) or x.task = any (array(select id from ins))
),
mark as (
    update makegood.writer w set number = $3, at = at.now,
        outcome = case when (select count(*) from ins) < cardinality($5::bigint[]) then array(select id from ins) end
    from at where w.id = $1
    returning (select count(pg_notify('makegood', topic)) from unnest($4::text[]) topic where exists (select 1 from ins))
)
select array(select id from ins) as created, (select count(*) from mark) as marked
"""
_BY_KEY = """
select x.n, t.id, t.fingerprint
from unnest($1::int[], $2::text[], $3::text[], $4::text[]) as x (n, key, workflow, app)
    join makegood.task t on t.key = x.key and t.workflow = x.workflow and t.app = x.app
"""


async def submit(tx: Transaction, drafts: Sequence[Draft]) -> list[Submitted]:
    """Insert tasks with their steps; one answer per draft, in order.

    Raises ``PayloadError`` when the database refuses a value.
    """
    try:
        tx.sent = True
        row = await tx.row(_SUBMIT, tx.lane, tx.before, tx.number, ["pending"], *_values(drafts))
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


def _values(drafts: Sequence[Draft]) -> list[list[object]]:
    tasks: list[tuple[object, ...]] = []
    steps: list[tuple[object, ...]] = []
    known: set[int] = set()
    for d in drafts:
        if d.id in known:  # drawn twice in one batch: the later one collided
            continue
        known.add(d.id)
        tasks.append(
            (
                d.id, d.app, d.workflow, d.key, d.fingerprint, d.on_failure, d.priority, d.within, d.undo_within,
                d.correlation_id, d.trace, rows.static(d.inputs, d.returns),
            )
        )  # fmt: skip
        steps += [(d.id, s.idx, s.kind, s.name, s.agent, s.action, rows.spec(s)) for s in d.steps]
    return [*columns(tasks, 12), *columns(steps, 7)]


async def submitted(tx: Transaction, drafts: Sequence[Draft], created: Sequence[int]) -> list[Submitted]:
    """Return the answer to each draft when the tasks ``created`` were inserted."""
    new = set(created)
    if new:
        tx.topics.add("pending")
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


def _existing(draft: Draft, row: Row | None) -> Submitted:
    if row is None:
        return Submitted(draft.id, created=False, collided=True)
    return Submitted(row["id"], created=False, conflict=row["fingerprint"] != draft.fingerprint)
