"""How records become columns, the same for every store.

The constant columns of a step are stored as one JSON value, ``spec``. Tasks of one shape have equal specs, so
the interner decodes each spec once and shares the record. The boolean fields of a step are bits of ``flags``.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar, get_args

import msgspec

from makegood.base.counts import quantity
from makegood.base.durations import short_duration
from makegood.base.ids import show
from makegood.base.sizes import MIB
from makegood.base.stored_values import record_of, seconds, text
from makegood.base.wall_times import by_present_rules
from makegood.model.attempt_end import AttemptEnd, note_entry
from makegood.model.breaker import SHUT
from makegood.model.decision import Decision
from makegood.model.messages import ACTS, Act, Alert, Answer, Request, TaskMessage, attempt_end, lateness
from makegood.model.note import Note
from makegood.model.plan import Signals, StepPlan, Template
from makegood.model.shape import KeptSignal
from makegood.model.states import AT_REST, CONTROL_MOVES, ENDED, STEP_MOVES, Goal, Move, TaskReason
from makegood.model.task import FailureTally, ReplyTo, Step
from makegood.payload.codec import UNREADABLE
from makegood.store.records import NewGeneration, Submitted
from makegood.store.views import AgentInfo, Asked, EventView, NodeInfo

T = TypeVar("T")

DOUBT, FINAL, STUCK, AGAIN, STOOD, PROBE_ANSWER, LOSER = 1, 2, 4, 8, 16, 32, 64
_WORDED, _SILENCES, _DIED = 8, 16, 1 << 24
"""Where in ``flags`` a step's tally of failures is: two counts of one byte each, and a bit."""
_MOST_TALLIED: Final = 255
_INTERNED, _INTERNED_BYTES = 10_000, 8 * MIB


INLINE = 4096
"""Bytes up to which a value is read with its row when tasks are claimed.

Larger values are read once it is known that there is room for them.
"""


def fitting(tasks: Sequence[int], large: Mapping[int, int], room: int) -> int:
    """Return how many of ``tasks``, in order, may be read: at least one. ``large``: the bytes
    of their large values.

    >>> fitting([1, 2, 3], {1: 10, 3: 5}, 14), fitting([1, 2], {1: 10}, 1), fitting([1, 2], {2: 10}, 1)
    (2, 1, 1)
    """
    read = 0
    for n, task in enumerate(tasks):
        read += large.get(task, 0)
        if read > room and n > 0:
            return n
    return len(tasks)


class Static(msgspec.Struct, frozen=True, omit_defaults=True):
    """The constant part of a task."""

    inputs: tuple[msgspec.Raw, ...]
    """The inputs as JSON texts."""
    returns: Template
    """The template of the result."""
    reply: ReplyTo | None = None
    """Whom to notify of the task's states."""
    names: tuple[str, ...] = ()
    """The names of the workflow's parameters, one for each input."""
    signals: tuple[tuple[str, str], ...] = ()
    """The signals that its steps wait for: names, each with the JSON schema of its values, or ""."""
    lanes: tuple[str, ...] = ()
    """The names of its lanes."""


class _End(msgspec.Struct, frozen=True, omit_defaults=True):
    """The last members of a ``Static``."""

    signals: tuple[tuple[str, str], ...]
    lanes: tuple[str, ...] = ()


_encode = msgspec.json.Encoder().encode
_plan = msgspec.json.Decoder(StepPlan).decode
_message = msgspec.json.Decoder(TaskMessage).decode
_request = msgspec.json.Decoder(Request).decode
_moves = msgspec.json.Decoder(list[Move]).decode
_attempts = msgspec.json.Decoder(tuple[AttemptEnd, ...]).decode
_static = msgspec.json.Decoder(Static).decode
_info = msgspec.json.Decoder(NodeInfo).decode


