"""Pydantic dataclasses, which msgspec takes for plain ones: they are read by pydantic, with their rules.

A pydantic dataclass in an annotation is replaced by a stand-in that msgspec does not know, so that it asks
for the value: the fields are decoded as those of a plain dataclass, as which the value was written, and the
class makes the instance of them. Type aliases are replaced by what they stand for: msgspec does not know
those of older Pythons.
"""

import dataclasses
import typing
from collections.abc import Callable, Mapping
from types import UnionType
from typing import Any, TypedDict

import msgspec

from makegood.payload.pydantic_models import alias_value, field_hints, is_pydantic_dataclass, is_typed_dict

Decode = Callable[[bytes], Any]
Prepare = Callable[[Any], Decode]
"""Returns the decoder of an annotation."""


class _StandInType(type):
    """Instances of the class are those of its stand-in: msgspec asks that of what was read."""

    made: Any

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.made)


class StandIn(metaclass=_StandInType):
    """Base of the stand-ins for the class ``made``. ``read`` makes an instance of the value as plain JSON."""

    annotation: Any
    made: Any
    read: Callable[[Any], Any]


def readable(annotation: Any, prepare: Prepare) -> Any:
    """Return an annotation with stand-ins for the pydantic dataclasses in it.

    Raises ``TypeError`` for one whose JSON would not be read back.
    """
    if (value := alias_value(annotation)) is not None:
        return readable(value, prepare)
    if isinstance(annotation, typing.NewType):
        inner = readable(annotation.__supertype__, prepare)
        return annotation if inner is annotation.__supertype__ else inner
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if is_pydantic_dataclass(origin or annotation):
        return _stand_in(annotation, prepare)
    if is_typed_dict(cls := origin or annotation):
        return _typed_dict(annotation, cls, prepare) if _is_replaced(annotation, set()) else annotation
    if origin is typing.Annotated:
        base, *metadata = arguments
        inner = readable(base, prepare)
        return annotation if inner is base else typing.Annotated[inner, *metadata]
    return _rebuilt(annotation, lambda argument: readable(argument, prepare))


def _typed_dict(annotation: Any, cls: Any, prepare: Prepare) -> Any:
    make: Any = TypedDict
    try:
        hints = {name: readable(hint, prepare) for name, hint in _hints(annotation, cls).items()}
    except RecursionError:
        raise TypeError(
            f"{cls.__name__} contains itself, and a pydantic dataclass or a type alias: make it a dataclass or a pydantic model"
        ) from None
    optional = {
        name: typing.NotRequired[hint]
        for name, hint in hints.items()
        if name in cls.__optional_keys__ and typing.get_origin(hint) is not typing.NotRequired
    }
    return make(cls.__name__, {**hints, **optional})


def _hints(annotation: Any, cls: Any) -> dict[str, Any]:
    """Return the annotations of a class's fields, with its parameters filled in, and without ``Final``."""
    parameters = dict(zip(getattr(cls, "__parameters__", ()), typing.get_args(annotation), strict=False))
    return {name: _fill(_unfinal(hint), parameters) for name, hint in field_hints(cls).items()}


def _unfinal(hint: Any) -> Any:
    return typing.get_args(hint)[0] if typing.get_origin(hint) is typing.Final else hint


def _is_replaced(annotation: Any, classes: set[Any]) -> bool:
    """Return whether something in an annotation is replaced; ``classes``: the TypedDicts seen so far."""
    cls = typing.get_origin(annotation) or annotation
    if is_pydantic_dataclass(cls) or alias_value(annotation) is not None:
        return True
    inner = [*typing.get_args(annotation)]
    if is_typed_dict(cls) and cls not in classes:
        classes.add(cls)
        inner += field_hints(cls).values()
    return any(_is_replaced(one, classes) for one in inner if not isinstance(one, list))


def _rebuilt(annotation: Any, change: Callable[[Any], Any]) -> Any:
    """Return an annotation with its arguments changed; the annotation itself if none is."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (None, typing.Literal) or not arguments:
        return annotation
    inside = tuple(argument if isinstance(argument, list) else change(argument) for argument in arguments)
    if all(one is other for one, other in zip(inside, arguments, strict=True)):
        return annotation
    if origin in (typing.Required, typing.NotRequired):
        return origin[inside[0]]
    return typing.Union[inside] if origin in (typing.Union, UnionType) else origin[inside]  # noqa: UP007 - made at run time


def _stand_in(annotation: Any, prepare: Prepare) -> Any:
    cls: Any = typing.get_origin(annotation) or annotation
    _refuse_unread(cls)
    hints = {name: _without_constraints(hint) for name, hint in _hints(annotation, cls).items()}
    make: Any = TypedDict
    later = {field.name for field in dataclasses.fields(cls) if not field.init}
    fields: list[Decode] = []  # prepared at first use, as a class may contain itself

    def read(value: Any) -> Any:
        if not fields:
            fields.append(prepare(make(cls.__name__, hints, total=False)))
        if not isinstance(value, dict):
            raise TypeError(f"Expected `object`, got `{type(value).__name__}`")
        members = {**value, **fields[0](msgspec.json.encode(value))}
        instance = _validate(annotation, {name: part for name, part in members.items() if name not in later})
        for name in later & members.keys():
            object.__setattr__(instance, name, members[name])
        return instance

    attributes = {
        "annotation": annotation,
        "made": cls,
        "read": staticmethod(read),
        "__module__": cls.__module__,
    }
    return _StandInType(cls.__name__, (StandIn,), attributes)


def _validate(annotation: Any, members: Mapping[str, Any]) -> Any:
    if isinstance(annotation, type):
        return annotation(**members)
    from pydantic import TypeAdapter  # noqa: PLC0415 - an optional extra

    return TypeAdapter(annotation).validate_python(members)


def _fill(hint: Any, parameters: Mapping[Any, Any]) -> Any:
    """Return a field's annotation with the class's parameters filled in."""
    if hint in parameters:
        return parameters[hint]
    inner = getattr(hint, "__parameters__", ())
    return (
        hint[tuple(parameters.get(one, Any) for one in inner)]
        if inner and not isinstance(hint, type)
        else hint
    )


def _without_constraints(annotation: Any) -> Any:
    """Return an annotation without the metadata that pydantic checks."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        base = _without_constraints(arguments[0])
        constraints = [note for note in arguments[1:] if isinstance(note, msgspec.Meta)]
        return typing.Annotated[base, *constraints] if constraints else base
    return _rebuilt(annotation, _without_constraints)


def _refuse_unread(cls: Any) -> None:
    for name, field in cls.__pydantic_fields__.items():
        if field.alias or field.validation_alias or field.serialization_alias:
            raise TypeError(
                f"{cls.__name__}.{name} has an alias, which the JSON of a pydantic dataclass does not use: make it a pydantic model"
            )
    for name, field in cls.__dataclass_fields__.items():
        if field._field_type is dataclasses._FIELD_INITVAR:  # type: ignore[attr-defined]  # noqa: SLF001 - no public name
            raise TypeError(f"{cls.__name__}.{name} is an InitVar, which is not kept: make it a field")
