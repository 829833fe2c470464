"""Values compared by value: one text for all spellings of a value, and what differs between two values.

JSON spells equal values differently: 10 and 10.0 for a float, 1.1 and 1.10 for a Decimal, one instant in two
time zones. What an action gets is what its annotation makes of the JSON, so that is what is compared: numbers
and instants by value, dicts and sets without order. Most annotations allow none of this; for them sorting is
enough.
"""

import datetime as dt
import enum
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from decimal import Decimal
from itertools import islice
from types import NoneType
from typing import Any

import msgspec
from msgspec import inspect as kinds

from makegood.base.secret_names import is_secret
from makegood.errors import DefinitionError
from makegood.payload.codec import canonical, decoder
from makegood.payload.missing_defaults import parts
from makegood.payload.pydantic_models import is_model
from makegood.payload.set_order import object_members

_SPELLED_VARIOUSLY = (
    kinds.AnyType, kinds.FloatType, kinds.DecimalType, kinds.DateTimeType, kinds.TimeType, kinds.CustomType, kinds.RawType,
)  # fmt: skip
_AS_THEY_ARE = frozenset({str, int, bool, NoneType})
_LEAVES = frozenset({dt.datetime, dt.date, uuid.UUID})
"""Without parts, as most values are: asking whether a value is a Mapping is slow."""
_MOST_DIGITS = 40
_MOST_DIFFERENCES = 3
_MOST_SHOWN = 40
"""Characters of a value, and of a key."""

_encode_sorted = msgspec.json.Encoder(order="sorted").encode
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)


class ByValue:
    """Compares the values of one annotation, which come as JSON. ``subject`` names them in errors."""

    def __init__(self, annotation: Any, subject: str) -> None:
        try:
            self._read: Callable[[bytes], Any] = decoder(annotation, subject)
            info = kinds.type_info(annotation)
        except (DefinitionError, TypeError):  # a Protocol or the like, to which nothing can be decoded
            self._read = msgspec.json.decode
            info = kinds.AnyType()
        self._write = (
            _text if any(isinstance(kind, _SPELLED_VARIOUSLY) for kind in parts(info)) else canonical
        )

    def text(self, data: bytes) -> bytes:
        """Return the text of a value that all its spellings share."""
        return self._write(self._value(data))

    def differences(self, name: str, was: bytes, now: bytes) -> Iterator[str]:
        """Yield, in words, where two values differ; texts and what is secret by its name are not shown."""
        yield from _differences("", {name: self._value(was)}, {name: self._value(now)})

    def _value(self, data: bytes) -> Any:
        try:
            return self._read(data)
        except Exception:  # noqa: BLE001 - the user's class may raise anything, and the annotation may be a newer one
            return msgspec.json.decode(data)


def join_differences(differences: Iterator[str]) -> str:
    """Return differences as one text of limited length."""
    first = [*islice(differences, _MOST_DIFFERENCES)]
    more = sum(1 for _ in differences)
    return "; ".join([*first, f"and {more} more"] if more else first)


# -- one text for all spellings ------------------------------------------------------------------------------


def _text(value: Any) -> bytes:
    return _encode_sorted(_canonical(value))


def _canonical(value: Any) -> Any:
    kind = type(value)
    if kind in _AS_THEY_ARE:
        return value
    if kind is float or kind is Decimal:
        return _number(value)
    parts = None if kind in _LEAVES else _parts(value)
    if isinstance(parts, dict):
        return {name: _canonical(part) for name, part in parts.items()}
    return [*map(_canonical, parts)] if isinstance(parts, list) else _leaf(value)


def _parts(value: Any) -> dict[str, Any] | list[Any] | None:
    """Return the parts of a value by name or in order, those of sets sorted; None for a value without any."""
    if isinstance(value, str | bytes | bytearray | memoryview):
        return None
    if isinstance(value, Mapping):
        return {_key(key): part for key, part in value.items()}
    if isinstance(value, AbstractSet):
        return sorted(value, key=_text)
    if isinstance(value, Sequence):
        return list(value)
    if is_model(type(value)):
        return _model_members(value)
    return None if (members := object_members(value)) is None else _there(members)


def _there(members: Mapping[str, Any]) -> dict[str, Any]:
    return {name: part for name, part in members.items() if part is not msgspec.UNSET}


def _key(key: Any) -> str:
    return key if isinstance(key, str) and not isinstance(key, enum.Enum) else _text(key).decode().strip('"')


