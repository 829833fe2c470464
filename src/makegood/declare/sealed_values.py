"""Templates of encoded values: how a plan is kept so that only its app can read it.

A Scheduler puts a step's arguments together without reading any of them. So where an app has a codec, each
template of a plan is *sealed* at its submission::

    {"order": HOLE, "by": "ann", "sku": HOLE.sku}        as the workflow function wrote it
    {"mg": "mg1:...", "0": HOLE, "1": HOLE}              as it is stored

The envelope holds the texts around the holes, and says of each hole where its value came from and which part
of it is taken. The Scheduler fills in whole values, encoded as they are. The agent decodes the envelope and
each value in the context that the envelope says, takes the parts, and puts the arguments together
(``Opener.template``). A step whose result Schedulers must read is *readable*: its result stays plain.

A merge's value, a gather's elements and the task's result are filled templates as well, so a value may be a
template inside a template.
"""

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from makegood.base.ids import show
from makegood.errors import CodecError
from makegood.model.messages import Request, TaskMessage
from makegood.model.plan import Template
from makegood.payload import envelopes, splice
from makegood.payload.envelopes import SEALED, Codec, Context, signal_subject

RESULT: Final = "result of the task"
_ITEM: Final = re.compile(r"\[[0-9]+\]")
_SEALED_TEXT: Final = SEALED.decode()
_READABLE: Final = re.compile(r'\{"mg":"[^"]*","readable":true')
_NULL: Final = b"null"


class SealedHole(msgspec.Struct, frozen=True, array_like=True):
    """Where the value of a hole came from, and which part of it is taken."""

    kind: str
    """"plain"; "value", encoded as ``name``; "template"; "list" of these; "signal": a value or a template."""
    name: str = ""
    """The field of its context, without the item of an ``each``."""
    depth: int = 0
    """Bodies of ``each`` around the step that it came from."""
    path: tuple[str | int, ...] = ()
    """The way into the value."""
    otherwise: str = ""
    """Of a signal: the field of what a timeout gives."""


class SealedText(msgspec.Struct, frozen=True, array_like=True):
    """What the envelope of a sealed template holds."""

    parts: tuple[str, ...]
    holes: tuple[SealedHole, ...] = ()


_text = msgspec.json.Decoder(SealedText).decode
_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def schedule_subject(app: str, name: str) -> str:
    """Return what the values of a schedule's plan belong to in place of a task."""
    return f"schedule {app}/{name}"


def input_field(n: int) -> str:
    """Return the field of a workflow's input."""
    return f"input {n}"


def result_field(step: str) -> str:
    """Return the field of a step's result."""
    return f"result of {step}"


def arguments_field(step: str, *, readable: bool) -> str:
    """Return the field of a step's arguments: whether its result stays plain is authenticated with them."""
    return f"arguments of {step}{', whose result is readable' if readable else ''}"


def is_sealed(template: Template | None) -> bool:
    """Whether a template is sealed."""
    return template is not None and template.parts[0].startswith(_SEALED_TEXT)


def has_readable_result(template: Template | None) -> bool:
    """Whether these arguments are of a step whose result stays plain although the task is encoded."""
    return template is not None and _READABLE.match(template.parts[0]) is not None


async def seal(
    codec: Codec,
    template: Template,
    holes: Sequence[SealedHole],
    context: Context,
    *,
    names_subject: bool,
    readable: bool,
) -> Template:
    """Return a template sealed. ``holes`` says where the values of its refs come from.

    ``names_subject``: as in ``envelopes.encode``.
    """
    content = msgspec.json.encode(SealedText(template.parts, tuple(holes)))
    envelope = (await envelopes.encode(codec, content, context, names_subject=names_subject)).decode()
    flag = ',"readable":true' if readable else ""
    text = f'{{"mg":{envelope}{flag}'
    texts = [f'{"" if n else text},"{n}":' for n in range(len(template.refs))]
    parts = (*texts, "}") if texts else (f"{text}}}",)
    refs = [
        ref if hole.kind == "plain" else replace(ref, path=())
        for ref, hole in zip(template.refs, holes, strict=True)
    ]
    return Template(parts, tuple(refs))


