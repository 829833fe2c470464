"""Turns Decisions into rows: collects them for a whole batch, then writes them with one statement per table.

Nearly all Decisions make the same few changes. These are grouped by the values that they share: see
``bulk_change``.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from makegood.base import ids as ids_
from makegood.model.decision import Decision
from makegood.model.messages import MOST_EXTENSION, Request
from makegood.model.notices import Notice
from makegood.model.shape import spec
from makegood.model.states import AT_REST, Move
from makegood.model.task import Step
from makegood.store import alerts, rows
from makegood.store.changes import (
    CLEAR,
    KEEP,
    SET,
    is_plain,
    moment_of,
    rare_rows,
    step_row,
    task_kind,
    task_row,
    task_topic,
    tells_of_steps,
)
from makegood.store.sqlite import bulk_change, notices
from makegood.store.sqlite.bulk_change import OVERTAKEN, SPAN, UNUSED, Change, spans, tasks
from makegood.store.sqlite.transaction import Row, WriteTransaction, blob

CHANGES = {
    # Fences: the tasks that this node holds, and the requests that replies have consumed.
    "held": f"""
select raise(fail, '{OVERTAKEN}') where ?5 <> (
    select count(*) from makegood_task where +locked_by = ?3 and epoch = ?4 and id in (select x.value from json_each(?1) x)
)
""",  # noqa: S608
    "consumed": f"""
delete from makegood_request
where task in (select x.value from json_each(?1) x) and idx = ?3 and attempt = ?4 and kind <> 'timer';
select raise(fail, '{OVERTAKEN}') where changes() <> ?5
""",  # noqa: S608
    # The only two changes that nearly all tasks go through. Naming fewer columns leaves most indexes
    # untouched.
    "claimed": """
update makegood_task set state = 'processing', locked_by = ?3, epoch = ?4, complete_by = coalesce(complete_by, ?5 + within)
where id in (select x.value from json_each(?1) x)
""",
    "processed": f"""
update makegood_task set state = 'processed', locked_by = null, result = {SPAN}, ended_at = ?3
from json_each(?1) x where makegood_task.id = cast(x.key as integer)
""",  # noqa: S608
    # Timers that nobody needs any more. Those that are set again in the same Decision are not among them.
    "dropped": """
delete from makegood_request where task in (select x.value from json_each(?1) x) and idx = ?3 and attempt = 0 and kind = 'timer'
""",
    "rested": "delete from makegood_request where task in (select x.value from json_each(?1) x)",
    # Steps that never had a failure, which are nearly all: sent, and done.
    "sent": """
update makegood_step set state = 'running', attempt = ?4, result = null,
    round = 1, asked = 0, deaths = 0, flags = 0, late = null, error = null
where task in (select x.value from json_each(?1) x) and idx = ?3
""",
    "done": f"""
update makegood_step set state = 'done', attempt = ?4, result = {SPAN},
    round = 1, asked = 0, deaths = 0, flags = 0, late = null, error = null
from json_each(?1) x where task = cast(x.key as integer) and idx = ?3
""",  # noqa: S608
    # Handed over in memory: only "do" requests, which nearly all are.
    "handed": """
insert into makegood_request (task, idx, attempt, kind, agent, action, priority, isolate, starved, sent_at, taken_by, taken_at,
    within, complete_by, answered, body)
select x.value, ?3, ?4, 'do', ?5, ?6, ?7, 0, 0, ?8, ?9, ?2, ?10, ?8 + ?10, 0, null from json_each(?1) x
""",
    # Waiting for an agent of another process.
    "asked": f"""
insert into makegood_request (task, idx, attempt, kind, agent, action, priority, isolate, starved, sent_at, taken_by, within,
    complete_by, answered, body)
select cast(x.key as integer), ?3, ?4, 'do', ?5, ?6, ?7, 0, 0, ?8, null, ?9, null, 0, {SPAN} from json_each(?1) x
""",  # noqa: S608
    "read": """
delete from makegood_inbox where (seq, task) in (select cast(x.key as integer), x.value from json_each(?1) x)
""",
    "moved": """
insert into makegood_event (task, at, node, moves, note, attempts) select x.value, ?3, ?4, ?5, '', x'' from json_each(?1) x
""",
    # The same, of attempts that were answered through the store.
    "ended": f"""
