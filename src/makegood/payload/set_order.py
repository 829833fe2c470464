"""Sets in an order that does not depend on the process: two processes must write the same value alike to
recognise it.

msgspec sorts by ``<``, which enums, dataclasses and a number beside a text do not support; pydantic does not
sort at all.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from makegood.payload.pydantic_models import schema_parts

Key = Callable[[Any], bytes]
"""The JSON of an element, by which sets are sorted."""


def without_sets(value: Any, key: Key) -> Any:
    """Return a value with lists for its sets, sorted by ``key``, and dicts for its objects.

    The result stands for the value, and is not its JSON.

    >>> without_sets({"a": {1, "b", None}}, msgspec.json.encode)
    {'a': ['b', 1, None]}
    """
    if isinstance(value, set | frozenset):
        return sorted((without_sets(part, key) for part in value), key=key)
    if isinstance(value, dict):
        return {name: without_sets(part, key) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [without_sets(part, key) for part in value]
    if (members := object_members(value)) is None:
        return value
    return {name: without_sets(part, key) for name, part in members.items() if part is not msgspec.UNSET}


def object_members(value: Any) -> dict[str, Any] | None:
    """Return an object's members, with the tag of its class; None unless it is a dataclass, attrs class or
    Struct.
    """
    cls = type(value)
    if isinstance(value, msgspec.Struct):
        members = {name: getattr(value, name) for name in cls.__struct_fields__}
        config = cls.__struct_config__
        return members if config.tag is None else {str(config.tag_field): config.tag, **members}
    if dataclasses.is_dataclass(cls):
        fields: Any = dataclasses.fields(cls)
    else:
        fields = getattr(cls, "__attrs_attrs__", None)
    return None if fields is None else {field.name: getattr(value, field.name, None) for field in fields}


@functools.lru_cache(maxsize=512)
def holds_sets(model: Any) -> bool:
    """Return whether values of a pydantic model may hold sets, according to its schema."""
    return any(part.get("type") in ("set", "frozenset") for part in schema_parts(model))


def sorted_as(data: Any, value: Any, key: Key) -> Any:
    """Return ``data``, pydantic's output for ``value``, with the lists sorted that are sets in ``value``."""
    if getattr(type(value), "__pydantic_root_model__", False):
        return sorted_as(data, value.root, key)
    if isinstance(data, dict):
        if isinstance(value, Mapping):
            members = dict(zip(data, value.values(), strict=False))
        else:
            members = _written_members(value)
        return {name: sorted_as(part, members.get(name), key) for name, part in data.items()}
    if isinstance(data, list) and isinstance(value, list | tuple | set | frozenset):
        parts = [sorted_as(part, other, key) for part, other in zip(data, value, strict=False)]
        return sorted(parts, key=key) if isinstance(value, set | frozenset) else parts
    return data


def _written_members(value: Any) -> dict[str, Any]:
    """Return an object's members by the names under which pydantic writes them."""
    fields = getattr(type(value), "model_fields", None)
    if fields is None:
        return object_members(value) or {}
    return {field.serialization_alias or name: getattr(value, name, None) for name, field in fields.items()}
