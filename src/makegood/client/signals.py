"""Sending a signal: from what the caller names to what the store writes."""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypedDict, TypeVar

from msgspec.structs import replace

from makegood.base import ids
from makegood.base.durations import Duration
from makegood.base.text import refuse_unstorable, short_repr
from makegood.client.opened_store import OpenedStore
from makegood.client.operators import Acted, Acts, Progress, page_by_page
from makegood.declare.signal import Signal, SignalByKey, another_app
from makegood.errors import ConfigError, DefinitionError, SignalRefused, TaskNotFoundError
from makegood.model.messages import Act
from makegood.payload import envelopes
from makegood.payload.codec import encode
from makegood.payload.envelopes import SCHEMA, Codec, Context, signal_subject
from makegood.store.oversight_records import BulkKind, BulkView
from makegood.store.signals import KNOWN, OutgoingSignal, Signalled, TaskKey
from makegood.store.views import Filter, TaskView
from makegood.transactions import recognise
from makegood.workflow.workflow import Workflow

T = TypeVar("T")

MOST_ID: Final = 300
"""Characters of a signal's id, and of the step that it is for, at most."""


_MANY: Final = 0
"""In place of a task's number: any that an act on many concerns."""


class NumberedTask(Protocol):
    """A handle of a task: one to await, or one that blocks."""

    @property
    def number(self) -> int:
        """The task's id as the store has it."""


class SignalOptions(TypedDict, total=False):
    """The options of ``signal``."""

    id: str | None
    step: str | None
    who: str | None
    why: str
    connection: Any


class AnswerOptions(TypedDict, total=False):
    """The options of ``signal`` with ``until``."""

    id: str | None
    step: str | None
    who: str | None
    why: str
    timeout: Duration | None


def address(opened_store: OpenedStore, task: Any, key: str | None) -> int | TaskKey:
    """Return the task that a handle or an id names, or the one of a workflow that has ``key``.

    Raises ``DefinitionError``, ``ConfigError``, ``TaskNotFoundError``.
    """
    if key is None:
        if isinstance(task, Workflow):
            raise DefinitionError(f"signal({task.name}, ...) goes to the task that has a key: pass key=")
        number = getattr(task, "number", task)  # a handle, or what people call a task
        if not isinstance(number, int | str):
            raise DefinitionError(f"signal() takes a task's handle or id, not {type(task).__name__}")
        return opened_store.number(number)
    if not isinstance(task, Workflow):
        raise DefinitionError(
            f"signal(..., key=) takes a function decorated with @app.workflow(...), not {type(task).__name__}; a task by its id needs no key="
        )
    return TaskKey(task.app, task.name, key)


def outgoing(
    to: int | TaskKey,
    signal: Signal[Any] | str,
    value: Any,
    *,
    id: str,  # noqa: A002 - what it is
    step: str | None,
) -> OutgoingSignal:
    """Return a signal as it is written down.

    Raises ``PayloadError`` for a value that cannot be kept, or is not of the signal's type, and
    ``ConfigError``.
    """
    if isinstance(signal, Signal):
        if isinstance(to, TaskKey) and to.app != signal.app:
            raise another_app(signal, to.app, to.workflow)
        name, body = signal.name, signal._encode(value)
    elif isinstance(signal, str):
        name, body = signal, encode(value, subject=f"the value of signal {signal}")
    else:
        raise DefinitionError(
            f"signal() takes what app.signal(...) returned, or its name, not {type(signal).__name__}"
        )
    is_typed = isinstance(signal, Signal)
    return _check(OutgoingSignal(to=to, name=name, id=id, value=body, step=step or "", is_typed=is_typed))


async def seal(
    signal: OutgoingSignal, codec: Codec | None, app: str, *, task: int | None = None
) -> OutgoingSignal:
    """Return a signal as it is sent: encoded for the task of this number, with None for any of the app.

    Raises ``CodecError`` if the codec raises.
    """
    if codec is None:
        return signal
    subject = signal_subject(app) if task is None else ids.show(task)
    context = Context(subject, f"signal {signal.name}")
    return replace(
        signal, value=await envelopes.encode(codec, signal.value, context, names_subject=task is None)
    )