class Interner:
    """Decodes each distinct step spec once; keeps the last 10,000 specs, at most 8 MiB."""

    def __init__(self) -> None:
        self._bytes = 0
        self._plans: OrderedDict[bytes, StepPlan] = OrderedDict()
        self._first_steps: OrderedDict[bytes, Step] = OrderedDict()

    def plan(self, spec: bytes) -> StepPlan:
        """Return the StepPlan that ``spec`` encodes."""
        plan = self._plans.get(spec)
        if plan is None:
            plan = self._plans[spec] = _plan(spec)
            self._bytes += len(spec)
            while len(self._plans) > _INTERNED or self._bytes > _INTERNED_BYTES:
                old, _ = self._plans.popitem(last=False)
                self._first_steps.pop(old, None)
                self._bytes -= len(old)
        return plan

    def new_step(self, spec: bytes) -> Step:
        """Return a new Step with the plan that ``spec`` encodes."""
        step = self._first_steps.get(spec)
        if step is None:
            step = Step(self.plan(spec))
            if spec in self._plans:
                self._first_steps[spec] = step
        return step


def static(
    inputs: tuple[bytes, ...],
    returns: Template,
    reply: ReplyTo | None,
    names: tuple[str, ...],
    signals: Signals = (),
    *,
    lanes: tuple[str, ...] = (),
) -> bytes:
    """Return a task's inputs, result template, notification address, names of its inputs, signals and
    lanes as JSON.
    """
    return _encode(Static(tuple([msgspec.Raw(i) for i in inputs]), returns, reply, names, signals, lanes))


def may_wait(data: object) -> bool:
    """Return whether what ``static`` wrote may name signals. ``data`` that was not read: it may."""
    return not isinstance(data, bytes) or b'"signals":[' in data


def may_have_lanes(data: object) -> bool:
    """Return whether what ``static`` wrote may name lanes. ``data`` that was not read: it may."""
    return not isinstance(data, bytes) or b'"lanes":[' in data


def lanes_in(data: bytes) -> tuple[str, ...]:
    """Return the names of the lanes in what ``static`` wrote."""
    return _static(data).lanes if may_have_lanes(data) else ()


def signals_in(data: bytes) -> Signals:
    """Return the signals in what ``static`` wrote."""
    return _static(data).signals if may_wait(data) else ()


def read_static(data: bytes) -> tuple[tuple[bytes, ...], Template, ReplyTo | None, tuple[str, ...]]:
    """Return what ``static`` wrote: inputs, result template, notification address, names of the inputs."""
    read = _static(data)
    return tuple(bytes(i) for i in read.inputs), read.returns, read.reply, read.names


def signals_of(data: bytes) -> dict[str, str] | None:
    """Return the names of the signals that a task's steps wait for, each with the JSON schema of its values;
    None if they cannot be read.
    """
    try:
        return dict(_static(data).signals)
    except UNREADABLE:
        return None


def signals_end(data: bytes) -> bytes:
    """Return the end of what ``static`` wrote, from the signals on; all of it, if it names none.

    The column of another task that ends in the same way names the same signals: the end closes the outermost
    object of a JSON text, so an input cannot look like it.

    >>> signals_end(b'{"inputs":[7],"returns":[["7"]],"signals":[["approval",""]]}')
    b',"signals":[["approval",""]]}'
    """
    try:
        read = _static(data)
    except UNREADABLE:
        return data
    end = b"," + _encode(_End(read.signals, read.lanes))[1:]
    return end if read.signals and data.endswith(end) else data


def duplicate_answer(id_: int, data: bytes | None) -> Submitted:
    """Return the answer for a draft whose key a task has; ``data``: what ``static`` wrote for that task, if
    its fingerprint is another.
    """
    if data is None:
        return Submitted(id_, is_new=False)
    try:
        inputs = read_static(data)[0]
    except UNREADABLE:
        inputs = ()
    return Submitted(id_, is_new=False, conflict=True, inputs=inputs)


def node_info(data: bytes) -> NodeInfo:
    """Return what a process publishes about itself; an unreadable row gives a NodeInfo that says so."""
    try:
        return _info(data)
    except UNREADABLE:
        return NodeInfo("(its row is unreadable)", (), "", 0, 0.0)


INPUTS = "what the task was given (column static of its row)"