def _model_members(model: Any) -> dict[str, Any]:
    """Return the members of a pydantic model: those of types that only pydantic knows as it writes them."""
    members = {name: getattr(model, name) for name in type(model).model_fields}
    members |= getattr(model, "__pydantic_extra__", None) or {}
    fields: Mapping[str, Any] | None = None
    for name, part in members.items():
        try:
            _canonical(part)
        except TypeError:
            if fields is None:
                data = model.model_dump(mode="json")
                fields = data if isinstance(data, dict) else {"root": data}
            members[name] = fields.get(name)
    return members


def _leaf(value: Any) -> Any:
    if isinstance(value, enum.Enum):
        return _canonical(value.value)
    if isinstance(value, bool | NoneType):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int | float | Decimal):
        return _number(value)
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return f"@{(value - _EPOCH) // _MICROSECOND}"
    if isinstance(value, dt.time) and (offset := value.utcoffset()) is not None:
        of_day = dt.timedelta(
            hours=value.hour, minutes=value.minute, seconds=value.second, microseconds=value.microsecond
        )
        return f"@{(of_day - offset) // _MICROSECOND}"
    return (
        _canonical(msgspec.json.decode(value))
        if isinstance(value, msgspec.Raw)
        else msgspec.to_builtins(value)
    )


def _number(value: float | Decimal) -> object:
    """Return a number as JSON, the same for 10, 10.0 and 1E+1; a Decimal that is no number as its text.

    >>> [msgspec.json.encode(_number(number)) for number in (10, 10.0, Decimal("1.10"), 1.1, -0.0)]
    [b'10', b'10', b'11e-1', b'11e-1', b'0']
    """
    if isinstance(value, int):
        return int(value)
    if isinstance(value, Decimal):
        exact = value
    else:
        digits_text = float.__repr__(value)
        whole, _, fraction = digits_text.partition(".")
        if fraction == "0":
            return int(whole)
        if "e" not in digits_text:
            return msgspec.Raw(b"%de-%d" % (int(whole + fraction), len(fraction)))
        exact = Decimal(digits_text)
    sign, digits, exponent = exact.as_tuple()
    if not isinstance(exponent, int):  # NaN and infinity, which only a Decimal may be
        return str(exact)
    text = "".join(map(str, digits))
    if not (short := text.rstrip("0")):
        return msgspec.Raw(b"0")
    exponent += len(text) - len(short)
    is_whole = exponent >= 0 and len(short) + exponent <= _MOST_DIGITS
    canonical = short + ("0" * exponent if is_whole else f"e{exponent}")
    return msgspec.Raw(f"{'-' if sign else ''}{canonical}".encode())


# -- what differs --------------------------------------------------------------------------------------------


def _differences(name: str, was: Any, now: Any) -> Iterator[str]:
    before, after = _parts(was), _parts(now)
    if isinstance(before, dict) and isinstance(after, dict):
        for key in {**before, **after}:
            label = key if key.isidentifier() else "an entry"  # of a mapping: its keys are values too
            place = f"{name}.{_short(label)}" if name else label
            if key not in after or key not in before:
                yield f"{place}: {'is missing now' if key in before else 'was not submitted before'}"
            elif is_secret(key):
                if _text(before[key]) != _text(after[key]):
                    yield f"{place}: another value"
            else:
                yield from _differences(place, before[key], after[key])
    elif isinstance(before, list) and isinstance(after, list):
        if len(before) != len(after):
            yield f"{name}: a list of {len(before)} was submitted, now of {len(after)}"
            return
        for n, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from _differences(f"{name}[{n}]", one, other)
    elif _text(was) != _text(now):
        texts = _value_text(was, before), _value_text(now, after)
        other = "another " + texts[0].removeprefix("a ")
        yield (
            f"{name}: {other}"
            if texts[0] == texts[1]
            else f"{name}: {texts[0]} was submitted, now {texts[1]}"
        )


def _value_text(value: Any, parts: object) -> str:
    """Return a value in words: a text, which may be anybody's name, is not shown."""
    if parts is not None:
        return "an object" if isinstance(parts, dict) else "a list"
    if isinstance(value, enum.Enum):
        return _short(str(value))
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, bool | int | float | Decimal | NoneType | dt.timedelta | uuid.UUID):
        return _short(str(value))
    return "a text"


def _short(text: str) -> str:
    return text if len(text) <= _MOST_SHOWN else f"{text[: _MOST_SHOWN - 1]}…"
