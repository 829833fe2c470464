"""Turns Decisions into rows: collects them for a whole batch, then writes them with one statement per table.

Nearly all Decisions make the same few changes. These are grouped by the values that they share: see
``bulk_change``.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from makegood.base import ids as ids_
from makegood.model.decision import Decision
from makegood.model.messages import MOST_EXTENSION, Request
from makegood.model.notices import Notice
from makegood.model.shape import spec
from makegood.model.states import AT_REST, ENDED, Move
from makegood.model.task import Step
from makegood.store import alerts, rows
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
update makegood_task set state = 'processing', locked_by = ?3, epoch = ?4, lost = ?5, complete_by = coalesce(?6, complete_by)
where id in (select x.value from json_each(?1) x)
""",
    "processed": f"""
update makegood_task set state = 'processed', locked_by = null, result = {SPAN}, ended_at = ?3, lost = ?4
from json_each(?1) x where makegood_task.id = cast(x.key as integer)
""",  # noqa: S608
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

# Less frequent changes: rows that differ only in their task are written together, one statement for each
# kind.
_TASKS = """
update makegood_task set state = ?, goal = ?, cause = ?, submission = ?, failure_count = failure_count + ?, lost = ?,
    result = ?, locked_by = ?, epoch = ?,
    ended_at = case when ? then ended_at else ? end,
    ready_seq = coalesce(?, ready_seq),
    complete_by = case when ? then complete_by else ? end,
    undo_by = case when ? then undo_by else ? end,
    task_expired = case when ? then 0 else task_expired end
where id in (select x.value from json_each(?) x)
"""

_CHANGED = """
update makegood_step set state = ?3, attempt = ?4, round = ?5, asked = ?6, deaths = ?7, flags = ?8, error = ?9,
    failure_count = case when ?10 then 0 else failure_count end + ?11, first_sent = ?13,
"""
_STEPS = f"""{_CHANGED} result = null, late = null where idx = ?12 and task in (select x.value from json_each(?1) x)"""  # noqa: S608
_STEPS_WITH = f"""{_CHANGED} result = {SPAN}, late = null from json_each(?1) x where idx = ?12 and task = cast(x.key as integer)"""
_STEP_LATE = f"""{_CHANGED} result = ?2, late = ?14 where idx = ?12 and task = ?1"""
_EXTEND = """
update makegood_task set complete_by = max(complete_by, min(max(complete_by, ?2) + ?3, ?2 + ?4)), task_expired = 0
where id = ?1 and complete_by is not null
"""
_COUNT = """
update makegood_step set failure_count = case when ? then 0 else failure_count end + ? where task = ? and idx = ?
"""
_ADDED = """
insert into makegood_step (task, idx, kind, name, agent, action, state, attempt, round, failure_count, asked, deaths, flags,
    spec, result, late, error)
select x.value, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17 from json_each(?1) x
"""
_REQUEST = """
insert into makegood_request (task, idx, attempt, kind, agent, action, priority, isolate, starved, sent_at, taken_by, within,
    complete_by, answered, body)
values (?, ?, ?, ?, ?, ?, ?, ?, 0, ?, null, ?, null, 0, ?)
"""
# Handed over in memory, all except "do" requests: for those see "handed".
_LOCAL = """
insert into makegood_request (task, idx, attempt, kind, agent, action, priority, isolate, starved, sent_at, taken_by, taken_at,
    within, complete_by, answered, body)
values (?, ?, ?, ?, ?, ?, ?, ?, 0, ?, ?, ?, ?, ?, 0, null)
"""
_TIMER = """
insert into makegood_request (task, idx, attempt, kind, agent, action, priority, isolate, starved, sent_at, taken_by, within,
    complete_by, answered, body)
values (?, ?, 0, 'timer', '', '', 0, 0, 0, ?, null, ?, ?, 0, null)
on conflict (task, idx, attempt) do update set sent_at = excluded.sent_at, within = excluded.within,
    complete_by = excluded.complete_by
"""
_DROP_TIMER = "delete from makegood_request where task = ? and idx = ? and attempt = 0 and kind = 'timer'"
_UNTAKEN = """
select task, idx, attempt from makegood_request where task in ({marks}) and taken_by is null and kind <> 'timer'
"""
_WITHDRAW = "delete from makegood_request where task = ? and idx = ? and attempt = ?"
EASE = """
update makegood_alert set standing = null, ended_at = ?4, ended_why = ?3
where task = ?1 and ended_at is null and kind <> 'starved' and (?2 = '*' or step = ?2)
"""
_AUDIT = """
insert into makegood_audit (act, task, kind, who, why, verdict, reason, state, change, at) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
on conflict do nothing
"""
EVENT = "insert into makegood_event (task, at, node, moves, note, attempts) values (?, ?, ?, ?, '', ?)"
_NOTED = "insert into makegood_event (task, at, node, moves, note, attempts) values (?, ?, ?, ?, ?, ?)"
_REWRITE = "update makegood_step set spec = ? where task = ? and idx = ?"
_INPUTS = "update makegood_task set static = ? where id = ?"
READY = "update makegood_ready set last = max(last + ?, ?) returning last"