def try_read(read: Callable[[bytes], T], data: bytes, subject: str, unreadable: list[str]) -> T | None:
    """Return what ``read`` makes of a column for display, or None if it is unreadable: then
    ``unreadable`` names ``subject``.
    """
    try:
        return read(data)
    except UNREADABLE as fault:
        unreadable.append(f"{subject} is unreadable: {fault}")
        return None


def try_read_static(
    data: bytes | None, unreadable: list[str]
) -> tuple[tuple[bytes, ...], Template | None, ReplyTo | None, tuple[str, ...]]:
    """Return what ``read_static`` does, for display: nothing of each if it is unreadable, or was not read."""
    return (None if data is None else try_read(read_static, data, INPUTS, unreadable)) or ((), None, None, ())


MOST_TEXT: Final = 20_000
"""Characters that are read of a text that processes of few rights may write, such as an alert's or a note's:
it goes to logs, pages and receivers.
"""
EVENT_COLUMNS: Final = f"seq, task, at, node, moves, substr(note, 1, {MOST_TEXT}), attempts"
"""What ``event`` reads."""


def event(row: Iterable[Any]) -> EventView:
    """Return a row of a task's history as people see it."""
    seq, task, at, node, move_data, note, end_data = row
    unreadable: list[str] = []
    entries = try_read(read_moves, move_data, "this entry", unreadable) or []
    records = try_read(read_attempts, end_data, "how its attempts ended", unreadable) or ()
    attempt_ends = tuple([end for end in records if end.note is None])
    late = [lateness(end, f"step {end.idx}") for end in attempt_ends if end.late]
    texts = "; ".join([*late, *([text(note)] if note else ()), *unreadable])
    notes = tuple([end.note for end in records if end.note is not None])
    return record_of(EventView, (seq, task, at, node, entries, texts, attempt_ends, 0, notes))


def attempts(ends: Sequence[AttemptEnd], notes: Sequence[Note] = ()) -> bytes:
    """Return how attempts ended, and what they noted, as JSON; empty for none."""
    if notes:
        ends = [*map(note_entry, notes), *ends]
    return _encode(ends) if ends else b""


def late_reply(message: TaskMessage) -> bytes:
    """Return a reply that nobody waited for any more, as ``attempts`` writes it."""
    return attempts([msgspec.structs.replace(attempt_end(message), late=True)])


def read_attempts(data: bytes) -> tuple[AttemptEnd, ...]:
    """Return what ``attempts`` wrote."""
    return _attempts(data) if data else ()


GOALS = frozenset(get_args(Goal))
STEP_STATES = frozenset({*STEP_MOVES, *CONTROL_MOVES})


def check_steps(steps: list[Step], goal: str) -> list[Step]:
    """Return the steps of a task, in order.

    Raises ``ValueError`` for an unknown state or ``goal``, or for missing rows: the task would wait forever.
    """
    if goal not in GOALS:
        raise ValueError(f"its goal is none that is known: {goal!r:.40}")
    if steps and steps[-1].plan.idx != len(steps) - 1:
        raise ValueError("rows of its steps are missing, or are not its own")
    for step in steps:
        if step.state not in STEP_STATES:
            raise ValueError(f"step {step.name} is in a state that is not known: {step.state!r:.40}")
    return steps


def flags(step: Step) -> int:
    """Return the boolean fields of a step as bits, with its tally of failures."""
    bits = step.doubt * DOUBT | step.final * FINAL | step.stuck * STUCK | step.again * AGAIN
    bits |= step.stood * STOOD | step.probe_answer * PROBE_ANSWER | step.loser * LOSER
    tally = step.tally
    if tally is None:
        return bits
    counts = min(tally.with_words, _MOST_TALLIED) << _WORDED | min(tally.silences, _MOST_TALLIED) << _SILENCES
    return bits | counts | tally.by_death * _DIED


def tally(bits: int) -> FailureTally | None:
    """Return the tally of a step's failures that ``flags`` wrote."""
    with_words = bits >> _WORDED & _MOST_TALLIED
    return (
        FailureTally(with_words, bits >> _SILENCES & _MOST_TALLIED, bool(bits & _DIED))
        if with_words
        else None
    )


