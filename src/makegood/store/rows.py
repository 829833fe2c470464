"""How records become columns, the same for every store.

The constant columns of a step are stored as one JSON value, ``spec``. Tasks of one shape have equal specs, so
the interner decodes each spec once and shares the record. The boolean fields of a step are bits of ``flags``.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar, get_args

import msgspec

from makegood.base.durations import shown
from makegood.base.ids import show
from makegood.base.sizes import MIB
from makegood.model.attempt_end import AttemptEnd
from makegood.model.breaker import SHUT
from makegood.model.decision import Decision, Move
from makegood.model.messages import ACTS, Act, Alert, Answer, Request, TaskMessage
from makegood.model.plan import StepPlan, Template
from makegood.model.states import CONTROL_MOVES, ENDED, STEP_MOVES, Goal
from makegood.model.task import ReplyTo, Step
from makegood.payload.codec import UNREADABLE
from makegood.store.records import Anew
from makegood.store.views import AgentInfo, Asked, EventView, NodeInfo

T = TypeVar("T")

DOUBT, FINAL, STUCK, AGAIN, STOOD = 1, 2, 4, 8, 16
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
        self._known: OrderedDict[bytes, StepPlan] = OrderedDict()
        self._untouched: OrderedDict[bytes, Step] = OrderedDict()

    def plan(self, spec: bytes) -> StepPlan:
        """Return the StepPlan that ``spec`` encodes."""
        found = self._known.get(spec)
        if found is None:
            found = self._known[spec] = _plan(spec)
            self._bytes += len(spec)
            while len(self._known) > _INTERNED or self._bytes > _INTERNED_BYTES:
                old, _ = self._known.popitem(last=False)
                self._untouched.pop(old, None)
                self._bytes -= len(old)
        return found

    def untouched(self, spec: bytes) -> Step:
        """Return a new Step with the plan that ``spec`` encodes."""
        found = self._untouched.get(spec)
        if found is None:
            found = Step(self.plan(spec))
            if spec in self._known:
                self._untouched[spec] = found
        return found


def static(inputs: tuple[bytes, ...], returns: Template, reply: ReplyTo | None = None) -> bytes:
    """Return a task's inputs, result template and notification address as JSON."""
    return _encode(Static(tuple([msgspec.Raw(i) for i in inputs]), returns, reply))


def read_static(data: bytes) -> tuple[tuple[bytes, ...], Template, ReplyTo | None]:
    """Return the inputs, result template and notification address that ``static`` wrote."""
    read = _static(data)
    return tuple(bytes(i) for i in read.inputs), read.returns, read.reply


def node_info(data: bytes) -> NodeInfo:
    """Return what a process publishes about itself; an unreadable row gives a NodeInfo that says so."""
    try:
        return _info(data)
    except UNREADABLE:
        return NodeInfo("(its row is unreadable)", (), "", 0, 0.0)


INPUTS = "what the task was given (column static of its row)"


def seen(read: Callable[[bytes], T], data: bytes, what: str, unreadable: list[str]) -> T | None:
    """Return what ``read`` makes of a column for display, or None if it is unreadable: then
    ``unreadable`` names ``what``.
    """
    try:
        return read(data)
    except UNREADABLE as fault:
        unreadable.append(f"{what} is unreadable: {fault}")
        return None


def event(row: Iterable[Any]) -> EventView:
    """Return a row of a task's history (seq, task, at, node, moves, note, attempts) as people see it."""
    seq, task, at, node, moved, note, ends = row
    notes = [note] if note else []
    found = seen(read_moves, moved, "this entry", notes)
    return EventView(seq, task, at, node, found or [], "; ".join(notes), read_attempts(ends))


def attempts(ends: Sequence[AttemptEnd]) -> bytes:
    """Return how attempts ended as JSON; empty for none."""
    return _encode(ends) if ends else b""


