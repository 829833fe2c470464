"""Payloads: JSON bytes, and the holes in them.

``encode`` and ``decode`` turn values into JSON and back, through msgspec: dataclasses, attrs classes,
TypedDicts, Structs, named tuples, enums, datetimes, Decimal, UUID, bytes. Pydantic models work too; they are
recognised by their methods, so that nobody pays for an import. Never pickle. NaN and infinity, which JSON
does not have, are refused instead of becoming null.

``encode_with_holes`` gives the text around holes; ``splice`` fills them.
"""

import datetime as dt
import decimal
import functools
import math
import re
from collections.abc import Callable, Mapping, Sequence, ValuesView
from collections.abc import Set as AbstractSet
from typing import Any, TypeVar

import msgspec
from msgspec import inspect as kinds

from makegood.base.sizes import PAYLOAD_LIMIT
from makegood.base.text import error_text, words
from makegood.errors import ConfigError, DefinitionError, MakegoodError, PayloadError
from makegood.payload.annotations import DEFINE
from makegood.payload.missing_defaults import completer, parts
from makegood.payload.pydantic_dataclasses import StandIn, readable
from makegood.payload.pydantic_models import check_kept, doubt, is_model
from makegood.payload.set_order import holds_sets, sorted_as, without_sets
from makegood.payload.unchecked_rules import refuse_unchecked
from makegood.payload.unsupported_types import refuse_unread

NESTING_LIMIT = 100
"""The deepest nesting of a payload's arrays and objects.

Each level costs a reader one call. The number of calls allowed depends on the version of Python and on where
the reader is called from: it is far above 100 everywhere, and no real data comes near.
"""

UNREADABLE = (
    msgspec.MsgspecError, ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RecursionError, ConfigError,
)  # fmt: skip
"""Exceptions of reading stored bytes and columns, which another version, another Python or manual SQL may
have written. Types that examine their own values, such as ``Filter``, raise ``ConfigError``.
"""

_KINDS = (
    "dataclasses, attrs classes, TypedDicts, msgspec Structs, pydantic models and what JSON has can be kept"
)
_SHOWN_VALUE = re.compile(r"^(Invalid (?:enum )?value) .*?(?= - at `|$)", re.DOTALL)
_HOLE = msgspec.Raw(b"\0")  # JSON never holds this byte: in texts it is escaped
FLAT = 2 * NESTING_LIMIT
"""Bytes of JSON that cannot be nested too deeply, because every bracket is also closed."""
_SCALARS = frozenset((str, int, float, bool, type(None)))
_LARGE_NUMBER = re.compile(rb"[0-9]{309}|[0-9][eE]\+?[0-9]{3}")
_syntax = msgspec.json.Decoder(msgspec.Raw).decode
_anything = msgspec.json.Decoder().decode
_ALL_BUT_BRACKETS = bytes(sorted({*range(256)} - {*b'[]{}"'}))
_TO_SQUARE = bytes.maketrans(b"{}", b"[]")


def encode(
    value: object,
    limit: int | None = None,
    subject: str = "the value",
    around: int = 0,
    *,
    is_fixed: bool = False,
) -> bytes:
    """Return ``value`` as JSON. ``limit``: bytes; None: the fixed limit of messages and signals.
    ``subject`` names it in messages; ``around``: see ``shallow``; ``is_fixed``: no option raises the limit.

    >>> encode({"id": "o-1", "cents": 250})
    b'{"id":"o-1","cents":250}'

    Raises ``PayloadError`` for a value that JSON cannot hold, NaN included, and for JSON of more than
    ``limit`` bytes or more than ``NESTING_LIMIT`` levels.
    """
    if limit is None:
        limit, is_fixed = PAYLOAD_LIMIT, True
    try:
        data = _encode(value)
    except Exception as wrong:  # a model's own serializer may raise anything
        raise _unfit(wrong, subject) from wrong
    if type(value) is not str:
        if data.find(b"null") >= 0:  # faster than ``in``, which first checks for a number
            _refuse_nan(value, subject)
        if type(value) not in _SCALARS:
            _refuse_unreadable(data, subject)
    size = len(data)
    return (
        data
        if size <= FLAT and size <= limit
        else check_size(data, limit, subject, around, is_fixed=is_fixed)
    )


