"""What a client does with the encoded values of a task.

It opens them for whoever has the codec, and encodes what an operator states.
"""

from collections.abc import Awaitable, Container, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from makegood.base.ids import show
from makegood.declare.sealed_values import (
    RESULT,
    Opener,
    base_and_items,
    error_context,
    has_readable_result,
    input_field,
    is_sealed,
    note_context,
    result_field,
)
from makegood.errors import CodecError, ConfigError, MissingValueError
from makegood.model.plan import INPUTS
from makegood.payload import envelopes
from makegood.payload.envelopes import SEALED, Codec, Context, is_encoded
from makegood.store.views import EventView, StepView, TaskDetail, TaskView

_MARK: Final = "mg1:"
"""How an encoded text begins."""
_STEP_FIELDS = {"merge": "value of", "first": "value of", "gather": "item of", "wait_for": "otherwise of"}


async def plain_result(codec: Codec | None, view: TaskView) -> bytes:
    """Return the result of a task, decoded. Raises ``CodecError``."""
    opener = Opener(codec, view.app, show(view.id))
    try:
        return await opener.template(view.result or b"null", RESULT)
    except MissingValueError as missing:
        raise CodecError(f"the result of task {show(view.id)} cannot be put together: {missing}") from None


async def plain_step_result(codec: Codec | None, app: str, task: str, step: StepView) -> bytes:
    """Return the result of a step, decoded. Raises ``CodecError``."""
    data = (await _legible_step(Opener(codec, app, task), step)).result or b"null"
    if is_encoded(data) or data.startswith(SEALED):
        raise CodecError(
            f"the result of step {step.name} of task {task} is encoded, and this client has no codec that opens it: pass mg.Client(codec=...)"
        )
    return data


async def legible(codec: Codec | None, detail: TaskDetail) -> TaskDetail:
    """Return a task with its values decoded, as far as the codec can; without one, as it is."""
    if codec is None or not is_sealed(detail.returns):
        return detail
    opener = Opener(codec, detail.task.app, show(detail.task.id))
    result = detail.task.result
    if result is not None:
        result = await _open_or_keep(opener.template(result, RESULT), result)
    inputs = [
        await _open_or_keep(opener.value(data, input_field(n)), data) if is_encoded(data) else data
        for n, data in enumerate(detail.inputs)
    ]
    reasons = Reasons(codec, detail)
    steps = [
        replace(await _legible_step(opener, step), error=step.error and await reasons.legible(step.error))
        for step in detail.steps
    ]
    task = replace(detail.task, result=result, cause=await reasons.legible(detail.task.cause))
    return replace(detail, task=task, inputs=tuple(inputs), steps=steps)


class Reasons:
    """Decodes the reasons of ``mg.fail`` in the texts of a task. ``detail``: the task as it is stored."""

    def __init__(self, codec: Codec, detail: TaskDetail) -> None:
        self._opener = Opener(codec, detail.task.app, show(detail.task.id))
        self._names = {step.idx: step.name for step in detail.steps}
        self._fails = [step for step in detail.steps if step.kind == "fail"]

    async def legible(self, text: str, names: Container[str] = ()) -> str:
        """Return a text with the reasons in it decoded, as far as the codec can.

        ``names``: the steps one of which may have this whole text as its reason, also if that was in an
        earlier round.
        """
        for step in self._fails if _MARK in text else ():
            for reason in (step.error or "", text if step.name in names else ""):
                if reason.startswith(_MARK) and reason in text:
                    text = text.replace(reason, await self._decode(step, reason))
        return text

    async def _decode(self, step: StepView, reason: str) -> str:
        for field in self._fields(step):
            with suppress(CodecError, msgspec.MsgspecError):
                return msgspec.json.decode(await self._opener.value(f'"{reason}"'.encode(), field), type=str)
        return reason

    def _fields(self, step: StepView) -> Iterator[str]:
        """Yield what a reason may be bound to: the step itself, or the result or the input that it is."""
        yield f"reason of {base_and_items(step.name)[0]}"
        for ref in () if step.plan is None or step.plan.args is None else step.plan.args.refs:
            if ref.of in INPUTS:
                yield input_field(ref.index)
            elif ref.index in self._names:
                yield result_field(self._names[ref.index])