def read_attempts(data: bytes | None) -> tuple[AttemptEnd, ...] | None:
    """Return what ``attempts`` wrote; None for the row of an older version, and for an unreadable one."""
    if not data:
        return None if data is None else ()
    try:
        return _attempts(data)
    except UNREADABLE:
        return None


_GOALS = frozenset(get_args(Goal))
_STEP_STATES = frozenset({*STEP_MOVES, *CONTROL_MOVES})


def checked(steps: list[Step], goal: str) -> list[Step]:
    """Return the steps of a task, in order.

    Raises ``ValueError`` for an unknown state or ``goal``, or for missing rows: the task would wait forever.
    """
    if goal not in _GOALS:
        raise ValueError(f"its goal is none that is known: {goal!r:.40}")
    if steps and steps[-1].plan.idx != len(steps) - 1:
        raise ValueError("rows of its steps are missing, or are not its own")
    for step in steps:
        if step.state not in _STEP_STATES:
            raise ValueError(f"step {step.name} is in a state that is not known: {step.state!r:.40}")
    return steps


def flags(step: Step) -> int:
    """Return the boolean fields of a step as bits."""
    known = step.doubt * DOUBT | step.final * FINAL | step.stuck * STUCK | step.again * AGAIN
    return known | step.stood * STOOD


def kind_of(value: TaskMessage) -> str:
    """Return the kind under which a message is stored.

    A Scheduler of an older version does not know ``extend``, and would put the task to error. It refuses to
    settle a step that does not exist: so an extension is stored as that, with its seconds.
    """
    return "settle" if value.kind == "extend" else value.kind


def message(value: TaskMessage) -> bytes:
    """Return a message as JSON."""
    return _encode(value if value.kind != "extend" else msgspec.structs.replace(value, kind="settle", idx=-1))


def _extension(found: TaskMessage) -> TaskMessage:
    """Return a message as it was meant; see ``kind_of``."""
    if found.kind == "settle" and found.idx < 0 and found.wait:
        return msgspec.structs.replace(found, kind="extend")
    return found


def read_message(data: bytes, seq: int, db_user: str | None = None) -> TaskMessage:
    """Return the message that ``message`` wrote, with its row's sequence.

    ``db_user``: the login that the database recorded. Only this login counts: the sender
    wrote the message itself.
    """
    found = _message(data)
    if found.act is None:
        return msgspec.structs.replace(found, seq=seq)
    return msgspec.structs.replace(
        _extension(found), seq=seq, act=msgspec.structs.replace(found.act, db_user=db_user or "")
    )


KINDS_OF_ACTS = ", ".join(f"'{kind}'" for kind in sorted(ACTS))
"""The kinds of operator commands, for a statement that finds them among messages."""


def asked(found: Iterable[Iterable[Any]], unreadable: list[str]) -> tuple[Asked, ...]:
    """Return the operator commands among messages (at, body) as people see them."""
    read = [(at, seen(_message, body, "what an operator asked for", unreadable)) for at, body in found]
    return tuple(
        Asked(_extension(one).kind, one.act, one.idx, at)
        for at, one in read
        if one is not None and one.act is not None
    )


def request(value: Request) -> bytes:
    """Return a request as JSON."""
    return _encode(value)


def read_request(data: bytes, within: float, waited: float) -> Request:
    """Return the request that ``request`` wrote.

    ``within``: the seconds left. ``waited``: the seconds that it waited in the store.
    """
    if not math.isfinite(within + waited):
        raise ValueError("its deadline is not a point in time")
    return msgspec.structs.replace(_request(data), within=within, waited=waited)


def moves(value: Sequence[Move]) -> bytes:
    """Return a Decision's moves as JSON."""
    return _encode(value)


_WHEN_GUILTY = {"running": "in_doubt", "undoing": "undo_failed", "ready": "waiting"}


def guilty_moves(state: str, reason: str, steps: Sequence[tuple[str, str]]) -> bytes:
    """Return the moves of a task that is put to error, and of its steps (name, state) in flight, as JSON."""
    return _encode(
        [
            ("task", state, "error", reason),
            *((name, was, _WHEN_GUILTY[was], "put to error") for name, was in steps),
        ]
    )