def canonical(value: object, *, subject: str = "the value") -> bytes:
    """Return ``value`` as JSON that does not depend on the order of its dicts and sets; raises
    ``PayloadError``.

    >>> canonical({2: "b", 10: "a"})
    b'{"10":"a","2":"b"}'
    """
    try:
        try:
            return _encode_sorted(value)
        except TypeError:  # msgspec sorts only texts: make the keys texts first
            return _with_texts(value)
    except TypeError:  # and it sorts only sets of ordered elements
        try:
            return _with_texts(without_sets(value, canonical))
        except Exception as wrong:
            raise _unfit(wrong, subject) from wrong
    except Exception as wrong:
        raise _unfit(wrong, subject) from wrong


def _with_texts(value: object) -> bytes:
    return _encode_sorted(
        msgspec.to_builtins(value, str_keys=True, order="deterministic", enc_hook=_plain_sorted)
    )


def check_size(data: bytes, limit: int, subject: str, around: int = 0, *, is_fixed: bool = False) -> bytes:
    """Return ``data``; raises ``PayloadError`` if it has more than ``limit`` bytes, or is nested too
    deeply. ``is_fixed``: no option raises the limit.
    """
    if len(data) > limit:
        kind, remedy = (
            ("fixed ", "") if is_fixed else ("", ", or raise the limit with App(payload_limit=...)")
        )
        raise PayloadError(
            f"{subject} has {len(data):,} bytes as JSON, the {kind}limit is {limit:,}: keep the data elsewhere and pass its address on{remedy}",
            size=len(data),
            limit=limit,
        )
    return shallow(data, subject, around)


def shallow(data: bytes, subject: str, around: int = 0) -> bytes:
    """Return ``data``; raises ``PayloadError`` if its arrays and objects are nested more than
    ``NESTING_LIMIT`` deep.

    The ``around`` outermost levels, which makegood itself has put around values, do not count.

    >>> shallow(b"[[[1]]]", "the value")
    b'[[[1]]]'
    """
    if (
        len(data) > FLAT
        and data.count(b"[") + data.count(b"{") > NESTING_LIMIT
        and not _is_shallow(data, around)
    ):
        raise PayloadError(
            f"{subject} is nested too deeply: the limit is {NESTING_LIMIT} levels of lists and objects; "
            "pass a flatter value, or keep the data elsewhere and pass its address on"
        )
    return data


def _is_shallow(data: bytes, around: int) -> bool:
    """Remove the texts, then the innermost brackets, level after level: no recursion, no decoding."""
    if b"\\" in data:
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    left = data.translate(_TO_SQUARE, _ALL_BUT_BRACKETS).replace(b'""', b"")
    left = b"".join(left.split(b'"')[::2])  # the parts between quotes are texts
    for _ in range(NESTING_LIMIT + around):
        left, before = left.replace(b"[]", b""), len(left)
        if len(left) == before:  # nothing is left, or unmatched brackets: not JSON
            break
    return not left


def _refuse_unreadable(data: bytes, subject: str) -> None:
    """Raise ``PayloadError`` for JSON that msgspec wrote and cannot read.

    It copies a ``msgspec.Raw`` as it is: that may be anything, NaN or half of a surrogate pair. Also no
    number may be too large for whoever reads it.
    """
    try:
        _syntax(data)
        if not data.isascii():
            data.decode()
        if _LARGE_NUMBER.search(data):  # or a text that looks like one
            _anything(data)
    except RecursionError:
        return  # too deeply nested, which ``shallow`` reports
    except (msgspec.ValidationError, ValueError) as wrong:
        if isinstance(wrong, msgspec.ValidationError):
            raise PayloadError(
                f"{subject} cannot be kept as JSON: a number in it is too large ({wrong}): numbers have at most 4,300 digits, with a fraction or "
                "an exponent they are below 1.8e308; pass a text"
            ) from None
        raise PayloadError(
            f"{subject} cannot be kept as JSON: a msgspec.Raw in it is not JSON, or contains half of a surrogate pair ({wrong}); "
            "pass the value itself, or check the Raw with msgspec.json.decode"
        ) from None