def has_encoded_text(text: str) -> bool:
    """Whether a text has an encoded one in it."""
    return _MARK in text


def has_reason(event: EventView) -> bool:
    """Whether a row of a task's history may have an encoded reason of ``mg.fail``."""
    return any(has_encoded_text(move.detail) for move in event.moves)


async def _legible_step(opener: Opener, step: StepView) -> StepView:
    data = step.result
    if data is None or b"mg1:" not in data:
        return step
    base, items = base_and_items(step.name)
    if step.kind == "gather":
        return step  # its elements are results of steps, which are shown
    if data.startswith(SEALED):
        field = f"{_STEP_FIELDS.get(step.kind, '')} {base}"
        return replace(step, result=await _open_or_keep(opener.template(data, field, items), data))
    if step.kind == "wait_for":
        signal = step.action or base
        return replace(step, result=await _open_or_keep(opener.signal(data, signal), data))
    return replace(step, result=await _open_or_keep(opener.value(data, result_field(step.name)), data))


async def _open_or_keep(value: Awaitable[bytes], data: bytes) -> bytes:
    try:
        return await value
    except (CodecError, MissingValueError):
        return data


async def legible_event(
    codec: Codec | None, task: int, names: Mapping[int, str], event: EventView, reasons: Reasons | None
) -> EventView:
    """Return a row of a task's history with the texts of errors and notes, and the reasons of ``mg.fail``,
    decoded, as far as the codec can.

    ``names``: of the steps, by index. ``reasons``: of the task; None if no event ``has_reason``.
    """
    if codec is None:
        return event
    if reasons is not None and has_reason(event):
        movers = {move.name for move in event.moves}
        moves = [replace(move, detail=await reasons.legible(move.detail, movers)) for move in event.moves]
        event = replace(event, moves=moves)
    has_errors = any((end.traceback or "").startswith(_MARK) for end in event.attempts)
    if not (has_errors or event.notes):
        return event
    ends = [
        replace(end, traceback=await _legible_text(codec, task, names.get(end.idx, ""), end.traceback or ""))
        for end in event.attempts
    ]
    notes = [
        replace(note, value=await _legible(codec, note.value, note_context(task, names.get(note.idx, ""))))
        for note in event.notes
    ]
    return replace(event, attempts=tuple(ends), notes=tuple(notes))


async def _legible_text(codec: Codec, task: int, step: str, text: str) -> str | None:
    return str(await _legible(codec, text, error_context(task, step))) if text else None


async def _legible(codec: Codec, value: Any, context: Context) -> Any:
    """Return a value decoded; itself, if it is not encoded or cannot be decoded."""
    if not isinstance(value, str) or not value.startswith(_MARK):
        return value
    try:
        return msgspec.json.decode(await envelopes.decode(codec, f'"{value}"'.encode(), context))
    except (CodecError, msgspec.MsgspecError):
        return value


async def stored_result(codec: Codec | None, task: TaskView, step: StepView, body: bytes) -> bytes:
    """Return a result that an operator states, as its task keeps it.

    Raises ``CodecError`` without the codec.
    """
    args = None if step.plan is None else step.plan.args
    if not is_sealed(args) or has_readable_result(args) or body == b"null":
        return body
    if codec is None:
        raise CodecError(
            f"the values of task {show(task.id)} are encoded, and this client has no codec: pass mg.Client(codec=...) or --codec MODULE:OBJECT"
        )
    return await envelopes.encode(codec, body, Context(show(task.id), result_field(step.name)))


def refuse_encoded(detail: TaskDetail) -> None:
    """Raise ``ConfigError`` for a correction that needs the values of a task whose values are encoded."""
    if is_sealed(detail.returns):
        raise ConfigError(
            f"the values of task {show(detail.task.id)} are encoded, so only its code can replace them: pass workflow= with all inputs of the workflow "
            f"(--check APP)"
        )