insert into makegood_event (task, at, node, moves, note, attempts)
select cast(x.key as integer), ?3, ?4, ?5, '', {SPAN} from json_each(?1) x
""",  # noqa: S608
    # Steps of many tasks of one shape.
    "step": """
insert into makegood_step (task, idx, kind, name, agent, action, state, attempt, round, failure_count, asked, deaths, flags,
    spec)
select x.value, ?3, ?4, ?5, ?6, ?7, ?8, ?9, 1, 0, 0, 0, 0, ?10 from json_each(?1) x
""",
    # Steps of tasks that each have their own shape.
    "own_step": f"""
insert into makegood_step (task, idx, kind, name, agent, action, state, attempt, round, failure_count, asked, deaths, flags,
    spec)
select cast(x.key as integer), ?3, ?4, ?5, ?6, ?7, ?8, ?9, 1, 0, 0, 0, 0, {SPAN} from json_each(?1) x
""",  # noqa: S608
}
"""The statement of each kind of change, for ``bulk_change``."""

# Less frequent changes, with more values: ``?1`` lists the tasks, the values of a row follow from ``?2`` on.
_STEP = """
update makegood_step set state = ?3, attempt = ?4, result = {result}, round = ?6, asked = ?7, deaths = ?8, flags = ?9, late = ?10,
    error = ?11, first_sent = ?12, runs_until = ?13, failure_count = case when ?14 then 0 else failure_count end + ?15
"""
_STEP_RESULT = f"""{_STEP.format(result=SPAN.replace("?2", "?5"))} from json_each(?1) x where idx = ?2 and task = cast(x.key as integer)"""
_TASK = f"""
update makegood_task set state = ?2, goal = ?3, cause = ?4, submission = ?5, failure_count = failure_count + ?6, lost = ?7,
    result = ?8, locked_by = ?9, epoch = ?10, ready_seq = coalesce(?12, ready_seq),
    ended_at = case ?11 when {KEEP} then ended_at when {SET} then ?15 end,
    complete_by = case ?13 when {KEEP} then complete_by when {CLEAR} then null when {SET} then ?15 + within
        else max(coalesce(complete_by, ?15 + within),
            min(max(coalesce(complete_by, ?15 + within), ?15) + ?13 - {SET}, ?15 + {MOST_EXTENSION})) end,
    undo_by = case ?14 when {KEEP} then undo_by when {SET} then ?15 + undo_within end,
    task_expired = case when ?13 in ({KEEP}, {SET}) then task_expired else 0 end
where id in (select x.value from json_each(?1) x)
"""  # noqa: S608 - our own numbers
_GROUPS = {
    "task": _TASK,
    "asleep": _TASK.replace("set ", "set start_at = null, start_wall = null, ", 1),
    "asleep until": _TASK.replace("set ", "set start_at = null, start_wall = '', ", 1),
    "step_row": f"""{_STEP.format(result="?5")} where idx = ?2 and task in (select x.value from json_each(?1) x)""",  # noqa: S608
    "added": """
insert into makegood_step (task, idx, kind, name, agent, action, state, attempt, round, failure_count, asked, deaths, flags,
    spec, result, late, error)
select x.value, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17 from json_each(?1) x
""",
}
"""The statement of each kind of change whose rows may share everything except the task."""
_ROWS = {
    "count": """
update makegood_step set failure_count = case when ?3 then 0 else failure_count end + ?4 where task = ?1 and idx = ?2
""",
    "request": """
insert into makegood_request (task, idx, attempt, kind, agent, action, priority, isolate, starved, sent_at, taken_by, within,
    complete_by, answered, body)
values (?, ?, ?, ?, ?, ?, ?, ?, 0, ?, null, ?, null, 0, ?)
""",
    # Handed over in memory, all except "do" requests: for those see "handed".
    "local": """
insert into makegood_request (task, idx, attempt, kind, agent, action, priority, isolate, starved, sent_at, taken_by, taken_at,
    within, complete_by, answered, body)
values (?, ?, ?, ?, ?, ?, ?, ?, 0, ?, ?, ?, ?, ?, 0, null)
""",
    "timer": """
insert into makegood_request (task, idx, attempt, kind, agent, action, priority, isolate, starved, sent_at, taken_by, within,
    complete_by, answered, body)
