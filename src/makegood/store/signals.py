"""Signals to tasks: what a sender writes, and what it is told, the same for every store.

A sender only inserts: a row of ``signal``, which remembers its id, and a row of ``inbox``, which wakes the
task's Scheduler. It locks no task: in a caller's transaction such a lock would hold up the batch of a
Scheduler for as long as the caller likes.
"""

import re
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Final, Protocol

import msgspec

from makegood.base.ids import parse, show
from makegood.base.stored_values import data, record_of
from makegood.errors import SignalRefused, TaskNotFoundError
from makegood.model.messages import Act, SignalRef, TaskMessage
from makegood.payload.envelopes import SCHEMA, is_encoded
from makegood.payload.schema_misfit import fill_defaults, misfit, sorted_text
from makegood.store import rows
from makegood.store.transaction import ReadTx, Sql, Tx, for_each
from makegood.store.views import SignalView

MOST_BACKLOG: Final = 1000
"""Signals of a task that no step has used yet, at most."""

KNOWN: Final = "it was sent before"
"""In place of a refusal: the task knows the signal."""

_ENDED = {
    "processed": "the task had ended: processed; nothing in it waits any more",
    "undone": "the task had ended: undone; resubmit it first",
    "undoing": "the task is being undone; resubmit it once it is undone",
}
_STEPS = r"{}(-\d+)?(\[\d+\])*"
"""How the steps are called that wait for a signal."""
_MANY = f"""
select t.id, t.state, t.goal, t.static, t.app, t.workflow, s.digest,
    (select count(*) from (select 1 from makegood.signal u where u.task = t.id and u.used is null limit {MOST_BACKLOG}) u) {{rows}}
"""  # noqa: S608 - our own number
_JOINED = "left join makegood.signal s on s.task = t.id and s.name = x.name and s.id = x.id"
_ADDRESSEES = for_each(
    _MANY.replace("{rows}", f"from makegood.task t {_JOINED} where t.id = x.task"),
    _MANY + f" join makegood.task t on t.id = x.task {_JOINED}",
    task="bigint", name="text", id="text",
)  # fmt: skip
_SIGNALS = for_each(
    "insert into makegood.signal (task, name, id, at, who, digest) select x.task, x.name, x.id, {now}, x.who, x.digest {rows} where true "
    "on conflict do nothing returning task",
    task="bigint", name="text", id="text", who="text", digest="bytea",
)  # fmt: skip
_MESSAGES = for_each(
    "insert into makegood.inbox (task, kind, at, body) select x.task, 'signal', {now}, x.body {rows}",
    task="bigint", body="bytea",
)  # fmt: skip
_VIEWS = Sql(f"""
select s.name, s.id, s.at, substr(s.who, 1, {rows.MOST_TEXT}),
    case when s.used is not null then coalesce((select p.name from makegood.step p where p.task = s.task and p.idx = s.used), '') end,
    s.used_at, s.step, s.body is not null
from makegood.signal s where s.task = $1 order by s.seq desc limit {MOST_BACKLOG}
""")  # noqa: S608 - our own numbers


class TaskKey(msgspec.Struct, frozen=True):
    """A task by its key."""

    app: str
    workflow: str
    key: str


class OutgoingSignal(msgspec.Struct, frozen=True, kw_only=True):
    """A signal to send."""

    to: int | TaskKey
    name: str
    id: str
    value: bytes
    """JSON."""
    step: str = ""
    """The only step that may use it; "": any that waits for ``name``."""
    is_typed: bool = False
    """Whether its value is known to be of the signal's type; else the task's schema is asked."""
    whole: bytes | None = None
    """Its value with the defaults that it leaves out; None: as it is."""

    @property
    def digest(self) -> bytes:
        """What tells this signal from another one under its id, however its value is spelled.

        Known only of a signal in its final form: a member may be left out or written.
        """
        text = sorted_text(self.value if self.whole is None else self.whole)
        return blake2b(self.step.encode() + b"\0" + text, digest_size=16).digest()

    @property
    def task_message(self) -> TaskMessage:
        """The message to the task."""
        ref = SignalRef(self.name, self.id, self.step)
        value = self.value if self.whole is None else self.whole
        return TaskMessage("signal", value=value, signal=ref)

    @property
    def message(self) -> bytes:
        """The message to the task, as its inbox has it."""
        return rows.message(self.task_message)


class Signalled(msgspec.Struct, frozen=True):
    """The result of sending a signal."""

    id: str
    created: bool
    """False if the task already knows a signal of this name and id, whatever became of it."""
    conflict: bool = False
    """Whether the known signal has another value, or is for another step."""
    task: str = ""
    """The id of the task that has it."""