H = TypeVar("H")


def encode_with_holes(
    value: object, hole: Callable[[object], H | None], *, subject: str = "the value"
) -> tuple[tuple[str, ...], tuple[H, ...]]:
    """Return ``value`` as JSON with holes: the text around them, and what ``hole`` returned for each.

    ``hole`` is called with every object that JSON does not know; None means that the object is not a hole,
    and may be a model. Its exceptions are passed on. Raises ``PayloadError`` as ``encode`` does.
    """
    holes: list[H] = []

    def hook(other: object) -> object:
        filling = hole(other)
        if filling is None:
            return _plain(other)
        holes.append(filling)
        return _HOLE

    try:
        data = msgspec.json.encode(value, enc_hook=hook)
        parts = tuple(data.decode().split("\0"))
    except MakegoodError:
        raise
    except Exception as wrong:
        raise _unfit(wrong, subject) from wrong
    if len(parts) != len(holes) + 1:
        raise PayloadError(f"{subject} cannot be kept: a msgspec.Raw in it is not JSON")
    if b"null" in data:
        _refuse_nan(value, subject)
    shallow(data, subject)
    _refuse_unreadable(data.replace(b"\0", b"0"), subject)
    return parts, tuple(holes)


def objects_in(value: object) -> list[object]:
    """Return the objects in ``value`` that JSON does not know, in the order of its JSON."""
    objects: list[object] = []

    def hook(other: object) -> object:
        objects.append(other)
        return next((plain(other) for base, plain in _CONTAINERS if isinstance(other, base)), None)

    try:
        msgspec.to_builtins(value, enc_hook=hook)
    except (TypeError, ValueError, RecursionError):
        return objects  # the value cannot be kept at all: encoding it reports that
    return objects


def decode(data: bytes, annotation: Any, subject: str = "the value") -> Any:
    """Return the value of a JSON text as ``annotation`` says; None or ``Any``: plain JSON values.

    >>> decode(b"[1,2]", tuple[int, int])
    (1, 2)

    Nothing is converted (no "3" for an int). Raises ``PayloadError`` that names ``subject`` and the place in
    it, and ``DefinitionError`` for an annotation that no JSON can be decoded to.
    """
    read = decoder(Any if annotation is None else annotation, subject)
    try:
        return read(data)
    except Exception as wrong:  # msgspec passes on any exception of a class's own __post_init__
        raise PayloadError(
            f"{subject} does not fit {annotation_text(annotation)}: {misfit(wrong)}"
        ) from wrong


def misfit(wrong: Exception) -> str:
    """Return what is wrong and where, without the value, which does not belong in logs."""
    if isinstance(wrong, msgspec.MsgspecError):
        return _SHOWN_VALUE.sub(r"\1", error_text(wrong))
    return words(wrong, named=True)


def check_fits(data: bytes, annotation: Any, value: object, subject: str) -> None:
    """Raise ``PayloadError`` if ``data``, the JSON of ``value``, cannot be decoded as its annotation says."""
    __tracebackhide__ = True
    try:
        decoder(annotation, subject)(data)
    except DefinitionError:
        raise
    except Exception as wrong:  # noqa: BLE001 - see ``decode``
        raise PayloadError(
            f"{subject} is {type(value).__name__}, its annotation says {annotation_text(annotation)}: {misfit(wrong)}"
        ) from None


