"""Submits tasks, with one statement per table for any number of drafts."""

import functools
import json
from collections import defaultdict
from collections.abc import Sequence

from makegood.base.wall_times import AHEAD
from makegood.errors import PayloadError
from makegood.store import rows
from makegood.store.joined_checks import places
from makegood.store.notice_records import first_notice
from makegood.store.records import Submission, Submitted
from makegood.store.sqlite import notices
from makegood.store.sqlite.bulk_change import UNUSED, Change, spans, tasks
from makegood.store.sqlite.decision_rows import Writing, draw_ready
from makegood.store.sqlite.transaction import DATA_FAULTS, Row, WriteTransaction, blob

# What differs from task to task is cut out of one value: nine digits for the number of the task in its batch,
# ten digits for the length of each text that it has (its key and so on), these texts, the fingerprint, and
# the static part. ``bulk_change`` shows an example.
_TASKS = """
insert into makegood_task (id, app, workflow, fingerprint, state, goal, on_failure, submission, priority, ready_seq,
    epoch, cause, failure_count, lost, task_expired, created_at, static, within, undo_within, locked_by, complete_by{columns})
select cast(id as integer), ?4, ?5, substr(?2, at, ?6), ?7, 'forward', ?8, 1, ?9,
    ?3 + n, ?10, '', 0, 0, 0, ?11, substr(?2, at + ?6, until - at - ?6), ?12, ?13, ?14, ?15{values}
from (select *, {at} as at from (
    select x.key as id, (x.value >> 32) + 1 as start, (x.value >> 32) + (x.value & 4294967295) + 1 as until,
        cast(substr(?2, (x.value >> 32) + 1, 9) as integer) as n{sizes}
    from json_each(?1) x
)) where true
on conflict do nothing
"""
_TEXTS = ("key", "correlation_id", "trace", "told")
_NUMBER, _SIZE = 9, 10  # digits
_ALIKE_FROM = 8
_OURS = "select id, ready_seq from makegood_task where id in ({marks})"
SLEEP = (
    "update makegood_task set state = 'sleeping', ready_seq = ?, start_at = ?, start_wall = ? where id = ?"
)
"""Takes the values of ``sleep``. A new task is pending until then, in the same transaction."""
ATTRIBUTES = """
insert into makegood_attribute (task, name, value)
select json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]') from json_each(?) where true
"""
LANES = """
insert into makegood_lane (task, app, name, seq, at_once, when_taken, state)
select json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'), json_extract(value, '$[3]'),
    json_extract(value, '$[4]'), json_extract(value, '$[5]'), json_extract(value, '$[6]') from json_each(?) where true
"""
"""Takes the places of ``places``, as JSON."""
BY_KEY = "select id, case when fingerprint <> ? then static end from makegood_task where key = ? and workflow = ? and app = ?"


def submit(tx: WriteTransaction, drafts: Sequence[Submission]) -> list[Submitted]:
    """Insert tasks with their steps. Returns one answer per draft, in order.

    Raises ``PayloadError`` if the database refuses a value.
    """
    try:
        return _submit(tx, drafts) if drafts else []
    except DATA_FAULTS as fault:
        raise PayloadError(
            f"the database refuses a value of this submission ({type(fault).__name__}: {fault}); texts must be Unicode "
            "without lone surrogates, numbers of 64 bits; nothing was written"
        ) from fault


def _submit(tx: WriteTransaction, drafts: Sequence[Submission]) -> list[Submitted]:
    first = draw_ready(tx, len(drafts))
    count = _tasks(tx, drafts, first)
    answers: list[Submitted | None] = [None] * len(drafts)
    numbers = range(len(drafts)) if count == len(drafts) else _find_inserted(tx, drafts, first)
    for n in numbers:
        answers[n] = Submitted(drafts[n].id, is_new=True)
    _with_steps(tx, [drafts[n] for n in numbers])
    starts = [sleep(drafts[n], tx.now, tx.calendar) for n in numbers if drafts[n].start is not None]
    tx.many(SLEEP, [values for values in starts if values is not None])
    if attributes := [(drafts[n].id, *pair) for n in numbers for pair in drafts[n].attributes]:
        tx.run(ATTRIBUTES, (json.dumps(attributes),))
    with_lanes = [n for n in numbers if drafts[n].lanes.names]
    if lanes := [place for n in with_lanes for place in places(drafts[n], first + n)]:
        tx.run(LANES, (json.dumps(lanes),))
        tx.topics.add("queued")
    with_reply = [drafts[n] for n in numbers if drafts[n].reply_to is not None]
    first_notices = [notice for draft in with_reply if (notice := first_notice(draft)) is not None]
    if first_notices:
        notices.write(tx, first_notices)
    if any(drafts[n].holder is None and not drafts[n].lanes.names for n in numbers):
        tx.topics.add("pending")
    if starts:
        tx.topics.add("sleeping")
    return [answer or _existing(tx, draft) for answer, draft in zip(answers, drafts, strict=True)]


def sleep(draft: Submission, now: float, calendar: float) -> Row | None:
    """Return the values of ``SLEEP`` for a task that begins later; None if its start has come. (One with
    lanes sleeps all the same: the claim that finds it due queues it.)

    ``now``: the store's clock. ``calendar``: the machine's wall clock.
    """
    start = draft.start
    if start is None:
        return None
    wall, clock = (None, now) if start.delay is not None else (start.wall, calendar)
    moment = start.at if start.delay is None else now + start.delay
    look = moment - AHEAD if wall and moment - AHEAD > clock else moment
    return (round(look * 1_000_000), moment, wall, draft.id) if moment > clock or draft.lanes.names else None