class Addressee(msgspec.Struct, frozen=True, array_like=True):
    """What a sender must know of a task."""

    task: int
    state: str
    goal: str
    static: bytes
    app: str
    workflow: str
    digest: bytes | None
    """Of the signal of the same name and id, if there is one."""
    backlog: int
    """Its signals that no step has used, counted up to the limit."""


class SignalTables(Protocol):
    """The statements of one transaction, of the store or of a caller."""

    async def state(self, signal: OutgoingSignal) -> Addressee | None:
        """Return the state of the task to which a signal goes; None if there is no such task."""

    async def insert(self, task: int, signal: OutgoingSignal, who: str) -> bool:
        """Insert a signal and its message; False if the task has one of this name and id by now."""


async def send(tables: SignalTables, signal: OutgoingSignal, who: str = "") -> Signalled:
    """Send a signal. Raises ``TaskNotFoundError`` and ``SignalRefused``: then nothing was written."""
    while True:
        task = await tables.state(signal)
        if task is None:
            raise unknown(signal.to)
        answer = verdict(task, signal, rows.signals_of(task.static))
        if isinstance(answer, Signalled):
            return answer
        if await tables.insert(task.task, answer, who):
            return Signalled(signal.id, created=True, task=show(task.task))
        # somebody sent it at the same moment


def verdict(
    task: Addressee, signal: OutgoingSignal, schemas: Mapping[str, str] | None
) -> Signalled | OutgoingSignal:
    """Return a signal as it is to be written for its task, or the answer if the task knows it.

    ``schemas``: of the task's signals, by their names, None if they cannot be read.

    Raises ``SignalRefused``.
    """
    if (refusal := _encoding_refusal(task, signal, schemas)) is not None:  # no such value was ever sent
        raise refusal
    # Asked before the rest: a repeated signal is no new one, whatever became of the task.
    if task.digest is not None:
        conflict = data(task.digest) != _whole(signal, schemas).digest
        return Signalled(signal.id, created=False, conflict=conflict, task=show(task.task))
    if (refusal := _refusal(task, signal, schemas)) is not None:
        raise refusal
    return _whole(signal, schemas)


def whole_for(signal: OutgoingSignal, schemas: Mapping[str, str] | None) -> OutgoingSignal | None:
    """Return a signal as it is to be written for a task that runs and takes the signals ``schemas``; None if
    such a task would refuse it.
    """
    task = Addressee(0, "processing", "forward", b"", "", "", None, 0)
    if _encoding_refusal(task, signal, schemas) is not None or _refusal(task, signal, schemas) is not None:
        return None
    return _whole(signal, schemas)


def _whole(signal: OutgoingSignal, schemas: Mapping[str, str] | None) -> OutgoingSignal:
    """Return a signal in its final form: with the defaults that its sender leaves out."""
    whole = fill_defaults((schemas or {}).get(signal.name, ""), signal.value)
    return signal if whole is signal.value else msgspec.structs.replace(signal, whole=whole)


def unknown(to: int | TaskKey) -> TaskNotFoundError:
    """Return the error that there is no such task."""
    if isinstance(to, int):
        text = f"there is no task {show(to)} in this store: see `makegood task list`"
        return TaskNotFoundError(text, task_id=show(to))
    return TaskNotFoundError(
        f"no task of {to.app}.{to.workflow} has the key {to.key!r}: submit it under this key first (you may submit and signal in one "
        f"transaction)"
    )


def _refusal(
    task: Addressee, signal: OutgoingSignal, schemas: Mapping[str, str] | None
) -> SignalRefused | None:
    """Return why a task does not take a signal; ``schemas``: of its signals, by their names, None if they
    cannot be read.
    """
    schema = (schemas or {}).get(signal.name, "")
    is_full = False
    state = "undoing" if task.goal == "undo" and task.state not in ("undone", "error") else task.state
    if (end := _ENDED.get(state)) is not None:
        text = f"task {show(task.task)} takes no signal {signal.name!r}: {end}"
    elif schemas is not None and signal.name not in schemas:
        text = f"task {show(task.task)} waits for no signal {signal.name!r}, now or later; {_remedy(task, signal, schemas)}"
    elif signal.step and not re.fullmatch(_STEPS.format(re.escape(signal.name)), signal.step):
        text = (
            f"task {show(task.task)} has no step {signal.step!r} that waits for {signal.name!r}: leave the step out, or write {signal.name}, "
            f"{signal.name}-2, or {signal.name}[3] for the item 3 of an mg.each"
        )
    elif not signal.is_typed and (reason := misfit(schema, signal.value)):
        text = f"task {show(task.task)} takes no such value of the signal {signal.name!r}: {reason}"
    elif task.backlog >= MOST_BACKLOG:
        is_full = True
        text = (
            f"task {show(task.task)} takes no signal {signal.name!r}: {MOST_BACKLOG:,} signals to it are unused, which is the most; send it again "
            f"once its steps have used some, or the one that is meant under the same id"
        )
    else:
        return None
    return _refusal_error(text, task, signal, is_known=signal.name in (schemas or ()), is_full=is_full)