def read_moves(data: bytes) -> list[Move]:
    """Return the moves that ``moves`` wrote."""
    return _moves(data)


def note(stale: Sequence[TaskMessage], answers: Sequence[Answer] = ()) -> str:
    """Return the history's text on messages without effect and on operator commands;
    "" when there are none.
    """
    late = [
        f"{m.kind} came too late for the {m.doing} of step {m.idx}, attempt {m.attempt}"
        if m.idx >= 0
        else f"{m.kind} changed nothing"
        for m in stale
    ]
    return "; ".join([*late, *map(_act, answers)])


def _act(answer: Answer) -> str:
    who = f" by {answer.act.who}" if answer.act.who else ""
    who += f" [database user {answer.act.db_user}]" if answer.act.db_user else ""
    why = f" ({answer.act.why})" if answer.act.why else ""
    return f"{answer.kind}{who}{why} {answer.verdict}: {answer.outcome}"


_IN_ERROR = frozenset({"held", "undo_incomplete", "poison", "guilty"})


def cause(kind: str, task: int | None, step: str) -> str:
    """Return the name of an alert's cause; each cause has at most one open alert.

    That a task is in error is one cause, whatever put it there.

    >>> cause("poison", 7, "") == cause("held", 7, ""), cause("no_leader", None, "")
    (True, 'no_leader 0 ')
    """
    return f"error {task}" if task and kind in _IN_ERROR else f"{kind} {task or 0} {step}"


AlertRow = tuple[str, int | None, str, str, str | None, str]
"""kind, task, step, text, standing (the cause; None: it ended with this very change), why it ended."""


def alerts(raised: Sequence[Alert], task: int | None = None) -> list[AlertRow]:
    """Return alerts as columns, the last one of each cause."""
    found = {cause(a.kind, a.task or task, a.step): a for a in raised}
    return [(a.kind, a.task or task, a.step, a.text, name, "") for name, a in found.items()]


def decided(decision: Decision) -> list[AlertRow]:
    """Return a Decision's alerts as columns.

    The alerts of a task that has ended are written as ended. If the Decision also eases alerts, its own
    alerts get a new cause.
    """
    task = decision.task
    over = f"the task is {task.state}" if task.state in ("processed", "undone") else ""
    anew = f" {task.epoch}" if decision.eased else ""
    return [
        (kind, of, step, text, None if over else f"{name}{anew}", over)
        for kind, of, step, text, name, _ in alerts(decision.alerts, task.id)
    ]


def eased(decision: Decision) -> list[tuple[int, str, str]]:
    """Return (task, step or "*", why) of the alerts that a Decision ends."""
    steps = ["*"] if "*" in decision.eased else decision.eased
    task = decision.task
    return [
        (task.id, step, f"the task is {task.state}" if step == "*" else "settled by hand") for step in steps
    ]


AuditRow = tuple[str, int, str, str, str, str, str]
"""act, task (0: none), kind, who, why, what came of it (its ``outcome``), the state after it."""


def audited(
    act: Act, kind: str, state: str, done: Iterable[tuple[object, int | None, str]]
) -> list[AuditRow]:
    """Return an operator command as audit rows, one for each object in ``done``.

    An object has: its name within the command, its task, and the outcome.
    """
    return [(f"{act.id}/{name}", task or 0, kind, act.who, act.why, what, state) for name, task, what in done]


def act_row(act: Act, kind: str, outcome: str, state: str) -> list[AuditRow]:
    """Return an operator command that belongs to no task as its audit row."""
    return [(act.id, 0, kind, act.who, act.why, outcome, state)]


GONE: Mapping[str, str] = {
    "starved": "its requests are taken",
    "no_scheduler": "a scheduler runs, or no task waits for one",
    "no_leader": "a supervisor leads",
    "circuit_open": "its service answers, or its process has ended",
    "outage": "its service answers, or its process has ended",
}
"""Why alerts end that the Supervisor watches, by kind."""


