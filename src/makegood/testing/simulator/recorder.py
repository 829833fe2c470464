"""What a store's transactions did, read from the rows themselves.

Each writing connection of the world gets temporary triggers that log row changes into a temporary table. That
table is part of the transaction: a rollback, or a savepoint's, removes its log as well. Just before the
commit the log becomes events of the history, which are kept if the commit truly happened. The engine knows
nothing of it.
"""

import math
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import msgspec

from makegood.base import ids
from makegood.model.states import AT_REST
from makegood.store import rows
from makegood.store.records import NO_MOMENT
from makegood.store.sqlite.transaction import WriteTransaction
from makegood.testing.history import Event, History

_LOG = "create temp table makegood_log (n integer primary key, what text, a, b, c, d, e, f, g, h, i)"
_IS_LOGGED = "select 1 from temp.sqlite_master where name = 'makegood_log'"
_COLUMNS = "abcdefghi"
Trigger = tuple[str, str, str, str]

_TRIGGERS: tuple[Trigger, ...] = (
    ("sent", "insert", "makegood_request", "new.task, new.idx, new.attempt, new.kind, new.taken_by, new.complete_by"),
    ("taken", "update of taken_by", "makegood_request",
     "new.task, new.idx, new.attempt, new.kind, new.taken_by, new.complete_by, old.taken_by"),
    ("cancelled", "update of cancelled", "makegood_request", "new.task, new.idx, new.attempt, new.taken_by"),
    ("answered", "update of answered", "makegood_request", "new.task, new.idx, new.attempt, new.kind, new.complete_by"),
    ("gone", "delete", "makegood_request", "old.task, old.idx, old.attempt, old.kind, old.taken_by, old.complete_by"),
    ("step", "insert", "makegood_step", "new.task, new.idx, new.name, new.attempt, new.round, new.kind"),
    ("stepped", "update", "makegood_step", "new.task, new.idx, new.name, new.attempt, new.round, new.failure_count"),
    ("task", "insert", "makegood_task", "new.id, 0, new.epoch, new.locked_by, new.lost, '', new.state, null, new.cause"),
    ("task", "update", "makegood_task",
     "new.id, old.epoch, new.epoch, new.locked_by, new.lost, old.state, new.state, old.locked_by, new.cause"),
    ("sleeps", "update of start_at", "makegood_task", "new.id"),
    ("began", "update of state", "makegood_task", "old.id, old.start_at, old.start_wall"),
    ("suspended", "update of ready_seq", "makegood_task", "new.id, new.ready_seq, new.start_wall"),
    ("event", "insert", "makegood_event", "new.task, new.node, new.moves, new.note, new.attempts"),
    ("used", "delete", "makegood_inbox", "old.task, old.kind, old.seq, old.body"),
    ("signal", "insert", "makegood_signal", "new.task, new.name, new.id, new.step, new.seq"),
    ("heard", "insert", "makegood_signal", "new.task, new.name, new.id, new.body is not null, new.used"),
    ("heard", "update", "makegood_signal", "new.task, new.name, new.id, new.body is not null, new.used"),
    ("timeout", "insert", "makegood_request", "new.task, new.idx, new.complete_by"),
    ("timeout", "update of complete_by", "makegood_request", "new.task, new.idx, new.complete_by"),
    ("lease", "insert", "makegood_lease", "new.name, 0, new.epoch, null, new.holder"),
    ("lease", "update", "makegood_lease", "new.name, old.epoch, new.epoch, old.holder, new.holder"),
    ("alert", "insert", "makegood_alert", "new.task, new.kind, new.step, new.text"),
    ("act", "insert", "makegood_audit", "new.task, new.kind, new.verdict, new.reason, new.who"),
    ("node", "insert", "makegood_node", "new.id, new.name"),
)  # fmt: skip
_WHEN = dict.fromkeys(("sent", "taken", "answered", "gone"), " when {row}.kind <> 'timer'") | {
    "timeout": " when new.kind = 'timer' and exists (select 1 from makegood_step s where s.task = new.task and s.idx = new.idx"
    " and s.kind = 'wait_for')",
    "cancelled": " when new.cancelled and not old.cancelled",
    "sleeps": " when new.start_at is not null",
    "began": " when old.state = 'sleeping' and new.state = 'processing' and old.start_at is not null",
    "suspended": " when new.state = 'sleeping' and new.start_at is null",
}
"""Conditions of the triggers: other rows are not logged."""