def message(value: TaskMessage) -> bytes:
    """Return a message as JSON."""
    return _encode(value)


def read_message(data: bytes, seq: int, db_user: str | None = None) -> TaskMessage:
    """Return the message that ``message`` wrote, with its row's sequence.

    ``db_user``: the login that the database recorded. Only this login counts: the sender
    wrote the message itself.
    """
    content = _message(data)
    if content.act is None:
        return msgspec.structs.replace(content, seq=seq)
    return msgspec.structs.replace(
        content, seq=seq, act=msgspec.structs.replace(content.act, db_user=db_user or "")
    )


KINDS_OF_ACTS = ", ".join(f"'{kind}'" for kind in sorted(ACTS))
"""The kinds of operator commands, for a statement that finds them among messages."""


def operator_commands(posts: Iterable[Iterable[Any]], unreadable: list[str]) -> tuple[Asked, ...]:
    """Return the operator commands among messages (at, body) as people see them."""
    commands = [
        (at, try_read(_message, body, "what an operator asked for", unreadable)) for at, body in posts
    ]
    return tuple(
        Asked(content.kind, content.act, content.idx, at)
        for at, content in commands
        if content is not None and content.act is not None
    )


def request(value: Request) -> bytes:
    """Return a request as JSON."""
    return _encode(value)


def read_request(data: bytes, within: float, wait: float, taken_at: float) -> Request:
    """Return the request that ``request`` wrote.

    ``within``: the seconds left. ``wait``: the seconds that it waited in the store. ``taken_at``: when it
    was taken, on the store's clock.
    """
    if not math.isfinite(within + wait):
        raise ValueError("its deadline is not a point in time")
    read = _request(data)
    first_sent = read.first_sent or taken_at
    return msgspec.structs.replace(read, within=within, waited=wait, first_sent=first_sent, taken_at=taken_at)


def moves(value: Sequence[Move]) -> bytes:
    """Return a Decision's moves as JSON."""
    return _encode(value)


_WHEN_GUILTY = {"running": "in_doubt", "undoing": "undo_failed", "ready": "waiting"}


def rejection_moves(state: str, reason: str, steps: Sequence[tuple[str, str]]) -> bytes:
    """Return the moves of a task that is put to error, and of its steps (name, state) in flight, as JSON."""
    return _encode(
        [
            Move("task", state, "error", "unreadable", detail=reason),
            *(Move(name, was, _WHEN_GUILTY[was], "put_to_error") for name, was in steps),
        ]
    )


def read_moves(data: bytes) -> list[Move]:
    """Return the moves that ``moves`` wrote."""
    return _moves(data)


def note(answers: Sequence[Answer], signals: Sequence[KeptSignal] = (), state: str = "") -> str:
    """Return the history's text on operator commands, and on signals that a task in this state keeps; "" when
    there are none.
    """
    return "; ".join([*map(_act, answers), *(_signal_note(signal, state) for signal in signals)])


def _signal_note(signal: KeptSignal, state: str) -> str:
    reason = f"the task is {state}" if state in AT_REST else "no step waits for it now"
    return f"signal {signal.name} [{signal.id}] is kept: {reason}"


def _act(answer: Answer) -> str:
    author = f" by {answer.act.who}" if answer.act.who else ""
    author += f" [database user {answer.act.db_user}]" if answer.act.db_user else ""
    reason = f" ({answer.act.why})" if answer.act.why else ""
    return f"{answer.kind}{author}{reason} {answer.verdict}: {answer.outcome}"


_IN_ERROR = frozenset({"held", "undo_incomplete", "poison", "unreadable"})


def cause(kind: str, task: int | None, step: str) -> str:
    """Return the name of an alert's cause; each cause has at most one open alert.

    That a task is in error is one cause, whatever put it there.

    >>> cause("poison", 7, "") == cause("held", 7, ""), cause("no_leader", None, "")
    (True, 'no_leader 0 ')
    """
    if kind == "circuit_open":  # of an agent, whoever made its failures
        task = 0
    return f"error {task}" if task and kind in _IN_ERROR else f"{kind} {task or 0} {step}"


