"""Sending a signal: from what the caller names to what the store writes."""

from typing import Any, Final, TypedDict

from makegood.base.text import refuse_unstorable
from makegood.client.opened_store import OpenedStore
from makegood.client.operators import Acts
from makegood.declare.signal import Signal, SignalByKey, another_app
from makegood.errors import ConfigError, DefinitionError
from makegood.payload.codec import encode
from makegood.store.signals import OutgoingSignal, Signalled, TaskKey
from makegood.transactions import recognise
from makegood.workflow.workflow import Workflow

MOST_ID: Final = 300
"""Characters of a signal's id, and of the step that it is for, at most."""


class SignalOptions(TypedDict, total=False):
    """The options of ``signal``."""

    id: str | None
    step: str | None
    who: str | None
    why: str
    connection: Any


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
    return _checked(OutgoingSignal(to=to, name=name, id=id, value=body, step=step or ""))


def of_message(answer: SignalByKey, message: str) -> OutgoingSignal:
    """Return the signal that an inbox's function made of a message, by its id. Raises ``ConfigError``."""
    to = TaskKey(answer.app, answer.workflow, answer.key)
    id_ = message if answer.id is None else answer.id
    return _checked(OutgoingSignal(to=to, name=answer.name, id=id_, value=answer.value, step=answer.step))


def _checked(signal: OutgoingSignal) -> OutgoingSignal:
    for name, text, least in (("id", signal.id, 1), ("step", signal.step, 0)):
        if not isinstance(text, str) or not least <= len(text) <= MOST_ID:
            raise ConfigError(f"{name}={text!r:.60}: a text of 1 to {MOST_ID} characters")
    key = signal.to.key if isinstance(signal.to, TaskKey) else None
    refuse_unstorable(ConfigError, signal=signal.name, key=key, id=signal.id, step=signal.step)
    return signal


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
    is_operators = who is not None or why != ""
    if connection is None:
        return await store.tasks.signal(sending, act if is_operators else None)
    if is_operators:
        raise ConfigError(
            "who= and why= are an operator's, whose signal has a commit of its own: leave out connection="
        )
    answer = await recognise(connection).perform(lambda tx: store.tasks.join_signal(tx, sending))
    if answer.created:
        store.joined((answer.task, sending.name, sending.id))
    return answer