def triggers(rows: Sequence[Trigger], conditions: Mapping[str, str]) -> Iterable[str]:
    """Return the statements that make a connection log its changes.

    ``rows``: what is logged: its name, the verb, the table and the columns. ``conditions``: of some of them.
    """
    for what, verb, table, source_columns in rows:
        columns = ", ".join(["what", *_COLUMNS[: source_columns.count(",") + 1]])
        condition = conditions.get(what, "").format(row="old" if verb == "delete" else "new")
        named_columns = f"'{what}', {source_columns}"
        into = f"insert into makegood_log ({columns}) values ({named_columns})"  # noqa: S608 - our own columns
        name = f"makegood_log_{what}_{verb.partition(' ')[0]}_{table}"
        yield f"create temp trigger {name} after {verb} on main.{table}{condition} begin {into}; end"


@dataclass(slots=True)
class LoggedChanges:
    """The log of one kind of operation, sorted by what each row says."""

    verb: str
    now: float
    calendar: float
    fields: Mapping[str, Any]
    by: dict[str, list[tuple[Any, ...]]] = field(default_factory=dict)

    def of(self, what: str) -> list[tuple[Any, ...]]:
        """Return the logged rows of one name."""
        return self.by.get(what, [])


@dataclass(slots=True)
class Recorder:
    """Turns logged changes into history."""

    history: History
    store_id: str
    """The id of the world's store."""
    outcome: str = "rolled back"
    process: str = ""
    changes: int = -1
    """Rows that the connection had changed in all when the transaction began."""
    names: dict[int, str] = field(default_factory=dict)
    """Names of the processes, by node number."""
    memory_replies: dict[tuple[int, int, int], str] = field(default_factory=dict)
    """Replies that Schedulers took in memory."""
    steps: dict[tuple[int, int], tuple[str, int, int]] = field(default_factory=dict)
    """Name, attempt and round of each step as last committed."""
    indices: dict[int, dict[str, int]] = field(default_factory=dict)
    failures: dict[tuple[int, int], int] = field(default_factory=dict)
    linger: float = math.inf
    """Seconds for which a Scheduler of this world may keep a task that only waits."""
    max_tasks: float = math.inf
    """How many tasks a Scheduler of this world may hold."""
    came: dict[tuple[int, int, int], float] = field(default_factory=dict)
    """When other replies were left in the store, by its clock."""
    sleeps: dict[tuple[int, int], float] = field(default_factory=dict)
    """When each step that is a sleep began, by the store's clock; 0: not yet."""
    _pending: list[Event] = field(default_factory=list)
    _failure_counts: dict[tuple[int, int], int] = field(default_factory=dict)
    """Failures as this transaction counts them."""

    def watch(self, connection: sqlite3.Connection) -> None:
        """Make a connection log its changes, if it does not yet."""
        if connection.execute(_IS_LOGGED).fetchone():
            return
        for statement in self.log():
            connection.execute(statement)

    def log(self) -> Iterable[str]:
        """Return the statements that make a connection log its changes."""
        yield _LOG
        yield from triggers(_TRIGGERS, _WHEN)

    # -- a transaction -----------------------------------------------------------------------------

    def begin(self, process: str) -> None:
        """A process starts to write."""
        self.process = process
        self.outcome = "rolled back"

    def transaction(self, connection: sqlite3.Connection) -> None:
        """A transaction begins. If it repeats one that was rolled back, nothing of that is told."""
        self.changes = connection.total_changes
        self._pending, self._failure_counts = [], {}

    def finish(self, tx: WriteTransaction, verb: str, fields: Mapping[str, Any]) -> None:
        """One kind of operation has finished its work within the transaction."""
        if tx.connection.total_changes == self.changes:
            return  # Nothing was changed, so nothing was logged.
        entries = tx.connection.execute("select * from makegood_log order by n").fetchall()
        if not entries:
            return
        tx.connection.execute("delete from makegood_log")
        changes = LoggedChanges(verb, tx.now, tx.calendar, fields)
        for row in entries:
            changes.by.setdefault(row[1], []).append(row[2:])
        self._learn(changes)
        self._locks(changes)
        self._starts(changes)
        self._replies(changes)
        self._note_judgements(changes)
        self._failures(changes)
        self._moves(changes)
        self._signals(changes)
        self._requests(changes)
        self._notes(changes)
        self._note_alerts_and_acts(changes)
        self._around(changes)
        self._note_suspensions(changes, tx.connection)
        self._ends(changes, tx.connection)

    def keep(self, outcome: str, verbs: Sequence[str]) -> None:
        """The transaction was truly committed."""
        events, self._pending = self._pending, []
        self.failures |= self._failure_counts
        self.outcome = outcome
        self.history.events += events
        self.history.note("store", self.process, outcome=outcome, verbs=list(verbs))
        for event in events:
            if event.kind == "answered":
                self.came[event.task, event["idx"], event["attempt"]] = event["now"]

    def roll_back(self, verbs: Sequence[str]) -> None:
        """The transaction failed, or its answer was lost after the commit (then its events are kept
        already).
        """
        self._pending = []
        if self.outcome not in ("committed", "ambiguous committed"):
            self.history.note("store", self.process, outcome=self.outcome, verbs=list(verbs))

    def _note(self, kind: str, task: int = 0, **fields: Any) -> None:
        self._pending.append(Event(self.history.clock(), kind, self.process, task, fields))

    # -- what the rows say -------------------------------------------------------------------------

    def _failures(self, changes: LoggedChanges) -> None:
        for task, idx, *_, failures in (row[:6] for row in changes.of("stepped")):
            if failures > self._failure_counts.get((task, idx), self.failures.get((task, idx), 0)):
                self._note("counted", task, idx=idx, failures=failures)
            self._failure_counts[task, idx] = failures

    def _learn(self, changes: LoggedChanges) -> None:
        for number, name in (row[:2] for row in changes.of("node")):
            self.names[number] = name
        self.sleeps |= {(row[0], row[1]): 0.0 for row in changes.of("step") if row[5] == "sleep"}
        for task, idx, name, attempt, round_, *_ in changes.of("step") + changes.of("stepped"):
            self.steps[task, idx] = (name, attempt, round_)
            self.indices.setdefault(task, {})[name] = idx

    def _locks(self, changes: LoggedChanges) -> None:
        for task, was, epoch, holder, losses, _, _, former_holder, _ in changes.of("task"):
            if epoch > was and (holder is not None or changes.verb == "commit"):
                self._note("claimed", task, epoch=epoch, lost=losses)
            elif (
                holder is None
                and former_holder is not None
                and changes.verb in ("release_dead", "release_unresponsive")
            ):
                reason = changes.verb.removeprefix("release_")
                self._note("released", task, epoch=changes.fields["term"].epoch, why=reason)
        for name, was, epoch, before, holder in (row[:5] for row in changes.of("lease")):
            verb = "acquired" if epoch > was else "renewed" if holder is not None else "released"
            self._note("lease", name=name, epoch=epoch, holder=holder or before, verb=verb)

    def _starts(self, changes: LoggedChanges) -> None:
        for task, *_ in changes.of("sleeps"):
            self._note("sleeps", task)
        for task, start_at, wall, *_ in changes.of("began"):
            early = start_at - (changes.now if wall is None else changes.calendar)
            self._note("began", task, early=early)

    def _replies(self, changes: LoggedChanges) -> None:
        """A taken request that a Scheduler's commit consumed was answered."""
        for task, idx, attempt, doing, complete_by, *_ in changes.of("answered"):
            about = {"idx": idx, "doing": doing, "attempt": attempt}
            self._note("answered", task, **about, complete_by=complete_by, now=changes.now)
        if changes.verb != "commit":
            return
        kinds: dict[tuple[int, int, int], str] = {}
        for task, kind, _, body, *_ in changes.of("used"):
            message = rows.read_message(body, 0)
            if kind not in ("late", "expired"):
                kinds[task, message.idx, message.attempt] = kind
        # By their keys: in which order a store deletes them depends on what its caches know.
        for task, idx, attempt, doing, taken_by, complete_by, *_ in sorted(
            changes.of("gone"), key=itemgetter(0, 1, 2)
        ):
            key, about = (task, idx, attempt), {"idx": idx, "doing": doing, "attempt": attempt}
            if taken_by is None:
                self._note("withdrawn", task, **about)
                continue
            about |= {
                "reply": kinds.get(key) or self.memory_replies.get(key, "?"),
                "complete_by": complete_by,
            }
            self._note("accepted", task, **about, now=changes.now, came=self.came.get(key))

    def _note_judgements(self, changes: LoggedChanges) -> None:
        if changes.verb not in ("judge", "judge_dead"):
            return
        failures = {(row[0], row[1]): row[5] for row in changes.of("stepped")}
        for task, idx, attempt, *_ in changes.of("gone"):
            count = failures.get((task, idx), 0)
            self._note(
                "judged", task, idx=idx, attempt=attempt, failures=count, epoch=changes.fields["term"].epoch,
                dead=changes.verb == "judge_dead",
            )  # fmt: skip

    def _moves(self, changes: LoggedChanges) -> None:
        causes = {row[0]: row[8] for row in changes.of("task")}
        # Of several tasks by their ids: in which order a store writes them depends on what its caches know.
        for task, _, body, note, *_ in sorted(changes.of("event"), key=itemgetter(0)):
            moves: list[tuple[Any, ...]] = []
            for name, old, new, *_details in msgspec.json.decode(body):
                if name == "task":
                    if old != new:  # else its lock alone was freed
                        moves.append(("task", old, new))
                else:
                    idx = self.indices[task][name]
                    moves.append((idx, old, new, *self.steps[task, idx][1:]))
                    if (task, idx) in self.sleeps:
                        self._note_sleep(task, idx, new, changes)
            self._note("moved", task, moves=moves, cause=causes.get(task, ""), note=note)

    def _note_sleep(self, task: int, idx: int, state: str, changes: LoggedChanges) -> None:
        if state == "ready":
            self.sleeps[task, idx] = changes.now
        elif state == "done":
            length = changes.now - self.sleeps[task, idx]
            self._note("slept", task, idx=idx, length=length, calendar=changes.calendar)

    def _signals(self, changes: LoggedChanges) -> None:
        """Note signals, what becomes of them, and the ends of the waits for them."""
        for task, name, signal, step, seq, *_ in changes.of("signal"):
            self._note("signalled", task, name=name, id=signal, step=step, seq=seq, now=changes.now)
        for task, name, signal, has_body, idx, *_ in changes.of("heard"):
            if idx is not None:
                self._note("used", task, name=name, id=signal, idx=idx)
            elif has_body:
                self._note("kept", task, name=name, id=signal)
        for task, _, body, *_ in changes.of("event"):
            for move in msgspec.json.decode(body):
                name, reason = move[0], move[3]
                if reason in _WAITS_END:
                    self._note("waited", task, idx=self.indices[task][name], reason=reason, now=changes.now)
        for task, idx, due, *_ in changes.of("timeout"):
            self._note("timeout", task, idx=idx, due=due, now=changes.now)

    def _requests(self, changes: LoggedChanges) -> None:
        for row in changes.of("sent"):
            task, idx, attempt, doing, taken_by, *_ = row
            name, _, round_ = self.steps[task, idx]
            key = ids.key(self.store_id, task, name, round_, "undo" if doing == "undo" else "do")
            local = taken_by is not None
            self._note(
                "sent", task, idx=idx, doing=doing, attempt=attempt, round=round_, key=key, local=local
            )
            if local:
                self._note_take(row, changes.now)
        for row in changes.of("taken"):
            task, idx, attempt, doing, taken_by, _, before, *_ = row
            if taken_by is None:
                by = self.names.get(before, "?")
                self._note("given back", task, idx=idx, doing=doing, attempt=attempt, by=by)
            else:
                self._note_take(row, changes.now)
        for task, idx, attempt, node, *_ in changes.of("cancelled"):
            self._note("cancelled", task, idx=idx, attempt=attempt, by=self.names.get(node, "?"))

    def _note_take(self, row: Sequence[Any], now: float) -> None:
        task, idx, attempt, doing, node, complete_by, *_ = row
        by, within = self.names.get(node, "?"), complete_by - now
        self._note("taken", task, idx=idx, doing=doing, attempt=attempt, by=by, within=within)

    def _notes(self, changes: LoggedChanges) -> None:
        """Note what attempts have written into the history."""
        for task, _, _, _, ends, *_ in changes.of("event"):
            for note in [end.note for end in rows.read_attempts(ends) if end.note is not None]:
                about = {"idx": note.idx, "doing": note.doing, "attempt": note.attempt}
                self._note("noted", task, **about, n=note.value, skipped=note.skipped, late=note.late)

    def _note_alerts_and_acts(self, changes: LoggedChanges) -> None:
        for task, kind, step, text, *_ in changes.of("alert"):
            self._note("alert", task or 0, alert=kind, step=step, text=text)
        for task, kind, verdict, reason, who, *_ in changes.of("act"):
            if not task:  # on many tasks, or the leader: each of their commands is an act of its own
                continue
            self._note("act", task, what=kind, verdict=verdict, reason=reason, who=who)
            if verdict == "refused":
                self._note("refused", task, what="act", idx=-1, attempt=0, why=reason)

    def _around(self, changes: LoggedChanges) -> None:
        """Note what happened around the engine."""

    def _note_suspensions(self, changes: LoggedChanges, connection: sqlite3.Connection) -> None:
        """Note when a task that was let go is to wake, and which tasks are kept that only wait for long."""
        rests = {task for task, _, body, *_ in changes.of("event") if _rests(body)}
        for task, ready_seq, wall, *_ in changes.of("suspended"):
            ((due,),) = connection.execute(_FIRST_TIMER, (task,)).fetchall()
            wakes = (
                None
                if ready_seq == NO_MOMENT
                else ready_seq / 1e6 - (changes.now if wall is None else changes.calendar)
            )
            due = None if due is None else due - changes.now
            self._note("suspended", task, wakes=wakes, due=due, rests=task in rests)
        if changes.verb != "commit":
            return
        for node in sorted({row[3] for row in changes.of("task") if row[3] is not None}):
            ((count,),) = connection.execute(_LOCKED, (node,)).fetchall()
            if count > 2 * self.max_tasks:
                self._note("overfull", count=count, most=self.max_tasks)
        if self.linger == math.inf:
            return
        for task in sorted({row[0] for row in changes.of("event")}):
            for (due,) in connection.execute(_ONLY_WAITS, (task,)).fetchall():
                if due - changes.now > self.linger:
                    self._note("lingers", task, wait=due - changes.now, linger=self.linger)

    def _ends(self, changes: LoggedChanges, connection: sqlite3.Connection) -> None:
        for task, _, _, _, _, was, state, *_ in changes.of("task"):
            if state in AT_REST and state != was:
                standing = connection.execute(_STANDING, (task,)).fetchall()
                result, submission = connection.execute(_RESULT, (task,)).fetchone()
                self._note(
                    "ended", task, state=state, result=bool(result), standing=[name for (name,) in standing], submission=submission
                )  # fmt: skip


