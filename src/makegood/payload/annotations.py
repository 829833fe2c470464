"""A function's parameter and return types, as far as a plan can carry them.

Arguments of actions travel as one JSON object by parameter name. So there are no ``*args``, no ``**kwargs``,
and no positional-only parameters. Annotations say what type the JSON is decoded to; a parameter without one
gets plain JSON values.
"""

import datetime as dt
import decimal
import enum
import typing
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from types import NoneType, UnionType
from typing import Any

import msgspec
from msgspec import inspect as kinds

from makegood.base.function_layers import definition
from makegood.errors import DefinitionError
from makegood.payload.pydantic_models import alias_value, is_typed_dict

_CLOSED = {
    str, int, float, bool, NoneType, bytes, bytearray, memoryview, dict, list, tuple, decimal.Decimal, uuid.UUID,
    dt.datetime, dt.date, dt.time, dt.timedelta,
}  # fmt: skip
"""Types that hold nothing, or nothing that a bare annotation describes. Sets are missing: their elements must
be checked, since a tuple becomes a list in JSON, which no set can hold.
"""
_ANYTHING: Mapping[type, Collection[tuple[Any, ...]]] = {
    dict: ((str, Any), (str, object)),
    list: ((Any,), (object,)),
}


DEFINE = "define or import that name where the module's own code sees it (not under `if TYPE_CHECKING:`, not inside another function)"


def hints(fn: Callable[..., object], names: Mapping[str, Any] | None, where: str) -> dict[str, Any]:
    """Return a function's annotations by parameter name and "return", evaluated.

    ``names``: those of an enclosing function come first, as they do in Python; any others are for names that
    the function's module does not know. Raises ``DefinitionError`` if an annotation uses a name that is not
    known (yet).
    """
    bare = definition(fn)
    inner = names if "<locals>" in getattr(bare, "__qualname__", "") else None
    try:
        try:
            return typing.get_type_hints(bare, None, inner, include_extras=True)
        except NameError:
            if names is None or names is inner:
                raise
            return typing.get_type_hints(bare, None, names, include_extras=True)
    except NameError as unknown:
        raise DefinitionError(f"{where}: an annotation cannot be evaluated ({unknown}): {DEFINE}") from None
    except Exception as wrong:
        raise DefinitionError(f"{where}: an annotation cannot be evaluated: {wrong}") from wrong


def members(annotation: Any) -> tuple[Any, ...]:
    """Return the members of a union, or the annotation alone, seen through ``Annotated`` and ``NewType``.

    >>> members(int | None)
    (<class 'int'>, <class 'NoneType'>)
    """
    bare = plain(annotation)
    if typing.get_origin(bare) in (typing.Union, UnionType):
        # Python merges nested unions, unless the inner one is Annotated or a NewType.
        return tuple(one for member in typing.get_args(bare) for one in members(member))
    return (NoneType if bare is None else bare,)


def plain(annotation: Any) -> Any:
    """Return an annotation without ``Annotated``, ``NewType`` and type aliases around it.

    >>> plain(typing.Annotated[int, "positive"])
    <class 'int'>
    """
    while True:
        if typing.get_origin(annotation) in (typing.Annotated, typing.Required, typing.NotRequired):
            annotation = typing.get_args(annotation)[0]
        elif isinstance(annotation, typing.NewType):
            annotation = annotation.__supertype__
        elif (value := alias_value(annotation)) is not None:
            annotation = value
        else:
            return annotation


def takes(annotation: Any, kind: Any) -> bool:
    """Return whether a parameter annotated ``annotation`` surely accepts values annotated ``kind``; True if
    unknown.

    >>> takes(str | None, str), takes(str, str | None), takes(str, typing.Any)
    (True, False, True)
    """
    wants = members(annotation)
    return any(want in (Any, object) for want in wants) or all(
        any(_takes(want, one) for want in wants) for one in members(kind)
    )


def may_fit(parameter: Any, result: Any) -> bool:
    """Return whether some value annotated ``result`` may fit a parameter annotated ``parameter``; True if
    unknown.

    It may fit if their JSON can be of the same kind.

    >>> may_fit(str, int), may_fit(int, int | None), may_fit(float, int), may_fit(str, typing.Any)
    (False, True, True, True)
    """
    wants, gives = _in_json(parameter, read=True), _in_json(result, read=False)
    return wants is None or gives is None or not wants.isdisjoint(gives)


def _in_json(annotation: Any, *, read: bool) -> frozenset[str] | None:
    """Return the kinds of JSON that values of an annotation are ``read`` from, or else written as; None:
    unknown.
    """
    try:
        info = kinds.type_info(annotation)
    except Exception:  # noqa: BLE001 - msgspec looks into the user's classes, whose annotations may raise anything
        return None
    members_ = [
        _kinds_of(kind, read=read) for kind in (info.types if isinstance(info, kinds.UnionType) else (info,))
    ]
    return None if None in members_ else frozenset().union(*filter(None, members_))