def _encoding_refusal(
    task: Addressee, signal: OutgoingSignal, schemas: Mapping[str, str] | None
) -> SignalRefused | None:
    """Return why a task does not take a plain value; None if it does, or the value is encoded."""
    schema = (schemas or {}).get(signal.name)
    if signal.is_typed or schema != SCHEMA or is_encoded(signal.value):
        return None
    text = (
        f"task {show(task.task)} takes encoded values of the signal {signal.name!r} only, and this process has no codec of app {task.app!r}: "
        f"where the app's code runs, send what app.signal({signal.name!r}, ...) returned in place of its name; elsewhere pass the app, "
        "--check MODULE:APP, or its codec, --codec MODULE:OBJECT or mg.Client(codec=...)"
    )
    return _refusal_error(text, task, signal, is_known=True, takes_encoded=True)


def _refusal_error(text: str, task: Addressee, signal: OutgoingSignal, **options: bool) -> SignalRefused:
    return SignalRefused(
        text,
        task_id=show(task.task),
        signal=signal.name,
        state=task.state,
        app=task.app,
        workflow=task.workflow,
        **options,
    )


def _remedy(task: Addressee, signal: OutgoingSignal, schemas: Mapping[str, str]) -> str:
    """Return what to do about a signal that no step of its task waits for."""
    if schemas:
        return f"it has {', '.join(schemas)}"
    return (
        f"no step of its workflow {task.app}.{task.workflow} is an mg.wait_for: send the signal to the task that waits (`makegood task list "
        f"waits:{signal.name}`), or add the wait to the workflow, which counts for tasks that are submitted after that"
    )


def audit_rows(act: Act, signal: OutgoingSignal, answer: Signalled) -> list[rows.AuditRow]:
    """Return an operator's signal as its row in the audit; none if it was known."""
    if not answer.created:
        return []
    step = f" for {signal.step}" if signal.step else ""
    return [
        (
            act.id,
            parse(answer.task),
            "signal",
            act.who,
            act.why,
            f"sent {signal.name} ({signal.id}){step}",
            "",
        )
    ]


async def send_for(tx: Tx, act: Act, content: tuple[str, bytes], tasks: Sequence[int]) -> dict[int, str]:
    """Send each task the same signal, name and value, for an operator's act on many, in as many statements
    whatever the tasks are.

    The id of each signal is made of the act's and the task's: sent again, it is the same one. Returns for
    each task why it refuses, "" if it was sent, ``KNOWN`` if it was sent before.
    """
    name, value = content
    by_task = {
        task: OutgoingSignal(to=task, name=name, id=f"{act.id}/{show(task)}", value=value) for task in tasks
    }
    answers = dict.fromkeys(tasks, "the task was removed")
    for row in await tx.each(_ADDRESSEES, [(id_, name, signal.id) for id_, signal in by_task.items()]):
        task = Addressee(*row)
        schemas = rows.signals_of(task.static)
        by_task[task.task] = signal = _whole(by_task[task.task], schemas)
        if task.digest is not None:
            is_same = data(task.digest) == signal.digest
            answers[task.task] = KNOWN if is_same else f"it knows {signal.id} with another value"
        else:
            refusal = _encoding_refusal(task, signal, schemas) or _refusal(task, signal, schemas)
            answers[task.task] = "" if refusal is None else str(refusal)
    sends = [(task, by_task[task]) for task, answer in answers.items() if not answer]
    new_rows = [(task, name, signal.id, act.who, signal.digest) for task, signal in sends]
    new_tasks = {task for (task,) in await tx.each(_SIGNALS, new_rows)} if sends else set()
    sends = [(task, signal) for task, signal in sends if task in new_tasks]
    await tx.many(_MESSAGES, [(task, signal.message) for task, signal in sends])
    if sends:
        tx.topics.add("inbox")
    return answers | {task: KNOWN for task, _, *_ in new_rows if task not in new_tasks}


async def views(tx: ReadTx, task: int) -> tuple[SignalView, ...]:
    """Return the signals of a task, newest first."""
    return tuple(record_of(SignalView, row) for row in await tx.rows(_VIEWS, task))