def _rests(body: bytes) -> bool:
    """Whether a task's moves let it go with requests in flight."""
    return any(move[0] == "task" and move[3] == "rested" for move in msgspec.json.decode(body))


_WAITS_END = frozenset({"signal_came", "timed_out", "no_signal"})
"""Reasons for which a wait for a signal ends."""
_LOCKED = "select count(*) from makegood_task where locked_by = ?"
_FIRST_TIMER = "select min(complete_by) from makegood_request where task = ? and kind = 'timer'"
_ONLY_WAITS = (
    "select min(coalesce(r.complete_by, 9e999)) from makegood_task t left join makegood_request r on r.task = t.id where t.id = ? "
    "and t.locked_by is not null and t.state in ('processing', 'undoing') "
    "and not exists (select 1 from makegood_inbox i where i.task = t.id) group by t.id "
    "having max(coalesce(r.kind, 'timer') <> 'timer') = 0 and (count(r.task) > 0 or exists "
    "(select 1 from makegood_step s where s.task = t.id and s.kind = 'wait_for' and s.state = 'ready'))"
)
_STANDING = (
    "select name from makegood_step where task = ? and kind = 'action' and state in ('done', 'in_doubt', 'kept', 'undoing', "
    "'undo_failed', 'running') order by idx"
)
_RESULT = "select result is not null, submission from makegood_task where id = ?"
