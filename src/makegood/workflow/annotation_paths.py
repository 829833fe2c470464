"""What an annotation says about the parts of a value: their names and places in its JSON, and their
annotations.

A promise has no value, only an annotation. ``promise.attr`` and ``promise[key]`` become a path into JSON that
is walked when the value is there, long after the workflow function has ended. So a path that would lead
nowhere is refused at once. Where an annotation says nothing, anything is allowed.
"""

import collections.abc
import dataclasses
import datetime as dt
import decimal
import enum
import functools
import typing
import uuid
from collections.abc import Mapping
from types import NoneType
from typing import Any, Literal, NamedTuple, NoReturn

import msgspec

from makegood.errors import PromiseError
from makegood.payload.annotations import members, plain
from makegood.payload.codec import annotation_text
from makegood.payload.pydantic_models import is_typed_dict

Kind = Literal["any", "value", "list", "dict", "fields", "keys"]
"""What a class becomes in JSON.

Unknown; a text, number or the like; an array; an object with free keys; an object, or an array, with fields;
an object whose fields are keys (TypedDict).
"""

_VALUES = (
    str, bytes, bytearray, memoryview, int, float, complex, NoneType, decimal.Decimal, uuid.UUID, enum.Enum, dt.date,
    dt.time, dt.timedelta,
)  # fmt: skip

_VARIOUS = (decimal.Decimal, dt.datetime, dt.time, collections.abc.Set)
"""Equal values of these have different texts: 0 and 0.00, a moment in two time zones, a set in two orders."""


class Member(NamedTuple):
    """A part of a value: its place in the value's JSON, and its annotation."""

    key: str | int
    annotation: Any


class _Shape(NamedTuple):
    kind: Kind
    fields: Mapping[str, Member]


_ANY = _Shape("any", {})


def attribute(annotation: Any, name: str, where: object) -> Member:
    """Return the part ``value.name``; raises ``PromiseError``, naming the value by ``where``, if JSON does
    not have it.
    """
    parts = _parts(annotation)
    shapes = [(part, _shape(part)) for part in parts]
    for _, shape in shapes:
        if shape.kind == "fields" and name in shape.fields:
            return shape.fields[name] if len(parts) == 1 else Member(shape.fields[name].key, Any)
    if name.startswith("_"):
        raise PromiseError(f"{where}.{name}: the value's JSON has no such part")
    for part, shape in shapes:
        if shape.kind != "any":
            _no_attribute(part, shape, name, where)
    return Member(name, Any)


def _no_attribute(part: Any, shape: _Shape, name: str, where: object) -> NoReturn:
    kind = annotation_text(part)
    if shape.kind == "fields" and hasattr(_class(part), name):
        raise PromiseError(
            f"{where}.{name}: {kind}.{name} is computed, only fields are stored ({', '.join(shape.fields)}): compute it in an action"
        )
    if shape.kind == "fields":
        raise PromiseError(
            f"{where}.{name}: {kind} has no field {name}; it has {', '.join(shape.fields) or 'none'}"
        )
    if shape.kind in ("dict", "keys"):
        raise PromiseError(
            f'{where}.{name}: it will be a {kind}: write ["{name}"] for a key; do the rest in an action'
        )
    if shape.kind == "list":
        raise PromiseError(
            f"{where}.{name}: it will be a {kind}: write [0] for an element, mg.each(...) for all; do the rest in an action"
        )
    raise PromiseError(f"{where}.{name}: it will be a {kind}, which is not known yet: do this in an action")


def item(annotation: Any, key: object, where: object) -> Member:
    """Return the part ``value[key]``; raises ``PromiseError``, naming the value by ``where``, if JSON cannot
    have it.
    """
    if isinstance(key, bool) or not isinstance(key, str | int | enum.Enum | uuid.UUID | dt.date):
        raise PromiseError(
            f"{where}[{key!r}]: only a key or an index can be taken of it; do the rest in an action"
        )
    parts = _parts(annotation)
    items = [_item(part, _shape(part), key, where) for part in parts]
    return items[0] if len(parts) == 1 else Member(items[0].key, Any)


def _item(part: Any, shape: _Shape, key: object, where: object) -> Member:
    kind, arguments = annotation_text(part), typing.get_args(part)
    if shape.kind == "any" and isinstance(key, str | int):
        return Member(key, Any)
    if shape.kind == "list" and isinstance(key, int):
        return _element(part, arguments, key, where)
    if shape.kind == "keys":
        if isinstance(key, str) and key in shape.fields:
            return shape.fields[key]
        raise PromiseError(f"{where}[{key!r}]: {kind} has no such key; it has {', '.join(shape.fields)}")
    if shape.kind in ("dict", "any"):
        (key_text,) = msgspec.json.decode(msgspec.json.encode({key: None}))
        return Member(key_text, arguments[1] if len(arguments) == 2 else Any)
    if (
        shape.kind == "fields"
        and isinstance(key, int)
        and all(isinstance(m.key, int) for m in shape.fields.values())
    ):
        for member in shape.fields.values():
            if member.key == key % len(shape.fields) and -len(shape.fields) <= key < len(shape.fields):
                return member
    if shape.kind == "fields":
        raise PromiseError(
            f"{where}[{key!r}]: it will be a {kind}: write .{next(iter(shape.fields), 'field')} for a field"
        )
    if shape.kind == "list":
        raise PromiseError(f"{where}[{key!r}]: it will be a {kind}: an element has a number, [0]")
    raise PromiseError(f"{where}[{key!r}]: it will be a {kind}, which is not known yet: do this in an action")