AlertRow = tuple[str, int | None, str, str, str | None, str]
"""kind, task, step, text, standing (the cause; None: it ended with this very change), why it ended."""


def alerts(items: Sequence[Alert], task: int | None = None) -> list[AlertRow]:
    """Return alerts as columns, the last one of each cause."""
    by_cause = {cause(a.kind, a.task or task, a.step): a for a in items}
    return [(a.kind, a.task or task, a.step, a.text, name, "") for name, a in by_cause.items()]


def decision_alerts(decision: Decision) -> list[AlertRow]:
    """Return a Decision's alerts as columns.

    The alerts of a task that has ended are written as ended. If the Decision also eases alerts, its own
    alerts get a new cause.
    """
    task = decision.task
    over = f"the task is {task.state}" if task.state in ("processed", "undone") else ""
    suffix = f" {task.epoch}" if decision.alert_ends else ""
    return [
        (kind, of, step, text, None if over else f"{name}{suffix}", over)
        for kind, of, step, text, name, _ in alerts(decision.alerts, task.id)
    ]


def alert_ends(decision: Decision) -> list[tuple[int, str, str]]:
    """Return (task, step or "*", why) of the alerts that a Decision ends."""
    steps = ["*"] if "*" in decision.alert_ends else decision.alert_ends
    task = decision.task
    of_step = "the alert of its task says so" if decision.before.state == "undoing" else "settled by hand"
    return [(task.id, step, f"the task is {task.state}" if step == "*" else of_step) for step in steps]


AuditRow = tuple[str, int, str, str, str, str, str]
"""act, task (0: none), kind, who, why, what came of it (its ``outcome``), the state after it."""


def audit_rows(
    act: Act, kind: str, state: str, objects: Iterable[tuple[object, int | None, str]]
) -> list[AuditRow]:
    """Return an operator command as audit rows, one for each object in ``objects``.

    An object has: its name within the command, its task, and the outcome.
    """
    return [
        (f"{act.id}/{name}", task or 0, kind, act.who, act.why, what, state) for name, task, what in objects
    ]


def act_row(act: Act, kind: str, outcome: str, state: str) -> list[AuditRow]:
    """Return an operator command that belongs to no task as its audit row."""
    return [(act.id, 0, kind, act.who, act.why, outcome, state)]


GONE: Mapping[str, str] = {
    "starved": "its requests are taken",
    "no_scheduler": "a scheduler runs, or no task waits for one",
    "no_leader": "a supervisor leads",
    "circuit_open": "its service answers, or its process has ended",
    "outage": "its service answers, or its process has ended",
    "schedule": "it was deleted",
    "receiver_away": "no notice waits for it whose last try failed",
    "lane_held": "it holds no lane any more that others wait for",
}
"""Why alerts end that the Supervisor watches, by kind."""


def starving(agent: str, action: str) -> str:
    """Return the name of the cause "nobody claims the requests for this action"."""
    return f"starved {agent} {action}"


def starving_of(name: str) -> tuple[str, str]:
    """Return agent and action of a cause that ``starving`` named."""
    _, agent, action = (*name.split(" ", 2), "", "")[:3]
    return agent, action


def schedule_of(name: str) -> tuple[str, str]:
    """Return app and name of the schedule that a cause is about.

    >>> schedule_of("schedule 0 shop/bill/ada")
    ('shop', 'bill/ada')
    """
    app, _, schedule = name.split(" ", 2)[2].partition("/")
    return app, schedule


def receiver_of(name: str) -> tuple[str, str]:
    """Return the host, or broker, of the receiver that a cause is about, and its address if it is one place
    at a broker, else "".

    >>> receiver_of("receiver_away 0 amqp:main/notices"), receiver_of("receiver_away 0 shop.example")
    (('amqp:main', 'amqp:main/notices'), ('shop.example', ''))
    """
    address = name.split(" ", 2)[2]
    host, slash, _ = address.partition("/")
    return host, address if slash else ""