def with_defaults(data: bytes, annotation: Any, value: object, subject: str, limit: int | None) -> bytes:
    """Return ``data``, the JSON of ``value``, which fits its annotation, with the defaults that it leaves
    out.

    JSON as people type it, such as a dict in place of a dataclass, leaves members out; and a step that reads
    one member of a value reads JSON, and knows no class whose default it is.
    """
    if not isinstance(value, dict | list | tuple) or not _has_defaults(annotation):
        return data
    return encode(decode(data, annotation, subject), limit, subject)


@functools.lru_cache(maxsize=512)
def _has_defaults(annotation: Any) -> bool:
    """Whether a member of a type may have a default."""
    return any(
        isinstance(part, kinds.CustomType) or any(not each.required for each in getattr(part, "fields", ()))
        for part in parts(kinds.type_info(readable(annotation, _decoder)))
    )


def decoder(annotation: Any, subject: str) -> Callable[[bytes], Any]:
    """Return a function that decodes like ``decode``, prepared once; it raises ``msgspec.MsgspecError``.

    Raises ``DefinitionError`` for an annotation that no JSON can be decoded to; ``subject`` names it.
    """
    try:
        hashable = type(annotation).__hash__ is not None
        return _decoder(annotation) if hashable else _decoder.__wrapped__(annotation)
    except NameError as unknown:
        raise DefinitionError(
            f"{subject}: an annotation inside {annotation_text(annotation)} cannot be evaluated ({unknown}): {DEFINE}"
        ) from None
    except Exception as wrong:  # msgspec looks into the user's classes, whose annotations may raise anything
        raise DefinitionError(
            f"{subject}: JSON cannot be decoded to {annotation_text(annotation)}: {wrong}"
        ) from wrong


@functools.lru_cache(maxsize=512)
def _decoder(annotation: Any) -> Callable[[bytes], Any]:
    refuse_unchecked(annotation)
    annotation = readable(annotation, _decoder)
    read = msgspec.json.Decoder(annotation, dec_hook=_instance_of).decode
    kind = kinds.type_info(annotation)
    bases = (StandIn, *(base for base, _ in _EXACT))
    refuse_unread(kind, bases)
    for part in parts(kind):
        if isinstance(part, kinds.CustomType) and issubclass(part.cls, StandIn):
            refuse_unread(kinds.type_info(part.cls.annotation), bases)
    complete = completer(kind)
    if complete is None:
        return read

    def whole(data: bytes) -> Any:
        value = read(data)
        complete(value)
        return value

    return whole


def annotation_text(annotation: Any) -> str:
    """Return an annotation as people write it."""
    return annotation.__name__ if isinstance(annotation, type) else str(annotation).replace("typing.", "")


def _plain(value: object) -> object:
    """Return what to write for an object that msgspec does not know.

    It may be a pydantic model, or a subclass of text, number, date or list.
    """
    if is_model(type(value)):
        return _model_data(value)
    if isinstance(value, dict | list | tuple | set | frozenset):  # msgspec calls for these only as keys
        raise TypeError(
            f"a {type(value).__qualname__} is not known to JSON as a key: write list[tuple[K, V]]"
        )
    for base, exact in _NEAREST:
        if isinstance(value, base):
            return exact(value)
    raise TypeError(f"{type(value).__qualname__} is not known to JSON: {_KINDS}")


def _plain_sorted(value: object) -> object:
    cls: Any = type(value)
    plain = _plain(value)
    return sorted_as(plain, value, _encode_sorted) if is_model(cls) and holds_sets(cls) else plain


_EXACT: tuple[tuple[type, Callable[[Any], object]], ...] = (
    (str, str.__str__),
    (int, int.__int__),
    (float, float.__float__),
)
"""Types whose subclasses are kept and come back, and how to write a value of one."""


def _of(cls: type, *names: str) -> Callable[[Any], object]:
    return lambda value: cls(**{name: getattr(value, name) for name in names})


