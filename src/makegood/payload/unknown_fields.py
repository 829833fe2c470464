"""Refuses members that an annotation does not know, in JSON that a person has typed.

Whatever is stored, and every message, is read leniently: members that this version of a class does not know
are skipped, so that code before and after a deploy reads the same tasks. In what a person types, a member
that nobody would read is a misspelling.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import inspect as kinds

from makegood.base.did_you_mean import did_you_mean
from makegood.errors import PayloadError
from makegood.payload.pydantic_models import is_model

_LISTS = (kinds.ListType, kinds.SetType, kinds.FrozenSetType, kinds.VarTupleType)
_OBJECTS = (kinds.StructType, kinds.DataclassType, kinds.TypedDictType)
_NAMED = 10
"""Fields of a class that an error lists, at most."""


def refuse_unknown(value: Any, annotation: Any, subject: str) -> None:
    """Raise ``PayloadError`` for a member of a JSON value that no field of its annotation has.

    ``value``: what the JSON holds. ``subject`` names it. Types that take any member, and those that decide
    for themselves what they read, refuse none.

    >>> from typing import TypedDict
    >>> class Line(TypedDict, total=False):
    ...     sku: str
    >>> refuse_unknown([{"skuu": "lamp"}], list[Line], "the input lines")
    Traceback (most recent call last):
        ...
    makegood.errors.PayloadError: the input lines[0]: unknown field 'skuu'; did you mean 'sku'?
    """
    for place, name, names in _unknown(value, _kind(annotation), ""):
        hint = did_you_mean(name, names) or f"its fields are {', '.join(names[:_NAMED])}"
        raise PayloadError(f"{subject}{place}: unknown field {name!r}; {hint}")


def _kind(annotation: Any) -> kinds.Type:
    try:
        return kinds.type_info(annotation)
    except Exception:  # noqa: BLE001 - a class's annotations may raise anything; who decodes them reports it
        return kinds.AnyType()


def _unknown(value: Any, kind: kinds.Type, place: str) -> Iterator[tuple[str, str, list[str]]]:
    """Yield where an unknown member is, its name, and the names that are known there."""
    if isinstance(kind, kinds.UnionType):
        kind = _member(value, kind)
    if isinstance(kind, kinds.Metadata):
        kind = kind.type
    if isinstance(value, dict):
        if isinstance(kind, kinds.DictType):
            for name, part in value.items():
                yield from _unknown(part, kind.value_type, f"{place}[{name!r}]")
        elif (fields := _fields(kind)) is not None:
            for name, part in value.items():
                if name in fields:
                    yield from _unknown(part, fields[name], f"{place}.{name}")
                else:
                    yield place, name, list(fields)
    elif isinstance(value, list):
        for n, part, inner in _items(value, kind):
            yield from _unknown(part, inner, f"{place}[{n}]")


def _items(value: Sequence[Any], kind: kinds.Type) -> Iterator[tuple[int, Any, kinds.Type]]:
    inner: Sequence[kinds.Type] = ()
    if isinstance(kind, _LISTS):
        inner = [kind.item_type] * len(value)
    elif isinstance(kind, kinds.TupleType):
        inner = kind.item_types
    elif isinstance(kind, kinds.NamedTupleType) or (isinstance(kind, kinds.StructType) and kind.array_like):
        inner = [field.type for field in kind.fields]
    for n, (part, item) in enumerate(zip(value, inner, strict=False)):
        yield n, part, item


def _member(value: Any, union: kinds.UnionType) -> kinds.Type:
    """Return the member of a union that this value is read as; ``Any`` if that is not known."""
    if isinstance(value, list):
        return next((kind for kind in union.types if not isinstance(kind, kinds.NoneType)), kinds.AnyType())
    objects = [
        kind for kind in union.types if isinstance(kind, (*_OBJECTS, kinds.DictType, kinds.CustomType))
    ]
    if isinstance(value, dict) and len(objects) > 1:
        objects = [
            kind
            for kind in objects
            if isinstance(kind, kinds.StructType) and value.get(kind.tag_field or "") == kind.tag
        ]
    return objects[0] if len(objects) == 1 else kinds.AnyType()


def _fields(kind: kinds.Type) -> Mapping[str, kinds.Type] | None:
    """Return the types of an object's members by their names in JSON; None if it may have any."""
    if isinstance(kind, _OBJECTS):
        fields = {field.encode_name: field.type for field in kind.fields}
        tag = kind.tag_field if isinstance(kind, kinds.StructType) else None
        return fields if tag is None else {tag: kinds.AnyType(), **fields}
    if isinstance(kind, kinds.CustomType) and is_model(kind.cls):
        return _model_fields(kind.cls)
    return None


def _model_fields(cls: Any) -> Mapping[str, kinds.Type] | None:
    """Return the fields of a pydantic model under each of their names; None if it reads more than those."""
    if cls.model_config.get("extra") == "allow" or any(
        validator.info.mode != "after" for validator in cls.__pydantic_decorators__.model_validators.values()
    ):
        return None
    fields: dict[str, kinds.Type] = {}
    for name, field in cls.model_fields.items():
        for alias in (name, field.alias, field.validation_alias):
            if not isinstance(alias, str | None):
                return None  # several, or a path
            if alias is not None:
                fields[alias] = _kind(field.annotation)
    return None if "root" in fields else fields
