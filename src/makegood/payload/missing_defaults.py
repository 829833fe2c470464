"""Completes values read from JSON with the defaults that the JSON did not name.

msgspec leaves such a default of a dataclass to the class, where Python looks attributes up next, and does not
write it again either: a value that was read and passed on would lose the member. So this module writes it
into the instance after reading. What to check is worked out once per annotation; a value costs only the visit
of its own dataclasses.
"""

import typing
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from msgspec import inspect as kinds

Completer = Callable[[Any], None]
Table = dict[type, Completer]
"""What to do with a value, by its class; a class that is missing needs nothing."""

_LISTS: dict[type, type] = {
    kinds.ListType: list,
    kinds.SetType: set,
    kinds.FrozenSetType: frozenset,
    kinds.VarTupleType: tuple,
}


def completer(kind: kinds.Type) -> Completer | None:
    """Return a function that completes values of this type in place; None if msgspec leaves nothing to do.

    ``kind`` is what ``msgspec.inspect.type_info`` returns.
    """
    if not _has_defaults(kind):
        return None
    table = _table(kind, {})

    def complete(value: Any) -> None:
        if (completion := table.get(type(value))) is not None:
            completion(value)

    return complete


def parts(kind: kinds.Type) -> Iterator[kinds.Type]:
    """Yield a type and all types in it, each once."""
    parts_by_id: dict[int, object] = {}
    todo: list[object] = [kind]
    while todo:
        part = todo.pop()
        if isinstance(part, list | tuple):
            todo.extend(part)
        elif isinstance(part, kinds.Type | kinds.Field) and id(part) not in parts_by_id:
            parts_by_id[id(part)] = part
            if isinstance(part, kinds.Type):
                yield part
            todo.extend(getattr(part, name) for name in part.__struct_fields__)


def _has_defaults(kind: kinds.Type) -> bool:
    """Return whether values of this type may hold dataclasses with defaults that are left to the class."""
    return any(isinstance(part, kinds.DataclassType) and _defaults(part) for part in parts(kind))


def _defaults(kind: kinds.DataclassType) -> list[tuple[str, Any]]:
    """Return the defaults that are attributes of the class: only instances with a ``__dict__`` have them."""
    cls: Any = _class(kind)
    if not cls.__dictoffset__:
        return []
    defaults = [(field.name, getattr(cls, field.name)) for field in kind.fields if hasattr(cls, field.name)]
    return [(name, default) for name, default in defaults if not hasattr(default, "__set__")]


def _class(kind: kinds.DataclassType | kinds.StructType | kinds.NamedTupleType) -> type:
    """Return the class of the values: those of ``Page[int]`` are instances of ``Page``."""
    return typing.get_origin(kind.cls) or kind.cls


def _table(kind: kinds.Type, cache: dict[int, tuple[object, Table]]) -> Table:
    """Return what to do with values of this type. ``cache`` holds the tables begun, as a class may contain
    itself.
    """
    if id(kind) in cache:
        return cache[id(kind)][1]
    table: Table = {}
    cache[id(kind)] = (kind, table)
    if not _has_defaults(kind):
        return table
    if isinstance(kind, kinds.UnionType):
        for member in kind.types:
            table.update(_table(member, cache))
    elif type(kind) in _LISTS:
        table[_LISTS[type(kind)]] = _each(_table(kind.item_type, cache))  # type: ignore[attr-defined]  # all four have it
    elif isinstance(kind, kinds.TupleType):
        table[tuple] = _by_key([(n, _table(item, cache)) for n, item in enumerate(kind.item_types)])
    elif isinstance(kind, kinds.DictType):
        table[dict] = _each(_table(kind.value_type, cache), dict.values)
    elif isinstance(kind, kinds.TypedDictType):
        table[dict] = _by_key([(field.name, _table(field.type, cache)) for field in kind.fields])
    elif isinstance(kind, kinds.DataclassType | kinds.StructType | kinds.NamedTupleType):
        defaults = _defaults(kind) if isinstance(kind, kinds.DataclassType) else []
        inner: list[tuple[str, Table]] = []
        # before its members, which may contain the class itself
        table[_class(kind)] = _members(defaults, inner)
        inner += [
            (field.name, _table(field.type, cache)) for field in kind.fields if _has_defaults(field.type)
        ]
    return table


def _members(defaults: list[tuple[str, Any]], inner: list[tuple[str, Table]]) -> Completer:
    def complete(value: Any) -> None:
        for name, default in defaults:
            members = value.__dict__
            if name not in members:
                members[name] = default
        for name, table in inner:
            part = getattr(value, name)
            if (completion := table.get(type(part))) is not None:
                completion(part)

    return complete


def _each(table: Table, parts: Callable[[Any], Iterable[Any]] = iter) -> Completer:
    def complete(value: Any) -> None:
        for part in parts(value):
            if (completion := table.get(type(part))) is not None:
                completion(part)

    return complete


def _by_key(inner: list[tuple[Any, Table]]) -> Completer:
    tables = [(key, table) for key, table in inner if table]

    def complete(value: Any) -> None:
        for key, table in tables:
            if isinstance(value, dict) and key not in value:
                continue
            part = value[key]
            if (completion := table.get(type(part))) is not None:
                completion(part)

    return complete
