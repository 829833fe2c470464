"""Values of a database's rows as the fields of a record, whatever a row contains.

SQLite keeps a value of any type in any column, PostgreSQL a time such as 1e300 or NaN; and anybody who may
write a row may write such a value. Code that only shows rows reads them through ``record_of``: a value of
another type becomes an empty one, and all numbers are finite. So one bad row cannot hide the others.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from types import NoneType, UnionType
from typing import Any, Final, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

T = TypeVar("T")

FARTHEST: Final = 1e13
"""Seconds, 300,000 years: points in time and lengths beyond are cut to this."""
UNKNOWN: Final = -FARTHEST
"""A point in time, or a length, that is not a number."""


def seconds(value: object) -> float:
    """Return a point in time or a length as a finite number.

    >>> seconds(1e300), seconds(float("nan")) == seconds("soon") == UNKNOWN, seconds(7)
    (10000000000000.0, True, 7.0)
    """
    if not isinstance(value, int | float) or math.isnan(value):
        return UNKNOWN
    return max(-FARTHEST, min(float(value), FARTHEST))


def whole(value: object) -> int:
    """Return a number as an integer; 0 for what is not one.

    >>> whole(7), whole(7.0), whole("many"), whole(1e300)
    (7, 7, 0, 0)
    """
    if isinstance(value, float):
        return int(value) if abs(value) <= FARTHEST and value.is_integer() else 0
    return value if isinstance(value, int) else 0


def text(value: object) -> str:
    """Return a value as text.

    >>> text("a"), text(None), text(b"a"), text(7)
    ('a', '', 'a', '7')
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return "" if value is None else str(value)


def data(value: object) -> bytes:
    """Return a value as bytes.

    >>> data(b"a"), data("a"), data(None)
    (b'a', b'a', b'')
    """
    return value if isinstance(value, bytes) else text(value).encode(errors="replace")


_BY_TYPE: Final[Mapping[object, Callable[[object], object]]] = {
    float: seconds, int: whole, str: text, bytes: data, bool: bool,
}  # fmt: skip


def record_of(record: type[T], values: Iterable[Any]) -> T:
    """Return a record, a Struct or dataclass, of a row's values, in the order of its fields.

    Values for fields of other types than a column has are taken as they are.

    >>> class Alert(msgspec.Struct):
    ...     kind: str
    ...     at: float
    ...     ended: float | None = None
    >>> record_of(Alert, [7, 1e300]), record_of(Alert, ["held", 3.0, "soon"])
    (Alert(kind='7', at=10000000000000.0, ended=None), Alert(kind='held', at=3.0, ended=None))
    """
    cls: Any = record
    return record(*[convert(value) for convert, value in zip(_converters(cls), values, strict=False)])


@cache
def _converters(record: type[Any]) -> tuple[Callable[[Any], Any], ...]:
    """Return what converts a value for each field of a record."""
    hints = get_type_hints(record)
    names = record.__struct_fields__ if issubclass(record, msgspec.Struct) else record.__dataclass_fields__
    return tuple(_converter(hints[name]) for name in names)


def _converter(hint: Any) -> Callable[[Any], Any]:
    """Return what converts a value for a field with this annotation."""
    if get_origin(hint) in (Union, UnionType):
        kinds = [kind for kind in get_args(hint) if kind is not NoneType]
        if len(kinds) > 1 or NoneType not in get_args(hint):
            return _identity
        return partial(_or_none, _converter(kinds[0]), numeric=kinds[0] in (int, float))
    if get_origin(hint) is Literal:
        return text  # a state that a later version adds is shown as it is
    return _BY_TYPE.get(hint, _identity)


def _identity(value: Any) -> Any:
    return value


def _or_none(convert: Callable[[Any], Any], value: Any, *, numeric: bool) -> Any:
    if value is None or (numeric and (not isinstance(value, int | float) or math.isnan(value))):
        return None
    return convert(value)