def end_reason(name: str) -> str:
    """Return why the alert of a cause has ended."""
    return GONE.get(name.partition(" ")[0], "its cause is not one that is known")


def shut(living: Iterable[NodeInfo]) -> set[str]:
    """Return the agents whose circuit is open in any of these processes."""
    return {agent.agent for info in living for agent in info.agents if agent.circuit in SHUT}


def failing(living: Iterable[NodeInfo], agent: str) -> list[int]:
    """Return the tasks whose steps have failed since the agent's service last answered."""
    infos = [info for node in living for info in node.agents if info.agent == agent]
    return sorted({failure.step.task for info in infos for failure in info.failing})


NAMED = 10
"""Tasks that an alert about an outage names."""

COUNTED = 1000
"""Requests read for such an alert; if there are more, it says so."""


def outage_alert(agent: str, tasks: Iterable[int], after: float) -> AlertRow:
    """Return the alert that an agent's service has not answered for ``after`` seconds.

    ``tasks``: the waiting tasks, each as often as it has requests.

    >>> outage_alert("shop/payments", [7, 7], 300.0)[3].partition(". ")[0]
    'its service has answered nobody for more than 5m; 1 task waits: 0000000000007'
    """
    requests = [*tasks]
    waiting = sorted(set(requests))
    names = ", ".join(show(task) for task in waiting[:NAMED])
    rest_count = len(waiting) - NAMED
    least = "at least " if len(requests) > COUNTED else ""
    count = (
        f"{least}{len(waiting)} task{'' if len(waiting) == 1 else 's'} wait{'s' if len(waiting) == 1 else ''}"
    )
    text = (
        f"its service has answered nobody for more than {short_duration(after)}; {count}: {names}{f' and {rest_count} more' if rest_count > 0 else ''}. They "
        "wait until it answers, or you end them: `makegood task show ID`, `makegood task cancel ID`, "
        "`makegood task cancel --filter workflow=NAME`"
    )
    return alerts([Alert("outage", step=agent, text=text)])[0]


LANES_BLOCKED = "lanes blocked"
"""Listed among the names of causes for "tasks wait for lanes that tasks in error hold"."""

LANES_NAMED = 3
"""Lanes that an alert about a task in error names, and tasks that it names of each."""


def lane_alert(task: int, lanes: Sequence[tuple[str, int, Sequence[int]]]) -> AlertRow:
    """Return the alert that a task in error holds lanes that others wait for: of each its name, how many
    wait, counted up to ``COUNTED``, and the first of them.

    >>> lane_alert(7, [("ada", 1, [9])])[3].partition(". ")[0]
    'it is in error and holds lane ada, for which 1 task waits: 0000000000009'
    """
    parts = []
    for name, count, first in lanes[:LANES_NAMED]:
        number = f"more than {COUNTED:,} tasks" if count > COUNTED else quantity(count, "task")
        names = ", ".join(show(waiting) for waiting in first[:LANES_NAMED])
        more = f" and {min(count, COUNTED) - LANES_NAMED:,} more" if count > LANES_NAMED else ""
        parts.append(f"lane {name}, for which {number} {'waits' if count == 1 else 'wait'}: {names}{more}")
    others = f"; and {quantity(len(lanes) - LANES_NAMED, 'more lane')}" if len(lanes) > LANES_NAMED else ""
    text = (
        f"it is in error and holds {'; '.join(parts)}{others}. Resubmit, undo or settle it; or let the others continue before that: "
        f"`makegood lane release {show(task)} --reason TEXT`"
    )
    return alerts([Alert("lane_held", task, text=text)])[0]


