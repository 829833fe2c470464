"""Where a value in a plan came from: an input of the workflow, or the function itself.

A step that is given an input follows it when an operator corrects that input, so the plan must know what the
function passed, not what it was equal to. The function therefore gets copies of the inputs that nobody else
has: an argument that *is* one of them came through that parameter. For two kinds of values that is no proof:

- Python keeps one object for some values (1, None, True, an enum member, an empty text), whoever made them.
- An expression may return its operand itself: ``max(cents, 500)``, ``name.strip()``, ``to or "x"``. So it
  is with everything that can be compared by size or is true or false by its value.

Such an input is *ambiguous*: an argument that is the same object may have come from this input, from another
one, or from the code. There the function's source decides: an argument that is written as the bare name of a
parameter is that input.
"""

import copy
import dataclasses
import decimal
import functools
import sys
from collections.abc import Callable, Container, Mapping, Sequence
from itertools import islice
from types import CodeType, FrameType, FunctionType, NoneType
from typing import Any

from makegood.declare.action import Action
from makegood.model.plan import Ref
from makegood.workflow.misuse import Passing, Position

Mark = type | tuple[type, int]
"""What distinguishes an input for a plan, its value aside.

Its type; of an ambiguous one also the place of the first input that is the same object. If it is a constant
of the function too, that place is negative: an argument that is this object is written as the constant, so
that the plan is the same whether or not a constant happens to be an input.
"""


def _same(value: Any) -> Any:
    return value


def _copy(value: Any) -> Any:
    """Return what ``copy.copy`` makes of a value; the value itself if that is no copy."""
    try:
        other = copy.copy(value)
    except Exception:  # noqa: BLE001 - the user's class decides how it is copied, and may raise anything
        return value
    return other if type(other) is type(value) else value


def _copy_members(value: Any) -> Any:
    """Return what ``copy.copy`` makes of an object that is its ``__dict__`` alone."""
    other = object.__new__(type(value))
    other.__dict__.update(value.__dict__)
    return other


_COPIES: Mapping[type, Callable[[Any], Any]] = {
    NoneType: _same,
    bool: _same,
    str: lambda text: (text + " ")[:-1] if len(text) > 1 else text,  # one character is shared
    bytes: lambda data: (data + b" ")[:-1] if len(data) > 1 else data,
    int: lambda number: -(0 - number),
    float: lambda number: number * 1.0,
    decimal.Decimal: lambda number: number.copy_negate().copy_negate(),
    tuple: lambda values: (*values,),
    frozenset: lambda values: frozenset([*values]),
    dict: dict.copy,
    list: list.copy,
    set: set.copy,
}
"""How to copy what ``copy.copy`` leaves as it is, or copies more slowly."""


def _copier(kind: Any) -> Callable[[Any], Any]:
    """Return a function that copies values so that no one notices, or returns the value itself."""
    if kind in _COPIES:
        return _COPIES[kind]
    if kind.__eq__ is object.__eq__:  # identity is all that its values have; enum members belong here
        return _same
    plain = kind.__mro__ == (kind, object) and kind.__dictoffset__ and dataclasses.is_dataclass(kind)
    return _copy_members if plain and not _OWN_COPY & vars(kind).keys() else _copy


_ORDER = frozenset({"__lt__", "__gt__"})
_OPERAND = _ORDER | {"__bool__", "__len__"}
"""What a class has whose values an expression may choose, and return as they are."""


def _may_choose(kind: Any) -> bool:
    """Return whether an expression may choose a value of this class, and return it as it is."""
    config = getattr(kind, "__struct_config__", None)
    names = _OPERAND if config is None or config.order else _OPERAND - _ORDER  # Structs have them, to refuse
    return any(getattr(kind, name, None) is not getattr(object, name, None) for name in names)


_OWN_COPY = {
    "__copy__",
    "__reduce__",
    "__reduce_ex__",
    "__getstate__",
    "__setstate__",
    "__new__",
    "__slots__",
}


@functools.lru_cache(maxsize=512)
def _handling(kind: Any) -> tuple[Callable[[Any], Any], bool]:
    """Return how a value of this class is copied, and whether an expression may return it as it is."""
    return _copier(kind), _may_choose(kind)