def _kinds_of(kind: kinds.Type, *, read: bool) -> frozenset[str] | None:
    if isinstance(kind, kinds.EnumType):
        return _of_values(member.value for member in kind.cls)
    if isinstance(kind, kinds.LiteralType):
        return _of_values(kind.values)
    if isinstance(kind, kinds.CustomType):
        return next(
            (frozenset({_VALUES[base]}) for base in (str, int, float) if issubclass(kind.cls, base)), None
        )
    if isinstance(kind, kinds.StructType):
        return frozenset({"array" if kind.array_like else "object"})
    if isinstance(kind, kinds.FloatType):  # an integer may be written for it
        return frozenset({"float", "int"})
    if isinstance(kind, kinds.DecimalType):
        return frozenset({"str", "float", "int"} if read else {"str"})
    return next((frozenset({name}) for classes, name in _KINDS if isinstance(kind, classes)), None)


def _of_values(values: Iterable[object]) -> frozenset[str] | None:
    kinds_of_values = [_VALUES.get(type(value), "") for value in values]
    return None if "" in kinds_of_values else frozenset(kinds_of_values)


_VALUES: Mapping[type, str] = {str: "str", int: "int", float: "float", bool: "bool", NoneType: "null"}
_KINDS: tuple[tuple[tuple[type[kinds.Type], ...], str], ...] = (
    ((kinds.NoneType,), "null"),
    ((kinds.BoolType,), "bool"),
    ((kinds.IntType,), "int"),
    (
        (
            kinds.StrType, kinds.BytesType, kinds.ByteArrayType, kinds.MemoryViewType, kinds.DateTimeType, kinds.DateType,
            kinds.TimeType, kinds.TimeDeltaType, kinds.UUIDType,
        ),
        "str",
    ),
    ((kinds.CollectionType, kinds.TupleType, kinds.NamedTupleType), "array"),
    ((kinds.DictType, kinds.TypedDictType, kinds.DataclassType), "object"),
)  # fmt: skip


def _takes(want: Any, value_kind: Any) -> bool:
    if (
        want == value_kind
        or Any in (want, value_kind)
        or isinstance(want, typing.TypeVar)
        or isinstance(value_kind, typing.TypeVar)
    ):
        return True
    if want is float and value_kind is int:
        return True
    left, right = typing.get_origin(want) or want, typing.get_origin(value_kind) or value_kind
    if not isinstance(left, type) or not isinstance(right, type) or _protocol(left):
        return True
    left, right = _values(left), _values(right)
    if not issubclass(right, left):
        return False
    arguments = (typing.get_args(want), typing.get_args(value_kind))
    if left is not right or not all(arguments) or len(arguments[0]) != len(arguments[1]):
        return True
    return all(a is ... or b is ... or takes(a, b) for a, b in zip(*arguments, strict=True))


def _values(cls: type) -> type:
    """Return the class that a class's values are instances of: those of a TypedDict, which allows no such
    check, are dicts.
    """
    return dict if is_typed_dict(cls) else cls


def certain(annotation: Any, kind: type) -> bool:
    """Return whether every value of exactly this type fits an annotation, whatever it holds; False: check the
    value.

    Python does not enforce the annotations inside a dataclass or between the brackets of ``list[int]``.

    >>> certain(int | None, int), certain(list, list), certain(list[int], list)
    (True, True, False)
    """
    return not has_constraint(annotation) and any(_certain(want, kind) for want in members(annotation))


def has_constraint(annotation: Any) -> bool:
    """Return whether an annotation, or a member of a union, has a ``msgspec.Meta``: a value of the right type
    may still violate it.
    """
    if isinstance(annotation, typing.NewType):
        return has_constraint(annotation.__supertype__)
    if (value := alias_value(annotation)) is not None:
        return has_constraint(value)
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return any(isinstance(note, msgspec.Meta) for note in arguments[1:]) or has_constraint(arguments[0])
    return origin in (typing.Union, UnionType) and any(map(has_constraint, arguments))


def _certain(want: Any, kind: type) -> bool:
    if want in (Any, object) or isinstance(want, typing.TypeVar) or (want is float and kind is int):
        return True
    if not isinstance(want, type):
        return typing.get_origin(want) is kind and typing.get_args(want) in _ANYTHING.get(kind, ())
    if want is kind and (kind in _CLOSED or issubclass(kind, enum.Enum)):
        return True
    return _protocol(want)


def _protocol(cls: type) -> bool:
    return bool(getattr(cls, "_is_protocol", False))