def starving(agent: str, action: str) -> str:
    """Return the name of the cause "nobody claims the requests for this action"."""
    return f"starved {agent} {action}"


def starving_of(name: str) -> tuple[str, str]:
    """Return agent and action of a cause that ``starving`` named."""
    _, agent, action = (*name.split(" ", 2), "", "")[:3]
    return agent, action


def gone(name: str) -> str:
    """Return why the alert of a cause has ended."""
    return GONE.get(name.partition(" ")[0], "its cause is not one that is known")


def shut(living: Iterable[NodeInfo]) -> set[str]:
    """Return the agents whose circuit is open in any of these processes."""
    return {agent.agent for info in living for agent in info.agents if agent.circuit in SHUT}


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
    asked = [*tasks]
    waiting = sorted(set(asked))
    named = ", ".join(show(task) for task in waiting[:NAMED])
    more = len(waiting) - NAMED
    least = "at least " if len(asked) > COUNTED else ""
    count = (
        f"{least}{len(waiting)} task{'' if len(waiting) == 1 else 's'} wait{'s' if len(waiting) == 1 else ''}"
    )
    text = (
        f"its service has answered nobody for more than {shown(after)}; {count}: {named}{f' and {more} more' if more > 0 else ''}. They "
        "wait until it answers, or you end them: `makegood task show ID`, `makegood task cancel ID`, "
        "`makegood task cancel --filter workflow=NAME`"
    )
    return alerts([Alert("outage", step=agent, text=text)])[0]


def starved_alerts(
    found: Sequence[tuple[int, str, str, str]], after: float, living: Iterable[NodeInfo] = ()
) -> list[AlertRow]:
    """Return an alert for each action whose requests (task, step, agent, action) starve.

    The alert shows what ``living`` processes publish about the agent. Agents with an open circuit
    already have an alert.
    """
    first: dict[str, AlertRow] = {}
    infos = [*living]
    agents, silent = [agent for info in infos for agent in info.agents], shut(infos)
    for task, step, agent, action in found:
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


def whole(d: Decision, claimed: Collection[int]) -> bool:
    """Return whether to write a Decision by its ``ShapeStep``.

    Not if only some of its requests are handed over in memory, or more of the task must be written.
    """
    task = d.before
    if d.shape_step is None or task.lost or task.id in claimed:
        return False
    return not d.handed or len(d.handed) == len(d.requests)


UNCLAIMED = "unclaimed"
"""Listed among the names of causes for "tasks wait and no Scheduler is alive"."""


def unclaimed(after: float) -> list[AlertRow]:
    """Return the alert that tasks have waited for ``after`` seconds and no Scheduler
    was alive in that time.
    """
    text = f"no scheduler has run for {after:g} s, and tasks wait for one: start `makegood scheduler`"
    return alerts([Alert("no_scheduler", text=text)])


def freed(state: str, why: str = "the store began a new generation") -> tuple[bytes, str]:
    """Return the moves and the note of a task in ``state`` whose lock was released."""
    if state in ("processing", "undoing"):
        return moves([("task", state, "pending", why)]), ""
    return moves([]), f"its lock was freed: {why}"


def silent(
    key: Sequence[Any], doing: Any, failures: int, *, died: bool = False, node: int | None = None
) -> tuple[int, TaskMessage]:
    """Return the message about a request (task, idx, attempt) that counts as unanswered, after its task.

    ``died``: its ``node`` is dead.
    """
    task, idx, attempt = key
    return task, TaskMessage(
        "expired", idx=idx, doing=doing, attempt=attempt, failures=failures, died=died, node=node or 0
    )


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


def restored(done: Anew, act: Act) -> str:
    """Return the text of the alert about a generation that an operator began."""
    return (
        f"{act.who or 'somebody'} said that the store was restored: generation {done.generation} began; {done.freed} tasks under way "
        f"were freed and {done.doubtful} requests are in doubt; what was acknowledged after the backup is lost"
    )
