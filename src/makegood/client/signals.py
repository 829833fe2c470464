"""Sending a signal: from what the caller names to what the store writes."""

import asyncio
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypedDict

from msgspec.structs import replace

from makegood.base import ids
from makegood.base.durations import Duration
from makegood.base.text import refuse_unstorable
from makegood.client.opened_store import OpenedStore
from makegood.client.operators import Acted, Acts, Progress, page_by_page
from makegood.declare.sealed_values import signal_subject
from makegood.declare.signal import Signal, SignalByKey, another_app
from makegood.errors import ConfigError, DefinitionError, SignalRefused, TaskNotFoundError
from makegood.model.messages import Act
from makegood.payload import envelopes
from makegood.payload.codec import encode
from makegood.payload.envelopes import Codec, Context
from makegood.store.signals import KNOWN, OutgoingSignal, Signalled, TaskKey
from makegood.store.views import Filter, TaskView
from makegood.transactions import recognise
from makegood.workflow.workflow import Workflow

MOST_ID: Final = 300
"""Characters of a signal's id, and of the step that it is for, at most."""


_MANY: Final = 0
"""In place of a task's number: any that an act on many concerns."""


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
        name, body = signal.name, signal._encoded(value)
    elif isinstance(signal, str):
        name, body = signal, encode(value, subject=f"the value of signal {signal}")
    else:
        raise DefinitionError(
            f"signal() takes what app.signal(...) returned, or its name, not {type(signal).__name__}"
        )
    is_typed = isinstance(signal, Signal)
    return _checked(OutgoingSignal(to=to, name=name, id=id, value=body, step=step or "", is_typed=is_typed))


async def closed(signal: OutgoingSignal, codec: Codec | None, app: str) -> OutgoingSignal:
    """Return a signal as it is sent: encoded for its task, or for any of the app if it names none by its id.

    Raises what the codec raises.
    """
    if codec is None:
        return signal
    of_task = isinstance(signal.to, int) and signal.to != _MANY
    subject = ids.show(signal.to) if isinstance(signal.to, int) and of_task else signal_subject(app)
    context = Context(subject, f"signal {signal.name}")
    return replace(
        signal, value=await envelopes.encode(codec, signal.value, context, names_subject=not of_task)
    )


def codec_of(signal: Signal[Any] | str) -> tuple[Codec | None, str]:
    """Return the codec of a signal and the name of its app; a signal that is only named has none."""
    return (signal.codec, signal.app) if isinstance(signal, Signal) else (None, "")


def of_message(answer: SignalByKey, message: str) -> OutgoingSignal:
    """Return the signal that an inbox's function made of a message, by its id. Raises ``ConfigError``."""
    to = TaskKey(answer.app, answer.workflow, answer.key)
    id_ = message if answer.id is None else answer.id
    return _checked(
        OutgoingSignal(to=to, name=answer.name, id=id_, value=answer.value, step=answer.step, is_typed=True)
    )


def _checked(signal: OutgoingSignal) -> OutgoingSignal:
    for name, text, least in (("id", signal.id, 1), ("step", signal.step, 0)):
        if not isinstance(text, str) or not least <= len(text) <= MOST_ID:
            raise ConfigError(f"{name}={text!r:.60}: a text of 1 to {MOST_ID} characters")
    key = signal.to.key if isinstance(signal.to, TaskKey) else None
    refuse_unstorable(ConfigError, signal=signal.name, key=key, id=signal.id, step=signal.step)
    return signal


async def bulk_content(kind: str, signal: Signal[Any] | str | None, value: Any) -> tuple[str, bytes] | None:
    """Return the name and the value of the signal that an act on many tasks sends; None for another act.

    Raises as ``outgoing`` does, and ``ConfigError`` if the act and the signal do not go together.
    """
    if kind != "signal":
        if signal is not None or value is not None:
            raise ConfigError(f'bulk({kind!r}, ...) sends no signal: signal= and value= go with "signal"')
        return None
    if signal is None:
        raise ConfigError('bulk("signal", ...) needs signal=, what app.signal(...) returned or its name')
    content = await closed(outgoing(_MANY, signal, value, id="bulk", step=None), *codec_of(signal))
    return content.name, content.value


class SignalToMany(NamedTuple):
    """A signal to many tasks."""

    signal: Signal[Any] | str
    value: Any
    act: Act


async def send_all(
    opened_store: OpenedStore,
    draft: SignalToMany,
    condition: Filter,
    limit: int | None,
    progress: Progress | None,
) -> list[Acted]:
    """Send a signal to each task that matches, newest first: see ``Client.signal_all``."""
    store, act = opened_store.ready(), draft.act

    async def send_to(view: TaskView) -> Acted:
        name = ids.show(view.id)
        signal = outgoing(view.id, draft.signal, draft.value, id=f"{act.id}/{name}", step=None)
        signal = await closed(signal, *codec_of(draft.signal))
        try:
            answer = await store.tasks.signal(signal, Act(signal.id, act.who, act.why))
        except (SignalRefused, TaskNotFoundError) as refusal:
            return Acted(name, "refused", str(refusal), view.state)
        if answer.conflict:
            return Acted(name, "refused", f"it knows {signal.id} with another value", view.state)
        if not answer.created:
            return Acted(name, "noop", KNOWN, view.state)
        return Acted(name, "applied", f"sent {signal.name} ({signal.id})", view.state)

    async def send_to_all(page: Sequence[TaskView]) -> list[Acted]:
        return await asyncio.gather(*map(send_to, page))

    return await page_by_page(opened_store, condition, limit, progress, send_to_all)


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
    opened_store: OpenedStore,
    acts: Acts,
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
    store = opened_store.ready(anywhere=connection is not None)
    act = acts.new(who, why)
    sending = outgoing(to, signal, value, id=act.id if id is None else id, step=step)
    sending = await closed(sending, *codec_of(signal))
    is_operators = who is not None or why != ""
    if connection is None:
        return await store.tasks.signal(sending, act if is_operators else None)
    if is_operators:
        raise ConfigError(
            "who= and why= are an operator's, whose signal has a commit of its own: leave out connection="
        )
    answer = await recognise(connection).perform(lambda tx: store.tasks.join_signal(tx, sending))
    if answer.created:
        store.joined((ids.parse(answer.task), sending.name, sending.id))
    return answer