def starvation_alerts(
    requests: Sequence[tuple[int, str, str, str]], after: float, living: Iterable[NodeInfo] = ()
) -> list[AlertRow]:
    """Return an alert for each action whose requests (task, step, agent, action) starve.

    The alert shows what ``living`` processes publish about the agent. Agents with an open circuit
    already have an alert.
    """
    first: dict[str, AlertRow] = {}
    infos = [*living]
    agents, silent = [agent for info in infos for agent in info.agents], shut(infos)
    for task, step, agent, action in requests:
        if agent in silent:
            continue
        name = starving(agent, action)
        text = f"no process has taken {agent}.{action} for {after:g} s: {_busy(agents, agent)}"
        first.setdefault(name, ("starved", task, step or "", text, name, ""))
    return list(first.values())


def _busy(agents: Iterable[AgentInfo], address: str) -> str:
    """Return why nobody claims an agent's requests, as far as its processes show, and what to do."""
    its = [agent for agent in agents if agent.agent == address]
    if not its or any(agent.used < agent.slots for agent in its):
        return "start an agent that has it"
    overdue = sum(agent.overdue for agent in its)
    hang = (
        f", {overdue} of them by calls that run past their deadline (the log names them)" if overdue else ""
    )
    processes = f"{len(its)} processes" if len(its) > 1 else "one process"
    return (
        f"the slots of {address} are all taken ({sum(agent.slots for agent in its)} in {processes}){hang}; "
        + ("restart what hangs, and give its calls a timeout, " if overdue else "wait, ")
        + "or start more of them"
    )


UNCLAIMED = "unclaimed"
"""Listed among the names of causes for "tasks wait and no Scheduler is alive"."""


def no_scheduler_alerts(after: float) -> list[AlertRow]:
    """Return the alert that tasks have waited for ``after`` seconds and no Scheduler
    was alive in that time.
    """
    text = f"no scheduler has run for {after:g} s, and tasks wait for one: start `makegood scheduler`"
    return alerts([Alert("no_scheduler", text=text)])


def present_start(start_at: float, wall: str | None, ready_seq: int) -> float | None:
    """Return when a task that sleeps begins, by the rules that its zone has now, if it was looked at too
    early; None: it may begin.
    """
    start = by_present_rules(start_at, wall or "")
    return start if start * 1_000_000 > ready_seq + 1 else None


def release_moves(state: str, reason: TaskReason) -> bytes:
    """Return the moves of a task in ``state`` whose lock was released, as JSON: one under way is pending
    again.
    """
    after = "pending" if state in ("processing", "undoing") else state
    return moves([Move("task", state, after, reason)])


def silent(
    key: Sequence[Any],
    doing: Any,
    failures: int,
    taken_at: float | None,
    *,
    due: float | None = None,
    is_dead: bool = False,
    is_excused: bool = False,
    node: int | None = None,
) -> tuple[int, TaskMessage]:
    """Return the message about a request (task, idx, attempt) that counts as unanswered, after its task.

    ``due``: its deadline. ``is_dead``: its ``node`` is dead. ``is_excused``: no failure was counted.
    """
    task, idx, attempt = key
    took = 0.0 if due is None or taken_at is None else round(seconds(due) - seconds(taken_at), 6)
    return task, TaskMessage(
        "expired", idx=idx, doing=doing, attempt=attempt, failures=failures, died=is_dead, excused=is_excused,
        first_sent=taken_at or 0.0, took=took, due=seconds(due or 0.0), node=node or 0,
    )  # fmt: skip


def late(
    replies: Iterable[tuple[int, TaskMessage]], states: Mapping[int, str]
) -> list[tuple[int, TaskMessage]]:
    """Return the messages about late replies (task, reply) that say that something was done, for tasks that
    have not ended. ``states``: those of the tasks that exist.
    """
    return [
        (task, TaskMessage("late", idx=m.idx, doing=m.doing, attempt=m.attempt, value=m.value))
        for task, m in replies
        if m.kind == "done" and task in states and states[task] not in ENDED
    ]


def restore_alert_text(outcome: NewGeneration, act: Act) -> str:
    """Return the text of the alert about a generation that an operator began."""
    return (
        f"{act.who or 'somebody'} said that the store was restored: generation {outcome.generation} began; {outcome.freed} tasks under way "
        f"were freed and {outcome.doubtful} requests are in doubt; what was acknowledged after the backup is lost"
    )