async def send_sealed(
    signal: OutgoingSignal,
    codec: Codec | None,
    app: str,
    send: Callable[[OutgoingSignal], Awaitable[Signalled]],
    *,
    task: int | None = None,
) -> Signalled:
    """Return what ``send`` returns for a signal that is encoded as in ``seal``.

    Stores compare encoded values, and the task may know this one as it is encoded for the other: for the app
    if it was sent by key or to many tasks, else for the task. So what seems to be a conflict is sent as that.
    """
    answer = await send(await seal(signal, codec, app, task=task))
    if codec is None or not answer.conflict:
        return answer
    number = ids.parse(answer.task)
    again = replace(signal, to=number)
    return await send(await seal(again, codec, app, task=number if task is None else None))


def codec_of(signal: Signal[Any] | str) -> tuple[Codec | None, str]:
    """Return the codec of a signal and the name of its app; a signal that is only named has none."""
    return (signal.codec, signal.app) if isinstance(signal, Signal) else (None, "")


class SignalSender(NamedTuple):
    """What sending signals needs of a client."""

    opened_store: OpenedStore
    acts: Acts
    find_signal: Callable[[str, str], Signal[Any] | None]
    """Returns the signal of an app, "" for any, that has a name; None: the client knows no codec of it."""


async def _send_as_meant(
    sender: SignalSender, signal: Signal[Any] | str, send: Callable[[Signal[Any] | str], Awaitable[T]]
) -> T:
    """Return what ``send`` returns for a signal; for one that is only named, and whose task takes encoded
    values only, what it returns for the signal that the name means. Raises what ``send`` raises.
    """
    try:
        return await send(signal)
    except SignalRefused as refusal:
        meaning = sender.find_signal(refusal.app, refusal.signal) if refusal.takes_encoded else None
        if meaning is None:
            raise
    return await send(meaning)


def of_message(answer: SignalByKey, message: str) -> OutgoingSignal:
    """Return the signal that an inbox's function made of a message, by its id. Raises ``ConfigError``."""
    to = TaskKey(answer.app, answer.workflow, answer.key)
    id_ = message if answer.id is None else answer.id
    return _check(
        OutgoingSignal(to=to, name=answer.name, id=id_, value=answer.value, step=answer.step, is_typed=True)
    )


def _check(signal: OutgoingSignal) -> OutgoingSignal:
    for name, text, least in (("id", signal.id, 1), ("step", signal.step, 0)):
        if not isinstance(text, str) or not least <= len(text) <= MOST_ID:
            raise ConfigError(f"{name}={short_repr(text)}: a text of 1 to {MOST_ID} characters")
    key = signal.to.key if isinstance(signal.to, TaskKey) else None
    refuse_unstorable(ConfigError, signal=signal.name, key=key, id=signal.id, step=signal.step)
    return signal


class BulkDraft(NamedTuple):
    """An act on many tasks, without the signal that it may send."""

    act: Act
    kind: BulkKind
    condition: Filter
    limit: int | None
    rate: float | None


async def bulk(
    sender: SignalSender, draft: BulkDraft, signal: Signal[Any] | str | None, value: Any
) -> BulkView:
    """Request an act on many tasks: see ``Client.bulk``.

    If the signal is only named, the newest task that matches says whether its values are encoded; if the act
    exists, the value that it has.
    """
    oversight, condition = sender.opened_store.ready().oversight, draft.condition

    async def request(content: tuple[str, bytes] | None = None) -> BulkView:
        return await oversight.bulk(
            draft.act, draft.kind, condition, most=draft.limit, rate=draft.rate, signal=content
        )

    if draft.kind != "signal":
        if signal is not None or value is not None:
            raise ConfigError(
                f'bulk({draft.kind!r}, ...) sends no signal: signal= and value= go with "signal"'
            )
        return await request()
    if signal is None:
        raise ConfigError('bulk("signal", ...) needs signal=, what app.signal(...) returned or its name')
    if isinstance(signal, str) and await oversight.bulk_act(draft.act.id) is None:
        signal = await _meaning(sender, signal, condition) or signal

    async def send(signal: Signal[Any] | str) -> BulkView:
        content = await seal(outgoing(_MANY, signal, value, id="bulk", step=None), *codec_of(signal))
        return await request((content.name, content.value))

    return await _send_as_meant(sender, signal, send)