def _element(part: Any, arguments: tuple[Any, ...], key: int, where: object) -> Member:
    if _class(part) is not tuple or not arguments or ... in arguments:
        return Member(key, arguments[0] if arguments else Any)
    if not -len(arguments) <= key < len(arguments):
        raise PromiseError(
            f"{where}[{key}]: it will be a {annotation_text(part)}, with {len(arguments)} elements"
        )
    return Member(key % len(arguments), arguments[key])


def elements(annotation: Any) -> Any:
    """Return the annotation of a list's elements: ``Any`` if it is unknown, None if the value will not be a
    list.

    >>> elements(list[int]), elements(str)
    (<class 'int'>, None)
    """
    parts = _parts(annotation)
    if not all(_shape(part).kind in ("any", "list") for part in parts):
        return None
    arguments = typing.get_args(parts[0]) if len(parts) == 1 else ()
    if len(arguments) == 1 or (len(arguments) == 2 and arguments[1] is ...):
        return arguments[0]
    return Any


def maybe_bool(annotation: Any) -> bool:
    """Return whether a value annotated so may be true or false.

    >>> maybe_bool(bool | None), maybe_bool(typing.Any), maybe_bool(str)
    (True, True, False)
    """
    return any(part is bool or _shape(part).kind == "any" for part in _parts(annotation))


def maybe(annotation: Any, kinds: tuple[type, ...]) -> bool:
    """Return whether a value annotated so may be of one of these kinds; a bool is not a number.

    >>> maybe(float | None, (float, int)), maybe(typing.Any, (float,)), maybe(bool, (int,))
    (True, True, False)
    """
    parts = _parts(annotation)
    return any(part in kinds or _shape(part).kind == "any" for part in parts)


def variously_written(annotation: Any) -> type | None:
    """Return a class in an annotation whose equal values may have different JSON; None if there is none.

    >>> variously_written(list[decimal.Decimal]), variously_written(dict[str, int])
    (<class 'decimal.Decimal'>, None)
    """
    visits: dict[int, Any] = {}
    todo = [annotation]
    while todo:
        for part in members(todo.pop()):
            cls = _class(part)
            if not isinstance(cls, type) or id(part) in visits:
                continue
            visits[id(part)] = part
            if issubclass(cls, _VARIOUS):
                return cls
            todo += typing.get_args(part)
            todo += [member.annotation for member in _shape(part).fields.values()]
    return None


def _parts(annotation: Any) -> tuple[Any, ...]:
    """Return the members of a union except None: whether the value is missing shows when it is there."""
    parts = members(annotation)
    return tuple(part for part in parts if part is not NoneType) or parts


def _class(part: Any) -> Any:
    return typing.get_origin(part) or part


def _shape(part: Any) -> _Shape:
    cls = _class(part)
    if cls is Literal:
        return _Shape("value", {})
    return _shape_of(cls) if isinstance(cls, type) else _ANY


@functools.lru_cache(maxsize=1024)
def _shape_of(cls: type) -> _Shape:
    """Return what a class becomes in JSON."""
    if is_typed_dict(cls):
        return _Shape("keys", {name: Member(name, hint) for name, hint in _hints(cls).items()})
    if (fields := _fields(cls)) is not None:
        return _Shape("fields", fields)
    if issubclass(cls, _VALUES):
        return _Shape("value", {})
    if issubclass(cls, collections.abc.Mapping):
        return _Shape("dict", {})
    if issubclass(cls, collections.abc.Iterable):
        return _Shape("list", {})
    return _ANY


def _fields(cls: Any) -> Mapping[str, Member] | None:
    """Return the fields of a class by name; None for a class without fields."""
    if issubclass(cls, msgspec.Struct):
        return _struct_fields(cls)
    if dataclasses.is_dataclass(cls):
        names = [field.name for field in dataclasses.fields(cls)]
    elif (attributes := getattr(cls, "__attrs_attrs__", None)) is not None:
        names = [field.name for field in attributes]
    elif issubclass(cls, tuple) and hasattr(cls, "_fields"):
        hints = _hints(cls)
        return {name: Member(n, hints.get(name, Any)) for n, name in enumerate(cls._fields)}
    elif (models := getattr(cls, "__pydantic_fields__", None)) is not None:
        return {
            name: Member(field.serialization_alias or field.alias or name, _hint_or_any(field.annotation))
            for name, field in models.items()
        }
    else:
        return None
    hints = _hints(cls)
    return {name: Member(name, hints.get(name, Any)) for name in names}


def _struct_fields(cls: type[msgspec.Struct]) -> Mapping[str, Member]:
    """Return a Struct's fields: they may be renamed, be positions in an array, or be left out when they have
    the default.
    """
    config, hints = cls.__struct_config__, _hints(cls)
    fields: dict[str, Member] = {}
    optional = len(cls.__struct_fields__) - len(cls.__struct_defaults__)
    for n, (name, encoded_name) in enumerate(
        zip(cls.__struct_fields__, cls.__struct_encode_fields__, strict=True)
    ):
        if config.omit_defaults and n >= optional:
            continue
        place = n + (config.tag is not None)
        fields[name] = Member(place if config.array_like else encoded_name, hints.get(name, Any))
    return fields


def _hints(cls: Any) -> dict[str, Any]:
    try:
        annotations = typing.get_type_hints(cls, include_extras=True)
    except Exception:  # noqa: BLE001 - the user's annotations may raise anything; then nothing is known
        keys = getattr(cls, "__required_keys__", frozenset()) | getattr(cls, "__optional_keys__", frozenset())
        return dict.fromkeys(sorted(keys), Any)
    return {name: _hint_or_any(hint) for name, hint in annotations.items()}


def _hint_or_any(hint: Any) -> Any:
    """Return an annotation; ``Any`` for one that leaves a type open."""
    hint = plain(hint)
    return Any if isinstance(hint, typing.TypeVar) or bool(getattr(hint, "__parameters__", False)) else hint