def own_copies(inputs: Sequence[object], constants: Container[int]) -> tuple[list[object], tuple[Mark, ...]]:
    """Return a copy of each input, shallow, for the workflow function alone, and the mark of each.

    ``constants``: those of the function, by ``id``. Inputs with the same marks make the same plan, as far as
    the function passes on the same arguments.
    """
    copies: list[object] = []
    marks: list[Mark] = []
    first: dict[int, int] = {}
    for n, value in enumerate(inputs):
        kind: Any = type(value)
        copier, ambiguous = _handling(kind)
        own = copier(value)
        copies.append(own)
        if own is not value:
            marks.append((kind, n) if ambiguous else kind)
        else:
            place = ~id(value) if id(value) in constants else first.setdefault(id(value), n)
            marks.append((kind, place))
    return copies, tuple(marks)


Site = tuple[CodeType, int]
"""Where a call is in compiled code."""

_CALL = Action.__call__.__code__


class Sites:
    """The calls of actions in a workflow function that pass on its parameters.

    ``passings``: what ``check_source`` returned for the function; ``names``: of its inputs, in order.
    """

    def __init__(
        self, fn: Callable[..., object], passings: Mapping[Position, Passing], names: Sequence[str]
    ) -> None:
        # of a function that was wrapped, the arguments may not be the inputs
        self._codes = frozenset(_codes(fn.__code__)) if isinstance(fn, FunctionType) else frozenset()
        self._passings = passings
        self._places = {name: n for n, name in enumerate(names)}

    def places_passed(self, action: Action[..., Any]) -> Mapping[str, int]:
        """Return the places of the inputs that the present call of an action passes on, by its parameters."""
        frame = _calling_frame()
        if frame is None or frame.f_code not in self._codes:
            return {}
        _, line, _, column = next(islice(frame.f_code.co_positions(), frame.f_lasti // 2, None))
        passing = self._passings.get((line or 0, column or 0))
        if passing is None or passing.action is not action:
            return {}
        by_position = zip(action.parameters.names, passing.by_position, strict=False)
        names = {**dict(by_position), **passing.by_name}
        return {
            parameter: self._places[name]
            for parameter, name in names.items()
            if name is not None and name in self._places
        }


def _calling_frame() -> FrameType | None:
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - CPython's documented way to see the caller
    while frame is not None and frame.f_code is not _CALL:
        frame = frame.f_back
    return None if frame is None else frame.f_back


def _codes(code: CodeType) -> list[CodeType]:
    """Return the code of a function and of those in it."""
    inner = [const for const in code.co_consts if isinstance(const, CodeType)]
    return [code, *(part for one in inner for part in _codes(one))]


class Origins:
    """Finds the input that an argument is. ``copies`` and ``marks`` are those of ``own_copies``."""

    def __init__(self, copies: Sequence[object], marks: Sequence[Mark], sites: Sites) -> None:
        self._copies = copies
        self._sites = sites
        self._ambiguous = {n for n, mark in enumerate(marks) if isinstance(mark, tuple)}
        self._places = {
            id(value): n
            for n, (value, mark) in enumerate(zip(copies, marks, strict=True))
            if not isinstance(mark, tuple) or mark[1] == n
        }

    def places_passed(self, action: Action[..., Any]) -> Mapping[str, int]:
        """See ``Sites.places_passed``; empty where no input is ambiguous, so that nobody needs it."""
        return self._sites.places_passed(action) if self._ambiguous else {}

    def site(self) -> Site | None:
        """Return where the present call is, if what it passes on depends on that."""
        frame = _calling_frame() if self._ambiguous else None
        return None if frame is None else (frame.f_code, frame.f_lasti)

    def ref(self, value: object, place_in_source: int | None = None) -> Ref | None:
        """Return the ref of a value that is an input; None for any other.

        ``place_in_source``: the place of the input that the source passes on here.
        """
        if place_in_source is not None and self._copies[place_in_source] is value:
            return Ref("input", place_in_source)
        place = self._places.get(id(value))
        return None if place is None else Ref("value" if place in self._ambiguous else "input", place)
