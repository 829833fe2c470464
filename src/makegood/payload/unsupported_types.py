"""Types that msgspec accepts but cannot restore: reading their JSON back fails, or gives another value.

They are refused at the declaration. Otherwise a result of such a type would fail only once the effect is in
place.
"""

import collections
import pathlib
import typing
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import inspect as kinds

from makegood.payload.missing_defaults import parts
from makegood.payload.pydantic_models import is_model

_OTHERWISE = "write a dataclass, a TypedDict or what JSON has, and make the other of it in the action"
_INSTEAD: Mapping[type, str] = {
    collections.Counter: "write dict[str, int]",
    collections.OrderedDict: "write dict[...], which keeps its order too",
    collections.defaultdict: "write dict[...]",
    collections.deque: "write list[...]",
    collections.abc.Iterable: "write Sequence[...] or list[...]: it is kept as a whole",
    collections.abc.Iterator: "write list[...]: it is kept as a whole",
    range: "write list[int]",
    pathlib.Path: "write str, and make the Path of it in the action",
}
_NO_KEYS = (
    kinds.BoolType, kinds.NoneType, kinds.CollectionType, kinds.TupleType, kinds.DictType, kinds.StructType,
    kinds.DataclassType, kinds.NamedTupleType, kinds.TypedDictType,
)  # fmt: skip
_BUILT_IN = (dict, list, tuple, set, frozenset, str, bytes, int, float)


def refuse_unread(kind: kinds.Type, bases: tuple[type, ...]) -> None:
    """Raise ``TypeError`` for a type that contains such a type, with what to write instead.

    ``kind`` is what ``msgspec.inspect.type_info`` returns. Subclasses of ``bases`` can be restored.
    """
    for part in parts(kind):
        if isinstance(part, kinds.CustomType):
            cls = part.cls
            if not (cls is object or is_model(cls) or issubclass(cls, bases)):
                raise TypeError(
                    f"{_name(cls)} is none of the types that are kept; {_INSTEAD.get(cls, _OTHERWISE)}"
                )
        elif isinstance(part, kinds.DictType):
            _refuse_key(part.key_type)
        elif isinstance(part, kinds.DataclassType):
            _refuse_class(typing.get_origin(part.cls) or part.cls, [field.name for field in part.fields])


def _refuse_key(key: kinds.Type) -> None:
    # JSON does not say whether a text is a key, and a number as one is refused elsewhere
    if isinstance(key, kinds.CustomType):
        if not (key.cls is object or issubclass(key.cls, str)):
            raise TypeError(
                f"a key is a text as JSON, and of none a {_name(key.cls)} is made; write str or int for it, or list[tuple[K, V]]"
            )
    elif isinstance(key, _NO_KEYS):
        raise TypeError(
            f"a key is a text as JSON, and of none a {type(key).__name__.removesuffix('Type')} is made; write list[tuple[K, V]]"
        )


def _refuse_class(cls: Any, names: Sequence[str]) -> None:
    private = next((name for name in names if name.startswith("_")), None)
    if private is not None and hasattr(cls, "__attrs_attrs__"):
        raise TypeError(
            f"{_name(cls)}.{private} would be left out, as all names of an attrs class that begin with _; name it otherwise, or "
            f"write a dataclass"
        )
    if isinstance(cls, type) and issubclass(cls, _BUILT_IN):
        raise TypeError(f"{_name(cls)} is made of {_name(cls.__base__)}, which is lost; {_OTHERWISE}")


def _name(cls: Any) -> str:
    return str(getattr(cls, "__name__", cls))