values (?1, ?2, 0, 'timer', '', '', 0, 0, 0, ?4, null, ?3, ?4 + ?3, 0, null)
on conflict (task, idx, attempt) do update set sent_at = excluded.sent_at, within = excluded.within,
    complete_by = excluded.complete_by
""",
    "used": """
update makegood_signal set body = null, used = ?4, used_at = ?5 where task = ?1 and name = ?2 and id = ?3
""",
    "kept": "update makegood_signal set body = ?4 where task = ?1 and name = ?2 and id = ?3",
    "rewritten": "update makegood_step set spec = ?3 where task = ?1 and idx = ?2",
    "corrected": "update makegood_task set static = ?2 where id = ?1",
    "eased": """
update makegood_alert set standing = null, ended_at = ?4, ended_why = ?3
where task = ?1 and ended_at is null and kind <> 'starved' and (?2 = '*' or step = ?2)
""",
    "alert": alerts.RAISE.sqlite,
    "audit": """
insert into makegood_audit (act, task, kind, who, why, verdict, reason, state, change, at)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?11) on conflict do nothing
""",
    "noted": "insert into makegood_event (task, at, node, moves, note, attempts) values (?, ?, ?, ?, ?, ?)",
}
"""The statement of each kind of change that is made row by row."""
_WITH_TIME = frozenset({"timer", "used", "new_signal", "eased", "alert", "audit"})
"""Kinds of changes that take the time as their last value."""
_NEW_SIGNAL = """
insert into makegood_signal (task, name, id, step, digest, used, body, at, used_at)
select ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, iif(?6 is null, null, ?8) where not exists (select 1 from makegood_inbox where task = ?1)
on conflict do nothing
"""
_IN_THE_WAY = """
select 1 from makegood_signal where task = ?1 and name = ?2 and id = ?3 union all select 1 from makegood_inbox where task = ?1 limit 1
"""
_IN_FLIGHT = """
select task, idx, attempt, taken_by from makegood_request where task in ({marks}) and answered = 0 and kind <> 'timer'
"""
_WITHDRAW = "delete from makegood_request where task = ? and idx = ? and attempt = ?"
_CANCEL = (
    "update makegood_request set cancelled = 1 where task = ? and idx = ? and attempt = ? and kind = 'do'"
)
EVENT = "insert into makegood_event (task, at, node, moves, note, attempts) values (?, ?, ?, ?, '', ?)"
READY = "update makegood_ready set last = max(last + ?, ?) returning last"


@lru_cache(maxsize=1000)
def encode_moves(*moves: Move) -> bytes:
    """Return moves in the encoding of the database. Most tasks make the same moves, so results are cached."""
    return rows.moves(list(moves))


def draw_ready(tx: WriteTransaction, count: int) -> int:
    """Return the first of ``count`` new numbers for tasks that become pending.

    The numbers rise and are close to the current time in microseconds.
    """
    last: int = tx.rows(READY, (count, round(tx.now * 1_000_000)))[0][0]
    return last - count + 1


def is_new(tx: WriteTransaction, d: Decision) -> bool:
    """Return whether a Decision may write its new signal, if it has one."""
    new = d.new_signal
    return new is None or not tx.rows(_IN_THE_WAY, (d.task.id, new.name, new.id))


@dataclass(slots=True)
class Writing:
    """The rows of one batch of Decisions."""

    tx: WriteTransaction
    node: int | None
    """The node that holds the tasks; None: nobody."""
    claim_ids: frozenset[int]
    """Tasks whose lock is taken now."""
    begins: Collection[int]
    """Tasks whose time begins now."""
    most: int
    """The most Decisions in the batch."""
    ready_seq: int = 0
    """The number drawn last for a task that becomes pending; 0 before the first."""
    withdrawals: list[tuple[int, int, int]] = field(default_factory=list)
    """Requests (task, idx, attempt) that ``write`` withdrew, because nobody had taken them."""
    groups: defaultdict[Row, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Tasks by what they share: the kind of change and its values after ``?1``."""
    pairs: defaultdict[Row, list[tuple[int, bytes]]] = field(default_factory=lambda: defaultdict(list))
    """The same for changes with one more value, which is each task's own."""
    rows: defaultdict[str, list[Row]] = field(default_factory=lambda: defaultdict(list))
    """Other rows by the kind of change."""
    withdraw: list[tuple[int, int, int]] = field(default_factory=list)
    cancels: list[tuple[int, int, int]] = field(default_factory=list)
    rests: list[int] = field(default_factory=list)
    read: dict[int, int] = field(default_factory=dict)
    notices: list[Notice] = field(default_factory=list)

    @classmethod
    def of(cls, tx: WriteTransaction, node: int | None) -> "Writing":
        """Return a ``Writing`` for the first Decisions of tasks that are being submitted, held by
        ``node``.
        """
        return cls(tx, node, frozenset(), (), 0)

    def begin(self, first: Decision) -> None:
        """Turn the first Decision of a task that is being submitted into rows.

        Its steps are written with the task.
        """
        self._requests(first)
        self._move(first)

    def collect(self, d: Decision) -> None:
        """Turn one Decision into rows."""
        id_ = d.task.id
        for idx, s in d.steps.items():
            if d.failure_counts or not is_plain(s):
                self._step(d, idx, s)
            elif s.state == "done" and s.result is not None:
                self.pairs["done", idx, s.attempt].append((id_, s.result))
            elif s.state == "running" and s.result is None:
                self.groups["sent", UNUSED, idx, s.attempt].append(id_)
            else:
                self._step(d, idx, s)
        if d.requests:
            self._requests(d)
        if d.answers or d.attempts or d.notes or d.kept_signals:
            note = rows.note(d.answers, d.kept_signals, d.task.state)
            self.rows["noted"].append((
                id_, self.tx.now, self.node, encode_moves(*d.moves), note, rows.attempts(d.attempts, d.notes)
            ))  # fmt: skip
        elif d.moves:
            self._move(d)
        if d.seqs:
            self.read |= {seq: id_ for seq in d.seqs if seq}
        self._rare(d)
        if d.notices:
            self.notices += d.notices
        self._task(d)

    def _move(self, d: Decision) -> None:
        self.groups["moved", UNUSED, self.tx.now, self.node, encode_moves(*d.moves)].append(d.task.id)

    def _step(self, d: Decision, idx: int, s: Step) -> None:
        """Collect any change of a step's row."""
        row = step_row(d, idx, s)
        if s.result is None or s.late is not None:
            self.groups["step_row", *row[1:]].append(row[0])
        else:
            self.pairs["step_row", *row[1:4], *row[5:]].append((row[0], s.result))

    def _requests(self, d: Decision) -> None:
        handed_keys = {(r.idx, r.attempt) for r in d.handovers}
        for request in d.requests:
            self._request(request, d.handed_at if (request.idx, request.attempt) in handed_keys else None)

    def _request(self, r: Request, handed_at: float | None) -> None:
        agent, now = ids_.address(r.app, r.agent), self.tx.now
        key = (r.task, r.idx, r.attempt)
        isolate = 1 if r.isolate else 0
        if handed_at is None:
            body = blob(rows.request(r))
            self.rows["request"].append(
                (*key, r.doing, agent, r.action, r.priority, isolate, now, r.within, body)
            )
            self.tx.topics.add(f"agent:{agent}")
        elif r.doing == "do" and not isolate:
            self.groups[
                "handed", handed_at, r.idx, r.attempt, agent, r.action, r.priority, now, self.node, r.within
            ].append(r.task)
        else:
            self.rows["local"].append((
                *key, r.doing, agent, r.action, r.priority, isolate, now, self.node, handed_at, r.within,
                now + r.within,
            ))  # fmt: skip

    def _rare(self, d: Decision) -> None:
        """Collect the changes that most Decisions do not make."""
        id_, now, task = d.task.id, self.tx.now, d.task
        for kind, row in rare_rows(d):
            if kind in _GROUPS:
                self.groups[kind, *row[1:]].append(id_)
            elif kind == "dropped":
                self.groups[kind, UNUSED, row[1]].append(id_)
            else:
                self.rows[kind].append((*row, now) if kind in _WITH_TIME else row)
        self.withdraw += [(id_, idx, attempt) for idx, attempt in d.withdraw]
        self.cancels += [(id_, idx, attempt) for idx, attempt in d.cancels]
        for idx, wait in d.timers.items():
            self.rows["timer"].append((id_, idx, wait, now))
        for idx in d.rewritten:
            self.rows["rewritten"].append((id_, idx, spec(d.steps[idx].plan)))
        if task.inputs is not d.before.inputs and task.returns is not None:
            self.rows["corrected"].append(
                (
                    id_,
                    rows.static(
                        task.inputs, task.returns, task.reply, task.names, task.signals, lanes=task.lanes
                    ),
                )
            )
        if d.answers:
            self.tx.topics.add("answers")
        if tells_of_steps(d):
            self.tx.topics.add("steps")

    def _task(self, d: Decision) -> None:
        """Collect the task's own row, if it changes."""
        task, now = d.task, self.tx.now
        kind = task_kind(d, is_claimed=task.id in self.claim_ids)
        if kind is None:
            return
        if (topic := task_topic(d)) is not None:
            self.tx.topics.add(topic)
        if d.release and task.state in AT_REST:
            self.rests.append(task.id)
        if kind == "claimed":
            self.groups["claimed", UNUSED, self.node, d.before.epoch, now].append(task.id)
        elif kind == "processed" and task.result:
            self.pairs["processed", now].append((task.id, task.result))
        else:
            row = task_row(d, self.node, begins=task.id in self.begins, extension=d.extends)
            name, ready_seq = "task", self._draw() if row[11] else None
            if d.wakes is not None:
                name, clock = ("asleep until", self.tx.calendar) if d.by_calendar else ("asleep", now)
                ready_seq = moment_of(clock, d.wakes)
            self.groups[name, *row[1:11], ready_seq, *row[12:], now].append(task.id)

    def _draw(self) -> int:
        self.ready_seq = self.ready_seq + 1 if self.ready_seq else draw_ready(self.tx, self.most)
        return self.ready_seq

    def write(self, first: Sequence[Change] = ()) -> None:
        """Make the changes ``first``, which may be fences, and write everything that was collected.

        Deletions come before the other collected rows, since a row may be inserted again under the same key.

        Raises ``OvertakenError``.
        """
        tx = self.tx
        if (new_signals := self.rows.get("new_signal")) and tx.many(_NEW_SIGNAL, new_signals) < len(
            new_signals
        ):
            raise bulk_change.OvertakenError  # known before what was read is deleted
        if self.withdraw or self.cancels:
            bulk_change.write(tx.connection, first)
            first = ()
            self._recall()
        bulk_change.write(tx.connection, [*first, *self._changes()])
        for (kind, *values), ids in self.groups.items():
            if kind in _GROUPS:
                tx.run(_GROUPS[kind], (tasks(ids), *values))
        for (kind, *values), pairs in self.pairs.items():
            if kind == "step_row":
                for text, data in spans(*zip(*pairs, strict=True)):
                    tx.run(_STEP_RESULT, (text, *values[:3], data, *values[3:]))
        for kind, statement in _ROWS.items():
            if kind in self.rows:
                tx.many(statement, self.rows[kind])
        if self.notices:
            notices.write(tx, self.notices)

    def _recall(self) -> None:
        """Withdraw requests that nobody has taken, and let the others hear that nobody needs them."""
        tx = self.tx
        ids = sorted({task for task, _, _ in (*self.withdraw, *self.cancels)})
        nodes = {tuple(key): node for *key, node in tx.among(_IN_FLIGHT, ids)}
        self.withdrawals = [key for key in self.withdraw if key in nodes and nodes[key] is None]
        tx.many(_WITHDRAW, self.withdrawals)
        under_way = [key for key in self.cancels if nodes.get(key) is not None]
        tx.many(_CANCEL, under_way)
        tx.topics |= {f"cancel:{nodes[key]}" for key in under_way}

    def _changes(self) -> Iterator[Change]:
        """Yield the changes that go in with one call."""
        if self.rests:
            yield "rested", tasks(self.rests)
        if self.read:
            yield "read", tasks(self.read)
        for (kind, *values), ids in self.groups.items():
            if kind in CHANGES:
                yield kind, tasks(ids), *values
        for (kind, *values), pairs in self.pairs.items():
            if kind in CHANGES:
                for text, data in spans(*zip(*pairs, strict=True)):
                    yield kind, text, data, *values
