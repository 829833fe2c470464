"""Encoded values: what a codec makes of a value, as the stores keep it.

An encoded value is one JSON string, the *envelope*::

    "mg1:BASE64"            what the codec wrote, bound to a task and to a field of it
    "mg1:BASE64:SUBJECT"    the same, bound to SUBJECT in place of a task: a schedule, or an app's signals

It is JSON, so whatever passes values on passes it on as it is. Only ``Codec.decode`` opens it, and only in
its place: the *context* goes into both calls, and an encrypting codec authenticates it.
"""

import base64
import binascii
import hashlib
import inspect
import re
from collections.abc import Awaitable, Sequence
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from makegood.base.text import words
from makegood.errors import CodecError, MakegoodError

MARK: Final = b'"mg1:'
"""How an encoded value begins."""
SEALED: Final = b'{"mg":"mg1:'
"""How the filled template of encoded values begins: see ``declare.sealed_values``."""
SCHEMA: Final = '{"type":"string","pattern":"^mg1:"}'
"""The JSON schema of encoded values: a sender without the app cannot make one."""
_SIGNALS: Final = "signals of "
_TEXT: Final = re.compile(r"mg1:([A-Za-z0-9_-]*={0,2})(?::(?:schedule |signals of )?[^\s\"\\;]*)?")
_TAG: Final = re.compile(rb"([a-z]{2,8}):([\x21-\x39\x3b-\x7e]{0,64}):")
_NO_CODEC: Final = (
    "is encoded, and this process has no codec: pass the one of its app, mg.App(codec=...) where the app's code runs, "
    "mg.Client(codec=...) or --codec MODULE:OBJECT elsewhere"
)


class Context(NamedTuple):
    """Where a value belongs: a codec that authenticates it refuses the value anywhere else."""

    task: str
    """The task's id, as people see it; or what the value belongs to in place of a task, such as "schedule
    shop/nightly".
    """
    field: str
    """Which value it is, such as "input 0" or "result of charge"."""

    @property
    def associated_data(self) -> bytes:
        """The context as bytes, for a cipher that authenticates it."""
        return msgspec.json.encode(tuple(self))


class Codec(Protocol):
    """Turns the JSON of a value into what the store keeps, and back. See ``mg.codecs``.

    Both methods may be ``async``. ``decode`` raises for bytes that it cannot read there.
    """

    def encode(self, data: bytes, context: Context) -> bytes | Awaitable[bytes]:
        """Return what is kept of a value; the same bytes for the same value in the same context."""

    def decode(self, data: bytes, context: Context) -> bytes | Awaitable[bytes]:
        """Return the value as it was encoded."""


def is_codec(value: object) -> bool:
    """Whether a value has the methods of a codec; a class that is not called yet has none."""
    return not isinstance(value, type) and all(
        callable(getattr(value, name, None)) for name in ("encode", "decode")
    )


def is_encoded(value: bytes | None) -> bool:
    """Whether a JSON value is an envelope, or a template filled with some.

    >>> is_encoded(b'"mg1:AAAA"'), is_encoded(b'"paid"')
    (True, False)
    """
    return value is not None and value.startswith((MARK, SEALED))


async def encode(codec: Codec, data: bytes, context: Context, *, names_subject: bool = False) -> bytes:
    """Return the envelope of a value. ``names_subject``: its context is not a task, so the envelope names it.

    Raises ``CodecError`` if the codec raises.
    """
    body = await encode_body(codec, data, context, withhold=withholds(codec))
    subject = f":{context.task}" if names_subject else ""
    return msgspec.json.encode(f"mg1:{base64.urlsafe_b64encode(body).decode()}{subject}")


async def encode_body(codec: Codec, data: bytes, context: Context, *, withhold: bool) -> bytes:
    """Return what a codec makes of a value. Raises errors of makegood as they are, and ``CodecError`` for any
    other that the codec raises. ``withhold``: without its text.
    """
    try:
        body = codec.encode(data, context)
        return await body if inspect.isawaitable(body) else body
    except MakegoodError:
        raise
    except Exception as fault:
        text = fault_text(fault, withhold=withhold)
        raise CodecError(
            f"{context.field} of {context.task} cannot be encoded by {type(codec).__name__}, so nothing was written: {text}. "
            "Repeat the call once the codec works again"
        ) from fault