class Opener:
    """Decodes the values of one task. ``task``: its id, as people see it."""

    def __init__(self, codec: Codec | None, app: str, task: str) -> None:
        self._codec = codec
        self._task = task
        self._schedules = (f"{schedule_subject(app, '')}",)
        self._signals = (signal_subject(app),)

    async def value(self, data: bytes, field: str) -> bytes:
        """Return a value decoded; null, which an operator may have stated, is not encoded.

        Raises ``CodecError``.
        """
        if data == _NULL:
            return data
        return await envelopes.decode(self._codec, data, Context(self._task, field), subjects=self._schedules)

    async def signal(self, data: bytes, name: str) -> bytes:
        """Return the value of a signal decoded. Raises ``CodecError``."""
        return await envelopes.decode(
            self._codec, data, Context(self._task, f"signal {name}"), subjects=self._signals
        )

    async def template(self, data: bytes, field: str, items: Sequence[str] = ()) -> bytes:
        """Return a filled template decoded and put together. ``items``: of the ``each`` steps around it,
        outermost first, such as "[2]".

        Raises ``CodecError``, and ``MissingValueError`` for a value that lacks the part that is taken.
        """
        if data == _NULL:
            return data
        try:
            members = _members(data)
        except msgspec.MsgspecError:
            raise CodecError(f"{field} of {self._task} is not a sealed template") from None
        envelope = Context(self._task, field)
        content = await envelopes.decode(
            self._codec, bytes(members.get("mg", b"")), envelope, subjects=self._schedules
        )
        text = _text(content)
        pieces = [text.parts[0].encode()]
        for n, hole in enumerate(text.holes):
            value = await self._hole(bytes(members.get(str(n), _NULL)), hole, items)
            pieces += splice.walk(value, hole.path) if hole.path else value, text.parts[n + 1].encode()
        return b"".join(pieces)

    async def _hole(self, data: bytes, hole: SealedHole, items: Sequence[str]) -> bytes:
        inner = items[: hole.depth]
        field = hole.name + "".join(inner)
        match hole.kind:
            case "plain":
                return data
            case "template":
                return await self.template(data, hole.name, inner)
            case "list":
                elements = [] if data == _NULL else splice.elements(data)
                values = [
                    await self.template(each, hole.name, (*inner, f"[{n}]"))
                    for n, each in enumerate(elements)
                ]
                return b"[" + b",".join(values) + b"]"
            case "signal" if data.startswith(SEALED):
                return await self.template(data, hole.otherwise, inner)
            case "signal":
                return data if data == _NULL else await self.signal(data, hole.name)
        return await self.value(data, field)


def base_and_items(step: str) -> tuple[str, list[str]]:
    """Return the name of a step in its plan, and the items of the ``each`` steps around it.

    >>> base_and_items("reserve[2][0]")
    ('reserve', ['[2]', '[0]'])
    """
    base, bracket, rest = step.partition("[")
    return base, _ITEM.findall(bracket + rest)


async def unseal_request(codec: Codec | None, request: Request) -> tuple[Request, bool]:
    """Return a request with its values decoded, and whether the result of its step stays plain.

    Raises ``CodecError``, and ``MissingValueError`` for arguments that cannot be put together.
    """
    opener = Opener(codec, request.app, show(request.task))
    base, items = base_and_items(request.step)
    readable = _READABLE.match(request.args.decode()) is not None
    args = await opener.template(request.args, arguments_field(base, readable=readable), items)
    result, late = request.result, request.late
    if not readable:
        field = result_field(request.step)
        result = None if result is None else await opener.value(result, field)
        late = None if late is None else await opener.value(late, field)
    return replace(request, args=args, result=result, late=late), readable


async def seal_answer(codec: Codec, request: Request, message: TaskMessage, *, readable: bool) -> TaskMessage:
    """Return the answer to an encoded request with its result encoded. Raises ``CodecError`` if the codec
    raises.
    """
    if message.value is None or readable:
        return message
    context = Context(show(request.task), result_field(request.step))
    return replace(message, value=await envelopes.encode(codec, message.value, context))


def error_context(task: int, step: str) -> Context:
    """Return the context of the text of a step's error."""
    return Context(show(task), f"error of {step}")


async def seal_error(codec: Codec, request: Request, text: str) -> str | None:
    """Return the text of an error encoded, None if the codec cannot do it now."""
    context = error_context(request.task, request.step)
    try:
        return (await envelopes.encode(codec, msgspec.json.encode(text), context)).decode().strip('"')
    except Exception:  # noqa: BLE001 - the answer matters more than its text
        return None


def note_context(task: int, step: str) -> Context:
    """Return the context of a note of a step's attempt."""
    return Context(show(task), f"note of {step}")


async def seal_note(codec: Codec, request: Request, value: Any) -> str:
    """Return the value of a note encoded; that it cannot be encoded now, if so."""
    context = note_context(request.task, request.step)
    try:
        return (await envelopes.encode(codec, msgspec.json.encode(value), context)).decode().strip('"')
    except Exception as fault:  # noqa: BLE001 - the call matters more than its notes
        return f"(a note that cannot be encoded: {type(fault.__cause__ or fault).__name__})"