async def _meaning(sender: SignalSender, name: str, condition: Filter) -> Signal[Any] | None:
    """Return what the name of a signal means to the newest task that matches; None: its values are plain.

    Raises ``ConfigError`` if no task matches and the client has a codec, since the act keeps its value.
    """
    store = sender.opened_store.ready()
    is_matched = False
    for view in await store.tasks.find(dataclasses.replace(condition, limit=1)):
        is_matched, signal = True, sender.find_signal(view.app, name)
        detail = None if signal is None else await store.tasks.detail(view.id)
        if detail is not None and detail.signal_types.get(name) == SCHEMA:
            return signal
    meaning = None if is_matched else sender.find_signal(condition.app or "", name)
    if meaning is not None and meaning.codec is not None:
        raise ConfigError(
            f"no task matches, so nothing shows whether values of the signal {name!r} are encoded: pass what app.signal({name!r}, ...) "
            "returned in place of its name, or leave this act out"
        )
    return None


class SignalToMany(NamedTuple):
    """A signal to many tasks."""

    signal: Signal[Any] | str
    value: Any
    act: Act


async def send_all(
    sender: SignalSender,
    draft: SignalToMany,
    condition: Filter,
    limit: int | None,
    progress: Progress | None,
) -> list[Acted]:
    """Send a signal to each task that matches, newest first: see ``Client.signal_all``."""
    store, act = sender.opened_store.ready(), draft.act

    async def send_to(view: TaskView) -> Acted:
        name = ids.show(view.id)
        id_ = f"{act.id}/{name}"

        async def send(signal: Signal[Any] | str) -> tuple[Signalled, str]:
            sending = outgoing(view.id, signal, draft.value, id=id_, step=None)
            sign = Act(id_, act.who, act.why)
            # encoded for the app, as by ``bulk``, whose value is one for all tasks
            answer = await send_sealed(
                sending, *codec_of(signal), lambda content: store.tasks.signal(content, sign)
            )
            return answer, sending.name

        try:
            answer, signal = await _send_as_meant(sender, draft.signal, send)
        except (SignalRefused, TaskNotFoundError) as refusal:
            return Acted(name, "refused", str(refusal), view.state)
        if answer.conflict:
            return Acted(name, "refused", f"it knows {id_} with another value", view.state)
        if not answer.created:
            return Acted(name, "noop", KNOWN, view.state)
        return Acted(name, "applied", f"sent {signal} ({id_})", view.state)

    async def send_to_all(page: Sequence[TaskView]) -> list[Acted]:
        return await asyncio.gather(*map(send_to, page))

    return await page_by_page(sender.opened_store, condition, limit, progress, send_to_all)


def refuse_conflict(receipt: Signalled, name: str) -> None:
    """Raise ``SignalRefused`` if the task knows a signal of that id with another value, or for another
    step.
    """
    if receipt.conflict:
        raise SignalRefused(
            f"task {receipt.task} knows a signal {name!r} of the id {receipt.id!r} with another value, or for another step: nothing was sent",
            task_id=receipt.task,
            signal=name,
        )


async def send(
    sender: SignalSender,
    to: int | TaskKey,
    signal: Signal[Any] | str,
    value: Any,
    *,
    id: str | None,  # noqa: A002 - what it is
    step: str | None,
    connection: Any,
    who: str | None,
    why: str,
) -> Signalled:
    """Send a signal, in a commit of its own or in the caller's transaction: see ``Client.signal``."""
    store = sender.opened_store.ready(anywhere=connection is not None)
    new_id = sender.acts.new_id()
    # Only an operator's signal names the user of this process: to find the name costs as much as a statement.
    act = None if who is None and why == "" else sender.acts.new(who, why, new_id)

    async def send_one(signal: Signal[Any] | str) -> Signalled:
        sending = outgoing(to, signal, value, id=new_id if id is None else id, step=step)
        number = to if isinstance(to, int) else None
        return await send_sealed(sending, *codec_of(signal), write, task=number)

    async def write(sending: OutgoingSignal) -> Signalled:
        if connection is None:
            near = sender.opened_store.near if act is None else None
            answer = None if near is None else await near.signal(sending)
            return await store.tasks.signal(sending, act) if answer is None else answer
        if act is not None:
            raise ConfigError(
                "who= and why= are an operator's, whose signal has a commit of its own: leave out connection="
            )
        answer = await recognise(connection).perform(lambda tx: store.tasks.join_signal(tx, sending))
        if answer.created:
            store.joined((ids.parse(answer.task), sending.name, sending.id))
        return answer

    return await _send_as_meant(sender, signal, send_one)