_CONTAINERS: tuple[tuple[type, Callable[[Any], object]], ...] = (
    (Mapping, dict),
    (Sequence, list),
    (AbstractSet, list),
    (ValuesView, list),
)
_DATE = ("year", "month", "day")
_TIME = ("hour", "minute", "second", "microsecond", "tzinfo", "fold")
_NEAREST: tuple[tuple[type, Callable[[Any], object]], ...] = (
    *_EXACT,
    (dt.datetime, _of(dt.datetime, *_DATE, *_TIME)),
    (dt.date, _of(dt.date, *_DATE)),
    (dt.time, _of(dt.time, *_TIME)),
    (dt.timedelta, _of(dt.timedelta, "days", "seconds", "microseconds")),
    (decimal.Decimal, decimal.Decimal),
    (bytes, bytes),
    (bytearray, bytes),
    *_CONTAINERS,
)
"""How to write values that Python counts among these types, but msgspec, which checks the exact class, does
not: libraries have their own datetimes, texts and mappings, and a ``range`` is a Sequence.
"""


def _model_data(model: Any) -> object:
    """Return what to write for a pydantic model. Raises ``ValueError`` if it would come back different."""
    cls: Any = type(model)
    data: object = model.model_dump(mode="json", by_alias=True)
    if (weakness := doubt(cls)) != "":
        back = _validate(cls.model_validate_json, msgspec.json.encode(data))
        check_kept(model, back, weakness)
    return data


def _instance_of(annotation: Any, value: object) -> object:
    """Return an instance of a class that msgspec does not know. msgspec wraps the exceptions with the
    place.
    """
    if annotation is object:
        return value
    if is_model(annotation):
        return _validate(annotation.model_validate_json, msgspec.json.encode(value))
    if issubclass(annotation, StandIn):
        return _validate(annotation.read, value)
    bases = [base for base, _ in _EXACT if base in getattr(annotation, "__mro__", ())]
    if any(isinstance(value, base) for base in bases):
        rebuilt: object = annotation(value)
        return rebuilt
    raise TypeError(f"{annotation_text(annotation)} cannot be made of {type(value).__name__}: {_KINDS}")


def _validate(validate: Callable[[Any], object], data: object) -> object:
    """Return what pydantic makes of data. Its error is rewritten without the values, which do not belong in
    logs.
    """
    try:
        return validate(data)
    except ValueError as wrong:
        if not callable(errors := getattr(wrong, "errors", None)):
            raise
        texts = [f"{'.'.join(map(str, error['loc'])) or 'the model'}: {error['msg']}" for error in errors()]
        raise ValueError("; ".join(texts)) from None


_encode = msgspec.json.Encoder(enc_hook=_plain).encode
_encode_sorted = msgspec.json.Encoder(enc_hook=_plain_sorted, order="deterministic").encode


def _unfit(wrong: Exception, subject: str) -> PayloadError:
    text = (
        f"it is nested too deeply, or holds itself ({wrong})"
        if isinstance(wrong, RecursionError)
        else error_text(wrong)
    )
    if text.startswith(("Encoding objects of type", "Only dicts with")):
        text = f"{text}: {_KINDS}"
    return PayloadError(f"{subject} cannot be kept as JSON: {text}")


def _refuse_nan(value: object, subject: str) -> None:
    """Raise ``PayloadError`` if ``value`` contains a NaN or an infinity, which msgspec writes as null."""

    def hook(other: object) -> object:
        try:
            return _plain(other)
        except TypeError:
            return None  # it fills a hole

    open_: list[object] = [msgspec.to_builtins(value, enc_hook=hook)]
    while open_:
        part = open_.pop()
        if isinstance(part, dict):
            open_.extend(part.values())
        elif isinstance(part, list | tuple):
            open_.extend(part)
        elif isinstance(part, float) and not math.isfinite(part):
            raise PayloadError(
                f"{subject} cannot be kept as JSON: it holds {part!r}, which JSON does not have; use None, or a text"
            )