@lru_cache(maxsize=1000)
def encoded(*moves: Move) -> bytes:
    """Return moves in the encoding of the database. Most tasks make the same moves, so results are cached."""
    return rows.moves(list(moves))


def _few() -> defaultdict[Row, list[int]]:
    return defaultdict(list)


def _some() -> defaultdict[Row, list[tuple[int, bytes]]]:
    return defaultdict(list)


def draw_ready(tx: WriteTransaction, count: int) -> int:
    """Return the first of ``count`` new numbers for tasks that become pending.

    The numbers rise and are close to the current time in microseconds.
    """
    last: int = tx.rows(READY, (count, round(tx.now * 1_000_000)))[0][0]
    return last - count + 1


@dataclass(slots=True)
class Writing:
    """The rows of one batch of Decisions.

    The other attributes collect rows or their values; ``_changes`` and ``write`` say which statement takes
    them.
    """

    tx: WriteTransaction
    node: int | None
    """The node that holds the tasks; None: nobody."""
    claim_ids: frozenset[int]
    """Tasks whose lock is taken now."""
    complete_by: dict[int, float]
    """By task, the deadline of those whose time begins now."""
    most: int
    """The most Decisions in the batch."""
    ready_seq: int = 0
    """The number drawn last for a task that becomes pending; 0 before the first."""
    withdrawals: list[tuple[int, int, int]] = field(default_factory=list)
    """Requests (task, idx, attempt) that ``write`` withdrew, because nobody had taken them."""
    claims: defaultdict[Row, list[int]] = field(default_factory=_few)
    task_ends: defaultdict[Row, list[tuple[int, bytes]]] = field(default_factory=_some)
    tasks: defaultdict[Row, list[int]] = field(default_factory=_few)
    sends: defaultdict[Row, list[int]] = field(default_factory=_few)
    step_ends: defaultdict[Row, list[tuple[int, bytes]]] = field(default_factory=_some)
    steps: defaultdict[Row, list[int]] = field(default_factory=_few)
    steps_with: defaultdict[Row, list[tuple[int, bytes]]] = field(default_factory=_some)
    steps_late: list[Row] = field(default_factory=list)
    counts: list[Row] = field(default_factory=list)
    new_steps: defaultdict[Row, list[int]] = field(default_factory=_few)
    requests: list[Row] = field(default_factory=list)
    handovers: defaultdict[Row, list[int]] = field(default_factory=_few)
    local_others: list[Row] = field(default_factory=list)
    timers: list[Row] = field(default_factory=list)
    stale_timers: list[Row] = field(default_factory=list)
    withdraw: list[tuple[int, int, int]] = field(default_factory=list)
    rests: list[int] = field(default_factory=list)
    alert_ends: list[Row] = field(default_factory=list)
    alerts: list[Row] = field(default_factory=list)
    rewritten: list[Row] = field(default_factory=list)
    inputs: list[Row] = field(default_factory=list)
    audits: list[Row] = field(default_factory=list)
    extensions: list[Row] = field(default_factory=list)
    move_events: defaultdict[Row, list[int]] = field(default_factory=_few)
    events: list[Row] = field(default_factory=list)
    read: dict[int, int] = field(default_factory=dict)
    notices: list[Notice] = field(default_factory=list)
    agents: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, tx: WriteTransaction, node: int | None) -> "Writing":
        """Return a ``Writing`` for the first Decisions of tasks that are being submitted, held by
        ``node``.
        """
        return cls(tx, node, frozenset(), {}, 0)

    def begin(self, first: Decision) -> None:
        """Turn the first Decision of a task that is being submitted into rows.

        Its steps are written with the task.
        """
        self._requests(first)
        self.move_events[self.tx.now, self.node, encoded(*first.moves)].append(first.task.id)

    def collect(self, decision: Decision) -> None:
        """Turn one Decision into rows."""
        d, id_ = decision, decision.task.id
        for idx, s in d.steps.items():
            if (
                s.round != 1 or s.asked or s.deaths or s.late is not None or s.error is not None or d.failure_counts
                or s.doubt or s.final or s.stuck or s.again or s.stood or s.first_sent or s.probe_answer
            ):  # fmt: skip
                self._step(d, idx, s)
            elif s.state == "done" and s.result is not None:
                self.step_ends[idx, s.attempt].append((id_, s.result))
            elif s.state == "running" and s.result is None:
                self.sends[idx, s.attempt].append(id_)
            else:
                self._step(d, idx, s)
        if d.requests:
            self._requests(d)
        if d.answers or d.attempts:
            note = rows.note(d.answers)
            ends = rows.attempts(d.attempts)
            self.events.append((id_, self.tx.now, self.node, encoded(*d.moves), note, ends))
        elif d.moves:
            self.move_events[self.tx.now, self.node, encoded(*d.moves)].append(id_)
        if d.seqs:
            self.read |= {seq: id_ for seq in d.seqs if seq}
        if (
            d.failure_counts
            or d.new_steps
            or d.stale_timers
            or d.withdraw
            or d.timers
            or d.alerts
            or d.answers
            or d.alert_ends
            or d.extends
        ):
            self._rare(d)
        if d.notices:
            self.notices += d.notices
        if (
            d.task is not d.before
            or d.release
            or d.clear_complete_by
            or d.failure_counts
            or id_ in self.claim_ids
        ):
            self._task(d)

    def _step(self, d: Decision, idx: int, s: Step) -> None:
        """Collect any change of a step's row."""
        id_ = d.task.id
        values = (
            s.state, s.attempt, s.round, s.asked, s.deaths, rows.flags(s), s.error, *d.failure_counts.get(idx, (False, 0)), idx,
            s.first_sent or None,
        )  # fmt: skip
        if s.late is not None:
            self.steps_late.append((id_, s.result, *values, s.late))
        elif s.result is not None:
            self.steps_with[values].append((id_, s.result))
        else:
            self.steps[values].append(id_)

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
            self.requests.append((*key, r.doing, agent, r.action, r.priority, isolate, now, r.within, body))
            self.agents.add(agent)
        elif r.doing == "do" and not isolate:
            self.handovers[
                handed_at, r.idx, r.attempt, agent, r.action, r.priority, now, self.node, r.within
            ].append(r.task)
        else:
            self.local_others.append((
                *key, r.doing, agent, r.action, r.priority, isolate, now, self.node, handed_at, r.within,
                now + r.within,
            ))  # fmt: skip

    def _rare(self, decision: Decision) -> None:
        """Collect the changes that most Decisions do not make."""
        id_, now = decision.task.id, self.tx.now
        for idx, (reset, increase) in decision.failure_counts.items():
            if idx >= 0 and idx not in decision.steps:
                self.counts.append((reset, increase, id_, idx))
        for s in decision.new_steps:
            plan = s.plan
            self.new_steps[
                plan.idx, plan.kind, plan.name, plan.agent, plan.action, s.state, s.attempt, s.round, s.failures, s.asked,
                s.deaths, rows.flags(s), spec(plan), s.result, s.late, s.error,
            ].append(id_)  # fmt: skip
        self.stale_timers += [(id_, idx) for idx in decision.stale_timers]
        self.withdraw += [(id_, idx, attempt) for idx, attempt in decision.withdraw]
        self.timers += [(id_, idx, now, wait, now + wait) for idx, wait in decision.timers.items()]
        self.alert_ends += [(*ending, now) for ending in rows.eased(decision)]
        self.alerts += [(*row, now) for row in rows.decided(decision)]
        self.audits += [
            (a.act.id, id_, a.kind, a.act.who, a.act.why, a.verdict, a.outcome, a.state, a.change, now)
            for a in decision.answers
        ]
        if decision.extends:
            self.extensions.append((id_, now, decision.extends, MOST_EXTENSION))
        self.rewritten += [(spec(decision.steps[idx].plan), id_, idx) for idx in decision.rewritten]
        task = decision.task
        if task.inputs is not decision.before.inputs and task.returns is not None:
            self.inputs.append((rows.static(task.inputs, task.returns, task.reply, task.names), id_))

    def _task(self, decision: Decision) -> None:
        """Collect the task's own row, if it changes."""
        before, task, is_claimed = decision.before, decision.task, decision.task.id in self.claim_ids
        failures = sum(increase for _, increase in decision.failure_counts.values())
        straight = (
            task.goal == before.goal
            and task.cause == before.cause
            and task.submission == before.submission
            and not failures
            and not decision.clear_complete_by
        )
        releases_at_rest = decision.release is (task.state in AT_REST)
        if straight and releases_at_rest and task.state == "processing" and before.state == "pending":
            self._claimed(decision)
        elif (
            straight
            and releases_at_rest
            and task.state == "processed"
            and before.state == "processing"
            and task.result
        ):
            self.task_ends[self.tx.now, task.lost].append((task.id, task.result))
            self.rests.append(task.id)
            self.tx.topics.add("ended")
        elif (
            not straight
            or is_claimed
            or decision.release
            or task.state != before.state
            or task.lost != before.lost
            or task.result != before.result
        ):
            self._changed(decision, failures)

    def _claimed(self, decision: Decision) -> None:
        task, epoch = decision.task, decision.before.epoch
        self.claims[self.node, epoch, task.lost, self._complete_by(decision)].append(task.id)

    def _complete_by(self, decision: Decision) -> float | None:
        """Return the deadline of a task whose time begins now: it is being claimed, or was held from the
        beginning.
        """
        task = decision.task
        if task.timed and not decision.before.timed and task.within is not None:
            return self.tx.now + task.within
        return self.complete_by.get(task.id)

    def _changed(self, decision: Decision, failures: int) -> None:
        """Collect any change of a task's row."""
        before, task = decision.before, decision.task
        state, was = task.state, before.state
        ready_seq = undo_by = None
        keep_undo_by = True
        if state in AT_REST:
            keep_undo_by = False
            if decision.release:
                self.rests.append(task.id)
            if state != was:
                self.tx.topics.add("ended")
        elif state == "pending":
            self.tx.topics.add("pending")
            ready_seq = self._draw() if was != "pending" else None
        elif state == "undoing" and was != "undoing" and not (was == "pending" and before.goal == "undo"):
            keep_undo_by = False
            undo_by = None if task.undo_within is None else self.tx.now + task.undo_within
        complete_by = None if decision.clear_complete_by else self._complete_by(decision)
        self.tasks[
            state, task.goal, task.cause, task.submission, failures, task.lost, task.result,
            None if decision.release else self.node, before.epoch,
            state == was, self.tx.now if state in ENDED else None,
            ready_seq,
            complete_by is None and not decision.clear_complete_by, complete_by,
            keep_undo_by, undo_by,
            decision.clear_complete_by,
        ].append(task.id)  # fmt: skip

    def _draw(self) -> int:
        self.ready_seq = self.ready_seq + 1 if self.ready_seq else draw_ready(self.tx, self.most)
        return self.ready_seq

    def write(self, first: Sequence[Change] = ()) -> None:
        """Make the changes ``first``, which may be fences, and write everything that was collected.

        Deletions come before the other collected rows, since a row may be inserted again under the same key.

        Raises ``OvertakenError``.
        """
        tx = self.tx
        if first and (self.stale_timers or self.withdraw):
            bulk_change.write(tx.connection, first)
            first = ()
        tx.many(_DROP_TIMER, self.stale_timers)
        if self.withdraw:
            untaken = set(tx.among(_UNTAKEN, sorted({task for task, _, _ in self.withdraw})))
            self.withdrawals = [key for key in self.withdraw if key in untaken]
            tx.many(_WITHDRAW, self.withdrawals)
        bulk_change.write(tx.connection, [*first, *self._changes()])
        for values, ids in self.tasks.items():
            tx.run(_TASKS, (*values, tasks(ids)))
        tx.many(_EXTEND, self.extensions)
        self._write_steps()
        tx.many(_COUNT, self.counts)
        tx.many(_REQUEST, self.requests)
        tx.many(_LOCAL, self.local_others)
        tx.many(_TIMER, self.timers)
        tx.many(_REWRITE, self.rewritten)
        tx.many(_INPUTS, self.inputs)
        tx.many(EASE, self.alert_ends)
        tx.many(alerts.RAISE.sqlite, self.alerts)
        tx.many(_AUDIT, self.audits)
        tx.many(_NOTED, self.events)
        if self.notices:
            notices.write(tx, self.notices)
        if self.audits:
            tx.topics.add("answers")
        tx.topics.update(f"agent:{agent}" for agent in self.agents)

    def _write_steps(self) -> None:
        """Write the unusual changes of steps, and new steps."""
        tx = self.tx
        for values, ids in self.steps.items():
            tx.run(_STEPS, (tasks(ids), UNUSED, *values))
        for values, pairs in self.steps_with.items():
            for text, data in spans(*zip(*pairs, strict=True)):
                tx.run(_STEPS_WITH, (text, data, *values))
        tx.many(_STEP_LATE, self.steps_late)
        for values, ids in self.new_steps.items():
            tx.run(_ADDED, (tasks(ids), *values))

    def _changes(self) -> Iterator[Change]:
        """Yield the changes that go in with one call."""
        if self.rests:
            yield "rested", tasks(self.rests)
        if self.read:
            yield "read", tasks(self.read)
        for kind, groups in (
            ("claimed", self.claims),
            ("sent", self.sends),
            ("moved", self.move_events),
        ):
            for values, of in groups.items():
                yield kind, tasks(of), UNUSED, *values
        for values, of in self.handovers.items():
            yield "handed", tasks(of), *values
        for kind, pair_groups in (("processed", self.task_ends), ("done", self.step_ends)):
            for values, pairs in pair_groups.items():
                for text, data in spans(*zip(*pairs, strict=True)):
                    yield kind, text, data, *values
