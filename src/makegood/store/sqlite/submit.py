"""Submitting tasks: one statement per table, whatever the number of drafts."""

from collections.abc import Sequence

from makegood.errors import PayloadError
from makegood.store import rows
from makegood.store.records import Draft, Submitted
from makegood.store.sqlite.transaction import DATA_FAULTS, Row, Transaction, blob

_TASK = """
insert into makegood_task (id, app, workflow, key, fingerprint, state, goal, on_failure, submission, priority, ready_seq,
    epoch, within, undo_within, cause, failure_count, lost, task_expired, correlation_id, trace, created_at, static)
values (?, ?, ?, ?, ?, 'pending', 'forward', ?, 1, ?, ?, 0, ?, ?, '', 0, 0, 0, ?, ?, ?, ?)
on conflict do nothing
"""
# Each null that is written out instead of handed over is cheaper by as much as a small column costs.
_BARE_TASK = """
insert into makegood_task (id, app, workflow, fingerprint, state, goal, on_failure, submission, priority, ready_seq,
    epoch, cause, failure_count, lost, task_expired, created_at, static)
values (?, ?, ?, ?, 'pending', 'forward', ?, 1, ?, ?, 0, '', 0, 0, 0, ?, ?)
on conflict do nothing
"""
_STEP = """
insert into makegood_step (task, idx, kind, name, agent, action, state, attempt, round, failure_count, asked, deaths, flags,
    spec)
values (?, ?, ?, ?, ?, ?, 'waiting', 0, 1, 0, 0, 0, 0, ?)
"""
_READY = "update makegood_ready set last = max(last + ?, ?) returning last"
_OURS = """
select id, ready_seq from makegood_task
where state = 'pending' and locked_by is null and priority = ? and ready_seq between ? and ?
"""
_BY_KEY = "select id, fingerprint from makegood_task where key = ? and workflow = ? and app = ?"


def draw_ready(tx: Transaction, count: int) -> int:
    """Return the first of ``count`` fresh numbers for tasks that become pending: rising, near the present microsecond."""
    last: int = tx.rows(_READY, (count, round(tx.now * 1_000_000)))[0][0]
    return last - count + 1


def submit(tx: Transaction, drafts: Sequence[Draft]) -> list[Submitted]:
    """Insert tasks with their steps; one answer per draft, in order.

    Raises ``PayloadError`` when the database refuses a value.
    """
    try:
        return _submit(tx, drafts) if drafts else []
    except DATA_FAULTS as fault:
        raise PayloadError(
            f"the database refuses a value of this submission ({type(fault).__name__}: {fault}); texts must be Unicode "
            "without lone surrogates, numbers of 64 bits; nothing was written"
        ) from fault


def _submit(tx: Transaction, drafts: Sequence[Draft]) -> list[Submitted]:
    first = draw_ready(tx, len(drafts))
    bare: list[Row] = []
    full: list[Row] = []
    for ready, d in enumerate(drafts, first):
        static = blob(rows.static(d.inputs, d.returns))
        if all(value is None for value in (d.key, d.within, d.undo_within, d.correlation_id, d.trace)):
            bare.append(
                (
                    d.id,
                    d.app,
                    d.workflow,
                    blob(d.fingerprint),
                    d.on_failure,
                    d.priority,
                    ready,
                    tx.now,
                    static,
                )
            )
        else:
            full.append(
                (
                    d.id, d.app, d.workflow, d.key, d.fingerprint, d.on_failure, d.priority, ready, d.within, d.undo_within,
                    d.correlation_id, d.trace, tx.now, static,
                )
            )  # fmt: skip
    inserted = tx.many(_BARE_TASK, bare) + tx.many(_TASK, full)
    answers: list[Submitted | None] = [None] * len(drafts)
    created = range(len(drafts)) if inserted == len(drafts) else _created(tx, drafts, first)
    steps: list[Row] = []
    for n in created:
        draft = drafts[n]
        id_ = draft.id
        answers[n] = Submitted(id_, created=True)
        steps += [(id_, s.idx, s.kind, s.name, s.agent, s.action, blob(rows.spec(s))) for s in draft.steps]
    tx.many(_STEP, steps)
    if created:
        tx.topics.add("pending")
    return [answer or _existing(tx, draft) for answer, draft in zip(answers, drafts, strict=True)]


def _created(tx: Transaction, drafts: Sequence[Draft], first: int) -> list[int]:
    """Return the positions of the drafts that were inserted: their ``ready_seq`` is nobody else's."""
    ours: list[int] = []
    for priority in sorted({d.priority for d in drafts}):
        found = tx.rows(_OURS, (priority, first, first + len(drafts) - 1))
        ours += [seq - first for _, seq in found]
    return sorted(ours)


def _existing(tx: Transaction, draft: Draft) -> Submitted:
    """Return what stands in the way of a draft: the task that has its key, else the one that has its id."""
    if draft.key is not None:
        for task, fingerprint in tx.rows(_BY_KEY, (draft.key, draft.workflow, draft.app)):
            return Submitted(task, created=False, conflict=fingerprint != draft.fingerprint)
    return Submitted(draft.id, created=False, collided=True)