async def decode(
    codec: Codec | None, envelope: bytes, context: Context, *, subjects: Sequence[str] = ()
) -> bytes:
    """Return the value in an envelope. ``subjects``: those that it may name in place of the context's task;
    one that ends with "/" stands for all that begin with it.

    Raises ``CodecError`` if it cannot be opened here.
    """
    if codec is None:
        raise CodecError(f"{context.field} of {context.task} {_NO_CODEC}")
    try:
        text = msgspec.json.decode(envelope, type=str)
        _, body64, *subject = text.split(":", 2)
        body = base64.urlsafe_b64decode(body64)
    except (msgspec.MsgspecError, ValueError, binascii.Error):
        raise CodecError(f"{context.field} of {context.task} is not an encoded value") from None
    if subject:
        if not any(
            subject[0] == each or (each.endswith("/") and subject[0].startswith(each)) for each in subjects
        ):
            raise CodecError(
                f"{context.field} of {context.task} belongs to {subject[0]}: it was put there from elsewhere"
            )
        context = context._replace(task=subject[0])
    try:
        data = codec.decode(body, context)
        return await data if inspect.isawaitable(data) else data
    except CodecError:
        raise
    except Exception as fault:
        text = fault_text(fault, withhold=withholds(codec))
        raise CodecError(f"{context.field} of {context.task} cannot be decoded: {text}") from fault


def signal_subject(app: str) -> str:
    """Return what a signal belongs to whose sender names no task by its id."""
    return f"{_SIGNALS}{app}"


def app_of_signal(envelope: bytes) -> str:
    """Return the app that the envelope of such a signal names.

    >>> app_of_signal(b'"mg1:AAAA:signals of shop"')
    'shop'
    """
    return envelope.decode("utf-8", "replace").rpartition(_SIGNALS)[2].rstrip('"')


def describe_body(body: bytes) -> str:
    """Return what an envelope holds, for people without its codec.

    >>> describe_body(b"aes:k1:" + bytes(40)), describe_body(b"?")
    ('encrypted (key k1, 40 bytes)', 'encoded (1 byte)')
    """
    body = body.removeprefix(b"raw::")
    tag = _TAG.match(body)
    size = len(body) - (0 if tag is None else tag.end())
    octets = f"{size:,} byte{'' if size == 1 else 's'}"
    match None if tag is None else tag[1]:
        case b"aes" if tag is not None:
            return f"encrypted (key {tag[2].decode()}, {octets})"
        case b"at" if tag is not None:
            return f"kept elsewhere ({octets} of address)"
        case b"zlib":
            return f"compressed ({octets})"
    return f"encoded ({octets})"


def describe(text: str) -> str:
    """Return a text with each envelope in it replaced by what it holds, for people without its codec.

    >>> describe('inputs "mg1:YWVzOmsxOgAA", mg1:YWVzOmsxOgAA:schedule shop/nightly')
    'inputs "encrypted (key k1, 2 bytes)", encrypted (key k1, 2 bytes)'
    """
    return _TEXT.sub(lambda match: _describe_text(match[1]), text) if "mg1:" in text else text


def _describe_text(body64: str) -> str:
    try:
        return describe_body(base64.urlsafe_b64decode(body64))
    except (ValueError, binascii.Error):  # cut short
        return "encoded"


def digest(values: Sequence[bytes]) -> bytes:
    """Return a digest of envelopes: it says nothing of what is in them to those who lack the codec."""
    return hashlib.blake2b(b",".join(values), digest_size=16).digest()


def message_context(queue: str, id: str) -> Context:  # noqa: A002 - what it is
    """Return the context of a message in a queue."""
    return Context(f"queue {queue}", f"message {id}")


def fault_text(fault: BaseException, *, withhold: bool, with_type: bool = True) -> str:
    """Return the text of a fault as it may be shown. ``withhold``: only its type, as ``withheld`` has it.
    ``with_type``: the type before the text.
    """
    return withheld(fault) if withhold else words(fault, named=with_type)


def withheld(error: BaseException) -> str:
    """Return what is kept in plain of an error whose text may quote a payload: its class.

    >>> withheld(ValueError("card 4711"))
    'ValueError (its text is withheld)'
    """
    return words(error) if isinstance(error, CodecError) else f"{type(error).__name__} (its text is withheld)"


def withholds(codec: Any) -> bool:
    """Whether texts of errors are encoded too: all but those of codecs that say ``errors = "keep"``."""
    return codec is not None and getattr(codec, "errors", "withhold") != "keep"