def _tasks(tx: WriteTransaction, drafts: Sequence[Submission], first: int) -> int:
    """Insert the rows of tasks, numbered from ``first``; returns how many are new."""
    alike: defaultdict[tuple[tuple[str, ...], Row], tuple[list[int], list[bytes]]] = defaultdict(
        lambda: ([], [])
    )
    for n, d in enumerate(drafts):
        names, head = _texts(d)
        ids, values = alike[names, _common_values(d, tx.now)]
        ids.append(d.id)
        values.append(
            b"%09d%b%b%b"
            % (
                n,
                head,
                d.fingerprint,
                rows.static(d.inputs, d.returns, d.reply, d.names, d.signals, lanes=d.lanes.names),
            )
        )
    count = 0
    for (names, row), (ids, values) in alike.items():
        text = alike_statement(names)
        count += sum(tx.run(text, (task_text, data, first, *row)) for task_text, data in spans(ids, values))
    return count


def _texts(d: Submission) -> tuple[tuple[str, ...], bytes]:
    """Return the names of the texts that a task has, and their lengths followed by the texts."""
    if d.key is None and d.correlation_id is None and d.trace is None and d.reply_to is None:
        return (), b""
    notice_state = None if d.reply_to is None else d.told
    texts = [
        (name, text.encode())
        for name, text in zip(_TEXTS, (d.key, d.correlation_id, d.trace, notice_state), strict=True)
        if text is not None
    ]
    sizes = b"".join([b"%010d" % len(text) for _, text in texts])
    return tuple([name for name, _ in texts]), sizes + b"".join([text for _, text in texts])


@functools.lru_cache(maxsize=16)
def alike_statement(names: tuple[str, ...]) -> str:
    """Return the statement that inserts tasks with these texts."""
    columns, values, sizes = "", "", ""
    at = f"start + {_NUMBER + _SIZE * len(names)}"
    for n, name in enumerate(names):
        sizes += (
            f", cast(substr(?2, (x.value >> 32) + {1 + _NUMBER + _SIZE * n}, {_SIZE}) as integer) as size{n}"
        )
        columns, values = f"{columns}, {name}", f"{values}, cast(substr(?2, {at}, size{n}) as text)"
        at += f" + size{n}"
    if "told" in names:
        columns, values = f"{columns}, notified", f"{values}, ?16"
    return _TASKS.format(columns=columns, values=values, sizes=sizes, at=at)


def _common_values(d: Submission, now: float) -> Row:
    """Return the values that a task may share with others, from ``?4`` on."""
    begins = d.first is not None
    complete_by = now + d.within if begins and d.within is not None else None
    values = (
        d.app, d.workflow, len(d.fingerprint), "processing" if begins else "queued" if d.lanes.names else "pending", d.on_failure, d.priority,
        0 if d.holder is None else 1, now, d.within, d.undo_within, d.holder, complete_by,
    )  # fmt: skip
    return values if d.reply_to is None else (*values, d.notified)


def _with_steps(tx: WriteTransaction, drafts: Sequence[Submission]) -> None:
    """Insert the steps of new tasks, and the Decisions that their holders have already made on them."""
    shapes: dict[tuple[int, int], list[Submission]] = {}
    writings: dict[int | None, Writing] = {}
    for draft in drafts:
        decision = draft.first
        if decision is None:
            shapes.setdefault((id(draft.steps), 0), []).append(draft)
            continue
        shapes.setdefault((id(draft.steps), id(decision.steps)), []).append(draft)
        if (writing := writings.get(draft.holder)) is None:
            writing = writings[draft.holder] = Writing.of(tx, draft.holder)
        writing.begin(decision)
    changes: list[Change] = []
    own: defaultdict[Row, list[tuple[int, bytes]]] = defaultdict(list)
    for alike in shapes.values():
        _steps(alike, changes, own)
    for values, pairs in own.items():
        changes += [
            ("own_step", task_text, data, *values) for task_text, data in spans(*zip(*pairs, strict=True))
        ]
    for writing in writings.values() or [Writing.of(tx, None)]:
        writing.write(changes)
        changes = []


def _steps(
    alike: list[Submission], changes: list[Change], own: defaultdict[Row, list[tuple[int, bytes]]]
) -> None:
    """Add the steps of tasks of one shape to ``changes``, or to ``own`` by their shared values if the tasks
    are few.
    """
    first = alike[0]
    running_steps = () if first.first is None else first.first.steps
    together = tasks([draft.id for draft in alike]) if len(alike) >= _ALIKE_FROM else ""
    for s, spec in zip(first.steps, first.steps.specs, strict=True):
        state = ("running", 1) if s.idx in running_steps else ("waiting", 0)
        values = (s.idx, s.kind, s.name, s.agent, s.action, *state)
        if together:
            changes.append(("step", together, UNUSED, *values, blob(spec)))
        else:
            own[values] += [(draft.id, spec) for draft in alike]


def _find_inserted(tx: WriteTransaction, drafts: Sequence[Submission], first: int) -> list[int]:
    """Return the positions of the drafts that were inserted, recognised by their ``ready_seq``, which is
    unique.
    """
    ready_seqs: dict[int, int] = dict(tx.among(_OURS, [d.id for d in drafts]))
    return [n for n, d in enumerate(drafts) if ready_seqs.get(d.id) == first + n]


def _existing(tx: WriteTransaction, draft: Submission) -> Submitted:
    """Return the answer for a draft that was not inserted: an existing task has its key, or else its id."""
    if draft.key is not None:
        for task, fingerprint in tx.rows(
            BY_KEY, (blob(draft.fingerprint), draft.key, draft.workflow, draft.app)
        ):
            return rows.duplicate_answer(task, fingerprint)
    return Submitted(draft.id, is_new=False, key_collision=True)
